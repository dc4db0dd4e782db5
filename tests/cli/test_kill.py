# SPDX-License-Identifier: MIT
"""A run killed at any moment: outputs on the disk are whole, and the next run removes leftovers and completes the work."""
import os
import random
import signal
import subprocess
import time

import pytest

import images
import program
from folders import fill, fill_with_noise, image, tree
from program import run, start, until

STRANGER = ".conv-00000001-1-1-0.tmp"  # left by another machine, whose processes cannot be looked up


def is_temporary(name):
    return name.startswith(".conv-") and name.endswith(".tmp")


def fill_with_one(folder, count):
    """`count` times the same small image: complete outputs are identical."""
    folder.mkdir()
    data = image(4, 60, 40).data
    for index in range(count):
        (folder / f"{index:04}.png").write_bytes(data)


def check_whole(folder, want):
    """Checks the bytes of every output; returns the number of outputs."""
    names = [name for name in tree(folder) if not is_temporary(name)]
    for name in names:
        assert (folder / name).read_bytes() == want, name
    return len(names)


class Killer:
    """Kills runs at random moments. It keeps learning how long a run takes, since the load of the machine changes."""

    def __init__(self, seed, *args):
        self.moments = random.Random(seed)
        begin = time.monotonic()
        run(*args)
        self.whole_run = time.monotonic() - begin

    def kill(self, *args, between=(0, 1)):
        """Kills one run; True if it had not ended by itself."""
        process = start(*args)
        time.sleep(self.moments.uniform(*between) * self.whole_run)
        process.kill()
        process.communicate()
        killed = process.returncode == -signal.SIGKILL
        self.whole_run *= 1.05 if killed else 0.8  # four of five are killed
        return killed


def test_fifty_kills(box):
    """Each run is killed at a random moment and replaces the outputs of the runs before it."""
    fill_with_one(box / "in", 100)
    command = ("emboss", "-j2", "--fsync", "in", "out")
    killer = Killer(6, *command)
    want = (box / "out" / "0000.png").read_bytes()
    images.decode(want)
    killed = left_over = 0
    kills = 20 if os.environ.get("CONV_SANITIZED") else 50  # a slower build reaches no other moments
    # On a memory file system, where --fsync has nothing to wait for, files are whole at almost every moment.
    system = subprocess.run(["stat", "--file-system", "--format=%T", "."], stdout=subprocess.PIPE, text=True, check=True)
    least = 0 if system.stdout.strip() == "tmpfs" else kills / 50
    for number in range(3 * kills):  # more than `kills` where most moments were useless
        killed += killer.kill(*command)
        left_over += any(map(is_temporary, os.listdir("out")))
        check_whole(box / "out", want)
        if number + 1 >= kills and killed > kills / 2 and left_over > least - 1:
            break
    assert killed > kills / 2 and left_over > least - 1, "the moments prove nothing"
    run(*command)
    assert tree("out") == tree("in"), "the next run clears up"
    check_whole(box / "out", want)


def knows_nameless_files(folder):
    try:
        os.close(os.open(folder, os.O_TMPFILE | os.O_WRONLY))
        return True
    except OSError:
        return False


def test_new_outputs_leave_nothing_when_killed(box):
    if not knows_nameless_files(box):
        pytest.skip("the file system has no files without a name")
    fill_with_one(box / "in", 150)
    killer = Killer(7, "emboss", "-j2", "in", "want")
    want = (box / "want" / "0000.png").read_bytes()
    killed = 0
    for number in range(60):
        if number >= 20 and killed > 5:
            break
        killed += killer.kill("emboss", "-j2", "in", f"out{number}")
        if (box / f"out{number}").exists():
            check_whole(box / f"out{number}", want)
            assert not any(map(is_temporary, os.listdir(box / f"out{number}")))
    assert killed > 5, "the moments prove nothing"


def test_skip_existing_after_a_kill_does_what_is_left(box):
    fill_with_one(box / "in", 400)
    run("emboss", "in/0000.png", "want.png")
    # Names from a pipe, the last of which never come: it cannot be over before it is killed.
    process = start("emboss", "-j2", "--fsync", "--files-from=-", "in", "out", stdin=subprocess.PIPE)
    process.stdin.write("".join(f"{index:04}.png\n" for index in range(300)).encode())
    process.stdin.flush()
    until(lambda: (box / "out").exists() and len(os.listdir("out")) >= 20, process)
    process.kill()
    process.communicate()
    before = check_whole(box / "out", (box / "want.png").read_bytes())
    assert 0 < before < 400
    summary = run("emboss", "--skip-existing", "--json", "in", "out").records()[-1]
    assert (summary["skipped"], summary["done"]) == (before, 400 - before)
    assert tree("out") == tree("in")
    assert check_whole(box / "out", (box / "want.png").read_bytes()) == 400


@pytest.mark.parametrize("number", (signal.SIGINT, signal.SIGTERM))
def test_a_second_signal_ends_at_once_with_nothing_half_written(box, number):
    fill_with_noise(box / "in", 2000)
    process = start("emboss", "-z12", "in", "out")
    until(lambda: (box / "out").exists() and len(os.listdir("out")) >= 3, process)
    process.send_signal(number)
    time.sleep(0.002)
    process.send_signal(number)
    process.communicate(timeout=program.TIMEOUT)
    assert process.returncode == 128 + number
    names = os.listdir("out")
    assert not any(map(is_temporary, names)) and len(names) < 2000
    assert len({(box / "out" / name).read_bytes() for name in names}) == 1


# --- temporary files -----------------------------------------------------------------------------

def test_a_file_of_another_machine_goes_after_a_day(box):
    fill(box / "in", "a.png")
    (box / "out").mkdir()
    (box / "out" / STRANGER).write_bytes(b"half")
    run("emboss", "in", "out")
    assert tree("out") == [STRANGER, "a.png"]
    os.utime(box / "out" / STRANGER, (time.time() - 90000,) * 2)
    run("emboss", "in", "out")
    assert tree("out") == ["a.png"]


def test_half_written_files_are_no_images(box):
    fill(box / "in", "a.png")
    (box / "in" / STRANGER).write_bytes(b"half")
    run("emboss", "--include=*", "in", "out")
    assert tree("out") == ["a.png"]


def test_two_runs_on_one_output_at_once(box):
    fill_with_one(box / "in", 300)
    both = [start("emboss", "-j2", "in", "out") for _ in range(2)]
    for process in both:
        _, err = process.communicate(timeout=program.TIMEOUT)
        assert process.returncode == 0, err
    run("emboss", "in/0000.png", "want.png")
    assert tree("out") == tree("in") and check_whole(box / "out", (box / "want.png").read_bytes()) == 300


# --- pipes ---------------------------------------------------------------------------------------

def test_nobody_reads_standard_output(box):
    """SIGPIPE gives a message and exit code 1, with JSON Lines and with an image; no output is cut short."""
    fill_with_one(box / "in", 50)
    for args in (("emboss", "--json", "in", "out"), ("emboss", "in/0000.png", "-")):
        read_end, write_end = os.pipe()
        os.close(read_end)
        done = subprocess.run([program.BINARY, *args, "--device=cpu"], stdout=write_end, stderr=subprocess.PIPE, timeout=program.TIMEOUT)
        os.close(write_end)
        assert done.returncode == 1 and b"Broken pipe" in done.stderr, done.stderr
    assert len(tree("out")) == 50, "the images are not to blame"
