# SPDX-License-Identifier: MIT
"""Extends MkDocs for the documentation site (mkdocs.yml):

- pages from files outside docs/ (PAGES), and links to source files, which become part of the site,
- what tools/build-docs has made (MADE): the gallery, the images of the course,
- those images, named by the heading above them:            <!-- image: stencil-naive -->
- code from the sources, by a function's first line:        <!-- code: kernels/a.cu: void kernel( -->
- a chart of a ladder up to a step, from a column of the table that a benchmark fills in: <!-- step: kernels/README.md: cuda_naive: 1 -->

Marks of tests/docs (`docs-test`) become a line where they say something to readers. A piece of code or a figure that no
longer exists ends the build.
"""
import base64
import os
import posixpath
import re
import sys

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import charts  # noqa: E402

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PAGES = {"kernels/README.md": "kernels.md", "kernels/layer/README.md": "kernels-layers.md",
         "kernels/layer/fast-kernels.md": "kernels-fast-layers.md", "kernels/layer/cpu-kernels.md": "kernels-cpu-layers.md",
         "kernels/layer/beside-cudnn.md": "kernels-beside-cudnn.md", "CONTRIBUTING.md": "contributing.md",
         "CHANGELOG.md": "changelog.md", "SECURITY.md": "security.md"}
MADE = "build-docs/made"
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
    for folder, _, names in os.walk(os.path.join(ROOT, MADE)):
        for name in names:
            path = os.path.join(folder, name)
            with open(path, "rb") as file:
                files.append(File.generated(config, os.path.relpath(path, os.path.join(ROOT, MADE)), content=file.read()))
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
    while first > 0 and lines[first - 1].startswith(("template", "static")):
        first -= 1
    while not re.match(r"\};?$", lines[last]):
        last += 1
    return "\n".join(lines[first:last + 1])


def without_shim(output, url):
    """The theme's search on file:// loads a script from elsewhere; ours does the same."""
    return output.replace("https://unpkg.com/iframe-worker/shim", posixpath.relpath("iframe-worker.js", posixpath.dirname(url) or "."))


def accessible(output):
    """Adds what the theme lacks for screen readers: names of the search dialog and of sections with their own page."""
    output = re.sub(r"<th( [^>]*)?></th>", r"<td\1></td>", output)  # of a column without a name
    output = re.sub(r'(<div class="md-search"[^>]*role="dialog")>', r'\1 aria-label="Search">', output)
    titles = re.findall(r'<label class="md-nav__title" for="(__nav_\d+)">\s*<span[^>]*></span>\s*([^<]+?)\s*</label>', output)
    for name, title in titles:
        output = output.replace(f'aria-labelledby="{name}_label"', f'aria-label="{title}"')
    return output


def on_post_page(output, page, config):
    return accessible(without_shim(output, page.url))


def on_post_template(output, template_name, config):
    return accessible(without_shim(output, template_name))


def on_page_markdown(markdown, page, config, files):
    origin = ORIGINS.get(page.file.src_uri, "docs/" + page.file.src_uri)
    if not page.file.src_uri.startswith("source/"):
        markdown = with_links(markdown, origin, page.file.src_uri)

    def code(match):
        return "```cpp\n" + function_in(match[1], match[2]) + "\n```"

    def image(match):
        heading = re.findall(r"(?m)^#+ (?:\d+\. )?(.+)$", match.string[:match.start()])[-1]
        return f"![{heading}]({match[1]}.svg)"

    def not_run(match):
        if match[1] == "output":
            return '<p class="not-run">It prints:</p>\n'
        return '<p class="not-run">Needs a GPU:</p>\n' if match[1] == "gpu" else "<p></p>\n"

    markdown = re.sub(r"(?m)^<!-- docs-test: (.*?) -->$", not_run, markdown)
    markdown = re.sub(r"<!-- image: (\S+) -->", image, markdown)
    markdown = re.sub(r"(?m)^<!-- code: (\S+): (.+?) -->", code, markdown)

    def step(match):
        steps = charts.ladder(match[1], match[2], int(match[3]))
        drawn = base64.b64encode(charts.chart("The ladder so far: longer is faster", steps, steps[-1]).encode()).decode()
        said = "; ".join(f"{name}: {text}" for name, _, text in steps[-2:])
        return f"![{said}](data:image/svg+xml;base64,{drawn})"

    return re.sub(r"<!-- step: (\S+): (\S+): (\d+) -->", step, markdown)
