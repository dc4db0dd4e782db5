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


def pair(number):
    return (number, number) if isinstance(number, int) else number


def sides_of(padding, kernel, size=(1, 1), stride=1, dilation=1):
    """The top, bottom, left and right samples of a text; kernel and size: height, width of kernel and input."""
    if padding[0].isdigit():
        axes = (padding.split("x") * 2)[:2]
        return sum(((int(axis.split(":")[0]), int(axis.split(":")[-1])) for axis in axes), ())
    sides = ()
    for taps, samples, step, distance in zip(kernel, size, pair(stride), pair(dilation)):
        more = {"valid": 0, "same": (taps - 1) * distance}.get(padding)
        if more is None:
            more = max((-(-samples // step) - 1) * step + (taps - 1) * distance + 1 - samples, 0)
        sides += ((more + 1) // 2, more // 2) if padding == "same_lower" else (more // 2, (more + 1) // 2)
    return sides


def layer(x, w, bias=None, stride=1, sides=(0, 0, 0, 0), border="constant", value=0, dilation=1, groups=1):
    """x: (images, channels, height, width) of float32. Additions in the order channel, row, column."""
    x = pad(x.astype(np.float32), sides, border, value)
    (down, across), (far, wide) = pair(stride), pair(dilation)
    maps, channels, height, width = w.shape
    rows = (x.shape[2] - (height - 1) * far - 1) // down + 1
    columns = (x.shape[3] - (width - 1) * wide - 1) // across + 1
    group = np.arange(maps) // (maps // groups) * channels  # the first channel of each map's group
    out = np.zeros((len(x), maps, rows, columns), np.float32)
    if bias is not None:
        out += bias.astype(np.float32)[:, None, None]
    for c in range(channels):
        for u in range(height):
            for v in range(width):
                top, left = u * far, v * wide
                samples = x[:, group + c, top:top + rows * down:down, left:left + columns * across:across]
                out = fma(np.broadcast_to(w[:, c, u, v, None, None], out.shape), samples, out)
    return out


def layer64(x, w, bias=None):
    """The same in float64, by windows, without padding and stride."""
    windows = np.lib.stride_tricks.sliding_window_view(x.astype(np.float64), w.shape[2:], axis=(2, 3))
    out = np.einsum("nchwuv,mcuv->nmhw", windows, w.astype(np.float64))
    return out if bias is None else out + bias[:, None, None]
