# SPDX-License-Identifier: MIT
"""A GPU without room and a GPU that fails in the middle (tests/faulty: the program with another device).

On any machine that device is the CPU with an asynchronous interface. Tests with `real` need a GPU: there CUDA
itself loses its device to a kernel that traps, or its memory to somebody else.
"""
import functools
import hashlib
import os
import re
import subprocess

import numpy as np
import pytest

import images
import program
from folders import fill, image, tree
from test_injected import LIBRARY, check_outcome, environment

BINARY = os.environ.get("CONV_FAULTY_BINARY")
CHAIN = "emboss,gaussian5"  # an even number of filters: on the CPU the result ends in the memory that the input was in

pytestmark = pytest.mark.skipif(not BINARY and os.environ.get("CONV_REQUIRE_CUDA") != "1",
                                reason="no CONV_FAULTY_BINARY: not started by ctest")
KINDS = ("rgb8", "gray16", "palette4+adam7", "rgba8", "gray1", "graya16", "rgba16")


@pytest.fixture(params=("fake", pytest.param("real", marks=pytest.mark.cuda)))
def gpu(request):
    if request.param == "real" and not has_real():
        pytest.fail("conv_faulty finds no CUDA device behind its own")
    return "real " if request.param == "real" else ""


def has_real():
    environ = {**os.environ, "CONV_FAULTY": "real"}
    done = subprocess.run([BINARY, "emboss", "--device=cuda", "-", "-"], env=environ, input=image().data, capture_output=True)
    return done.returncode == 0


@functools.lru_cache(maxsize=None)
def batch_files():
    rng = np.random.default_rng(12)
    return [images.make(KINDS[index % len(KINDS)], rng, 20 + 5 * (index % 9), 60 - index % 7).data for index in range(63)]


@pytest.fixture
def batch(box):
    """A folder `in` with 63 images of several kinds and sizes."""
    (box / "in").mkdir()
    for index, data in enumerate(batch_files()):
        (box / "in" / f"{index:02}.png").write_bytes(data)


# Under a sanitizer one of the ways to treat alpha, the one with the most steps.
ALPHA = ("premultiply",) if os.environ.get("CONV_SANITIZED") else ("keep", "filter", "premultiply")
WANTED = {}  # (options, digests of the images) -> the CPU's files, which take a sanitizer build seconds


def want_of(box, *options):
    key = (options, *((name, hashlib.sha256((box / "in" / name).read_bytes()).digest()) for name in tree("in")))
    if key not in WANTED:
        program.run(CHAIN, *options, "in", "want")
        WANTED[key] = {name: (box / "want" / name).read_bytes() for name in tree("want")}
    return WANTED[key]


def run_faulty(faults, *args, code=0, **more):
    environ = {**os.environ, **more.pop("env", {}), "CONV_FAULTY": faults}
    done = subprocess.run([*program.RUNNER, BINARY, CHAIN, "--encode-on=cpu", *args, "in", "out"], env=environ,
                          capture_output=True, text=True, timeout=program.TIMEOUT)
    said = f"{faults} {args}: exit code {done.returncode}\n{done.stderr}"
    assert "Sanitizer" not in done.stderr and "runtime error:" not in done.stderr, said
    assert code is None or done.returncode == code, said
    return done


def warnings(done, err="stderr"):
    return [line for line in getattr(done, err).splitlines() if re.match(r"conv: (cuda:\d: )?CUDA", line)]


SMALL = ("--group=64K", "-j2")  # many groups of few images


@pytest.mark.parametrize("alpha", ALPHA)
@pytest.mark.parametrize("where", (1, 5))
def test_lost_in_the_middle_with_all_goes_on_on_the_cpu(box, batch, gpu, alpha, where):
    fault = f"{'trap' if gpu else 'lost'}={where}"
    done = run_faulty(gpu + fault, "--device=all", f"--alpha={alpha}", *SMALL)
    check_outcome(box, want_of(box, f"--alpha={alpha}"), done.returncode, done.stderr, fault)
    assert len(warnings(done)) == 1 and "continuing on the CPU" in warnings(done)[0]


@pytest.mark.parametrize("where", (1, 4))
def test_lost_in_the_middle_with_cuda_names_what_failed(box, batch, gpu, where):
    fault = f"{'trap' if gpu else 'lost'}={where}"
    done = run_faulty(gpu + fault, "--device=cuda", "--streams=2", *SMALL, code=1)
    made = tree("out")
    check_outcome(box, want_of(box), 1, done.stderr, fault)
    named = re.findall(r"(?m)^conv: in/(\d\d\.png): CUDA failed", done.stderr)
    assert sorted(named + made) == tree("in"), "each image is there or named, and none both"
    assert len(named) > 0 and (where == 1) <= (made == [])


def test_standard_input_is_not_lost_with_the_device(box, gpu):
    """The input cannot be read again: the CPU continues with the decoded image."""
    (box / "a.png").write_bytes(image(3).data)
    program.run(CHAIN, "a.png", "want.png")
    done = subprocess.run([BINARY, CHAIN, "--device=all", "-", "-"], input=(box / "a.png").read_bytes(), capture_output=True,
                          env={**os.environ, "CONV_FAULTY": gpu + ("trap=1" if gpu else "lost=1")})
    assert done.returncode == 0 and done.stdout == (box / "want.png").read_bytes(), done.stderr


@pytest.mark.parametrize("alpha", ALPHA)
@pytest.mark.parametrize("asked, room", (("all", 32000), ("cuda", 100000)))
def test_little_room_means_smaller_groups(box, batch, alpha, asked, room):
    """There is room for each image, or for a few, but not for the groups that they come in."""
    done = run_faulty(f"room={room} streams=1048576", f"--device={asked}", f"--alpha={alpha}", "-j2")
    assert warnings(done) == []
    check_outcome(box, want_of(box, f"--alpha={alpha}"), 0, done.stderr, "room")


def test_parts_of_a_group_run_wherever_they_can(box, batch):
    """There is room for single planes only, then the device is lost: parts of one group come from device and CPU."""
    for where in (3, 6, 10):
        done = run_faulty(f"room=8000 lost={where}", "--device=all", "--group=8M", "-j2")
        check_outcome(box, want_of(box), 0, done.stderr, "parts")


def big_images(box):
    """Images whose planes have 1.2 MB each."""
    (box / "in").mkdir()
    data = images.make("rgb8", np.random.default_rng(2), 1200, 1000, filters=0, level=1).data
    for index in range(3):
        (box / "in" / f"{index}.png").write_bytes(data)


@pytest.mark.parametrize("room,whole", ((5_000_000, True), (1_300_000, True), (1_100_000, False))[2 * program.is_sanitized():])
def test_a_image_without_room(box, room, whole):
    """The image is filtered plane by plane; if a plane is too large, by the CPU, or it fails with the reason."""
    big_images(box)
    want = want_of(box)
    done = run_faulty(f"room={room}", "--device=all")
    assert len(warnings(done)) == (0 if whole else 1)
    check_outcome(box, want, 0, done.stderr, "auto")
    done = run_faulty(f"room={room}", "--device=cuda", code=0 if whole else 1)
    assert done.stderr.count("CUDA failed to allocate memory") == (0 if whole else 3)
    check_outcome(box, want, done.returncode, done.stderr, "cuda")


@pytest.mark.parametrize("fault", ("streams=1000", "closed"))
def test_a_device_that_is_full_from_the_start(box, batch, fault):
    done = run_faulty(fault, "--device=all", *SMALL)
    assert "on the CPU" in warnings(done)[-1] and len(warnings(done)) == (2 if fault == "closed" else 1)  # the cause, and the consequence
    check_outcome(box, want_of(box), 0, done.stderr, fault)
    done = run_faulty(fault, "--device=cuda", *SMALL, code=4)
    assert len(warnings(done)) == 1 and tree("out") == []


@pytest.mark.parametrize("number", program.some((1, 2, 3, 4, 9)))
def test_memory_that_cannot_be_pinned(box, batch, gpu, number):
    """Only copies are slower then."""
    done = run_faulty(f"{gpu}pins={number}", "--device=cuda", *SMALL)
    check_outcome(box, want_of(box), 0, done.stderr, "pins")
    assert warnings(done) == []


@pytest.mark.cuda
@pytest.mark.alone
@pytest.mark.parametrize("leave", (1, 4, 16, 40))
def test_somebody_else_has_the_devices_memory(box, leave):
    """CUDA itself finds only `leave` MiB free; 3 images of 3.6 MB need 16 MiB per stream and direction."""
    assert has_real()
    big_images(box)
    want = want_of(box)
    done = run_faulty(f"real hog={leave << 20}", "--device=all")
    check_outcome(box, want, 0, done.stderr, "auto")
    done = run_faulty(f"real hog={leave << 20}", "--device=cuda", code=None)
    check_outcome(box, want, done.returncode, done.stderr, "cuda")
    assert done.returncode == 0 or "CUDA failed to" in done.stderr


@pytest.mark.skipif(not LIBRARY or bool(program.RUNNER), reason="no CONV_FAULTS_LIBRARY: a sanitizer build, or not started by ctest")
@pytest.mark.parametrize("kind, plan, asked", (("alloc", "", "cuda"), ("alloc", "lost=2", "all"), ("alloc", "room=5000", "all"),
                                               ("thread", "", "all"), ("thread", "lost=2", "cuda"), ("thread", "room=5000", "all")))
def test_every_allocation_and_thread_fails_once_around_a_device(box, plan, asked, kind):
    fill(box / "in", *[f"{index}.png" for index in range(6)])
    want = want_of(box)
    for number in range(1, 5000):
        (box / "seen").write_bytes(b"")
        done = run_faulty(plan, f"--device={asked}", "--group=4K", "--streams=2", "-j2", code=None,
                          env=environment(f"{kind}={number}"))
        assert done.returncode >= 0, f"died of signal {-done.returncode}"
        check_outcome(box, want, done.returncode, done.stderr, f"{plan} {kind}={number}")
        if os.path.getsize("seen") == 1:
            break
    assert number > (40 if kind == "alloc" else 4)
