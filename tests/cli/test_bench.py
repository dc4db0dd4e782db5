# SPDX-License-Identifier: MIT
"""`conv bench`: its arguments, and that the output of each command is complete and consistent in every format. Speeds are
not checked here."""
import csv
import io
import json
import re
import subprocess
import tarfile
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

import images
from program import EMULATED, hides_instruction_sets, run
from test_page import render


def table_of(text):
    """Comma-separated values: a dict for each line."""
    rows = list(csv.DictReader(io.StringIO(text)))
    assert all(None not in row and None not in row.values() for row in rows), "a line has more or fewer values than the heading"
    return rows


# --- arguments ----------------------------------------------------------------------------------------------------------


needs_hiding = pytest.mark.skipif(not hides_instruction_sets(), reason="built without CONV_TESTS: no CONV_DISABLE")


@pytest.mark.parametrize("typed,named", (
    (("bench",), "kernels"), (("bench", "layers", "folder"), "layers"), (("bench", "layers", "--shape", "1x1x9"), "--shape"),
    (("bench", "layers", "--shape", "1x1x9x9", "--kernel", "3"), "--maps"), (("bench", "layers", "--maps", "3"), "--shape"),
    (("bench", "layers", "--shape", "1x1x9x9", "--maps", "2", "--kernel", "3x"), "--kernel"),
    (("bench", "layers", "--shape", "1x1x9x9", "--maps", "2", "--kernel", "10"), "9x9"),
    (("bench", "layers", "--shape", "1x2x9x9", "--maps", "3", "--kernel", "1", "--groups", "2"), "2 groups"),
    (("bench", "layers", "--network", "lenet5"), "lenet5"), (("bench", "layers", "--padding", "1"), "--shape"),
    (("bench", "layers", "--shape", "1x1x0x9", "--maps", "2", "--kernel", "1"), "--shape"),
    (("bench", "layers", "--shape", "9999999x999999x99999x99999", "--maps", "2", "--kernel", "1"), "samples"),
    (("bench", "layers", "--shape", "lenet-1", "--maps", "3"), "--maps"), (("bench", "layers", "--shape", "lenet-1", "--html", "p"), "--html"),
    (("bench", "layers", "--variant", "cpu_portable"), "cpu_portable"), (("bench", "kernel"), "kernels"), (("bench", "kernels", "folder"), "kernels"),
    (("bench", "kernels", "--images"), "--images"), (("bench", "kernels", "--images=0"), "--images"),
    (("bench", "kernels", "-b", "3"), "--images"), (("bench", "codec", "x", "--images=3"), "--device cuda"),
    (("bench", "kernels", "--image-size", "axb"), "axb"), (("bench", "kernels", "--size", "axb"), "axb"), (("bench", "kernels", "--json", "--csv"), "--csv"), (("bench", "layers", "--svg"), "--shape"),
    (("bench", "kernels", "--variant", "cpu_nothing"), "cpu_nothing"), (("bench", "kernels", "--depth=9"), "depth"),
    (("bench", "streams"), "folder"), (("bench", "streams", "x", "--stage", "cpu"), "stage"),
    (("bench", "streams", "x", "--json", "--csv"), "--csv"), (("bench", "streams", "x", "--trace", "y"), "--trace"), (("bench", "codec"), "folder"), (("emboss", "--csv", "a", "b"), "conv bench")))
def test_bench_usage(box, typed, named):
    result = run(*typed, code=2)
    assert named in result.err and result.out == ""


def test_batch_is_still_a_flag_elsewhere(box):
    (box / "in").mkdir()
    (box / "in" / "a.png").write_bytes(images.make("rgb8", np.random.default_rng(1), 9, 7).data)
    run("emboss", "--batch", "in", "out")
    run("--border=wrap", "emboss", "-b", "in", "out2")
    assert (box / "out" / "a.png").exists() and (box / "out2" / "a.png").exists()


@needs_hiding
@pytest.mark.parametrize("hidden,name", (("avx512,vnni,vbmi", "AVX-512"), ("avx2", "AVX2"), ("sse41", "SSE4.1")))
def test_conv_disable_hides_instruction_sets(box, monkeypatch, hidden, name):
    def features():
        return re.search(r"(?m)^cpu .*", run("devices").out).group()

    monkeypatch.delenv("CONV_DISABLE", raising=False)
    if name not in features():
        pytest.skip(f"no {name} here")
    monkeypatch.setenv("CONV_DISABLE", hidden)
    assert name not in features()


# --- kernels ----------------------------------------------------------------------------------------------------------


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
    lines = {row["name"]: row for row in table_of(run(*SMALL, "--csv").out)}
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
    table = table_of(run(*SMALL, "--compare", "old.json", "--csv").out)
    assert {row["name"]: row["change"] for row in table}["cpu_portable"] == "faster"


def test_kernels_compare_with_something_else(box):
    old = run(*SMALL, "--json", "--variant", "cpu_portable").out
    assert [row["name"] for row in json.loads(old)["rows"] if row["kind"] == "variant"] == ["cpu_reference", "cpu_portable"]
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


@pytest.mark.parametrize("options", (("--image-size", "1x1"), ("--depth", "16"), ("--depth", "32"), ("--depth", "32", "--filter", "gaussian:2,sobel"),
                                     ("--image-size", "5x300", "--images", "2"), ("--size", "5", "--filter", "blur"), ("--filter", "emboss,gaussian"),
                                     ("--filter", "custom", "-k", "0.5 1 0.5 1 2 1 0.5 1 0.5")))
def test_kernels_checks_whatever_is_measured(box, options):
    rows = json.loads(run("bench", "kernels", "--device", "cpu", "--image-size", "64x8", "--json", *options).out)["rows"]
    assert [row["name"] for row in rows if row["kind"] == "variant"].count("cpu_reference") == 1


@pytest.mark.cuda
def test_kernels_ladder_on_the_device(box):
    rows = json.loads(run("bench", "kernels", "--device", "cuda", "--image-size", "300x200", "--images", "5",
                          "--json").out)["rows"]
    names = [row["name"] for row in rows if row["kind"] == "variant" and "skipped" not in row]
    ladder = ["cuda_interleaved", "cuda_naive", "cuda_constant", "cuda_shared", "cuda_unrolled", "cuda_planes",
              "cuda_blocked", "cuda_dp4a"]
    assert names[:len(ladder)] == ladder
    assert any(row["kind"] == "shape" for row in rows) and any(row["kind"] == "copy" for row in rows)


# --- layers -----------------------------------------------------------------------------------------------------------


LAYER = ("bench", "layers", "--device", "cpu", "--shape", "5x2x13x17", "--maps", "3", "--kernel", "3x5")
# Multiply-adds in registers take seconds under a sanitizer, and every run measures them.
def test_layers_prints_a_row(box):
    out = run(*LAYER, "--variant", "cpu_layer_reference").out
    assert "2->3, 13x17, 3x5, batch of 5" in out
    # A row that takes long is measured with fewer images, on a busy machine with one.
    assert re.search(r"(?m)^cpu_layer_reference +[1-5]( +[\d.]+){3} +\d+ +[\d.]+ +[\d.]+ +[\d.]+ % +[\d.]+ % +[\d.]+ +same", out), out
    rows = table_of(run(*LAYER, "--variant", "cpu_layer_reference", "--csv").out)
    assert {row["name"] for row in rows} == {"cpu_layer_reference"}
    assert all(row["skipped"] or float(row["ms"]) > 0 for row in rows)
    chart = ElementTree.fromstring(run(*LAYER, "--variant", "cpu_layer_reference", "--svg").out)
    bars = [float(bar.get("width")[:-1]) for bar in chart.iter() if bar.get("class") == "variant"]
    assert [text.text for text in chart.iter() if text.get("class") == "end"] == len(bars) * ["cpu_layer_reference"] and 0 < min(bars) <= max(bars) <= 100
    assert sum(line.get("class") == "limit" and line.get("x1").endswith("%") for line in chart.iter()) == 2 * len(bars)


def test_layers_json_and_page(box):
    table = json.loads(run(*LAYER, "--json", "--html", "p.html").out)
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
    page = render("p.html")
    assert "conv bench layers" in page and "cpu_layer_reference" in page
    # A chart per place; each once had the kernels of one core and of all cores, and its limit at 0.
    charts = re.findall(r'<h2 id="panel-\d">([^<]*)</h2>', page)
    assert charts == [table["cpu"], table["cpu_all"]][:len({row["threads"] for row in table["rows"]})]
    assert all(0 < float(at) <= 100 for at in re.findall(r'class="limit" style="left:([\d.]+)%"', page))


def test_layers_with_padding_strides_and_groups(box):
    """The reference's results are compared with sums in float64, which once ignored the padding."""
    table = json.loads(run("bench", "layers", "--device", "cpu", "--variant", "auto", "--precision", "exact", "--json",
                           "--shape", "2x4x9x8", "--maps", "6", "--kernel", "3x2", "--stride", "2x1", "--padding", "1:2x1",
                           "--dilation", "1x2", "--groups", "2").out)
    assert [table[name] for name in ("stride", "dilation", "padding", "groups")] == [[2, 1], [1, 2], [1, 2, 1, 1], 2]
    assert table["flops"] == 2 * 2 * 6 * (5 * 8) * (2 * 3 * 2)
    assert all(row["same_bits"] and row["error"] < 100 for row in table["rows"])


def test_layers_of_a_network(box):
    lines = [json.loads(line) for line in run("bench", "layers", "--device", "cpu", "--network", "lenet", "--json").out.splitlines()]
    assert [(line["networks"], line["layer"], line["batch"]) for line in lines[:-1]] == \
        [("lenet", layer, batch) for layer in ("1->6, 28x28, 5x5", "6->16, 12x12, 5x5") for batch in (1, 16)]
    assert all(line["ms"] > 0 and line["share_of_fma"] > 0 and line["cudnn_float32_ms"] is None for line in lines[:-1])
    assert lines[-1]["type"] == "bench-network-summary" and lines[-1]["layers"] == 4
    assert re.search(r"(?m)^6->16, 12x12, 5x5 +16 +[\d.]+ ", run("bench", "layers", "--device", "cpu", "--network", "lenet", "--jobs", "3").out)


def test_layers_of_the_chosen_variant_or_precision(box):
    rows = json.loads(run(*LAYER, "--json", "--variant", "auto", "--precision", "exact").out)["rows"]
    assert len({row["name"] for row in rows}) == 1 and rows[0]["name"] != "cpu_layer_reference", "one is chosen"
    assert json.loads(run(*LAYER, "--json", "--precision", "fp16").out)["rows"] == []


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
    # `specialised` is for larger shapes, which take 10 s of processor time here.
    check_ladder(subprocess.run([EMULATED, "bench", "layers", "--device", "cuda", "--shape", "1x1x6x6", "--maps", "1", "--kernel", "3",
                                 "--json"], check=True, encoding="utf-8", stdout=subprocess.PIPE).stdout, "specialised")


@pytest.mark.skipif(not EMULATED, reason="no CONV_EMULATED_BINARY: not started by ctest, or no emulation in this build")
def test_layers_too_large_for_the_device_are_skipped(box):
    out = subprocess.run([EMULATED, "bench", "layers", "--device", "cuda", "--shape", "9999999x64x40x40", "--maps", "2",
                          "--kernel", "5", "--json"], check=True, encoding="utf-8", stdout=subprocess.PIPE).stdout
    assert ["MiB of device memory are needed" in row["skipped"] for row in json.loads(out)["rows"]] == [True]


# --- streams ----------------------------------------------------------------------------------------------------------


STREAMS = ("bench", "streams", "--device", "cpu", "-j", "2")


@pytest.mark.parametrize("options", ((), ("--stage", "device")))
def test_streams(four_images, options):
    out = run(*STREAMS, four_images, *options).out
    rows = [line.split() for line in out.splitlines() if re.match(r" +\d", line)]
    assert [row[0] for row in rows] == ["1", "2"] and rows[0][3] == "1.00x"
    heading = next(line for line in out.splitlines() if "speed-up" in line).split()
    assert all(len(row) == len(heading) for row in rows)
    assert "kernel" in heading and ("decode" in heading) == (not options)


def test_streams_without_a_gpu_say_what_is_compared(four_images, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    done = run("bench", "streams", "-j", "2", four_images)
    assert "comparing workers of the CPU instead of streams" in done.err and "workers" in done.out
    assert not run("bench", "streams", "-j", "2", "--quiet", four_images).err
    assert not run(*STREAMS, four_images).err


@pytest.mark.parametrize("stage", ("all", "device"))
def test_streams_json(four_images, stage):
    table = json.loads(run(*STREAMS, four_images, "--stage", stage, "--json", "--filter", "blur").out)
    assert (table["type"], table["filter"], table["folder"], table["stage"]) == ("bench-streams", "blur", "in", stage)
    assert table["copy"] is None, "the CPU copies nothing"
    assert [row["workers"] for row in table["rows"]] == [1, 2]
    first = table["rows"][0]
    for row in table["rows"]:
        assert row["images_per_s"] == pytest.approx(row["done"] / row["seconds"], rel=1e-3)
        assert row["mpix_per_s"] == pytest.approx(row["pixels"] / row["seconds"] / 1e6, rel=1e-3)
        assert row["speed_up"] == pytest.approx(row["images_per_s"] / first["images_per_s"], rel=1e-3)
        assert sum(row["busy"].values()) + row["waiting"] == pytest.approx(1, abs=1e-3)
        assert row["pixels"] == row["done"] * 40 * 30 and row["streams"] is None and row["overlap"] is None
    assert (first["done"] == 4) == (stage == "all") and (first["busy"]["decode"] > 0) == (stage == "all")


def test_streams_csv(four_images):
    rows = table_of(run(*STREAMS, four_images, "--csv").out)
    assert [row["workers"] for row in rows] == ["1", "2"]
    for row in rows:
        assert float(row["images_per_s"]) > 0 and row["streams"] == "" and row["share_of_copy"] == ""


def test_streams_takes_any_inputs_and_reports_a_failure_once(four_images, box):
    """Only one folder was accepted, and each run reported the damaged image again."""
    with open(box / "bad.png", "wb") as file:
        file.write(b"bad")
    with tarfile.open(box / "in.tar", "w") as tar:
        tar.add(four_images)
    done = run(*STREAMS, "in.tar", four_images, "bad.png", "--json")
    rows = json.loads(done.out)["rows"]
    assert [row["done"] for row in rows] == [8, 8]
    assert all(row["runs"] == 3 and row["images_per_s_min"] <= row["images_per_s"] <= row["images_per_s_max"] for row in rows)
    assert done.err.count("bad.png") == 1
    assert "several times" in run(*STREAMS, "-", code=2).err


def test_streams_with_a_folder_of_nothing(box):
    (box / "in").mkdir()
    (box / "in" / "bad.png").write_bytes(b"bad")
    for stage in ("all", "device"):
        assert "no image" in run(*STREAMS, "in", "--stage", stage, code=2).err


@pytest.mark.cuda
@pytest.mark.alone
def test_streams_of_the_device_against_its_wires(box):
    """The device alone: each line's share of the two-way copy speed, and the test of small copies."""
    rng = np.random.default_rng(1)
    (box / "in").mkdir()
    for i in range(4):
        (box / "in" / f"{i}.png").write_bytes(images.make("rgb8", rng, 768, 512, filters=0).data)
    table = json.loads(run("bench", "streams", "in", "--device", "cuda", "--stage", "device", "--json").out)
    rows, copy, small = table["rows"], table["copy"], table["small"]
    assert [row["streams"] for row in rows] == [1, 2, 4, 8, 16]
    assert 0 < max(copy["in_gb_per_s"], copy["out_gb_per_s"]) < copy["both_gb_per_s"] * 1.05
    for row in rows:
        # In and out are 768 * 512 * 3 bytes an image each.
        gb_per_s = row["images_per_s"] * 768 * 512 * 3 * 2 / 1e9
        assert row["share_of_copy"] == pytest.approx(gb_per_s / copy["both_gb_per_s"], rel=0.02)
        assert 0 < row["busy"]["kernel"] < 1 and row["overlap"]["three"] <= row["overlap"]["two"]
    assert rows[0]["overlap"]["two"] < 0.02, "one stream is serial"
    best = max(rows, key=lambda row: row["images_per_s"])
    assert best["speed_up"] > 1.2 and best["overlap"]["two"] > 0.3
    assert best["share_of_copy"] > 0.7, table
    assert small["group_ms"] < small["one_by_one_ms"] and small["streams_ms"] < small["one_by_one_ms"]


@pytest.mark.cuda
def test_streams_of_a_whole_run_on_the_device(four_images):
    table = json.loads(run("bench", "streams", four_images, "--device", "cuda", "--json").out)
    for row in table["rows"]:
        assert row["done"] == 4 and row["overlap"]["two"] >= row["overlap"]["three"] >= 0
        assert row["busy"]["copy_in"] > 0 and row["busy"]["decode"] > 0 and row["share_of_copy"] is None


# --- codec ------------------------------------------------------------------------------------------------------------


def test_codec_json(four_images):
    lines = [json.loads(line) for line in run("bench", "codec", "--json", four_images).out.splitlines()]
    assert {line["type"] for line in lines} == {"bench-codec"} and re.search(r"libpng.*\d", run("bench", "codec", four_images).out)
    assert {line["direction"] for line in lines} == {"decode", "encode"}
    assert all(2 <= line["rounds"] <= 5 and line["mb_s_min"] <= line["mb_s"] <= line["mb_s_max"] for line in lines if "error" not in line)


def test_codec_of_one_level_has_libpngs(four_images):
    lines = [json.loads(line) for line in run("bench", "codec", "-z4", "--json", four_images).out.splitlines()]
    assert {(line["name"], line["level"]) for line in lines if line["direction"] == "encode"} == {("fast", 4), ("libpng", 4), ("libpng", 1)}


def test_codec_on_threads(four_images):
    text = run("bench", "codec", "-j2", "--filter=blur5", four_images).out
    assert "2 threads" in text and "after blur5" in text and "decode + encode" in text
    lines = [json.loads(line) for line in run("bench", "codec", "-j2", "--json", four_images).out.splitlines()]
    assert {line["type"] for line in lines} == {"bench-codec-jobs"}
    assert [line["work"] for line in lines] == ["decode", "encode", "decode + encode"]
    assert all(line["jobs"] == 2 and line["images_s"] > 0 for line in lines)
    assert all(line["mb_s_core"] >= 0.4 * line["mb_s"] for line in lines)  # of two threads, by the clock
    decode, encode, both = (line["mb_s_core"] for line in lines)  # by the time of processors, whatever else they do
    assert 0.4 < both * (1 / decode + 1 / encode) < 2.5, "both take as long as one after the other"
