# SPDX-License-Identifier: MIT
"""PBM, PGM, PPM and PAM, against numpy and against the same pixels as PNG."""
import os

import numpy as np
import pytest

import images
import png_writer as png
from program import run

RNG = np.random.default_rng(7)


def pnm(kind, planes, maxval=255):
    """A file of kind 1 to 7 with planes of shape (channels, height, width)."""
    channels, height, width = planes.shape
    pixels = planes.transpose(1, 2, 0)
    if kind == 7:
        head = f"P7\n# a comment\nWIDTH {width}\nHEIGHT {height}\nDEPTH {channels}\nMAXVAL {maxval}\nENDHDR\n"
        return head.encode() + pixels.astype(">u2" if maxval > 255 else np.uint8).tobytes()
    head = f"P{kind}\n#\n{width} #b\n{height}{'' if kind in (1, 4) else f' {maxval}'}\n".encode()
    if kind <= 3:
        return head + b" ".join(b"%d" % v for v in pixels.reshape(-1)) + b"\n"
    if kind == 4:
        return head + np.packbits(pixels[..., 0], axis=1).tobytes()
    return head + pixels.astype(">u2" if maxval > 255 else np.uint8).tobytes()


def parse(data):
    """The kind and the planes of a file that conv wrote: no comments."""
    kind = int(data[1:2])
    if kind == 7:
        head, _, rest = data.partition(b"ENDHDR\n")
        fields = dict(line.split() for line in head.splitlines()[1:])
        width, height, channels, maxval = (int(fields[name]) for name in (b"WIDTH", b"HEIGHT", b"DEPTH", b"MAXVAL"))
    else:
        magic, width, height, maxval, rest = data.split(maxsplit=4)[:4] + [None]
        width, height, maxval, channels = int(width), int(height), int(maxval), 3 if kind == 6 else 1
        rest = data[-width * height * channels * (2 if maxval > 255 else 1):]
    assert maxval in (255, 65535)
    values = np.frombuffer(rest, ">u2" if maxval > 255 else np.uint8)
    return kind, values.reshape(height, width, channels).transpose(2, 0, 1).astype(np.uint16 if maxval > 255 else np.uint8)


def noise(channels, top, height=7, width=13):
    return RNG.integers(0, top + 1, (channels, height, width))


def convert(data, to="pam"):
    return parse(run("identity", f"--to={to}", "-", "-", stdin=data).out_bytes)


@pytest.mark.parametrize("kind,maxval", [(kind, maxval) for kind in range(1, 8) for maxval in (1, 99, 255, 256, 1023, 65535)
                                             if kind not in (1, 4) or maxval == 1])
def test_samples_are_scaled_to_the_nearest(kind, maxval):
    """Bits are white where they are 0; samples of 16 bits begin at odd and even bytes."""
    for channels in (1, 2, 3, 4) if kind == 7 else ((3,) if kind in (3, 6) else (1,)):
        planes = noise(channels, maxval)
        top = 255 if maxval <= 255 else 65535
        want = (planes * top + maxval // 2) // maxval
        got = convert(pnm(kind, planes, maxval))[1]
        assert (got == (top - want if kind in (1, 4) else want)).all()


@pytest.mark.parametrize("to,kinds", (("pnm", (5, 6)), ("ppm", (6, 6)), ("pgm", (5, None)), ("pam", (7, 7))))
def test_what_each_format_holds(box, to, kinds):
    for channels, kind in zip((1, 3), kinds):
        for depth in (8, 16):
            planes = noise(channels, (1 << depth) - 1).astype(np.uint16 if depth == 16 else np.uint8)
            for alpha in (False, True):
                opaque = np.concatenate([planes, np.full_like(planes[:1], (1 << depth) - 1)]) if alpha else planes
                colour = {1: png.GRAY, 2: png.GRAY_ALPHA, 3: png.RGB, 4: png.RGBA}[len(opaque)]
                data = png.encode(13, 7, images.rows_of(opaque), colour, depth)
                open("a.png", "wb").write(data)
                result = run("identity", "--alpha=keep", "a.png", f"a.{to}", code=1 if kind is None else 0)
                if kind is None:
                    assert "PGM cannot hold colours (--gray takes the luminance)" in result.err
                    continue
                got = parse(open(f"a.{to}", "rb").read())
                assert got[0] == kind
                want = opaque if to == "pam" else planes
                assert (got[1] == (want if got[1].shape == want.shape else np.repeat(want, 3, 0))).all()
                if alpha and to != "pam":
                    opaque[-1, 3, 5] = 7
                    open("b.png", "wb").write(png.encode(13, 7, images.rows_of(opaque), colour, depth))
                    assert "cannot hold its transparent pixels" in run("identity", "--alpha=keep", "b.png", f"b.{to}", code=1).err
                    assert not os.path.exists(f"b.{to}")


def test_filters_in_folders_and_archives(box):
    os.mkdir("in")
    planes = noise(3, 255, 40, 61).astype(np.uint8)
    files = {"in/a.ppm": pnm(6, planes), "in/b.pgm": pnm(5, planes[:1]), "in/c.pam": pnm(7, planes),
             "in/d.png": png.encode(61, 40, images.rows_of(planes), png.RGB, 8)}
    for name, data in files.items():
        open(name, "wb").write(data)
    run("emboss", "in", "out")
    want = images.read("out/d.png")
    assert (parse(open("out/a.ppm", "rb").read())[1] == want).all()
    assert (parse(open("out/b.pgm", "rb").read())[1] == want[:1]).all()
    assert parse(open("out/c.pam", "rb").read())[0] == 7
    run("emboss", "in", "out.tar")
    run("identity", "--to=pnm", "out.tar", "back")
    assert sorted(os.listdir("back")) == ["a.pnm", "b.pnm", "c.pnm", "d.pnm"]
    assert (parse(open("back/d.pnm", "rb").read())[1] == want).all()
    assert run("emboss", "in/a.ppm", "-").out_bytes[:2] == b"P6", "as the input"
    run("emboss", "--in-place", "in")
    assert (parse(open("in/a.ppm", "rb").read())[1] == want).all()


GOOD = pnm(6, noise(3, 255))
REFUSED = {
    b"P6": "not a ",
    b"P6\n13": "truncated: ends inside the header",
    b"P6\n13 7\n255": "truncated: ends inside the header",
    b"P6\n0 7\n255\n" + bytes(300): "bad header: the width is not within 1 to",
    b"P6\n13 7\n0\n" + bytes(300): "bad header: the maximum is not within 1 to 65535",
    b"P6\n13 7\n65536\n" + bytes(600): "bad header: the maximum is not within 1 to 65535",
    b"P6\n-1 7\n255\n" + bytes(300): "bad header: the width",
    b"P6\n13 7\n255x" + bytes(300): "bad header: no white space",
    b"P6\n99999999999999999999 7\n255\n": "bad header: the width",
    b"P6\n20000 20000\n255\n" + bytes(300): "more than the limit of",
    b"P6\n16000 16000\n255\n" + bytes(300): "truncated: 300 bytes of samples cannot hold 16000 x 16000 pixels",
    GOOD[:-1]: "truncated: 272 bytes",
    b"P5\n2 1\n99\n\x63\x64": "damaged: a sample above the maximum of 99",
    b"P2\n2 1\n99\n99 100": "damaged: no sample up to 99 at byte",
    b"P2\n2 1\n99\n99      ": "truncated: ends inside the samples",
    b"P1\n2 1\n1 2\n": "damaged: no sample up to 1",
    b"P6 #" + b"#" * 70000: "bad header: longer than 65536 bytes",
    b"P7\nWIDTH 2\nHEIGHT 1\nDEPTH 4\nMAXVAL 255\nTUPLTYPE CMYK\nENDHDR\n" + bytes(8): "neither gray nor RGB",
    b"P7\nWIDTH 2\nHEIGHT 1\nDEPTH 4\nMAXVAL 255\nTUPLTYPE RGB\nENDHDR\n" + bytes(8): "4 channels, but a type of 3",
    b"P7\nWIDTH 2\nHEIGHT 1\nDEPTH 5\nMAXVAL 255\nENDHDR\n" + bytes(10): "bad header: the depth",
    b"P7\nWIDTH 2\nDEPTH 1\nMAXVAL 255\nENDHDR\n\0\0": "bad header: a line is missing",
    b"P7\nWIDE 2\nENDHDR\n": "bad header: an unknown line",
}


def test_damaged_files_are_refused(box):
    os.mkdir("in")
    for i, data in enumerate(REFUSED):
        open(f"in/{i:02}.pnm", "wb").write(data)
    open("in/good.ppm", "wb").write(GOOD)
    err = run("identity", "--max-pixels=256M", "in", "out", code=1).err
    for i, cause in enumerate(REFUSED.values()):
        assert any(line.startswith(f"conv: in/{i:02}.pnm: ") and cause in line for line in err.splitlines()), (i, cause, err)
    assert os.listdir("out") == ["good.ppm"]


@pytest.mark.parametrize("typed,words", (
    (("--to=ppm", "-Q80", "a.png", "b"), "--to ppm and --quality cannot be combined: it is for JPEG"),
    (("-z3", "a.png", "b.pam"), "the output b.pam and --compress cannot be combined: it is for PNG"),
    (("a.png", "b.pbm"), "the name b.pbm means PBM: use b.png")))
def test_options_of_other_formats(box, typed, words):
    open("a.png", "wb").write(png.encode(1, 1, [[1]], png.GRAY, 8))
    assert words in run("identity", *typed, code=2).err
