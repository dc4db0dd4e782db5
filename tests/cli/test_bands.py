# SPDX-License-Identifier: MIT
"""Images that do not fit the memory limit, in bands of rows: the file of the whole image, or a reason, or nothing."""
import functools
import os
import re
import zlib

import numpy as np
import png_writer as png
import pytest

import jpeg
import program
from program import HAS_JPEG, HAS_TIFF, is_sanitized, measure, run

WIDTH, HEIGHT = 1401, 3003  # RGB: 12.6 MB; the PNG encoder has no bands below 8 MiB
LIMIT = "--mem-limit=23M"   # the whole image takes 25
SLOW = is_sanitized() or bool(program.RUNNER)
NEEDS_JPEG = pytest.mark.skipif(not HAS_JPEG, reason="built without libjpeg-turbo")
ONCE = pytest.mark.skipif(SLOW, reason="the same code with other samples: the release build compares the files")


@functools.cache
def samples(width=WIDTH, height=HEIGHT, channels=3):
    """Gradients with noise."""
    x, y = np.arange(width, dtype=np.uint32), np.arange(height, dtype=np.uint32)[:, None]
    base = (x * x // 977 + y * 3 // 2 & 127) + ((x * 7919 + y * 104729) >> 5 & 15)
    return (base[:, :, None] + 20 * np.arange(channels, dtype=np.uint32)).astype(np.uint8)


@functools.cache
def stream(shape=(), level=1):
    rows = samples(*shape).reshape(samples(*shape).shape[0], -1)
    return zlib.compress(np.pad(rows, ((0, 0), (1, 0))).tobytes(), level)


def write(path, shape=(), chunks=(8192,), level=1, damage=None):
    """A PNG in IDAT chunks of these sizes in turn."""
    data = bytearray(stream(shape, level))
    if damage is not None:
        data[damage] ^= 1
    height, width, channels = samples(*shape).shape
    size = b"".join(n.to_bytes(4, "big") for n in (width, height))
    kind = {1: png.GRAY, 3: png.RGB, 4: png.RGBA}[channels]
    parts, at = [png.SIGNATURE, png.chunk(b"IHDR", size + bytes((8, kind, 0, 0, 0)))], 0
    while at < len(data):
        for chunk in chunks:
            parts.append(png.chunk(b"IDAT", bytes(data[at:at + chunk])))
            at += chunk
    path.write_bytes(b"".join([*parts, png.chunk(b"IEND")]))


def same(box, name, *args, limit=LIMIT):
    """Both ways make one file, which is returned."""
    run(*args, name, f"whole/{name}")
    run(*args, limit, name, f"bands/{name}")
    data = (box / "bands" / name).read_bytes()
    assert data == (box / "whole" / name).read_bytes(), args
    return data


@pytest.mark.parametrize("args", (("gaussian:3,emboss",), *((() if SLOW else (("sharpen", "--border=constant", "-z6"),)))))
def test_png(box, args):
    write(box / "a.png")
    same(box, "a.png", *args)


@ONCE
def test_alpha_and_16_bits(box):
    write(box / "a.png", (1051, 3003, 4))
    same(box, "a.png", "gaussian:3", "--alpha=premultiply")
    same(box, "a.png", "gaussian:3", "--output-type=u16", limit="--mem-limit=46M")


@ONCE
def test_chunks_of_all_sizes(box):
    """What is left of a piece of the stream, up to a part of its checksum, goes on in the next one."""
    write(box / "a.png", chunks=(0, 3, 100000, 1, 70001), level=0)
    want = same(box, "a.png", "emboss")  # of half the limit or more: it is mapped
    for chunks in ((len(stream()),), (524288 - 2, 1, 1), (len(stream()) - 3, 1)):
        write(box / "a.png", chunks=chunks)
        run("emboss", LIMIT, "a.png", "b.png")
        assert (box / "b.png").read_bytes() == want


@NEEDS_JPEG
@pytest.mark.parametrize("args", (("gaussian:40,sharpen",), ("gaussian:3", "--border=reflect101", "--roi=200x900+100+1000")))
def test_jpeg(box, args):
    (box / "a.jpg").write_bytes(jpeg.make(samples(401, 2903)))
    same(box, "a.jpg", *args, limit="--mem-limit=6M")


@pytest.mark.skipif(not HAS_TIFF, reason="built without libtiff")
def test_tiff(box):
    """The header is that of the whole file: it states where the directory after all strips is. A large file needs no more memory."""
    write(box / "a.png", (801, 2903))
    run("identity", "a.png", "a.tif")
    os.truncate("a.tif", 1 << 27)
    same(box, "a.tif", "gaussian:3", limit="--mem-limit=13M")


@pytest.mark.parametrize("kind, args", ((6, ("gaussian:3", "--border=constant")), (5, ("emboss",)), (3, ("sharpen",))))
def test_pnm(box, kind, args):
    rows = samples(801, 1903, 1 if kind == 5 else 3)
    body = rows.tobytes() if kind > 3 else "\n".join(map(str, rows.ravel())).encode()
    (box / "a.pnm").write_bytes(b"P%d %d %d 255\n" % (kind, rows.shape[1], rows.shape[0]) + body)
    same(box, "a.pnm", *args, limit="--mem-limit=2M")


@NEEDS_JPEG
def test_other_jpegs(box):
    (box / "a.jpg").write_bytes(jpeg.make(samples(401, 1903)[:, :, 0], quality=75))
    same(box, "a.jpg", "gaussian:3", limit="--mem-limit=1500K")
    (box / "p.jpg").write_bytes(jpeg.make(samples(401, 1903), progressive=1))
    assert "in bands of rows: a progressive JPEG" in run("emboss", "--mem-limit=4M", "p.jpg", "o.jpg", code=1).err
    # Cut off after the last row of blocks: nothing is left, and the other image is done.
    (box / "in").mkdir()
    good = jpeg.make(samples(401, 1903))
    for name, data in (("bad.jpg", good[:-9]), ("good.jpg", good)):
        (box / "in" / name).write_bytes(data)
    whole, bands = (re.findall("conv: .*", run("emboss", limit, "in", "out", code=1).err) for limit in ("--mem-limit=1G", "--mem-limit=4M"))
    assert whole == bands and "in/bad.jpg" in whole[0] and os.listdir("out") == ["good.jpg"]


@NEEDS_JPEG
def test_what_is_not_done_in_bands_says_why(box):
    (box / "a.jpg").write_bytes(jpeg.make(samples(401, 1903)))
    for args, why in ((("--border=wrap", "o.jpg"), "its last rows reach the first ones"), (("o.png",), "less than 8 MiB"),
                      (("-",), "its output is not a file"), (("--output-type=f32", "o.npy"), "plane after plane")):
        err = run("emboss", "--mem-limit=4M", "a.jpg", *args, code=1).err
        assert re.search(rf"the limit is 4(096K|M); not in bands of rows: .*{why}.*: use --mem-limit \d", err), err
    assert os.listdir(box) == ["a.jpg"]


@ONCE
def test_damage_at_the_end_leaves_nothing(box):
    write(box / "a.png", damage=-1)  # the checksum, after all rows
    assert "a.png: damaged image: IDAT: incorrect data check" in run("emboss", LIMIT, "a.png", "o.png", code=1).err
    assert os.listdir(box) == ["a.png"]


@NEEDS_JPEG
@pytest.mark.skipif(SLOW, reason="the memory of what watches the program says nothing")
def test_memory_in_place(box):
    """One image at a time is in bands, whatever the number of workers; with a journal each is filtered once."""
    (box / "in").mkdir()
    for name in ("a.jpg", "b.jpg", "c.jpg"):
        (box / "in" / name).write_bytes(jpeg.make(samples(2400, 3000)))
    (box / "tiny.jpg").write_bytes(jpeg.make(samples(9, 9)))
    run("emboss", "in/a.jpg", "want.jpg")
    args = ("emboss", "--device=cpu", "-j4", "--mem-limit=24M")  # a whole image takes 43
    base = measure(*args, "tiny.jpg", "out.jpg").peak
    result = measure(*args, "--in-place", "--resume=journal", "in")
    assert result.peak - base < 24 << 20, (result.peak, base)
    assert "3 skipped" in program.closing(run(*args, "--in-place", "--resume=journal", "in").err)
    assert {(box / "in" / name).read_bytes() for name in os.listdir("in")} == {(box / "want.jpg").read_bytes()}


@pytest.mark.skipif(SLOW, reason="the memory of what watches the program says nothing")
def test_a_large_file_is_not_kept_in_memory(box):
    """All pages of a mapped file counted: 1.3 GB for 20,000 x 20,000 RGB."""
    (box / "a.pgm").write_bytes(b"P5 8000 12000 255\n")
    os.truncate("a.pgm", 18 + 8000 * 12000)
    assert measure("blur", "--device=cpu", "--mem-limit=24M", "a.pgm", "o.pgm").peak < 64 << 20
