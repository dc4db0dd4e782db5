# SPDX-License-Identifier: MIT
"""An independent definition of a filter in NumPy integers, slow, with which every output is compared."""
import functools
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
    """name -> Filter, from the files that are embedded into the binary, and their gradient magnitudes."""
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


@functools.lru_cache(maxsize=None)
def sources(border, n, radius):
    return np.array([source(border, x, n) for x in range(-radius, n + radius)])


def extend(planes, rx, ry, border, value):
    """The planes (channels, height, width) with rx more columns and ry more rows on each side."""
    channels, height, width = planes.shape
    wider = np.full((channels, height + 1, width + 1), value, np.int64)  # index -1 is the constant
    wider[:, :height, :width] = planes
    return wider[:, sources(border, height, ry)[:, None], sources(border, width, rx)]


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


def magnitude(wide, filt, unit, dtype, floats):
    """The magnitude, in float32, of the gradient with the filter as x and its transpose as y component."""
    side = len(filt.c)
    height, width = wide.shape[0] - side + 1, wide.shape[1] - side + 1
    places = [(j, i) for j in range(side) for i in range(side)]
    g = [sum(int(m[j, i]) * wide[j:j + height, i:i + width] for j, i in places).astype(np.float32) for m in (filt.c, filt.c.T)]
    out = np.sqrt(g[0] * g[0] + g[1] * g[1]) / np.float32(filt.scale) + np.float32(filt.offset * unit)
    assert out.dtype == np.float32
    return out if floats else np.clip(np.rint(out), 0, np.iinfo(dtype).max).astype(dtype)


def inner(wide, filt, dtype, floats):
    """Filters a plane that extend() made."""
    top = int(np.iinfo(dtype).max)
    unit = 257 if top == 65535 else 1
    kh, kw = filt.c.shape
    height, width = wide.shape[0] - kh + 1, wide.shape[1] - kw + 1
    if filt.magnitude:
        return magnitude(wide, filt, unit, dtype, floats)
    taps = [(filt.c[j, i], wide[j:j + height, i:i + width]) for j in range(kh) for i in range(kw)]
    if (filt.c % 1 == 0).all() and filt.scale % 1 == 0 and filt.offset % 1 == 0:
        sign = -1 if filt.scale < 0 else 1
        divisor = int(abs(filt.scale))
        total = sum((int(c) * sign) * p for c, p in taps) + int(filt.offset) * unit * divisor
        if floats:
            return (total / divisor).astype(np.float32)
        floor, rest = total // divisor, total % divisor
        up = (2 * rest > divisor) | ((2 * rest == divisor) & (floor % 2 == 1))
        return np.clip(floor + up, 0, top).astype(dtype)
    acc = np.full((height, width), np.float32(filt.offset * unit), np.float32)
    if kh == kw and (np.float32(filt.c / filt.scale) == np.float32(filt.c / filt.scale).T).all():
        at = dict(zip(((j, i) for j in range(kh) for i in range(kw)), (p for _, p in taps)))
        taps = [(filt.c[j, j + d], at[j, j + d] + at[j + d, j] if d else at[j, j]) for d in range(kw) for j in range(kw - d)]
    for c, p in taps:
        c = np.float32(c / filt.scale)
        if c != 0:
            acc = fma32(np.full(p.shape, c), p, acc)
    return acc if floats else np.clip(np.rint(acc), 0, top).astype(dtype)


def apply_all(images, filt, border="replicate", value=0, floats=False):
    """The filtered images, each an array (channels, height, width). `value` (constant border) and the offset are in
    8-bit units. `floats`: float32 results, neither rounded nor clamped.

    Images of one depth and about the same height are extended and put side by side, since NumPy takes a microsecond a
    call however small an array is. Of the sums only those within one image are returned.
    """
    out = [None] * len(images)
    kh, kw = filt.c.shape
    kinds = [(image.dtype, image.shape[1].bit_length()) for image in images]
    for kind in set(kinds):
        dtype = kind[0]
        unit = 257 if dtype == np.uint16 else 1
        chosen = [index for index in range(len(images)) if kinds[index] == kind]
        wide = [extend(images[index], kw // 2, kh // 2, border, value * unit) for index in chosen]
        width = sum(part.shape[0] * part.shape[2] for part in wide)
        canvas = np.zeros((max(part.shape[1] for part in wide), width), np.int64)
        x = 0
        for part in wide:
            for channel in part:
                canvas[:channel.shape[0], x:x + channel.shape[1]] = channel
                x += channel.shape[1]
        filtered = inner(canvas, filt, dtype, floats)
        x = 0
        for index, part in zip(chosen, wide):
            channels, height, width = images[index].shape
            starts = range(x, x + channels * part.shape[2], part.shape[2])
            out[index] = np.stack([filtered[:height, start:start + width] for start in starts])
            x += channels * part.shape[2]
    return out


def saturated(planes):
    """The share of samples at the ends of the range: outputs that are mostly clipped prove little."""
    top = np.iinfo(planes.dtype).max
    return float(((planes == 0) | (planes == top)).mean())


def usual_alpha(filters, border):
    """What `conv FILTER` does without --alpha: it depends on whether flat areas stay flat, and pixels mix."""
    flat = border != "constant" and all(not f.magnitude and f.offset == 0 and abs(f.c.sum() - f.scale) <= 1e-6 * abs(f.c.sum()) for f in filters)
    return "premultiply" if flat and any(((f.c != 0) & (f.c != f.c.sum())).any() for f in filters) else "keep"


def apply_images(images, filters, border="replicate", value=0, alpha=None):
    """The whole program on images (planes, whether the last is alpha): each filter of the chain after the other on all
    channels."""
    made = [planes for planes, _ in images]
    given = alpha
    for filt in filters:
        alpha = given or usual_alpha([filt], border)
        sources_of = []
        for planes, (_, has_alpha) in zip(made, images):
            work = planes.astype(np.int64)
            if has_alpha and alpha == "premultiply":
                top = int(np.iinfo(planes.dtype).max)
                work[:-1] = (work[:-1] * work[-1] * 2 + top) // (2 * top)
            sources_of.append(work.astype(planes.dtype))
        results = apply_all(sources_of, filt, border, value)
        for planes, out, (_, has_alpha) in zip(made, results, images):
            if has_alpha and alpha == "keep":
                out[-1] = planes[-1]
            if has_alpha and alpha == "premultiply":
                top = int(np.iinfo(planes.dtype).max)
                a, wide = out[-1].astype(np.int64), out[:-1].astype(np.int64)
                divided = np.minimum((wide * top * 2 + a) // np.maximum(2 * a, 1), top)
                out[:-1] = np.where(a > 0, divided, 0).astype(out.dtype)
        made = results
    return made


def apply_image(planes, has_alpha, filters, border="replicate", value=0, alpha=None):
    """Like apply_images, for one image."""
    return apply_images([(planes, has_alpha)], filters, border, value, alpha)[0]
