# SPDX-License-Identifier: MIT
"""What a user sees in a terminal of 40, 80 and 200 columns: the progress, its end, and no broken lines."""
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time

import numpy as np
import pytest

import images
import program
from program import run

PHOTO = images.make("rgb8", np.random.default_rng(3), 8, 6).data


class Screen:
    """As much of a terminal as the progress needs: line ends, erasing a line, and wrapping at the last column."""

    def __init__(self, columns):
        self.columns, self.lines, self.at, self.wrapped = columns, [""], 0, 0

    def feed(self, text):
        for part in re.findall(r"\x1b\[K|[^\x1b]|\x1b.*", text, re.S):
            if part == "\x1b[K":
                self.lines[-1] = self.lines[-1][:self.at]
            elif part == "\r":
                self.at = 0
            elif part == "\n":
                self.lines.append("")
                self.at = 0
            else:
                assert " " <= part <= "~", f"{part!r} needs more than ASCII, or an escape sequence of its own"
                if self.at == self.columns:
                    self.lines.append("")
                    self.at = 0
                    self.wrapped += 1
                self.lines[-1] = self.lines[-1][:self.at].ljust(self.at) + part + self.lines[-1][self.at + 1:]
                self.at += 1


@pytest.fixture(autouse=True)
def nothing_is_left_running(monkeypatch):
    """Ends programs that wait for a pipe or a key, which would outlive a failing test."""
    started, popen = [], subprocess.Popen

    def remember(*args, **options):
        started.append(popen(*args, **options))
        return started[-1]

    monkeypatch.setattr(subprocess, "Popen", remember)
    yield
    for process in started:
        if process.poll() is None:
            process.kill()
            process.wait()


class Terminal:
    """The program with a terminal of its own as its standard error and its keyboard."""

    def __init__(self, columns, *args, **environment):
        self.controller, terminal = pty.openpty()
        self.screen = Screen(columns)
        self.resize(columns)
        args = [args[0], "--device", "cpu", *args[1:]]
        self.process = subprocess.Popen(
            [*program.RUNNER, program.BINARY, *args], stdin=terminal, stdout=subprocess.PIPE, stderr=terminal, start_new_session=True,
            env={**os.environ, "TERM": "xterm", "LC_ALL": "C", **environment},
            preexec_fn=lambda: fcntl.ioctl(2, termios.TIOCSCTTY, 0))
        os.close(terminal)

    def resize(self, columns):
        fcntl.ioctl(self.controller, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        self.screen.columns = columns

    def read(self, seconds):
        if not select.select([self.controller], [], [], seconds)[0]:
            return False
        try:
            data = os.read(self.controller, 4096)
        except OSError:  # the last process has closed it
            return False
        self.screen.feed(data.decode())
        return bool(data)

    def wait_for(self, pattern):
        """Waits until the last line matches."""
        deadline = time.monotonic() + program.TIMEOUT
        while not re.fullmatch(pattern, self.screen.lines[-1]):
            assert time.monotonic() < deadline and self.process.poll() is None, self.screen.lines
            self.read(0.1)
        return self.screen.lines[-1]

    def type(self, keys):
        os.write(self.controller, keys)

    def end(self):
        while self.read(program.TIMEOUT):
            pass
        code = self.process.wait(program.TIMEOUT)
        self.process.stdout.close()
        os.close(self.controller)
        return code


@pytest.fixture
def waiting(box):
    """Nine images, and a pipe without a writer: `conv` filters nine of ten and waits."""
    os.mkdir("in")
    for i in range(9):
        (box / f"in/{i}.png").write_bytes(PHOTO)
    os.mkfifo("pipe")
    return ("emboss", "-o", "out", "in", "pipe")


BAR, LEFT = r"\[=+> *\]  ", r"  \d+:\d\d left"
ALL = rf"{BAR} 90 %  9 of 10  [\d.]+ img/s{LEFT}"


@pytest.mark.parametrize("columns,pattern", ((200, ALL), (80, ALL), (40, rf"(?:{BAR})? 90 %  9 of 10(?:  [\d.]+ img/s)?{LEFT}"),
                                             (20, r" 90 %(?:  \S+ (?:left|of 10))?"), (9, " 90 %")))
def test_progress_fits_and_ends_with_a_signal(waiting, columns, pattern):
    terminal = Terminal(columns, *waiting)
    line = terminal.wait_for(pattern)
    assert len(line) <= columns - 3 and terminal.screen.lines == [line]
    assert columns != 200 or line.startswith("[" + "=" * 52 + ">")
    terminal.type(b"\x03")
    assert terminal.end() == 130
    assert "".join(terminal.screen.lines) == "interrupted: 9 of 10 done, 1 left; --skip-existing continues", terminal.screen.lines


def test_progress_follows_the_size_of_the_window(waiting):
    terminal = Terminal(80, *waiting)
    terminal.wait_for(ALL)
    terminal.resize(18)
    terminal.wait_for(r" 90 %(  9 of 10)?")
    terminal.resize(120)
    terminal.wait_for(ALL)
    terminal.process.send_signal(signal.SIGTERM)
    assert terminal.end() == 143
    assert terminal.screen.lines == ["interrupted: 9 of 10 done, 1 left; --skip-existing continues", ""]


def test_failures_stay_above_the_bar(waiting):
    with open("in/4.png", "wb") as file:
        file.write(b"no image")
    terminal = Terminal(100, *waiting)
    terminal.wait_for(ALL + "  1 failed")
    with open("pipe", "wb") as file:
        file.write(PHOTO)
    assert terminal.end() == 1
    first, *closing = terminal.screen.lines
    assert re.fullmatch(r"conv: in/4\.png: not a PNG.* \(bad signature\)", first)
    assert re.fullmatch(r"9 images -> out/ in [\d.]+ s \(\S+ images/s\), 1 failed", "".join(closing)) and "[" not in "".join(closing)


def test_a_list_that_comes_through_a_pipe_has_no_total(waiting):
    os.mkfifo("list")
    terminal = Terminal(80, "emboss", "-o", "out", "--files-from", "list")
    with open("list", "w") as file:
        file.write("in/0.png\nin/1.png\n")
        file.flush()
        terminal.wait_for(r"2 done  [\d.]+ img/s")
    assert terminal.end() == 0


@pytest.mark.parametrize("options,environment", ((("--progress=never",), {}), (("-q",), {}), ((), {"TERM": "dumb"})))
def test_terminals_without_a_bar(waiting, options, environment):
    terminal = Terminal(80, *waiting, *options, **environment)
    with open("pipe", "wb") as file:
        time.sleep(0.2)  # longer than it takes until a bar would be drawn
        file.write(PHOTO)
    assert terminal.end() == 0
    lines = terminal.screen.lines
    if "TERM" in environment:  # a line of progress after a second, which a busy machine may take
        lines = [line for line in lines if not re.match(r"conv: \d+ of \d+ \(", line)]
    said = "".join(lines)
    assert "%" not in said and (not said) == ("-q" in options), lines


def test_one_image_has_no_progress(waiting):
    terminal = Terminal(80, "emboss", "pipe", "x.png")
    with open("pipe", "wb") as file:
        time.sleep(0.2)
        file.write(PHOTO)
    assert terminal.end() == 0 and terminal.screen.lines == [""]


def read_until(process, pattern):
    """Reads lines of progress until one matches: on a busy machine the first ones come too early."""
    line = ""
    while not re.fullmatch(pattern, line):
        line = process.stderr.readline().decode()
        assert re.match(r"conv: \d+ (done|of (at least )?\d+)\b", line), line


def test_lines_where_there_is_no_terminal(waiting):
    """--progress always: a line after one second and then every five seconds."""
    process = program.start(*waiting, "--progress=always")
    read_until(process, r"conv: 9 of 10 \(90 %\), [\d.]+ img/s, \d+:\d\d left\n")
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=program.TIMEOUT)
    assert process.returncode == 130 and err == b"interrupted: 9 of 10 done, 1 left; --skip-existing continues\n"


@pytest.mark.parametrize("options,advice", ((("--resume=j",), "; the same command continues"),
                                            (("--skip-existing",), "; the same command continues"), (("--no-save",), "")))
def test_what_continues_an_interrupted_run(waiting, options, advice):
    process = program.start(*waiting, *options, "--progress=always")
    read_until(process, "conv: 9 of 10 .*\n")
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=program.TIMEOUT)
    assert err.decode() == f"interrupted: 9 of 10 done, 1 left{advice}\n"


def test_the_total_counts_folders_ahead(box):
    """The images of later folders are counted while the first image waits."""
    for folder in ("in", "in/sub", "in/sub/deep"):
        os.mkdir(folder)
        for i in range(300):
            with open(f"{folder}/{i}.png", "wb"):
                pass
    os.mkfifo("pipe")
    process = program.start("emboss", "-r", "-j1", "-o", "out", "pipe", "in", "--progress=always")
    read_until(process, r"conv: 0 of 901 \(0 %\)\n")
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=program.TIMEOUT)
    assert err == b"interrupted: 0 of 901 done, 901 left; --skip-existing continues\n"


# --- one image -----------------------------------------------------------------------------------

def test_one_image_is_silent(box):
    (box / "a.png").write_bytes(PHOTO)
    for typed in (("a.png", "b.png"), ("a.png", "-o", "b.png"), ("-o", "out", "a.png"), ("--in-place", "b.png"),
                  ("--beside", "--suffix=_e", "a.png")):
        result = run("emboss", *typed)
        assert result.err == "" and result.out == "", typed
    assert re.search(r"(?m)^1 done, 0 failed, 0 skipped, ", run("emboss", "-v", "a.png", "b.png").err)
