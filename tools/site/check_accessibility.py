# SPDX-License-Identifier: MIT
"""Runs axe-core over the pages of a site in Chromium, light and dark, 375 and 1280 pixels wide.

Usage: check_accessibility.py FOLDER [PAGE...]. Needs Chromium with its driver, and selenium and axe-core-python from
PyPI. Exit code 1 for violations of WCAG 2.1 A and AA or axe's best practices, and for pages wider than the window.
"""
import importlib.util
import os
import sys

from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service

RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"]
# Known effects of the theme's scripts: code can be focused only where there is a mouse (browsers focus all scrolled
# areas by themselves), and copy buttons are landmarks.
IGNORED = {"scrollable-region-focusable", "landmark-unique"}
RUN = "const done = arguments[arguments.length - 1]; axe.run(document, {runOnly: arguments[0]}).then(done)"


def open_browser(scheme):
    options = Options()
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--allow-file-access-from-files"):
        options.add_argument(argument)
    browser = webdriver.Chrome(options=options, service=Service("/usr/bin/chromedriver"))
    # On a busy machine the longest page takes minutes.
    browser.set_script_timeout(600)
    browser.command_executor.client_config.timeout = 660
    browser.execute_cdp_cmd("Page.setBypassCSP", {"enabled": True})
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]})
    return browser


def problems_of(browser, axe, path, width):
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {"width": width, "height": 1000, "deviceScaleFactor": 1, "mobile": False})
    browser.get("file://" + path)
    browser.execute_script(axe)
    if browser.execute_script("return document.documentElement.scrollWidth > innerWidth"):
        yield "wider than the window"
    for violation in browser.execute_async_script(RUN, RULES)["violations"]:
        if violation["id"] in IGNORED:
            continue
        node = violation["nodes"][0]
        why = (node["any"] or [{"message": violation["help"]}])[0]["message"]
        yield f"{violation['id']}, {len(violation['nodes'])} times: {node['html'][:120]}: {why}"


def main(root, pages):
    package = importlib.util.find_spec("axe_core_python").submodule_search_locations[0]
    with open(os.path.join(package, "axe.min.js"), encoding="utf-8") as file:
        axe = file.read()
    if not pages:
        pages = sorted(os.path.relpath(os.path.join(folder, name), root) for folder, _, names in os.walk(root) for name in names
                       if name.endswith(".html") and name != "404.html")
    found = 0
    for scheme in ("light", "dark"):
        browser = open_browser(scheme)
        for page in pages:
            for width in (375, 1280):
                for problem in problems_of(browser, axe, os.path.abspath(os.path.join(root, page)), width):
                    found += 1
                    print(f"{page}, {scheme}, {width} pixels: {problem}")
        browser.quit()
    print(f"{len(pages)} pages, {found} kinds of violation")
    return 1 if found or not pages else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
