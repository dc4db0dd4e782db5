# SPDX-License-Identifier: MIT
"""What an output keeps of its input besides pixels: mode, times, chunks. Animations are refused."""
import os
import stat
import struct

import pytest

import images
import png_writer as png
from folders import fill, image, is_embossed, tree
from program import run


def test_preserve_keeps_mode_and_time(box):
    fill(box / "in", "a.png")
    (box / "in" / "a.png").chmod(0o604)
    os.utime(box / "in" / "a.png", ns=(10**18, 1234567890_123456789))
    run("emboss", "-p", "in", "out")
    after = (box / "out" / "a.png").stat()
    assert stat.S_IMODE(after.st_mode) == 0o604 and after.st_mtime_ns == 1234567890_123456789


EXIF = b"MM\0*" + struct.pack(">I H HHIHH I", 8, 1, 0x112, 3, 1, 6, 0, 0)


def metadata():
    """The chunks before and after the image data."""
    early = [png.chunk(b"gAMA", (45455).to_bytes(4, "big")), png.chunk(b"cHRM", bytes(range(32))),
             png.chunk(b"sRGB", b"\0"), png.chunk(b"pHYs", (2835).to_bytes(4, "big") * 2 + b"\1"),
             png.chunk(b"oFFs", (7).to_bytes(4, "big") * 2 + b"\0"), png.chunk(b"sCAL", b"\1" b"2\0" b"3"),
             png.chunk(b"bKGD", b"\0\1\0\2\0\3"), png.chunk(b"tEXt", b"Title\0A image"),
             png.chunk(b"zzZz", b"private, safe to copy")]
    late = [png.chunk(b"iTXt", b"Author\0\0\0en\0\0" + "Zoë".encode()), png.chunk(b"eXIf", EXIF),
            png.chunk(b"llLl", b"private, safe to copy")]
    untrue = [png.chunk(b"tIME", bytes((7, 232, 1, 2, 3, 4, 5))), png.chunk(b"sBIT", b"\5\6\5"),
              png.chunk(b"cLLI", bytes(8)), png.chunk(b"dSIG", b"signed"), png.chunk(b"zzZZ", b"private, unsafe to copy")]
    return early, late, untrue


@pytest.fixture
def described(box):
    early, late, untrue = metadata()
    source = image(chunks=untrue + early, late_chunks=late)
    (box / "a.png").write_bytes(source.data)
    return source


@pytest.mark.parametrize("options", ((), ("--encoder=libpng",), ("--encoder=stb",)))
def test_what_stays_true_is_carried_over(box, described, options):
    """bKGD, oFFs, sCAL and chunks that are safe to copy were dropped, texts after the image data were moved."""
    early, late, untrue = metadata()
    run("emboss", *options, "a.png", "b.png")
    after = (box / "b.png").read_bytes()
    assert after[33:].startswith(b"".join(early) + after[33 + sum(map(len, early)):][:4] + b"IDAT")
    assert after.endswith(b"".join(late) + png.chunk(b"IEND"))
    kinds = [kind for kind, _ in images.chunks(after)]
    assert kinds == [b"IHDR", *(kind for kind, _ in images.chunks(described.data)[1 + len(untrue):])]
    assert is_embossed("b.png", described)


def test_strip(box, described):
    """--strip turned photos of phones on their side and changed colours."""
    run("emboss", "--strip", "a.png", "b.png")
    chunks = images.chunks((box / "b.png").read_bytes())
    assert chunks[1:4] == [(b"gAMA", (45455).to_bytes(4, "big")), (b"cHRM", bytes(range(32))), (b"sRGB", b"\0")]
    assert chunks[5:] == [(b"eXIf", EXIF), (b"IEND", b"")]
    run("emboss", "--strip=all", "a.png", "c.png")
    assert {kind for kind, _ in images.chunks((box / "c.png").read_bytes())} == {b"IHDR", b"IDAT", b"IEND"}
    assert is_embossed("b.png", described) and is_embossed("c.png", described)


# --- animations ----------------------------------------------------------------------------------

ACTL = png.chunk(b"acTL", (2).to_bytes(4, "big") + bytes(4))


def frame_control(number):
    sides = (20).to_bytes(4, "big") + (14).to_bytes(4, "big")
    return png.chunk(b"fcTL", number.to_bytes(4, "big") + sides + bytes(8) + b"\0\1\0\2\0\0")


def animation(first_is_a_frame=True):
    """Two frames. The image itself is the first frame, or is only shown by programs without animation."""
    source = image(chunks=[ACTL] + [frame_control(0)] * first_is_a_frame + [png.chunk(b"tEXt", b"a\0b")])
    stream = b"".join(data for kind, data in images.chunks(source.data) if kind == b"IDAT")
    frames = frame_control(1) + png.chunk(b"fdAT", (2).to_bytes(4, "big") + stream)
    return source, source.data[:-12] + frames + source.data[-12:]


@pytest.mark.parametrize("first_is_a_frame", (True, False))
def test_an_animation_is_refused_or_its_first_frame_taken(box, device, first_is_a_frame):
    """Its frames were dropped silently, with --in-place irrecoverably."""
    source, data = animation(first_is_a_frame)
    good = fill(box / "in", "a.png", "z.png")
    (box / "in" / "move.png").write_bytes(data)
    result = run("emboss", "--device", device, "in", "out", code=1)
    assert result.err.splitlines()[0] == ("conv: in/move.png: animated PNG: all frames but one would be lost; "
                                          "--first-frame takes the first")
    assert tree("out") == ["a.png", "z.png"]
    run("emboss", "--device", device, "--first-frame", "in", "out")
    assert is_embossed("out/move.png", source) and is_embossed("out/a.png", good["a.png"])
    run("verify", "emboss", "in/move.png")  # writes nothing
    assert {kind for kind, _ in images.chunks((box / "out" / "move.png").read_bytes())} == {b"IHDR", b"tEXt", b"IDAT", b"IEND"}


def test_an_animation_is_never_filtered_in_place(box):
    _, data = animation()
    good = fill(box / "in", "a.png")
    (box / "in" / "move.png").write_bytes(data)
    result = run("emboss", "--in-place", "in", code=1)
    assert "move.png: animated PNG" in result.err and "not with --in-place" in result.err
    assert (box / "in" / "move.png").read_bytes() == data and is_embossed("in/a.png", good["a.png"])
    before = (box / "in" / "a.png").read_bytes()
    assert "frames would be lost" in run("emboss", "--in-place", "--first-frame", "in", code=2).err
    assert (box / "in" / "move.png").read_bytes() == data and (box / "in" / "a.png").read_bytes() == before
