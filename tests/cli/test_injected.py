# SPDX-License-Identifier: MIT
"""Faults that are rare in practice: no memory, no threads, short reads and writes, quota (tests/preload/faults.c)."""
import errno
import os
import shutil
import signal
import subprocess
import zlib

import numpy as np
import pytest

import images
import png_writer as png
import program
from faulty import CHAIN, check_outcome, environment, needs_library, want_of
from folders import fill, tree
from program import start, until

pytestmark = needs_library


@pytest.fixture(autouse=True)
def library_works(box):
    (box / "seen").touch()
    subprocess.run([program.BINARY, "--version"], env=environment("nothing"), stdout=subprocess.DEVNULL, check=True)
    if not seen():
        pytest.skip("the program is static: no library can be put under it")


def seen():
    """Faults that the library has injected since the last call; its loading counts as one."""
    size = os.path.getsize("seen")
    os.truncate("seen", 0)
    return size


def run_with(faults, *args, stdin=b"", binary=None):
    """(exit code, stdout, stderr, number of faults); a hang is an error."""
    kwargs = {"executable": binary} if binary else {}
    process = start(*args, env=environment(faults), stdin=subprocess.PIPE, **kwargs)
    try:
        out, err = process.communicate(stdin, timeout=program.TIMEOUT)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    assert process.returncode >= 0, f"{faults}: died of signal {-process.returncode}"
    return process.returncode, out, err.decode(errors="replace"), seen() - 1


@pytest.fixture
def batch(box):
    """A folder `in` of images of several kinds, and the bytes that each output must have."""
    (box / "in").mkdir()
    rng = np.random.default_rng(11)
    for kind in ("rgb8", "gray16", "palette4+adam7", "rgba8", "gray1"):
        (box / "in" / f"{kind}.png").write_bytes(images.make(kind, rng, 37, 23).data)
    return want_of(box)


def count_until_none_fails(box, want, kind, *args, binary=None):
    for number in range(1, 5000):
        code, _, err, faults = run_with(f"{kind}={number}", *args, binary=binary)
        check_outcome(box, want, code, err, f"{kind}={number}")
        if faults == 0:
            assert code == 0
            return number - 1
    raise AssertionError("no end")


def keep_two(box):
    for name in tree(box / "in"):
        if name not in ("gray16.png", "rgb8.png"):
            (box / "in" / name).unlink()


EVERY_KIND = ("-j2", "-p", "--fsync")


@pytest.mark.parametrize("options", (EVERY_KIND, ("-j1", "--encoder=libpng"), ("-z9", "-j1"),
                                     ("-j1", "--resume=journal")))
def test_every_allocation_fails_once(box, batch, options):
    """The first options with every kind of image, the others with two: these options do not depend on the kind."""
    if options != EVERY_KIND:
        keep_two(box)
    want = want_of(box, *[option for option in options if "journal" not in option])
    assert count_until_none_fails(box, want, "alloc", CHAIN, *options, "in", "out") > 20


def test_every_allocation_fails_once_around_a_list_and_reports(box, batch):
    keep_two(box)
    want = {name: batch[name] for name in tree(box / "in")}
    (box / "list").write_text("".join(f"{name}\n" for name in want))
    reports = ("--report", "report.jsonl", "--trace=t.json", "--html=p.html")
    args = (CHAIN, "-j1", *reports, "--files-from", "list", "in", "out")
    assert count_until_none_fails(box, want, "alloc", *args) > 20


@pytest.mark.parametrize("output", ("out", "out/all.npy"))
def test_every_allocation_of_a_layer_fails_once(box, output):
    """A run that fails before its first image frees what it has, and only that."""
    (box / "in").mkdir()
    (box / "out").mkdir()
    np.save("w.npy", np.ones((2, 1, 3, 3), np.float32))
    (box / "in" / "a.png").write_bytes(images.make("gray8", np.random.default_rng(3), 9, 8).data)
    program.run("layer", "w.npy", "in", output)
    want = {name: (box / "out" / name).read_bytes() for name in tree("out")}
    shutil.rmtree("out")
    (box / "out").mkdir()
    assert count_until_none_fails(box, want, "alloc", "layer", "w.npy", "-j2", "in", output) > 20


@pytest.mark.parametrize("faults,codes", (("thread=1", (1,)), ("thread=2", (0,)), ("thread=2+", (0,)), ("thread=3+", (0,))))
def test_threads_that_cannot_be_had(box, batch, faults, codes):
    """The first thread is required, the others only make the run faster."""
    code, _, err, number = run_with(faults, CHAIN, "-j4", "in", "out")
    assert code in codes and number > 0
    assert code == 0 or "ulimit -u" in err  # it said "Resource temporarily unavailable"
    check_outcome(box, batch, code, err, faults)


@pytest.mark.parametrize("jobs", ("-j1", "-j2"))
def test_a_second_signal_ends_a_run_that_a_file_server_does_not_answer(box, batch, jobs):
    process = start("emboss", jobs, "in", "out", env=environment("read=stick"))
    until(lambda: os.path.getsize("seen") == 2, process)
    # Until one counts as the second: what follows within 300 ms is the first one once more.
    until(lambda: process.send_signal(signal.SIGINT) or process.poll() is not None)
    process.communicate(timeout=program.TIMEOUT)
    assert process.returncode == 130
    assert not [name for _, _, names in os.walk("out") for name in names if name.endswith(".tmp")]


@pytest.mark.parametrize("faults", ("short", "eintr", "short eintr"))
def test_reads_and_writes_are_short_and_interrupted(box, batch, faults):
    code, _, err, number = run_with(faults, CHAIN, "-j2", "--fsync", "--resume=journal", "in", "out")
    assert code == 0 and number > 20, err
    assert "5 skipped" in program.run(CHAIN, "--resume=journal", "in", "out").err
    check_outcome(box, batch, code, err, faults)
    data = (box / "in" / "rgb8.png").read_bytes()
    code, out, err, number = run_with(faults, CHAIN, "-", "-", stdin=data)
    assert code == 0 and out == batch["rgb8.png"] and number > 4, err
    code, _, err, number = run_with(faults, CHAIN, "--files-from", "-", "in", "out",
                                    stdin="".join(f"{name}\n" for name in batch).encode())
    check_outcome(box, batch, code, err, faults)
    assert code == 0, err


def test_a_full_table_of_files_is_waited_for(box, batch):
    """ENFILE: other processes have used up the system's open files. Images failed although they only had to wait."""
    code, _, err, faults = run_with("enfile", CHAIN, "-j4", "in", "out")
    assert code == 0 and faults >= len(batch), err
    check_outcome(box, batch, code, err, "enfile")


@pytest.mark.parametrize("number", (errno.EDQUOT, errno.ENOSPC, errno.EIO))
def test_a_write_that_fails_leaves_nothing(box, batch, number):
    code, _, err, faults = run_with(f"write={number}", "emboss", "in", "out")
    assert code == 1 and faults >= len(batch) and tree("out") == []
    assert len([line for line in err.splitlines() if os.strerror(number) in line]) == len(batch), err


@pytest.mark.parametrize("what, tries", (("open", 1), ("path", 1), ("link", 2)))
def test_where_no_file_can_be_without_a_name(box, batch, what, tries):
    """Other file systems, older kernels, and a machine without /proc: the first image shows what is missing."""
    code, _, err, faults = run_with(f"nameless={what}", CHAIN, "-j1", "in", "out")
    assert code == 0 and faults <= tries, err
    check_outcome(box, batch, code, err, what)
    code, _, err, faults = run_with(f"nameless={what}", CHAIN, "-j4", "--fsync", "--preserve", "in", "out")
    assert code == 0 and faults <= 4 * tries, err
    check_outcome(box, batch, code, err, what)


def test_fsync_flushes_before_the_name_is_given(box, batch):
    code, _, err, faults = run_with(f"fsync={errno.EIO}", "emboss", "--fsync", "in", "out")
    assert code == 1 and faults == len(batch) and tree("out") == [] and err.count("Input/output error") == len(batch)
    assert run_with(f"fsync={errno.EIO}", "emboss", "in", "out")[0] == 0, "without --fsync nothing waits for the disk"


@pytest.mark.parametrize("action", ("grow", "shrink"))
def test_an_input_that_changes_while_it_is_read_is_named(box, batch, action):
    code, _, err, faults = run_with(f"read={action}", CHAIN, "-j1", "in", "out")
    assert code == 1 and faults == 1 and err.count("changed while it was read") == 1, err
    assert len(tree("out")) == len(batch) - 1
    check_outcome(box, batch, code, err, action)


def test_an_input_that_vanishes_while_it_is_read_is_done(box, batch):
    """An open file stays readable after it was removed."""
    code, _, err, faults = run_with("read=vanish", CHAIN, "-j1", "in", "out")
    assert code == 0 and faults == 1 and len(tree("in")) == len(batch) - 1
    check_outcome(box, batch, code, err, "vanish")


@pytest.fixture
def large(box):
    """A file that several threads read, and the output it must have."""
    (box / "in").mkdir()
    rows = np.random.default_rng(12).integers(0, 256, (3000, 3201), dtype=np.uint8)
    rows[:, 0] = 0  # no filter
    head = b"".join(n.to_bytes(4, "big") for n in (3200, 3000)) + bytes((8, png.GRAY, 0, 0, 0))
    data = zlib.compress(rows.tobytes(), 0)
    (box / "in" / "large.png").write_bytes(png.SIGNATURE + png.chunk(b"IHDR", head) + png.chunk(b"IDAT", data) +
                                           png.chunk(b"IEND"))
    assert len(data) > 8 << 20
    return want_of(box, "-j1")


def test_several_threads_read_a_large_file(box, large):
    """Only a test of the reader noticed if the workers passed it no threads to help."""
    code, _, err, faults = run_with("pread=two", CHAIN, "-j2", "in", "out")
    assert code == 0 and faults == 1, err
    check_outcome(box, large, code, err, "two")
    assert run_with(f"pread={errno.EIO}", "emboss", "-j1", "in", "out")[3] == 0, "a single worker reads alone"


@pytest.mark.parametrize("faults", ("short", "eintr", "short eintr", f"pread={errno.EIO}", "pread=vanish"))
def test_several_threads_that_read_meet_faults(box, large, faults):
    code, _, err, number = run_with(faults, CHAIN, "-j3", "in", "out")
    assert code == 0 and number > 0, err
    check_outcome(box, large, code, err, faults)


@pytest.mark.parametrize("action", ("grow", "shrink"))
def test_a_file_that_changes_while_several_threads_read_it(box, large, action):
    code, _, err, faults = run_with(f"pread={action}", "emboss", "-j3", "in", "out")
    assert code == 1 and faults == 1 and "in/large.png: changed while it was read" in err, err
    assert tree("out") == []


def test_in_place_leaves_a_file_alone_that_somebody_changes_meanwhile(box):
    made = fill(box / "in", "a.png")
    # Of a folder a journal would be written first.
    code, _, err, faults = run_with("touch=in/a.png", "emboss", "--in-place", "in/a.png")
    assert code == 1 and faults == 1 and "in/a.png: changed while it was filtered" in err
    assert (box / "in" / "a.png").read_bytes() == made["a.png"].data + b"x" and tree("in") == ["a.png"]


def test_in_place_a_file_that_is_removed_meanwhile_stays_away(box):
    fill(box / "in", "a.png")
    code, _, err, faults = run_with("read=vanish", "emboss", "--in-place", "in")
    assert code == 1 and faults == 1 and "in/a.png: cannot replace the input" in err
    assert tree("in") == []


def test_in_place_a_lock_may_be_interrupted(box):
    fill(box / "in", "a.png", "b.png")
    code, _, err, faults = run_with("eintr", "emboss", "--in-place", "--resume", "journal", "in")
    assert code == 0 and faults > 0 and "2 done" in program.closing(err)
    assert "2 skipped" in run_with("eintr", "emboss", "--in-place", "--resume", "journal", "in")[2]


def test_in_place_a_journal_without_locks_is_refused(box):
    made = fill(box / "in", "a.png")
    for number in (errno.ENOLCK, errno.EOPNOTSUPP):
        code, _, err, faults = run_with(f"flock={number}", "emboss", "--in-place", "--resume", "journal", "in")
        assert code == 2 and faults == 1 and "can be locked" in err and os.strerror(number) in err
        assert (box / "in" / "a.png").read_bytes() == made["a.png"].data
        assert run_with(f"flock={number}", "emboss", "--resume", "journal", "in", "out")[0] == 0, "only in place"


def test_an_end_that_takes_long_keeps_the_exit_code(box):
    """A watch exited with 130 if its remaining work took a second after the signal, as on a busy machine."""
    (box / "in").mkdir()
    process = start("emboss", "--watch", "in", "out", env=environment("linger=2500"))
    until((box / "out").exists, process)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=program.TIMEOUT)
    assert process.returncode == 0 and seen() == 2, err


def test_the_library_is_no_blank(box):
    """The tests above rely on this: there is a fault if one is requested, and none otherwise."""
    fill(box / "in", "a.png")
    assert run_with("nothing", "emboss", "in", "out")[3] == 0
    assert run_with("alloc=1", "emboss", "in", "out")[3] == 1
