# SPDX-License-Identifier: MIT
"""`conv bench layers`: completeness and consistency of its output in every format. Speeds are not checked here."""
import csv
import io
import json
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

import pytest

from program import EMULATED, ROOT, is_sanitized, run
from test_page import render

SVG = "{http://www.w3.org/2000/svg}"
LAYER = ("bench", "layers", "--device", "cpu", "--shape", "5x2x13x17", "--maps", "3", "--kernel", "3x5")
# Multiply-adds in registers take seconds under a sanitizer, and every run measures them.
once_is_enough = pytest.mark.skipif(bool(os.environ.get("CONV_SANITIZED")), reason="test_layers_json runs the same code")


@once_is_enough
def test_layers_prints_every_row_of_this_machine(box):
    out = run(*LAYER).out
    assert "2->3, 13x17, 3x5, batch of 5" in out
    # A row that takes long is measured with fewer images, on a busy machine with one.
    assert re.search(r"(?m)^cpu_layer_reference +[1-5]( +[\d.]+){3} +\d+ +[\d.]+ +[\d.]+ +[\d.]+ % +[\d.]+ % +[\d.]+ +same", out), out


def test_layers_json(box):
    table = json.loads(run(*LAYER, "--json").out)
    assert table["type"] == "bench-layers" and table["layer"] is None
    sides = ("batch", "channels", "height", "width", "maps", "kernel_height", "kernel_width")
    assert [table[side] for side in sides] == [5, 2, 13, 17, 3, 3, 5]
    assert table["flops"] == 2 * 5 * 3 * (11 * 13) * (2 * 3 * 5)
    assert table["bytes"] == 4 * (5 * 2 * 13 * 17 + 5 * 3 * 11 * 13 + 3 * 2 * 3 * 5)
    rows = [row for row in table["rows"] if "skipped" not in row]
    reference = [row for row in rows if row["name"] == "cpu_layer_reference" and row["threads"] == 1]
    assert len(reference) == 1 and reference[0]["step"] is None
    for row in rows:
        assert row["where"] == "cpu" and row["ms_min"] <= row["ms"] <= row["ms_max"]
        assert 0 <= row["error"] < 100, "in units of 2^-24 * sum |w * x|"
        flops = table["flops"] * row["images"] / table["batch"]
        assert row["tflop_per_s"] == pytest.approx(flops / row["ms"] / 1e9, rel=0.01, abs=1e-6)
        limit = table["cpu_fma_tflop_per_s" if row["threads"] == 1 else "cpu_all_fma_tflop_per_s"]
        assert limit > 0 and row["share_of_fma"] == pytest.approx(flops / row["ms"] / 1e9 / limit, rel=0.02, abs=1e-5)


@once_is_enough
def test_layers_csv(box):
    rows = list(csv.DictReader(io.StringIO(run(*LAYER, "--csv").out)))
    assert "cpu_layer_reference" in {row["name"] for row in rows}
    for row in rows:
        assert None not in row and None not in row.values(), "a line has more or fewer values than the heading"
        assert row["skipped"] or float(row["ms"]) > 0


def test_layers_svg(box):
    chart = ElementTree.fromstring(run(*LAYER, "--variant", "cpu_layer_reference", "--svg").out)
    names = [text.text for text in chart.iter() if text.get("class") == "end"]
    bars = [float(bar.get("width")) for bar in chart.iter() if bar.get("class") == "variant"]
    assert set(names) == {"cpu_layer_reference"} and len(bars) == len(names) and min(bars) >= 1


def test_layers_of_one_variant_or_precision(box):
    rows = json.loads(run(*LAYER, "--json", "--variant", "cpu_layer_reference").out)["rows"]
    assert {row["name"] for row in rows} == {"cpu_layer_reference"}
    rows = json.loads(run(*LAYER, "--json", "--variant", "auto", "--precision", "exact").out)["rows"]
    assert len({row["name"] for row in rows}) == 1 and rows[0]["name"] != "cpu_layer_reference", "one is chosen"
    assert json.loads(run(*LAYER, "--json", "--precision", "fp16").out)["rows"] == []


@once_is_enough
def test_layers_page_and_chart(box):
    out = run(*LAYER, "--json", "--html", "p.html").out
    page = render("p.html")
    assert "conv bench layers" in page and "cpu_layer_reference" in page
    # A chart per place; each once had the kernels of one core and of all cores, and its limit at 0.
    record = json.loads(out)
    charts = re.findall(r'<h2 id="panel-\d">([^<]*)</h2>', page)
    cores = {row["threads"] for row in record["rows"]}
    assert charts == [record["cpu"], record["cpu_all"]][:len(cores)]
    assert all(0 < float(at) <= 100 for at in re.findall(r'class="limit" style="left:([\d.]+)%"', page))
    root = ElementTree.fromstring(subprocess.run([sys.executable, os.path.join(ROOT, "tools", "bench"), "chart"], input=out + out,
                                                 encoding="utf-8", stdout=subprocess.PIPE, check=True).stdout)
    bars = [element for element in root.iter(SVG + "rect") if element.get("class") != "page"]
    assert len(bars) == 2 * len([row for row in json.loads(out)["rows"] if "skipped" not in row])


LADDER = ["naive", "constant", "shared", "shared_constant", "hoisted", "channels", "specialised", "atomics", "tree",
          "im2col", "fused", "register"]


def check_ladder(out, *without):
    table = json.loads(out)
    rows = [row for row in table["rows"] if "skipped" not in row]
    assert all(row["where"] == "cuda" for row in rows)
    names = [row["name"] for row in rows if row["kind"] == "variant"]
    assert [name for name in names if name.removeprefix("cuda_layer_") in LADDER] == \
        ["cuda_layer_" + name for name in LADDER if name not in without]
    assert any(row["kind"] == "shape" for row in rows)
    assert all(row["same_bits"] for row in rows if row["precision"] == "exact" and row["kind"] != "competitor")
    assert table["cuda_fma_tflop_per_s"] > 0 and table["cuda_copy_gb_per_s"] > 0


@pytest.mark.cuda
def test_layers_on_the_device(box):
    check_ladder(run("bench", "layers", "--device", "cuda", "--shape", "100x6x12x12", "--maps", "16", "--kernel", "5", "--json").out)


@pytest.mark.skipif(not EMULATED, reason="no CONV_EMULATED_BINARY: not started by ctest, or no emulation in this build")
def test_layers_on_the_emulated_device(box):
    # Sanitizer builds run the kernels of layers unoptimised. One of them is for other shapes than the small one.
    small = is_sanitized()
    shape = ("1x1x6x6", "1", "3") if small else ("2x6x12x12", "3", "5")
    check_ladder(subprocess.run([EMULATED, "bench", "layers", "--device", "cuda", "--shape", shape[0], "--maps", shape[1],
                                 "--kernel", shape[2], "--json"], check=True, encoding="utf-8", stdout=subprocess.PIPE).stdout,
                 *(("specialised",) if small else ()))


@pytest.mark.skipif(not EMULATED, reason="no CONV_EMULATED_BINARY: not started by ctest, or no emulation in this build")
def test_layers_too_large_for_the_device_are_skipped(box):
    out = subprocess.run([EMULATED, "bench", "layers", "--device", "cuda", "--shape", "9999999x64x40x40", "--maps", "2",
                          "--kernel", "5", "--json"], check=True, encoding="utf-8", stdout=subprocess.PIPE).stdout
    assert ["MiB of device memory are needed" in row["skipped"] for row in json.loads(out)["rows"]] == [True]
