# SPDX-License-Identifier: MIT
"""Other programs that do what conv does: one filter over a file or over a folder, into a file or a folder.

The best free parts of PyPI and OpenCV, both in tools/best-of-breed with one process per core, libvips (pyvips)
in the same way, GraphicsMagick and ImageMagick, each with all cores. What is not installed is skipped with a line
on stderr.
"""
import json
import os
import shutil
import subprocess
import sys

from measure import CORES, ROOT


class Competitor:
    """`command(source, target)` makes the words of the command."""

    def __init__(self, name, command, **environment):
        self.name, self.command, self.environment = name, command, environment


def skip(text):
    print(f"{text}: skipped", file=sys.stderr)
    return []


def find_python(*modules):
    """A Python that has the modules: this one, else the distribution's."""
    for python in dict.fromkeys((sys.executable, "/usr/bin/python3")):
        if os.path.exists(python) and not subprocess.run([python, "-c", f"import {', '.join(modules)}"], stderr=subprocess.DEVNULL).returncode:
            return python
    return None


def version_of(command, at):
    return subprocess.run(command, capture_output=True, text=True).stdout.replace("-", " ").split()[at]


def python_row(name, python, parts, matrix, options, **environment):
    script = os.path.join(ROOT, "tools", "best-of-breed")
    return Competitor(name, lambda source, target: [python, script, json.dumps(matrix), source, target, "--with", parts, "--options", json.dumps(options)],
                      **environment)


def best(matrix, level, quality):
    python = find_python("cv2", "kornia_rs", "fpng", "simplejpeg")
    if not python:
        return skip("best of breed: not all of opencv-python-headless, kornia-rs, fpng and simplejpeg")
    versions = version_of([python, "-c", "import cv2; from importlib.metadata import version as v; "
                           "print(cv2.__version__, v('kornia-rs'), v('fpng'), v('simplejpeg'))"], slice(4))
    name = "best of breed: " + ("simplejpeg {3}" if quality else "kornia-rs {1} (image-png), fpng {2}").format(*versions) + f", OpenCV {versions[0]}"
    return [python_row(name, python, "best", matrix, {"JPEG_QUALITY": quality} if quality else {})]


def opencv(matrix, level, quality):
    python = find_python("cv2")
    if not python:
        return skip("no OpenCV for Python (python3-opencv)")
    version = version_of([python, "-c", "import cv2; print(cv2.__version__)"], 0)
    options = {"JPEG_QUALITY": quality} if quality else {"PNG_COMPRESSION": level} if level is not None else {}
    return [python_row(f"OpenCV {version}{suffix(level)}", python, "opencv", matrix, options)]


def suffix(level):
    return "" if level is None else f", level {level}"


def vips(matrix, level, quality):
    python = find_python("pyvips")
    version = python and version_of([python, "-c", "import pyvips; print(*map(pyvips.version, range(3)), sep='.')"], 0)
    options = {"Q": quality, "subsample_mode": "off"} if quality else {"compression": level, "filter": "none"} if level is not None else {}
    return [python_row(f"vips {version} (pyvips){suffix(level)}", python, "pyvips", matrix, options)] if python else skip("no pyvips")


def magick(words, folder_option, convert, quality_words):
    """GraphicsMagick's or ImageMagick's command: `words` filter. For a folder, four shares per core: the program starts
    rarely, and no core waits long for the last one."""
    def command(source, target):
        if not os.path.isdir(source):
            return [*convert, source, *words, *quality_words, target]
        share = max(1, len(os.listdir(source)) // (CORES * 4))
        line = 'cd "$1"; shift; n=$1; shift; find . -type f -print0 | xargs -0 -n"$n" -P' + str(CORES) + ' "$@"'
        mogrify = ["gm", "mogrify"] if convert[0] == "gm" else ["mogrify"]
        # mogrify takes its files last, and appends their path as given to its output folder.
        return ["env", "OMP_NUM_THREADS=1", "sh", "-c", line, "sh", source, str(share), *mogrify, folder_option, target, *words, *quality_words]
    return command


def graphicsmagick(matrix, level, quality):
    if not shutil.which("gm"):
        return skip("no GraphicsMagick (gm)")
    flat = [value for row in matrix["rows"] for value in row]
    if len(matrix["rows"]) ** 2 != len(flat) or matrix["offset"] or (sum(flat) or 1) != matrix["scale"]:
        return skip("GraphicsMagick divides by the sum of the kernel, which is not this filter's divisor")
    words = ["-convolve", ",".join(f"{value:g}" for value in flat)]
    return [Competitor(f"GraphicsMagick {version_of(['gm', 'version'], 1)}{suffix(level)}",
                       magick(words, "-output-directory", ["gm", "convert"], quality_words(level, quality)))]


def quality_words(level, quality):
    if quality:
        return ["-quality", str(quality), "-sampling-factor", "1x1"]
    return [] if level is None else ["-quality", f"{level}0"]  # zlib's level, without filters of rows


def imagemagick(matrix, level, quality):
    program = shutil.which("magick") or shutil.which("convert")
    if not program or not shutil.which("mogrify"):
        return skip("no ImageMagick (mogrify)")
    rows = " ".join(",".join(f"{value / matrix['scale']:.17g}" for value in row) for row in matrix["rows"])
    words = ["-define", f"convolve:bias={matrix['offset'] / 2.55:g}%", "-morphology", "Correlate",
             f"{len(matrix['rows'][0])}x{len(matrix['rows'])}: {rows}"]
    return [Competitor(f"ImageMagick {version_of(['mogrify', '-version'], 2)}{suffix(level)}",
                       magick(words, "-path", [program], quality_words(level, quality)), MAGICK_CONFIGURE_PATH=os.path.dirname(os.path.abspath(__file__)))]


def competitors(matrix, levels=(None,), quality=None):
    """Those that are installed, for PNG with each of the levels of compression (None: their default), or for JPEG."""
    return [row for make in (best, opencv, vips, graphicsmagick, imagemagick) for level in levels for row in make(matrix, level, quality)]
