# SPDX-License-Identifier: MIT
"""Members of archives that need more than a copy: sparse files, links, long names, large ones."""
import io
import os
import pathlib
import shutil
import signal
import subprocess
import tarfile
import time
import zipfile

import numpy as np
import pytest

import images
from faulty import FAULTY
from program import BINARY, EMULATED, RUNNER, TIMEOUT, closing, is_sanitized, is_thread_sanitized, measure, run, start, until
from tars import PNGS, RNG, expected, make, read, samples, temporaries


@pytest.mark.parametrize("format", ("gnu", "pax --sparse-version=0.0", "pax --sparse-version=0.1", "pax --sparse-version=1.0"))
def test_sparse_files(box, format):
    contents = {"hole.bin": bytearray(300000), "many.bin": bytearray(60 * 8192), "empty.bin": bytearray(100000)}
    contents["hole.bin"][200000:200005] = b"hello"
    for i in range(60):
        contents["many.bin"][i * 8192 + 5000] = 1 + i
    os.mkdir("in")
    for name, data in contents.items():
        with open(f"in/{name}", "wb") as file:
            for at in range(0, len(data), 4096):
                if any(data[at:at + 4096]):
                    file.seek(at)
                    file.write(data[at:at + 4096])
            file.truncate(len(data))
    (box / "in/a.png").write_bytes(PNGS[0])
    subprocess.run(f"tar cSf in.tar --format={format} -C in .", shell=True, check=True)
    run("identity", "in.tar", "out")
    run("identity", "--format=tar", "-", "copy.tar", stdin=(box / "in.tar").read_bytes())
    copied = dict(read("copy.tar"))
    for name, data in contents.items():
        assert (box / "out" / name).read_bytes() == data == copied[f"./{name}"], name
    tail = (box / "in.tar").read_bytes()
    (box / "cut.tar").write_bytes(tail[:len(tail) * 2 // 3])
    assert "truncated archive" in run("identity", "cut.tar", "cut", code=1).err


def test_archives_of_one_name_get_folders_of_their_own(box):
    make("a.tar", [("x.png", PNGS[0])])
    with zipfile.ZipFile("a.zip", "w") as archive:
        archive.writestr("x.png", PNGS[1])
    make("b.tar", [("x.png", PNGS[2])])
    run("emboss", "--format=files", "a.tar", "a.zip", "b.tar", "out")
    assert sorted(os.listdir("out")) == ["a.tar", "a.zip", "b"]


def test_damage_after_a_member_that_failed_is_reported(box):
    """The failure of a member once kept the reader from noticing the end of the archive."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        for name in "abc":
            archive.writestr(f"{name}.png", PNGS[4])
    data, at = bytearray(data.getvalue()), [info.header_offset for info in archive.infolist()]
    data[at[0] + 3000] ^= 255
    (box / "in.zip").write_bytes(data[:at[2] + 10])
    result = run("emboss", "in.zip", "out", code=1)
    if "without libarchive" not in result.err:
        assert "in.zip:a.png: " in result.err and "in.zip: the archive is" in result.err and os.listdir("out") == ["b.png"]


def test_other_commands_read_archives(box):
    make("in.tar", list(samples(5)))
    assert "5 images, identical pixels" in run("verify", "emboss", "in.tar").out
    assert "5 images, identical pixels" in run("verify", "emboss", "-", stdin=(box / "in.tar").read_bytes()).out
    links = [(f"{kind}.png", b"", {"type": kind.encode(), "linkname": "000000.png"}) for kind in "12"]
    make("links.tar", list(samples(5)) + links)  # hard and symbolic
    assert "5 images, identical pixels" in run("verify", "emboss", "links.tar").out
    assert "fast -z 1" in run("bench", "codec", "links.tar", "-z", "1").out
    run("layer", "gabor:2x2", "--pool=mean", "in.tar", "out", "--device=cpu")
    assert sorted(os.listdir("out")) == [f"{i:06}.npy" for i in range(5)]
    run("layer", "gabor:2x2", "--pool=mean", "in.tar", "all.npy", "--device=cpu")
    assert np.load("all.npy").shape[0] == 5
    for i in range(2):
        run("layer", "gabor:2x2", "--pool=mean", "in.tar", "shards", "--device=cpu", "--shard", f"{i}/2")
    assert sorted(os.listdir("shards")) == sorted(os.listdir("out"))
    assert "name a folder" in run("layer", "gabor:2x2", "in.tar", "out.tar", "--device=cpu", code=2).err


def test_what_cannot_be_an_image(box):
    """From tar to tar, links and folders are copied; they are refused where they would become files, devices always."""
    make("in.tar", [("d", b"", {"type": tarfile.DIRTYPE}), ("a.png", PNGS[0]),
                    ("s", b"", {"type": tarfile.SYMTYPE, "linkname": "../../etc/passwd"}),
                    ("h.png", b"", {"type": tarfile.LNKTYPE, "linkname": "a.png"}),
                    ("null", b"", {"type": tarfile.CHRTYPE}), ("pipe", b"", {"type": tarfile.FIFOTYPE}), ("b.png", PNGS[1])])
    result = run("emboss", "in.tar", "out.tar", code=1)
    assert "in.tar:null: is a device or a pipe" in result.err
    with tarfile.open("out.tar") as archive:
        assert [(m.name, m.type, m.linkname) for m in archive] == [
            ("d", tarfile.DIRTYPE, ""), ("a.png", tarfile.REGTYPE, ""), ("s", tarfile.SYMTYPE, "../../etc/passwd"),
            ("h.png", tarfile.LNKTYPE, "a.png"), ("b.png", tarfile.REGTYPE, "")]
    result = run("emboss", "in.tar", "out", code=1)
    assert sorted(os.listdir("out")) == ["a.png", "b.png"]
    assert "in.tar:s: is a symbolic link" in result.err and "in.tar:h.png: is a hard link" in result.err


def test_names_stay_in_the_folder(box):
    names = ["../up.png", "a/../../up.png", "x/..", "a.png", "a.png", "./a.png", "C:/x.png", "..\\up.png"]
    make("in.tar", [(name, PNGS[0]) for name in names])
    (box / "deep/out").mkdir(parents=True)
    result = run("emboss", "in.tar", "deep/out", code=1)
    assert os.listdir("deep") == ["out"] and os.listdir("deep/out") == ["a.png"]
    assert "in.tar:../up.png: " in result.err and result.err.count("another member has the same output") == 2
    result = run("emboss", "in.tar", "out.tar", code=1)  # an archive takes every name, once
    assert result.err.count("another member has the same output") == 2 + 1
    assert [name for name, _ in read("out.tar")] == ["../up.png", "x/..", "a.png", "C:/x.png", "..\\up.png"]


def test_members_of_one_name_get_numbers_in_a_folder(box):
    """The second one was lost: a copy of the name that a result had got, and a result of that of a copy."""
    label = b"label"
    make("in.tar", [("a.png", PNGS[0]), ("a.npy", label), ("b.npy", label), ("b.png", PNGS[1]), ("b.2.npy", label), ("b.npy", label), ("c", label),
                    ("c", label), ("c/f.png", PNGS[0])])
    made = {"a.npy": None, "a.2.npy": label, "b.npy": label, "b.2.npy": None, "b.2.2.npy": label, "c": label}
    for jobs in ("-j1", "-j4"):
        shutil.rmtree("out", ignore_errors=True)
        result = run("identity", jobs, "--output-type", "f32", "in.tar", "out", code=1)
        assert "in.tar:a.npy: another member has the same output; this one is a.2.npy\n" in result.err
        assert "in.tar:b.npy: another member has the same output, b.npy, and came first\n" in result.err  # the archive has it twice
        assert "in.tar:c/f.png: another output is a file where c/f.npy has a folder\n" in result.err
        assert "1 done, 6 failed, 0 skipped, 2 copied" in closing(result.err)
        assert {str(path.relative_to("out")) for path in pathlib.Path("out").rglob("*") if path.is_file()} == set(made)
        assert all(pathlib.Path("out", name).read_bytes() == data for name, data in made.items() if data)
    dry = run("identity", "--dry-run", "--output-type", "f32", "in.tar", "dry", code=1)
    assert dry.err.count("another member has the same output; this one is") == 3
    make("many.tar", [("a.png", PNGS[0])] * 12)
    assert run("identity", "--output-type", "f32", "many.tar", "many", code=1).err.count("; this one is a.") == 8
    assert len(os.listdir("many")) == 9


@pytest.mark.parametrize("action", ("skip", "copy", "stop"))
def test_bad_member(box, action):
    make("in.tar", [("a.png", PNGS[0]), ("bad.png", b"no image"), ("b.png", PNGS[1])])
    result = run("emboss", "--on-error", action, "-j1", "in.tar", "out.tar", code=1)
    assert "in.tar:bad.png: " in result.err
    if action == "stop":
        assert os.listdir() == ["in.tar"]
        return
    found = read("out.tar")
    assert [name for name, _ in found] == ["a.png", "bad.png", "b.png"] if action == "copy" else ["a.png", "b.png"]
    assert ("bad.png", b"no image") in found or action == "skip"


@pytest.mark.parametrize("piped", (False, True))
@pytest.mark.parametrize("cut", (100, 600, 5000, -20480 + 100))
def test_truncated(box, cut, piped):
    """Whole members before the end are filtered, the reason is reported, and the output has the members before it."""
    members = list(samples(8))
    make("whole.tar", members)
    data = (box / "whole.tar").read_bytes()[:cut]
    (box / "in.tar").write_bytes(data)
    if piped:
        result = run("emboss", "-", "out.tar", "--format=tar", code=1, stdin=data)
    else:
        result = run("emboss", "in.tar", "out.tar", code=1)
    assert "truncated archive" in result.err, result.err
    done = read("out.tar") if os.path.exists("out.tar") else []
    assert done == expected(box, members)[:len(done)] and bool(done) == (cut not in (100, 600))


def test_damaged_header(box):
    members = list(samples(4))
    make("in.tar", members)
    data = bytearray((box / "in.tar").read_bytes())
    second = 512 + (len(members[0][1]) + 511) // 512 * 512
    data[second + 3] ^= 1
    (box / "in.tar").write_bytes(data)
    result = run("emboss", "in.tar", "out.tar", code=1)
    assert f"in.tar: damaged archive: no header at byte {second}" in result.err
    assert [name for name, _ in read("out.tar")] == ["000000.png"]


def test_concatenated(box):
    make("a.tar", list(samples(2)))
    make("b.tar", [("b/" + name, data) for name, data in samples(2)])
    (box / "c.tar").write_bytes((box / "a.tar").read_bytes() + (box / "b.tar").read_bytes())
    run("emboss", "c.tar", "out.tar")
    assert len(read("a.tar")) == 4 and subprocess.run(["tar", "tf", "out.tar"], capture_output=True).stdout.count(b"\n") == 8


def test_refusals(box):
    make("in.tar", list(samples(1)))
    os.symlink("in.tar", "same.tar")
    (box / "list").write_text("a.png\n")
    (box / "a.png").write_bytes(PNGS[0])
    (box / "out").mkdir()
    for args, text in ((("in.tar", "in.tar"), "same file"), (("same.tar", "in.tar"), "same file"),
                       (("--in-place", "in.tar"), "cannot be replaced"),
                       (("--resume", "j", "--format=tar", "-", "out.tar"), "standard input is not a file"),
                       (("--update", "out", "out.tar"), "out is not a file"),
                       (("--update", "--files-from", "list", "out.tar"), "a list is not a file"),
                       (("--shard=0/2", "--shard-of=members", "out", "of"), "--shard-of is for archives"),
                       (("--shard-of=members", "in.tar", "out"), "--shard-of needs --shard"),
                       (("--preserve", "in.tar", "out.tar"), "--preserve"),
                       (("--on-error", "copy", "in.tar", "out"), "--on-error copy"),
                       (("--format", "rar", "in.tar", "out"), "--format rar"),
                       (("in.tar", "a.png", "in-{0..1}.tar", "out"), "not all inputs are archives"),
                       (("x-{0..9999999}.tar", "out"), "more than 1000000"),
                       (("--json", "in.tar", "-"), "--json")):
        before = (box / "in.tar").read_bytes()
        result = run("emboss", *args, code=2)
        assert text in result.err and len(result.err.splitlines()) == 1, result.err
        assert (box / "in.tar").read_bytes() == before and not os.path.exists("out.tar")
    result = run("emboss", "none.tar", "out.tar", code=1)
    assert "none.tar: cannot open" in result.err and not os.path.exists("out.tar")


def test_no_archive(box):
    (box / "in.tar").write_bytes(b"this is not an archive" * 100)
    result = run("emboss", "in.tar", "out.tar", code=1)
    assert "in.tar: not a tar archive: no header at byte 0" in result.err and not os.path.exists("out.tar")
    make("out.tar", list(samples(1)))
    before = (box / "out.tar").read_bytes()
    run("emboss", "in.tar", "out.tar", code=1)
    assert (box / "out.tar").read_bytes() == before


def test_the_archive_itself_is_not_replaced(box):
    """A member has the name of its own archive and is extracted beside it."""
    make("in.tar", [("in.tar", b"label"), ("a.png", PNGS[0])])
    before = (box / "in.tar").read_bytes()
    result = run("emboss", "in.tar", ".", code=1)
    assert "would overwrite the input" in result.err and (box / "in.tar").read_bytes() == before


def test_reports(box):
    make("in.tar", list(samples(2)) + [("bad.png", b"x")])
    result = run("emboss", "--json", "in.tar", "out.tar", code=1)
    records = result.records()
    files = {r["input"]: r for r in records if r["type"] == "file"}
    assert files["in.tar:000000.png"]["output"] == "out.tar:000000.png" and files["in.tar:000000.png"]["width"] == 40
    assert files["in.tar:000000.cls"]["status"] == "copied" and files["in.tar:bad.png"]["status"] == "failed"
    assert (records[-1]["done"], records[-1]["copied"], records[-1]["failed"]) == (2, 2, 1)
    result = run("emboss", "--dry-run", "in.tar", "out.tar")
    assert "in.tar:000001.png" in result.out and sorted(os.listdir()) == ["in.tar", "out.tar"]
    make("labels.tar", [("a.cls", b"1")])
    run("emboss", "labels.tar", "copy.tar")
    assert read("copy.tar") == [("a.cls", b"1")]


def test_signal_leaves_nothing(box):
    make("in.tar", list(samples(6)))
    reader, writer = os.pipe()
    child = start("emboss", "-", "out.tar", stdin=reader)
    os.close(reader)
    with open("in.tar", "rb") as source:
        os.write(writer, source.read(12000))
    until(lambda: temporaries("."), child)
    child.send_signal(signal.SIGINT)
    child.communicate()
    os.close(writer)
    assert child.returncode == 130 and os.listdir() == ["in.tar"]


def test_full_disk(box):
    """One message, exit 1, nothing left, and the output that was there is as it was."""
    make("in.tar", list(samples(20)))
    (box / "out.tar").write_bytes(b"old")
    result = subprocess.run(["bash", "-c", f"ulimit -f 20; {BINARY} emboss --device=cpu -q in.tar out.tar"], capture_output=True, text=True)
    assert result.returncode == 1 and result.stderr.count("\n") == 1 and "File too large" in result.stderr
    assert (box / "out.tar").read_bytes() == b"old" and not temporaries(".")


def test_archive_becomes_shorter(box):
    """Damage met while reading: one message or two, exit code 1, whatever the moment, and no crash."""
    make("in.tar", list(samples(400)))
    child = start("emboss", "-j2", "in.tar", "-")
    child.stdout.read(10000)  # the pipe fills up now
    time.sleep(0.2)
    os.truncate("in.tar", 100000)
    out, err = child.communicate()
    assert child.returncode == 1 and b"shorter" in err, err


@pytest.mark.parametrize("where", ("cpu", "gpu"))
def test_with_a_device(box, where, monkeypatch):
    """Streams finish groups of images: members keep their order, with little memory and many groups."""
    binary = FAULTY if where == "cpu" else EMULATED
    if not binary:
        pytest.skip("not started by ctest, or no such build")
    if where == "gpu" and is_thread_sanitized():
        pytest.skip("the fake device has the same threads and is faster")
    members = [(name, PNGS[i % 4] if name.endswith("png") else data) for i, (name, data) in enumerate(samples(24))]
    make("in.tar", members)
    run("emboss", "in.tar", "reference.tar")
    for jobs in (1, 3):
        command = [binary, "emboss", "--device=cuda", f"-j{jobs}", "--group=64K", "--mem-limit=8M", f"--decode-on={where}",
                   f"--encode-on={where}", "in.tar", f"out-{jobs}.tar"]
        subprocess.run(command, check=True, capture_output=True, timeout=TIMEOUT)
        found = read(f"out-{jobs}.tar")
        assert [name for name, _ in found] == [name for name, _ in members]
        if where == "cpu":
            assert found == read("reference.tar")
    if where == "gpu":
        assert read("out-1.tar") == read("out-3.tar")


@pytest.mark.skipif(is_sanitized() or bool(RUNNER), reason="the program's own memory is measured")
def test_constant_memory(box):
    """A stream of 80 MB in a fraction of that memory; labels wait for slow images before them."""
    large = images.make("gray8", RNG, 1200, 1200, filters=0).data
    noise = RNG.bytes(400000)
    make("in.tar", [member for i in range(200) for member in
                    [(f"{i}.bin", noise)] + [(f"{i}.png", large)] * (i % 50 == 20)])
    data = (box / "in.tar").read_bytes()
    result = measure("emboss", "--device=cpu", "-j4", "--mem-limit=24M", "-", "out.tar", stdin=data)
    assert len(read("out.tar")) == 204
    assert result.peak < 60e6 < len(data)
    result = measure("emboss", "--device=cpu", "-j4", "--mem-limit=24M", "in.tar", "again.tar")
    assert (box / "again.tar").read_bytes() == (box / "out.tar").read_bytes()
