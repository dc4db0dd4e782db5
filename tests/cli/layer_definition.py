# SPDX-License-Identifier: MIT
"""What a convolution layer computes, in NumPy: to the bit, and in float64."""
import numpy as np

BORDERS = {"replicate": "edge", "reflect": "symmetric", "reflect101": "reflect", "wrap": "wrap"}


def fma(a, b, c):
    """a * b + c of float32, rounded once: the product is exact in float64, the sum is rounded to odd there."""
    product, c = a.astype(np.float64) * b.astype(np.float64), c.astype(np.float64)
    total = product + c
    with np.errstate(invalid="ignore"):
        part = total - product
        error = (product - (total - part)) + (c - part)
    inexact = np.isfinite(total) & (error != 0) & (total.view(np.int64) & 1 == 0)
    total = np.where(inexact, np.nextafter(total, np.where(error > 0, np.inf, -np.inf)), total)
    with np.errstate(over="ignore"):
        return total.astype(np.float32)


def pad(x, sides, border="constant", value=0):
    """sides: top, bottom, left, right."""
    top, bottom, left, right = sides
    widths = ((0, 0), (0, 0), (top, bottom), (left, right))
    if border == "constant":
        return np.pad(x, widths, constant_values=np.float32(value))
    return np.pad(x, widths, mode=BORDERS[border])


def sides_of(padding, height, width):
    if padding == "same":
        return (height - 1) // 2, height // 2, (width - 1) // 2, width // 2
    return (0 if padding == "valid" else int(padding),) * 4


def layer(x, w, bias=None, stride=1, sides=(0, 0, 0, 0), border="constant", value=0):
    """x: (images, channels, height, width) of float32. Additions in the order channel, row, column."""
    x = pad(x.astype(np.float32), sides, border, value)
    maps, channels, height, width = w.shape
    rows, columns = (x.shape[2] - height) // stride + 1, (x.shape[3] - width) // stride + 1
    out = np.zeros((len(x), maps, rows, columns), np.float32)
    if bias is not None:
        out += bias.astype(np.float32)[:, None, None]
    for c in range(channels):
        for u in range(height):
            for v in range(width):
                samples = x[:, None, c, u:u + rows * stride:stride, v:v + columns * stride:stride]
                out = fma(np.broadcast_to(w[:, c, u, v, None, None], out.shape),
                          np.broadcast_to(samples, out.shape), out)
    return out


def layer64(x, w, bias=None):
    """The same in float64, by windows, without padding and stride."""
    windows = np.lib.stride_tricks.sliding_window_view(x.astype(np.float64), w.shape[2:], axis=(2, 3))
    out = np.einsum("nchwuv,mcuv->nmhw", windows, w.astype(np.float64))
    return out if bias is None else out + bias[:, None, None]
