# SPDX-License-Identifier: MIT
"""The first signal ends the run at once, however long the image in flight takes, and no temporary file remains."""
import functools
import os
import signal
import struct
import subprocess
import zlib
from pathlib import Path

import numpy as np
import pytest

import images
import png_writer as png
from program import RUNNER, TIMEOUT, run, start, stop, until, waits_and_catches
from test_trace import load, slices

TICKS = os.sysconf("SC_CLK_TCK")
BEFORE = 5 if RUNNER else 0.2  # seconds of CPU time until the signal: the work has begun, and has several more to go


def rows_size(width, height, interlaced):
    passes = (0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)
    total = 0
    for x, y, dx, dy in passes if interlaced else ((0, 0, 1, 1),):
        total += -(-(height - y) // dy) * (1 + -(-(width - x) // dx))
    return total


def empty_blocks(count):
    """8 * `count` dynamic blocks (whole bytes) of the smallest kind: the only codeword is the end of the block."""
    lengths = {18: 1, 1: 2, 0: 2}  # code length code: runs of zeros, and the lengths 1 and 0
    order = 16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1
    fields = [(0, 1), (2, 2), (0, 5), (0, 5), (len(order) - 4, 4)] + [(lengths.get(symbol, 0), 3) for symbol in order]
    fields += [(0, 1), (127, 7), (0, 1), (107, 7)]  # 138 and 118 symbols without a codeword
    fields += [(0b11, 2), (0b01, 2), (0, 1)]  # length 1, as codewords count up: 0 is 10, 1 is 11; length 0; the end
    value = at = 0
    for field, width in fields * 8:
        value |= field << at
        at += width
    return value.to_bytes(at // 8, "little") * count


def slow_to_decode(interlaced):
    """36 MB of blocks without a symbol before the first pixel: about 3 million. At its end it is damaged."""
    width = height = 1536
    rows = bytes(rows_size(width, height, interlaced))
    squeeze = zlib.compressobj(9, zlib.DEFLATED, -15)
    stream = b"\x78\x01" + empty_blocks(400000) + squeeze.compress(rows) + squeeze.flush()
    stream += struct.pack(">I", zlib.adler32(rows) ^ 1)
    head = png.chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, png.GRAY, 0, 0, interlaced))
    return png.SIGNATURE + head + png.chunk(b"IDAT", stream) + png.chunk(b"IEND")


@functools.cache
def noise(side):
    samples = np.random.default_rng(5).integers(0, 5, (side, side), dtype=np.uint8)
    rows = np.concatenate([np.zeros((side, 1), np.uint8), samples], axis=1).tobytes()
    head = png.chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, png.GRAY, 0, 0, 0))
    return png.SIGNATURE + head + png.chunk(b"IDAT", zlib.compress(rows, 1)) + png.chunk(b"IEND")


def cpu_seconds(process):
    with open(f"/proc/{process.pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def interrupt(process, number=signal.SIGINT, work=BEFORE):
    """Sends the signal once the work is under way; returns the messages."""
    until(lambda: cpu_seconds(process) >= work, process)
    assert stop(process), "it was over before the signal"
    process.send_signal(number)
    process.send_signal(signal.SIGCONT)
    said = process.stderr.read()
    process.stdout.read()
    process.wait()
    return said.decode()


@pytest.mark.parametrize("interlaced", (0, 1), ids=("plain", "interlaced"))
def test_a_signal_ends_the_decoding_of_one_image(box, interlaced):
    (box / "a.png").write_bytes(slow_to_decode(interlaced))
    process = start("emboss", "-j1", "--in-place", "a.png")
    size = os.path.getsize("a.png")
    said = interrupt(process)
    assert process.returncode == 130, said
    assert "0 of 1 done" in said and "a.png: " not in said, said  # the end was not reached
    assert os.listdir(box) == ["a.png"] and os.path.getsize("a.png") == size


@pytest.mark.parametrize("options", (("-z12",), ("-z9",), ("--encoder=stb", "-z9"), ("--encoder=libpng", "-z9")),
                         ids=lambda options: "".join(options).replace("--encoder=", ""))
def test_a_signal_ends_the_encoding_of_one_image(box, options):
    (box / "a.png").write_bytes(noise(5000 if options == ("-z12",) else 6000))
    process = start("identity", "-j1", *options, "--report", "r.json", "a.png", "out.png")
    said = interrupt(process, signal.SIGTERM, 2 * BEFORE)  # decoded
    assert process.returncode == 143, said
    assert sorted(os.listdir(box)) == ["a.png", "r.json"]
    assert '"exit_code":143' in (box / "r.json").read_text().replace(" ", "")


def test_a_signal_ends_the_filtering_of_one_image(box):
    (box / "a.png").write_bytes(noise(4000))
    rng = np.random.default_rng(1)
    (box / "k.mat").write_text("31 31\n" + "\n".join(" ".join(f"{x:.4f}" for x in row) for row in rng.random((31, 31))) + "\n")
    process = start(",".join(["k.mat"] * 8), "-j1", "--trace=t.json", "a.png", "out.png")
    said = interrupt(process)
    assert process.returncode == 130, said
    assert not [event for event in slices(load("t.json")) if event["name"] == "kernel"]  # the end was not reached
    assert sorted(os.listdir(box)) == ["a.png", "k.mat", "t.json"]


def test_the_other_workers_go_home_too(box):
    """One worker is left behind while it compresses, the others have small images before and after that."""
    (box / "in").mkdir()
    (box / "in" / "a.png").write_bytes(noise(5000))
    small = noise(20)
    for i in range(2000):
        (box / "in" / f"b{i}.png").write_bytes(small)
    process = start("emboss", "-j3", "-z12", "--trace", "t.json", "in", "out")
    said = interrupt(process)
    assert process.returncode == 130, said
    run("emboss", "in/b0.png", "want.png", "-z12")
    done = os.listdir("out")
    assert "a.png" not in done and all((box / "out" / name).read_bytes() == (box / "want.png").read_bytes() for name in done)
    assert images.read("want.png").shape[1:] == (20, 20)


@pytest.fixture(scope="module")
def long_work(tmp_path_factory):
    """A folder with a layer of one image, and an image of that size for the banks."""
    folder = tmp_path_factory.mktemp("long")
    np.save(folder / "w.npy", np.ones((32, 64, 31, 31), "f4"))
    np.save(folder / "gray.npy", np.ones((64, 1, 31, 31), "f4"))
    np.save(folder / "x.npy", np.ones((1, 64, 900, 900), "f4"))
    (folder / "a.png").write_bytes(noise(4000))
    return folder


LONG = {
    "layer of a tensor": ("layer", "-j1", "w.npy", "x.npy", "y.npy"),
    "layer of an image": ("layer", "--gray", "gray.npy", "a.png", "y.npy"),
    "bank of a tensor": ("layer", "gabor:4x32", "x.npy", "y.npy"),
    "bank of an image": ("layer", "gabor:4x32", "--pool", "mean:4", "a.png", "y.npy"),
    "verify": ("verify", "-q", "unsharp:5,1", "a.png"),
    "bench kernels": ("bench", "kernels", "-q"),
    "bench layers": ("bench", "layers", "-q"),
    "bench codec": ("bench", "codec", *("a.png",) * 5),
    "bench streams": ("bench", "streams", "-q", *("a.png",) * 20),
}


@pytest.mark.parametrize("name", LONG)
def test_the_first_signal_ends_every_command(long_work, monkeypatch, name):
    """A layer of one image was computed to its end, and written, after a signal. Two cores: with more, little of it is left."""
    monkeypatch.chdir(long_work)
    number = signal.SIGTERM if len(name) % 2 else signal.SIGINT
    before = sorted(os.listdir())
    process = start(*LONG[name], preexec_fn=lambda: os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2]))
    said = interrupt(process, number)
    assert process.returncode == 128 + number, (process.returncode, said)
    assert sorted(os.listdir()) == before


def test_two_signals_together_are_one(box):
    """timeout(1) signals the program and then its group: the second signal ended a run without a word."""
    process = start("emboss", "-", "x.png", stdin=subprocess.PIPE)
    try:
        until(lambda: waits_and_catches(process, signal.SIGTERM), process)
        assert stop(process)
        process.send_signal(signal.SIGINT)  # both wait, and are handled one after the other
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGCONT)
        process.wait(TIMEOUT)
    finally:
        process.kill()
        _, err = process.communicate()
    assert process.returncode in (130, 143) and b"interrupted: 0 of 1 done" in err, err


def test_a_second_signal_ends_what_does_not_answer(long_work, monkeypatch):
    """SIGALRM is blocked, by which the program notices that a layer takes long."""
    monkeypatch.chdir(long_work)
    process = start("layer", "-j1", "w.npy", "x.npy", "y.npy",
                    preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM}))
    try:
        until(lambda: cpu_seconds(process) >= BEFORE, process)
        until(lambda: process.send_signal(signal.SIGINT) or process.poll() is not None)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == 130 and not Path("y.npy").exists()


def photograph_like(side):
    """A square RGB image of rows that repeat: 64 megapixels in a second."""
    row = b"\0" + bytes(np.random.default_rng(1).integers(0, 24, 3 * side, dtype=np.uint8))
    squeeze = zlib.compressobj(1)
    stream = squeeze.compress(row * 4) + squeeze.flush(zlib.Z_FULL_FLUSH)  # no match crosses this point
    stream += (squeeze.compress(row * 4) + squeeze.flush(zlib.Z_FULL_FLUSH)) * (side // 4 - 1)
    adler = 1
    for _ in range(side):
        adler = zlib.adler32(row, adler)
    stream += squeeze.flush()[:-4] + struct.pack(">I", adler)
    head = png.chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, png.RGB, 0, 0, 0))
    return png.SIGNATURE + head + png.chunk(b"IDAT", stream) + png.chunk(b"IEND")


@pytest.mark.cuda
@pytest.mark.alone
def test_a_signal_ends_the_decoding_of_large_images_on_a_device_cuda(box):
    """Of many images of 192 MB, those that are in flight are given up once the first is done; outputs are whole."""
    (box / "in").mkdir()
    (box / "in" / "0.png").write_bytes(photograph_like(8000))
    for number in range(1, 64):
        os.link("in/0.png", f"in/{number}.png")
    options = ("emboss", "--device=cuda", "--decode-on=gpu", "--encode-on=gpu", "--streams=1", "--group=1M")
    run(*options, "in/0.png", "want.png")
    process = start(*options, "-b", "in", "out")
    until(lambda: os.path.isdir("out") and any(name.endswith(".png") for name in os.listdir("out")), process)
    assert stop(process)
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGCONT)
    said = process.communicate(timeout=TIMEOUT)[1].decode()
    assert process.returncode == 130 and "interrupted: " in said, said
    made = os.listdir("out")
    assert 0 < len(made) < 48 and all((box / "out" / name).read_bytes() == (box / "want.png").read_bytes() for name in made), made
