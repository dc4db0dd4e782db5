# SPDX-License-Identifier: MIT
"""Runs the program under test and reads what it says."""
import functools
import json
import os
import subprocess

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BINARY = os.path.abspath(os.environ.get("CONV_BINARY") or os.path.join(ROOT, "conv"))
RUNNER = os.environ.get("CONV_RUNNER", "").split()  # what runs it: "valgrind -q ..."
TIMEOUT = 1800 if RUNNER else 300  # seconds: sanitizer builds and valgrind are slow, a hang is longer


def start(*args, **kwargs):
    """Popen of the program with both outputs piped. The CPU computes unless `--device` says otherwise."""
    args = [os.fspath(a) for a in args]
    filters = bool(args) and not args[0].startswith("-") and args[0] not in PLAIN_COMMANDS
    if filters and not any(a.startswith("--device") for a in args):
        args[1:1] = ["--device", "cpu"]
    return subprocess.Popen([*RUNNER, BINARY, *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, **kwargs)


PLAIN_COMMANDS = ("bench", "verify", "list", "show", "devices")


class Result:
    def __init__(self, code, out, err):
        self.code, self.out_bytes = code, out
        self.out, self.err = out.decode(errors="replace"), err.decode(errors="replace")

    def records(self):
        """The JSON Lines on stdout."""
        return [json.loads(line) for line in self.out.splitlines()]


def run(*args, code=0, stdin=b"", **kwargs):
    """Runs to the end, demands the exit code and returns the Result."""
    process = start(*args, stdin=subprocess.PIPE, **kwargs)
    try:
        out, err = process.communicate(stdin, timeout=TIMEOUT)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise
    result = Result(process.returncode, out, err)
    said = f"conv {' '.join(map(str, args))}\nexit code {result.code}, stderr:\n{result.err}"
    assert "Sanitizer" not in result.err and "runtime error:" not in result.err, said
    assert result.code == code, said
    return result


@functools.lru_cache(maxsize=None)
def has_cuda():
    """True if the program itself finds a device that it can use."""
    result = subprocess.run([BINARY, "devices"], capture_output=True, timeout=TIMEOUT)
    return b"cuda:0" in result.stdout
