# SPDX-License-Identifier: MIT
"""What a filter bank computes, in float64: its coefficients as `conv show` prints them, applied by NumPy."""
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
