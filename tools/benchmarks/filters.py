# SPDX-License-Identifier: MIT
"""Filters of the same name in other programs."""
import os
import shutil
import subprocess
import tempfile

import cv2
import numpy as np

from measure import ROOT, Report, optional

ndimage = optional("scipy.ndimage")
EDGE = dict(borderType=getattr(cv2, "BORDER_REPLICATE", 0))


def magick(*arguments):
    if not shutil.which("mogrify"):  # as `convert` are also other programs
        return None
    return "convert " + " ".join(arguments), lambda path, out: subprocess.run(["convert", path, *arguments, out], check=True)


def vips(operation, *arguments):
    if not shutil.which("vips"):
        return None
    return " ".join(("vips", operation, *arguments)), lambda path, out: subprocess.run(["vips", operation, path, out, *arguments], check=True)


def opencv(text, function):
    return text, lambda path, out: cv2.imwrite(out, function(cv2.imread(path)))


def scipy(text, function):
    if not ndimage:
        return None

    def run(path, out):
        planes = [np.clip(np.rint(function(plane.astype(np.float64))), 0, 255) for plane in cv2.imread(path).transpose(2, 0, 1)]
        cv2.imwrite(out, np.stack(planes).astype(np.uint8).transpose(1, 2, 0))
    return text, run


def pairs():
    for s in (1, 2.5, 5):
        yield f"gaussian:{s}", [
            magick("-gaussian-blur", f"0x{s}"), magick("-blur", f"0x{s}"), vips("gaussblur", str(s)),
            vips("gaussblur", str(s), "--min-ampl", "0.01"),
            opencv(f"GaussianBlur((0, 0), {s})", lambda i, s=s: cv2.GaussianBlur(i, (0, 0), s, **EDGE)),
            scipy(f"gaussian_filter({s})", lambda p, s=s: ndimage.gaussian_filter(p, s, mode="nearest"))]
    yield "gaussian-fast:5", [opencv("GaussianBlur((0, 0), 5)", lambda i: cv2.GaussianBlur(i, (0, 0), 5, **EDGE)),
                              scipy("gaussian_filter(5)", lambda p: ndimage.gaussian_filter(p, 5, mode="nearest"))]
    yield "gaussian:12", [vips("gaussblur", "12", "--min-ampl", "0.01"),
                          opencv("GaussianBlur((0, 0), 12)", lambda i: cv2.GaussianBlur(i, (0, 0), 12, **EDGE)),
                          scipy("gaussian_filter(12)", lambda p: ndimage.gaussian_filter(p, 12, mode="nearest"))]
    yield "blur:2", [magick("-blur", "0x2"), magick("-statistic", "Mean", "5x5"), opencv("blur((5, 5))", lambda i: cv2.blur(i, (5, 5), **EDGE))]
    yield "unsharp:2,0.8", [magick("-unsharp", "0x2+0.8+0"), vips("sharpen", "--sigma", "2", "--m1", "0.8", "--m2", "0.8"),
                            opencv("addWeighted(i, 1.8, GaussianBlur(2), -0.8)",
                                   lambda i: cv2.addWeighted(i, 1.8, cv2.GaussianBlur(i, (0, 0), 2, **EDGE), -0.8, 0))]
    yield "sharpen:1", [magick("-sharpen", "0x1"), vips("sharpen")]
    yield "motion:9,30", [magick("-motion-blur", "0x3+30"), magick("-motion-blur", "9x100+30")]
    yield "emboss:135,1", [magick("-emboss", "0x1")]
    yield "log:1.5", [opencv("2.25 * Laplacian(GaussianBlur(1.5))",
                             lambda i: np.clip(2.25 * cv2.Laplacian(cv2.GaussianBlur(i.astype(np.float32), (0, 0), 1.5, **EDGE), -1, ksize=1, **EDGE), 0, 255)),
                      scipy("2.25 * gaussian_laplace(1.5)", lambda p: 2.25 * ndimage.gaussian_laplace(p, 1.5, mode="nearest"))]
    yield "dog:1,1.6", [magick("-morphology", "Convolve", "DoG:0,1,1.6"),
                        scipy("gaussian_filter(1) - gaussian_filter(1.6)",
                              lambda p: ndimage.gaussian_filter(p, 1, mode="nearest") - ndimage.gaussian_filter(p, 1.6, mode="nearest"))]


def filters(parser):
    """Measures how filters of the same name differ between programs: the largest and the mean difference, in 8-bit levels,
    of conv's parametric filters from those of ImageMagick, libvips, OpenCV and SciPy, as in the table of docs/filters.md.

    Needs python3-opencv; of imagemagick, libvips-tools and python3-scipy what is missing is skipped."""
    parser.add_argument("images", nargs="*", default=[os.path.join(ROOT, "samples", "landscape-rgb.png")])
    options = parser.read()
    report = Report(options)
    report.table("conv ", "compared with ", "largest", "mean")
    with tempfile.TemporaryDirectory() as box:
        ours, theirs = os.path.join(box, "conv.png"), os.path.join(box, "other.png")
        for text, others in pairs():
            for label, work in filter(None, others):
                differences = []
                for image in options.images:
                    subprocess.run([options.conv, text, "-q", "--device", "cpu", image, ours], check=True)
                    work(image, theirs)
                    differences.append(np.abs(cv2.imread(ours).astype(int) - cv2.imread(theirs)))
                largest, mean = max(d.max() for d in differences), sum(d.sum() for d in differences) / sum(d.size for d in differences)
                report.row(f"`{text}`", f"`{label}`", largest, f"{mean:.3f}", filter=text, other=label, largest=int(largest), mean=float(mean))
    report.finish()
