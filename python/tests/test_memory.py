# SPDX-License-Identifier: MIT
"""Arguments that share memory, and samples at any address: right or refused, judged by numpy.shares_memory."""

import os

import numpy as np
import pytest

import conv

ROUNDS = int(os.environ.get("CONV_ROUNDS", "300"))


def random_view(rng, base, height, width, channels):
    """An image somewhere in a buffer: crops, every other row or column, channels, mirrored, planes."""
    item = base.itemsize
    row = int(rng.choice((40, 80, 44))) * item
    column = int(rng.choice((1, 3, 4, 6))) * item
    channel = item if rng.random() < 0.6 else 10 * row
    if channel == item:
        column = max(column, channels * item)
    signs = rng.choice((1, 1, 1, -1), 2) if rng.random() < 0.3 else (1, 1)
    strides = (row * signs[0], column * signs[1], channel)
    first = int(rng.integers(0, 200)) + sum(-s * (n - 1) // item for s, n in zip(strides, (height, width)) if s < 0)
    return np.lib.stride_tricks.as_strided(base[first:], (height, width, channels), strides)


def is_mirrored(view):
    return any(stride < 0 for stride, length in zip(view.strides, view.shape) if length > 1)


def clash(outs):
    """Whether something is written twice. Images that results overlap are copied before anything is written."""
    return any(np.shares_memory(out, other) for i, out in enumerate(outs) for other in outs[:i])


@pytest.mark.parametrize("dtype", (np.uint8, np.uint16, np.float32))
def test_lists_with_views_of_one_buffer(rng, dtype):
    """1.0.0 compared a result with its own image only: out=[y, x] of [x, y] was wrong, without an error."""
    refused = done = 0
    for _ in range(ROUNDS):
        base = rng.integers(0, 250, 3000).astype(dtype)
        shapes = [(*map(int, rng.integers(1, 6, 2)), int(rng.choice((1, 3)))) for _ in range(rng.integers(1, 4))]
        sources = [random_view(rng, base, *shape) for shape in shapes]
        outs = [source if rng.random() < 0.3 else random_view(rng, base, *shape) for source, shape in zip(sources, shapes)]
        before, wanted = base.copy(), [conv.filter(source, "sharpen") for source in sources]
        try:
            conv.filter(sources, "sharpen", out=outs)
        except (ValueError, BufferError):
            assert any(map(is_mirrored, outs)) or clash(outs)
            assert np.array_equal(base, before)
            refused += 1
        else:
            assert not clash(outs)
            assert all(np.array_equal(out, right) for out, right in zip(outs, wanted))
            done += 1
    assert ROUNDS < 300 or (refused > 30 and done > 30)


def test_batches_that_overlap(noise):
    """out is the batch, moved by any number of bytes, or a part of it in another order."""
    items = noise((4, 6, 5, 3))
    wanted = conv.filter(items, "blur")
    for shift in range(-2 * 90, 2 * 90 + 1):
        base = np.zeros(4 * 360, np.uint8)
        source = base[360 : 360 + 270].reshape(3, 6, 5, 3)
        source[:] = items[:3]
        out = base[360 + shift : 360 + 270 + shift].reshape(3, 6, 5, 3)
        assert np.array_equal(conv.filter(source, "blur", out=out), wanted[:3])
    stack = np.concatenate([items, items])
    assert np.array_equal(conv.filter(stack[0::2], "blur", out=stack[1::2]), wanted[[0, 2, 0, 2]])
    x, y = items[0].copy(), items[1].copy()
    for images, outs in (([x, x], [x, x]), ([x, y], [y, y]), ([x, y], [x, x]), ([x, y], [x, x])):
        with pytest.raises(ValueError):
            conv.filter(images, "blur", out=outs)
    assert np.array_equal(x, items[0]) and np.array_equal(y, items[1])
    conv.filter([x, y], "blur", out=[y, x])
    assert np.array_equal(y, wanted[0]) and np.array_equal(x, wanted[1])
    conv.filter([x, y], "blur", out=[x, y])
    assert np.array_equal(y, conv.filter(wanted[0], "blur")) and np.array_equal(x, conv.filter(wanted[1], "blur"))
    stack = items.copy()
    conv.filter(stack[:3], "blur", out=stack[1:])
    assert np.array_equal(stack[1:], wanted[:3]) and np.array_equal(stack[0], items[0])


def test_channels_and_tiles_in_place(noise):
    """Views whose extents overlap although they have no byte in common."""
    image = noise((24, 30, 3))
    wanted = conv.filter(image, "blur")
    planes = image.copy()
    channels = [planes[..., c] for c in range(3)]
    conv.filter(channels, "blur", out=channels, layout="HW")
    assert np.array_equal(planes, wanted)
    mixed = np.zeros_like(image)
    conv.filter([image[..., c] for c in range(3)], "blur", layout="HW", out=[mixed[..., c] for c in (2, 1, 0)])
    assert np.array_equal(mixed[..., ::-1], wanted)
    tiles = [image[y : y + 7, x : x + 8] for y in range(0, 24, 7) for x in range(0, 30, 8)]
    right = [conv.filter(tile, "blur") for tile in tiles]
    conv.filter(tiles, "blur", out=tiles)
    assert all(np.array_equal(tile, one) for tile, one in zip(tiles, right))


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


def test_layers_that_overlap(rng):
    room = rng.standard_normal(4000).astype(np.float32)
    room = room[(16 - room.ctypes.data % 64) % 64 // 4 :]
    weights = np.ones((3, 3, 1, 1), np.float32)
    for at in range(0, 600, 4):
        source = room[300 : 300 + 2 * 75].reshape(2, 3, 5, 5)
        out = room[at : at + 150].reshape(2, 3, 5, 5)
        before = room.copy()
        if np.shares_memory(source, out):
            with pytest.raises(ValueError, match="overlap"):
                conv.layer(source, weights, out=out)
            assert np.array_equal(room, before)
        elif out.ctypes.data % 16:
            with pytest.raises(BufferError):
                conv.layer(source, weights, out=out)
        else:
            conv.layer(source, weights, out=out)
            assert np.array_equal(out, conv.layer(source, weights))


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
