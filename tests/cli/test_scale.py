# SPDX-License-Identifier: MIT
"""Time and memory per image do not grow with their number, one image needs few pages, and --device cpu starts no GPU.

The sizes are small here and the bounds generous, so that a busy machine does not fail them. The documented figures come
from tools/bench scale with its own sizes and bounds.
"""
import os
import subprocess
import sys
import tempfile

import pytest

import program
from faulty import FAULTY
from folders import fill, image
from program import ROOT, run, start


@pytest.fixture
def memory(box):
    """A folder in memory where possible: on a disk the time per file depends on what other processes write."""
    shared = "/dev/shm"
    with tempfile.TemporaryDirectory(dir=shared if os.access(shared, os.W_OK) else box) as folder:
        yield folder


@pytest.mark.skipif(bool(program.RUNNER), reason="what watches the program has memory and threads of its own")
@pytest.mark.parametrize("way", ("cpu", "streams"))
def test_three_thousand_images_cost_what_three_hundred_cost(memory, way):
    if way == "streams" and not FAULTY:
        pytest.skip("no CONV_FAULTY_BINARY: not started by ctest")
    binary, device = (program.BINARY, "cpu") if way == "cpu" else (FAULTY, "cuda")
    for _ in range(3):  # other processes may slow down one of the two, and suspend this one while it should measure
        done = subprocess.run([sys.executable, f"{ROOT}/tools/bench", "scale", f"{memory}/scale", "--conv", binary, "--counts", "300,3000",
                               "--side", "20", "--repeat", "4", "--tolerance", "300", "--growth", "40", "--", "--device", device,
                               "-j4", "--mem-limit", "4M", "--group", "64K"],
                              capture_output=True, text=True, timeout=program.TIMEOUT)
        if done.returncode == 0:
            break
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3000 " in done.stdout and not os.path.exists(f"{memory}/scale")


@pytest.mark.skipif(not FAULTY, reason="no CONV_FAULTY_BINARY")
def test_tiny_images_in_flight_stay_within_the_limit(box, monkeypatch):
    """Groups of thousands of 1x1 images once took ten times --mem-limit: the records, not the pixels."""
    fill(box / "in", "0.png")
    (box / "in" / "0.png").write_bytes(image(1, 1, 1).data)
    for index in range(1, 8000):
        os.link("in/0.png", f"in/{index}.png")
    monkeypatch.setattr(program, "BINARY", FAULTY)
    result = program.measure("identity", "--device=cuda", "-j4", "--mem-limit=8M", "--no-save", "in", "out")
    assert "8000 done" in program.closing(result.err) and result.peak < 24 << 20, f"{result.peak >> 20} MiB"


@pytest.mark.skipif(bool(program.RUNNER), reason="what watches the program has memory of its own")
def test_one_small_image_touches_few_pages(box):
    """Most of its 10 ms are page faults; that it waits for no device is tested below and in test_waking_device.py."""
    fill(box, "a.png")
    version, image = (program.measure(*args).faults for args in (("--version",), ("emboss", "-j1", "a.png", "b.png")))
    assert image < version + 400, (version, image)  # 200 more in a build without optimisation


def libraries_asked_for(*args):
    """The dynamic linker's report of the libraries that were looked for, also of those that the program opens later."""
    environ = {**os.environ, "LD_DEBUG": "libs", "LD_DEBUG_OUTPUT": "linker"}
    process = start(*args, env=environ)
    _, err = process.communicate(timeout=program.TIMEOUT)
    assert process.returncode == 0, err
    with open(f"linker.{process.pid}") as file:
        return file.read()


@pytest.mark.skipif(bool(program.RUNNER), reason="the linker would report about what runs the program")
def test_a_folder_on_the_cpu_never_wakes_cuda(box):
    if "built without CUDA" in run("devices").out:
        pytest.skip("built without CUDA")
    fill(box / "in", "a.png", "b.png")
    assert "libcuda" in libraries_asked_for("emboss", "--device=all", "in", "out"), "the test sees nothing"
    for args in (("--device=cpu",), ("--device=auto",), ("--device=all", "--dry-run")):
        assert "libcuda" not in libraries_asked_for("emboss", *args, "in", "out"), args
