# SPDX-License-Identifier: MIT
"""Samples at any address: right or refused. Arguments that share memory: tests/unit/test_api_apart.c."""

import numpy as np
import pytest

import conv


def move(array, offset):
    raw = bytearray(array.nbytes + offset)
    view = np.ndarray(array.shape, array.dtype, raw, offset)
    view[:] = array
    return view


@pytest.mark.parametrize("dtype", (np.uint16, np.float32))
def test_samples_at_any_address(rng, dtype):
    """Packed records, files mapped behind a header, slices of received bytes. 1.0.0 refused them."""
    size = np.dtype(dtype).itemsize
    image = rng.integers(0, 60000, (7, 9, 3)).astype(dtype)
    wanted = conv.filter(image, "sharpen")
    for offset in range(1, 2 * size):
        moved = move(image, offset)
        assert np.array_equal(conv.filter(moved, "sharpen"), wanted)
        assert np.array_equal(conv.filter([moved, image], "sharpen")[0], wanted)
        assert np.array_equal(conv.filter(memoryview(moved), "sharpen"), wanted)
        assert np.array_equal(conv.filter(moved[::-1, ::2], "sharpen"), conv.filter(image[::-1, ::2], "sharpen"))
        if dtype == np.uint16:
            assert conv.encode_png(moved) == conv.encode_png(image)
        elif offset % size:
            with pytest.raises(BufferError):
                conv.filter(image, "sharpen", out=moved)
            assert np.array_equal(moved, image)
    records = np.zeros(7, [("head", "u1"), ("samples", dtype, (9, 3))])
    records["samples"] = image
    assert records["samples"].strides[0] % size and np.array_equal(conv.filter(records["samples"], "sharpen"), wanted)
    with pytest.raises(BufferError):
        conv.filter(image, "sharpen", out=records["samples"])
    with pytest.raises(BufferError):
        conv.decode_png(conv.encode_png(image.astype(np.uint16)), out=np.zeros(7, [("h", "u1"), ("s", "u2", (9, 3))])["s"])


def test_layers_with_samples_at_any_address(rng):
    x, weights, bias = (rng.standard_normal(shape, np.float32) for shape in ((2, 3, 8, 9), (4, 3, 3, 3), 4))
    wanted = conv.layer(x, weights, bias)

    for offset in range(1, 9):
        assert np.array_equal(conv.layer(move(x, offset), move(weights, offset), move(bias, offset)), wanted)
        assert np.array_equal(conv.filter(x, move(weights, offset)[0, 0], layout="CHW"), conv.filter(x, weights[0, 0], layout="CHW"))
        out = move(np.zeros_like(wanted), offset)
        if out.ctypes.data % 16:
            with pytest.raises(BufferError):
                conv.layer(x, weights, bias, out=out)
