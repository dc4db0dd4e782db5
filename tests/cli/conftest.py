# SPDX-License-Identifier: MIT
"""What the command-line tests share: the binary under test, and where a GPU is required.

Environment: CONV_BINARY (default ./conv at the root of the checkout), CONV_REQUIRE_CUDA=1 (a GPU that cannot be
used fails the tests marked `cuda` instead of skipping them), CONV_PHOTOS (a folder of photographs), CONV_RUNNER (what
runs the binary: "valgrind -q"), CONV_TEST_COSTS (see tests/launch.sh), CONV_PYCACHE (a folder for compiled Python),
and what CMake builds for tests: CONV_FAULTS_LIBRARY, CONV_FAULTY_BINARY (faulty.py).
"""
import collections
import fcntl
import os
import resource
import signal
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(__file__))

import numpy as np  # noqa: E402
import pytest  # noqa: E402

# Each file of tests and helpers is compiled by the first process that reads it; in the folder of the sources by none.
sys.pycache_prefix = os.environ.get("CONV_PYCACHE")
sys.dont_write_bytecode = sys.pycache_prefix is None

import faulty  # noqa: E402
import images  # noqa: E402
import program  # noqa: E402


def pytest_configure(config):
    config.addinivalue_line("markers", "cuda: needs a CUDA device")
    config.addinivalue_line("markers", "every: under a sanitizer, too, all cases run: each is code or data that no other has")
    config.addinivalue_line("markers", "alone: with cuda: takes the device's memory, or measures it, so that no other test may use it")
    # A shell without job control makes its background processes ignore some of these, and programs inherit that.
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    os.environ["XDG_STATE_HOME"] = f"/tmp/conv-test-state.{os.getuid()}"  # journals of --in-place
    os.environ.setdefault("CONV_BENCH_SHORTER", "1")  # conv bench measures a tenth
    if not os.access(program.BINARY, os.X_OK):
        raise pytest.UsageError(f"no binary at {program.BINARY}: build conv or set CONV_BINARY")


def pytest_collection_modifyitems(config, items):
    if os.environ.get("CONV_SANITIZED"):
        config.hook.pytest_deselected(items=thin_out(items))
    if program.has_cuda() or os.environ.get("CONV_REQUIRE_CUDA") == "1":
        return
    for item in items:
        if "cuda" in item.keywords:
            item.add_marker(pytest.mark.skip(reason="no CUDA device (CONV_REQUIRE_CUDA=1 makes this a failure)"))


def thin_out(items):
    """Takes out two of three cases of each parametrised test, since the release build compares the results of all; of two
    parameters with three values each, every value stays."""
    seen = collections.Counter()

    def is_dropped(item):
        if "cuda" in item.keywords or item.get_closest_marker("every"):
            return False
        number = seen[item.path, item.originalname]
        seen[item.path, item.originalname] += 1
        return number % 3 != number // 3 % 3

    dropped = [item for item in items if is_dropped(item)]
    items[:] = [item for item in items if item not in dropped]
    return dropped


@pytest.fixture
def box(tmp_path, monkeypatch):
    """An empty folder that is the working directory, so that commands look as a user would type them."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(autouse=True)
def device_lock(request):
    """Tests marked `alone` have the device to themselves among the tests that this user runs."""
    if not request.node.get_closest_marker("cuda"):
        yield
        return
    with open(f"/tmp/conv-test-device.{os.getuid()}.lock", "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX if request.node.get_closest_marker("alone") else fcntl.LOCK_SH)
        yield


def pytest_generate_tests(metafunc):
    """A test with the argument `device` runs on the CPU and, where there is one, on the GPU."""
    if "device" in metafunc.fixturenames:
        metafunc.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)])


def spent():
    """User and system time of this process and of all children that it has waited for, and the clock, in seconds."""
    uses = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(use.ru_utime for use in uses), sum(use.ru_stime for use in uses), time.monotonic()


noted = [0, 0, time.monotonic()]  # by the files before this one; the first file pays for the imports


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item, nextitem):
    """After the last test of a file, its costs go to the file CONV_TEST_COSTS."""
    yield
    if os.environ.get("CONV_TEST_COSTS") and (nextitem is None or nextitem.path != item.path):
        now = spent()
        own = " ".join(f"{a - b:.3f}" for a, b in zip(now, noted))
        noted[:] = now
        with open(os.environ["CONV_TEST_COSTS"], "a") as file:
            file.write(f"{own} cli_{item.path.stem}{os.environ.get('CONV_TEST_SUFFIX', '')}\n")


@pytest.fixture
def photo(box):
    """a.png in the working directory."""
    image = images.make("rgb8", np.random.default_rng(5), 24, 16)
    (box / "a.png").write_bytes(image.data)
    return image


@pytest.fixture
def four_images(box):
    """The folder `in` with images of four kinds."""
    (box / "in").mkdir()
    rng = np.random.default_rng(7)
    for name, kind in (("a", "rgb8"), ("b", "gray8"), ("c", "rgba8"), ("d", "rgb16")):
        (box / "in" / f"{name}.png").write_bytes(images.make(kind, rng, 40, 30).data)
    return "in"


@pytest.fixture
def batch(box):
    """A folder `in` with 63 images of several kinds and sizes."""
    (box / "in").mkdir()
    for index, data in enumerate(faulty.batch_files()):
        (box / "in" / f"{index:02}.png").write_bytes(data)


@pytest.fixture(params=("fake", pytest.param("real", marks=pytest.mark.cuda)))
def gpu(request):
    """The first word of the faults of conv_faulty: "" for a fake device, "real " for a CUDA device that fails."""
    if request.param == "real" and not faulty.has_real():
        pytest.fail("conv_faulty finds no CUDA device behind its own")
    return "real " if request.param == "real" else ""
