# SPDX-License-Identifier: MIT
"""Hostile images: each is reported once with its cause, needs no memory and leaves no file; the others are processed."""
import os
import re
import subprocess

import numpy as np
import pytest

import hostile
import images
import png_writer as png
import program
from faulty import FAULTY
from program import ROOT, is_sanitized, measure, run

HANG = program.TIMEOUT  # the slowest case takes a second
ROOM = 32 << 20  # bytes that a refused image may add to the peak of a run, not counting its file
GOOD = images.make("rgb8", np.random.default_rng(1), 20, 14).data


def fill(folder, files):
    folder.mkdir()
    for name, data in files.items():
        (folder / name).write_bytes(data)


def filter_folder(*options, code=0):
    return measure("identity", "--device=cpu", "-j2", *options, "in", "out", code=code, timeout=HANG)


def check_good(*names):
    for name in names:
        assert (images.read(f"out/{name}") == images.decode(GOOD)).all(), name


def check_peak(result, limit):
    if not is_sanitized():
        assert result.peak <= limit, f"{result.peak >> 20} MiB, {limit >> 20} MiB at most\n{result.err}"


@pytest.fixture(scope="module")
def usual(tmp_path_factory):
    """Peak memory of a run of good images."""
    box = tmp_path_factory.mktemp("usual")
    fill(box / "in", {"a.png": GOOD, "z.png": GOOD})
    return measure("identity", "--device=cpu", "-j2", box / "in", box / "out").peak


def test_all_of_them_at_once(box, usual):
    """Every case and every truncation of a small file in one folder, among good images and odd ones: each is reported once."""
    small = images.make("palette4+adam7", np.random.default_rng(2), 7, 5).data
    bad = {f"{name}.png": data for name, (data, _) in hostile.REFUSED.items()}
    bad.update({f"cut{size}.png": small[:size] for size in range(len(small))})
    good = {f"good{i}.png": GOOD for i in range(len(bad))}
    odd = {f"{name}.png": data for name, (data, _) in hostile.ACCEPTED.items()}
    fill(box / "in", {**bad, **good, **odd})
    result = measure("identity", "--device=cpu", "-j1", "in", "out", code=1, timeout=HANG)
    named = [re.fullmatch(r"conv: in/(\w+\.png): (.{8,})", line) for line in result.err.splitlines()[:-1]]
    assert sorted(match[1] for match in named) == sorted(bad)
    said = {match[1]: match[2] for match in named}
    assert all(cause in said[f"{name}.png"] for name, (_, cause) in hostile.REFUSED.items()), result.err
    assert all(("truncated" if size else "empty file") in said[f"cut{size}.png"] for size in range(len(small))), result.err
    assert sorted(os.listdir("out")) == sorted([*good, *odd])
    assert f"{len(good) + len(odd)} done, {len(bad)} failed" in program.closing(result.err)
    check_good(*list(good)[:: 9 if is_sanitized() else 1])
    for name, (_, planes) in hostile.ACCEPTED.items():
        assert (images.read(f"out/{name}.png") == planes).all(), name
    # A file, and of an odd one its metadata and the output, too.
    check_peak(result, usual + max(*map(len, bad.values()), *(3 * len(data) for data in odd.values())) + ROOM)


@pytest.mark.parametrize("fill_byte", (b"\0", b"\x89PNG\r\n\x1a\n"), ids=("zeros", "png"))
def test_file_of_gigabytes(box, usual, fill_byte):
    """Three sparse files of 3 GB: files that are not PNG are not read to their end, others are mapped."""
    fill(box / "in", {f"{name}.png": fill_byte for name in ("bad1", "bad2", "bad3")} | {"good.png": GOOD})
    for name in ("bad1", "bad2", "bad3"):
        os.truncate(f"in/{name}.png", 600_000_000 if is_sanitized() else 3_000_000_000)  # a sanitizer marks each byte
    result = filter_folder(*(() if fill_byte == b"\0" else ("--mem-limit=512M",)), code=1)
    cause = program.NO_IMAGE if fill_byte == b"\0" else "bad header: the first chunk is not IHDR"
    assert sorted(result.err.splitlines()[:-1]) == [f"conv: in/bad{i}.png: {cause}" for i in (1, 2, 3)]
    assert os.listdir("out") == ["good.png"]
    check_peak(result, usual + ROOM)


# --- limits --------------------------------------------------------------------------------------

def blank(width, height, depth=8, color_type=png.RGB):
    """A good image of zeros of any size."""
    row = 1 + width * png.CHANNELS[color_type] * depth // 8
    return hostile.head(width, height, depth, color_type) + hostile.idat(hostile.zeros(row * height)) + hostile.IEND


def stated(pattern):
    with open(os.path.join(ROOT, "docs", "memory.md"), encoding="utf-8") as file:
        return re.search(pattern, file.read())[1]


def test_max_pixels_has_the_default_that_is_stated(box):
    limit = int(stated(r"`--max-pixels` \(default 256M: ([\d,]+)\)").replace(",", ""))
    assert limit == 256 << 20 and "larger images (default: 256M)" in run("--help").out
    fill(box / "in", {"fits.png": hostile.head(limit, 1, 1, png.GRAY) + hostile.idat(b"x") + hostile.IEND,
                      "large.png": hostile.head(limit + 1, 1, 1, png.GRAY) + hostile.idat(b"x") + hostile.IEND})
    lines = run("identity", "in", "out", code=1).err.splitlines()
    assert [line for line in lines if "fits.png: truncated" in line or "fits.png: too little" in line or
            "fits.png: damaged: too little image data" in line], lines
    assert f"conv: in/large.png: {limit + 1} x 1 pixels are more than the limit of {limit} (--max-pixels)" in lines


def test_mem_limit_has_the_default_that_is_stated(box):
    """The limit is half of the memory; the error of an image that alone needs more says how much."""
    assert stated(r"`--mem-limit` \(default: ([^;]+);") == "half of the memory"
    if not re.search(r"^ +memory: .*\(no limit\)$", run("devices").out, re.MULTILINE):
        pytest.skip("a container or job limits the memory: see test_limits.py")
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    height = memory // 4 // (8 << 16) + 1  # twice that is more than half
    if height > 1 << 18:
        pytest.skip("so much memory that the image's file alone were 100 MB")
    fill(box / "in", {"a.png": GOOD, "large.png": blank(1 << 16, height, 16, png.RGBA)})
    result = filter_folder(f"--max-pixels={1 << 40}", "--border=wrap", code=1)  # not in bands
    needed, limit = map(int, re.search(r"conv: in/large\.png: the image needs (\d+)M of staging memory, "
                                       r"and the limit is (\d+)M; .*: use --mem-limit \1M", result.err).groups())
    assert limit == memory // 2 >> 20 and needed >= 2 * (height << 19) >> 20
    check_good("a.png")


def test_stated_need_is_what_it_takes(box):
    fill(box / "in", {"a.png": GOOD, "large.png": blank(1000, 1000)})
    result = filter_folder("--mem-limit=4M", code=1)
    needed = int(re.search(r"conv: in/large\.png: the image needs .*: use --mem-limit (\d+)K$", result.err, re.M)[1])
    assert os.listdir("out") == ["a.png"]
    assert "needs" in filter_folder(f"--mem-limit={needed - 1}K", code=1).err
    filter_folder(f"--mem-limit={needed}K")
    assert images.read("out/large.png").shape == (3, 1000, 1000)


@pytest.mark.skipif(is_sanitized(), reason="the memory of a sanitizer says nothing")
def test_memory_of_large_images_stays_within_the_limit(box, usual):
    """Eight workers, one large image at a time: memory that the other workers used must have been freed."""
    fill(box / "in", {f"{i}.png": blank(4000, 4000) for i in range(8)})
    limit = 128 << 20  # an image takes 2 x 46 MiB of staging
    result = measure("identity", "--device=cpu", "-j8", f"--mem-limit={limit}", "in", "out", timeout=HANG)
    assert "8 done" in program.closing(result.err)
    check_peak(result, usual + 2 * limit)


FILE = 10 << 20  # bytes; there are many such files


def fill_with_large_files(count, kind=b"prVT"):
    """Small images in files of 10 MiB: the large part is a chunk that is ignored, or a text, which is copied."""
    os.mkdir("in")
    head, rest = GOOD[:33], GOOD[33:]  # after IHDR
    with open("in/0.png", "wb") as file:
        file.write(head + png.chunk(kind, b"Comment\0".ljust(FILE, b"x")) + rest)
    for index in range(1, count):
        os.link("in/0.png", f"in/{index}.png")


@pytest.fixture(params=("cpu", "streams"))
def way(request, monkeypatch):
    """--device=... of images that one worker filters, and of groups in streams."""
    if request.param == "cpu":
        return "--device=cpu"
    if not FAULTY:
        pytest.skip("no CONV_FAULTY_BINARY: not started by ctest")
    monkeypatch.setattr(program, "BINARY", FAULTY)
    return "--device=cuda"


@pytest.mark.skipif(is_sanitized() or bool(program.RUNNER), reason="the memory of what watches the program says nothing")
@pytest.mark.parametrize("kind, jobs", ((b"prVT", 16), (b"tEXt", 2), (b"tEXt", 16)), ids=("unknown-16", "text-2", "text-16"))
def test_memory_of_large_files_stays_within_the_limit(box, usual, way, kind, jobs):
    """Sixteen workers that each held a file of 10 MiB once took 300 MiB, ten texts in one group 140, under a limit of 24."""
    fill_with_large_files(20, kind)
    limit = 24 << 20
    # As docs/memory.md has it. How much memory staging and coders use depends on how many workers are busy at once:
    # with random pauses, totals of 37 to 41 MiB were seen; on a busy machine, once 50.
    bound = usual + limit // 2 + FILE + limit // 2 + (4 << 20)
    if kind == b"tEXt":
        bound += limit // 2 + FILE + limit  # the texts of these files, and those of images in groups
    result = measure("identity", way, f"-j{jobs}", "--no-save", f"--mem-limit={limit}", "in", "out", timeout=HANG)
    assert "20 done" in program.closing(result.err)
    check_peak(result, bound)


@pytest.mark.parametrize("kind, jobs", ((b"tEXt", 16), (b"prVT", 2), (b"tEXt", 1)))
def test_files_larger_than_their_share_go_one_by_one(box, way, kind, jobs):
    """Regular files, whose size is known, and pipes, whose size is not, all larger than the budget: no deadlock."""
    fill_with_large_files(6, kind)
    names = [f"pipe{index}" for index in range(6)]
    for name in names:
        os.mkfifo(name)
    writers = [subprocess.Popen(["cp", "in/0.png", name]) for name in names]
    result = run("identity", way, f"-j{jobs}", "--mem-limit=11M",
                 *[f"in/{index}.png" for index in range(6)], *names, "out")
    assert "12 done" in program.closing(result.err) and [writer.wait(program.TIMEOUT) for writer in writers] == [0] * 6
    check_good("0.png", "5.png")
