# SPDX-License-Identifier: MIT
"""Memory does not grow with the number of images, one image needs few pages, and --device cpu starts no GPU."""
import os
import resource

import pytest

import program
from faulty import FAULTY
from folders import fill, image
from program import run, start


@pytest.mark.skipif(bool(program.RUNNER), reason="what watches the program has memory and files of its own")
@pytest.mark.parametrize("way", ("cpu", "streams"))
def test_three_thousand_images_take_what_three_hundred_take(box, monkeypatch, way):
    """Memory, and with it threads, and open files. Times are measured by tools/bench scale."""
    if way == "streams":
        if not FAULTY:
            pytest.skip("no CONV_FAULTY_BINARY: not started by ctest")
        monkeypatch.setattr(program, "BINARY", FAULTY)
    options = f"--device={'cpu' if way == 'cpu' else 'cuda'}", "-j4", "--mem-limit=4M", "--group=64K"
    taken = []
    for count in (300, 3000):
        fill(box / f"in{count}", "0.png")
        for index in range(1, count):
            os.link(f"in{count}/0.png", f"in{count}/{index}.png")
        result = program.measure("emboss", *options, f"in{count}", f"out{count}")
        taken.append(result.faults * resource.getpagesize() if way == "cpu" else result.peak)  # less than 10 MB is no peak
        assert len(os.listdir(f"out{count}")) == count
    assert taken[1] < taken[0] + (1 << 20), taken  # 390 bytes per image
    run("emboss", *options, "in3000", "out", preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100)))


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
