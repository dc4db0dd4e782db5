# SPDX-License-Identifier: MIT
"""Filter banks: features beside OpenCV's, and coefficients beside their authors' definitions."""
import functools
import multiprocessing
import os
import sys
import tempfile
import time

import numpy as np

from inputs import Folder, images_in
from measure import Clock, Report, ask, run, take_turns


class Bank:
    """`kernels` are those of the bank's filters, `maps` which of them make a map."""

    def __init__(self, conv, name):
        self.conv, self.name = conv, name
        rows = ask([conv, "show", name, "--json"])
        self.maps = [row for row in rows if row["type"] == "map"]
        self.filters = [row for row in rows if row["type"] == "bank_filter"]
        self.kernels = [np.array(row["kernel"]) for row in self.filters]

    def respond(self, image):
        with tempfile.TemporaryDirectory() as folder:
            np.save(f"{folder}/x.npy", image)
            run([self.conv, "layer", self.name, f"{folder}/x.npy", f"{folder}/y.npy", "-q"])
            return np.load(f"{folder}/y.npy")


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


# --- checks against scikit-image, SciPy and the authors' definitions ----------------------------------------

SIDE = 49
failed = []


def report(name, difference, bound):
    failed.extend([name] if not difference <= bound else [])
    print(f"{'FAIL' if failed and failed[-1] == name else 'ok':4} {name:58} {difference:9.2e}  bound {bound:.0e}")


def relative(a, b):
    return float(np.abs(a - b).max() / np.abs(b).max())


def check_gabor(conv, image):
    scales, angles = 6, 8
    bank = Bank(conv, f"gabor:{scales}x{angles}")
    maps = bank.respond(image)
    inside, outside, cut_off, same_size = 0, 0, 0, 0
    for index in range(scales * angles):
        frequency, theta = 0.4 / 2 ** (index // angles / 2), np.pi * (index % angles) / angles
        theirs = skimage.filters.gabor_kernel(frequency, theta, bandwidth=1, n_stds=3)
        ours = bank.kernels[2 * index] + 1j * bank.kernels[2 * index + 1]
        top, left = (ours.shape[0] - theirs.shape[0]) // 2, (ours.shape[1] - theirs.shape[1]) // 2
        shared = ours[top:top + theirs.shape[0], left:left + theirs.shape[1]]
        peak = np.abs(theirs).max()
        inside = max(inside, np.abs(shared - theirs).max() / peak)
        cut = np.abs(ours)
        cut[top:top + theirs.shape[0], left:left + theirs.shape[1]] = 0
        outside = max(outside, cut.max() / peak)
        # Their kernel covers n_stds deviations along axes rotated by theta; with these n_stds it is as large as ours.
        whole = 3 / max(abs(np.cos(theta)), abs(np.sin(theta))) * (1 - 1e-12)
        for n_stds in (3, whole):
            response = np.hypot(*skimage.filters.gabor(image.astype(float), frequency, theta, bandwidth=1, n_stds=n_stds, mode="nearest"))
            difference = relative(maps[index], response)
            if n_stds == whole:
                same_size = max(same_size, difference)
            else:
                cut_off = max(cut_off, difference)
    report("gabor: kernels against gabor_kernel, where both are", inside, 1e-12)
    report("gabor: largest coefficient outside gabor_kernel's", outside, 0.1)
    report("gabor: magnitudes against skimage.filters.gabor", cut_off, 0.1)
    report("gabor: the same, its kernels as large as ours", same_size, 1e-5)


def check_gradients(conv, image):
    for name, scale in (("sobel", 4), ("scharr", 16), ("prewitt", 3)):
        maps, function = Bank(conv, name).respond(image), getattr(skimage.filters, name)
        for index, axis in ((0, 1), (1, 0)):
            theirs = function(image.astype(float), axis=axis, mode="nearest")
            report(f"{name}: {'xy'[index]}, {scale} times skimage's", relative(maps[index], scale * theirs), 1e-6)
        theirs = function(image.astype(float), mode="nearest")
        report(f"{name}: magnitude, {scale} sqrt 2 times skimage's", relative(maps[2], scale * 2 ** 0.5 * theirs), 1e-6)


def check_gaussians(conv, image):
    double = image.astype(float)
    for sigma in (1, 2, 4.5):
        ours = Bank(conv, f"log:{sigma}").respond(image)[0]
        theirs = scipy.ndimage.gaussian_laplace(double, sigma, mode="nearest", truncate=4)
        report(f"log:{sigma}: against scipy.ndimage.gaussian_laplace", relative(ours, theirs), 0.01)
    for low, high in ((1, 1.6), (2, 5)):
        ours = Bank(conv, f"dog:{low},{high}").respond(image)[0]
        theirs = np.subtract(*(scipy.ndimage.gaussian_filter(double, sigma, mode="nearest", truncate=4) for sigma in (low, high)))
        report(f"dog:{low},{high}: against scipy.ndimage.gaussian_filter", relative(ours, theirs), 1e-3)
        theirs = skimage.filters.difference_of_gaussians(double, low, high, mode="nearest", truncate=4)
        report(f"dog:{low},{high}: against difference_of_gaussians", relative(ours, theirs), 1e-3)


def normalise(f):
    f = f - f.mean()
    return f / np.abs(f).sum()


def derivative(sigma, x, order):
    g = np.exp(-x * x / (2 * sigma ** 2)) / np.sqrt(2 * np.pi * sigma ** 2)
    return (g, -g * x / sigma ** 2, g * (x * x - sigma ** 2) / sigma ** 4)[order]


def grid():
    half = SIDE // 2
    return np.meshgrid(np.arange(-half, half + 1.0), np.arange(half, -half - 1.0, -1))


def oriented(sigma, order, angle):
    x, y = grid()
    c, s = np.cos(angle), np.sin(angle)
    return normalise(derivative(3 * sigma, c * x - s * y, 0) * derivative(sigma, s * x + c * y, order))


def fspecial(kind, sigma):
    """MATLAB's fspecial: coefficients below eps times the largest are 0."""
    x, y = grid()
    h = np.exp(-(x * x + y * y) / (2 * sigma ** 2))
    h[h < np.finfo(float).eps * h.max()] = 0
    h /= h.sum()
    if kind == "log":
        h = h * (x * x + y * y - 2 * sigma ** 2) / sigma ** 4
        h -= h.mean()
    return normalise(h)


def check_textures(conv):
    angles, root = np.pi * np.arange(6) / 6, 2 ** 0.5
    scales = [root ** i for i in (1, 2, 3)]
    expected = [oriented(s, order, angle) for order in (1, 2) for s in scales for angle in angles]
    expected += [fspecial("log", f * root ** i) for f in (1, 3) for i in (1, 2, 3, 4)]
    expected += [fspecial("gaussian", root ** i) for i in (1, 2, 3, 4)]
    report("lm: the 48 kernels of makeLMfilters.m", compare(Bank(conv, "lm").kernels, expected), 1e-9)
    expected = [oriented(s, order, angle) for order in (1, 2) for s in (1, 2, 4) for angle in angles]
    expected += [fspecial("gaussian", 10), fspecial("log", 10)]
    report("mr8: the 38 kernels of makeRFSfilters.m", compare(Bank(conv, "mr8").kernels, expected), 1e-9)
    x, y = grid()
    r = np.hypot(x, y)
    rings = [(2, 1), (4, 1), (4, 2), *((6, t) for t in (1, 2, 3)), *((8, t) for t in (1, 2, 3)), *((10, t) for t in (1, 2, 3, 4))]
    expected = [normalise(np.cos(r * np.pi * tau / sigma) * np.exp(-r * r / (2 * sigma * sigma))) for sigma, tau in rings]
    report("schmid: the 13 kernels of makeSfilters.m", compare(Bank(conv, "schmid").kernels, expected), 1e-9)


def check_laws(conv):
    lines = {"L3": (1, 2, 1), "E3": (-1, 0, 1), "S3": (-1, 2, -1), "L5": (1, 4, 6, 4, 1), "E5": (-1, -2, 0, 2, 1),
             "S5": (-1, 0, 2, 0, -1), "W5": (-1, 2, 0, -2, 1), "R5": (1, -4, 6, -4, 1)}
    for name in ("laws:9", "laws:25"):
        bank = Bank(conv, name)
        expected = [np.outer(lines[row["label"][:2]], lines[row["label"][2:]]) for row in bank.maps]
        report(f"{name}: outer products, named column first", compare(bank.kernels, expected), 0)


def compare(kernels, expected):
    assert len(kernels) == len(expected)
    return max(relative(a, b) for a, b in zip(kernels, expected))


def banks_skimage(parser):
    """Checks filter banks against scikit-image, SciPy and the definitions that their authors published.

    The coefficients of `conv show BANK --json` and the maps of `conv layer BANK` over a random tensor are compared with
      gabor                 skimage.filters.gabor_kernel and skimage.filters.gabor
      sobel scharr prewitt  the filters of that name of skimage.filters
      log dog               scipy.ndimage.gaussian_laplace and gaussian_filter, skimage.filters.difference_of_gaussians
      lm mr8 schmid         makeLMfilters.m, makeRFSfilters.m and makeSfilters.m (Visual Geometry Group, Oxford)
      laws                  outer products of Laws' lines
    Prints the largest difference of each, relative to the largest magnitude, and fails above the stated bound.

    python3 -m venv VENV; VENV/bin/pip install scikit-image; VENV/bin/python tools/bench banks-skimage"""
    global scipy, skimage
    options = parser.read()
    import scipy.ndimage
    import skimage.filters
    image = np.random.default_rng(17).random((150, 170)).astype(np.float32)
    print(f"scikit-image {skimage.__version__}, SciPy {scipy.__version__}; largest difference over largest magnitude")
    for check in (check_gabor, check_gradients, check_gaussians):
        check(options.conv, image)
    check_textures(options.conv)
    check_laws(options.conv)
    sys.exit(f"{len(failed)} differ" if failed else 0)
