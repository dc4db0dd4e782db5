# SPDX-License-Identifier: MIT
"""What is in an output's place. After many outputs that were new nobody looks any more, before one is whole."""
import os
import stat
import subprocess
import threading
import time

import pytest

from program import run, start
from test_batch import fill, is_embossed, tree

NEW = 70  # more than it takes to expect another


def fill_and_list(box, last):
    """Pictures of which all but the last have an output of their own; returns them and their names in order."""
    names = [f"{index:03}.png" for index in range(NEW)] + [last]
    made = fill(box / "in", *names)
    os.mkdir(box / "out")
    return made, names


def run_list(names, code=0, *args):
    return run("emboss", "-b", "-j1", *args, "--files-from=-", "in", "out", stdin="\n".join(names).encode(), code=code)


def check_new(made, names):
    assert all(is_embossed(f"out/{name}", made[name]) for name in names[:NEW])
    assert not [name for name in tree("out") if name.endswith(".tmp")]


def test_a_file_is_replaced(box):
    made, names = fill_and_list(box, "there.png")
    (box / "out" / "there.png").write_bytes(b"old")
    os.link(box / "out" / "there.png", box / "kept")
    run_list(names)
    check_new(made, names)
    assert is_embossed("out/there.png", made["there.png"]) and (box / "kept").read_bytes() == b"old"


def test_all_are_replaced(box):
    made, names = fill_and_list(box, "last.png")
    run_list(names)
    before = {name: os.stat(box / "out" / name).st_ino for name in names}
    run_list(names)
    check_new(made, names)
    assert all(os.stat(box / "out" / name).st_ino != before[name] for name in names)


@pytest.mark.parametrize("link", (os.symlink, os.link))
def test_the_input_is_not(box, link):
    made, names = fill_and_list(box, "there.png")
    link(box / "in" / "there.png", box / "out" / "there.png")
    done = run_list(names, 1)
    check_new(made, names)
    assert "there.png: the output would overwrite the input" in done.err
    assert (box / "in" / "there.png").read_bytes() == made["there.png"].data
    assert f"{NEW} done, 1 failed" in done.err


def test_a_folder_is_not(box):
    made, names = fill_and_list(box, "there.png")
    os.mkdir(box / "out" / "there.png")
    done = run_list(names, 1)
    check_new(made, names)
    assert "there.png is a folder" in done.err and os.path.isdir(box / "out" / "there.png")


def test_a_link_to_nothing_is_replaced(box):
    made, names = fill_and_list(box, "there.png")
    os.symlink("nothing", box / "out" / "there.png")
    run_list(names)
    check_new(made, names)
    assert is_embossed("out/there.png", made["there.png"]) and not os.path.islink(box / "out" / "there.png")


def test_a_pipe_is_written_to(box):
    made, names = fill_and_list(box, "there.png")
    os.mkfifo(box / "out" / "there.png")
    got = []
    reader = threading.Thread(target=lambda: got.append((box / "out" / "there.png").read_bytes()), daemon=True)
    reader.start()
    run_list(names)
    reader.join(60)
    check_new(made, names)
    (box / "got.png").write_bytes(got[0])
    assert is_embossed("got.png", made["there.png"]) and stat.S_ISFIFO(os.stat(box / "out" / "there.png").st_mode)


@pytest.mark.parametrize("option", ("--skip-existing", "--update"))
def test_what_is_to_be_skipped_is(box, option):
    _, names = fill_and_list(box, "there.png")
    (box / "out" / "there.png").write_bytes(b"old")
    run_list(names, 0, option)
    assert (box / "out" / "there.png").read_bytes() == b"old"


def test_a_folder_that_is_moved_away_meanwhile(box):
    """Outputs go where their paths lead."""
    made, names = fill_and_list(box, "last.png")
    process = start("emboss", "-b", "-j1", "--files-from=-", "in", "out", stdin=subprocess.PIPE)
    process.stdin.write("".join(f"{name}\n" for name in names[:NEW]).encode())
    process.stdin.flush()
    deadline = time.monotonic() + 60
    while not os.path.exists(box / "out" / names[NEW - 1]) and time.monotonic() < deadline:
        time.sleep(0.01)
    os.rename(box / "out", box / "moved")
    process.communicate(names[NEW].encode(), timeout=60)
    assert process.returncode == 0
    assert tree("out") == ["last.png"] and is_embossed("out/last.png", made["last.png"])
