# SPDX-License-Identifier: MIT
"""The definition that all outputs are compared with, compared with an independent implementation: cv2.filter2D.

Where OpenCV's samples differ, the definition in integers decides, and the case must be in DEVIATIONS below.
"""
import numpy as np
import pytest

import definition
import images

cv2 = pytest.importorskip("cv2", reason="OpenCV for Python (python3-opencv) is not installed")
cv2.setNumThreads(1)

# filter2D has no gradient magnitudes.
BUILTINS = {name: filt for name, filt in definition.builtins().items() if not filt.magnitude}
BORDERS = {"replicate": cv2.BORDER_REPLICATE, "reflect": cv2.BORDER_REFLECT, "reflect101": cv2.BORDER_REFLECT_101,
           "wrap": cv2.BORDER_WRAP, "constant": cv2.BORDER_CONSTANT}
CONSTANT = 77

# (filter, depth) -> why OpenCV's samples are not the rational number rounded once. filter2D adds in float32, whose 24
# bits hold every sum of 8-bit samples well enough, but not every one of 16-bit samples: there its result is 1 off where
# the true one lies near a half. Seen with OpenCV 4.6 in about one sample of 50,000 on noise.
DEVIATIONS = {
    ("blur5", 16): "1/25 is no float32, and sums end 1/50 from a half: the error of 25 roundings reaches that far",
    ("unsharp", 16): "its coefficients are exact in float32, but sums of 65535 * 476 / 256 to 1/256 need 32 bits",
}


def opencv(plane, filt, border):
    """Borders that filter2D lacks are added first."""
    unit = 257 if plane.dtype == np.uint16 else 1
    kernel, delta = filt.c / filt.scale, filt.offset * unit
    if border not in ("wrap", "constant"):
        return cv2.filter2D(plane, -1, kernel, delta=delta, borderType=BORDERS[border])
    ry, rx = filt.c.shape[0] // 2, filt.c.shape[1] // 2
    wide = cv2.copyMakeBorder(plane, ry, ry, rx, rx, BORDERS[border], value=CONSTANT * unit)
    out = cv2.filter2D(wide, -1, kernel, delta=delta, borderType=cv2.BORDER_REPLICATE)
    return out[ry:ry + plane.shape[0], rx:rx + plane.shape[1]]


@pytest.fixture(scope="module")
def planes():
    """Noise, bright noise (large sums) and textures, 8 and 16 bits."""
    rng, made = np.random.default_rng(4711), []
    for width, height in ((160, 120), (85, 37), (33, 64), (5, 4), (2, 3), (1, 6)):
        for dtype in (np.uint8, np.uint16):
            top = int(np.iinfo(dtype).max)
            made += [rng.integers(low, top + 1, (height, width)).astype(dtype) for low in (0, top * 3 // 4)]
            made.append(images.make(f"gray{made[-1].itemsize * 8}", rng, width, height).planes[0])
    return made


@pytest.mark.parametrize("name", sorted(BUILTINS))
def test_same_samples_as_filter2d(planes, name):
    deviating = set()
    for border in BORDERS:
        for plane, exact in zip(planes, definition.apply_all([plane[None] for plane in planes], BUILTINS[name], border, CONSTANT)):
            distance = np.abs(opencv(plane, BUILTINS[name], border).astype(np.int64) - exact[0]).max()
            assert distance <= 1, f"{plane.shape}, {border}: OpenCV is off by {distance}, which is no rounding"
            if distance:
                deviating.add(plane.itemsize * 8)
    assert deviating <= {depth for listed, depth in DEVIATIONS if listed == name}
