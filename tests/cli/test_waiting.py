# SPDX-License-Identifier: MIT
"""Inputs that are slow, endless or in the way: each line of this file was once a hang or a lost file."""
import os
import signal
import subprocess
import time

import pytest

import pictures
from program import run, start
from test_batch import fill


def ends_on(process, number, code):
    time.sleep(0.5)
    assert process.poll() is None, process.communicate()
    process.send_signal(number)
    try:
        process.wait(timeout=20)  # communicate() would close its input, which ends any wait
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == code


@pytest.mark.parametrize("number", (signal.SIGINT, signal.SIGTERM, signal.SIGHUP))
def test_one_signal_ends_the_wait_for_standard_input(box, number):
    ends_on(start("emboss", "-", "x.png", stdin=subprocess.PIPE), number, 128 + number)
    assert os.listdir(box) == []


def test_one_signal_ends_the_wait_for_a_pipe_and_for_a_list(box):
    os.mkfifo("pipe")
    ends_on(start("emboss", "pipe", "x.png"), signal.SIGTERM, 143)
    ends_on(start("emboss", "--files-from", "-", "out", stdin=subprocess.PIPE), signal.SIGINT, 130)


@pytest.mark.parametrize("more", (0, 2))
def test_a_slow_list_holds_up_no_picture_that_it_has_named(box, device, more):
    """Files are fetched ahead of their readers, but no name is waited for while there is something to do."""
    jobs = f"-j{1 + more}"
    fill(box, *(f"{index}.png" for index in range(5)))
    process = start("emboss", jobs, "--device", device, "--files-from=-", "out", stdin=subprocess.PIPE)
    for index in range(5):
        process.stdin.write(f"{index}.png\n".encode())
        process.stdin.flush()
        for _ in range(4000):
            if (box / "out" / f"{index}.png").exists():
                break
            time.sleep(0.005)
        else:
            process.kill()
            pytest.fail(f"{index}.png was not done before the next name came")
    _, err = process.communicate(timeout=60)
    assert process.returncode == 0, err


def test_a_pipe_given_by_name_is_read_to_its_end(box):
    made = fill(box, "a.png")
    os.mkfifo("pipe")
    process = start("identity", "pipe", "x.png")
    with open("pipe", "wb") as pipe:
        for at in range(0, len(made["a.png"].data), 100):
            pipe.write(made["a.png"].data[at:at + 100])
            pipe.flush()
    assert process.wait(timeout=60) == 0, process.communicate()
    assert (pictures.read(box / "x.png") == pictures.read(box / "a.png")).all()


def test_a_folder_is_no_list_of_names(box):
    (box / "folder").mkdir()
    assert "folder" in run("emboss", "--files-from", "folder", "out", code=2).err


def test_a_list_may_have_carriage_returns_and_a_name_without_end(box):
    fill(box, "a.png", "b.png")
    (box / "list").write_bytes(b"a.png\r\n\r\nb.png")
    run("emboss", "--files-from", "list", "out")
    assert sorted(os.listdir("out")) == ["a.png", "b.png"]
    (box / "long").write_bytes(b"a.png\n" + b"x" * 70000)
    assert "1 done, 1 failed" in run("emboss", "--files-from", "long", "out", code=1).err


def test_the_report_overwrites_no_picture(box):
    made = fill(box, "a.png", "b.png")
    for args in (("--report", "a.png", "a.png", "out.png"), ("--dry-run", "--report", "b.png", "a.png", "out.png"),
                 ("--report", "out.png", "a.png", "out.png")):
        assert "--report" in run("emboss", *args, code=2).err
    assert all((box / name).read_bytes() == made[name].data for name in made)


def test_a_dry_run_says_what_would_fail(box):
    fill(box, "a.png")
    assert "overwrite" in run("emboss", "--dry-run", "a.png", "a.png", code=1).err
    assert "missing.png" in run("emboss", "--dry-run", "missing.png", "b.png", code=1).err


@pytest.mark.parametrize("options,code", ((("--variant", "zzz"), 2), (("--report", "/missing/x"), 2)))
def test_a_command_that_cannot_run_makes_no_folder(box, options, code):
    fill(box / "in", "a.png")
    run("emboss", *options, "in", "out", code=code)
    assert not (box / "out").exists()
