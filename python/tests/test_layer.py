# SPDX-License-Identifier: MIT
"""layer and Layer on the CPU, against sums in float64."""

import copy
import pickle

import numpy as np
import pytest

import conv


def expected(x, w, bias, stride, pad, dilation=1, groups=1):
    """stride and dilation: of both axes, or of each; pad: of all sides, or pairs for each axis."""
    (down, across), (far, wide) = np.broadcast_to(stride, 2), np.broadcast_to(dilation, 2)
    x = np.pad(x.astype(np.float64), ((0, 0), (0, 0), *np.broadcast_to(pad, (2, 2))))
    height = (x.shape[2] - (w.shape[2] - 1) * far - 1) // down + 1
    width = (x.shape[3] - (w.shape[3] - 1) * wide - 1) // across + 1
    y = np.zeros((x.shape[0], groups, w.shape[0] // groups, height, width))
    grouped = w.reshape(groups, -1, *w.shape[1:])
    for u in range(w.shape[2]):
        for v in range(w.shape[3]):
            part = x[:, :, u * far :: down, v * wide :: across][:, :, :height, :width]
            y += np.einsum("ngcij,gmc->ngmij", part.reshape(len(x), groups, -1, height, width), grouped[..., u, v])
    return y.reshape(len(x), -1, height, width) + bias[None, :, None, None]


@pytest.mark.parametrize("padding,pad", (((1, 2), ((1, 1), (2, 2))), (((0, 1), (2, 3)), ((0, 1), (2, 3))), ("2:0x1", ((2, 0), (1, 1))),
                                         ("same_lower", ((1, 1), (3, 2))), ("same_upper", ((1, 1), (2, 3)))))
@pytest.mark.parametrize("groups", (1, 2, 4))
def test_steps_sides_and_groups(rng, padding, pad, groups):
    x = rng.standard_normal((2, 4, 15, 22), dtype=np.float32)
    w = rng.standard_normal((8, 4 // groups, 3, 4), dtype=np.float32)
    bias = rng.standard_normal(8, dtype=np.float32)
    how = {"stride": [2, 1], "padding": padding, "dilation": (1, 2) if groups == 1 else (np.int64(1), 2), "groups": groups}
    if "same" in padding:
        how["stride"] = 2
    y = conv.layer(x, w, bias, **how)
    wanted = expected(x, w, bias, how["stride"], pad, (1, 2), groups)
    assert y.dtype == np.float32 and y.shape == wanted.shape
    assert np.allclose(y, wanted, rtol=1e-4, atol=1e-4) and np.abs(wanted).max() > 5
    half = conv.layer(x, w, bias, dtype="float16", **how)
    assert half.dtype == np.float16 and np.array_equal(half, y.astype(np.float16))
    again = pickle.loads(pickle.dumps(conv.Layer(w, bias, **how)))
    assert np.array_equal(again(x), y) and np.array_equal(again(x[1]), y[1])


@pytest.mark.parametrize("padding,pad", ((2, (2, 2)), ((1,), (1, 1)), (((1, 0),), (1, 0)), ("same", (2, 2)), ("1:2", (1, 2))))
def test_one_axis(rng, padding, pad):
    x, w = rng.standard_normal((3, 4, 30), dtype=np.float32), rng.standard_normal((6, 2, 3), dtype=np.float32)
    prepared = conv.Layer(w, np.arange(6), padding=padding, dilation=(2,), groups=2, stride=3)
    wanted = expected(x[:, :, None], w[:, :, None], np.arange(6), (1, 3), ((0, 0), pad), (1, 2), 2)[:, :, 0]
    y = prepared(x)
    assert y.shape == wanted.shape and np.allclose(y, wanted, rtol=1e-4, atol=1e-4)
    assert np.array_equal(prepared(x[1]), y[1]) and np.array_equal(prepared(x.copy()[:, :, ::-1][:, :, ::-1]), y)
    assert np.array_equal(copy.deepcopy(prepared)(x, out=np.empty_like(y)), y)
    with pytest.raises(ValueError, match="channels x length"):
        prepared(x[None])


def test_out_overlaps_the_input(rng):
    x = rng.standard_normal((2, 3, 9, 9)).astype(np.float32)
    w = rng.standard_normal((3, 3, 3, 3)).astype(np.float32)
    with pytest.raises(ValueError, match="overlap"):
        conv.layer(x, w, padding="same", out=x)


def test_activations_and_padding(rng):
    x = rng.standard_normal((1, 3, 9, 11), dtype=np.float32)
    w = rng.standard_normal((2, 3, 3, 3), dtype=np.float32)
    y = conv.layer(x, w, padding="same")
    assert y.shape == (1, 2, 9, 11) and np.array_equal(y, conv.layer(x, w, padding=1))
    assert np.array_equal(conv.layer(x, w, padding="same", activation="relu"), np.maximum(y, 0))
    assert np.array_equal(conv.layer(x, w, padding="same", activation="abs"), np.abs(y))
    assert np.allclose(conv.layer(x, w, padding="same", activation="tanh"), np.tanh(y), atol=1e-5)
    edge = conv.layer(np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)), mode="edge"), w)
    assert np.array_equal(conv.layer(x, w, padding=1, border="replicate"), edge)


def test_bytes_as_input(rng):
    x = rng.integers(0, 256, (2, 3, 9, 11), dtype=np.uint8)
    w = rng.standard_normal((2, 3, 3, 3), dtype=np.float32)
    assert np.array_equal(conv.layer(x, w), conv.layer(x.astype(np.float32), w))
    scaled = conv.Layer(w, np.arange(2), input_divisor=255, input="uint8", activation="relu")
    y = scaled(x)
    assert np.allclose(y, conv.layer(x.astype(np.float32) / 255, w, np.arange(2), activation="relu"), atol=1e-5)
    assert np.array_equal(pickle.loads(pickle.dumps(scaled))(x), y) and np.array_equal(copy.deepcopy(scaled)(x), y)


def test_prepared_layers_out_and_gaps(rng):
    x = rng.standard_normal((4, 3, 9, 24), dtype=np.float32)
    w = rng.standard_normal((2, 3, 3, 3))  # float64: converted
    prepared = conv.Layer(w, padding="same")
    w2 = w.copy()
    w[:] = 0  # has been copied
    y = conv.layer(x, w2, padding="same")
    assert y.any() and np.array_equal(prepared(x), y)
    out = np.empty_like(y)
    assert prepared(x, out=out) is out and np.array_equal(out, y)
    with pytest.raises(BufferError):
        prepared(x, out=np.empty((4, 2, 9, 48), np.float32)[..., ::2])
    for view in (x[::2], x[:, :, 2:7], x[..., 3:20], x[..., ::2], x[::-1], x[:, :, ::-1]):
        assert np.array_equal(prepared(view), prepared(np.ascontiguousarray(view)))
    assert "2 maps" in repr(prepared) and prepared.stride == (1, 1) and prepared.bias is None and np.array_equal(prepared.weights, np.float32(w2))


def test_banks(rng):
    """The responses of a bank are those of its filters."""
    weights = conv.bank("gabor:1x4")
    assert weights.dtype == np.float32 and weights.ndim == 4 and weights.shape[1] == 1
    x = rng.standard_normal((2, 1, 40, 50), dtype=np.float32)
    side = weights.shape[2]
    windows = np.lib.stride_tricks.sliding_window_view(x[:, 0].astype(np.float64), (side, weights.shape[3]), (1, 2))
    wanted = np.einsum("nyxij,mij->nmyx", windows, weights[:, 0].astype(np.float64))
    assert np.abs(conv.layer(x, weights) - wanted).max() < 1e-4
    with pytest.raises(ValueError):
        conv.bank("gabr:4x8")
