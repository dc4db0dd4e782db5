# SPDX-License-Identifier: MIT
"""What filter_folder leaves alone in the process: files that change, signals, other callers, child processes."""

import io
import os
import signal
import subprocess
import sys
import tarfile
import zipfile
from concurrent.futures import ThreadPoolExecutor

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


@pytest.mark.parametrize("kind", ("tar", "stored.zip", "deflated.zip", "tar.gz"))
def test_archives_that_stay(tmp_path, images, kind):
    path = tmp_path / f"in.{kind}"
    write_archive(path, images, kind)
    result = conv.filter_folder(path, tmp_path / "out", "gaussian5")
    assert (result.done, result.failed) == (9, 3) and result.listed
    for name in sorted(os.listdir(tmp_path / "out")):
        assert np.array_equal(conv.decode_png((tmp_path / "out" / name).read_bytes()),
                              conv.filter(conv.decode_png(images[name]), "gaussian5"))


def test_two_folders_at_once(tmp_path, images):
    """Each caller gets its own result and errors."""
    for kind in ("tar", "stored.zip"):
        write_archive(tmp_path / f"a.{kind}", images, kind)
    write_archive(tmp_path / "few.tar", dict(list(images.items())[:5]), "tar")
    (tmp_path / "no.tar").write_bytes(b"no archive" * 100)

    def work(number):
        source, wanted = (("a.tar", (9, 3)), ("a.stored.zip", (9, 3)), ("few.tar", (4, 1)), ("no.tar", None))[number % 4]
        try:
            result = conv.filter_folder(tmp_path / source, tmp_path / f"out{number}.tar", "emboss")
        except (OSError, ValueError):
            return wanted is None
        if wanted is None:
            return result.done == 0 and result.failed > 0
        assert all(path.startswith(str(tmp_path / source)) for path, _ in result.failures)
        return (result.done, result.failed) == wanted and len(result.failures) == wanted[1]

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(8)))
    child = os.fork()
    if child == 0:
        os._exit(0 if work(2) and work(3) else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_the_process_is_as_it_was(tmp_path, images):
    write_archive(tmp_path / "a.tar", images, "tar")
    numbers = sorted(signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP})

    def state():
        mask = os.umask(0o27)
        os.umask(mask)
        return ([signal.getsignal(number) for number in numbers], signal.pthread_sigmask(signal.SIG_BLOCK, ()), mask, os.getcwd(),
                dict(os.environ), open("/proc/self/environ", "rb").read(), os.listdir("/proc/self/fd"))

    conv.filter_folder(tmp_path / "a.tar", tmp_path / "first.tar", "emboss")
    before = state()
    during = []
    conv.filter_folder(tmp_path / "a.tar", tmp_path / "out.tar", "emboss", progress=lambda progress: during.append(state()[:5]))
    assert state() == before and during and all(one == before[:5] for one in during)
