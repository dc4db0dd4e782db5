# SPDX-License-Identifier: MIT
"""Looks at the pages of a site with Chromium: none is wider than a phone, and axe-core finds no violation.

Usage: check_pages.py FOLDER [AXE]. AXE is axe.min.js; without it only the widths are checked. Exit code 1 if something is wrong.
"""
import concurrent.futures
import html
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

PHONE = 390  # pixels
LOOK = """<script>addEventListener("load", async () => {
  const found = {width: document.documentElement.scrollWidth, wrong: []};
  if (window.axe) for (const rule of (await axe.run(document, {resultTypes: ["violations"]})).violations)
    found.wrong.push(rule.id + ": " + rule.nodes.map(node => node.target.join(" ")).slice(0, 3).join(", "));
  parent.postMessage(JSON.stringify(found), "*");
})</script>"""
# A window is at least 500 pixels wide, a frame is not.
FRAME = """<!doctype html><pre></pre><script>addEventListener("message", event => document.querySelector("pre").textContent = event.data)</script>
<iframe src="{}" style="width: {}px; height: 844px; border: 0"></iframe>"""


def look(browser, root, page, axe):
    """What is wrong with a page, in a copy of it that says so."""
    folder, name = os.path.split(os.path.join(root, page))
    with open(os.path.join(folder, name), encoding="utf-8") as file:
        text = file.read()
    copies = {f".page-{name}": text.replace("</body>", (f"<script src='{axe}'></script>" if axe else "") + LOOK + "</body>"),
              f".frame-{name}": FRAME.format(f".page-{name}", PHONE)}
    for copy, content in copies.items():
        with open(os.path.join(folder, copy), "w", encoding="utf-8") as file:
            file.write(content)
    with tempfile.TemporaryDirectory() as profile:
        out = subprocess.run([browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-web-security", f"--user-data-dir={profile}",
                              "--virtual-time-budget=30000", "--dump-dom", f"file://{folder}/.frame-{name}"], capture_output=True, text=True, timeout=300).stdout
    for copy in copies:
        os.remove(os.path.join(folder, copy))
    shown = re.search(r"<pre>(.+?)</pre>", out, re.S)
    if not shown:
        return [f"{page}: not shown"]
    found = json.loads(html.unescape(shown[1]))
    return [f"{page}: {found['width']} pixels wide"] * (found["width"] > PHONE) + [f"{page}: {line}" for line in found["wrong"]]


def main(root, axe=None):
    browser = shutil.which("chromium")
    if not browser:
        print("skipped: no chromium")
        return 0
    if axe and not os.path.exists(axe):
        return f"no {axe}"
    pages = sorted(os.path.relpath(os.path.join(folder, name), root) for folder, _, names in os.walk(root) for name in names
                   if name.endswith(".html") and not name.startswith((".", "404")) and "source" not in folder)
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        wrong = [line for lines in pool.map(lambda page: look(browser, os.path.abspath(root), page, axe), pages) for line in lines]
    print("\n".join(wrong + [f"{len(pages)} pages looked at, {len(wrong)} wrong"]))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
