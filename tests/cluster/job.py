# SPDX-License-Identifier: MIT
"""A folder of images, and what all its outputs must be."""
import json
import os
import shutil
import subprocess
import sys

import numpy as np

import png_writer as png

SIDE = 192


def slow_filter():
    """Options that make an image take about 30 ms on one thread."""
    return "--jobs 1 -z 12"


def fill_folder(folder, count):
    """Images of different sizes and contents, in three folders."""
    for index in range(count):
        rng = np.random.default_rng(index)
        side = SIDE + 16 * (index % 7)
        ramp = np.add.outer(np.arange(side), np.arange(3 * side)) // 3 + rng.integers(0, 24, (side, 3 * side))
        path = folder / f"sub{index % 3}" / f"{index:04}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(png.encode(side, side, (ramp % 256).tolist(), png.RGB))


def run_alone(*args, code=0):
    """Standard output and error of the program."""
    result = subprocess.run([os.environ["CONV_BINARY"], *map(os.fspath, args)], capture_output=True, text=True, timeout=600)
    assert result.returncode == code, f"{args}: exit code {result.returncode}\n{result.stdout}{result.stderr}"
    return result.stdout + result.stderr


def outputs_of(box):
    """Name -> a value that changes when an output is written again."""
    found = {}
    for root, _, names in os.walk(box / "out"):
        for name in names:
            info = os.stat(os.path.join(root, name))
            if name.endswith(".png"):
                found[os.path.relpath(os.path.join(root, name), box / "out")] = (info.st_ino, info.st_mtime_ns)
    return found


def count_outputs(box):
    return len(outputs_of(box)) if (box / "out").exists() else 0


def check_outputs(box, unchanged=None):
    """The folder has every output with the pixels of a single run and no other file; none of `unchanged` was rewritten."""
    run_alone("emboss", "-r", "--device=cpu", "in", "whole")
    found = outputs_of(box)
    leftovers = [name for _, _, names in os.walk(box / "out") for name in names if not name.endswith(".png")]
    assert not leftovers
    names = [os.path.relpath(os.path.join(root, name), box / "whole") for root, _, names in os.walk(box / "whole") for name in names]
    assert sorted(found) == sorted(names)
    differing = subprocess.run([python_with_opencv(), "-c", COMPARE, box / "out", box / "whole"], capture_output=True, text=True)
    assert differing.returncode == 0, differing.stdout + differing.stderr
    changed = [name for name, what in (unchanged or {}).items() if found[name] != what]
    assert not changed, f"written twice: {changed}"
    shutil.rmtree(box / "whole")


def python_with_opencv():
    """Ray's environment may have a NumPy that the system's OpenCV cannot use."""
    for python in (sys.executable, "/usr/bin/python3", "python3"):
        if subprocess.run([python, "-c", "import cv2"], capture_output=True).returncode == 0:
            return python
    raise AssertionError("no Python with OpenCV: tools/setup test installs it")


# Decodes both: the compression level differs. In a process of its own, which needs OpenCV.
COMPARE = """
import cv2, os, sys
for root, _, names in os.walk(sys.argv[1]):
    for name in names:
        path = os.path.join(root, name)
        a, b = (cv2.imread(p, cv2.IMREAD_UNCHANGED) for p in (path, os.path.join(sys.argv[2], os.path.relpath(path, sys.argv[1]))))
        assert a is not None and (a == b).all(), path
"""


def check_reports(folder, shard):
    """The images that the reports of a shard list as done."""
    done = []
    for path in folder.glob(f"report-{shard}*.jsonl"):
        records = [json.loads(line) for line in path.read_text().splitlines()]
        assert records[0]["shard"]["index"] == shard
        done += [record["input"] for record in records if record["type"] == "file" and record["status"] == "done"]
    return done
