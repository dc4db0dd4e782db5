# SPDX-License-Identifier: MIT
"""What a filter bank computes, in float64: its coefficients as `conv show` prints them, applied by NumPy; and what its
authors define as its coefficients."""
import numpy as np

from program import run


def load_bank(name):
    rows = run("show", name, "--json").records()
    return ([row for row in rows if row["type"] == "map"], [row for row in rows if row["type"] == "bank_filter"])


def correlate(image, kernel):
    height, width = kernel.shape
    padded = np.pad(image, ((height // 2,) * 2, (width // 2,) * 2), mode="edge")
    windows = np.lib.stride_tricks.sliding_window_view(padded, kernel.shape)
    return np.einsum("yxuv,uv->yx", windows, kernel)


def expected_maps(image, name):
    maps, filters = load_bank(name)
    result = []
    for row in maps:
        values = [correlate(image, np.array(filters[row["first"] + i]["kernel"])) for i in range(row["count"])]
        if row["combine"] == "magnitude":
            result.append(np.hypot(*values))
        else:
            result.append(np.maximum.reduce(values))
    return np.array(result)


def features(maps, grid=1):
    """mean, std, max and energy of maps[n][height][width], as [n][4][grid][grid]."""
    rows, columns = ([side * i // grid for i in range(grid + 1)] for side in maps.shape[1:])
    result = np.empty((len(maps), 4, grid, grid))
    for i in range(grid):
        for j in range(grid):
            cell = maps[:, rows[i]:rows[i + 1], columns[j]:columns[j + 1]].reshape(len(maps), -1)
            result[:, :, i, j] = np.stack([cell.mean(1), cell.std(1), cell.max(1), (cell ** 2).mean(1)], axis=1)
    return result


# --- published coefficients: makeLMfilters.m, makeRFSfilters.m and makeSfilters.m (Visual Geometry Group, Oxford), and Laws' lines

ANGLES, ROOT = [30 * i for i in range(6)], 2 ** 0.5
X, Y = np.meshgrid(np.arange(-24, 25.0), np.arange(24, -25.0, -1))
LAWS = {"L3": (1, 2, 1), "E3": (-1, 0, 1), "S3": (-1, 2, -1), "L5": (1, 4, 6, 4, 1), "E5": (-1, -2, 0, 2, 1),
        "S5": (-1, 0, 2, 0, -1), "W5": (-1, 2, 0, -2, 1), "R5": (1, -4, 6, -4, 1)}


def normalise(kernel):
    kernel = kernel - kernel.mean()
    return kernel / np.abs(kernel).sum()


def derivative(sigma, x, order):
    g = np.exp(-x * x / (2 * sigma ** 2)) / np.sqrt(2 * np.pi * sigma ** 2)
    return (g, -g * x / sigma ** 2, g * (x * x - sigma ** 2) / sigma ** 4)[order]


def oriented(sigma, order, angle):
    c, s = np.cos(np.pi * angle / 180), np.sin(np.pi * angle / 180)
    return normalise(derivative(3 * sigma, c * X - s * Y, 0) * derivative(sigma, s * X + c * Y, order))


def fspecial(kind, sigma):
    """MATLAB's: coefficients below eps times the largest are 0."""
    h = np.exp(-(X * X + Y * Y) / (2 * sigma ** 2))
    h[h < np.finfo(float).eps * h.max()] = 0
    h /= h.sum()
    if kind == "log":
        h = h * (X * X + Y * Y - 2 * sigma ** 2) / sigma ** 4
        h -= h.mean()
    return normalise(h)


def published(name, labels):
    """The kernels of a bank; those of laws by their labels, the column's line first."""
    if name.startswith("laws"):
        return [np.outer(LAWS[label[:2]], LAWS[label[2:]]) for label in labels]
    if name == "schmid":
        r, pairs = np.hypot(X, Y), [(2, 1), (4, 1), (4, 2), *((6, t) for t in (1, 2, 3)), *((8, t) for t in (1, 2, 3)), *((10, t) for t in (1, 2, 3, 4))]
        return [normalise(np.cos(r * np.pi * tau / sigma) * np.exp(-r * r / (2 * sigma * sigma))) for sigma, tau in pairs]
    scales = [ROOT ** i for i in (1, 2, 3)] if name == "lm" else (1, 2, 4)
    round_ones = [("log", f * ROOT ** i) for f in (1, 3) for i in (1, 2, 3, 4)] + [("gaussian", ROOT ** i) for i in (1, 2, 3, 4)]
    return [oriented(s, order, angle) for order in (1, 2) for s in scales for angle in ANGLES] + \
        [fspecial(*each) for each in (round_ones if name == "lm" else (("gaussian", 10), ("log", 10)))]
