# SPDX-License-Identifier: MIT
"""Limits of containers, jobs and shells: real control groups where this user can make them, and resource limits."""
import contextlib
import os
import re
import resource
import shutil
import struct
import subprocess
import zlib

import numpy as np
import png_writer as png
import pytest

import program
from program import is_sanitized, run

SIDE = 6144  # 37.7 megapixels
LIMIT = 400_000_000
SAMPLE = os.path.join(program.ROOT, "samples", "spheres-rgb.png")


def own_group(controller):
    """The folder of this process's group: cgroup v1 where the controller is mounted, else v2."""
    with open("/proc/self/cgroup", encoding="ascii", errors="replace") as file:
        lines = [line.rstrip("\n").split(":", 2) for line in file]
    for _, controllers, path in lines:
        folder = f"/sys/fs/cgroup/{controller}{path}"
        if controller in controllers.split(",") and os.path.isdir(folder):
            return os.path.normpath(folder)
    for _, controllers, path in lines:
        folder = f"/sys/fs/cgroup{path}"
        if not controllers and os.path.exists(f"{folder}/cgroup.controllers"):
            return os.path.normpath(folder)
    raise OSError(f"no group with {controller}")


@contextlib.contextmanager
def group(controller, settings):
    """Makes a group and one below it, which is returned; the upper one gets the first setting that exists here."""
    made = []
    try:
        try:
            upper = f"{own_group(controller)}/conv_test_{os.getpid()}"
            for folder in (upper, f"{upper}/lower"):
                os.mkdir(folder)
                made.append(folder)
            name = next(name for name in settings if os.path.exists(f"{upper}/{name}"))
            with open(f"{upper}/{name}", "w", encoding="ascii") as file:
                file.write(settings[name])
        except (OSError, StopIteration) as error:
            pytest.skip(f"no {controller} group can be made here: {error!r}")
        yield made[-1]
    finally:
        for folder in reversed(made):
            os.rmdir(folder)


def entering(folder):
    """For preexec_fn: the program starts as a member of the group."""
    def enter():
        with open(f"{folder}/cgroup.procs", "w", encoding="ascii") as file:
            file.write(str(os.getpid()))
    return enter


def write_large(path):
    """An RGB image of 36 megapixels that compresses as poorly as a photograph: 54 MB."""
    rng = np.random.default_rng(1)
    rows = np.empty((SIDE, 1 + 3 * SIDE), np.uint8)
    rows[:] = rng.integers(0, 16, rows.shape[1], np.uint8)
    rows += (np.arange(SIDE, dtype=np.uint32)[:, None] * 7 & 15).astype(np.uint8)
    rows[:, 0] = 0
    coder = zlib.compressobj(1, zlib.DEFLATED, 15, 9, zlib.Z_HUFFMAN_ONLY)
    data = coder.compress(rows) + coder.flush()
    with open(path, "wb") as file:
        file.write(png.SIGNATURE + png.chunk(b"IHDR", struct.pack(">IIBBBBB", SIDE, SIDE, 8, png.RGB, 0, 0, 0)))
        for at in range(0, len(data), 1 << 16):
            file.write(png.chunk(b"IDAT", data[at:at + (1 << 16)]))
        file.write(png.chunk(b"IEND"))


@pytest.mark.skipif(is_sanitized() or bool(program.RUNNER), reason="the memory of what watches the program says nothing")
def test_six_large_images_in_a_group_of_400_mb(box):
    """The limit is that of the group above. Two workers at once were killed: only one root's memory.max was read."""
    with group("memory", {"memory.limit_in_bytes": str(LIMIT), "memory.max": str(LIMIT)}) as folder:
        os.mkdir("in")
        write_large("in/0.png")
        for i in range(1, 6):
            os.link("in/0.png", f"in/{i}.png")
        # Without outputs: on a memory file system they would be the group's.
        result = run("emboss", "-j2", "--no-save", "in", "out", preexec_fn=entering(folder))
        assert "6 done, 0 failed" in program.closing(result.err)
        devices = run("devices", preexec_fn=entering(folder)).out
        assert re.search(rf"memory: {LIMIT >> 20} MiB of \d+ MiB, \d+ MiB in use \(\S+ of "
                         rf"{os.path.dirname(folder)}\)", devices), devices
        # An image that needs more is processed in bands, or fails on its own, with a message; the others are processed.
        more = ("emboss", "-j2", "--mix=40", "--no-save", "in/0.png", SAMPLE, "out")
        assert "2 done, 0 failed" in program.closing(run(*more, preexec_fn=entering(folder)).err)
        result = run(*more, "--border=wrap", code=1, preexec_fn=entering(folder))
        assert re.search(r"in/0.png: the image may need \d+ MiB of memory, but only \d+ MiB are left; not in bands", result.err)
        assert "1 done, 1 failed" in program.closing(result.err)


def test_cpu_quota_of_a_group(box):
    """The quota of the group above also limits the workers: half a core means one worker."""
    if len(os.sched_getaffinity(0)) == 1:
        pytest.skip("there is one core without a quota as well")
    with group("cpu", {"cpu.cfs_quota_us": "50000", "cpu.max": "50000 100000"}) as folder:
        devices = run("devices", preexec_fn=entering(folder)).out
        assert re.search(rf"cores: 1 of \d+ \(\S+ of {os.path.dirname(folder)}\)", devices), devices
        result = run("identity", "-v", SAMPLE, "o.png", preexec_fn=entering(folder))
        assert "cpu, 1 worker" in result.err


@pytest.mark.skipif(is_sanitized() or bool(program.RUNNER), reason="what watches the program needs address space")
def test_address_space(box):
    """ulimit -v: large images are processed one after the other instead of failing for lack of memory."""
    os.mkdir("in")
    row = bytes(1 + 3 * 4000)
    for i in range(4):
        with open(f"in/{i}.png", "wb") as file:
            file.write(png.SIGNATURE + png.chunk(b"IHDR", struct.pack(">IIBBBBB", 4000, 4000, 8, png.RGB, 0, 0, 0)) +
                       png.chunk(b"IDAT", zlib.compress(row * 4000, 1)) + png.chunk(b"IEND"))
    limited = ["sh", "-c", 'ulimit -v 450000; exec "$@"', "sh", program.BINARY]
    devices = subprocess.run([*limited, "devices"], capture_output=True, text=True, check=True).stdout
    assert re.search(r"memory: 439 MiB of \d+ MiB, \d+ MiB in use \(RLIMIT_AS", devices), devices
    result = subprocess.run([*limited, "emboss", "--device", "cpu", "-j2", "in", "out"], capture_output=True, text=True,
                            check=False)
    assert result.returncode == 0 and "4 done, 0 failed" in program.closing(result.stderr), result.stderr


def address_space_to_start():
    """In KiB: what the program and its libraries need, which differs between builds by more than an image."""
    for size in range(20000, 1000000, 4000):
        if subprocess.run(["sh", "-c", f'ulimit -v {size}; exec "$0" --version', program.BINARY], capture_output=True,
                          check=False).returncode == 0:
            return size
    raise AssertionError("the program does not start")


@pytest.mark.skipif(is_sanitized() or bool(program.RUNNER), reason="what watches the program needs address space")
def test_memory_for_fewer_workers(box):
    """The messages said "out of memory", and not what to do."""
    limited = ["sh", "-c", f'ulimit -v {address_space_to_start() + 24000}; exec "$@"', "sh", program.BINARY, "emboss",
               "--device", "cpu"]
    png.write("large.png", 5000, 4000, [bytes(5000)] * 4000, png.GRAY, level=1)
    for args, text in ((["-j64", SAMPLE], r"conv: no memory for the worker threads \(\d+\); use fewer --jobs$"),
                       (["-j2", "--mem-limit=1G", "large.png"], r": no memory for .*; use fewer --jobs$"),
                       (["-j1", "--mem-limit=1G", "large.png"], r": no memory for .*: Cannot allocate memory$")):
        result = subprocess.run([*limited, *args, "out"], capture_output=True, text=True, check=False)
        assert result.returncode == 1 and re.search(text, result.stderr, re.MULTILINE), result.stderr
    assert "conv list takes filters, banks or kernels, not 'x'" in run("list", "x", code=2).err


def test_affinity(box):
    allowed = os.sched_getaffinity(0)
    devices = run("devices", preexec_fn=lambda: os.sched_setaffinity(0, {min(allowed)})).out
    assert re.search(r"^cpu     1 core,", devices, re.MULTILINE) and "cores: 1 of " in devices


# --- descriptors ---------------------------------------------------------------------------------

def few(count, soft=False):
    """For preexec_fn: limits the descriptors of the program."""
    def limit():
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard if soft else count))
    return limit


@pytest.fixture
def batch(box):
    """A folder `in` of 60 small images, and a folder of 20 two levels below it."""
    os.makedirs("in/a/b")
    for i in range(80):
        folder = "in" if i < 60 else "in/a/b"
        png.write(f"{folder}/{i}.png", 9, 7, [[(x * y + i) % 256 for x in range(27)] for y in range(7)], png.RGB)
    run("emboss", "-r", "in", "want")
    return read_tree("want")


def read_tree(folder):
    found = {}
    for path, _, names in os.walk(folder):
        for name in names:
            with open(os.path.join(path, name), "rb") as file:
                found[os.path.relpath(os.path.join(path, name), folder)] = file.read()
    return found


def start_few(count, *args, soft=False):
    """Runs the program without program.run's pipes, which would use descriptors as well."""
    with open("said", "wb") as said:
        code = subprocess.run([program.BINARY, *args], stdin=subprocess.DEVNULL, stdout=said, stderr=said,
                              preexec_fn=few(count, soft), timeout=program.TIMEOUT, check=False).returncode
    with open("said", encoding="utf-8") as said:
        return code, said.read()


@pytest.mark.skipif(is_sanitized() or bool(program.RUNNER), reason="what watches the program needs descriptors")
@pytest.mark.parametrize("jobs", (1, 8))
@pytest.mark.parametrize("count", (5, 6, 8, 13, 20, 37))
def test_few_descriptors(box, batch, count, jobs):
    """With up to 20, 170 to 190 of 200 images failed: 17 were opened ahead of their readers, however few there are."""
    want = {name: data for name, data in batch.items() if "/" not in name}
    args = ("emboss", "--device", "cpu", f"-j{jobs}")
    for _ in range(2):  # new outputs, and outputs that replace others
        code, said = start_few(count, *args, "in", "out")
        assert code == 0 and "60 done" in program.closing(said), said
        assert read_tree("out") == want
    if count >= 8:  # two folders that are read, and the journal
        code, said = start_few(count, *args, "-r", "--fsync", "--preserve", "--resume", "journal", "in", "tree")
        assert code == 0 and "80 done" in program.closing(said), said
        assert read_tree("tree") == batch
    code, said = start_few(count, *args, "--in-place", "in")
    assert code == 0 and "60 done" in program.closing(said), said
    assert {name: data for name, data in read_tree("in").items() if "/" not in name} == want


@pytest.mark.skipif(is_sanitized() or bool(program.RUNNER), reason="what watches the program needs descriptors")
def test_too_few_descriptors_for_a_tree(box, batch):
    """Three folders deep, no descriptor is left for a file: that folder is reported, all others are processed."""
    code, said = start_few(6, "emboss", "--device", "cpu", "-j8", "-r", "in", "out")
    assert code == 1 and "60 done, 1 failed" in program.closing(said), said
    assert "conv: in/a/b: cannot open the folder: Too many open files\n" in said


@pytest.mark.skipif(is_sanitized() or bool(program.RUNNER), reason="what watches the program needs descriptors")
def test_pipes_and_few_descriptors(box, batch):
    """Pipes that have no writer yet keep their descriptors, and no other file waits for them."""
    names = [f"pipe{i}" for i in range(3)]
    for name in names:
        os.mkfifo(name)
    inputs = [f"in/{i}.png" for i in range(20)]
    with open("said", "wb") as said:
        process = subprocess.Popen([program.BINARY, "emboss", "--device", "cpu", "-j8", *names, *inputs, "out"],
                                   stdin=subprocess.DEVNULL, stdout=said, stderr=said, preexec_fn=few(10))
        for i, name in enumerate(names):
            shutil.copyfile(f"in/{i}.png", "copy")
            subprocess.run(["sh", "-c", 'cat copy > "$0"', name], check=True, timeout=program.TIMEOUT)
        assert process.wait(program.TIMEOUT) == 0
    assert len(os.listdir("out")) == 23


def test_soft_limit_is_raised(box, batch):
    """Only the hard limit matters: files are opened ahead as without a soft limit."""
    assert "open files: 20 (RLIMIT_NOFILE)" in start_few(20, "devices")[1]
    assert "open files: 10 (" not in start_few(10, "devices", soft=True)[1]
    code, said = start_few(10, "emboss", "--device", "cpu", "-j2", "-r", "in", "out", soft=True)
    assert code == 0 and "80 done" in program.closing(said) and read_tree("out") == batch
