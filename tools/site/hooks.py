# SPDX-License-Identifier: MIT
"""What MkDocs does not do by itself for the documentation site (mkdocs.yml):

- pages from files outside docs/ (PAGES), and links to source files, which become part of the site,
- code from the sources, by the first line of a function:   <!-- code: kernels/a.cu: void kernel( -->
- figures from the tables that the benchmarks fill in:      <!-- figures: kernels/README.md: cuda_naive -->

Marks of tests/docs (`docs-test`) become a line that says what is not tested. A piece of code or a figure that no longer exists ends the build.
"""
import html
import os
import posixpath
import re

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PAGES = {"kernels/README.md": "kernels.md", "kernels/layer/README.md": "kernels-layers.md", "CONTRIBUTING.md": "contributing.md",
         "CHANGELOG.md": "changelog.md", "SECURITY.md": "security.md", "SUPPORT.md": "support.md"}
ORIGINS = {page: path for path, page in PAGES.items()}
LINK = re.compile(r"(!?\[[^\]]*\]\()([^)#\s]+)(#[^)\s]*)?(\))")
SHOWN_AS_THEY_ARE = (".svg", ".png", ".jpg", ".html", ".json")


def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        return file.read()


# Code blocks, or a link (groups 1 to 4), or a code span, whichever comes first.
TOKEN = re.compile(r"(?m)(?s:^ *```.*?^ *```)|(?:^    (?! ).*\n)+|" + LINK.pattern + r"|`[^`\n]+`")


def target_of(origin, link):
    """The path in the repository that a link of the file `origin` leads to, or None."""
    if re.match(r"[a-z]+:|/|#", link):
        return None
    return posixpath.normpath(posixpath.join(posixpath.dirname(origin), link))


def place_of(path):
    """Where a file of the repository is in the site; None: not a file."""
    if path in PAGES:
        return PAGES[path]
    if path.startswith("docs/"):
        return path[len("docs/"):]
    if path == "README.md":
        return "index.md"
    if os.path.isdir(os.path.join(ROOT, path)):
        return f"source/{path}/index.md"
    if os.path.isfile(os.path.join(ROOT, path)):
        return "source/" + path + ("" if path.endswith(SHOWN_AS_THEY_ARE) else ".txt")
    return None


def with_links(text, origin, page):
    def change(match):
        path = match[2] and target_of(origin, match[2])
        place = path and place_of(path)
        if not place:
            return match[0]
        return f"{match[1]}{posixpath.relpath(place, posixpath.dirname(page) or '.')}{match[3] or ''}{match[4]}"

    return TOKEN.sub(change, text)


def linked_files(origin, text):
    return set(filter(None, (target_of(origin, match[2]) for match in TOKEN.finditer(text) if match[2])))


def on_files(files, config):
    texts = {"docs/" + file.src_uri: file.content_string for file in files.documentation_pages()}
    for path, page in PAGES.items():
        texts[path] = read(path)
        files.append(File.generated(config, page, content=texts[path]))
    places = {}
    for origin, text in texts.items():
        for path in linked_files(origin, text):
            place = place_of(path)
            if place and place.startswith("source/"):
                places[place] = path
    for place, path in sorted(places.items()):
        if place.endswith("/index.md"):
            names = sorted(name for name in os.listdir(os.path.join(ROOT, path)) if os.path.isfile(os.path.join(ROOT, path, name)))
            content = f"# {path}\n\n" + "\n".join(f"- [{name}]({name}.txt)" for name in names) + "\n"
            for name in names:
                files.append(File.generated(config, f"source/{path}/{name}.txt", content=read(f"{path}/{name}")))
            generated = File.generated(config, place, content=content)
            generated.inclusion = generated.inclusion.__class__.NOT_IN_NAV
            files.append(generated)
        else:
            with open(os.path.join(ROOT, path), "rb") as file:
                files.append(File.generated(config, place, content=file.read()))
    return files


def function_in(path, start):
    """The text of the function (or struct, or macro) of `path` whose first line contains `start`."""
    lines = read(path).splitlines()
    found = [i for i, line in enumerate(lines) if start in line and not line.startswith("//")]
    if not found:
        raise PluginError(f"{path} has no line with '{start}': mend the page that shows it")
    first = last = found[0]
    while first > 0 and lines[first - 1].startswith("template"):
        first -= 1
    while not re.match(r"\};?$", lines[last]):
        last += 1
    return "\n".join(lines[first:last + 1])


def figures_of(path, variant):
    """A table of the row of a variant, under the heads of the table that it stands in."""
    head = None
    for line in read(path).splitlines():
        if line.startswith("| variant |") and "file" not in line and "|" in line[11:]:
            head = line
        if head and line.startswith(f"| `{variant}` |"):
            return "\n".join([head, re.sub(r"[^|]+", "---", head), line])
    raise PluginError(f"{path} has no figures of {variant}")


def without_shim(output, url):
    """The theme's search on file:// loads a script from elsewhere; ours does the same."""
    return output.replace("https://unpkg.com/iframe-worker/shim", posixpath.relpath("iframe-worker.js", posixpath.dirname(url) or "."))


def on_post_page(output, page, config):
    return without_shim(output, page.url)


def on_post_template(output, template_name, config):
    return without_shim(output, template_name)


def on_page_markdown(markdown, page, config, files):
    origin = ORIGINS.get(page.file.src_uri, "docs/" + page.file.src_uri)
    if not page.file.src_uri.startswith("source/"):
        markdown = with_links(markdown, origin, page.file.src_uri)

    def code(match):
        lines = ["```cpp", *function_in(match[2], match[3]).splitlines(), "```"]
        return "\n".join((match[1] + line).rstrip() for line in lines)

    def not_run(match):
        reason = "needs a GPU" if match[1] == "gpu" else match[1][6:-1] if match[1].startswith("skip (") else None
        return f'<p class="not-run">The tests do not run this: {html.escape(reason)}.</p>\n' if reason else ""

    markdown = re.sub(r"(?m)^<!-- docs-test: (.*?) -->$", not_run, markdown)
    markdown = re.sub(r"(?m)^( *)<!-- code: (\S+): (.+?) -->", code, markdown)
    return re.sub(r"<!-- figures: (\S+): (\S+) -->", lambda match: figures_of(match[1], match[2]), markdown)
