# SPDX-License-Identifier: MIT
"""--gray, --luma, --linear, --mix and --roi against their definition, on the CPU and on the emulated device with its coders."""
import functools
import os
import subprocess
import zlib

import numpy as np
import pytest

import definition
import images
import png_writer as png
import program
from program import run, run_on

BUILTINS = definition.builtins()
KINDS = ("gray8", "gray16", "graya8", "rgb8", "rgb16", "rgba8", "rgba16", "palette4", "palette8+trns")
CHAIN = ("emboss", "blur5")


def half_even(numerator, divisor):
    quotient, rest = np.divmod(numerator.astype(np.int64), divisor)
    return quotient + ((2 * rest > divisor) | ((2 * rest == divisor) & (quotient % 2 == 1)))


def luminance(planes, alpha):
    """The gray plane, and alpha where there is one."""
    if len(planes) < 3:
        return planes
    r, g, b = planes[:3].astype(np.int64)
    gray = half_even(299 * r + 587 * g + 114 * b, 1000).astype(planes.dtype)[None]
    return np.concatenate([gray, planes[3:]]) if alpha else gray


def recoloured(planes, old, new, alpha):
    """The image with the gray image `new` in place of its own, `old`."""
    if len(planes) < 3:
        return new
    colours = planes[:3].astype(np.int64) + new[0].astype(np.int64) - old[0]
    colours = np.clip(colours, 0, np.iinfo(planes.dtype).max).astype(planes.dtype)
    return np.concatenate([colours, new[1:]]) if alpha else colours


@functools.cache
def curve(gamma=None):
    """The tables of 16 bits to linear light and back: of sRGB, or of samples that are light to the power gamma."""
    share = np.arange(65536) / 65535
    if gamma:
        linear, stored = share ** (1 / gamma), share ** gamma
    else:
        linear = np.where(share <= 0.04045, share / 12.92, ((share + 0.055) / 1.055) ** 2.4)
        stored = np.where(share <= 0.0031308, 12.92 * share, 1.055 * share ** (1 / 2.4) - 0.055)
    return np.floor(65535 * linear + 0.5).astype(np.uint16), np.floor(65535 * stored + 0.5).astype(np.uint16)


def in_light(planes, has_alpha, filters, alpha):
    """The result of filters in linear light, of an image of 16 bits."""
    colours = len(planes) - has_alpha
    linear, stored = curve()
    result = definition.apply_image(np.concatenate([linear[planes[:colours]], planes[colours:]]), has_alpha, filters, alpha=alpha)
    return np.concatenate([stored[result[:colours]], result[colours:]])


def narrow(planes, like):
    return planes if like.dtype == np.uint16 or planes.dtype == np.uint8 else ((planes.astype(int) + 128) // 257).astype(np.uint8)


def blend(image, filters=CHAIN, gray=False, luma=False, linear=False, mix=100, roi=None, alpha=None):
    planes = luminance(image.planes, image.alpha) if gray or luma else image.planes
    filters = [BUILTINS[f] for f in filters]
    if linear:
        original = image.planes.astype(np.uint16) * (257 if image.planes.dtype == np.uint8 else 1)
        wide = luminance(original, image.alpha) if gray or luma else original
        result = in_light(wide, image.alpha, filters, alpha)
        result = narrow(recoloured(original, wide, result, image.alpha) if luma else result, image.planes)
        planes = narrow(wide, image.planes) if gray else image.planes
    else:
        result = definition.apply_image(planes, image.alpha, filters, alpha=alpha)
    if luma and not linear:
        planes, result = image.planes, recoloured(image.planes, planes, result, image.alpha)
    parts = round(mix * 100)
    mixed = half_even(parts * result.astype(np.int64) + (10000 - parts) * planes.astype(np.int64), 10000)
    if roi:
        width, height, x, y = roi
        out = planes.astype(np.int64)
        out[:, y:y + height, x:x + width] = mixed[:, y:y + height, x:x + width]
        mixed = out
    return mixed.astype(planes.dtype)


@pytest.fixture
def album(box):
    rng, album = np.random.default_rng(11), {}
    os.mkdir("in")
    for index, kind in enumerate(KINDS):
        image = images.make(kind, rng, 23 + 40 * index, 19 + index)
        album[kind] = image
        with open(f"in/{kind}.png", "wb") as file:
            file.write(image.data)
    return album


SETTINGS = (
    (["--gray"], dict(gray=True)),
    (["--mix", "40%"], dict(mix=40)), (["--mix=0%"], dict(mix=0)), (["--mix=100%"], {}), (["--roi=9999x9999+0+0"], {}),
    (["--roi", "9x7+5+4"], dict(roi=(9, 7, 5, 4))),
    (["--gray", "--mix", "12.5%", "--roi", "900x5+11+6"], dict(gray=True, mix=12.5, roi=(900, 5, 11, 6))),
    (["--mix", "70%", "--alpha=keep"], dict(mix=70, alpha="keep")), (["--mix=33.33%", "--alpha", "premultiply"], dict(mix=33.33, alpha="premultiply")),
    (["--luma"], dict(luma=True)), (["--luma", "--alpha=keep"], dict(luma=True, alpha="keep")),
    (["--luma", "--mix", "30%", "--roi", "900x5+11+6", "--alpha=premultiply"], dict(luma=True, mix=30, roi=(900, 5, 11, 6), alpha="premultiply")),
    (["--linear"], dict(linear=True)), (["--linear", "--luma", "--mix=60%"], dict(linear=True, luma=True, mix=60)),
    (["--linear", "--gray", "--alpha=premultiply"], dict(linear=True, gray=True, alpha="premultiply")),
    (["--gray", "--roi=8x8+0+0", "--alpha=filter"], dict(gray=True, roi=(8, 8, 0, 0), alpha="filter")))


@pytest.mark.parametrize("place", ("cpu", "emulated"))
@pytest.mark.parametrize("options, meaning", SETTINGS, ids=[" ".join(s[0]) for s in SETTINGS])
def test_pixels_are_those_of_the_definition(album, place, options, meaning):
    run_on(place, ",".join(CHAIN), *options, "in", "out", coders=("--decode-on", "gpu", "--encode-on", "gpu"))
    for name, image in album.items():
        got = images.read(f"out/{name}.png")
        assert got.dtype == image.planes.dtype, name
        assert np.array_equal(got, blend(image, **meaning)), name


def test_other_depths_and_passes(album):
    """Mixing works on samples as they are written: after narrowing, and in 8 bits again after passes with 16."""
    run("emboss", "--output-type", "u8", "in", "plain")
    run("emboss", "--output-type", "u8", "--mix", "40%", "in", "out")
    run("gaussian:6", "in", "soft")
    run("gaussian:6", "--mix", "40%", "--roi", "10x10+3+3", "in", "half")
    for name, image in album.items():
        original = image.planes if image.planes.dtype == np.uint8 else ((image.planes.astype(int) + 128) // 257)
        for folder, plain in (("out", "plain"), ("half", "soft")):
            got, result = images.read(f"{folder}/{name}.png"), images.read(f"{plain}/{name}.png").astype(int)
            source = original if folder == "out" else image.planes
            want = half_even(40 * result + 60 * source.astype(int), 100)
            if folder == "half":
                inside = np.zeros(source.shape[1:], bool)
                inside[3:13, 3:13] = True
                want = np.where(inside, want, source)
            assert np.array_equal(got, want), (folder, name)


def test_gray_floats_have_one_channel(album):
    run("identity", "--gray", "--output-type", "f32", "in", "out")
    for name, image in album.items():
        want = luminance(image.planes, image.alpha)
        assert np.array_equal(np.load(f"out/{name}.npy"), want[0] if len(want) == 1 else want), name


def test_gray_drops_what_is_about_colours(box):
    profile = b"icc\0\0" + zlib.compress(b"p" * 200)
    image = png.encode(2, 1, [[255, 0, 0, 0, 0, 255]], png.RGB, 8,
                       chunks=[png.chunk(b"iCCP", profile), png.chunk(b"bKGD", bytes([0, 255, 0, 0, 0, 0])), png.chunk(b"gAMA", bytes(4))])
    (box / "a.png").write_bytes(image)
    run("identity", "a.png", "colour.png")
    run("identity", "--gray", "a.png", "gray.png")
    kinds = {kind: content for kind, content in images.chunks((box / "gray.png").read_bytes())}
    assert b"iCCP" not in kinds and kinds[b"bKGD"] == bytes([0, 76]) and b"gAMA" in kinds
    assert b"iCCP" in dict(images.chunks((box / "colour.png").read_bytes()))
    assert images.read("gray.png").tolist() == [[[76, 29]]]


def test_jpeg(album):
    """A JPEG, too, has other channels than its gray result."""
    made = subprocess.run([program.BINARY, "identity", "--device", "cpu", "in/rgb8.png", "a.jpg"], capture_output=True, text=True)
    if made.returncode:
        pytest.skip("conv without JPEG")
    run("identity", "a.jpg", "a.png")
    run("identity", "--gray", "--mix", "50%", "a.jpg", "gray.png")
    run("identity", "--gray", "a.jpg", "gray.jpg")
    run("identity", "gray.jpg", "again.png")
    assert np.array_equal(images.read("gray.png"), luminance(images.read("a.png"), False))
    assert images.read("again.png").shape == images.read("gray.png").shape


@pytest.mark.parametrize("place", ("cpu", "emulated"))
def test_luma_of_a_jpeg(album, place):
    """From JPEG to JPEG the chroma is not even encoded again, and a different luma can be replaced to the same file."""
    coders = ("--decode-on", "gpu", "--encode-on", "gpu")
    made = subprocess.run([program.BINARY, "identity", "--device", "cpu", "-Q", "50", "in/rgb8.png", "a.jpg"], capture_output=True, text=True)
    if made.returncode:
        pytest.skip("conv without JPEG")
    flat = ("custom", "--kernel", "0", "--divisor", "1", "--bias", "128")
    run_on(place, "emboss", "--luma", "a.jpg", "b.jpg", coders=coders)
    for name in "ab":
        run_on(place, *flat, "--luma", f"{name}.jpg", f"{name}-flat.jpg", coders=coders)
        run("identity", "--luma", f"{name}.jpg", f"{name}-same.jpg")
        run("identity", f"{name}.jpg", f"{name}.png")
        run("identity", f"{name}-same.jpg", f"{name}-same.png")
    assert open("a-flat.jpg", "rb").read() == open("b-flat.jpg", "rb").read() != open("a.jpg", "rb").read()
    for name in "ab":
        assert np.abs(images.read(f"{name}.png").astype(int) - images.read(f"{name}-same.png")).mean() < 2
    # The gray image of the luma that the file stores, filtered and encoded, is the new luma.
    a, b = images.read("a.png"), images.read("b.png")
    want = definition.apply_image(luminance(a, False), False, [BUILTINS["emboss"]])
    assert np.abs(luminance(b, False).astype(int) - want).mean() < 12
    # With a quality, or turned, the whole image is encoded again.
    run("emboss", "--luma", "-Q", "95", "a.jpg", "c.jpg")
    run("identity", "c.jpg", "c.png")
    assert np.abs(images.read("c.png").astype(int) - recoloured(a, luminance(a, False), want, False)).mean() < 6


def test_linear_light_of_every_sample(box):
    """All 65536 samples by each curve, and by which a PNG asks for; 8 bits come back as they were."""
    full, few = np.arange(65536).reshape(256, 256), np.arange(0, 65536, 257)[None]

    def write(name, *chunks, ramp=few):
        (box / f"{name}.png").write_bytes(png.encode(256, len(ramp), ramp.tolist(), png.GRAY, 16, chunks=list(chunks)))

    def gamma(value):
        return png.chunk(b"gAMA", value.to_bytes(4, "big"))

    write("plain", ramp=full)
    write("gamma", gamma(45455), ramp=full)
    write("steep", gamma(10000))
    write("srgb", gamma(45455), png.chunk(b"sRGB", b"\0"))
    (box / "bytes.png").write_bytes(png.encode(256, 1, [list(range(256))], png.GRAY, 8))
    for name, value in (("plain", None), ("gamma", 0.45455), ("steep", 0.1), ("srgb", None), ("bytes", None)):
        run("custom", "-k", "1", "--divisor", "1", "--linear", f"{name}.png", "out.png")
        linear, stored = curve(value)
        want = np.arange(256) if name == "bytes" else stored[linear[full if name in ("plain", "gamma") else few]]
        assert np.array_equal(images.read("out.png")[0], want.reshape(-1, 256)), name
    for bad in (1, 9999, 1000001, 2 ** 31):
        write("bad", gamma(bad))
        assert "gamma" in run("blur", "--linear", "bad.png", "out.png", code=1).err
    run("blur", "bad.png", "out.png")


@pytest.mark.parametrize("place", ("cpu", "emulated"))
@pytest.mark.parametrize("chain", ("blur,sobel", "sobel,blur5", "identity,gaussian5,edge,sharpen,blur"))
def test_alpha_of_each_filter_of_a_chain(album, place, chain):
    """One mode was for all filters: with an edge filter in the chain, blurs mixed the colours of transparent pixels."""
    coders = ("--decode-on", "gpu", "--encode-on", "gpu")
    run_on(place, chain, "in", "out", coders=coders)
    source = "in"
    for index, filt in enumerate(chain.split(",")):
        run(filt, source, f"step{index}")
        source = f"step{index}"
    for name, image in album.items():
        assert np.array_equal(images.read(f"out/{name}.png"), images.read(f"{source}/{name}.png")), name
        if image.alpha:
            want = definition.apply_image(image.planes, True, [BUILTINS[f] for f in chain.split(",")])
            assert np.array_equal(images.read(f"out/{name}.png"), want), name


def test_a_region_outside_fails_that_image(album):
    result = run("emboss", "--roi", "5x5+60+0", "in", "out", code=1)
    wide = [name for name, image in album.items() if image.planes.shape[2] > 60]
    assert sorted(os.listdir("out")) == sorted(f"{name}.png" for name in wide) and wide
    assert "the region 5x5+60+0 lies outside the image of 23x19" in result.err


@pytest.mark.parametrize("options, said", (
    (["--mix", "0.4"], "for example 40%"), (["--mix", "101%"], "0% to 100%"), (["--mix", "-1%"], "0% to 100%"),
    (["--mix", "nan%"], "40%"), (["--mix", "33.333%"], "two decimals"), (["--mix", "%"], "40%"),
    (["--roi", "5x5"], "640x480+100+50"), (["--roi", "0x5+0+0"], "--roi"), (["--roi", "5x5-1+0"], "--roi"),
    (["--roi", "5x5+0+0 "], "--roi"), (["--mix", "5%", "--output-type", "f32"], "cannot be combined"),
    (["--linear", "--output-type", "f32"], "--linear cannot be combined"), (["--luma", "--output-type", "f32"], "--luma cannot be combined"), (["--luma", "--gray"], "--gray"),
    (["--roi", "5x5+0+0", "--output-type", "f32"], "--roi cannot be combined")))
def test_mistakes_are_refused(box, options, said):
    assert said in run("emboss", *options, "a.png", "b.png", code=2).err
