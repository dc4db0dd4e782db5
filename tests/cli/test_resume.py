# SPDX-License-Identifier: MIT
"""--resume: the journal knows what is done under which settings from which input, and never says so wrongly."""
import os
import random
import shutil
import time

import pytest

import program
from program import run, start
from test_batch import fill, is_embossed, picture, tree
from test_kill import check_whole, fill_with_one, kill_soon


def resume(*args, filters="emboss", journal="journal", code=0):
    """What became of the pictures: (done, skipped)."""
    summary = run(filters, "--json", "--resume", journal, *args, code=code).records()[-1]
    return summary["done"], summary["skipped"]


def test_a_second_run_has_nothing_to_do(box, device):
    made = fill(box / "in", "a.png", "b\n.png", "sub/c.png")
    assert resume("-r", "in", "out", "--device", device) == (3, 0)
    assert resume("-r", "in", "out", "--device", device) == (0, 3)
    lines = (box / "journal").read_text().splitlines()
    assert lines[0] == "conv-journal 1" and sorted(line[33:] for line in lines[1:]) == ["in/a.png", "in/b\\x0a.png", "in/sub/c.png"]
    assert all(is_embossed(box / "out" / name, source) for name, source in made.items())


@pytest.mark.parametrize("options", ({"filters": "blur"}, ("--border=wrap",), ("--border=constant:9",), ("--bias=1",),
                                     ("--divisor=3",), ("--flip",), ("--alpha=filter",), ("--strip",), ("-z3",),
                                     ("--encoder=libpng",), ("-p",)))
def test_other_settings_are_other_outputs(box, options):
    fill(box / "in", "a.png")
    filters = options["filters"] if isinstance(options, dict) else "emboss"
    extra = () if isinstance(options, dict) else options
    assert resume("in", "out") == (1, 0)
    assert resume("in", "out", *extra, filters=filters) == (1, 0)
    assert resume("in", "out", *extra, filters=filters) == (0, 1)


@pytest.mark.parametrize("options", (("-j1",), ("--variant=cpu_portable",), ("--group=1M",), ("-v",)))
def test_what_changes_no_output_changes_nothing(box, options):
    fill(box / "in", "a.png")
    assert resume("in", "out") == (1, 0) and resume("in", "out", *options) == (0, 1)


def test_a_filter_is_its_numbers_not_its_name(box):
    fill(box / "in", "a.png")
    (box / "own.mat").write_text("1 1 1 0\n1\n")
    assert resume("in", "out", filters="./own.mat") == (1, 0)
    (box / "own.mat").write_text("1 1 1 0\n2\n")
    assert resume("in", "out", filters="./own.mat") == (1, 0)


def test_changed_inputs_and_outputs_are_stale(box):
    fill(box / "in", "a.png", "b.png", "c.png", "d.png", "e.png")
    resume("in", "out")
    (box / "in" / "a.png").write_bytes(picture(77).data)  # another picture
    os.utime(box / "in" / "b.png", ns=(10**18, 10**18))  # perhaps another picture
    (box / "out" / "c.png").unlink()
    (box / "out" / "d.png").write_bytes(b"something else")
    assert resume("in", "out") == (4, 1)
    assert resume("in", "out") == (0, 5)
    assert is_embossed("out/a.png", picture(77))


def test_after_kills_only_what_is_left_is_done(box):
    moments = random.Random(3)
    fill_with_one(box / "in", 300)
    run("emboss", "in/0000.png", "want.png")
    want = (box / "want.png").read_bytes()
    begin = time.monotonic()
    run("emboss", "-j2", "--fsync", "in", "once")
    whole_run = time.monotonic() - begin
    (box / "out").mkdir()
    for _ in range(12):
        kill_soon(moments.uniform(0.1, 0.3) * whole_run, "emboss", "--resume", "journal", "-j2", "--fsync", "in", "out")
    done = check_whole(box / "out", want)
    assert done > 0
    assert resume("in", "out") == (300 - done, done)
    assert tree("out") == tree("in") and check_whole(box / "out", want) == 300


def test_in_place_nothing_is_ever_filtered_twice(box):
    fill_with_one(box / "fresh", 200)
    run("emboss", "fresh/0000.png", "want.png")
    new = (box / "want.png").read_bytes()
    shutil.copytree("fresh", "in")
    begin = time.monotonic()
    run("emboss", "-j2", "fresh", "once")
    whole_run = time.monotonic() - begin
    for _ in range(8):  # each gets on a little
        kill_soon(whole_run / 4, "emboss", "--in-place", "--resume", "journal", "-j2", "in")
    resume("--in-place", "in")
    assert {(box / "in" / name).read_bytes() for name in os.listdir("in")} == {new}
    assert resume("--in-place", "in") == (0, 200)


def test_damaged_lines_only_cost_work(box):
    fill(box / "in", *[f"{i}.png" for i in range(8)])
    resume("in", "out", "-j1")
    lines = (box / "journal").read_bytes().split(b"\n")
    lines[2] = lines[2][:20]                           # cut short
    lines[3] = b"\xff" + lines[3][1:]                  # no digit
    lines[4] = lines[4][:5] + (b"0" if lines[4][5:6] != b"0" else b"1") + lines[4][6:]  # another digit
    lines[5] = b"x" * 100000                           # longer than any line
    (box / "journal").write_bytes(b"\n".join(lines)[:-9])  # the last one was being written
    result = run("emboss", "--resume", "journal", "in", "out")
    assert "4 damaged lines" in result.err and "5 done, 0 failed, 3 skipped" in result.err
    assert resume("in", "out") == (0, 8), "what is appended to half a line is not lost"


@pytest.mark.parametrize("content", (b"", b"conv-jou", b"conv-journal 1\n"))
def test_a_journal_that_was_begun_and_no_more(box, content):
    fill(box / "in", "a.png")
    (box / "journal").write_bytes(content)
    assert resume("in", "out") == (1, 0) and resume("in", "out") == (0, 1)


@pytest.mark.parametrize("content", (b"dear diary\n", b"\x89PNG\r\n\x1a\n", b"conv-journal 2\n", bytes(5000), b"c\n"))
def test_a_file_that_is_no_journal_is_left_alone(box, content):
    fill(box / "in", "a.png")
    (box / "journal").write_bytes(content)
    assert "no journal" in run("emboss", "--resume", "journal", "in", "out", code=2).err
    assert (box / "journal").read_bytes() == content and not (box / "out").exists()


def test_what_cannot_be_a_journal(box):
    made = fill(box, "a.png")
    (box / "folder").mkdir()
    for name in ("folder", "/dev/null", "missing/journal", "a.png"):
        run("emboss", "--resume", name, "a.png", "out.png", code=2)
    run("emboss", "--resume", "journal", "-u", "a.png", "out.png", code=2)
    assert (box / "a.png").read_bytes() == made["a.png"].data and tree(box) == ["a.png"]


def test_a_dry_run_reads_the_journal_only(box):
    fill(box / "in", "a.png", "b.png")
    run("emboss", "--dry-run", "--resume", "journal", "in", "out")
    assert not (box / "journal").exists()
    resume("in/a.png", "out/a.png")
    before = (box / "journal").read_bytes()
    said = run("emboss", "--dry-run", "--resume", "journal", "in/a.png", "out/a.png").out
    assert said == "would skip in/a.png -> out/a.png (done before, says the journal)\n"
    assert (box / "journal").read_bytes() == before


def test_two_runs_with_one_journal(box):
    fill_with_one(box / "in", 200)
    both = [start("emboss", "-j2", "--resume", "journal", "in", f"out{i}") for i in range(2)]
    for process in both:
        _, err = process.communicate(timeout=program.TIMEOUT)
        assert process.returncode == 0, err
    assert resume("in", "out0") == (0, 200) and resume("in", "out1") == (0, 200)


def test_ten_thousand_entries(box):
    fill(box / "in", "a.png")
    (box / "journal").write_text("conv-journal 1\n" + "".join(f"{i:032x} x\n" for i in range(1, 10001)))
    assert resume("in", "out") == (1, 0) and resume("in", "out") == (0, 1)
