# SPDX-License-Identifier: MIT
"""Filters for benchmarks that are not built into conv: a kind and a side, as tent15 or dense31.

tentN: a column times a row, rising to the middle. denseN: integers, not separable. realN: real numbers.
"""
import os
import random

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def make_matrix(name):
    """Coefficients and divisor of such a filter."""
    if name == "classic5":
        rows = [[1, 4, 7, 4, 1], [4, 16, 26, 16, 4], [7, 26, 41, 26, 7]]
        return rows + rows[1::-1], 273
    kind, side = name.rstrip("0123456789"), int(name.lstrip("abcdefghijklmnopqrstuvwxyz"))
    generator = random.Random(side)
    if kind == "tent":
        line = [min(i, side - 1 - i) + 1 for i in range(side)]
        return [[a * b for a in line] for b in line], sum(line) ** 2
    if kind == "dense":
        rows = [[generator.randint(-3, 6) for _ in range(side)] for _ in range(side)]
        return rows, max(1, sum(map(sum, rows)))
    return [[generator.random() for _ in range(side)] for _ in range(side)], side * side / 2


def place_filter(name, folder):
    """The name of the filter, or if conv has none of that name the path of a matrix file, written into the folder."""
    path = os.path.join(ROOT, "filters", name + ".mat")
    if not os.path.exists(path):
        rows, divisor = make_matrix(name)
        path = os.path.join(folder, name + ".mat")
        with open(path, "w", encoding="ascii") as file:
            file.write(f"{len(rows[0])} {len(rows)} {divisor} 0\n")
            file.writelines(" ".join(map(str, row)) + "\n" for row in rows)
    return path
