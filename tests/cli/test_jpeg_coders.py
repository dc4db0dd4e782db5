# SPDX-License-Identifier: MIT
"""JPEG decoded and encoded by the device in the groups of a run: the same files as on the CPU, and the same refusals."""
import struct

import numpy as np
import pytest

import images
import jpeg
import program
from folders import tree
from test_coders import EMULATED, SLOW, binary, compares, count, run  # noqa: F401

pytestmark = pytest.mark.skipif(not program.HAS_JPEG, reason="built without libjpeg-turbo")
BOTH = ("--device=cuda", "--decode-on=gpu", "--encode-on=gpu")
SIZES = ((17, 9),) if SLOW else ((1, 1), (17, 9), (64, 48), (33, 65), (200, 31))
FACTORS = ("11 11 11", "21 11 11", "12 11 11", "22 11 11", "41 11 11", "22 12 12", "22 21 11")


def texture(width, height, channels=3, seed=1, most=255):
    planes = images.texture(np.random.default_rng(seed), channels, height, width, most)
    return planes[0] if channels == 1 else planes.transpose(1, 2, 0)


def with_sampling(factors, across, down, seed=1):
    """A file of `across` x `down` MCUs with such sampling factors: the blocks of a gray one, which has one code for all."""
    pairs = [(int(pair[0]), int(pair[1])) for pair in factors.split()]
    most_h, most_v = (max(pair[i] for pair in pairs) for i in (0, 1))
    blocks = across * down * sum(h * v for h, v in pairs)
    gray = jpeg.make(96 + texture(8 * blocks, 8, 1, seed, 63), quality=80)
    frame = struct.pack(">BHHB", 8, 8 * most_v * down - 3, 8 * most_h * across - 5, 3)
    frame += b"".join(bytes((c + 1, 16 * h + v, 0)) for c, (h, v) in enumerate(pairs))
    parts = [jpeg.segment(code, frame if code == 0xC0 else data) for code, data in jpeg.segments(gray)]
    scan = gray[gray.index(b"\xff\xda") + 10:]
    return jpeg.SOI + b"".join(parts) + jpeg.segment(0xDA, bytes((3, 1, 0, 2, 0, 3, 0, 0, 63, 0))) + scan


@pytest.fixture(scope="module")
def box(tmp_path_factory):
    """`in` with JPEG files of all kinds, and a few PNG files; `plain`: the number of those that a device can decode."""
    box = tmp_path_factory.mktemp("jpeg_coders")
    (box / "in").mkdir()
    for number, (width, height) in enumerate(SIZES):
        for kind, options in (("rgb", {}), ("restarts", {"rst_interval": 1 + number}), ("optimised", {"optimize": 1}),
                              ("gray", {}), ("progressive", {"progressive": 1})):
            pixels = texture(width, height, 1 if kind == "gray" else 3, number)
            (box / "in" / f"{kind}-{width}x{height}.jpg").write_bytes(jpeg.make(pixels, quality=50 + 9 * number, **options))
    for kind in ("rgb8", "gray8", "rgba8", "rgb16"):
        (box / "in" / f"{kind}.png").write_bytes(images.make(kind, np.random.default_rng(4), 40, 30).data)
    for number, factors in list(enumerate(FACTORS))[::2 if SLOW else 1]:
        (box / "in" / f"sampling{number}.jpg").write_bytes(with_sampling(factors, 3, 2))
    for orientation in range(2, 9, 2 if SLOW else 1):
        exif = jpeg.segment(0xE1, b"Exif\0\0" + jpeg.exif(orientation))
        (box / "in" / f"turned{orientation}.jpg").write_bytes(jpeg.make(texture(37, 21, 3, orientation), exif))
    return box


def is_decoded(name, options):
    return "progressive" not in name and not ("--gray" in options and name.startswith("rgb") and name.endswith(".png"))


def same_files(box, out, want):
    """The same JPEG files, and PNG files with the same pixels, which the device encodes in its own way."""
    assert tree(box / out) == tree(box / want)
    for name in tree(box / want):
        if name.endswith(".png"):
            assert (images.read(str(box / out / name)) == images.read(str(box / want / name))).all(), name
        else:
            assert (box / out / name).read_bytes() == (box / want / name).read_bytes(), name


def is_encoded(name, options):
    """A device encodes no progressive JPEG, nor colours with such sampling; both are kept. It encodes neither alpha nor 16 bits to JPEG."""
    kept = name.endswith(".jpg") and not {"-Q40", "--gray"} & set(options) and name in ("sampling2.jpg", "sampling4.jpg")
    return "--to=png" in options or not (kept or "progressive" in name or ("--to=jpg" in options and name == "rgb16.png"))


OPTIONS = (("--gray", "--auto-orient", "--to=jpg"), (), ("--to=jpg", "-Q40"), ("--to=png",), ("--to=png", "--encode-on=cpu"))


@pytest.mark.parametrize("options", OPTIONS)
def test_files_are_the_cpus(binary, box, tmp_path, options):  # noqa: F811
    options = ("emboss,blur", "-b", "--exclude=rgba8.png", *options)
    program.run(*options, "in", tmp_path / "want", cwd=box)
    err = run(binary, box, *BOTH, *options, "in", tmp_path / "out")
    names = [name for name in tree(box / "in") if name != "rgba8.png"]
    same_files(tmp_path, "out", "want")
    assert count(err, "decoded") == sum(is_decoded(name, options) for name in names), err
    on_device = "--encode-on=cpu" not in options
    assert count(err, "encoded") == on_device * sum(is_encoded(name, options) for name in names), err


@compares
def test_reproducible_files_may_be_the_devices(binary, box, tmp_path):  # noqa: F811
    """The device's JPEG files are the CPU's: --reproducible kept it from encoding them, too."""
    options = ("emboss", "-b", "--exclude=rgba8.png", "--reproducible")
    program.run(*options, "in", tmp_path / "want", cwd=box)
    err = run(binary, box, *options, *BOTH[:2], "in", tmp_path / "out")
    assert count(err, "encoded") == sum(name.endswith(".jpg") and is_encoded(name, ()) for name in tree(box / "in")), err
    assert all((tmp_path / "out" / name).read_bytes() == (tmp_path / "want" / name).read_bytes() for name in tree(tmp_path / "want"))


@compares
def test_files_depend_on_nothing_but_the_image(binary, box, tmp_path):  # noqa: F811
    program.run("emboss", "-b", "--include=*.jpg", "in", tmp_path / "want", cwd=box)
    settings = (("--streams=1", "-j1"), ("--streams=2", "-j5", "--group=20K"), ("--mem-limit=2M",))
    for number, options in enumerate(settings):
        run(binary, box, "emboss", "-b", "--include=*.jpg", *BOTH, *options, "in", tmp_path / f"{number}")
        same_files(tmp_path, f"{number}", "want")


@pytest.mark.skipif(not EMULATED, reason="no CONV_EMULATED_BINARY")
@pytest.mark.parametrize("faults", ("memory=280000", "memory=1680000", "lost=3"))
def test_a_device_that_fails(box, tmp_path, faults):
    program.run("emboss", "-b", "--include=*.jpg", "in", tmp_path / "want", cwd=box)
    run(EMULATED, box, "emboss", "-b", "--include=*.jpg", "--device=all", *BOTH[1:], "--group=30K", "in", tmp_path / "out", faults=faults)
    same_files(tmp_path, "out", "want")


def test_more_data_than_samples(binary, tmp_path):  # noqa: F811
    """Noise at quality 100 takes more bytes than its planes, for which groups have no room: the CPU encodes it."""
    (tmp_path / "in").mkdir()
    noise = np.random.default_rng(9).choice(np.array([0, 255], np.uint8), (96, 128, 3))
    for number in range(3):
        (tmp_path / "in" / f"{number}.jpg").write_bytes(jpeg.make(noise, quality=100))
    program.run("identity", "-b", "-Q100", "in", "want", cwd=tmp_path)
    assert all(path.stat().st_size > 3 * 96 * 128 + 4096 for path in (tmp_path / "want").iterdir())
    run(binary, tmp_path, "identity", "-b", "-Q100", *BOTH, "in", "out")
    same_files(tmp_path, "out", "want")


def failures(err):
    return sorted(line for line in err.splitlines() if line.startswith("conv: in/"))


def test_damage_is_reported_as_on_the_cpu(binary, box, tmp_path):  # noqa: F811
    rng = np.random.default_rng(7)
    (tmp_path / "in").mkdir()
    for name in [name for name in tree(box / "in") if name.endswith(".jpg") and "1x1" not in name]:
        data = bytearray((box / "in" / name).read_bytes())
        (tmp_path / "in" / name).write_bytes(data)
        scan = data.index(b"\xff\xda") + 14
        for number in range(2 if SLOW else 4):
            bad = bytearray(data)
            if number == 0:
                del bad[rng.integers(scan, len(data)):]
            else:
                bad[rng.integers(scan, len(data) - 2)] ^= 1 << rng.integers(8)
            (tmp_path / "in" / f"bad{number}-{name}").write_bytes(bad)
    want = program.run("emboss", "-b", "in", "want", code=1, cwd=tmp_path).err
    err = run(binary, tmp_path, "emboss", "-b", *BOTH, "in", "out", code=1)
    assert failures(err) == failures(want) and len(failures(want)) > 10
    same_files(tmp_path, "out", "want")


@compares
def test_ten_thousand_restart_markers(binary, tmp_path):  # noqa: F811
    """A segment for each block of 800 x 800; then with a marker out of order, without one, and with one more."""
    whole = jpeg.make(texture(800, 800, 1), rst_interval=1)
    scan = whole.index(b"\xff\xda") + 10
    at = whole.index(b"\xff\xd5", len(whole) // 2)
    assert sum(whole.count(bytes((0xFF, 0xD0 + i)), scan) for i in range(8)) == 9999
    (tmp_path / "in").mkdir()
    for name, data in {"whole": whole, "order": whole[:at + 1] + b"\xd3" + whole[at + 2:], "less": whole[:at] + whole[at + 2:],
                       "more": whole[:-2] + b"\xff\xd7" + whole[-2:]}.items():
        (tmp_path / "in" / f"{name}.jpg").write_bytes(data)
    want = program.run("emboss", "-b", "in", "want", code=1, cwd=tmp_path).err
    err = run(binary, tmp_path, "emboss", "-b", *BOTH, "in", "out", code=1)
    assert failures(err) == failures(want) and len(failures(want)) >= 2 and count(err, "decoded") == 1, err
    same_files(tmp_path, "out", "want")
