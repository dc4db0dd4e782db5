# SPDX-License-Identifier: MIT
"""WebP in and out, against OpenCV: lossless and lossy, alpha, metadata, animations, damage."""
import os
import struct
import tarfile

import cv2
import numpy as np
import pytest

import images
import jpeg
import png_writer as png
import program
from program import run
from test_jpeg import read, write

pytestmark = pytest.mark.skipif(not program.HAS_WEBP, reason="built without libwebp")
RNG = np.random.default_rng(3)


def samples_of(channels, height=37, width=61):
    y, x = np.mgrid[0:height, 0:width]
    planes = [(x * (c + 2) + y * (5 - c)) % 256 for c in range(channels)]
    return (np.dstack(planes) ^ RNG.integers(0, 8, (height, width, channels))).astype(np.uint8)


def make(pixels, quality=101):
    """A file of RGB or RGBA; a quality above 100 is lossless."""
    order = [2, 1, 0, 3][:pixels.shape[2]]
    return cv2.imencode(".webp", np.ascontiguousarray(pixels[:, :, order]), [cv2.IMWRITE_WEBP_QUALITY, quality])[1].tobytes()


def decode(data):
    pixels = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_UNCHANGED)
    return pixels[:, :, [2, 1, 0, 3][:pixels.shape[2]]]


def as_png(pixels, depth=8):
    kind = {1: png.GRAY, 2: png.GRAY_ALPHA, 3: png.RGB, 4: png.RGBA}[pixels.shape[2]]
    return png.encode(pixels.shape[1], pixels.shape[0], pixels.reshape(len(pixels), -1).tolist(), kind, depth)


def hwc(planes):
    return planes.transpose(1, 2, 0)


def chunk(name, data):
    return name + struct.pack("<I", len(data)) + data + bytes(len(data) % 2)


def chunks(data):
    """(name, content) of each; the lengths must be right."""
    assert data[:4] == b"RIFF" and data[8:12] == b"WEBP" and struct.unpack("<I", data[4:8])[0] == len(data) - 8
    found, at = [], 12
    while at < len(data):
        size, = struct.unpack_from("<I", data, at + 4)
        found.append((data[at:at + 4], data[at + 8:at + 8 + size]))
        at += 8 + size + size % 2
    assert at == len(data)
    return found


def riff(*parts):
    content = b"WEBP" + b"".join(chunk(*part) for part in parts)
    return b"RIFF" + struct.pack("<I", len(content)) + content


def extended(flags, width, height):
    return b"VP8X", bytes((flags, 0, 0, 0)) + struct.pack("<I", width - 1)[:3] + struct.pack("<I", height - 1)[:3]


def names(data):
    return [name for name, _ in chunks(data)]


@pytest.mark.parametrize("channels", (3, 4))
def test_lossless(box, channels):
    """Colours under transparent pixels stay, too."""
    pixels = samples_of(channels)
    write("a.webp", make(pixels))
    run("identity", "--alpha=keep", "a.webp", "a.png")
    run("identity", "--alpha=keep", "a.webp", "b.webp")
    assert (hwc(images.read("a.png")) == decode(read("a.webp"))).all()
    if channels == 4:
        pixels[:9, :, 3] = 0
    write("c.png", as_png(pixels))
    run("identity", "--alpha=keep", "c.png", "c.webp")
    run("identity", "--alpha=keep", "c.webp", "back.png")
    assert (hwc(images.read("back.png")) == pixels).all()
    assert names(read("b.webp")) == names(read("c.webp")) == [b"VP8L"]
    if channels == 3:
        assert (decode(read("c.webp")) == pixels).all()


def test_other_kinds(box):
    gray, deep = samples_of(1), samples_of(3).astype(int) * 257 + RNG.integers(-100, 101, (37, 61, 3))
    deep = deep.clip(0, 65535)
    write("gray.png", as_png(gray))
    write("deep.png", as_png(deep, 16))
    for name in ("gray", "deep"):
        run("identity", f"{name}.png", f"{name}.webp")
    assert (decode(read("gray.webp")) == gray).all()
    assert (decode(read("deep.webp")) == (deep + 128) // 257).all()
    write("wide.png", as_png(np.zeros((1, 16384, 1), np.uint8)))
    assert "WebP holds at most 16383 per side" in run("identity", "wide.png", "wide.webp", code=1).err


def test_lossy(box):
    """A quality, or an input that has lost detail, makes lossy files; their alpha stays exact."""
    pixels = cv2.GaussianBlur(samples_of(4), (0, 0), 3)
    write("a.png", as_png(pixels))
    write("b.webp", make(pixels[:, :, :3], 80))
    run("identity", "--alpha=keep", "-Q90", "a.png", "a.webp")
    run("identity", "b.webp", "c.webp")
    assert names(read("a.webp")) == [b"VP8X", b"ALPH", b"VP8 "] and names(read("c.webp")) == [b"VP8 "]
    got = decode(read("a.webp")).astype(int)
    assert (got[:, :, 3] == pixels[:, :, 3]).all() and abs(got - pixels).mean() < 4
    run("identity", "b.webp", "b.png")
    assert (hwc(images.read("b.png")) == decode(read("b.webp"))).all()
    sizes = [len(run("identity", "--to=webp", f"-Q{quality}", "b.png", "-").out_bytes) for quality in (10, 60, 100)]
    assert sizes == sorted(sizes) and len(set(sizes)) == 3
    if program.HAS_JPEG:
        write("p.jpg", jpeg.make(pixels[:, :, :3]))
        run("identity", "p.jpg", "p.webp")
        assert names(read("p.webp")) == [b"VP8 "]


def test_folders_archives_and_pipes(box):
    pixels = samples_of(3)
    write("in/a.webp", make(pixels))
    write("in/b.png", as_png(pixels))
    run("emboss", "in", "out")
    want = hwc(images.read("out/b.png"))
    assert (decode(read("out/a.webp")) == want).all()
    run("emboss", "--to=webp", "in", "out.tar")
    with tarfile.open("out.tar") as archive:
        assert sorted(archive.getnames()) == ["b.webp"] or sorted(archive.getnames()) == ["a.webp", "b.webp"]
        assert (decode(archive.extractfile("b.webp").read()) == want).all()
    stream = run("emboss", "-", "-", stdin=read("in/a.webp") + read("in/b.png") + read("in/a.webp")).out_bytes
    one = run("emboss", "in/a.webp", "-").out_bytes
    assert stream == one + read("out/b.png") + one
    run("emboss", "--in-place", "in/a.webp")
    assert (decode(read("in/a.webp")) == want).all()


XMP = b'<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#"></rdf:RDF></x:xmpmeta>'


def test_metadata(box):
    """Colour profile, Exif without its thumbnail, and XMP, in lossless and lossy files, and through PNG."""
    pixels = samples_of(3)
    exif, profile = jpeg.exif(6, thumbnail=make(pixels)), jpeg.profile(size=301)
    for quality in (101, 80):
        image = chunks(make(pixels, quality))[-1]
        write("a.webp", riff(extended(0x2C, 61, 37), (b"ICCP", profile), image, (b"EXIF", exif), (b"XMP ", XMP), (b"ZZZZ", b"odd")))
        run("identity", "a.webp", "b.webp")
        run("identity", "a.webp", "a.png")
        run("identity", "a.png", "c.webp", *(("-Q80",) if quality == 80 else ()))
        for name in ("b.webp", "c.webp"):
            found = dict(chunks(read(name)))
            assert list(found) == [b"VP8X", b"ICCP", image[0], b"EXIF", b"XMP "] and found[b"VP8X"] == extended(0x2C, 61, 37)[1]
            assert found[b"ICCP"] == profile and XMP in found[b"XMP "] and found[b"EXIF"] == jpeg.exif(6)
            assert decode(read(name)).shape == (61, 37, 3) or decode(read(name)).shape == pixels.shape
    run("identity", "--strip", "a.webp", "look.webp")
    run("identity", "--strip=all", "a.webp", "bare.webp")
    assert names(read("look.webp")) == [b"VP8X", b"ICCP", b"VP8 ", b"EXIF"] and names(read("bare.webp")) == [b"VP8 "]
    run("identity", "--auto-orient", "--to=png", "a.webp", "up.png")
    run("identity", "--strip=all", "--to=png", "a.webp", "flat.png")
    assert (hwc(images.read("up.png")) == np.rot90(hwc(images.read("flat.png")), -1)).all()
    write("gray.webp", riff(extended(0x20, 61, 37), (b"ICCP", jpeg.profile(b"GRAY")), image))
    run("identity", "gray.webp", "d.webp")
    assert names(read("d.webp")) == [b"VP8 "], "a profile of another kind of pixels"


def test_animations(box):
    first, second = samples_of(3), samples_of(3)
    frames = [bytes(6) + struct.pack("<I", 60)[:3] + struct.pack("<I", 36)[:3] + bytes(4) + chunk(*chunks(make(p))[-1]) for p in (first, second)]
    data = riff(extended(2, 61, 37), (b"ANIM", bytes(6)), *((b"ANMF", frame) for frame in frames))
    write("a.webp", data)
    assert "animated WebP: all frames but one would be lost; --first-frame takes the first" in run("identity", "a.webp", "b.webp", code=1).err
    run("identity", "--first-frame", "a.webp", "b.png")
    assert (hwc(images.read("b.png")) == first).all()
    write("c.webp", riff(extended(2, 61, 37), (b"ANIM", bytes(6))))
    assert "damaged" in run("identity", "--first-frame", "c.webp", "c.png", code=1).err


def test_damaged_files_are_refused(box):
    for quality in (101, 80):
        good = make(samples_of(3), quality)
        bad = {
            "short": good[:8], "head": good[:20], "half": good[:len(good) // 2], "last": good[:-2],
            "cut": good[:4] + struct.pack("<I", len(good) // 2 - 8) + good[8:len(good) // 2],
            "empty": riff(), "unknown": riff((b"ABCD", b"1234")), "zeros": good[:24] + bytes(len(good) - 24),
            "sizes": good[:16] + b"\xff\xff\xff\x7f" + good[20:],
        }
        for name, data in bad.items():
            write(f"in{quality}/{name}.webp", data)
        write(f"in{quality}/good.webp", good)
        err = run("identity", f"in{quality}", f"out{quality}", code=1).err
        assert [name for name in bad if f"conv: in{quality}/{name}.webp: " not in err] == [], err
        assert os.listdir(f"out{quality}") == ["good.webp"] and "internal" not in err
    huge = b"\x2f" + struct.pack("<I", 16382 | 16382 << 14) + bytes(20)
    write("huge.webp", riff((b"VP8L", huge)))
    assert "--max-pixels" in run("identity", "--max-pixels=100M", "huge.webp", "o.png", code=1).err
    result = run("identity", "--mem-limit=100M", "huge.webp", "o.png", code=1)
    assert "memory" in result.err


@pytest.mark.parametrize("typed,words", (
    (("--to=webp", "-z3", "a.png", "b"), "--to webp and --compress cannot be combined: it is for PNG"),
    (("--progressive", "a.png", "b.webp"), "the output b.webp and --progressive cannot be combined: it is for JPEG"),
    (("--output-type=u16", "a.png", "b.webp"), "WebP has 8 bits per sample")))
def test_options_of_other_formats(box, typed, words):
    write("a.png", as_png(samples_of(3)))
    assert words in run("identity", *typed, code=2).err
