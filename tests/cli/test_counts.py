# SPDX-License-Identifier: MIT
"""What the closing line and the report count is so: a member is done when its archive is complete."""
import io
import json
import os
import random
import resource
import signal
import subprocess
import tarfile
import zipfile
from pathlib import Path

import pytest

import program
from folders import fill, image
from program import TIMEOUT, start, until


def members(path):
    """The names of the files in an archive; none if it does not exist."""
    if not Path(path).exists():
        return set()
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            return {info.filename for info in archive.infolist() if not info.is_dir()}
    with tarfile.open(path) as archive:
        return {member.name for member in archive if member.isfile()}


def check(result, report):
    """Closing line, summary and records say the same, and what is done is there."""
    records = [json.loads(line) for line in Path(report).read_text().splitlines()]
    files, summary = list({r["input"]: r for r in records if r["type"] == "file"}.values()), records[-1]  # the last of each
    for status in ("done", "failed", "skipped", "copied"):
        assert summary[status] == sum(record["status"] == status for record in files), (status, summary)
    for record in files:
        if record["status"] in ("done", "copied") and ":" in (record["output"] or ""):
            archive, _, name = record["output"].partition(":")
            assert os.path.exists(archive), record
            assert name in members(archive) or record["status"] == "copied", record
    last = result.err.splitlines()[-1]
    assert summary["exit_code"] == result.code
    if "interrupted" not in last:
        assert program.closing(last).startswith(f"{summary['done']} done, {summary['failed']} failed, {summary['skipped']} skipped"), result.err
    return summary


def make_tar(path, names, folder=False):
    with tarfile.open(path, "w") as archive:
        if folder:
            info = tarfile.TarInfo("sub")
            info.type = tarfile.DIRTYPE
            archive.addfile(info)
        for name in names:
            info, data = tarfile.TarInfo(name), image(width=64, height=64).data
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))


def test_archives_that_do_not_fit(box):
    """Random inputs, outputs and sizes at which the disk is full: "2 done, 0 failed" was said of nothing."""
    seed = int(os.environ.get("CONV_SEED") or random.randrange(1 << 32))
    print(f"CONV_SEED={seed}")
    choose = random.Random(seed)
    fill(box / "in", *(f"{i}.png" for i in range(12)))
    for i in range(3):
        make_tar(f"{i}.tar", [f"{k}.png" for k in range(choose.randint(1, 12))], folder=i == 1)
    failed = 0
    for turn in range(int(os.environ.get("CONV_ROUNDS") or 12)):
        inputs, output = choose.choice(((["in"], f"o{turn}.tar"), (["in"], f"o{turn}.zip"), (["in"], f"o{turn}.tar.gz"),
                                        (["0.tar", "1.tar", "2.tar"], f"o{turn}"), (["1.tar"], f"o{turn}.zip")))
        size = choose.choice((600, 5000, 20000, 60000, 200000))
        quiet = choose.choice(([], ["-v"]))
        # The report must fit.
        read, write = os.pipe()
        process = subprocess.Popen([*program.RUNNER, program.BINARY, "emboss", "--device=cpu", "-z1", *quiet, *inputs, output,
                                    f"--report=/dev/fd/{write}"], stderr=subprocess.PIPE, pass_fds=[write],
                                   preexec_fn=lambda size=size: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size)))
        os.close(write)
        with os.fdopen(read, "rb") as report:
            Path("report").write_bytes(report.read())
        err = process.communicate(timeout=TIMEOUT)[1]
        result = program.Result(process.returncode, b"", err)
        summary = check(result, "report")
        failed += summary["failed"] > 0
        assert (result.code == 1) == ("cannot write" in result.err) == (summary["failed"] > 0), result.err
        assert not [name for name in os.listdir(box) if name.endswith(".tmp")]
    assert failed > 0 or "CONV_ROUNDS" in os.environ


@pytest.mark.parametrize("form", ("tar", "zip", "tar.gz"))
def test_a_reader_that_leaves(box, form):
    fill(box / "in", *(f"{i}.png" for i in range(40)))
    read, write = os.pipe()
    os.close(read)
    process = subprocess.Popen([*program.RUNNER, program.BINARY, "emboss", "--device=cpu", "--report=r", f"--format={form}", "in", "-"],
                               stdout=write, stderr=subprocess.PIPE)
    os.close(write)
    err = process.communicate(timeout=TIMEOUT)[1]
    result = program.Result(process.returncode, b"", err)
    summary = check(result, "r")
    assert result.code == 1 and summary["done"] == 0 and "Broken pipe" in result.err


@pytest.mark.parametrize("form", ("tar", "zip"))
def test_an_interrupted_archive_counts_images(box, form):
    """A folder in the archive was counted as one more image, and members of a lost archive as done."""
    os.mkfifo("slow.png")
    make_tar("in.tar", [f"{i}.png" for i in range(9)], folder=True)
    process = start("emboss", "-j1", "--report=r", "in.tar", "slow.png", f"o.{form}")
    try:
        until(lambda: program.waits_and_catches(process, signal.SIGINT), process)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=TIMEOUT)
    finally:
        process.kill()
    result = program.Result(process.returncode, b"", err)
    check(result, "r")
    assert "interrupted: 0 of 10 done, 10 left" in result.err and not Path(f"o.{form}").exists()


@pytest.mark.parametrize("number", (signal.SIGINT, signal.SIGTERM))
@pytest.mark.parametrize("form", ("tar", "zip", "tar.gz"))
def test_the_end_of_a_watch_completes_its_archive(box, form, number):
    """It was removed, with exit code 0 and "4 done"; the name of an image stayed taken after a version that could not be read."""
    fill(box / "in", "a.png", "b.png")
    late = form == "tar.gz"  # its bytes come late: nothing shows that an image is done
    (box / "in" / "c.png").write_bytes(image().data[:None if late else -9])
    archive = f"o.{form}"
    Path(archive).write_bytes(b"old")
    process = start("emboss", "-z0", "--watch", "--report=r", "in", archive)

    def written():
        return sum(os.path.getsize(name) for name in os.listdir(box) if name.endswith(".tmp"))

    try:
        until(lambda: any(name.endswith(".tmp") for name in os.listdir(box)) and (late or b'"failed"' in Path("r").read_bytes()), process)
        (box / "in" / "c.png").write_bytes(image().data)
        if not late:
            until(lambda: written() >= {"tar": 3 * 1536, "zip": 3 * 20 * 14 * 3}[form], process)
        process.send_signal(number)
        _, err = process.communicate(timeout=TIMEOUT)
    finally:
        process.kill()
    summary = check(program.Result(process.returncode, b"", err), "r")
    assert process.returncode == 0 and summary["done"] == len(members(archive))
    assert late or members(archive) == {"a.png", "b.png", "c.png"}


def test_a_watch_whose_archive_does_not_fit(box):
    fill(box / "in", *(f"{i}.png" for i in range(30)))
    process = subprocess.Popen([*program.RUNNER, program.BINARY, "emboss", "--device=cpu", "--watch", "-z0", "in", "o.tar"],
                               stderr=subprocess.PIPE, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (9000, 9000)))
    _, err = process.communicate(timeout=TIMEOUT)  # it ends by itself
    last = err.decode().splitlines()
    assert process.returncode == 1 and last[-1].startswith("0 images") and "cannot write o.tar" in last[-2], err
    assert not Path("o.tar").exists()
