# SPDX-License-Identifier: MIT
"""`conv bench streams`: completeness and consistency of its output in every format."""
import csv
import io
import json
import re
import tarfile

import numpy as np
import pytest

import images
from program import run

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
    rows = list(csv.DictReader(io.StringIO(run(*STREAMS, four_images, "--csv").out)))
    assert [row["workers"] for row in rows] == ["1", "2"]
    for row in rows:
        assert None not in row and None not in row.values(), "a line has more or fewer values than the heading"
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
        (box / "in" / f"{i}.png").write_bytes(images.make("rgb8", rng, 768, 512).data)
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
