# SPDX-License-Identifier: MIT
"""`conv bench kernels`: completeness and consistency of its output in every format. Speeds are not checked here."""
import csv
import io
import json
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

import pytest

from program import ROOT, run
from test_page import render

SVG = "{http://www.w3.org/2000/svg}"
SMALL = ("bench", "kernels", "--device", "cpu", "--image-size", "37x21")


def measured(*args):
    return json.loads(run(*SMALL, "--json", *args).out)


def test_kernels_json(box):
    table = measured("--images", "3", "--filter", "gaussian5", "--border", "wrap")
    assert (table["type"], table["filter"], table["border"]) == ("bench-kernels", "gaussian5", "wrap")
    assert (table["width"], table["height"], table["images"], table["planes"]) == (37, 21, 3, 3)
    assert table["pixels"] == 37 * 21 * 3
    rows = {row["name"]: row for row in table["rows"]}
    assert rows["memcpy"]["kind"] == "copy" and rows["cpu_reference"]["kind"] == "variant"
    assert rows["cpu_reference"]["step"] is None
    for row in table["rows"]:
        assert row["where"] == "cpu"
        if "skipped" in row:
            continue
        assert row["ms"] > 0
        assert row["gb_per_s"] == pytest.approx(table["pixels"] * 6 / row["ms"] / 1e6, rel=0.05)
        assert row["share_of_copy"] == pytest.approx(rows["memcpy"]["ms"] / row["ms"], rel=0.05, abs=1e-3)


def test_kernels_have_one_yardstick(box):
    """Each row used to be divided by a copy of its own: 13.3 GB/s was "50.9 %" of a memcpy of 11.2."""
    out = run("bench", "kernels", "--device", "cpu", "--image-size", "512x512", "--json", "--html", "p.html").out
    rows = json.loads(out)["rows"]
    shown = [row for row in rows if "skipped" not in row]
    copy = shown[0]
    assert copy["name"] == "memcpy" and [row["kind"] for row in rows].count("copy") == 1
    for row in shown:
        share = row["gb_per_s"] / copy["gb_per_s"]
        assert row["share_of_copy"] == pytest.approx(share, rel=1e-3, abs=1e-4), row["name"]
    # The page: every bar and the line at 100 % are drawn to the same scale.
    page = render("p.html")
    widths = [float(width) for width in re.findall(r'<i class="(?:copy|variant)" style="width:([\d.]+)%">', page)]
    limits = {float(at) for at in re.findall(r'<i class="limit" style="left:([\d.]+)%">', page)}
    assert limits == {widths[0]} and len(widths) == len(shown)
    for row, width in zip(shown, widths):
        assert width == pytest.approx(row["share_of_copy"] * widths[0], abs=0.02), row["name"]


def test_kernels_print_their_spread(box):
    rows = [row for row in measured()["rows"] if "skipped" not in row]
    table = list(csv.DictReader(io.StringIO(run(*SMALL, "--csv").out)))
    assert all(None not in row and None not in row.values() for row in table), "a line has more or fewer values than the heading"
    lines = {row["name"]: row for row in table}
    text = run(*SMALL).out
    assert {"memcpy", "cpu_reference", "cpu_portable"} <= {row["name"] for row in rows} and "37x21" in text and "emboss" in text
    for row in rows:
        assert 0 < row["ms_min"] <= row["ms_p25"] <= row["ms"] <= row["ms_p75"] <= row["ms_max"] and row["runs"] >= 1, row
        line = lines[row["name"]]
        assert 0 < float(line["ms_min"]) <= float(line["ms"]) <= float(line["ms_max"]) and int(line["runs"]) >= 1
        low, high, runs = re.search(rf"(?m)^{row['name']} +[\d.]+ +([\d.]+) +([\d.]+) +(\d+) +\d+ +[\d.]+ +[\d.]+ %", text).groups()
        assert float(low) <= float(high) and int(runs) >= 1
    # The copy is measured in turn with all kernels.
    assert rows[0]["runs"] == sum(row["runs"] for row in rows[1:])
    variants = [row for row in rows if row["kind"] == "variant"]
    for before, row in zip(variants, variants[1:]):
        assert row["step"] == pytest.approx(before["ms"] / row["ms"], rel=0.01), row["name"]
    assert re.search(r"(?m)^cpu_portable .* [\d.]+x", text), "no step over the variant before"


def test_kernels_compare(box):
    old = json.loads(run(*SMALL, "--json").out)
    for row in old["rows"]:
        factor = {"cpu_portable": 1000, "cpu_reference": 0.001}.get(row["name"], 1)
        for key in ("ms", "ms_p25", "ms_p75"):
            if key in row:
                row[key] *= factor
    old["rows"][-1]["name"] = "gone"
    with open("old.json", "w") as file:  # as in a page: an array, and other records around it
        json.dump([{"type": "other"}, old], file)
    new = measured("--compare", "old.json", "--html", "p.html")
    assert new["compared_with"] == "old.json"
    rows = {row["name"]: row for row in new["rows"]}
    assert rows["cpu_portable"]["change"] == "faster" and rows["cpu_reference"]["change"] == "slower"
    assert "change" not in new["rows"][-1]
    before = {row["name"]: row.get("ms") for row in old["rows"]}
    for name, row in rows.items():
        if "change" in row:
            assert abs(row["old_ms"] - before[name]) < 1e-6 and abs(row["speed_up"] * row["ms"] - row["old_ms"]) < 1e-3
    page = render("p.html")
    assert page.count('class="change ') == sum("change" in row for row in rows.values())
    text = run(*SMALL, "--compare", "old.json").out
    assert re.search(r"(?m)^cpu_portable .* faster ", text) and re.search(r"(?m)^kernel .* before +speed-up change", text)
    table = list(csv.DictReader(io.StringIO(run(*SMALL, "--compare", "old.json", "--csv").out)))
    assert {row["name"]: row["change"] for row in table}["cpu_portable"] == "faster"


def test_kernels_compare_with_something_else(box):
    old = run(*SMALL, "--json", "--variant", "cpu_portable").out
    for name, text in (("old", old), ("cut", old[:200]), ("junk", "[[[\n{"), ("empty", ""), ("nul", "\0" + old)):
        with open(name, "w") as file:
            file.write(text)
    assert "another filter" in run(*SMALL, "--compare", "old", "--filter", "blur", code=2).err
    for name in ("cut", "junk", "empty", "nul"):
        assert "is not JSON output of conv bench kernels" in run(*SMALL, "--compare", name, code=2).err
    assert "missing" in run(*SMALL, "--compare", "missing", code=2).err
    assert "--html" in run(*SMALL, "--compare", "old", "--html", "old", code=2).err
    with open("old") as file:
        assert file.read() == old


def test_chart_of_kernels(box):
    """tools/bench chart draws what --json printed."""
    out = run(*SMALL, "--json", "--filter", "blur").out
    table = json.loads(out)
    root = ElementTree.fromstring(subprocess.run([sys.executable, os.path.join(ROOT, "tools", "bench"), "chart"], input=out,
                                                 encoding="utf-8", stdout=subprocess.PIPE, check=True).stdout)
    assert root.tag == SVG + "svg"
    text = " ".join(element.text or "" for element in root.iter(SVG + "text"))
    bars = [element for element in root.iter(SVG + "rect") if element.get("class") != "page"]
    shown = [row["name"] for row in table["rows"] if "skipped" not in row]
    assert len(bars) == len(shown)
    assert all(name in text for name in shown) and "GB/s" in text and "blur" in text
    width, height = float(root.get("width")), float(root.get("height"))
    for bar in bars:
        assert float(bar.get("x")) + float(bar.get("width")) <= width
        assert float(bar.get("y")) + float(bar.get("height")) <= height


# Images of up to 12 megapixels, 7 s with a sanitizer, which sees the code of the mix in test_bench_mix.
MIX = pytest.param(("--image-size", "mix", "--images", "2", "--variant", "cpu_portable"),
                   marks=pytest.mark.skipif(bool(os.environ.get("CONV_SANITIZED")), reason="large images"))


@pytest.mark.parametrize("options", (("--image-size", "1x1"), MIX, ("--depth", "16"),
                                     ("--image-size", "5x300", "--images", "2"), ("--size", "5", "--filter", "blur"), ("--filter", "emboss,gaussian"),
                                     ("--filter", "custom", "-k", "0.5 1 0.5 1 2 1 0.5 1 0.5")))
def test_kernels_checks_whatever_is_measured(box, options):
    rows = json.loads(run("bench", "kernels", "--device", "cpu", "--image-size", "64x8", "--json", *options).out)["rows"]
    assert [row["name"] for row in rows if row["kind"] == "variant"].count("cpu_reference") == 1


def test_kernels_one_variant(box):
    names = [row["name"] for row in measured("--variant", "cpu_portable")["rows"] if row["kind"] == "variant"]
    assert names == ["cpu_reference", "cpu_portable"]


@pytest.mark.cuda
def test_kernels_ladder_on_the_device(box):
    rows = json.loads(run("bench", "kernels", "--device", "cuda", "--image-size", "300x200", "--images", "5",
                          "--json").out)["rows"]
    names = [row["name"] for row in rows if row["kind"] == "variant" and "skipped" not in row]
    ladder = ["cuda_interleaved", "cuda_naive", "cuda_constant", "cuda_shared", "cuda_unrolled", "cuda_planes",
              "cuda_blocked", "cuda_dp4a"]
    assert names[:len(ladder)] == ladder
    assert any(row["kind"] == "shape" for row in rows) and any(row["kind"] == "copy" for row in rows)
