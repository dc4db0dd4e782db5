# SPDX-License-Identifier: MIT
"""A run on a GPU leaves it to the end of the process to free memory and streams, when all files are written and closed.

The device is that of tests/faulty, which aborts if it is closed nevertheless (`left`).
"""
import json
import os
import signal
import subprocess

import pytest

import program
from faulty import CHAIN, FAULTY, SMALL, check_outcome, needs_faulty, pipe_faulty, run_faulty, start_faulty, want_of, with_devices
from folders import fill, image
from program import until
from test_trace_faults import SHOWN, check_shown

pytestmark = needs_faulty


@pytest.mark.parametrize("faults", ("left", "left codes", "left devices=2", "left open=30", "left full=2"))
@pytest.mark.parametrize("asked", ("cuda", "all"))
def test_all_that_a_run_writes_is_whole(box, batch, asked, faults):
    done = run_faulty(box, faults, f"--device={asked}", *SMALL, *SHOWN)
    assert len(done.stderr.splitlines()) == 1
    check_shown()


def test_the_journal_lists_all(box, batch):
    for done in (0, 63):
        said = start_faulty("left", "--device=cuda", "--resume=journal", *SMALL).stderr
        assert f"{63 - done} done" in program.closing(said) and f"{done} skipped" in program.closing(said)
    check_outcome(box, want_of(box), 0, said, "journal")


def test_what_goes_to_a_pipe_is_whole(box, batch):
    done = subprocess.run([FAULTY, CHAIN, "--device=cuda", "--json", "in", "out"], env=with_devices("left"), capture_output=True, text=True,
                          timeout=program.TIMEOUT)
    records = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 0 and records[-1]["done"] == 63 and len(records) == 65
    (box / "in" / "one.png").write_bytes(image(3).data)
    assert pipe_faulty("left", image(3).data, "cuda") == want_of(box)["one.png"]


def test_exit_codes(box, batch):
    (box / "in" / "bad.png").write_bytes(b"bad")
    done = start_faulty("left", "--device=cuda", *SMALL, code=1)
    assert "63 done, 1 failed" in program.closing(done.stderr)
    done = start_faulty("left lost=4", "--device=all", *SMALL, code=1)
    assert "continuing on the CPU" in done.stderr and "63 done, 1 failed" in program.closing(done.stderr)
    with open("/dev/full", "w") as full:
        done = subprocess.run([FAULTY, CHAIN, "--device=cuda", "--json", "in", "out"], stdout=full, stderr=subprocess.PIPE, text=True,
                              env=with_devices("left"), timeout=program.TIMEOUT)
    assert done.returncode == 1 and "No space left on device" in done.stderr


def test_a_signal(box):
    fill(box / "in", *[f"{index}.png" for index in range(200)])
    process = subprocess.Popen([FAULTY, CHAIN, "--device=cuda", *SMALL, "in", "out"], stderr=subprocess.PIPE, text=True,
                               env=with_devices("left slow=20"))
    until(lambda: (box / "out").exists() and any((box / "out").iterdir()), process)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=program.TIMEOUT)
    assert process.returncode == 128 + signal.SIGTERM and "interrupted" in err
    assert not [name for name in os.listdir(box / "out") if not name.endswith(".png")]


@pytest.mark.parametrize("name", ("CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH"))
def test_a_profiler_sees_an_orderly_end(box, batch, name):
    """Under a profiler the device is closed, for which this one aborts."""
    done = start_faulty("left", "--device=cuda", *SMALL, code=-signal.SIGABRT, env={name: "a-profiler.so"})
    check_outcome(box, want_of(box), 0, done.stderr, name)
