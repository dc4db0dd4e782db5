# SPDX-License-Identifier: MIT
"""--trace, --html and --resume of `conv layer`: over images and over tensors, with weights and with banks."""
import json
import os
import re

import numpy as np
import pytest

import images
from program import run
from test_page import check_figures, check_page
from test_trace import check_rows, load, slices


@pytest.fixture
def inputs(box):
    rng = np.random.default_rng(5)
    os.makedirs("in/sub")
    for name in ("a", "b", "sub/c"):
        with open(f"in/{name}.png", "wb") as file:
            file.write(images.make("rgb8", rng, 40, 30).data)
    np.save("x.npy", rng.standard_normal((50, 3, 20, 30)).astype(np.float32))
    np.save("w.npy", rng.standard_normal((4, 3, 3, 3)).astype(np.float32))
    return box


def resume(*args):
    summary = run("layer", *args, "-r", "in", "out", "--json", "--resume", "journal").records()[-1]
    return summary["done"], summary["skipped"]


# --- --trace ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("weights", ("w.npy", "laws:9"))
def test_a_trace_of_images_agrees_with_the_report(inputs, weights):
    records = run("layer", weights, "-r", "in", "out", "-j2", "--trace", "t.json", "--json").records()
    events = load("t.json")
    assert set(check_rows(events).values()) <= {"worker 0", "worker 1"}
    files = [record for record in records if record["type"] == "file"]
    assert len(files) == 3
    for record in files:
        own = [e for e in slices(events) if e["args"]["image"] == record["input"]]
        assert [e["name"] for e in sorted(own, key=lambda e: e["ts"])] == ["read", "decode", "kernel", "write"]
        for event in own:
            assert event["dur"] / 1000 == pytest.approx(record["ms"][event["name"]], abs=2e-4)
            assert event["name"] == "read" or event["args"]["size"] == "40x30"


@pytest.mark.parametrize("weights, planes", (("w.npy", 50), ("laws:9", 150)))
def test_a_trace_of_a_tensor_has_every_chunk(inputs, weights, planes):
    summary = run("layer", weights, "x.npy", "y.npy", "-j3", "--mem-limit=200K", "--trace", "t.json", "--json").records()[-1]
    events = load("t.json")
    check_rows(events)
    for stage in ("read", "kernel", "write"):
        own = [e for e in slices(events) if e["name"] == stage]
        assert sum(e["args"]["images"] for e in own) == planes and len(own) > 3
        assert sum(e["dur"] for e in own) / 1000 == pytest.approx(summary["ms"][stage], rel=0.01, abs=0.01)


# --- --html -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("args, says", (
    (("w.npy", "-r", "in", "out"), ("3 channels to 4 maps, kernels of 3 × 3", "exact")),
    (("w.npy", "in", "all.npy", "--padding=same", "--border=wrap"), ("top 1, bottom 1", "wrap")),
    (("gabor:2x3", "in", "out", "--pool=mean,std"), ("gabor:2x3, 12 filters, 6 maps", "mean,std", "replicate")),
    (("w.npy", "x.npy", "y.npy"), ("cpu_layer",)),
    (("laws:9", "x.npy", "y.npy", "--dry-run"), ("a dry run", "laws:9, 9 filters")),
))
def test_a_page_has_the_figures_of_the_record(inputs, args, says):
    run("layer", *args, "--html", "p.html", "--report", "r.jsonl", "-j2")
    page = check_page("p.html")
    with open("r.jsonl", encoding="utf-8") as file:
        record = json.loads(file.readlines()[-1])
    assert page.record == record
    keys = check_figures(page, record)
    assert {"images_per_s", "seconds", "done", "waiting", "ms.kernel", "busy.read"} <= keys
    for text in (*says, args[0], "--html p.html", "cpu"):
        assert text in page.text, text
    assert "--dry-run" in args or re.search(r"worker \d", page.text)  # idle workers have no row


# --- --resume -----------------------------------------------------------------------------------------------------------


def test_one_output_for_all_has_nothing_to_resume(inputs):
    assert "--resume" in run("layer", "w.npy", "in", "all.npy", "--resume=j", code=2).err
    assert "--resume" in run("layer", "w.npy", "x.npy", "y.npy", "--resume=j", code=2).err
    assert not os.path.exists("j")


@pytest.mark.parametrize("option", ("--report", "--trace", "--html", "--resume"))
def test_own_files_are_not_the_weights(inputs, option):
    np.save("b.npy", np.ones(4, np.float32))
    before = {name: open(name, "rb").read() for name in ("w.npy", "b.npy", "x.npy")}
    for name in before:
        said = run("layer", "w.npy", "x.npy", "y.npy", "--bias=b.npy", option, f"./{name}", code=2).err
        assert f"{option} ./{name}" in said
    assert all(open(name, "rb").read() == data for name, data in before.items())
