# SPDX-License-Identifier: MIT
"""Runs the program under test and reads its output."""
import contextlib
import fcntl
import functools
import json
import os
import re
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time

import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BINARY = os.path.abspath(os.environ.get("CONV_BINARY") or os.path.join(ROOT, "conv"))
RUNNER = os.environ.get("CONV_RUNNER", "").split()  # what runs it: "valgrind -q ..."
# The CUDA backend with its kernels on the CPU; its threads change stacks, which valgrind cannot follow.
EMULATED = None if RUNNER else os.environ.get("CONV_EMULATED_BINARY")
HAS_JPEG = os.environ.get("CONV_HAVE_JPEG") != "0"  # whether the program was built with libjpeg-turbo
HAS_TIFF = os.environ.get("CONV_HAVE_TIFF") != "0"  # and with libtiff
HAS_WEBP = os.environ.get("CONV_HAVE_WEBP") != "0"  # and with libwebp
TIMEOUT = 1800 if RUNNER else 900  # seconds: sanitizer builds and valgrind are slow, and so is a busy machine; a hang is longer


@functools.lru_cache
def __getattr__(name):
    """NO_IMAGE: what is said of a file of another kind, with the formats of this build."""
    if name != "NO_IMAGE":
        raise AttributeError(name)
    said = subprocess.run([BINARY, "identity", "--device=cpu", "-", "-"], input=b"no image", capture_output=True, timeout=TIMEOUT).stderr
    return re.search(r"not a PNG.* \(bad signature\)", said.decode())[0]


def start(*args, **kwargs):
    """Popen of the program with both outputs piped. The device is the CPU unless the arguments have `--device`."""
    args = [os.fspath(a) for a in args]
    filters = bool(args) and not args[0].startswith("-") and args[0] not in PLAIN_COMMANDS
    if filters and not any(a.startswith("--device") for a in args):
        args[1:1] = ["--device", "cpu"]
    return subprocess.Popen([*RUNNER, BINARY, *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, **kwargs)


# Starts the program and records its peak memory and the pages that it touched. It is a process of its own, since on Linux the peak
# starts at the memory of the parent: a bare Python is small, one with NumPy and images is not.
LAUNCHER = """
import os, sys
_, status, usage = os.wait4(os.posix_spawn(sys.argv[2], sys.argv[2:], os.environ), 0)
with open(sys.argv[1], "w") as file:
    file.write(f"{usage.ru_maxrss} {usage.ru_minflt}")
sys.exit(os.waitstatus_to_exitcode(status) % 256)
"""

PLAIN_COMMANDS = ("bench", "verify", "list", "show", "devices", "help", "version", "report")


class Result:
    def __init__(self, code, out, err):
        self.code, self.out_bytes = code, out
        self.out, self.err = out.decode(errors="replace"), err.decode(errors="replace")

    def records(self):
        """The JSON Lines on stdout."""
        return [json.loads(line) for line in self.out.splitlines()]


CLOSING = re.compile(r"(?m)^(\d+) images?\b.* in [\d.]+ s(?: \([\d.]+ images/s\))?((?:, \d+ \w+)*)(.*)$")


def closing(text):
    """The last closing line with all its counts, as --verbose has them: "3 done, 0 failed, 1 skipped, 2 copied; 1 ignored"."""
    text = text.decode() if isinstance(text, bytes) else text
    if not CLOSING.search(text):
        return text
    done, others, rest = CLOSING.findall(text)[-1]
    counts = {"failed": 0, "skipped": 0, **{what: count for count, what in re.findall(r"(\d+) (\w+)", others)}}
    return ", ".join([f"{done} done", *(f"{count} {what}" for what, count in counts.items())]) + rest


def checked(args, code, result):
    """Checks that a run with these arguments ended with that exit code, and returns its result."""
    said = f"conv {' '.join(map(str, args))}\nexit code {result.code}, stderr:\n{result.err}"
    assert "Sanitizer" not in result.err and "runtime error:" not in result.err, said
    assert code in (None, result.code), said
    return result


def run(*args, code=0, stdin=b"", **kwargs):
    """Runs to the end, checks the exit code and returns the Result."""
    process = start(*args, stdin=subprocess.PIPE, **kwargs)
    try:
        out, err = process.communicate(stdin, timeout=TIMEOUT)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise
    return checked(args, code, Result(process.returncode, out, err))


def run_on(place, *args, coders=()):
    """Like run(), with --device cpu or cuda, or on the emulated device, which also takes the options `coders`."""
    if place != "emulated":
        return run(args[0], "--device", place, *args[1:])
    if not EMULATED:
        pytest.skip("no CONV_EMULATED_BINARY: not started by ctest, or no emulation in this build")
    done = subprocess.run([EMULATED, args[0], "--device", "cuda", *coders, *map(os.fspath, args[1:])], capture_output=True, timeout=TIMEOUT)
    return checked(args, 0, Result(done.returncode, done.stdout, done.stderr))


def measure(*args, code=0, stdin=b"", timeout=TIMEOUT):
    """Like run(); the Result also has `peak` (memory in bytes, 10 MB or more) and `faults` (pages that were touched)."""
    with tempfile.NamedTemporaryFile("r") as note:
        launcher = [sys.executable, "-S", "-E", "-c", LAUNCHER, note.name]
        process = subprocess.Popen([*launcher, BINARY, *map(os.fspath, args)], stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
        try:
            out, err = process.communicate(stdin, timeout=timeout)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            raise
        result = checked(args, code, Result(process.returncode, out, err))
        peak, result.faults = map(int, note.read().split())
        result.peak = peak * 1024
    return result


# --- waiting for events ---------------------------------------------------------------------------
# On a busy machine any process may be suspended for a second, this one included. Tests therefore wait for the event
# that they need, never for a time that is long enough "in practice".

def until(ready, process=None):
    """Waits until `ready()` is true and returns its value. It is an error if the process ends first."""
    deadline = time.monotonic() + TIMEOUT
    while not (value := ready()):
        if process is not None and process.poll() is not None:
            value = ready()  # it may have become true meanwhile
            assert value, (process.returncode, *process.communicate())
            return value
        assert time.monotonic() < deadline, "nothing happened"
        time.sleep(0.005)
    return value


def states(process):
    """The states of its threads: R (running or ready), S (asleep), D (waiting for a disk), T (stopped), Z (ended)."""
    found = set()
    tasks = f"/proc/{process.pid}/task"
    for task in os.listdir(tasks) if os.path.exists(tasks) else ():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
            with open(f"{tasks}/{task}/stat") as file:
                found.add(file.read().rpartition(")")[2].split()[0])
    return found


def until_idle(process):
    """Waits until all threads are asleep and none has run between two looks: without an event, nothing more will happen."""
    last = None

    def is_idle():
        nonlocal last
        switches, before = {}, last
        for task in os.listdir(f"/proc/{process.pid}/task"):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError), open(f"/proc/{process.pid}/task/{task}/status") as file:
                switches[task] = re.findall(r"ctxt_switches:\s*(\d+)", file.read())
        last = switches
        return states(process) == {"S"} and switches == before

    until(is_idle, process)


def waiting_bytes(pipe):
    """How many bytes of the pipe have not been read."""
    return struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)))[0]


def stop(process):
    """Sends SIGSTOP and waits until it takes effect: every thread has to run once more. False if the process has ended."""
    process.send_signal(signal.SIGSTOP)
    until(lambda: states(process) <= {"T", "Z"})
    return process.poll() is None


def catches(process, number):
    """True if the process is alive and has a handler for the signal."""
    if process.poll() is not None:
        return False
    with open(f"/proc/{process.pid}/status") as file:
        mask = next(line for line in file if line.startswith("SigCgt:")).split()[1]
    return bool(int(mask, 16) & 1 << (number - 1))


def waits_and_catches(process, number):
    """True if it has a handler for the signal and all its threads are asleep."""
    return catches(process, number) and states(process) == {"S"}


@functools.lru_cache(maxsize=None)
def is_sanitized():
    """True for a build with sanitizers, whose use of memory says nothing about the program's."""
    with open(BINARY, "rb") as file:
        content = file.read()
    return b"__asan_init" in content or b"__tsan_init" in content


@functools.lru_cache(maxsize=None)
def is_thread_sanitized():
    """True for a build whose _exit() flushes all streams and whose signals may wait for the end of a system call."""
    with open(BINARY, "rb") as file:
        return b"__tsan_init" in file.read()


@functools.lru_cache(maxsize=None)
def has_cuda():
    """True if the program itself finds a device that it can use."""
    result = subprocess.run([BINARY, "devices"], capture_output=True, timeout=TIMEOUT)
    return b"cuda:0" in result.stdout


@functools.lru_cache(maxsize=None)
def knows_cuda():
    """True if the program was built with CUDA, with or without a device to use."""
    result = subprocess.run([BINARY, "devices"], capture_output=True, timeout=TIMEOUT)
    return b"built without CUDA" not in result.stdout


@functools.lru_cache(maxsize=None)
def hides_instruction_sets():
    """True for a program built with CONV_TESTS, which reads CONV_DISABLE. ctest runs no other."""
    if "CONV_FAULTY_BINARY" in os.environ:
        return True
    with open(BINARY, "rb") as file:
        return b"CONV_DISABLE" in file.read()
