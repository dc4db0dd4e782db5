# SPDX-License-Identifier: MIT
"""Inputs and outputs that are slow or endless: each test was once a hang or a lost file."""
import fcntl
import json
import os
import select
import signal
import subprocess

import pytest

import images
import program
from folders import fill, fill_with_noise, is_embossed, tree
from program import catches, run, start, until, waiting_bytes, waits_and_catches


def ends_once(ready, process, number, code):
    """Sends the signal as soon as `ready()` says that the run waits, or is about to; returns the messages."""
    try:
        until(ready, process)
        process.send_signal(number)
        process.wait(program.TIMEOUT)  # communicate() would close its input and read its output, which ends any wait
    finally:
        process.kill()
        _, err = process.communicate()
    assert process.returncode == code
    return err


def ends_on(process, number, code):
    return ends_once(lambda: waits_and_catches(process, number), process, number, code)


def holds_data(pipe):
    return bool(select.select([pipe], [], [], 0)[0])


def reported_errors():
    """The records of a run with --report=report; the file is removed for the next run."""
    with open("report", "rb") as file:
        records = [json.loads(line) for line in file]
    os.remove("report")
    return [record["error"] for record in records if record["type"] == "file"]


@pytest.mark.parametrize("number", (signal.SIGINT, signal.SIGTERM, signal.SIGHUP))
def test_one_signal_ends_the_wait_for_standard_input(box, number):
    err = ends_on(start("emboss", "-", "x.png", stdin=subprocess.PIPE), number, 128 + number)
    assert err == b"interrupted: 0 of 1 done, 1 left\n"  # without advice: nothing of it would be skipped
    assert os.listdir(box) == []


def test_one_signal_ends_the_wait_for_a_pipe_and_for_a_list(box):
    os.mkfifo("pipe")
    ends_on(start("emboss", "pipe", "x.png"), signal.SIGTERM, 143)
    ends_on(start("emboss", "--files-from", "-", "out", stdin=subprocess.PIPE), signal.SIGINT, 130)


def test_one_signal_ends_the_wait_for_a_reader(box):
    """No process opens the pipe, or one opens it and reads nothing."""
    fill_with_noise(box / "in", 1)
    os.mkfifo("pipe")
    command = ("identity", "-z0", "--report=report", "in/0000.png")
    process = start(*command, "pipe")
    ends_once(lambda: os.path.exists("report"), process, signal.SIGTERM, 143)
    assert reported_errors() == []  # an image that a signal interrupts counts as not begun
    reader = os.open("pipe", os.O_RDONLY | os.O_NONBLOCK)
    ends_once(lambda: holds_data(reader), start(*command, "pipe"), signal.SIGINT, 130)
    assert reported_errors() == []
    os.close(reader)
    process = start(*command, "-")
    ends_once(lambda: holds_data(process.stdout), process, signal.SIGTERM, 143)
    assert reported_errors() == []


not_with_tsan = pytest.mark.skipif(program.is_thread_sanitized(), reason="the thread sanitizer delays signals")


@not_with_tsan
@pytest.mark.parametrize("option", ("--report", "--trace", "--html"))
def test_one_signal_ends_the_wait_for_the_reader_of_a_report(box, option):
    fill(box / "in", "a.png")
    os.mkfifo("pipe")
    process = start("emboss", f"{option}=pipe", "in", "out")
    ends_once(lambda: catches(process, signal.SIGTERM), process, signal.SIGTERM, 143)


STALLS = (("stdout", "--json"), ("stdout", "--dry-run"), ("stderr", "-v"), ("pipe", "--report=pipe"),
          ("pipe", "--trace=pipe"), ("pipe", "--html=pipe"))


@not_with_tsan
@pytest.mark.parametrize("where,option", STALLS)
def test_one_signal_ends_a_run_whose_words_nobody_reads(box, where, option):
    """Like `conv -v in out 2>&1 | less`."""
    fill(box / "in", *(f"{index:03}.png" for index in range(200)))
    os.mkfifo("pipe")
    reader = os.open("pipe", os.O_RDONLY | os.O_NONBLOCK)
    writer = os.open("pipe", os.O_WRONLY)
    fcntl.fcntl(reader, fcntl.F_SETPIPE_SZ, 4096)
    outputs = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, where: writer}
    process = subprocess.Popen([*program.RUNNER, program.BINARY, "emboss", "--device=cpu", option, "in", "out"],
                               stdout=outputs["stdout"], stderr=outputs["stderr"])
    os.close(writer)
    # A trace is written in parts larger than the pipe, when most images are done. A report begins with a short part,
    # after which the pipe has no room for the next.
    most = {"--trace=pipe": 100, "--report=pipe": 50}.get(option, 4050)
    done = {"--trace=pipe": 80, "--report=pipe": 8}.get(option, 0)
    ends_once(lambda: waiting_bytes(reader) > most and len(tree("out")) >= done, process, signal.SIGTERM, 143)
    os.close(reader)
    if "dry" not in option:
        assert tree("out") and all(images.read(box / "out" / name).any() for name in tree("out"))


def test_one_signal_ends_the_wait_for_a_filter(box):
    fill(box, "a.png")
    os.mkfifo("filter")
    writers = []

    def is_read():
        try:
            writers.append(os.open("filter", os.O_WRONLY | os.O_NONBLOCK))
        except OSError:
            return False
        return True

    ends_once(is_read, start("./filter", "a.png", "b.png"), signal.SIGINT, 130)
    os.close(writers[0])


KMSG = "has no data yet; only a pipe named on the command line is waited for"


@pytest.mark.skipif(os.geteuid() != 0 or not os.path.exists("/proc/kmsg"), reason="only root may read /proc/kmsg")
@pytest.mark.parametrize("page", ((), ("--html=page",)))
def test_files_of_the_system_without_an_end(box, page):
    """A link to /proc/kmsg was read in a loop for ever, and no signal ended it."""
    made = fill(box / "in", "a.png")
    os.symlink("/proc/kmsg", box / "in" / "log.png")
    log = os.open("/proc/kmsg", os.O_RDONLY | os.O_NONBLOCK)
    while select.select([log], [], [], 0)[0]:
        os.read(log, 65536)
    os.close(log)
    process = start("emboss", *page, "in", "out")
    try:
        _, err = process.communicate(timeout=program.TIMEOUT)
    finally:
        process.kill()
        process.wait()
    error = err.decode().splitlines()[0]
    # If the kernel logs something meanwhile, it is not a PNG.
    assert error in (f"conv: in/log.png: {KMSG}", f"conv: in/log.png: {program.NO_IMAGE}")
    assert is_embossed("out/a.png", made["a.png"]) and os.listdir("out") == ["a.png"]


def test_a_page_about_pipes(box):
    """The page's images were read from the pipes once more, which had no writer any more."""
    made = fill(box, "a.png")
    os.mkfifo("from")
    os.mkfifo("to")
    process = start("emboss", "--html=page", "from", "to")
    with open("from", "wb") as pipe:
        pipe.write(made["a.png"].data)
    with open("to", "rb") as pipe:
        (box / "got.png").write_bytes(pipe.read())
    try:
        process.wait(program.TIMEOUT)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == 0 and is_embossed("got.png", made["a.png"])
    page = (box / "page").read_bytes()
    assert page.endswith(b"</html>\n") and b'"pairs":[]' in page


@pytest.mark.parametrize("more", (0, 2))
def test_a_slow_list_holds_up_no_image_that_it_has_named(box, device, more):
    """Files are fetched ahead of their readers, but a run does not wait for names while it has something to do."""
    jobs = f"-j{1 + more}"
    fill(box, *(f"{index}.png" for index in range(5)))
    process = start("emboss", jobs, "--device", device, "--files-from=-", "out", stdin=subprocess.PIPE)
    for index in range(5):
        process.stdin.write(f"{index}.png\n".encode())
        process.stdin.flush()
        try:
            until((box / "out" / f"{index}.png").exists, process)
        except AssertionError:
            process.kill()
            raise
    _, err = process.communicate(timeout=program.TIMEOUT)
    assert process.returncode == 0, err


def test_a_pipe_given_by_name_is_read_to_its_end(box):
    made = fill(box, "a.png")
    os.mkfifo("pipe")
    process = start("identity", "pipe", "x.png")
    with open("pipe", "wb") as pipe:
        for at in range(0, len(made["a.png"].data), 100):
            pipe.write(made["a.png"].data[at:at + 100])
            pipe.flush()
    assert process.wait(program.TIMEOUT) == 0, process.communicate()
    assert (images.read(box / "x.png") == images.read(box / "a.png")).all()


def test_a_folder_is_no_list_of_names(box):
    (box / "folder").mkdir()
    assert "folder" in run("emboss", "--files-from", "folder", "out", code=2).err


def test_a_list_may_have_carriage_returns_and_a_name_without_end(box):
    fill(box, "a.png", "b.png")
    (box / "list").write_bytes(b"a.png\r\n\r\nb.png")
    run("emboss", "--files-from", "list", "out")
    assert sorted(os.listdir("out")) == ["a.png", "b.png"]
    (box / "long").write_bytes(b"a.png\n" + b"x" * 70000)
    assert "1 done, 1 failed" in program.closing(run("emboss", "--files-from", "long", "out", code=1).err)


def test_a_dry_run_says_what_would_fail(box):
    fill(box, "a.png")
    assert "overwrite" in run("emboss", "--dry-run", "a.png", "a.png", code=2).err
    assert "missing.png" in run("emboss", "--dry-run", "missing.png", "b.png", code=1).err


@pytest.mark.parametrize("options,code", ((("--variant", "zzz"), 2), (("--report", "/missing/x"), 2)))
def test_a_command_that_cannot_run_makes_no_folder(box, options, code):
    fill(box / "in", "a.png")
    run("emboss", *options, "in", "out", code=code)
    assert not (box / "out").exists()
