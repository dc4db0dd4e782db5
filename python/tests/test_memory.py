# SPDX-License-Identifier: MIT
"""Arguments that share memory, and samples at any address: right or refused."""

import numpy as np
import pytest

import conv


def test_images_that_overlap(noise):
    """Each result is compared with all images of the call: those that results overlap are copied."""
    items = noise((4, 6, 5, 3))
    wanted = conv.filter(items, "blur")
    x, y = items[0].copy(), items[1].copy()
    for images, outs in (([x, x], [x, x]), ([x, y], [y, y])):
        with pytest.raises(ValueError, match="overlap"):
            conv.filter(images, "blur", out=outs)
    assert np.array_equal(x, items[0]) and np.array_equal(y, items[1])
    conv.filter([x, y], "blur", out=[y, x])
    assert np.array_equal(y, wanted[0]) and np.array_equal(x, wanted[1])
    stack = items.copy()
    conv.filter(stack[:3], "blur", out=stack[1:])
    assert np.array_equal(stack[1:], wanted[:3]) and np.array_equal(stack[0], items[0])
    image = items[0].copy()
    channels = [image[..., c] for c in range(3)]  # their extents overlap, but no bytes
    conv.filter(channels, "blur", out=channels, layout="HW")
    assert np.array_equal(image, wanted[0])


def test_decoding_into_shared_memory(noise):
    images = [noise((5, 7)) for _ in range(3)]
    files = conv.encode_png(images)
    room = np.zeros((5, 7, 3), np.uint8)
    conv.decode_png(files, out=[room[..., c] for c in range(3)], layout="HW")
    assert all(np.array_equal(room[..., c], images[c]) for c in range(3))
    line = np.zeros(400, np.uint8)
    at = lambda first: line[first : first + 35].reshape(5, 7)  # noqa: E731
    for outs in ([at(0), at(34), at(100)], [at(0), at(100), at(100)], [at(50), at(20), at(120)]):
        for options in ({}, {"errors": "return"}):
            with pytest.raises(ValueError, match="overlap"):
                conv.decode_png(files, out=outs, **options)
            assert not line.any()
    # The memory of a file, too.
    size = len(files[1])
    for first in range(0, 400 - 35, 5):
        line[200 : 200 + size] = np.frombuffer(files[1], np.uint8)
        shares = first + 35 > 200 and first < 200 + size
        call = [files[0], line[200 : 200 + size], files[2]], [np.empty((5, 7), np.uint8), np.empty((5, 7), np.uint8), at(first)]
        if shares:
            with pytest.raises(ValueError, match="overlap"):
                conv.decode_png(call[0], out=call[1])
        else:
            conv.decode_png(call[0], out=call[1])
            assert all(np.array_equal(out, image) for out, image in zip(call[1], images))


@pytest.mark.parametrize("dtype", (np.uint16, np.float32))
def test_samples_at_any_address(rng, dtype):
    """Packed records, files mapped behind a header, slices of received bytes. 1.0.0 refused them."""
    size = np.dtype(dtype).itemsize
    image = rng.integers(0, 60000, (7, 9, 3)).astype(dtype)
    wanted = conv.filter(image, "sharpen")
    for offset in range(1, 2 * size):
        raw = bytearray(offset + image.nbytes)
        moved = np.frombuffer(raw, dtype, image.size, offset).reshape(image.shape)
        moved[:] = image
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
    x = rng.standard_normal((2, 3, 8, 9)).astype(np.float32)
    weights = rng.standard_normal((4, 3, 3, 3)).astype(np.float32)
    bias = rng.standard_normal(4).astype(np.float32)
    wanted = conv.layer(x, weights, bias)

    def moved(array, offset):
        raw = np.zeros(array.nbytes + offset, np.uint8)
        view = np.ndarray(array.shape, array.dtype, raw, offset)
        view[:] = array
        return view

    for offset in range(1, 9):
        assert np.array_equal(conv.layer(moved(x, offset), moved(weights, offset), moved(bias, offset)), wanted)
        assert np.array_equal(conv.filter(x, moved(weights, offset)[0, 0], layout="CHW"), conv.filter(x, weights[0, 0], layout="CHW"))
        out = moved(np.zeros_like(wanted), offset)
        if out.ctypes.data % 16:
            with pytest.raises(BufferError):
                conv.layer(x, weights, bias, out=out)
