# SPDX-License-Identifier: MIT
"""--output-type: float32 files against the definition, on the CPU and on the emulated device, and other depths."""
import os
import struct
import subprocess

import numpy as np
import pytest

import definition
import images
import png_writer as png
import program
from definition import Filter
from program import run, run_on

BUILTINS = definition.builtins()
REAL = Filter([[0.1, -0.7, 0.25], [1 / 3, 1e-3, -2.5], [0, 0.5, 1]], 0.9, 3.3)
LARGE = Filter(np.arange(45).reshape(5, 9) * 40001 - 700001, 7, -3)  # sums beyond float32, at 16 bits beyond 32 bits
SPECS = {"sobel-x": ("sobel-x", BUILTINS["sobel-x"]), "sobel": ("sobel", BUILTINS["sobel"]), "blur": ("blur", BUILTINS["blur"]),
         "real": ("./real.mat", REAL), "large": ("./large.mat", LARGE)}
DEVICES = ("cpu", "emulated", pytest.param("cuda", marks=pytest.mark.cuda))


@pytest.fixture
def album(box):
    """File name -> Image in the folder `in`: every kind, rows with and without padding."""
    rng, album = np.random.default_rng(7), {}
    os.makedirs("in/below")
    for index, kind in enumerate(images.KINDS):
        image = images.make(kind, rng, 40 if index % 3 == 0 else 17 + index, 9 + index % 5)
        album[f"below/{kind}.png" if index % 4 == 0 else f"{kind}.png"] = image
    for name, image in album.items():
        (box / f"in/{name}").write_bytes(image.data)
    for name, filt in (("real", REAL), ("large", LARGE)):
        with open(f"{name}.mat", "w") as file:
            file.write(filt.text())
    return album


def check_floats(album, filters, alpha="keep"):
    files = sorted(os.path.relpath(os.path.join(at, name), "out") for at, _, names in os.walk("out") for name in names)
    assert files == sorted(f"{name[:-4]}.npy" for name in album)
    signed = 0
    planes = definition.apply_images([(image.planes, image.alpha) for image in album.values()], filters[:-1], alpha=alpha)
    for (name, image), want in zip(album.items(), definition.apply_all(planes, filters[-1], floats=True)):
        got, keeps = np.load(f"out/{name[:-4]}.npy"), image.alpha and alpha == "keep"
        if keeps:
            want[-1] = image.planes[-1]
        want = want[0] if len(want) == 1 else want
        assert got.dtype == np.dtype("<f4") and got.flags.c_contiguous and got.shape == want.shape, name
        assert (got.view(np.uint32) == want.view(np.uint32)).all(), name
        signed += (got < 0).sum()
    return signed


@pytest.mark.parametrize("place", DEVICES)
@pytest.mark.parametrize("name", sorted(SPECS))
def test_floats_are_the_definition(album, place, name):
    spec, filt = SPECS[name]
    run_on(place, spec, "-r", "--output-type=f32", "in", "out")
    signed = check_floats(album, [filt])
    assert signed > 0 or name in ("sobel", "blur")


@pytest.mark.parametrize("place", DEVICES)
def test_floats_at_the_end_of_a_chain(album, place):
    run_on(place, "gaussian,sobel,sobel-y", "-r", "--alpha=filter", "--output-type=f32", "in", "out")
    check_floats(album, [BUILTINS["gaussian"], BUILTINS["sobel"], BUILTINS["sobel-y"]], "filter")


@pytest.fixture(scope="module")
def narrow(tmp_path_factory):
    """A folder with images of every width up to 70, of 1 to 4 channels, at both depths, one of each kind, and file name -> Image."""
    rng, folder, album = np.random.default_rng(36), tmp_path_factory.mktemp("narrow"), {}
    for kind in images.KINDS:
        image = album[f"{kind}.png"] = images.make(kind, rng, 90, 9)
        (folder / f"{kind}.png").write_bytes(image.data)
    for kind in ("gray8", "gray16", "graya8", "graya16", "rgb8", "rgb16", "rgba8", "rgba16"):
        for width in range(1, 71):
            image = album[f"{kind}-{width}.png"] = images.make(kind, rng, width, int(rng.integers(1, 14)))
            (folder / f"{kind}-{width}.png").write_bytes(image.data)
    return folder, album


# In floats the alpha of images up to 3 pixels wide had samples of other pixels.
@pytest.mark.parametrize("place", DEVICES)
@pytest.mark.parametrize("to, alpha", [(to, alpha) for to in ("u8", "u16", "f32") for alpha in ("keep", "filter", "premultiply")
                                       if (to, alpha) != ("f32", "premultiply")])  # is refused
def test_every_width(narrow, tmp_path, place, to, alpha):
    if place == "emulated" and alpha != "keep":
        pytest.skip("the same kernels")
    folder, album = narrow
    some = ()
    if place == "emulated":  # it is slow, and its kernels see planes, not kinds
        some = "--include=gray8-*", "--include=rgba16-*"
        album = {name: image for name, image in album.items() if name.startswith(("gray8-", "rgba16-"))}
    run_on(place, "blur", "-r", f"--alpha={alpha}", f"--output-type={to}", *some, folder, tmp_path / "out")
    deep = [(image.planes.astype(np.uint16) * 257 if to == "u16" and image.planes.dtype == np.uint8 else image.planes, image.alpha)
            for image in album.values()]
    if to == "f32":
        made = definition.apply_all([planes for planes, _ in deep], BUILTINS["blur"], floats=True)
    else:
        made = definition.apply_images(deep, [BUILTINS["blur"]], alpha=alpha)
    for name, (planes, has_alpha), want in zip(album, deep, made):
        if to == "f32" and has_alpha and alpha == "keep":
            want[-1] = planes[-1]
        if to == "u8" and want.dtype == np.uint16:
            want = np.rint(want / 257).astype(np.uint8)
        got = np.load(tmp_path / f"out/{name[:-4]}.npy") if to == "f32" else images.read(tmp_path / f"out/{name}")
        got = got.reshape(want.shape)
        assert got.dtype == want.dtype and (got == want).all(), name


def test_standard_streams_and_reports(album):
    name = next(name for name in album if "/" not in name)
    run("sobel-x", "--output-type=f32", f"in/{name}", "one.npy")
    with open(f"in/{name}", "rb") as file:
        data = subprocess.run([program.BINARY, "sobel-x", "--output-type=f32", "-", "-"], stdin=file, capture_output=True,
                              check=True).stdout
    with open("one.npy", "rb") as file:
        assert file.read() == data
    summary = run("sobel-x", "-r", "--json", "--output-type=f32", "in", "out").records()[-1]
    assert summary["done"] == len(album) and summary["bytes_out"] > 4 * summary["pixels"]
    summary = run("sobel-x", "-r", "--json", "--skip-existing", "--output-type=f32", "in", "out").records()[-1]
    assert summary["done"] == 0 and summary["skipped"] == len(album)


@pytest.mark.parametrize("typed, words", (
    (("--output-type=f32", "--in-place", "a.png"), "--in-place"),
    (("--output-type=f32", "--alpha=premultiply", "a.png", "b.npy"), "premultiply"),
    (("--output-type=f32", "-z9", "a.png", "b.npy"), "--compress"),
    (("--output-type=f32", "a.png", "b.png"), "use b.npy"),
    (("--output-type=f16", "a.png", "b.npy"), "same, u8, u16 or f32"),
    (("a.png", "b.npy"), "--output-type f32"),
))
def test_what_does_not_fit_is_refused(box, typed, words):
    assert words in run("blur", *typed, code=2).err


@pytest.mark.parametrize("kind, depth, background, want", (("rgb8", "u16", (1, 2, 255), (257, 514, 65535)),
                                                           ("rgb16", "u8", (257, 700, 65535), (1, 3, 255)),
                                                           ("rgb16", "u16", (257, 700, 65535), (257, 700, 65535))))
def test_background_has_the_depth_of_the_output(box, kind, depth, background, want):
    image = images.make(kind, np.random.default_rng(1), 9, 7)
    chunk = png.chunk(b"bKGD", struct.pack(">3H", *background))
    (box / "a.png").write_bytes(image.data[:33] + chunk + image.data[33:])
    run("blur", f"--output-type={depth}", "a.png", "b.png")
    with open("b.png", "rb") as file:
        assert png.chunk(b"bKGD", struct.pack(">3H", *want)) in file.read()
