# SPDX-License-Identifier: MIT
"""Other programs that do what conv does: one filter over a file or over a folder, into a file or a folder.

OpenCV in Python with one process per core, libvips (pyvips with one process per core, else the command), GraphicsMagick
and ImageMagick, each with all cores. What is not installed is skipped with a line on stderr. As a program, this file is
what the Python competitors run, so that their start is measured like the others'.
"""
import json
import multiprocessing
import os
import shutil
import subprocess
import sys

EMBOSS = [[-2, -1, 0], [-1, 1, 1], [0, 1, 2]]  # filters/emboss.mat
CORES = len(os.sched_getaffinity(0))


# --- the program -------------------------------------------------------------------------------------

def filter_with_opencv(job):
    import cv2
    import numpy
    source, target, matrix, options = job
    image = cv2.imread(source, cv2.IMREAD_UNCHANGED)
    kernel = numpy.array(matrix["rows"], numpy.float32) / matrix["scale"]
    image = cv2.filter2D(image, -1, kernel, delta=matrix["offset"], borderType=cv2.BORDER_REPLICATE)
    if not cv2.imwrite(target, image, options):
        raise OSError(f"cannot write {target}")


def filter_with_pyvips(job):
    import pyvips
    source, target, matrix, options = job
    mask = pyvips.Image.new_from_array(matrix["rows"], scale=matrix["scale"], offset=matrix["offset"])
    image = pyvips.Image.new_from_file(source, access="sequential").conv(mask, precision="integer")
    image.write_to_file(target, **options)


def use_one_thread():
    try:
        import cv2
        cv2.setNumThreads(1)
    except ImportError:
        pass


def main(kind, source, target, matrix, options):
    matrix, options = json.loads(matrix), json.loads(options)
    work = {"opencv": filter_with_opencv, "pyvips": filter_with_pyvips}[kind]
    if not os.path.isdir(source):  # with all threads
        work((source, target, matrix, options))
        return
    jobs = [(entry.path, os.path.join(target, entry.name), matrix, options) for entry in sorted(os.scandir(source), key=lambda e: e.name)]
    with multiprocessing.Pool(CORES, use_one_thread) as pool:
        for _ in pool.imap_unordered(work, jobs, chunksize=max(1, len(jobs) // CORES // 16)):
            pass


# --- the competitors ----------------------------------------------------------------------------------

class Competitor:
    """`command(source, target)` makes the words of the command."""

    def __init__(self, name, command, **environment):
        self.name, self.command, self.environment = name, command, environment


def skip(text):
    print(f"{text}: skipped", file=sys.stderr)
    return []


def find_python(module):
    """A Python that has the module: this one, else the distribution's."""
    for python in dict.fromkeys((sys.executable, "/usr/bin/python3")):
        if os.path.exists(python) and not subprocess.run([python, "-c", f"import {module}"], stderr=subprocess.DEVNULL).returncode:
            return python
    return None


def version_of(command, at):
    return subprocess.run(command, capture_output=True, text=True).stdout.replace("-", " ").split()[at]


def python_row(name, python, kind, matrix, options, **environment):
    script = os.path.abspath(__file__)
    return Competitor(name, lambda source, target: [python, script, kind, source, target, json.dumps(matrix), json.dumps(options)], **environment)


def opencv(matrix, level, quality):
    python = find_python("cv2")
    if not python:
        return skip("no OpenCV for Python (python3-opencv)")
    version = version_of([python, "-c", "import cv2; print(cv2.__version__)"], 0)
    options = [1, quality] if quality else [16, level] if level is not None else []  # IMWRITE_JPEG_QUALITY, IMWRITE_PNG_COMPRESSION
    return [python_row(f"OpenCV {version}{suffix(level)}", python, "opencv", matrix, options)]


def suffix(level):
    return "" if level is None else f", level {level}"


def vips(matrix, level, quality):
    python = find_python("pyvips")
    options = {"Q": quality, "subsample_mode": "off"} if quality else {"compression": level, "filter": "none"} if level is not None else {}
    if python:
        return [python_row(f"pyvips{suffix(level)}", python, "pyvips", matrix, options)]
    if not shutil.which("vips"):
        return skip("neither pyvips nor the command vips")
    ending = "[" + ",".join(f"{key.replace('_', '-')}={value}" for key, value in options.items()) + "]" if options else ""

    def command(source, target):
        if not os.path.isdir(source):
            return ["vips", "conv", source + "[access=sequential]", target + ending, matrix["path"], "--precision", "integer"]
        line = 'find "$1" -type f -print0 | OUT=$2 MAT=$3 END=$5 VIPS_CONCURRENCY=1 xargs -0 -n1 -P"$4" ' \
               'sh -c \'exec vips conv "$0" "$OUT/${0##*/}$END" "$MAT" --precision integer\''
        return ["sh", "-c", line, "sh", source, target, matrix["path"], str(CORES), ending]
    return [Competitor(f"vips {version_of(['vips', '--version'], 1)}{suffix(level)}", command)]


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
    return [row for make in (opencv, vips, graphicsmagick, imagemagick) for level in levels for row in make(matrix, level, quality)]


if __name__ == "__main__":
    main(*sys.argv[1:])
