# SPDX-License-Identifier: MIT
"""TIFF in and out: all layouts against files written without libtiff, metadata, refusals, damage."""
import io
import os
import shutil
import subprocess
import tarfile

import numpy as np
import pytest

import jpeg
import program
import tiff
from program import run
from test_jpeg import photo, pixels_of, read, write, write_png

pytestmark = pytest.mark.skipif(not program.HAS_TIFF, reason="built without libtiff")


def samples(channels, dtype="u1", width=61, height=37):
    eight = photo(width, height, channels).reshape(height, width, channels)
    if dtype == "u2":
        return (eight.astype("u2") * 257) ^ np.arange(channels, dtype="u2")
    return eight.astype(dtype)


def check(files):
    """The program reads these images, {name: (file, samples)}, and writes them to TIFF and PNG. Returns the tags of the outputs."""
    shutil.rmtree("in", ignore_errors=True)
    for name, (data, _) in files.items():
        write(f"in/{name}.tif", data)
    run("identity", "--force", "in", "tiffs")
    run("identity", "--force", "--to", "png", "in", "pngs")
    found = {}
    for name, (_, want) in files.items():
        want = want[:, :, 0] if want.ndim == 3 and want.shape[2] == 1 else want
        np.testing.assert_array_equal(pixels_of(f"pngs/{name}.png"), want, name)
        np.testing.assert_array_equal(tiff.decode(read(f"tiffs/{name}.tif")), want, name)
        found[name] = tiff.tags(read(f"tiffs/{name}.tif"))
    return found


LAYOUTS = (
    {}, {"rows": 5}, {"tile": (16, 32)}, {"planar": 2, "rows": 9}, {"planar": 2, "tile": (32, 16)},
    {"compression": tiff.LZW, "rows": 8}, {"compression": tiff.LZW, "predictor": 2, "tile": (16, 16)},
    {"compression": tiff.DEFLATE, "predictor": 2}, {"compression": 32946, "planar": 2, "predictor": 2, "rows": 4},
    {"compression": tiff.PACKBITS, "rows": 1}, {"big": True, "rows": 6, "compression": tiff.DEFLATE}, {"big": True, "tile": (16, 16)})


def test_layouts(box):
    """Each layout in both byte orders with another number of channels and depth."""
    kinds = [(channels, dtype) for channels in (1, 2, 3, 4) for dtype in ("u1", "u2")]
    cases = [(layout, order, *kinds[(3 * i + 2 * j) % 8]) for i, layout in enumerate(LAYOUTS) for j, order in enumerate("<>")]
    files = {}
    for i, (layout, order, channels, dtype) in enumerate(cases):
        image = samples(channels, dtype)
        files[str(i)] = tiff.make(image, order=order, **layout), image
    found = check(files)
    for i, (layout, order, channels, dtype) in enumerate(cases):
        kept = layout.get("compression", 1)
        assert found[str(i)][259] == [tiff.DEFLATE if kept == 32946 else kept]
        assert found[str(i)].get(338) == ([2] if channels % 2 == 0 else None)


def test_few_bits_white_that_is_zero_and_palettes(box):
    files, rng = {}, np.random.default_rng(5)
    for bits in (1, 2, 4):
        levels = samples(1) >> (8 - bits)
        scale = 255 // ((1 << bits) - 1)
        files[f"{bits}"] = tiff.make(levels, bits=bits, compression=tiff.PACKBITS, rows=3), levels * scale
        files[f"{bits} white"] = tiff.make(levels, bits=bits, photometric=0, tile=(16, 16)), 255 - levels * scale
    for dtype in ("u1", "u2"):
        files[f"{dtype} white"] = tiff.make(samples(1, dtype), photometric=0), ~samples(1, dtype)
    for bits, scale in ((1, 257), (4, 256), (8, 1), (8, 257)):  # as stated, as some programs write it, as old ones do
        levels = samples(1) >> (8 - bits)
        palette = rng.integers(1, 256, (3, 1 << bits))
        colors = {320: (tiff.SHORT, (palette * scale).ravel().tolist())}
        files[f"palette {bits} {scale}"] = (tiff.make(levels, bits=bits, photometric=3, tags=colors),
                                            palette[:, levels[:, :, 0]].transpose(1, 2, 0).astype("u1"))
    assert all(found[262] == [2 if "palette" in name else 1] for name, found in check(files).items())


def test_colours_that_alpha_is_multiplied_into(box):
    """They are divided: the output says what PNG does."""
    files = {}
    for dtype, most in (("u1", 255), ("u2", 65535)):
        image = samples(4, dtype)
        image[:, :, 3].ravel()[::7] = 0
        alpha = image[:, :, 3:].astype("u8")
        multiplied = image.copy()
        multiplied[:, :, :3] = (image[:, :, :3].astype("u8") * alpha + most // 2) // most
        divided = np.minimum((multiplied[:, :, :3].astype("u8") * most + alpha // 2) // np.maximum(alpha, 1), most) * (alpha > 0)
        files[dtype] = tiff.make(multiplied, extra=[1]), np.dstack([divided.astype(dtype), image[:, :, 3]])
    files["unspecified"] = tiff.make(image, extra=[0]), image
    files["missing"] = tiff.make(image, extra=[]), image
    assert {name: found[338] for name, found in check(files).items()} == {"u1": [2], "u2": [2], "unspecified": [0], "missing": [0]}


def test_large_strips_and_threads(box):
    """A strip of more than 4 MiB is decoded row by row; outputs have several strips, which threads compress to the same bytes.
    PackBits makes two bytes of rows of one, and six of five as in `pairs`: such images could not be written."""
    large, pairs = np.tile(samples(3, "u1", 80, 40), (25, 20, 1)), np.tile(np.array([0, 1, 1, 2, 2], "u1"), (1000, 60))
    for compression, image, strips in ((tiff.NONE, large, 19), (tiff.LZW, large, 19), (tiff.DEFLATE, large, 19),
                                       (tiff.PACKBITS, pairs, 2), (tiff.PACKBITS, pairs[:, :1].repeat(20, axis=0), 1)):
        write("a.tif", tiff.make(image, compression=compression))
        run("identity", "-j1", "a.tif", "b.tif")
        np.testing.assert_array_equal(tiff.decode(read("b.tif")), image)
        assert len(tiff.tags(read("b.tif"))[273]) == strips
        run("identity", "-j4", "--force", "a.tif", "again.tif")
        assert read("again.tif") == read("b.tif")


def floats(channels=3):
    return (samples(channels).astype("f4") - 50) / np.float32(37)


def test_float32(box):
    """Neither rounded nor clamped, on the scale of the file."""
    want = floats()
    kinds = {"a": {}, "b": {"order": ">", "tile": (16, 16)}, "c": {"order": ">", "compression": tiff.DEFLATE, "predictor": 3},
             "d": {"planar": 2, "compression": tiff.LZW, "big": True}}
    for name, options in kinds.items():
        write(f"in/{name}.tif", tiff.make(want, **options))
    write("in/gray.tif", tiff.make(floats(1)))
    write("in/rgba.tif", tiff.make(floats(4)))
    write("in/eight.tif", tiff.make(samples(3)))
    run("identity", "--alpha", "keep", "in", "same")
    for name in kinds:
        found = tiff.tags(read(f"same/{name}.tif"))
        assert found[339] == [3, 3, 3] and found.get(317) == ([3] if name in "cd" else None)
        np.testing.assert_array_equal(tiff.decode(read(f"same/{name}.tif")), want)
    np.testing.assert_array_equal(tiff.decode(read("same/rgba.tif")), floats(4))
    np.testing.assert_array_equal(tiff.decode(read("same/eight.tif")), samples(3))
    # A filter, alone and in a chain, in one group with 8 bits; float32 as an array has the same samples.
    run("sobel,emboss", "--alpha", "keep", "in", "out")
    run("sobel,emboss", "--output-type", "f32", "in/a.tif", "a.npy")
    np.testing.assert_array_equal(np.load("a.npy").transpose(1, 2, 0), tiff.decode(read("out/b.tif")))
    padded = np.pad(floats(1)[:, :, 0].astype("f8"), 1, mode="edge")
    mean = sum(padded[y:y + 37, x:x + 61] for y in range(3) for x in range(3)) / 9
    run("custom", "-k", "1 1 1 1 1 1 1 1 1", "--divisor", "9", "in/gray.tif", "mean.tif")
    assert np.abs(tiff.decode(read("mean.tif")) - mean).max() < 2e-6
    for orientation in (2, 6):
        write("turned.tif", tiff.make(want, tags={274: (tiff.SHORT, [orientation])}))
        run("identity", "--auto-orient", "turned.tif", "up.tif")
        up = want[:, ::-1] if orientation == 2 else np.rot90(want, -1)
        np.testing.assert_array_equal(tiff.decode(read("up.tif")), up)
    for options, cause in ((("--to=png",), "PNG cannot hold float32 samples; --to tif or --output-type f32"),
                           (("--output-type=u16",), "not made integers"), (("--mix=50",), "neither blended"),
                           (("--gray",), "made gray"), (("--luma",), "made gray"), (("--linear",), "linear")):
        assert cause in run("emboss", *options, "in/a.tif", "refused/", code=1).err
    assert "multiplied by alpha: use --alpha keep" in run("blur", "--alpha", "premultiply", "in/rgba.tif", "refused/", code=1).err
    assert "float32 samples" in run("layer", "sobel", "in/a.tif", "o.npy", code=1).err
    assert "float32 samples" in run("verify", "sobel", "in/a.tif", code=1).err
    run("emboss", "--html", "page.html", "in", "with_page", "--alpha", "keep")
    assert len(os.listdir("with_page")) == 7


@pytest.mark.skipif(program.is_sanitized(), reason="compares values, which the release build does")
def test_rows_and_columns_are_treated_alike(box):
    """1.0.0 added row by row: up to 90 % of float32 samples differed in the last bit, 0.3 % of 16 bits by 1. On a device, in one group."""
    rng = np.random.default_rng(4)
    noise = rng.integers(0, 65536, (75, 123, 4)).astype("u2")
    for i, image in enumerate((floats(), rng.standard_normal((150, 70, 1), "f4"), samples(3), noise, (noise >> 8).astype("u1"), noise[:, :, 0])):
        write(f"in/{i}.tif", tiff.make(image))
        write(f"in/{i}t.tif", tiff.make(np.ascontiguousarray(image.swapaxes(0, 1))))
    chosen = [[name] for name in "blur5 gaussian5 unsharp sharpen emboss emboss5 edge laplacian5 sobel emboss,gaussian sobel,gaussian".split()]
    for half in (rng.random((side, side)) - 0.3 for side in range(3, 32, 2)):
        text = " ".join(f"{c:.6f}" for c in (half + half.T + (half + half.T)[::-1, ::-1] * (len(half) % 4 == 1)).flat)
        chosen.append(["custom,sobel,custom" if len(half) == 7 else "custom", "-k", text, "--divisor", f"{2 * half.sum() + 0.1:f}"])
    options = [], ["--alpha", "premultiply"], ["--alpha", "filter"], ["--luma"], ["--output-type", "f32"], ["--linear"]
    for k, args in enumerate(chosen):
        args += ["--border", ("replicate", "reflect", "reflect101", "wrap", "constant:3")[k % 5], "--force", *options[k % 6]]
        numbers = range(k % 2 * 2, 6)  # three of the options are for integers alone
        args += [f"in/{i}{t}.tif" for i in numbers for t in ("", "t")]
        run(*args, "cpu")
        program.run_on("emulated" if k < 16 else "cpu", *args, "device")
        for i in numbers:
            a, t, on_device = (tiff.decode(read(f"{name}.tif")) for name in (f"cpu/{i}", f"cpu/{i}t", f"device/{i}"))
            np.testing.assert_array_equal(a, t.swapaxes(0, 1), str(args))
            np.testing.assert_array_equal(a, on_device, str(args))


def test_to_and_from_other_formats(box):
    image = samples(3)
    write("in/a.tif", tiff.make(image))
    write("in/b.TIFF", tiff.make(image, order=">"))
    write("in/c.bin", tiff.make(image))
    write_png("in/d.png", image)
    run("emboss", "in", "out")
    assert sorted(os.listdir("out")) == ["a.tif", "b.TIFF", "d.png"]
    run("emboss", "--to", "tiff", "in", "tiffs")
    assert sorted(os.listdir("tiffs")) == ["a.tif", "b.TIFF", "d.tif"]
    run("emboss", "--to", "png", "in", "pngs")
    want = pixels_of("out/d.png")
    for name in ("tiffs/a.tif", "tiffs/b.TIFF", "tiffs/d.tif", "out/a.tif"):
        np.testing.assert_array_equal(tiff.decode(read(name)), want)
    np.testing.assert_array_equal(pixels_of("pngs/a.png"), want)
    out = run("emboss", "-", "-", stdin=read("in/a.tif")).out_bytes
    np.testing.assert_array_equal(tiff.decode(out), want)
    with tarfile.open("in.tar", "w") as archive:
        archive.add("in")
    run("emboss", "in.tar", "out.tar")
    with tarfile.open("out.tar") as archive:
        np.testing.assert_array_equal(tiff.decode(archive.extractfile("in/a.tif").read()), want)
    run("emboss", "--in-place", "in/a.tif")
    np.testing.assert_array_equal(tiff.decode(read("in/a.tif")), want)
    run("emboss", "--output-type", "u16", "in/b.TIFF", "wide.tif")
    assert tiff.decode(read("wide.tif")).dtype == np.uint16


# --- metadata ------------------------------------------------------------------------------------

CAPTION = b"\x1c\x02\x78\0\5title"
XMP = b'<?xpacket begin=""?><x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">' \
      b'<rdf:Description xmlns:dc="http://purl.org/dc/elements/1.1/" dc:format="image/tiff"/></rdf:RDF></x:xmpmeta><?xpacket end="w"?>'


def carried(orientation=6):
    return {270: (tiff.ASCII, b"a description\0"), 274: (tiff.SHORT, [orientation]), 282: (tiff.RATIONAL, [300, 1]),
            283: (tiff.RATIONAL, [600, 1]), 296: (tiff.SHORT, [2]), 305: (tiff.ASCII, b"a program\0"), 700: (tiff.BYTE, XMP),
            33723: (tiff.UNDEFINED, CAPTION), 34675: (tiff.UNDEFINED, jpeg.profile())}


@pytest.mark.parametrize("big", (False, True))
@pytest.mark.parametrize("order", "<>")
def test_metadata(box, order, big):
    write("a.tif", tiff.make(samples(3), order=order, big=big, tags=carried()))
    run("identity", "a.tif", "b.tif")
    found = tiff.tags(read("b.tif"))
    assert read("b.tif")[:2] == (b"II" if order == "<" else b"MM")
    for number in (270, 274, 282, 283, 296, 305, 700, 34675):
        kind, values = carried()[number]
        assert found[number] == (list(values) if kind == tiff.BYTE else values), number
    assert found[33723] == CAPTION and CAPTION in bytes(found[34377])
    np.testing.assert_array_equal(tiff.decode(read("b.tif")), samples(3))
    run("identity", "b.tif", "c.tif")  # the same once more
    assert {number: tiff.tags(read("c.tif"))[number] for number in carried()} == {number: found[number] for number in carried()}
    # Without them, or with those only that change how it looks.
    run("identity", "--strip", "a.tif", "look.tif")
    look = tiff.tags(read("look.tif"))
    assert look[274] == [6] and 34675 in look and not {270, 282, 305, 700, 33723, 34377} & set(look)
    run("identity", "--strip=all", "a.tif", "bare.tif")
    assert not {274, 270, 282, 305, 700, 33723, 34377, 34675} & set(tiff.tags(read("bare.tif")))
    # Upright.
    run("identity", "--auto-orient", "a.tif", "up.tif")
    up = tiff.tags(read("up.tif"))
    assert up[274] == [1] and up[282] == [600, 1] and up[283] == [300, 1] and (up[256], up[257]) == ([37], [61])
    np.testing.assert_array_equal(tiff.decode(read("up.tif")), np.rot90(samples(3), -1))


def test_metadata_of_other_formats(box):
    """Through PNG and JPEG and back; comments become a description."""
    write("a.tif", tiff.make(samples(3), tags=carried()))
    for middle in ("m.png", "m.jpg"):
        if middle.endswith("jpg") and not program.HAS_JPEG:
            continue
        run("identity", "a.tif", middle)
        run("identity", middle, "back.tif")
        found = tiff.tags(read("back.tif"))
        for number in (270, 274, 282, 283, 296, 305, 34675):
            assert found[number] == carried()[number][1], (middle, number)
        assert bytes(found[700]) == XMP and found[33723] == CAPTION
    if program.HAS_JPEG:
        write("c.jpg", jpeg.make(photo(), jpeg.segment(0xFE, b"a comment")))
        run("identity", "c.jpg", "c.tif")
        assert tiff.tags(read("c.tif"))[270] == b"a comment\0"


def test_profiles_of_other_colours_are_dropped(box):
    write("a.tif", tiff.make(samples(1), tags={34675: (tiff.UNDEFINED, jpeg.profile())}))
    run("identity", "a.tif", "b.tif")
    assert 34675 not in tiff.tags(read("b.tif"))


def test_descriptions_that_state_the_shape(box):
    """Of OME, ImageJ and tifffile: not true of an image with another depth, number of channels or of images, nor of a turned one."""
    texts = [b'<?xml version="1.0"?><OME xmlns="http://www.openmicroscopy.org/Schemas/OME/2016-06"/>', b"ImageJ=1.53t\nunit=micron\nimages=1\n",
             b'{"axes": "YXS", "shape": [37, 61, 3]}', b"shape=(37, 61, 3)", b"the shape of water"]
    for i, text in enumerate(texts):
        tags = {270: (tiff.ASCII, text + b"\0")}
        write(f"in/{i}.tif", tiff.make(samples(3), tags={**tags, 274: (tiff.SHORT, [3])}))
        write(f"pages/{i}.tif", tiff.make(samples(3), tags=tags, pages=2))
        write(f"few/{i}.tif", tiff.make(samples(1) >> 4, bits=4, tags=tags))
        write(f"few/palette{i}.tif", tiff.make(samples(1), photometric=3, tags={**tags, 320: (tiff.SHORT, list(range(768)))}))
    for options in (["in"], ["--gray", "in"], ["--auto-orient", "in"], ["--output-type=u16", "in"], ["--first-frame", "pages"], ["few"]):
        run("blur", *options, "--force", "out")
        found = [270 in tiff.tags(read(f"out/{name}")) for name in sorted(os.listdir(options[-1]))]
        assert found == ([True] * 5 if options == ["in"] else [False, False, False, False, True] * (len(found) // 5)), options
    run("blur", "in/0.tif", "a.png")
    run("blur", "--gray", "a.png", "a.tif")
    assert 270 not in tiff.tags(read("a.tif"))
    # ImageJ's stacks of 4 GiB and tifffile's truncated series have one directory: all but the first image were lost.
    for text in (b"ImageJ=1.53t\nimages=12\n\0", b'{"shape": [12, 37, 61], "truncated": true}\0'):
        write("a.tif", tiff.make(samples(1), tags={270: (tiff.ASCII, text)}))
        assert "TIFF of several pages" in run("blur", "a.tif", "b.tif", code=1).err
        run("blur", "--first-frame", "a.tif", "b.tif")
        assert 270 not in tiff.tags(read("b.tif"))


@pytest.mark.parametrize("order, big", (("<", False), (">", True)))
def test_georeference(box, order, big):
    """Of GeoTIFF and GDAL: true after filtering, unless the image is turned; values of samples while these have their scale."""
    places = {33550: (tiff.DOUBLE, [0.5, 0.5, 0]), 33922: (tiff.DOUBLE, [0, 0, 0, 440720.25, 3751320.5, 0] * 40), 34264: (tiff.DOUBLE, [1.5] * 16),
              34735: (tiff.SHORT, [1, 1, 0, 60] + [1024, 0, 1, 1] * 60), 34736: (tiff.DOUBLE, [6378137.0]), 34737: (tiff.ASCII, b"WGS 84|\0")}
    values = {42112: (tiff.ASCII, b"<GDALMetadata><Item name='BAND'>7</Item></GDALMetadata>\0"), 42113: (tiff.ASCII, b"255\0")}
    counted = {42112: (tiff.ASCII, b"<GDALMetadata><Item name='STATISTICS_MAXIMUM' sample='0'>200</Item></GDALMetadata>\0")}
    for name, tags in (("a", values), ("b", counted)):
        write(f"{name}.tif", tiff.make(samples(3), order=order, big=big, tags={**places, **tags, 274: (tiff.SHORT, [3])}))
    for args, want in ((["a.tif"], {**places, **values}), (["b.tif"], places), (["--gray", "a.tif"], places), (["--output-type=u16", "a.tif"], places),
                       (["--auto-orient", "a.tif"], {}), (["--strip", "a.tif"], {})):
        run("gaussian", *args, "--force", "out.tif")
        found = tiff.tags(read("out.tif"))
        assert {tag: found[tag] for tag in (*places, *values) if tag in found} == {tag: value for tag, (_, value) in want.items()}, args


# --- refusals ------------------------------------------------------------------------------------

def test_pages(box):
    """Those after the first would be lost; smaller versions of it are not carried over anyway."""
    write("two.tif", tiff.make(samples(1), pages=2))
    err = run("identity", "two.tif", "o.tif", code=1).err
    assert "two.tif: TIFF of several pages: all but one would be lost" in err and "--first-frame" in err
    run("identity", "--first-frame", "two.tif", "o.tif")
    np.testing.assert_array_equal(tiff.decode(read("o.tif")), samples(1)[:, :, 0])
    for big in (False, True):
        write(f"in/{big}.tif", tiff.make(samples(1), pages=3, later={254: (tiff.LONG, [1])}, big=big))
    run("identity", "in", "out")


def refused():
    gray, colors, four = samples(1), samples(3), samples(4)
    good = tiff.make(colors, rows=4, compression=tiff.DEFLATE, predictor=2)
    plain = tiff.make(gray, rows=4)
    # Sums of rows were beyond 32 bits: a tile was written to any address.
    rows, size = (tiff.LONG, [2147483640]), (tiff.LONG, [9 << 20])
    tall, tile = {256: (tiff.LONG, [1]), 257: rows}, {323: (tiff.LONG, [1 << 31]), 324: (tiff.LONG, [8]), 325: size}
    return {
        "cmyk": (tiff.make(four, photometric=5, drop=(338,)), "CMYK TIFF"),
        "lab": (tiff.make(colors, photometric=8), "CIELAB"),
        "ycc": (tiff.make(colors, photometric=6), "TIFF of YCbCr"),
        "raw": (tiff.make(gray, photometric=32803), "raw data of a camera: darktable-cli"),
        "dng": (tiff.make(colors, tags={50706: (tiff.BYTE, [1, 4, 0, 0])}), "raw data of a camera"),
        "mask": (tiff.make(gray, photometric=4), "unusual colours"),
        "old": (tiff.make(colors, tags={259: (tiff.SHORT, [6])}), "compression 6, which is not read"),
        "unknown": (tiff.make(colors, tags={259: (tiff.SHORT, [999])}), "compression 999"),
        "five": (tiff.make(np.dstack([four, gray]), extra=[0, 0]), "TIFF of 5 channels"),
        "signed": (tiff.make(gray, tags={339: (tiff.SHORT, [2])}), "8-bit signed"),
        "double": (tiff.make(gray.astype("f8")), "64-bit floating-point"),
        "long": (tiff.make(gray.astype("u4")), "32-bit unsigned"),
        "cut": (good[:len(good) // 2], "truncated"),
        "short": (plain[:8] + plain[8 + 61 * 4:], ""),
        "sizes": (tiff.make(gray, tags={256: (tiff.LONG, [0])}), ""),
        "wide": (tiff.make(gray, tags={256: (tiff.LONG, [60000]), 257: (tiff.LONG, [60000])}), ""),
        "tall": (tiff.make(gray, compression=tiff.DEFLATE, tags={257: (tiff.LONG, [100000]), 278: (tiff.LONG, [100000])}), ""),
        "tile": (tiff.make(gray, tile=(16, 16), tags={322: (tiff.LONG, [1 << 30]), 323: (tiff.LONG, [1 << 30])}), ""),
        "tall tile": (tiff.make(gray, tile=(16, 16), tags={323: (tiff.LONG, [67108880])}), ""),
        "tallest": (tiff.make(gray, compression=tiff.DEFLATE, tags={**tall, 278: rows, 279: size}) + bytes(9 << 20), "damaged image"),
        "tallest tile": (tiff.make(gray, compression=tiff.DEFLATE, tile=(16, 16), tags={**tall, **tile}) + bytes(9 << 20), "bad header: tiles"),
        "overlap": (tiff.make(gray, rows=4, tags={273: (tiff.LONG, [8] * 10), 279: (tiff.LONG, [4096] * 10)}), ""),
        "sparse": (tiff.make(gray, rows=37, tags={279: (tiff.LONG, [0])}), ""),
        "no sizes": (tiff.make(gray, rows=37, drop=(279,)), ""),
        "no palette": (tiff.make(gray, photometric=3), ""),
        "lzw": (tiff.make(gray, compression=tiff.LZW, rows=4)[:8] + b"\xff" * 60 + tiff.make(gray, compression=tiff.LZW, rows=4)[68:], ""),
        "deflate": (good[:8] + b"\xff" * 60 + good[68:], ""),
        "loop": (b"II*\0\x08\0\0\0\0\0\x08\0\0\0", ""),
        "header": (b"II*\0\x08\0\0\0", ""),
        "empty big": (b"II+\0\x08\0\0\0\xff\xff\xff\xff\xff\xff\xff\x7f", ""),
    }


def test_refused(box):
    files = refused()
    for name, (data, _) in files.items():
        write(f"in/{name}.tif", data)
    write("in/good.tif", tiff.make(samples(1)))
    err = run("identity", "--max-pixels=4G", "in", "out", code=1).err
    lines = err.splitlines()
    for name, (_, cause) in files.items():
        assert any(line.startswith(f"conv: in/{name}.tif: ") and cause in line for line in lines), f"{name}: {err}"
    # libtiff prints nothing itself.
    assert all(line.startswith("conv: in/") or "images" in line or "failed" in line for line in lines), err
    assert os.listdir("out") == ["good.tif"]


def test_damage_is_found_and_bounded(box):
    """Files cut and changed anywhere: decoded or refused, without much memory."""
    rng = np.random.default_rng(7)
    good = [tiff.make(samples(3), compression=c, rows=8, tags=carried(), **more)
            for c in (tiff.NONE, tiff.LZW, tiff.DEFLATE, tiff.PACKBITS) for more in ({}, {"order": ">", "big": True})]
    for i in range(60 if program.is_sanitized() else 300):
        data = bytearray(good[i % len(good)])
        start = len(data) - 700 if i % 3 else 0  # directories are at the end
        for _ in range(1 + i % 4):
            data[rng.integers(start, len(data))] = rng.integers(0, 256)
        if i % 5 == 0:
            del data[rng.integers(8, len(data)):]
        write(f"in/{i}.tif", bytes(data))
    result = program.measure("identity", "--device=cpu", "-j1", "--first-frame", "--max-pixels=1000000", "in", "out", code=None)
    assert result.code in (0, 1) and (result.peak < 64 << 20 or program.is_sanitized())
    assert len(os.listdir("out")) + result.err.count("conv: in/") == len(os.listdir("in"))


# --- other programs ------------------------------------------------------------------------------

@pytest.mark.skipif(not shutil.which("tiffinfo"), reason="no tiffinfo (libtiff-tools)")
def test_tiffinfo_has_nothing_to_say(box):
    for order in "<>":
        write(f"in/{order}.tif", tiff.make(samples(3), order=order, tags=carried()))
    run("identity", "in", "out")
    result = subprocess.run(["tiffinfo", "-D", "out/<.tif", "out/>.tif"], capture_output=True, text=True)
    assert result.returncode == 0 and not result.stderr, result.stderr


def test_pillow_reads_outputs_and_writes_inputs(box):
    image = pytest.importorskip("PIL.Image")
    files = {}
    for channels in (1, 3, 4):
        for compression in ("raw", "tiff_lzw", "tiff_adobe_deflate", "packbits"):
            buffer = io.BytesIO()
            image.fromarray(samples(channels).squeeze()).save(buffer, "TIFF", compression=compression)
            files[f"{channels} {compression}"] = buffer.getvalue(), samples(channels)
    check(files)
    for name, (_, want) in files.items():
        assert (np.asarray(image.open(f"tiffs/{name}.tif")) == want.squeeze()).all()


def test_tifffile_reads_outputs_and_writes_inputs(box):
    tifffile = pytest.importorskip("tifffile")
    files = {}
    for channels, dtype in ((1, "u1"), (3, "u2")):
        for options in ({}, {"tile": (16, 16)}, {"compression": "zlib"}, {"bigtiff": True, "byteorder": ">"}):
            buffer = io.BytesIO()
            tifffile.imwrite(buffer, samples(channels, dtype).squeeze(), photometric="rgb" if channels == 3 else "minisblack", **options)
            files[f"{channels} {len(files)}"] = buffer.getvalue(), samples(channels, dtype)
    check(files)
    for name, (_, want) in files.items():
        assert (tifffile.imread(f"tiffs/{name}.tif") == want.squeeze()).all()
