# SPDX-License-Identifier: MIT
"""filter and Filter on the CPU, against OpenCV and NumPy."""

import copy
import itertools
import pickle
import re

import numpy as np
import pytest
from conftest import every_shape

import conv

EMBOSS = [[-2, -1, 0], [-1, 1, 1], [0, 1, 2]]


def expected(image, kernel):
    """The sums of products in float64, exact for integers; rounded half to even and clamped."""
    kernel = np.asarray(kernel, np.float64)
    ry, rx = kernel.shape[0] // 2, kernel.shape[1] // 2
    widths = [(ry, ry), (rx, rx)] + [(0, 0)] * (image.ndim - 2)
    padded = np.pad(image.astype(np.float64), widths, mode="edge")
    total = np.zeros(image.shape)
    for j in range(kernel.shape[0]):
        for i in range(kernel.shape[1]):
            total += kernel[j, i] * padded[j : j + image.shape[0], i : i + image.shape[1]]
    return np.clip(np.rint(total), 0, np.iinfo(image.dtype).max).astype(image.dtype)


@every_shape
def test_emboss(noise, shape, dtype):
    image = noise(shape, dtype)
    result = conv.filter(image, "emboss")
    assert result.dtype == dtype and result.shape == shape
    wanted = expected(image, EMBOSS)
    if len(shape) == 3 and shape[2] in (2, 4):
        wanted[..., -1] = image[..., -1]
    assert np.array_equal(result, wanted)
    if result.size > 500:
        assert 0.1 < (result > 0).mean() and (result < np.iinfo(dtype).max).mean() > 0.1


def test_settings(noise):
    image = noise((12, 15))
    identity = [[0, 0, 0], [0, 1, 0], [0, 0, 0]]
    assert np.array_equal(conv.filter(image, identity, divisor=2), np.rint(image / 2))
    assert np.array_equal(conv.filter(image, identity, bias=200), np.minimum(image + 200.0, 255))
    kernel = np.arange(9).reshape(3, 3)
    assert np.array_equal(conv.filter(image, kernel, flip=True, divisor=40), conv.filter(image, kernel[::-1, ::-1], divisor=40))
    assert np.array_equal(conv.filter(image, kernel, divisor="sum"), conv.filter(image, kernel, divisor=36))
    text = " ".join(map(str, kernel.ravel()))
    assert np.array_equal(conv.filter(image, "custom", kernel=text, divisor=36), conv.filter(image, kernel, divisor=36))
    padded = np.pad(image, 1, constant_values=77)
    assert np.array_equal(conv.filter(image, kernel, divisor=36, border="constant:77"),
                          conv.filter(padded, kernel, divisor=36)[1:-1, 1:-1])


def test_alpha(noise):
    image = noise((12, 15, 4))
    kept = conv.filter(image, "blur")
    assert np.array_equal(kept[..., 3], image[..., 3])
    filtered = conv.filter(image, "blur", alpha="filter")
    assert np.array_equal(filtered[..., :3], kept[..., :3])
    assert np.array_equal(filtered[..., 3], conv.filter(image[..., 3], "blur"))
    assert not np.array_equal(conv.filter(image, "blur", alpha="premultiply"), kept)


def test_float32_results(noise):
    image = noise((31, 18, 3))
    kernel = np.array([[1, 0, -1]] * 3)
    result = conv.filter(image, kernel, dtype=np.float32)
    assert result.dtype == np.float32 and result.min() < 0 and result.max() > 255
    assert np.array_equal(np.clip(np.rint(result), 0, 255), conv.filter(image, kernel))


def test_float32_samples(rng):
    """The sums themselves: tests/unit/test_api_floats.c."""
    image = rng.standard_normal((2, 31, 18, 3), dtype=np.float32)
    result = conv.filter(image, "emboss,gaussian:2", bias=0.5)
    assert result.dtype == np.float32 and result.shape == image.shape
    assert np.array_equal(conv.filter(image, "emboss,gaussian:2", bias=0.5, dtype="float32"), result)
    assert np.array_equal(conv.filter(image, [[1]], bias=0.5), image + np.float32(0.5))
    out = image.copy()
    assert conv.filter(out, "emboss,gaussian:2", bias=0.5, out=out) is out and np.array_equal(out, result)


@every_shape
def test_layouts(noise, shape, dtype):
    image = noise(shape, dtype)
    result = conv.filter(image, "sharpen")
    if image.ndim == 2:
        assert np.array_equal(conv.filter(image, "sharpen", layout="CHW"), result)
        assert np.array_equal(conv.filter(image[..., None], "sharpen")[..., 0], result)
        assert np.array_equal(conv.filter(image[None], "sharpen", layout="CHW")[0], result)
        assert np.array_equal(conv.filter(image[None], "sharpen", layout="HW")[0], result)
        return
    planes = conv.filter(np.moveaxis(image, -1, 0), "sharpen", layout="CHW")
    assert np.array_equal(np.moveaxis(planes, 0, -1), result)


def test_batches_and_lists(noise):
    images = noise((4, 20, 31, 3))
    results = np.stack([conv.filter(image, "emboss") for image in images])
    assert np.array_equal(conv.filter(images, "emboss"), results)
    planes = conv.filter(np.ascontiguousarray(np.moveaxis(images, -1, 1)), "emboss", layout="CHW")
    assert np.array_equal(np.moveaxis(planes, 1, -1), results)
    mixed = [images[0], images[1], noise((5, 6)), noise((7, 9, 4), np.uint16), images[:2]]
    for image, result in zip(mixed, conv.filter(mixed, "emboss")):
        assert np.array_equal(result, conv.filter(image, "emboss"))
    assert conv.filter((), "emboss") == []
    assert conv.filter(images[:0], "emboss").shape == (0, 20, 31, 3)


@pytest.mark.parametrize("dtype", (np.uint8, np.uint16))
def test_strided_views(noise, dtype):
    images = noise((2, 20, 31, 6), dtype)
    for view in (images[0, ::2, :, :3], images[0, :, 1::3, 1:4], images[0, ..., ::2], images[..., 1:4],
                 images[0, ::-1, :, :3], images[0, :, ::-1, 2::-1], images[0].transpose(1, 0, 2)[..., :3],
                 np.broadcast_to(images[0, :1, :, :3], (9, 31, 3))):
        assert np.array_equal(conv.filter(view, "emboss"), conv.filter(np.ascontiguousarray(view), "emboss"))


def test_out(noise):
    image = noise((20, 31, 3))
    wanted = conv.filter(image, "emboss")
    out = np.empty_like(image)
    assert conv.filter(image, "emboss", out=out) is out and np.array_equal(out, wanted)
    wide = np.zeros((20, 64, 3), np.uint8)
    conv.filter(image, "emboss", out=wide[:, 10:41])
    assert np.array_equal(wide[:, 10:41], wanted)
    assert not wide[:, :10].any() and not wide[:, 41:].any()
    outs = [np.empty_like(image), np.empty_like(image)]
    assert conv.filter([image, image[::-1]], "emboss", out=outs)[0] is outs[0]
    assert np.array_equal(outs[1], conv.filter(image[::-1], "emboss"))
    floats = conv.filter(image, "emboss", out=np.empty(image.shape, np.float32), dtype="float32")
    assert np.array_equal(np.clip(np.rint(floats), 0, 255), wanted)


def test_prepared_filters(noise):
    image = noise((20, 31, 3))
    prepared = conv.Filter("gaussian5,sharpen", border="wrap")
    assert repr(prepared) == "conv.Filter('gaussian5,sharpen', border='wrap')"
    wanted = conv.filter(image, "gaussian5,sharpen", border="wrap")
    for _ in range(3):
        assert np.array_equal(prepared(image), wanted)
        assert np.array_equal(conv.filter(image, prepared), wanted)
    assert len(prepared.kernels()) == 2
    for name in prepared.kernels(dtype="uint16"):
        assert np.array_equal(conv.filter(image, "emboss", variant=name), conv.filter(image, "emboss"))
        break
    many = [conv.Filter([[k]]) for k in range(300)]  # more than contexts keep ready
    assert np.array_equal(many[2](image), np.minimum(2.0 * image, 255))
    for right, wrong in (({"border": 1}, {"border": True}), ({"side": 3}, {"side": 3.0})):
        conv.filter(image, "sharpen", **right)  # after which the wrong ones, which are equal, were accepted
        with pytest.raises((ValueError, TypeError)):
            conv.filter(image, "sharpen", **wrong)


def test_a_changed_matrix_file_is_read_again(tmp_path, noise):
    image, path = noise((9, 9)), tmp_path / "own.mat"
    path.write_text("1 1\n2\n")
    assert np.array_equal(conv.filter(image, str(path)), np.minimum(2.0 * image, 255))
    path.write_text("1 1\n1\n")
    assert np.array_equal(conv.filter(image, str(path)), image)


def test_names_and_flat_images(rng):
    """Flat images stay flat: `gaussian-fast` changed float32 samples by up to 24 units in the last place."""
    names = [entry.name for entry in conv.filters()]
    assert "emboss" in names and len(names) == len(set(names)) > 10
    assert "gaussian:SIGMA" in names and all(entry.summary for entry in conv.filters() + conv.banks())
    usable = [re.sub(r".*for example (.*)\)$|.*", r"\1", entry.summary) or entry.name for entry in conv.filters() + conv.banks()]
    for name, dtype, border in itertools.product(usable[: len(names)], ("u1", "u2", "f4"), ("replicate", "reflect101", "wrap")):
        value = np.array(10 ** rng.uniform(-18, 18) if dtype == "f4" else rng.integers(256), dtype)
        level = 0 if re.match("edge|lapl|sobel|prewitt|scharr|log|dog", name) else value
        off = conv.filter(np.full((9, 40), value), name, border=border) - np.float64(level)
        assert np.ptp(off) == 0 and abs(off[0, 0]) <= value * (2.0**-48 if ":" in name else 2.0**-19) * (dtype == "f4"), name
    assert len(usable) > len(names) and all(conv.bank(name).ndim == 4 for name in usable[len(names) :])


@pytest.mark.parametrize(
    "prepared",
    (
        conv.Filter("gaussian5,sharpen", border="wrap"),
        conv.Filter("custom", kernel="1 2 1 2 4 2 1 2 1", divisor="sum", bias=3),
        conv.Filter([[1, 0, -2.5]], divisor=2, bias=7, flip=True),
        conv.Filter("sharpen", side=5, floats=True),
    ),
    ids=repr,
)
def test_filters_are_pickled(prepared, noise):
    """A Dataset that holds a Filter is pickled for workers that are spawned."""
    image = noise((20, 30, 3))
    for again in (pickle.loads(pickle.dumps(prepared)), copy.deepcopy(prepared)):
        assert repr(again) == repr(prepared) and again == prepared and hash(again) == hash(prepared)
        assert prepared != conv.Filter("sobel") and prepared != "sobel"
        assert np.array_equal(again(image), prepared(image))


@pytest.mark.parametrize("dtype", ("uint8", "uint16"))
@pytest.mark.parametrize("alpha", (None, "premultiply"))
def test_luma_alone(noise, dtype, alpha):
    """The gray image of the luminance is filtered, and its change added to the colours."""
    image = noise((31, 18, 4), dtype)
    weighed = image[..., :3].astype(np.int64) @ [299, 587, 114]
    quotient, rest = np.divmod(weighed, 1000)
    old = (quotient + ((rest > 500) | ((rest == 500) & (quotient % 2 == 1)))).astype(dtype)
    gray = conv.filter(np.stack([old, image[..., 3]], -1), "sharpen", alpha=alpha)
    changed = image[..., :3].astype(np.int64) + gray[..., :1] - old[..., None]
    wanted = np.dstack([np.clip(changed, 0, np.iinfo(dtype).max), gray[..., 1]])
    result = conv.filter(image, "sharpen", luma=True, alpha=alpha)
    assert result.dtype == dtype and np.array_equal(result, wanted)
    assert np.array_equal(conv.filter(image[..., :3].transpose(2, 0, 1), "sharpen", luma=True, layout="CHW"),
                          conv.filter(image[..., :3], "sharpen", luma=True).transpose(2, 0, 1))
    both = conv.filter([image[..., 0], image], "sharpen", luma=True, alpha=alpha)
    assert np.array_equal(both[0], conv.filter(image[..., 0], "sharpen")) and np.array_equal(both[1], result)
    same = pickle.loads(pickle.dumps(conv.Filter("sharpen", luma=True, alpha=alpha)))
    assert np.array_equal(same(image), result)
    with pytest.raises(ValueError, match="luma"):
        conv.filter(image, "sharpen", luma=True, dtype="float32")
    with pytest.raises(ValueError, match="luminance"):
        conv.filter(image.astype("float32"), "sharpen", luma=True)


def bell(sigma, power=0):
    x = np.arange(-np.ceil(9 * sigma), np.ceil(9 * sigma) + 1)
    line = np.exp(-(x**2) / 2 / sigma**2)
    return line / line.sum() * ((x**2 - (x**2 * line).sum() / line.sum()) / sigma**2) ** (power / 2)


@pytest.mark.parametrize("text, products", (
    *((f"gaussian:{s}", [(bell(s), bell(s))]) for s in (0.3, 0.8, 2.5, 3.8, 3.81, 5, 5.69, 7.4, 7.7, 12, 31, 250)),
    *((f"blur:{r}", [(np.clip(r + 1 - abs(np.arange(-15.0, 16)), 0, 1) / (2 * r + 1),) * 2]) for r in (0.4, 1, 3)),
    *((f"unsharp:{s},0.8", [(bell(0.01), 1.8 * bell(0.01)), (bell(s), -0.8 * bell(s))]) for s in (2, 3.3, 4.3, 9)),
    ("motion:31", [(bell(0.01), np.ones(31) / 31)]), ("log:1.5", [(bell(1.5), bell(1.5, 2)), (bell(1.5, 2), bell(1.5))]),
    ("dog:1,1.6", [(bell(1), bell(1)), (bell(1.6), -bell(1.6))]), ("gaussian-fast:1.5", [(np.array([2, 9, 28, 55, 68, 55, 28, 9, 2]) / 256,) * 2])))
@pytest.mark.parametrize("border, mode, outside", (("replicate", "edge", 0), ("reflect", "symmetric", 0), ("wrap", "wrap", 0),
                                                   ("reflect101", "reflect", 0), ("constant:0.2", "constant", np.float32(0.2))))
def test_float32_images_have_float32_accuracy(text, products, border, mode, outside):
    """Their coefficients were the integers of 8 bits: about 11 correct bits. Then Gaussians ended at 4 sigma, or 3."""
    def matrix(line, n):  # row y has the weight of every sample of a line in its result y
        padded = np.pad(np.eye(n), ((len(line) // 2,) * 2, (0, 0)), mode=mode)
        return np.lib.stride_tricks.sliding_window_view(padded, len(line), 0) @ line
    for shape in ((70, 90), (131, 2), (1, 9), (1, 1)):
        image = np.random.default_rng(5).random(shape, np.float32)
        wanted = sum(matrix(down, shape[0]) @ (image - outside) @ matrix(across, shape[1]).T
                     + outside * down.sum() * across.sum() for down, across in products)
        assert np.abs(conv.filter(image, text, border=border) - wanted).max() <= 2.0**-20
        normal = np.random.default_rng(7).standard_normal(shape, np.float32)  # sums of means were often halfway between two floats
        assert text == "motion:31" or np.array_equal(conv.filter(normal.T.copy(), text, border=border).T, conv.filter(normal, text, border=border))
    planes = np.random.default_rng(6).random((3, 2, 1700), np.float32)  # with pixels instead, rows are cut into strips
    assert np.array_equal(conv.filter(np.moveaxis(planes, 0, -1).copy(), text, border=border),
                          np.moveaxis(conv.filter(planes, text, border=border, layout="CHW"), 0, -1))
