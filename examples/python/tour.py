#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Filters, a filter bank and timings of one image, as plots (matplotlib).

    python3 examples/python/tour.py samples/landscape-rgb.png tour.png
"""

import argparse
import time

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

import conv

FILTERS = ("emboss", "gaussian5", "sharpen", "sobel", "gaussian5,laplacian", "unsharp")


def gabor_bank(angles=8, side=15, wavelength=6.0, sigma=3.0):
    """Even Gabor filters of several angles as weights of a layer: (angles, 1, side, side)."""
    y, x = np.mgrid[-(side // 2) : side // 2 + 1, -(side // 2) : side // 2 + 1]
    weights = []
    for angle in np.arange(angles) * np.pi / angles:
        along = x * np.cos(angle) + y * np.sin(angle)
        kernel = np.exp(-(x**2 + y**2) / (2 * sigma**2)) * np.cos(2 * np.pi * along / wavelength)
        weights.append(kernel - kernel.mean())
    return np.array(weights, np.float32)[:, None]


def milliseconds(call, rounds=20):
    call()
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return 1000 * sorted(times)[rounds // 2]


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("image")
    parser.add_argument("plot")
    options = parser.parse_args()
    with open(options.image, "rb") as stream:
        file = stream.read()
    image = conv.decode_png(file, channels=3, dtype="uint8")

    bank = conv.Layer(gabor_bank(), padding="same", border="reflect101", activation="abs")
    gray = image.mean(2, dtype=np.float32)[None]
    responses = bank(gray)

    times = {name: milliseconds(lambda name=name: conv.filter(image, name)) for name in FILTERS}
    times["decode"] = milliseconds(lambda: conv.decode_png(file))
    times["encode"] = milliseconds(lambda: conv.encode_png(image))
    times["8 Gabor filters"] = milliseconds(lambda: bank(gray), rounds=5)

    figure, axes = plt.subplots(3, 6, figsize=(18, 9), constrained_layout=True)
    for axis, name in zip(axes[0], FILTERS):
        axis.imshow(conv.filter(image, name))
        axis.set_title(name)
    for k, axis in enumerate(axes[1]):
        axis.imshow(responses[k], cmap="gray")
        axis.set_title(f"Gabor, {180 * k / len(responses):.0f}°")
    for axis in axes[:2].flat:
        axis.axis("off")
    for axis in axes[2]:
        axis.remove()
    chart = figure.add_subplot(axes[2][0].get_gridspec()[2, :])
    chart.barh(list(times), list(times.values()))
    chart.set_xscale("log")
    chart.set_xlabel(f"ms for {image.shape[1]}×{image.shape[0]} on the CPU, median")
    figure.savefig(options.plot, dpi=80)
    for name, value in times.items():
        print(f"{name:22s} {value:8.3f} ms")


if __name__ == "__main__":
    main()
