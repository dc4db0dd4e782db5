# SPDX-License-Identifier: MIT
"""Checks a site on disk: every link to a file or an anchor has a target, no page loads anything from elsewhere, and no
text begins like a list that was not recognised.

Usage: check_links.py FOLDER. Exit code 1 if something is wrong. Links to other sites are counted, not followed.
"""
import html.parser
import os
import sys
import urllib.parse

LOADING = {("img", "src"), ("script", "src"), ("link", "href"), ("source", "srcset"), ("iframe", "src"), ("video", "src"), ("object", "data")}
HARMLESS = {"canonical", "prev", "next"}  # <link rel> that loads nothing
PLAIN = ("pre", "style", "script")


class Page(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.links, self.anchors, self.unlisted, self.plain = [], set(), [], 0

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        self.plain += tag in PLAIN
        self.anchors.update(filter(None, (values.get("id"), values.get("name"))))
        if tag == "link" and values.get("rel") in HARMLESS:
            return
        for name in ("href", "src", "srcset", "data"):
            if values.get(name) and (tag, name) in LOADING | {("a", "href"), ("area", "href")}:
                self.links.append((tag, name, values[name].split()[0]))

    def handle_endtag(self, tag):
        self.plain -= tag in PLAIN

    def handle_data(self, data):
        # Python-Markdown sees a list only after an empty line, unlike GitHub.
        if not self.plain:
            self.unlisted += [line for line in data.split("\n")[1:] if line.startswith(("- ", "* "))]


def main(root):
    pages, wrong, outside, inside = {}, [], set(), 0
    for folder, _, names in os.walk(root):
        for name in names:
            if name.endswith(".html"):
                path = os.path.join(folder, name)
                pages[path] = Page()
                with open(path, encoding="utf-8") as file:
                    pages[path].feed(file.read())
    for path, page in pages.items():
        shown = os.path.relpath(path, root)
        wrong += [f"{shown}: no list: {line[:60]}" for line in page.unlisted]
        for tag, name, link in page.links:
            target = urllib.parse.urlsplit(link)
            if target.scheme in ("http", "https") or target.netloc:
                outside.add(link)
                if (tag, name) in LOADING:
                    wrong.append(f"{shown}: loads {link}")
            elif target.scheme in ("data", "mailto"):
                pass
            else:
                inside += 1
                file = os.path.normpath(os.path.join(os.path.dirname(path), urllib.parse.unquote(target.path))) if target.path else path
                anchor = urllib.parse.unquote(target.fragment)
                if os.path.basename(path) == "404.html":
                    continue  # its links begin at the root of a server
                if not os.path.exists(file):
                    wrong.append(f"{shown}: {link} leads nowhere")
                elif anchor and file in pages and anchor not in pages[file].anchors and not anchor.startswith("__"):
                    wrong.append(f"{shown}: {link}: no such anchor")
    print("\n".join(wrong + [f"{len(pages)} pages, {inside} links within the site, {len(outside)} to elsewhere, {len(wrong)} wrong"]))
    return 1 if wrong or not pages else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
