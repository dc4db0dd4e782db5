# SPDX-License-Identifier: MIT
"""--resume: the journal holds which images are done, with which settings and from which input, and never an image that is not."""
import fcntl
import json
import os
import random
import shutil
import signal
import time

import pytest

import program
from faulty import LIBRARY
from folders import fill, is_embossed, image, tree
from program import run, start
from test_kill import Killer, check_whole, fill_with_one, is_temporary


def resume(*args, filters="emboss", journal="journal", code=0):
    """The outcome of a run: (done, skipped)."""
    summary = run(filters, "--json", "--resume", journal, *args, code=code).records()[-1]
    return summary["done"], summary["skipped"]


def test_a_second_run_has_nothing_to_do(box, device):
    made = fill(box / "in", "a.png", "b\n.png", "sub/c.png")
    assert resume("-r", "in", "out", "--device", device) == (3, 0)
    assert resume("-r", "in", "out", "--device", device) == (0, 3)
    lines = (box / "journal").read_text().splitlines()
    assert lines[0] == "conv-journal 3" and sorted(line[33:] for line in lines[1:]) == ["in/a.png", "in/b\\x0a.png", "in/sub/c.png"]
    assert all(is_embossed(box / "out" / name, source) for name, source in made.items())


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
    (box / "in" / "a.png").write_bytes(image(77).data)  # another image
    os.utime(box / "in" / "b.png", ns=(10**18, 10**18))  # perhaps another image
    (box / "out" / "c.png").unlink()
    (box / "out" / "d.png").write_bytes(b"something else")
    assert resume("in", "out") == (4, 1)
    assert resume("in", "out") == (0, 5)
    assert is_embossed("out/a.png", image(77))


def test_after_kills_only_what_is_left_is_done(box):
    fill_with_one(box / "in", 300)
    run("emboss", "in/0000.png", "want.png")
    want = (box / "want.png").read_bytes()
    killer = Killer(3, "emboss", "-j2", "--fsync", "in", "once")
    (box / "out").mkdir()
    done = 0
    for number in range(36):
        if number >= 12 and done > 0:
            break
        killer.kill("emboss", "--resume", "journal", "-j2", "--fsync", "in", "out", between=(0.1, 0.3))
        done = check_whole(box / "out", want)
    assert done > 0
    assert resume("in", "out") == (300 - done, done)
    assert tree("out") == tree("in") and check_whole(box / "out", want) == 300


def test_in_place_nothing_is_ever_filtered_twice(box):
    fill_with_one(box / "fresh", 200)
    run("emboss", "fresh/0000.png", "want.png")
    new = (box / "want.png").read_bytes()
    shutil.copytree("fresh", "in")
    killer = Killer(4, "emboss", "-j2", "fresh", "once")
    for _ in range(8):  # each makes some progress
        killer.kill("emboss", "--in-place", "--resume", "journal", "-j2", "in", between=(0.2, 0.3))
    resume("--in-place", "in")
    assert {(box / "in" / name).read_bytes() for name in os.listdir("in")} == {new}
    assert resume("--in-place", "in") == (0, 200)


def wait_for(condition, process):
    """Until the condition holds or the process has ended."""
    while not condition() and process.poll() is None:
        time.sleep(0.0005)


def size_of(path):
    return os.path.getsize(path) if os.path.exists(path) else 0


def test_in_place_a_journal_is_read_again_before_an_image_is_replaced(box):
    """The first run reads the journal; the second filters everything; only then does the first get its names."""
    fill_with_one(box / "in", 20)
    run("emboss", "in/0000.png", "want.png")
    want = (box / "want.png").read_bytes()
    first = start("emboss", "--json", "--in-place", "--resume", "journal", "--files-from", "-", stdin=-1)
    wait_for(lambda: size_of("journal") >= len("conv-journal 3\n"), first)
    assert resume("--in-place", "in") == (20, 0)
    out, err = first.communicate("".join(f"in/{i:04}.png\n" for i in range(20)).encode(), timeout=program.TIMEOUT)
    assert first.returncode == 0 and '"done":0,"failed":0,"skipped":20' in out.decode(), err
    assert {(box / "in" / name).read_bytes() for name in os.listdir("in")} == {want}


def test_in_place_a_name_may_be_spelled_in_any_way(box):
    fill_with_one(box / "in", 3)
    run("emboss", "in/0000.png", "want.png")
    os.symlink("in", box / "link")
    assert resume("--in-place", "in") == (3, 0)
    for other in ("./in", "in//", box / "in", "link"):
        assert resume("--in-place", other) == (0, 3), other
    assert resume("--in-place", "--files-from=-", code=3) == (0, 0)
    os.chdir(box / "in")
    assert resume("--in-place", ".", journal="../journal") == (0, 3)
    assert {(box / "in" / name).read_bytes() for name in os.listdir()} == {(box / "want.png").read_bytes()}


def test_in_place_with_preserve_an_image_is_more_than_its_time(box):
    """Files of equal size and time in reused inodes, as archives create them, were taken for the earlier files."""
    fill_with_one(box / "fresh", 40)
    run("identity", "-z0", "--in-place", "fresh")
    run("emboss", "-z0", "fresh/0000.png", "want.png")
    for round in range(3):
        shutil.copytree("fresh", "in")
        for name in os.listdir("in"):
            os.utime(box / "in" / name, ns=(10**18, 10**18))
        assert resume("-p", "-z0", "--in-place", "in") == (40, 0), round
        assert resume("-p", "-z0", "--in-place", "./in") == (0, 40)
        assert {(box / "in" / name).read_bytes() for name in os.listdir("in")} == {(box / "want.png").read_bytes()}
        shutil.rmtree("in")


def test_in_place_no_line_is_lost_after_half_a_line(box):
    """A run that was killed while writing may have left half a line; the next run's first line was appended to it."""
    fill(box / "in", "a.png")
    process = start("emboss", "--in-place", "--resume", "journal", "--files-from", "-", stdin=-1)
    wait_for(lambda: size_of("journal") >= len("conv-journal 3\n"), process)
    with open("journal", "ab") as file:
        file.write(b"0123456789abcdef")
    _, err = process.communicate(b"in/a.png\n", timeout=program.TIMEOUT)
    assert process.returncode == 0, err
    assert resume("--in-place", "in") == (0, 1)


def test_in_place_a_suspended_run_holds_up_no_signal(box):
    """A run that waits for a lock which is never released ends on Ctrl-C and leaves the image unchanged."""
    made = fill(box / "in", "a.png")
    (box / "journal").touch()
    with open("journal", "rb") as journal:
        fcntl.flock(journal, fcntl.LOCK_EX)
        process = start("emboss", "--in-place", "--resume", "journal", "in")
        wait_for(lambda: any(map(is_temporary, os.listdir("in"))), process)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=program.TIMEOUT)
    assert process.returncode == 130 and b"held the lock" in err
    assert tree("in") == ["a.png"] and (box / "in" / "a.png").read_bytes() == made["a.png"].data
    assert resume("--in-place", "in") == (1, 0)


def test_in_place_a_hundred_races(box):
    """Two runs at once with one journal, which pause where they could interfere; half of the time one is
    killed at a random line of the journal. Then a third completes the work, and every image has been filtered once."""
    draw = random.Random(8)
    fill_with_one(box / "fresh", 8)
    run("emboss", "fresh/0000.png", "want.png")
    want = (box / "want.png").read_bytes()
    killed = contended = skipped = twice = 0
    said = []
    races = 10 if os.environ.get("CONV_SANITIZED") else 100

    def prove_something():
        return killed > races / 5 and skipped > races and (contended > races / 50 or not LIBRARY)

    for race in range(3 * races):  # more than `races` where the runs do not overlap, as on a busy machine
        if race >= races and prove_something():
            break
        shutil.copytree("fresh", f"{race}")
        journal, spellings, runs = f"{race}.journal", (f"{race}", f"./{race}", box / f"{race}"), []
        for _ in range(2):
            environ = dict(os.environ)
            if LIBRARY:
                environ.update(LD_PRELOAD=LIBRARY, CONV_FAULTS=f"delay={draw.choice((200, 1000, 4000))} seed={draw.randrange(10**6)}")
            runs.append(start("emboss", "--json", "--in-place", "--resume", journal, f"-j{draw.randint(1, 3)}", draw.choice(spellings),
                              env=environ))
        if draw.randrange(2):
            size = 15 + 40 * draw.randrange(9)
            wait_for(lambda: size_of(journal) > size, runs[0])  # noqa: B023
            runs[0].kill()
        ends = [process.communicate(timeout=program.TIMEOUT) for process in runs]
        said += [err.decode() for process, (_, err) in zip(runs, ends) if process.returncode not in (0, -signal.SIGKILL)]
        totals = [json.loads(out.splitlines()[-1]) for process, (out, _) in zip(runs, ends) if process.returncode == 0]
        resume("--in-place", f"{race}", journal=journal)
        resume("--in-place", f"./{race}", journal=journal)
        twice += sum((box / f"{race}" / name).read_bytes() != want for name in tree(f"{race}") if not is_temporary(name))
        killed += len(totals) < 2
        contended += len(totals) == 2 and all(total["done"] > 0 for total in totals)
        skipped += sum(total["skipped"] for total in totals)
    assert twice == 0 and not said, f"{twice} images were filtered twice; {said[:3]}"
    assert prove_something(), f"{killed} killed, {skipped} skipped, in {contended} races both did something: the moments prove nothing"


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
    assert "4 damaged lines" in result.err and "5 done, 0 failed, 3 skipped" in program.closing(result.err)
    assert resume("in", "out") == (0, 8), "what is appended to half a line is not lost"


@pytest.mark.parametrize("content", (b"", b"conv-jou", b"conv-journal 3\n"))
def test_a_journal_that_was_begun_and_no_more(box, content):
    fill(box / "in", "a.png")
    (box / "journal").write_bytes(content)
    assert resume("in", "out") == (1, 0) and resume("in", "out") == (0, 1)


@pytest.mark.parametrize("content", (b"dear diary\n", b"\x89PNG\r\n\x1a\n", b"conv-journal 1\n", bytes(5000), b"c\n"))
def test_a_file_that_is_no_journal_is_left_alone(box, content):
    fill(box / "in", "a.png")
    (box / "journal").write_bytes(content)
    assert "not a journal" in run("emboss", "--resume", "journal", "in", "out", code=2).err
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
    assert said == "would skip in/a.png -> out/a.png (the journal lists it as done)\n"
    assert (box / "journal").read_bytes() == before


def test_two_runs_with_one_journal(box):
    fill_with_one(box / "in", 200)
    both = [start("emboss", "-j2", "--resume", "journal", "in", f"out{i}") for i in range(2)]
    for process in both:
        _, err = process.communicate(timeout=program.TIMEOUT)
        assert process.returncode == 0, err
    assert resume("in", "out0") == (0, 200) and resume("in", "out1") == (0, 200)
