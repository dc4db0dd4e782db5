# SPDX-License-Identifier: MIT
"""--html: a self-contained page whose figures are those of the record."""
import base64
import functools
import html
import html.parser
import json
import os
import re
import shutil
import signal
import struct
import subprocess
import tempfile
import zlib

import numpy as np
import pytest

try:
    import html5lib
except ImportError:  # a machine that tools/setup has not prepared
    html5lib = None

import browser
import images
import png_writer as png
import program
from folders import fill, fill_with_noise
from program import run, start, until

VOID = {"meta", "img", "input", "br"}
NODE = shutil.which("node") or shutil.which("nodejs")
BENCH = ("bench", "streams", "in", "--device", "cpu", "-j", "2")
KERNELS = ("bench", "kernels", "--device", "cpu", "--image-size", "64x48")


def render(path):
    """What the page shows, as HTML."""
    if NODE:
        script = os.path.join(os.path.dirname(__file__), "render_page.js")
        return subprocess.run([NODE, script, path], capture_output=True, encoding="utf-8", check=True).stdout
    if not browser.BINARY:
        pytest.skip("neither node nor chromium")
    with tempfile.TemporaryDirectory() as profile, browser.Browser(profile) as running:
        running.open(path)
        return running.evaluate("'<!doctype html>' + document.querySelector('main').outerHTML")


class Page(html.parser.HTMLParser):
    """The page's data, and what it shows: figures by their keys, text, images; elements must be closed in order."""

    def __init__(self, path):
        super().__init__()
        self.open, self.figures, self.text, self.images, self.addresses = [], [], "", [], []
        with open(path, encoding="utf-8") as file:
            self.file = file.read()
        data, = re.findall(r'<script type="application/json" id="data">(.*?)</script>', self.file, re.DOTALL)
        self.data = json.loads(data)
        self.record = self.data["record"]
        self.source = render(path)
        self.feed(self.source)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.addresses += [attributes[name] for name in ("src", "href") if name in attributes]
        if tag == "img":
            self.images.append(attributes["src"])
        if "data-key" in attributes:
            self.figures.append([attributes["data-key"], float(attributes.get("data-scale", 1)), ""])
        if tag not in VOID:
            self.open.append((tag, attributes))

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        self.handle_endtag(tag)

    def handle_endtag(self, tag):
        assert self.open.pop()[0] == tag

    def handle_data(self, data):
        self.text += data
        if self.open and "data-key" in self.open[-1][1]:
            self.figures[-1][2] += data


def check_figures(page, record):
    """Every figure on the page equals the record's, to the last digit shown. Returns the keys."""
    assert page.figures
    for key, scale, shown in page.figures:
        value = record
        for part in key.split("."):
            value = value[int(part) if part.isdigit() else part]
        if isinstance(value, str):
            assert shown == value.replace("_", " "), key
            continue
        shown = shown.replace("\u202f", "")
        last = 10.0 ** -len(shown.partition(".")[2])
        assert abs(float(shown) - value * scale) <= 0.501 * last, f"{key}: {shown} is not {value * scale}"
    return {key for key, _, _ in page.figures}


def check_page(path):
    page = Page(path)
    assert "{{" not in page.file and "undefined" not in page.text
    assert not {"inf", "nan", "Infinity", "NaN"} & set(re.split(r"[\s%×]+", page.text))
    assert all(address.startswith(("data:", "#")) for address in page.addresses)
    assert not re.search(r"https?:|@import|url\(|innerHTML", page.file)
    if html5lib:  # raises an exception at the first error
        for source in (page.file, page.source):
            html5lib.HTMLParser(strict=True).parse(re.sub(r'base64,[^"]{100,}', "base64,", source))
    return page


@functools.cache
def contents():
    """Of images of several kinds."""
    rng = np.random.default_rng(7)
    kinds = ("rgb8", "rgba16", "gray8", "rgb8", "rgba8", "palette8", "gray16")
    return [images.make(kind, rng, 500, 300, filters=0, level=1).data for kind in kinds]


@pytest.fixture
def folder(box):
    """Images of several kinds, one that is broken, and names that try to be markup."""
    os.mkdir("in")
    names = (b"a&amp;.png", b"<b>.png", b"\xff.png", b'"quoted".png', b"e.png", b"f.png", b"g.png")
    for data, name in zip(contents(), names):
        with open(b"in/" + name, "wb") as file:
            file.write(data)
    (box / "in/<script>alert(1)<.png").write_bytes(b"bad")
    return box


def test_figures_of_a_run(folder):
    run("emboss,blur5", "--html", "p.html", "--report", "r.jsonl", "-j", "2", "in", "out", code=1)
    page = check_page("p.html")
    with open("r.jsonl") as file:
        record = json.loads(file.readlines()[-1])
    assert page.record == record
    keys = check_figures(page, record)
    assert {"images_per_s", "seconds", "done", "failed", "cpu_utilisation", "waiting", "start_seconds", "busy.decode",
            "ms.encode"} <= keys
    for text in ("--html p.html", "in/<script>alert(1)<.png", "bad signature", "replicate", "cpu", "5 × 5"):
        assert text in page.text, text
    assert re.search(r"worker \d", page.text)  # idle workers have no row
    assert "Share of the time of 2 workers" in page.text and "Share of the run" not in page.text
    assert "<script>alert" not in page.file and "<script>alert" not in page.source


def test_images_are_the_same_part_of_input_and_output(folder):
    os.remove("in/<script>alert(1)<.png")
    gray = np.full((700, 800), 40)  # detail in one place, not in the middle
    gray[400:600, 450:750] = np.random.default_rng(5).integers(0, 256, (200, 300))
    os.mkdir("one")
    png.write("one/a.png", 800, 700, gray.tolist(), png.GRAY)
    run("emboss", "--html", "p.html", "-j", "1", "one", "in", "out")
    page = check_page("p.html")
    assert len(page.images) == 6
    pieces = [images.decode(base64.b64decode(image.partition(",")[2])) for image in page.images]
    captions = re.findall(r'<figcaption title="[^"]* from (\d+), (\d+) on"><span class="name">([^<]*)</span>', page.source)
    run("identity", "one", "in", "same")  # the inputs as this test can read them
    for before, after, (x, y, name) in zip(pieces[::2], pieces[1::2], captions, strict=True):
        assert before.shape == after.shape and before.shape[1:] == (246, 328) and before.dtype == np.uint8
        if name == "one/a.png":
            assert (int(x), int(y)) == (472, 340), "the part with detail in both halves"
        for piece, where in ((before, "same"), (after, "out")):
            found = [path for path in (os.path.join(where, os.path.basename(html.unescape(name))),
                                       os.path.join(where, html.unescape(name))) if os.path.exists(path)]
            if not found:
                continue  # a name that is no text
            planes = images.read(found[0])[:, int(y):int(y) + 246, int(x):int(x) + 328]
            planes = (np.round(planes / 257) if planes.dtype == np.uint16 else planes).astype(np.uint8)
            assert np.array_equal(planes, piece), (name, where)


def test_a_run_that_a_signal_ends_has_its_page(box):
    fill_with_noise(box / "in", 500)
    # Some of the names are never written to the pipe, which stays open: the run cannot end before the signal.
    process = start("emboss", "-z9", "--html", "p.html", "--files-from=-", "in", "out", stdin=subprocess.PIPE)
    process.stdin.write("".join(f"{name}\n" for name in sorted(os.listdir("in"))[:400]).encode())
    process.stdin.flush()
    until(lambda: os.path.exists("out") and len(os.listdir("out")) >= 3, process)
    process.send_signal(signal.SIGINT)
    assert process.wait(program.TIMEOUT) == 130
    process.communicate()
    page = check_page("p.html")
    assert "signal" in page.text and 3 <= page.record["done"] < 500


@pytest.mark.parametrize("options", (("--no-save",), ("--dry-run",), ("-q",)))
def test_pages_of_other_runs(folder, options):
    run("emboss", *options, "--html", "p.html", "in", "out", code=1 if "--dry-run" not in options else 0)
    page = check_page("p.html")
    check_figures(page, page.record)
    assert len(page.images) == (6 if options == ("-q",) else 0)


def test_failures_are_grouped_by_reason(box):
    os.mkdir("in")
    header = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"
    for i in range(130):
        with open(f"in/{i:03}.png", "wb") as file:
            # Every third has a header with another wrong size: the same reason except for a number.
            body = b"IHDR" + struct.pack(">IIBBBBB", 5, 4, 8, 9 + i % 6, 0, 0, 0)
            file.write(b"bad" if i % 3 else header[:-4] + body + struct.pack(">I", zlib.crc32(body)))
    run("emboss", "--html", "p.html", "-j", "1", "in", "out", code=1)
    page = check_page("p.html")
    rows = re.findall(r'<th scope="row" class="number">(\d+)</th><td>([^<]*)', page.source)
    assert rows == [("86", program.NO_IMAGE), ("44", "bad header: colour type N with N bits")]
    assert page.text.count("in/") >= 10 and "and 81 more" in page.text and "and 39 more" in page.text
    assert page.source.index("Failures") < page.source.index("Settings")
    assert "0 images filtered with emboss in" in page.text and "130 failed" in page.text


def check_slices(page, events):
    (timeline,) = page.data["timelines"]
    stages = ("read", "decode", "copy_in", "kernel", "copy_out", "encode", "write")
    found = []
    for row in timeline["rows"]:
        start, packed = 0, row["slices"]
        for i in range(0, len(packed), 4):
            start += packed[i]
            found.append((stages[packed[i + 2]], row["names"][packed[i + 3]], start, packed[i + 1]))
    expected = [(e["name"], e["args"]["image"], int(e["ts"]), e["dur"]) for e in events if e["ph"] == "X"]
    assert len(found) == len(expected) > 30
    for a, b in zip(sorted(found), sorted(expected)):
        assert a[:3] == b[:3] and abs(a[3] - b[3]) <= 0.51, (a, b)
    assert any("<script>" in name for _, name, _, _ in found)


def check_slowest(page, records):
    table = page.source[page.source.index("The slowest</h3>"):]
    names = [html.unescape(name) for name in re.findall(r'<td class="name">(.*?)<span', table)]
    done = [record for record in records if record.get("status") == "done"]
    done.sort(key=lambda record: -sum(record["ms"].values()))
    assert names == [record["input"] for record in done] and len(names) == 7
    assert sum(count for _, _, count in page.data["times"]["bins"]) == 7
    assert "histogram" not in page.source, "of seven images it shows nothing"


def test_slices_and_slowest_images(folder):
    run("emboss", "--html", "p.html", "--trace", "t.json", "--report", "r.jsonl", "-j", "2", "in", "out", code=1)
    page = check_page("p.html")
    with open("t.json") as file:
        check_slices(page, json.load(file)["traceEvents"])
    with open("r.jsonl") as file:
        check_slowest(page, list(map(json.loads, file)))


def test_a_page_is_of_bounded_size(box):
    data = images.make("rgb8", np.random.default_rng(3), 5, 4).data
    os.mkdir("in")
    for i in range(3000):
        (box / f"in/{i:04}.png").write_bytes(data)
    run("emboss", "--html", "p.html", "-j", "16", "--no-save", "in", "out")
    assert os.path.getsize("p.html") < 400000
    page = check_page("p.html")
    assert sum(int(n.replace("\u202f", "")) for n in re.findall(r'<div title="([\d\u202f]+) images, ', page.source)) == 3000


@pytest.mark.parametrize("options", ((), ("--stage", "device")))
def test_bench_streams(box, options):
    fill(box / "in", "a.png", "b.png")
    result = run(*BENCH, *options, "--json", "--html", "p.html")
    page, record = check_page("p.html"), json.loads(result.out)
    assert page.record == record
    keys = check_figures(page, record)
    assert {"rows.0.workers", "rows.1.images_per_s", "rows.1.speed_up", "rows.1.busy.kernel", "rows.0.waiting"} <= keys
    regions = re.findall(r'role="region" aria-label="([^"]*)"', page.source)
    assert len(set(regions)) == len(regions) >= (1 if options else 3), "two timelines had tables of one name"


def test_bench_kernels(box):
    result = run(*KERNELS, "--json", "--html", "p.html")
    page, record = check_page("p.html"), json.loads(result.out)
    assert page.record == record
    keys = check_figures(page, record)
    shown = [i for i, row in enumerate(record["rows"]) if "skipped" not in row]
    for figure in ("gb_per_s", "ms", "ms_min", "ms_max", "runs"):
        assert {f"rows.{i}.{figure}" for i in shown} <= keys


def test_several_sizes_of_images_have_a_panel_each(box):
    run(*KERNELS, "--html", "p.html")
    page = check_page("p.html")
    one = page.record
    data = {**page.data, "record": [one, {**one, "images": 3, "cuda": "some GPU", "rows": [
        {**row, "where": where} for where in ("cpu", "cuda") for row in one["rows"]]}]}
    data["facts"] = [["images", "1 of 64×48"], ["images", "3 of 300×200"]] + [fact for fact in data["facts"] if fact[0] != "images"]
    text = json.dumps(data).replace("<", "\\u003c")
    with open("q.html", "w", encoding="utf-8") as file:
        file.write(re.sub(r'(id="data">).*?(</script>)', lambda m: m[1] + text + m[2], page.file, flags=re.DOTALL))
    page = check_page("q.html")
    assert re.findall(r'<h2 id="panel-\d">([^<]*)</h2>', page.source) == [
        f"{one['cpu']}, 1 image of 64×48", f"{one['cpu']}, 3 images of 300×200", "some GPU, 3 images of 300×200"]
    keys = check_figures(page, data["record"])
    assert {"0.rows.0.ms", "1.rows.0.ms", f"1.rows.{len(one['rows'])}.ms"} <= keys


def test_a_page_that_cannot_be_written(box):
    fill(box / "in", "a.png")
    assert "missing" in run("emboss", "--html", "missing/p.html", "in", "out", code=2).err
    assert not (box / "out").exists()
    assert "/dev/full" in run("emboss", "--html", "/dev/full", "in", "out", code=1).err
    assert (box / "out" / "a.png").exists()


@pytest.mark.cuda
def test_page_of_a_run_on_the_device(folder):
    run("emboss", "--device", "cuda", "--html", "p.html", "in", "out", code=1)
    page = check_page("p.html")
    assert {"overlap.two", "busy.copy_in", "busy.kernel"} <= check_figures(page, page.record)
    assert re.search(r"stream \d kernel", page.text)  # streams without work have no row
    workers, device = page.source.split("Share of the run")  # of the run, not of the workers' time
    assert 'data-key="busy.decode"' in workers and 'data-key="busy.kernel"' not in workers
    assert 'data-key="busy.kernel"' in device and 'data-key="busy.decode"' not in device


# --- in a browser --------------------------------------------------------------------------------

# A sanitizer does not check the browser, and the other tests write the same pages.
in_a_browser = pytest.mark.skipif(not browser.BINARY or bool(os.environ.get("CONV_SANITIZED")),
                                  reason="no chromium, or a sanitizer build")


@pytest.fixture(scope="module")
def chromium(tmp_path_factory):
    with browser.Browser(tmp_path_factory.mktemp("profile")) as running:
        yield running


@pytest.fixture(params=("run", "streams", "device", "kernels"))
def page(request, folder):
    if request.param == "run":
        run("emboss", "--html", "p.html", "in", "out", code=1)
    elif request.param == "kernels":
        run(*KERNELS, "--html", "p.html")
    else:
        run(*BENCH, "--html", "p.html", "--stage", "all" if request.param == "streams" else "device")
    return "p.html"


# The listener of the element draws what was folded; it is called in a task of its own.
UNFOLD = "document.querySelectorAll('details.more').forEach(e => { e.open = true; e.dispatchEvent(new Event('toggle')); })"


@in_a_browser
def test_the_page_in_a_browser(chromium, page):
    for width, dark in ((1280, False), (390, True), (320, False)):  # colours do not depend on the width
        chromium.open(page, width=width, dark=dark)
        chromium.evaluate(UNFOLD)
        wide = chromium.evaluate("document.documentElement.scrollWidth")
        assert wide <= width, f"{wide} pixels on a screen of {width}"
        marks = chromium.evaluate("[...document.querySelectorAll('.axis')].map(axis => axis.children.length)")
        assert all(count >= 2 for count in marks), "an axis whose only mark is 0"
        paper, ink = (chromium.evaluate(f"getComputedStyle(document.body).{name}")
                      for name in ("backgroundColor", "color"))
        brightness = [sum(map(int, re.findall(r"\d+", colour)[:3])) / 3 for colour in (paper, ink)]
        assert (brightness[0] < 40 and brightness[1] > 200) if dark else \
            (brightness[0] > 240 and brightness[1] < 60)
    chromium.open(page, scripts=False)
    assert "JavaScript" in chromium.evaluate("document.body.innerText")
    assert chromium.complaints == []


ZOOMED = "document.querySelectorAll('.axis span')[1].textContent"


@in_a_browser
def test_the_timeline_in_a_browser(chromium, folder):
    run("emboss", "--html", "p.html", "-j", "2", "in", "out", code=1)
    chromium.open("p.html")
    chromium.evaluate(UNFOLD)
    whole = chromium.evaluate(ZOOMED)
    painted = """(() => { const c = document.querySelector('canvas.row'), d = c.getContext('2d')
        .getImageData(0, 0, c.width, c.height).data; return d.some(v => v > 0); })()"""
    assert chromium.evaluate(painted)
    press = "document.querySelector('.timeline').dispatchEvent(new KeyboardEvent('keydown', {key: '%s', bubbles: true}))"
    chromium.evaluate(press % "+")
    assert chromium.evaluate(ZOOMED) != whole
    chromium.evaluate(press % "Home")
    assert chromium.evaluate(ZOOMED) == whole
    # The first row has a slice with the name of its image.
    chromium.evaluate("""(() => { const row = document.querySelector('canvas.row'), box = row.getBoundingClientRect();
        for (let x = box.left; x < box.right && !document.querySelector('output').textContent.includes('.png'); x += 3)
            row.dispatchEvent(new PointerEvent('pointermove', {clientX: x, clientY: box.top + 5, bubbles: true})); })()""")
    said = chromium.evaluate("document.querySelector('output').textContent")
    assert re.search(r"^worker \d: (read|decode|kernel|encode|write), [\d.]+ (µs|ms|s), from .* · .*\.png$", said), said
    # Tab reaches the tools, the timeline and the tables in their order on the page.
    order = chromium.evaluate("""[...document.querySelectorAll('button, .timeline, summary, input, .scroll, a')]
        .filter(e => e.tabIndex >= 0).map(e => e.tabIndex)""")
    assert set(order) == {0} and len(order) > 8
    assert chromium.complaints == []


@in_a_browser
def test_the_slider(chromium, folder):
    run("emboss", "--html", "p.html", "in", "out", code=1)
    shown = "getComputedStyle(document.querySelector('.side.after')).clipPath"
    chromium.open("p.html")
    assert "50%" in chromium.evaluate(shown)
    chromium.evaluate("s = document.querySelector('input[type=range]'); s.value = 200; "
                      "s.dispatchEvent(new Event('input'))")
    assert "20%" in chromium.evaluate(shown)
    assert chromium.evaluate("[...document.images].every(image => image.naturalWidth > 0)")
    assert chromium.complaints == []
