# SPDX-License-Identifier: MIT
"""The ideals of the parametric filters in float64, independent of the program."""
import math

import numpy as np

CUT, HALF = 4, 15


def gaussian_line(sigma):
    half = min(HALF, math.ceil(CUT * sigma))
    x = np.arange(-half, half + 1)
    line = np.exp(-x * x / (2 * sigma * sigma))
    return line / line.sum()


def gaussian(sigma):
    return np.outer(gaussian_line(sigma), gaussian_line(sigma))


def blur(radius):
    half = math.ceil(radius)
    line = np.minimum(1, radius + 0.5 - np.abs(np.arange(-half, half + 1)) + 0.5)  # how much of each pixel is within
    line /= line.sum()
    return np.outer(line, line)


def unsharp(sigma, amount):
    matrix = -amount * gaussian(sigma)
    matrix[len(matrix) // 2, len(matrix) // 2] += 1 + amount
    return matrix


def sharpen(amount):
    return np.array([[0, -amount, 0], [-amount, 1 + 4 * amount, -amount], [0, -amount, 0]])


def motion(length, angle):
    y, x = np.mgrid[-HALF:HALF + 1, -HALF:HALF + 1]
    end = (length - 1) / 2 * np.exp(-1j * math.radians(angle))  # rows count downwards
    point = x + 1j * y
    along = np.clip((point * end.conjugate()).real / max(abs(end) ** 2, 1e-30), -1, 1)
    weight = np.maximum(0, 1 - np.abs(point - along * end))
    return weight / weight.sum()


def emboss(angle, depth):
    y, x = np.mgrid[-1:2, -1:2]
    light = np.exp(1j * math.radians(angle))
    return -depth * math.sqrt(2) * (x * light.real - y * light.imag) + ((x == 0) & (y == 0))


def log(sigma):
    line = gaussian_line(sigma)
    x = np.arange(len(line)) - len(line) // 2
    second = (x * x - (x * x * line).sum()) / sigma ** 2 * line
    return np.outer(second, line) + np.outer(line, second)


def pad(matrix, side):
    margin = [((side - n) // 2, (side - n) // 2) for n in matrix.shape]
    return np.pad(matrix, margin)


def dog(first, second):
    a, b = gaussian(first), gaussian(second)
    side = max(len(a), len(b))
    return pad(a, side) - pad(b, side)


IDEALS = {"gaussian": gaussian, "gaussian-fast": gaussian, "blur": blur, "unsharp": unsharp, "sharpen": sharpen,
          "motion": motion, "emboss": emboss, "log": log, "dog": dog}


def ideal(text):
    """The matrix of "gaussian:2.5"."""
    name, _, numbers = text.partition(":")
    return IDEALS[name](*(float(n) for n in numbers.split(",")))
