# SPDX-License-Identifier: MIT
"""A GPU takes a while to open: with `auto` and `all` the CPU works meanwhile, and no thread waits for a device in vain.

The devices are those of tests/faulty, with a delay when they are opened (`open=MS`) or opened by the test (`gate`).
"""
import json
import os
import subprocess

import pytest

import program
from faulty import CHAIN, FAULTY, SMALL, check_outcome, needs_faulty, pipe_faulty, run_faulty, want_of, warnings, with_devices
from folders import fill, tree
from program import until, until_idle
from test_page import check_page
from test_trace_faults import SHOWN, check_shown, check_streams

pytestmark = needs_faulty

NEVER = "open=3600000"  # longer than any test waits


def devices():
    return [device["name"] for device in check_shown()[2][-1]["devices"]]


def test_no_thread_waits_for_a_device(box, batch):
    done = run_faulty(box, f"devices=2 {NEVER}", "--device=all", *SMALL, *SHOWN)
    assert warnings(done.stderr) == []
    _, page, records = check_shown()
    assert "which did not start in time" in page.text and records[-1]["devices"][-1]["images"] == 63


def test_what_goes_to_standard_output_is_whole(box):
    fill(box / "in", *[f"{index}.png" for index in range(300)])
    done = subprocess.run([FAULTY, CHAIN, "--device=all", "--json", "in", "out"], env=with_devices(NEVER), capture_output=True, text=True,
                          timeout=program.TIMEOUT)
    records = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 0 and records[-1]["done"] == 300 and len(records) == 302
    assert pipe_faulty(NEVER, (box / "in" / "7.png").read_bytes()) == want_of(box)["7.png"]


def feed(process, box, names):
    """Writes names into the pipe and waits for their outputs."""
    process.stdin.write("".join(f"{name}\n" for name in names))
    process.stdin.flush()
    until(lambda: all((box / "out" / name).exists() for name in names), process)


def filter_in_two_parts(box, faults, *args):
    """Images while devices wait at the gate, and the others once these wait for images. Returns the exit code and the messages."""
    os.mkfifo("gate")
    names = tree("in")
    process = subprocess.Popen([FAULTY, CHAIN, "--device=all", *SMALL, *SHOWN, *args, "--files-from=-", "in", "out"],
                               env=with_devices(faults), stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    until_idle(process)  # the other devices are open
    feed(process, box, names[:20])
    with open("gate", "wb"):
        until_idle(process)
        for first in range(20, len(names), 4):
            feed(process, box, names[first:first + 4])
    _, err = process.communicate(timeout=program.TIMEOUT)
    return process.returncode, err


@pytest.mark.parametrize("alpha", ("keep", "premultiply"))
@pytest.mark.parametrize("devices", (1, 2))
def test_it_joins_in(box, batch, gpu, devices, alpha):
    """Images before it is open are filtered by the CPU, later ones by the GPU."""
    code, err = filter_in_two_parts(box, f"{gpu}devices={devices} gate", f"--alpha={alpha}")
    check_outcome(box, want_of(box, f"--alpha={alpha}"), code, err, "joins in")
    assert err.count("\n") == 1
    events, page, records = check_shown()
    assert sum(d["images"] for d in records[-1]["devices"]) == 63
    on_cpu = records[-1]["devices"][-1]["images"]
    assert [d["name"] for d in records[-1]["devices"]] == [f"cuda:{i}" for i in range(devices)] + ["cpu"]
    assert 20 <= on_cpu < 63
    if devices == 1:
        assert sum(e["args"]["images"] for e in check_streams(events, records)[1]) == on_cpu
    assert "not start in time" not in page.text


@pytest.mark.parametrize("fault", ("closed", "streams=1000", "lost=1", "lost=3"))
def test_it_fails_when_it_is_open(box, batch, fault):
    code, err = filter_in_two_parts(box, f"gate {fault}")
    check_outcome(box, want_of(box), code, err, fault)
    assert [line.endswith("; continuing on the CPU") for line in err.splitlines()] == [True, False]
    check_shown()


def test_one_that_opens_late_takes_over_for_one_that_is_lost(box, batch):
    code, err = filter_in_two_parts(box, "devices=2 0:open=1 0:lost=2 1:gate")
    check_outcome(box, want_of(box), code, err, "late")
    assert "continuing on the others" in err and 0 < check_shown()[2][-1]["devices"][1]["images"] < 63


@pytest.mark.parametrize("args", (("--device=cuda",), ("--device=cuda:0",), ("--device=all", "--verbose")))
def test_it_is_waited_for_where_the_cpu_cannot_replace_it(box, batch, args):
    run_faulty(box, "open=300", *args, *SMALL, *SHOWN)
    assert devices() == ["cuda:0"]


def test_large_filters_wait_for_the_device(box):
    fill(box / "in", "a.png", "b.png")
    kernel = "31x31: " + " ".join(",".join(["0.5"] * 31) for _ in range(31))
    done = subprocess.run([FAULTY, "custom", "-k", kernel, *SHOWN, "in", "out"], env=with_devices("open=300"), capture_output=True, text=True)
    assert done.returncode == 0 and devices() == ["cuda:0"]


def test_page_of_an_open_device(box, batch, gpu):
    run_faulty(box, f"{gpu}open=1", "--device=all", *SMALL, "--html=p.html")
    check_page("p.html")
