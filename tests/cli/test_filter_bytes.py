# SPDX-License-Identifier: MIT
"""Every output byte against the definition, for every kind of image, filter, border and alpha mode."""
import os

import numpy as np
import pytest

import definition
import images
import png_writer as png
from definition import Filter
from program import run

BUILTINS = definition.builtins()
SIZES = ((1, 1), (2, 1), (1, 3), (5, 2), (3, 17), (33, 7), (64, 9), (41, 31))
DERIVATIVES = ("edge", "laplacian", "laplacian5", "prewitt-x", "prewitt-y", "scharr-x", "scharr-y", "sobel-x",
               "sobel-y")
# A derivative is negative on one side of every edge, so half of its outputs are 0. emboss5 is steep. Magnitudes of
# noise are mostly beyond 255.
VACUOUS = {**dict.fromkeys(DERIVATIVES, 0.8), "emboss5": 0.5, "prewitt": 0.8, "sobel": 0.9, "scharr": 1}


class Album(dict):
    """File name -> Image, and the folder where the files are."""

    folder = None


@pytest.fixture(scope="module")
def album(tmp_path_factory):
    """A folder with every kind of image in one large size and all sizes spread over the kinds."""
    return make_album(tmp_path_factory.mktemp("album"), 20240117)


@pytest.fixture(scope="module")
def small_album(tmp_path_factory):
    """For large filters, which take NumPy a second per image: each number of channels with each depth."""
    return make_album(tmp_path_factory.mktemp("small"), 20240118, ("gray8", "gray16", "graya8", "rgb8", "rgba16"))


@pytest.fixture(scope="module")
def halves(tmp_path_factory):
    """The album in two folders, every other kind in each."""
    return [make_album(tmp_path_factory.mktemp("half"), 20240117, images.KINDS[half::2]) for half in (0, 1)]


def make_album(folder, seed, kinds=images.KINDS):
    rng = np.random.default_rng(seed)
    album = Album()
    for index, kind in enumerate(kinds):
        for width, height in (SIZES[index % len(SIZES)], (29 + index % 9, 15 + index % 7)):
            image = images.make(kind, rng, width, height)
            name = f"{kind}-{width}x{height}.png"
            (folder / name).write_bytes(image.data)
            album[name] = image
    album.folder = folder
    return album


def check(album, out, filters, border="replicate", value=0, alpha=None, vacuous=0.25):
    """Compares every image of the folder; a share of clipped samples of `vacuous` or more is an error."""
    clipped = []
    assert sorted(os.listdir(out)) == sorted(album)
    planes = [(image.planes, image.alpha) for image in album.values()]
    wanted = definition.apply_images(planes, filters, border, value, alpha)
    for (name, image), want in zip(album.items(), wanted):
        got = images.read(out / name)
        assert got.shape == want.shape and got.dtype == want.dtype, f"{name}: {got.shape} is not {want.shape}"
        bad = np.argwhere(got != want)
        if len(bad):
            at = tuple(bad[0])
            pytest.fail(f"{name}: {len(bad)} samples differ, first at channel, row, column {at}: "
                        f"{got[at]} instead of {want[at]}")
        if image.planes[0].size > 400 and name.startswith(("gray8-", "gray16-", "rgb8-", "rgb16-")):
            clipped.append(definition.saturated(want))
    assert vacuous is None or np.mean(clipped) <= vacuous, "most outputs are clipped: the comparison proves little"


BORDER_ARGUMENTS = [("replicate", 0), ("reflect", 0), ("reflect101", 0), ("wrap", 0), ("constant", 0), ("constant", 77)]


# check_kernels tests the arithmetic, also under a sanitizer and without instruction sets; a sanitizer build runs the
# program with every third filter. Every filter meets every border and every kind of image, but not every pair of these.
@pytest.mark.parametrize("name", sorted(BUILTINS)[:: 3 if os.environ.get("CONV_DISABLE") else 1])
def test_builtin_with_every_border(box, halves, device, name):
    for number, (border, value) in enumerate(BORDER_ARGUMENTS, sorted(BUILTINS).index(name)):
        album = halves[number % 2]
        spelling = f"constant:{value}" if value else border
        run(name, "-b", "--device", device, f"--border={spelling}", "-z0", album.folder, f"out{number % 2}")
        check(album, box / f"out{number % 2}", [BUILTINS[name]], border, value, vacuous=VACUOUS.get(name, 0.25))


@pytest.mark.parametrize("name", DERIVATIVES)
def test_derivative_around_middle_gray(box, album, device, name):
    run(name, "-b", "--device", device, "--bias=128", "--divisor=8", "-z0", album.folder, "out")
    check(album, box / "out", [Filter(BUILTINS[name].c, 8, 128)])


@pytest.mark.parametrize("alpha", ("filter", "premultiply"))
@pytest.mark.parametrize("name", ("emboss", "gaussian5", "sharpen"))
def test_alpha_modes(box, album, device, name, alpha):
    for border, value in (("replicate", 0), ("constant", 90)):
        spelling = f"constant:{value}" if value else border
        run(name, "-b", "--device", device, "--alpha", alpha, "--border", spelling, "-z0", album.folder, "out")
        check(album, box / "out", [BUILTINS[name]], border, value, alpha, vacuous=None)


def test_alpha_by_default(box):
    """Blurred icons had a hard silhouette, and a dark rim of the colours under their transparent pixels."""
    y, x = np.mgrid[:40, :40]
    inside = (x - 20) ** 2 + (y - 20) ** 2 < 144
    icon = np.stack([np.where(inside, value, 0) for value in (200, 90, 30, 255)])
    opaque = np.concatenate([icon[:3], np.full((1, 40, 40), 255)])
    for name, planes in (("icon", icon), ("opaque", opaque)):
        png.write(f"{name}.png", 40, 40, [[int(v) for v in np.moveaxis(planes, 0, 2)[row].ravel()] for row in range(40)], png.RGBA)
    def filtered(name, *args):
        run(*args, f"{name}.png", "out.png", "-q")
        return images.read("out.png")
    for args in (["gaussian:3"], ["unsharp:1"], ["blur,sharpen"], ["motion:9", "--border=wrap"], ["gaussian:12"]):
        got = filtered("icon", *args)
        assert (got == filtered("icon", *args, "--alpha=premultiply")).all() and ("unsharp" in args[0] or (got[3] != icon[3]).any())
        assert (np.abs(got[:3] - np.array([200, 90, 30])[:, None, None]) <= 3)[:, got[3] > 128].all() or "sharp" in args[0]
        assert (filtered("icon", *args, "--alpha=keep")[3] == icon[3]).all()
        assert (filtered("opaque", *args) == filtered("opaque", *args, "--alpha=keep")).all()
    for args in (["sobel"], ["blur", "--border=constant"], ["blur", "--bias=3"], ["blur", "--divisor=4"], ["identity"]):
        assert (filtered("icon", *args) == filtered("icon", *args, "--alpha=keep")).all(), args
    assert "1 skipped" in [run("blur", "--resume=j", *more, "icon.png", "r.png") for more in ([], ["--alpha=premultiply"])][1].err
    assert run("blur", "--resume=j", "--alpha=keep", "icon.png", "r.png").err == "conv: replaced r.png\n"


@pytest.mark.parametrize("alpha", ("keep", "filter", "premultiply"))
def test_chain_equals_filters_one_after_the_other(box, album, device, alpha):
    chain = ("emboss", "blur5", "sharpen", "motion")
    run(",".join(chain), "-b", "--device", device, "--alpha", alpha, "--border=reflect", "-z0", album.folder, "out")
    check(album, box / "out", [BUILTINS[n] for n in chain], "reflect", 0, alpha, vacuous=None)


CUSTOM = [  # the arguments and their meaning
    (("--kernel=3x3: -2,-1,0 -1,1,1 0,1,2",), Filter([[-2, -1, 0], [-1, 1, 1], [0, 1, 2]])),
    (("-k", "1 2 1 2 4 2 1 2 1", "--divisor=16"), Filter([[1, 2, 1], [2, 4, 2], [1, 2, 1]], 16)),
    (("-k", "1 2 1 2 4 2 1 2 1", "--divisor=sum"), Filter([[1, 2, 1], [2, 4, 2], [1, 2, 1]], 16)),
    (("-k", "5x1: 1,2,3,2,1", "--divisor=9", "--bias=-20"), Filter([[1, 2, 3, 2, 1]], 9, -20)),
    (("-k", "1x7: 3,0,-1,2,-1,0,5", "--divisor=8"), Filter([[3], [0], [-1], [2], [-1], [0], [5]], 8)),
    (("-k", "3x3: 1,2,3 4,5,6 7,8,9", "--divisor=-45", "--bias=255"), Filter(np.arange(1, 10).reshape(3, 3), -45, 255)),
    (("-k", "3x3: 1,2,3 4,5,6 7,8,9", "--divisor=45", "--flip"), Filter(np.arange(9, 0, -1).reshape(3, 3), 45)),
    # Halves everywhere: only half-even rounding produces these bytes.
    (("-k", "3x1: 0,1,1", "--divisor=2"), Filter([[0, 1, 1]], 2)),
    (("-k", "1x1: 1", "--divisor=2", "--bias=3"), Filter([[1]], 2, 3)),
    # Real coefficients: one order of float32 operations.
    (("-k", "3x3: 0.1,0.2,0.1 0.2,0.4,0.2 0.1,0.2,0.1", "--divisor=1.6"),
     Filter([[0.1, 0.2, 0.1], [0.2, 0.4, 0.2], [0.1, 0.2, 0.1]], 1.6)),
    (("-k", "3x3: -0.7,0,0.25 1e-3,1.3,1.5e-1 0,0.125,-0.33", "--bias=10.5"),
     Filter([[-0.7, 0, 0.25], [1e-3, 1.3, 0.15], [0, 0.125, -0.33]], 1, 10.5)),
    (("-k", "3x3: 1,2,3 4,5,6 7,8,9", "--divisor=44.9", "--bias=0.5"),
     Filter(np.arange(1, 10).reshape(3, 3), 44.9, 0.5)),
]


@pytest.mark.parametrize("options,filt", CUSTOM, ids=[" ".join(o) for o, _ in CUSTOM])
def test_custom_kernel(box, album, device, options, filt):
    run("custom", *options, "-b", "--device", device, "-z0", "--border=reflect101", album.folder, "out")
    check(album, box / "out", [filt], "reflect101", vacuous=0.5)


@pytest.mark.parametrize("width,height,real", [
    (7, 7, False), (9, 3, True), (31, 31, False), (31, 31, True), (1, 31, False), (31, 1, True), (11, 13, False)])
def test_kernel_from_a_file_of_any_size(box, halves, small_album, device, width, height, real):
    albums = halves if width * height < 300 else (small_album, small_album)
    rng = np.random.default_rng(width * 100 + height)
    if real:
        filt = Filter(rng.normal(1, 2, (height, width)) / (width * height), 1.0, 1.25)
    else:
        coefficients = rng.integers(-3, 6, (height, width))
        filt = Filter(coefficients, max(1, int(coefficients.sum())), -3)
    (box / "mine.mat").write_text(filt.text())
    for number, border in enumerate(definition.BORDERS if width * height < 300 else ("reflect101", "constant")):
        album, out = albums[number % 2], f"out{number % 2}"
        run("custom", "-k", "@mine.mat", "-b", "--device", device, "-z0", "--border", border, album.folder, out)
        check(album, box / out, [filt], border, vacuous=0.5)
    run("./mine.mat", "-b", "--flip", "--device", device, "-z0", album.folder, "flipped")
    check(album, box / "flipped", [filt.flipped()], vacuous=0.5)


@pytest.mark.parametrize("name, divisor, bias", (("sobel", 4, 0), ("prewitt", 5, 20), ("scharr", 17.5, 0.25)))
def test_magnitudes_that_are_divided(box, album, device, name, divisor, bias):
    filt = Filter(BUILTINS[name].c, divisor, bias, magnitude=True)
    run(name, "-b", "--device", device, f"--divisor={divisor}", f"--bias={bias}", "--flip", album.folder, "out")
    check(album, box / "out", [filt])


def test_magnitude_in_a_chain(box, album, device):
    sobel = Filter(BUILTINS["sobel"].c, 4, magnitude=True)
    run("gaussian,sobel,blur", "-b", "--device", device, album.folder, "out")
    check(album, box / "out", [BUILTINS["gaussian"], BUILTINS["sobel"], BUILTINS["blur"]], vacuous=0.9)
    run("sobel,sobel", "--divisor=4", "--alpha=premultiply", "-b", "--device", device, album.folder, "out")
    check(album, box / "out", [sobel, sobel], alpha="premultiply")


def test_divisor_bias_and_flip_change_a_builtin(box, album):
    run("emboss", "-b", "--divisor=3", "--bias=64", "--flip", album.folder, "out")
    check(album, box / "out", [Filter(BUILTINS["emboss"].c, 3, 64).flipped()])


@pytest.mark.parametrize("family", ("blur", "emboss", "sharpen", "laplacian", "gaussian"))
def test_size_chooses_within_the_family(box, album, family):
    run(family, "-b", "--size=5", album.folder, "out")
    check(album, box / "out", [BUILTINS[family + "5"]], vacuous=None)


def test_encoders_carry_the_same_pixels(box, album):
    run("emboss", "-b", album.folder, "out")
    eight_bits = [name for name, image in album.items() if image.planes.dtype == np.uint8]
    inputs = [album.folder / name for name in eight_bits]
    for index, options in enumerate((("-z0",), ("-z1",), ("-z6",), ("-z9",), ("-z12",), ("--encoder=libpng", "-z0"),
                                     ("--encoder=libpng", "-z9"), ("--encoder=stb",), ("--encoder=stb", "-z5"))):
        run("emboss", *options, *inputs, f"coded{index}/")
        for name in eight_bits:
            coded = images.read(box / f"coded{index}" / name)
            assert (coded == images.read(box / "out" / name)).all(), (options, name)
