# SPDX-License-Identifier: MIT
"""One large image on several cores: the same bytes whatever their number, and nothing written of a damaged file."""
import functools
import os
import zlib

import numpy as np
import pytest

import definition
import png_writer as png
from program import run, start
from test_signals import interrupt

WIDTH, HEIGHT = 2801, 1050  # RGB: 8.8 MB; from 8 MiB on, an image is encoded in bands
SLOW = bool(os.environ.get("CONV_SANITIZED") or os.environ.get("CONV_RUNNER"))


@functools.cache
def samples(depth=8, channels=3, width=WIDTH):
    """Gradients with noise, as in photographs, of the shape rows x columns x channels."""
    rng = np.random.default_rng(7)
    x, y = np.arange(width), np.arange(HEIGHT)[:, None]
    base = 100 + 60 * np.sin(x / 97) + 50 * np.cos(y / 41 + x / 200)
    planes = base[:, :, None] + rng.integers(-9, 10, (HEIGHT, width, channels)) + 10 * np.arange(channels)
    return planes.astype(np.uint8) if depth == 8 else (planes * 257).astype(">u2")


def write(path, image, damage=False):
    kind = {1: png.GRAY, 2: png.GRAY_ALPHA, 3: png.RGB, 4: png.RGBA}[image.shape[2]]
    head = b"".join(n.to_bytes(4, "big") for n in (image.shape[1], HEIGHT)) + bytes((8 * image.itemsize, kind, 0, 0, 0))
    rows = np.concatenate([np.zeros((HEIGHT, 1), np.uint8), image.reshape(HEIGHT, -1).view(np.uint8)], axis=1)
    stream = bytearray(zlib.compress(rows.tobytes(), 1))
    stream[-1] ^= damage
    path.write_bytes(png.SIGNATURE + png.chunk(b"IHDR", head) +
                     b"".join(png.chunk(b"IDAT", bytes(stream[at:at + 50000])) for at in range(0, len(stream), 50000)) +
                     png.chunk(b"IEND"))


def unfiltered(path, shape, dtype=np.uint8):
    """The samples of a file of level 0, whose rows have no filters."""
    data, at, stream = path.read_bytes(), 8, b""
    while at < len(data):
        size = int.from_bytes(data[at:at + 4], "big")
        if data[at + 4:at + 8] == b"IDAT":
            stream += data[at + 8:at + 8 + size]
        assert zlib.crc32(data[at + 4:at + 8 + size]) == int.from_bytes(data[at + 8 + size:at + 12 + size], "big")
        at += 12 + size
    rows = np.frombuffer(zlib.decompress(stream), np.uint8).reshape(HEIGHT, -1)
    assert not rows[:, 0].any()
    return np.ascontiguousarray(rows[:, 1:]).view(dtype).reshape(shape)


@pytest.mark.skipif(SLOW, reason="pixels of the release build are compared; the tests below run the same code")
@pytest.mark.parametrize("depth,channels,width", ((8, 3, WIDTH), (16, 1, 4301), (8, 4, 2101)))
def test_pixels_are_the_definition_s(box, depth, channels, width):
    image = samples(depth, channels, width)
    write(box / "a.png", image)
    chain = ("emboss", "sharpen") if channels == 3 else ("emboss",)
    run(",".join(chain), "-j3", "-z0", "a.png", "out.png")
    out = unfiltered(box / "out.png", image.shape, image.dtype)
    filters = [dict(definition.builtins())[name] for name in chain]
    planes = image.transpose(2, 0, 1).astype(np.uint8 if depth == 8 else np.uint16)
    want = definition.apply_image(planes, channels == 4, filters)
    assert (out.transpose(2, 0, 1) == want).all()


@pytest.mark.skipif(SLOW, reason="the release build compares the bytes; the test below has the same threads")
@pytest.mark.parametrize("level", (6, 0, 1, 2))
def test_the_bytes_do_not_depend_on_the_cores(box, level):
    image = samples()
    write(box / "a.png", image)
    for jobs in (1, 3):
        run("emboss", f"-j{jobs}", f"-z{level}", "a.png", f"{jobs}.png")
    assert (box / "1.png").read_bytes() == (box / "3.png").read_bytes()
    if level > 0:
        run("emboss", "-j1", "-z0", "a.png", "want.png")
        run("identity", "-j2", "-z0", "3.png", "back.png")
        assert (box / "back.png").read_bytes() == (box / "want.png").read_bytes()


def test_large_and_small_images_side_by_side(box):
    """Workers change between images of their own and helping with a large one."""
    (box / "in").mkdir()
    write(box / "in" / "m.png", samples())
    write(box / "in" / "n.png", samples(), damage=True)  # at its end
    for i in range(40):
        (box / "in" / f"{i:02}.png").write_bytes(png.encode(5, 5, [[i] * 5] * 5, png.GRAY))
    for jobs in (4,) if SLOW else (1, 4):
        assert "in/n.png" in run("emboss", f"-j{jobs}", "in", f"out{jobs}", code=1).err
    assert sorted([*os.listdir("out4"), "n.png"]) == sorted(os.listdir("in"))
    for name in os.listdir("out4") if not SLOW else ():
        assert (box / "out1" / name).read_bytes() == (box / "out4" / name).read_bytes()


@pytest.mark.skipif(SLOW, reason="a signal comes in time in the release build")
@pytest.mark.parametrize("level", (9, 12))
def test_a_signal_ends_the_work_of_all_cores(box, level):
    image = np.tile(samples(), (1, 6, 1))  # seconds of work
    write(box / "a.png", image)
    process = start("emboss", "-j3", f"-z{level}", "a.png", "out.png")
    said = interrupt(process)
    assert process.returncode == 130, said
    assert os.listdir(box) == ["a.png"]
