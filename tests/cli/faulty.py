# SPDX-License-Identifier: MIT
"""The program with other devices (tests/faulty), the system with faults (tests/preload), and what holds for any run.

On any machine the device is the CPU with an asynchronous interface. Tests with `real` need a GPU: there CUDA
itself loses its device to a kernel that traps, or its memory to somebody else.
"""
import functools
import hashlib
import os
import re
import shutil
import subprocess

import numpy as np
import pytest

import images
import program
from folders import fill, tree

LIBRARY = None if program.RUNNER else os.environ.get("CONV_FAULTS_LIBRARY")  # what runs the program has an allocator of its own
FAULTY = os.environ.get("CONV_FAULTY_BINARY")
needs_library = pytest.mark.skipif(not LIBRARY, reason="no CONV_FAULTS_LIBRARY: a sanitizer build, or not started by ctest")
needs_faulty = pytest.mark.skipif(not FAULTY and os.environ.get("CONV_REQUIRE_CUDA") != "1",
                                  reason="no CONV_FAULTY_BINARY: not started by ctest")
CHAIN = "emboss,gaussian5"  # an even number of filters: on the CPU the result ends in the memory that the input was in
SMALL = ("--group=64K", "-j2")  # many groups of few images
KINDS = ("rgb8", "gray16", "palette4+adam7", "rgba8", "gray1", "graya16", "rgba16")
# Under a sanitizer one of the ways to treat alpha, the one with the most steps.
ALPHA = ("premultiply",) if os.environ.get("CONV_SANITIZED") else ("keep", "filter", "premultiply")


def environment(faults):
    return {**os.environ, "LD_PRELOAD": LIBRARY or "", "CONV_FAULTS": faults, "CONV_FAULTS_SEEN": "seen"}


def with_devices(faults):
    return {**os.environ, "CONV_FAULTY": faults}


def check_outcome(box, want, code, err, what):
    """With exit code 0 all outputs are there and right; otherwise there is a message. No output is ever wrong.

    Removes the outputs and returns their names.
    """
    made = tree("out") if (box / "out").exists() else []
    for name in made:
        assert (box / "out" / name).read_bytes() == want.get(name), f"{what}: {name}"
    if code == 0:
        assert made == sorted(want), f"{what}: exit code 0, but outputs are missing\n{err}"
    else:
        assert code in (1, 2, 4) and "conv: " in err, f"{what}: exit code {code}, stderr: {err}"
    for name in made:
        os.unlink(box / "out" / name)
    return made


WANTED = {}  # (options, digests of the images) -> the CPU's files, which take a sanitizer build seconds


def want_of(box, *options):
    key = (options, *((name, hashlib.sha256((box / "in" / name).read_bytes()).digest()) for name in tree("in")))
    if key not in WANTED:
        shutil.rmtree("want", ignore_errors=True)
        program.run(CHAIN, *options, "in", "want")
        WANTED[key] = {name: (box / "want" / name).read_bytes() for name in tree("want")}
    return WANTED[key]


def start_faulty(faults, *args, code=0, env=None):
    """Filters `in` with such devices, and checks the exit code."""
    done = subprocess.run([*program.RUNNER, FAULTY, CHAIN, "--encode-on=cpu", *args, "in", "out"], capture_output=True, text=True,
                          env={**os.environ, **(env or {}), "CONV_FAULTY": faults}, timeout=program.TIMEOUT)
    said = f"{faults} {args}: exit code {done.returncode}\n{done.stderr}"
    assert "Sanitizer" not in done.stderr and "runtime error:" not in done.stderr, said
    assert code is None or done.returncode == code, said
    return done


def run_faulty(box, faults, *args, **kwargs):
    """The same, and checks the outputs (check_outcome), which the result has as `made`."""
    done = start_faulty(faults, *args, **kwargs)
    done.made = check_outcome(box, want_of(box, *[option for option in args if option.startswith("--alpha=")]),
                              done.returncode, done.stderr, faults)
    return done


def pipe_faulty(faults, data, device="all"):
    """Filters an image from standard input to standard output, which is returned."""
    done = subprocess.run([FAULTY, CHAIN, f"--device={device}", "-", "-"], input=data, capture_output=True,
                          env=with_devices(faults), timeout=program.TIMEOUT)
    assert done.returncode == 0, done.stderr
    return done.stdout


def fail_each(box, kind, faults, *args, least):
    """Each allocation or thread of a run fails once in turn; there are more than `least`."""
    fill(box / "in", *[f"{index}.png" for index in range(6)])
    for number in range(1, 5000):
        (box / "seen").write_bytes(b"")
        run_faulty(box, faults, *args, "--group=4K", "--streams=2", "-j2", code=None, env=environment(f"{kind}={number}"))
        if os.path.getsize("seen") == 1:
            break
    assert number > least


def warnings(err):
    return [line for line in err.splitlines() if re.match(r"conv: (cuda:\d: )?CUDA", line)]


def check_named(box, done):
    """Each image is there or named, and none both."""
    named = re.findall(r"(?m)^conv: in/(\d\d\.png): CUDA failed", done.stderr)
    assert sorted(named + done.made) == tree("in") and named


def has_real():
    return subprocess.run([FAULTY, "emboss", "--device=cuda", "-", "-"], env=with_devices("real"), capture_output=True,
                          input=images.make("gray8", np.random.default_rng(1), 9, 8).data).returncode == 0


@functools.cache
def batch_files():
    rng = np.random.default_rng(12)
    return [images.make(KINDS[index % len(KINDS)], rng, 20 + 5 * (index % 9), 60 - index % 7).data for index in range(63)]


def big_images(box, width=512, height=640):
    """Three images; their planes have 328 kB each."""
    (box / "in").mkdir()
    data = images.make("rgb8", np.random.default_rng(2), width, height, filters=0, level=1).data
    for index in range(3):
        (box / "in" / f"{index}.png").write_bytes(data)
