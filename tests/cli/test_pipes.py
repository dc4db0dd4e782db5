# SPDX-License-Identifier: MIT
"""Images one after the other on standard input: all of them come out, in order, each as it would alone."""
import fcntl
import functools
import os
import shutil
import struct
import subprocess
import tarfile
import termios
import time

import numpy as np
import pytest

import definition
import jpeg
import tiff
from folders import EMBOSS, image
from program import HAS_JPEG, HAS_TIFF, closing, is_sanitized, measure, run, start

RNG = np.random.default_rng(40)
WITH_JPEG = pytest.mark.skipif(not HAS_JPEG, reason="built without libjpeg-turbo")
WITH_FFMPEG = pytest.mark.skipif(not shutil.which("ffmpeg"), reason="no ffmpeg")


def ppm(width=31, height=17):
    return b"P6\n%d %d\n255\n" % (width, height) + RNG.integers(0, 256, (height, width, 3), dtype=np.uint8).tobytes()


def photo(**options):
    # FF D9 in a comment and in a thumbnail is not the end.
    parts = jpeg.segment(0xFE, b"\xff\xd9"), jpeg.exif_segment(jpeg.exif(1, thumbnail=b"\xff\xd8\xff\xd9"))
    return jpeg.make(RNG.integers(0, 256, (16, 24, 3), dtype=np.uint8), *parts, **options)


@functools.lru_cache(maxsize=None)
def alone(data, *args):
    return run("emboss", *args, "-", "-", stdin=data).out_bytes


MIXED = [image(1).data, b"P2\n# 3\n3 2 300\n1 2\t3\n\n4 5 6\n", ppm(), b"P1 3 2\n101\n0 1 0", b"P3 1 1 9 1 2 3", image(2, kind="gray16").data, ppm(1, 1), *([photo(), photo(progressive=1)] if HAS_JPEG else []), image(3).data]
MIXED += [tiff.make(RNG.integers(0, 256, (9, 7, 3), dtype=np.uint8), order=o, big=o == ">", compression=tiff.LZW) for o in "<>"] + [ppm(2, 2)] if HAS_TIFF else []


@pytest.mark.parametrize("gap", (b"", b"\n", b"\r\n \t" + bytes(5000)), ids=("none", "line", "padding"))
def test_all_images_come_out_in_order(gap):
    want = b"".join(alone(data) for data in MIXED)
    for jobs in ("-j1", "-j4"):
        result = run("emboss", jobs, "-", "-", stdin=gap.join(MIXED) + gap)
        assert result.out_bytes == want and f"{len(MIXED)} done, 0 failed" in closing(result.err)
    frames = [ppm() for _ in range(60)]
    many, few = (run("emboss", jobs, "-", "-", stdin=b"".join(frames)).out_bytes for jobs in ("-j4", "-j1"))
    assert many == few and many.startswith(alone(frames[0]) + alone(frames[1])) and many.endswith(alone(frames[-1]))
    want = b"".join(alone(data, "--to=pam") for data in MIXED)
    assert run("emboss", "--to=pam", "-", "-", stdin=b"".join(MIXED)).out_bytes == want


def test_outputs_appear_while_the_input_runs():
    """An image is written once it is complete and the next one has begun."""
    frames = [ppm() for _ in range(4)]
    want = [alone(frame) for frame in frames]
    process = start("emboss", "-j2", "-", "-", stdin=subprocess.PIPE)
    process.stdin.write(frames[0] + frames[1][:20])
    process.stdin.flush()
    assert process.stdout.read(len(want[0])) == want[0]
    for i in (1, 2, 3):
        process.stdin.write(frames[i][20 if i == 1 else 0:])
        process.stdin.flush()
        assert process.stdout.read(len(want[i])) == want[i]
    assert process.communicate()[0] == b"" and process.returncode == 0


def test_folders_and_archives(box):
    data = b"".join(MIXED)
    run("emboss", "-", "out/", stdin=data)
    run("emboss", "-", "out.tar", stdin=data)
    names = sorted(os.listdir("out"))
    assert names == [f"stdin-{i + 1:06}.{ {0x89: 'png', 0x50: 'pnm', 0xFF: 'jpg'}.get(d[0], 'tif') }" for i, d in enumerate(MIXED)]
    with tarfile.open("out.tar") as archive:
        assert sorted(archive.getnames()) == names
    for name, source in zip(names, MIXED):
        with open(f"out/{name}", "rb") as file:
            assert file.read() == alone(source)
    os.rename("out", "gone")
    run("emboss", "-", "out/", stdin=MIXED[0])
    assert os.listdir("out") == ["stdin.png"], "one image is none of several"
    assert "more images follow" in run("emboss", "-", "one.png", stdin=data, code=1).err
    (box / "all").write_bytes(data)
    with open("all", "rb") as file:  # a file on standard input is a stream, too
        process = start("emboss", "-", "-", stdin=file)
    assert process.communicate()[0] == b"".join(map(alone, MIXED))


def test_damage_in_a_stream():
    """Where the end of a damaged image is known, the next one is read; else the run ends, and says so."""
    good, frame = image(1).data, ppm()
    bad_crc = good[:-20] + bytes((good[-20] ^ 1,)) + good[-19:]
    for data, want, said in (
            ((good, bad_crc, frame), (good, frame), "-:stdin-000002.png: "),
            ((frame, b"P5 2 1 99 \x63\x64", good), (frame, good), "stdin-000002.pnm: damaged: a sample above the maximum"),
            ((frame, frame, frame[:-1]), (frame, frame), "stdin-000003.pnm: truncated: ends after"),
            ((frame, good, good[:-30]), (frame, good), "stdin-000003.png: truncated"),
            ((good, frame, good[:37] + b"\x01" + good[38:], good), (good, frame), "image 3: damaged at byte 33: its end cannot be found"),
            ((good, frame, b"P6 2 x 255 \0\0", good), (good, frame), "image 3: damaged at byte"),
            ((good, frame, b"no image", good), (good, frame), "image 3: not a PNG"),
            ((good, frame, b"GIF89a" + bytes(20), good), (good, frame), "image 3: a GIF; conv reads")):
        result = run("emboss", "-", "-", stdin=b"".join(data), code=1)
        assert result.out_bytes == b"".join(map(alone, want)) and said in result.err, (said, result.err)


@WITH_JPEG
def test_damage_in_a_stream_of_jpegs():
    a, b = photo(), photo()
    for bad, want, said in ((a[:-100] + b"\xff\xd3" + a[-100:], (a, b, b), "stdin-000003.jpg: "),
                            (a[:-100], (a, b, b), "stdin-000003.jpg: truncated: ends too early"),
                            (a[:20] + b"\0" + a[21:], (a, b), "image 3: damaged at byte 20: its end cannot be found")):
        result = run("emboss", "-", "-", stdin=a + b + bad + b, code=1)
        assert result.out_bytes == b"".join(map(alone, want)) and said in result.err
    # The previews of phones are no images of their own: an index says where they end.
    for order in "<>":
        def index(size, offset):
            entries = struct.pack(order + "IIIHHIIIHH", 0, 0, 0, 0, 0, 0, size, offset, 0, 0)
            return jpeg.segment(0xE2, b"MPF\0" + (b"II*\0" if order == "<" else b"MM\0*") + struct.pack(order + "IHHHIII", 8, 1, 0xB002, 7, len(entries), 26, 0) + entries)
        empty = jpeg.make(jpeg.decode(a), index(0, 0))
        phone = jpeg.make(jpeg.decode(a), index(len(b), len(empty) - empty.index(b"MPF\0") - 4)) + b
        assert run("emboss", "-", "-", stdin=phone + a + phone + phone).out_bytes == alone(phone) + alone(a) + 2 * alone(phone)
        assert len(alone(phone)) < 2 * len(alone(a))
    mpf = jpeg.make(jpeg.decode(a), jpeg.segment(0xE2, b"MPF\0II*\0" + bytes(60)))
    assert "a JPEG whose end only the end of the input shows" in run("emboss", "-", "-", stdin=a + mpf + b, code=1).err


@pytest.mark.skipif(is_sanitized(), reason="a sanitizer takes memory of its own")
def test_memory_does_not_grow_with_the_stream():
    frame = ppm(640, 480)
    assert measure("emboss", "-j2", "--mem-limit=32M", "-", "-", stdin=frame * 60).peak < 48 << 20 < 60 * len(frame)
    # A first image of 36 MB was read whole, beside the limit, to see whether others follow.
    assert measure("emboss", "-j2", "--mem-limit=32M", "-", "-", stdin=ppm(4000, 3000), code=1).peak < 60 << 20


def test_too_many_pixels_are_refused_by_the_first_bytes(box):
    """The rest, which never comes, is not waited for: it was for PNG on standard input, and where the header came in two parts."""
    large, small, png = ppm(600, 500), image(1).data, image(3, 600, 500).data
    with tarfile.open("a.tar", "w") as archive:
        for name in ("a.ppm", "b.ppm"):
            (box / name).write_bytes(large)
            archive.add(name)
    os.mkfifo("pipe.ppm")
    packed = (box / "a.tar").read_bytes()
    for data, source, out in ((large, "-", "-"), (png, "-", "-"), (large, "pipe.ppm", "b.ppm"), (packed, "-", "b.tar"), (small + large, "-", "c/")):
        process = start("identity", "--max-pixels=299999", source, out, stdin=subprocess.PIPE)
        with open(source, "wb") if source != "-" else process.stdin as pipe:
            os.write(pipe.fileno(), data[:8])
            while any(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4))):
                time.sleep(0.001)
            os.write(pipe.fileno(), data[8:80000])
            assert b"600 x 500 pixels are more than the limit of 299999 (--max-pixels)" in process.stderr.readline()
        assert process.wait() == 1
    for first in (large, png):  # the others were lost
        assert "2 images -> d/" in run("identity", "--max-pixels=299999", "--force", "-", "d/", stdin=first + 2 * small, code=1).err
    result = run("identity", "--max-pixels=299999", "a.tar", "b.tar", code=1)
    assert result.err.count("limit of 299999 (--max-pixels)") == 2 and run("identity", "--max-pixels=300000", "a.tar", "c.tar")


@WITH_FFMPEG
@pytest.mark.parametrize("codec", ("ppm", "png", pytest.param("mjpeg", marks=WITH_JPEG)))
def test_between_two_ffmpegs(codec):
    """Frame by frame what the definition says."""
    quiet = ("ffmpeg", "-v", "error", "-threads", "1")
    def decoded(data):
        raw = subprocess.run([*quiet, "-f", "image2pipe", "-i", "-", "-f", "rawvideo", "-pix_fmt", "rgb24", "-"], input=data, capture_output=True, check=True)
        return np.frombuffer(raw.stdout, np.uint8).reshape(-1, 34, 46, 3).transpose(0, 3, 1, 2)
    source = ["-f", "lavfi", "-i", "testsrc=size=46x34:rate=25", "-frames:v", "12", *(("-pix_fmt", "yuvj444p") if codec == "mjpeg" else ())]
    video = subprocess.run([*quiet, *source, "-f", "image2pipe", "-c:v", codec, "-"], capture_output=True, check=True).stdout
    got = decoded(run("emboss", "-j3", *(("--to=ppm",) if codec == "mjpeg" else ()), "-", "-", stdin=video).out_bytes)
    frames = decoded(run("identity", "--to=ppm", "-", "-", stdin=video).out_bytes)
    assert len(got) == len(frames) == 12 and len({frame.tobytes() for frame in frames}) == 12
    for frame, result in zip(frames, got):
        assert (result == definition.apply_image(frame, False, [EMBOSS])).all()
    if codec != "mjpeg":
        assert (frames == decoded(video)).all()
