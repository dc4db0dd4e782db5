# SPDX-License-Identifier: MIT
"""Archives that change while filter_folder reads them. What else it leaves alone in the process, tests/unit tests."""

import io
import subprocess
import sys
import tarfile
import zipfile

import numpy as np
import pytest

import conv

SHORTEN = """
import os, sys, conv
path, size, output = sys.argv[1], int(sys.argv[2]), sys.argv[3]
conv.configure(threads=3)
def look(progress):
    os.truncate(path, size)
try:
    result = conv.filter_folder(path, output, "gaussian5", progress=look)
    print("result", result.done, result.failed)
except (OSError, ValueError) as error:
    print("error", error)
"""


@pytest.fixture(scope="module")
def images():
    """PNG files, of which every fourth is truncated: their failures call the callback while others are decoded."""
    rng = np.random.default_rng(5)
    files = conv.encode_png([rng.integers(0, 64, (600, 700, 3), dtype=np.uint8) for _ in range(12)])
    return {f"{i:02}.png": file if i % 4 != 2 else file[: len(file) // 2] for i, file in enumerate(files)}


def write_archive(path, images, kind):
    if kind.startswith("tar"):
        with tarfile.open(path, "w:gz" if kind == "tar.gz" else "w") as out:
            for name, data in images.items():
                info = tarfile.TarInfo(name)
                info.size = len(data)
                out.addfile(info, io.BytesIO(data))
    else:
        method = zipfile.ZIP_DEFLATED if kind == "deflated.zip" else zipfile.ZIP_STORED
        with zipfile.ZipFile(path, "w", method, compresslevel=1) as out:
            for name, data in images.items():
                out.writestr(name, data)


@pytest.mark.parametrize("kind", ("tar", "stored.zip", "deflated.zip", "tar.gz"))
def test_archives_that_become_shorter(tmp_path, images, kind):
    """1.0.0 mapped them: the process ended by SIGBUS."""
    for round_number, size in enumerate((0, 5000, 1 << 20)):
        path = tmp_path / f"in{round_number}.{kind}"
        write_archive(path, images, kind)
        output = tmp_path / ("out.tar" if round_number % 2 else f"out{round_number}")
        done = subprocess.run([sys.executable, "-c", SHORTEN, path, str(size), output], capture_output=True, text=True, check=False)
        assert done.returncode == 0 and done.stdout.startswith(("result", "error")), (done.returncode, done.stdout, done.stderr)
