# SPDX-License-Identifier: MIT
"""An independent definition of a filter in NumPy integers, slow, with which every output is compared."""
import glob
import os

import numpy as np

import program

BORDERS = ("replicate", "reflect", "reflect101", "wrap", "constant")


class Filter:
    def __init__(self, coefficients, scale=1.0, offset=0.0, magnitude=False):
        self.c = np.atleast_2d(np.array(coefficients, np.float64))
        self.scale, self.offset, self.magnitude = float(scale), float(offset), magnitude

    def flipped(self):
        return Filter(self.c[::-1, ::-1], self.scale, self.offset, self.magnitude)

    def text(self):
        """In libvips' matrix format."""
        lines = [f"{self.c.shape[1]} {self.c.shape[0]} {self.scale!r} {self.offset!r}"]
        return "\n".join(lines + [" ".join(repr(v) for v in row) for row in self.c.tolist()]) + "\n"


def load(path):
    """A file in libvips' matrix format."""
    with open(path) as file:
        lines = [line.split() for line in file if line.strip()]
    head = [float(v) for v in lines[0]] + [1.0, 0.0][len(lines[0]) - 2:]
    coefficients = [[float(v) for v in line] for line in lines[1:]]
    assert np.array(coefficients).shape == (head[1], head[0]), path
    return Filter(coefficients, head[2], head[3])


def builtins():
    """name -> Filter, from the files that are embedded into the binary, and magnitudes of their gradients."""
    paths = sorted(glob.glob(os.path.join(program.ROOT, "filters", "*.mat")))
    filters = {os.path.basename(path)[:-4]: load(path) for path in paths}
    for name in ("prewitt", "scharr", "sobel"):
        filters[name] = Filter(filters[f"{name}-x"].c, magnitude=True)
    return filters


def source(border, x, n):
    """Index that coordinate x of a line of n samples is read from; -1 is the constant."""
    if 0 <= x < n:
        return x
    if border == "replicate":
        return min(max(x, 0), n - 1)
    if border == "wrap":
        return x % n
    if border == "reflect":
        x %= 2 * n
        return x if x < n else 2 * n - 1 - x
    if border == "reflect101":
        x = x % (2 * n - 2) if n > 1 else 0
        return x if x < n else 2 * n - 2 - x
    return -1


def extend(plane, rx, ry, border, value):
    """The plane with rx columns and ry rows more on each side."""
    height, width = plane.shape
    wider = np.concatenate([plane.astype(np.int64), np.full((1, width), value)])
    wider = np.concatenate([wider, np.full((height + 1, 1), value)], 1)  # index -1 is now the constant
    rows = [source(border, y, height) for y in range(-ry, height + ry)]
    columns = [source(border, x, width) for x in range(-rx, width + rx)]
    return wider[np.ix_(rows, columns)]


def fma32(a, b, c):
    """fmaf(a, b, c) on float32 arrays whose products are exact in float64 (24 + 16 bits).

    The float64 sum is rounded to odd, from which rounding to float32 gives the correctly rounded result (Boldo and
    Melquiond, "Emulation of a FMA and correctly rounded sums", 2008).
    """
    product, c = a.astype(np.float64) * b, c.astype(np.float64)
    total = product + c
    part = total - product
    error = (product - (total - part)) + (c - part)
    bits = total.view(np.int64).copy()
    away = (error > 0) == (total > 0)
    even = (error != 0) & (bits & 1 == 0)
    bits += np.where(even, np.where(away, 1, -1), 0)
    return bits.view(np.float64).astype(np.float32)


def magnitude(wide, filt, unit, plane, floats):
    """Of the gradient whose x component is the filter and whose y component is its transpose, in float32."""
    height, width = plane.shape
    g = [sum(int(m[j, i]) * wide[j:j + height, i:i + width] for j in range(len(m)) for i in range(len(m))).astype(np.float32)
         for m in (filt.c, filt.c.T)]
    out = np.sqrt(g[0] * g[0] + g[1] * g[1]) / np.float32(filt.scale) + np.float32(filt.offset * unit)
    assert out.dtype == np.float32
    if floats:
        return out
    return np.clip(np.rint(out), 0, np.iinfo(plane.dtype).max).astype(plane.dtype)


def apply(plane, filt, border="replicate", value=0, floats=False):
    """The filtered plane. `value` (constant border) and the offset are in 8-bit units. `floats`: float32 results, neither
    rounded nor clamped."""
    top = int(np.iinfo(plane.dtype).max)
    unit = 257 if top == 65535 else 1
    height, width = plane.shape
    kh, kw = filt.c.shape
    wide = extend(plane, kw // 2, kh // 2, border, value * unit)
    if filt.magnitude:
        return magnitude(wide, filt, unit, plane, floats)
    taps = [(filt.c[j, i], wide[j:j + height, i:i + width]) for j in range(kh) for i in range(kw)]
    if (filt.c % 1 == 0).all() and filt.scale % 1 == 0 and filt.offset % 1 == 0:
        sign = -1 if filt.scale < 0 else 1
        divisor = int(abs(filt.scale))
        total = sum((int(c) * sign) * p for c, p in taps) + int(filt.offset) * unit * divisor
        if floats:
            return (total / divisor).astype(np.float32)
        floor, rest = total // divisor, total % divisor
        up = (2 * rest > divisor) | ((2 * rest == divisor) & (floor % 2 == 1))
        return np.clip(floor + up, 0, top).astype(plane.dtype)
    acc = np.full((height, width), np.float32(filt.offset * unit), np.float32)
    for c, p in taps:
        c = np.float32(c / filt.scale)
        if c != 0:
            acc = fma32(np.full(p.shape, c), p, acc)
    if floats:
        return acc
    return np.clip(np.rint(acc), 0, top).astype(plane.dtype)


def saturated(planes):
    """Share of samples at the ends of the range: outputs that are mostly clipped prove little."""
    top = np.iinfo(planes.dtype).max
    return float(((planes == 0) | (planes == top)).mean())


def apply_image(planes, has_alpha, filters, border="replicate", value=0, alpha="keep"):
    """The whole program on one image: each filter of the chain after the other on all channels."""
    top = int(np.iinfo(planes.dtype).max)
    for filt in filters:
        work = planes.astype(np.int64)
        if has_alpha and alpha == "premultiply":
            work[:-1] = (work[:-1] * work[-1] * 2 + top) // (2 * top)
        work = work.astype(planes.dtype)
        out = np.stack([apply(p, filt, border, value) for p in work])
        if has_alpha and alpha == "keep":
            out[-1] = planes[-1]
        if has_alpha and alpha == "premultiply":
            a, wide = out[-1].astype(np.int64), out[:-1].astype(np.int64)
            divided = np.minimum((wide * top * 2 + a) // np.maximum(2 * a, 1), top)
            out[:-1] = np.where(a > 0, divided, 0).astype(out.dtype)
        planes = out
    return planes
