# SPDX-License-Identifier: MIT
"""Compared with an independent implementation: cv2.filter2D must give the same bytes for every built-in filter.

Where OpenCV's bytes differ, the definition in integers decides, and the case must be in DEVIATIONS below.
"""
import functools
import glob
import os

import numpy as np
import pytest

import definition
import images
import program
from program import run

cv2 = pytest.importorskip("cv2", reason="OpenCV for Python (python3-opencv) is not installed")
cv2.setNumThreads(1)

# filter2D has no gradient magnitudes; test_filter_bytes.py compares them with NumPy.
BUILTINS = {name: filt for name, filt in definition.builtins().items() if not filt.magnitude}
SAMPLES = sorted(glob.glob(os.path.join(program.ROOT, "samples", "*.png")))
PHOTOS = sorted(glob.glob(os.path.join(os.environ["CONV_PHOTOS"], "*.png"))) if os.environ.get("CONV_PHOTOS") else []
BORDERS = {"replicate": cv2.BORDER_REPLICATE, "reflect": cv2.BORDER_REFLECT, "reflect101": cv2.BORDER_REFLECT_101,
           "wrap": cv2.BORDER_WRAP, "constant": cv2.BORDER_CONSTANT}
CONSTANT = 77

# (filter, depth) -> why OpenCV's bytes are not the rational number rounded once. filter2D adds in float32, whose 24
# bits hold every sum of 8-bit samples well enough, but not every one of 16-bit samples: there its result is 1 off where
# the true one lies near a half. Seen with OpenCV 4.6 in about one sample of 50,000 on noise.
DEVIATIONS = {
    ("blur5", 16): "1/25 is no float32, and sums end 1/50 from a half: the error of 25 roundings reaches that far",
    ("unsharp", 16): "its coefficients are exact in float32, but sums of 65535 * 476 / 256 to 1/256 need 32 bits",
}


def opencv(image, filt, border):
    """The OpenCV code for the same filter. Borders that filter2D lacks are added first."""
    unit = 257 if image.dtype == np.uint16 else 1
    kernel, delta = filt.c / filt.scale, filt.offset * unit
    if border not in ("wrap", "constant"):
        return cv2.filter2D(image, -1, kernel, delta=delta, borderType=BORDERS[border])
    ry, rx = filt.c.shape[0] // 2, filt.c.shape[1] // 2
    wide = cv2.copyMakeBorder(image, ry, ry, rx, rx, BORDERS[border], value=(CONSTANT * unit,) * 4)
    out = cv2.filter2D(wide, -1, kernel, delta=delta, borderType=cv2.BORDER_REPLICATE)
    return out[ry:ry + image.shape[0], rx:rx + image.shape[1]]


@functools.lru_cache(maxsize=None)
def read_source(path):
    """Like read(), for an image that every filter has as its input."""
    return read(path)


def read(path):
    """An image's colour channels without alpha, (height, width, 1 or 3)."""
    image = cv2.imread(os.fspath(path), cv2.IMREAD_UNCHANGED)
    image = image if image.ndim == 3 else image[..., None]
    return np.ascontiguousarray(image[..., :3])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The samples and random images: noise, bright noise (large sums) and textures, 8 and 16 bits."""
    folder = tmp_path_factory.mktemp("parity")
    for path in SAMPLES:
        (folder / os.path.basename(path)).symlink_to(path)
    rng = np.random.default_rng(4711)
    for index, (width, height) in enumerate(((256, 192), (255, 97), (33, 64), (5, 4), (2, 3), (1, 6))):
        for dtype in (np.uint8, np.uint16):
            shape = (height, width, 3) if index % 2 == 0 else (height, width)
            top = int(np.iinfo(dtype).max)
            noise = rng.integers(0, top + 1, shape).astype(dtype)
            cv2.imwrite(os.fspath(folder / f"noise{index}-{noise.itemsize * 8}.png"), noise)
            bright = rng.integers(top * 3 // 4, top + 1, shape).astype(dtype)
            cv2.imwrite(os.fspath(folder / f"bright{index}-{noise.itemsize * 8}.png"), bright)
            kind = "rgb" if index % 2 else "gray"
            image = images.make(f"{kind}{noise.itemsize * 8}", rng, width, height)
            (folder / f"texture{index}-{noise.itemsize * 8}.png").write_bytes(image.data)
    return folder


def compare(name, border, source, out):
    """Compares a folder; returns the depths at which OpenCV leaves the definition."""
    filt = BUILTINS[name]
    deviating = set()
    for path in sorted(os.listdir(source)):
        image, ours = read_source(os.path.realpath(os.path.join(source, path))), read(os.path.join(out, path))
        theirs = opencv(image, filt, border).reshape(image.shape)
        if ours.dtype == theirs.dtype and ours.shape == theirs.shape and (ours == theirs).all():
            continue
        exact = np.stack([definition.apply(np.ascontiguousarray(image[..., c]), filt, border, CONSTANT)
                          for c in range(image.shape[2])], 2)
        assert (ours == exact).all(), f"{path}, {border}: neither OpenCV's bytes nor the definition's"
        distance = np.abs(theirs.astype(np.int64) - exact).max()
        assert distance == 1, f"{path}, {border}: OpenCV is off by {distance}, which is no rounding"
        deviating.add(image.itemsize * 8)
    return deviating


@pytest.mark.parametrize("name", sorted(BUILTINS))
def test_same_bytes_as_filter2d(tmp_path, folder, name):
    deviating = set()
    for border in BORDERS:
        spelling = f"constant:{CONSTANT}" if border == "constant" else border
        run(name, "-b", "--border", spelling, "-z0", folder, tmp_path / border)
        deviating |= compare(name, border, folder, tmp_path / border)
    listed = {depth for listed_name, depth in DEVIATIONS if listed_name == name}
    assert deviating == listed, f"{name}: OpenCV deviates at {sorted(deviating)} bits, listed are {sorted(listed)}"


@pytest.mark.skipif(not PHOTOS, reason="CONV_PHOTOS names no folder with photographs")
@pytest.mark.parametrize("number, name", enumerate(sorted(BUILTINS)))
def test_same_bytes_as_filter2d_on_photographs(tmp_path, number, name):
    """Each filter with a third of the photographs, the next one with the next third; other borders with one of them."""
    third = PHOTOS[number % 3 :: 3] or PHOTOS
    for place, paths in (("third", third), ("one", third[:1])):
        (tmp_path / place).mkdir()
        for path in paths:
            (tmp_path / place / os.path.basename(path)).symlink_to(path)
    for border in BORDERS:
        spelling = f"constant:{CONSTANT}" if border == "constant" else border
        place = tmp_path / ("third" if border == "replicate" else "one")
        run(name, "-b", "--border", spelling, "-z0", place, tmp_path / border)
        assert compare(name, border, place, tmp_path / border) == set()
