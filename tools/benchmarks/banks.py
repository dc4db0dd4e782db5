# SPDX-License-Identifier: MIT
"""Filter banks: features beside OpenCV's."""
import functools
import multiprocessing
import os
import tempfile
import time

import numpy as np

from inputs import Folder, images_in
from measure import Clock, Report, ask, run, take_turns


class Bank:
    """`maps` says which of the bank's filters make a map."""

    def __init__(self, conv, name):
        rows = ask([conv, "show", name, "--json"])
        self.maps = [row for row in rows if row["type"] == "map"]
        self.filters = [row for row in rows if row["type"] == "bank_filter"]


def respond(cv2, image, row, separable):
    if separable and row["terms"]:
        return sum(cv2.sepFilter2D(image, cv2.CV_32F, np.float32(t["row"]), np.float32(t["column"]), borderType=cv2.BORDER_REPLICATE)
                   for t in row["terms"])
    return cv2.filter2D(image, cv2.CV_32F, np.float32(row["kernel"]), borderType=cv2.BORDER_REPLICATE)


def features(job):
    import cv2
    cv2.setNumThreads(1)
    paths, maps, filters, separable = job
    result = []
    for path in paths:
        colours = cv2.imread(path, cv2.IMREAD_COLOR).astype(np.float32)
        image = colours @ np.float32([0.114, 0.587, 0.299]) / np.float32(255)
        values = []
        for row in maps:
            responses = [respond(cv2, image, filters[row["first"] + i], separable) for i in range(row["count"])]
            value = responses[0]
            if row["combine"] == "magnitude":
                value = cv2.magnitude(responses[0], responses[1])
            elif row["combine"] == "max":
                value = np.maximum.reduce(responses)
            mean, deviation = cv2.meanStdDev(value)
            values.append((mean[0, 0], deviation[0, 0]))
        result.append(values)
    return result


def banks(parser):
    """Features of a filter bank over a folder of photographs: conv against OpenCV.

    Both read PNG files, take the luminance, apply the bank with replicated borders and compute mean and standard deviation
    of every map. OpenCV runs in processes of one thread each, which share the images, with filter2D (any filter) and with
    sepFilter2D (the terms of separable filters), on --opencv-images images; conv on --images links to the images. The table
    has images per second, and the largest difference of conv's features from either."""
    parser.add_argument("photos")
    parser.option("bank", "gabor:4x8")
    parser.option("processes", os.cpu_count())
    parser.option("images", 10000)
    parser.option("opencv-images", 64)
    parser.option("devices", "cuda,cpu")
    options = parser.read(rounds=3)
    photos = images_in(options.photos)
    bank = Bank(options.conv, options.bank)
    paths = [photos[i % len(photos)] for i in range(options.opencv_images)]
    values = {}
    report = Report(options, options.bank)
    with tempfile.TemporaryDirectory(dir=options.photos) as box, multiprocessing.Pool(options.processes) as pool:
        folder, processes = Folder(f"{box}/in", [photos[i % len(photos)] for i in range(options.images)]), options.processes
        pool.map(features, [(paths[:1], bank.maps[:1], bank.filters, False)] * processes, chunksize=1)  # imports

        def peer(name):
            jobs = [(paths[i::processes], bank.maps, bank.filters, name == "sepFilter2D") for i in range(processes)]
            start, values[name] = time.perf_counter(), [None] * len(paths)
            for i, part in enumerate(pool.map(features, jobs, chunksize=1)):
                values[name][i::processes] = part
            return Clock(wall=time.perf_counter() - start)

        def ours(device):
            out = f"{box}/{device}.npy"
            clock = run([options.conv, "layer", options.bank, folder.path, out, "--pool", "mean,std", "--device", device, "--quiet"], out, keep=True)
            values[device] = np.load(out)
            return clock
        ways = {f"OpenCV {name}": functools.partial(peer, name) for name in ("filter2D", "sepFilter2D")}
        ways.update({f"conv --device {device}": functools.partial(ours, device) for device in options.devices.split(",")})
        times = take_turns(ways, options.rounds)
    rates = {name: (options.images if name.startswith("conv") else len(paths)) / each.median for name, each in times.items()}
    best = max(rate for name, rate in rates.items() if name.startswith("OpenCV"))
    report.table("way ", "images/s", "against OpenCV's faster way", "features differ by at most")
    for name, each in times.items():
        shown = np.array(values[name.split()[-1]])[:min(len(photos), len(paths))]
        apart = max(float(np.abs(shown - np.array(values[peer])[:len(shown)]).max()) for peer in ("filter2D", "sepFilter2D"))
        report.row(name, f"{rates[name]:.1f}", f"{rates[name] / best:.1f}×", f"{apart:.2g} of {np.abs(shown).max():.2g}", name=name, times=each)
    report.finish()
