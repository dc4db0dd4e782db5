# SPDX-License-Identifier: MIT
"""No interleaving of threads loses a wake-up or deadlocks.

Threads pause at random where they take and leave locks (`delay=` of tests/preload/faults.c), under random settings and
little memory, while names trickle in, signals come and devices fail. The test fails if a run does not end.
CONV_SEED repeats a round, CONV_ROUNDS sets how many there are.
"""
import os
import random
import signal
import subprocess
import threading
import time

import pytest

import program
from faulty import environment, needs_library
from folders import tree
from test_settings import EMULATED, SEED, draw_device, draw_settings, folder  # noqa: F401 (a fixture)

ROUNDS = int(os.environ.get("CONV_ROUNDS", 12))

pytestmark = needs_library


def trickle(process, names, draw):
    """Writes names into a pipe, at times with a pause, as a program does that is still creating the files."""
    try:
        for name in names:
            if draw.random() < 0.05:
                time.sleep(draw.uniform(0, 0.02))
            process.stdin.write(f"{name}\n".encode())
            process.stdin.flush()
        process.stdin.close()
    except BrokenPipeError:
        pass


@pytest.mark.every
@pytest.mark.parametrize("way", ("folder", "list", "fail-fast", "signal"))
@pytest.mark.parametrize("number", range(ROUNDS))
def test_every_run_ends(folder, tmp_path, monkeypatch, way, number):  # noqa: F811
    draw = random.Random(SEED * 1000 + number)
    binary, device, fault = draw_device(draw)
    while binary == EMULATED:  # whose own locks would pause most of the time
        binary, device, fault = draw_device(draw)
    settings = [option.replace("JOURNAL", str(tmp_path / "journal")) for option in draw_settings(draw)]
    names = draw.sample(folder.good + folder.bad, len(folder.good) + len(folder.bad))
    delay = f"delay={draw.choice((100, 1000, 5000))} seed={draw.randrange(1000)}"
    (tmp_path / "seen").touch()
    monkeypatch.chdir(tmp_path)
    environ = {**environment(delay), "CONV_FAULTY": fault, "CONV_FAULTS_SEEN": str(tmp_path / "seen")}
    inputs = ["--files-from=-", folder.box / "in"] if way == "list" else ["-r", folder.box / "in"]
    command = [binary, "emboss", f"--device={device}", *settings, *["--fail-fast"] * (way == "fail-fast"), *inputs, tmp_path / "out"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, env=environ)
    said = f"CONV_SEED={SEED} way {way} number {number}: CONV_FAULTS='{delay}' CONV_FAULTY='{fault}' {' '.join(map(str, command))}"
    writer = threading.Thread(target=trickle, args=(process, names, draw))
    if way == "list":
        writer.start()
    if way == "signal":
        time.sleep(draw.uniform(0, 0.2))
        process.send_signal(draw.choice((signal.SIGINT, signal.SIGTERM)))
    alarm = threading.Timer(int(os.environ.get("CONV_PATIENCE", program.TIMEOUT)), process.kill)
    alarm.start()
    if way != "list":
        process.stdin.close()
    err = process.stderr.read()
    code = process.wait()
    alarm.cancel()
    if way == "list":
        writer.join()
    assert code != -signal.SIGKILL, f"does not end: {said}"
    said += f"\n{err.decode(errors='replace')}"
    if way == "signal":
        assert code in (1, 130, 143, -signal.SIGINT, -signal.SIGTERM), said  # it may come before, or too late
    else:
        assert code == 1, said
    made = [name for name in tree(tmp_path / "out") if not name.endswith(".tmp")] if (tmp_path / "out").exists() else []
    want = folder.want(("emboss",))
    assert all((tmp_path / "out" / name).read_bytes() == want[name] for name in made), said
    if way in ("folder", "list"):
        assert made == folder.good, said
