# SPDX-License-Identifier: MIT
"""Archives as inputs and outputs: the same pixels as with files, members in order, nothing outside the output."""
import gzip
import os
import signal
import subprocess
import tarfile
import time

import pytest

from folders import fill
from program import BINARY, RUNNER, is_sanitized, run, start
from tars import PNGS, expected, make, read, samples, temporaries

@pytest.mark.parametrize("format", (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT))
@pytest.mark.parametrize("way", ("files", "stdin", "pipe", "jobs"))
def test_tar_to_tar(box, way, format):
    members = list(samples(12)) + [("dir/" + "n" * 90 + f"/{'m' * 60}.png", PNGS[0])]
    if format != tarfile.USTAR_FORMAT:
        members += [("long/" + "x" * 150 + ".png", PNGS[1]), ("long/" + "y" * 200 + ".json", b"{}")]
    make("in.tar", members, format)
    if way == "files":
        run("emboss", "in.tar", "out.tar")
    elif way == "jobs":
        run("emboss", "-j8", "--mem-limit", "2M", "in.tar", "out.tar")
    else:
        with open("in.tar", "rb") as source, open("out.tar", "wb") as sink:
            given = subprocess.PIPE if way == "pipe" else source
            child = subprocess.Popen([*RUNNER, BINARY, "emboss", "--device=cpu", "-", "-"], stdin=given, stdout=sink)
            if way == "pipe":
                child.communicate(source.read())
            assert child.wait() == 0
    assert read("out.tar") == expected(box, members)
    assert not temporaries(".")
    with tarfile.open("out.tar") as archive:
        for info in archive:
            assert (info.mtime, info.mode, info.uid, info.gid) == (1700000000, 0o640, 1000, 100)
            assert (info.uname, info.gname) == ("user", "group")
    assert os.path.getsize("out.tar") % 10240 == 0


def test_bytes_depend_on_the_input_alone(box):
    make("in.tar", list(samples(30)))
    for jobs in (1, 2, 7):
        run("emboss", f"-j{jobs}", "in.tar", f"{jobs}.tar")
    assert (box / "1.tar").read_bytes() == (box / "2.tar").read_bytes() == (box / "7.tar").read_bytes()
    assert subprocess.run(["tar", "tf", "1.tar"], capture_output=True, check=True).stderr == b""


def test_tar_to_folder_and_back(box):
    members = list(samples(4)) + [("a/b/c.png", PNGS[0]), ("./d.png", PNGS[1]), ("/e.png", PNGS[2])]
    make("in.tar", members)
    run("emboss", "in.tar", "out")
    for name, data in expected(box, members):
        assert (box / "out" / name.lstrip("/")).read_bytes() == data
    run("emboss", "--images-only", "in.tar", "only")
    assert not list((box / "only").glob("**/*.cls")) and (box / "only/a/b/c.png").exists()
    os.utime("out/a/b/c.png", (1600000000, 1600000000))
    run("emboss", "-r", "out", "back.tar")
    with tarfile.open("back.tar") as archive:
        names = archive.getnames()
        info = archive.getmember("a/b/c.png")
    assert names == sorted(names) and len(names) == 7
    assert (info.mtime, info.mode, info.uid, info.uname) == (1600000000, 0o644, 0, "")


GLOBS = ("", "--exclude old/", "--exclude /sub/old/", "--exclude /a.png", "--exclude old", "--exclude sub/**", "--include /*.png",
         "--include sub/*.png", "--include **/a.png", "--no-ignore")


@pytest.mark.parametrize("members", (".", "* ._*"))
def test_members_are_chosen_as_files_are(box, members):
    """--exclude old/ and @eaDir had no effect on what is in these folders; nothing with a slash matched ./a.png."""
    fill(box / "in", "a.png", "._b.png", "@eaDir/c.png", "old/a.png", "sub/a.png", "sub/old/d.png")
    subprocess.run(f"cd in && tar cf ../in.tar {members}", shell=True, check=True)
    for glob in GLOBS:
        chosen = [[os.path.normpath(record["input"].replace("in.tar:", "in/")) for record in
                   run("identity", "--json", *options, *glob.split(), out).records() if record.get("status") == "done"]
                  for options, out in ((("-r", "in"), "out"), (("in.tar",), "out.tar"))]
        assert sorted(chosen[0]) == sorted(set(chosen[1])), glob
        assert chosen[0], glob


def test_images_only(box):
    make("in.tar", list(samples(3)))
    run("emboss", "--images-only", "in.tar", "out.tar")
    assert [name for name, _ in read("out.tar")] == ["000000.png", "000001.png", "000002.png"]


def test_shards(box):
    (box / "in").mkdir()
    for i in range(3):
        make(f"in/shard-{i:03}.tar", list(samples(i)))  # the first is empty
    run("emboss", "in/shard-{000..002}.tar", "out")
    assert sorted(os.listdir("out")) == ["shard-000.tar", "shard-001.tar", "shard-002.tar"]
    for i in range(3):
        assert [name for name, _ in read(f"out/shard-{i:03}.tar")] == [name for name, _ in samples(i)]
    run("emboss", "in/shard-{001..001}.tar", "one")
    assert os.listdir("one") == ["shard-001.tar"]
    run("emboss", "in/shard-001.tar", "in/shard-002.tar", "files", "--format", "files")
    assert os.path.exists("files/shard-002/000001.cls")
    result = run("emboss", "in/shard-001.tar", "in/shard-002.tar", "all.tar", code=1)
    assert "in/shard-002.tar:000000.png: another member has the same output" in result.err and len(read("all.tar")) == 4


# --- shards of archives --------------------------------------------------------------------------

def names_in(path):
    return [name for name, _ in read(path)]


def test_one_archive_is_divided_by_its_members(box):
    """Each sample is in one shard, with its label; the order stays; hard links are in the shard of their target."""
    members = list(samples(40)) + [("d/x.seg.png", PNGS[0]), ("d/x.png", PNGS[1]), ("d/x.json", b"{}"),
                                   ("d/y.png", b"", {"type": tarfile.LNKTYPE, "linkname": "d/x.png"})]
    make("in.tar", members)
    (box / "in.tar.gz").write_bytes(gzip.compress((box / "in.tar").read_bytes(), 1))
    run("emboss", "in.tar", "whole.tar")
    whole = dict(read("whole.tar"))
    ways = ("in.tar", "bytes"), ("in.tar", "name"), ("in.tar.gz", "bytes"), ("-", "name")
    for source, way in ways[::3 if is_sanitized() else 1]:
        shards = []
        for i in range(3):
            stdin = (box / "in.tar").read_bytes() if source == "-" else None
            run("emboss", source, "out-{shard}.tar", "--shard", f"{i}/3", "--shard-by", way, "--format=tar", stdin=stdin)
            shards.append(read(f"out-{i}.tar"))
            assert all(whole[name] == data for name, data in shards[-1])
        order = {name: at for at, (name, *_) in enumerate(members)}
        assert sorted(name for shard in shards for name, _ in shard) == sorted(order)
        homes = {}
        for i, shard in enumerate(shards):
            assert [order[name] for name, _ in shard] == sorted(order[name] for name, _ in shard)
            homes.update((name, i) for name, _ in shard)
        assert all(homes[f"{i:06}.png"] == homes[f"{i:06}.cls"] for i in range(40))
        assert len({homes[f"d/x{end}"] for end in (".seg.png", ".png", ".json")} | {homes["d/y.png"]}) == 1
        if way == "bytes":
            sizes = [sum(len(data) for name, data in [(n, d) for n, d, *_ in members] if homes[name] == i) for i in range(3)]
            assert max(sizes) < 1.3 * sum(sizes) / 3, sizes
    result = run("emboss", "-", "out-{shard}.tar", "--shard=0/2", "--format=tar", stdin=(box / "in.tar").read_bytes(), code=2)
    assert "can be read only once; use --shard-by name" in result.err


def test_shards_of_members_as_files(box):
    """Tasks write into one folder; a bad member is reported by one of them, a truncated archive by each."""
    make("in.tar", [("bad.png", b"x"), ("../up.png", PNGS[0])] + list(samples(20)))
    data = (box / "in.tar").read_bytes().rstrip(b"\0")
    (box / "in.tar").write_bytes(data + bytes(-len(data) % 512))  # without the mark of its end
    errors, reports = "", []
    for i in range(3):
        result = run("emboss", "in.tar", "out", "--shard", f"{i}/3", "--report", f"r{i}", code=1)
        errors += result.err
        reports.append(f"r{i}")
    assert sorted(os.listdir("out")) == sorted(name for name, _ in samples(20))
    assert errors.count("in.tar:bad.png: ") == errors.count("in.tar:../up.png: ") == 1
    assert errors.count("truncated archive") == 3
    merged = run("report", "merge", *reports, code=1)
    assert "in.tar:bad.png: " in merged.err and "damaged line" not in merged.err
    assert "20 done, 3 failed, 0 skipped, 20 copied" in merged.out, merged.out


def test_several_archives_are_divided_as_a_whole(box):
    for i in range(6):
        make(f"{i}.tar", list(samples(2 + i % 3)))
    for i in range(3):
        run("emboss", "{0..5}.tar", "out", "--shard", f"{i}/3")
        run("emboss", "{0..5}.tar", "files", "--format=files", "--shard", f"{i}/3")
        run("emboss", "{0..5}.tar", "part-{shard}", "--shard", f"{i}/3", "--shard-of=members")
    assert sorted(os.listdir("out")) == sorted(os.listdir("part-0")) == [f"{i}.tar" for i in range(6)]
    for i in range(6):
        assert names_in(f"out/{i}.tar") == [name for name, _ in samples(2 + i % 3)]
        parts = [name for part in range(3) for name in names_in(f"part-{part}/{i}.tar")]
        assert sorted(parts) == sorted(names_in(f"out/{i}.tar")) == sorted(os.listdir(f"files/{i}"))
    env = {"SLURM_PROCID": "1", "SLURM_NTASKS": "3"}
    for args, text in ((("0.tar", "x.tar"), "put {shard} into its name"), (("0.tar", "1.tar", "x.tar"), "into its name"),
                       (("{0..1}.tar", "x", "--shard-of=members"), "into the name of the folder")):
        assert text in run("emboss", *args, "--shard=auto", env=env, code=2).err and not os.path.exists("x")
    run("emboss", "{0..5}.tar", "auto", "--shard=auto", env=env)
    assert set(os.listdir("auto")) < set(os.listdir("out"))
    left = [run("emboss", "0.tar", "1.tar", "few", "--shard", f"{i}/3").err for i in range(3)]
    assert any("has none of the 2 inputs" in err for err in left) and sorted(os.listdir("few")) == ["0.tar", "1.tar"]


# --- what is done already ------------------------------------------------------------------------

def counts(*args, code=0):
    last = run("emboss", *args, "--json", code=code).records()[-1]
    return last["done"], last["skipped"], last["failed"]


def test_archives_that_are_done_are_skipped_as_a_whole(box):
    for i in range(3):
        make(f"{i}.tar", [(f"{i}/{name}", data) for name, data in samples(2)])
    names = "{0..2}.tar"
    run("emboss", "{0..1}.tar", "out")
    before = os.stat("out/0.tar").st_mtime_ns
    assert counts("--skip-existing", names, "out") == (2, 2, 0) and os.stat("out/0.tar").st_mtime_ns == before
    assert counts("--update", names, "out") == (0, 3, 0)
    later = time.time_ns() + 86400 * 10**9  # later than any output of this test
    os.utime("1.tar", ns=(later, later))
    assert counts("--update", names, "out") == (2, 2, 0)
    result = run("emboss", "--update", "--dry-run", names, "out")
    assert "1.tar:1/000000.png" in result.out and "0.tar:" not in result.out
    # One archive made of several inputs.
    run("emboss", "0.tar", "2.tar", "one.tar")
    assert counts("--skip-existing", "0.tar", "2.tar", "one.tar") == (0, 2, 0)
    assert counts("--update", "0.tar", "2.tar", "one.tar") == (0, 2, 0)
    assert counts("--update", "0.tar", "1.tar", "one.tar") == (4, 0, 0)
    fill(box / "in", "a.png")
    assert counts("--skip-existing", "in", "folder.tar") == (1, 0, 0) and counts("--skip-existing", "in", "folder.tar") == (0, 1, 0)
    (box / "list").write_text("in/a.png\n")
    assert counts("--skip-existing", "--files-from", "list", "folder.tar") == (0, 1, 0)
    assert {counts("--skip-existing", sorts, "in/a.png", "in", "folder.tar") for sorts in ("-v", "--limit=9")} == {(0, 2, 0)}  # was replaced


def test_a_journal_lists_whole_archives(box):
    """An archive is done again if a member failed, the settings differ or it has changed since."""
    for i in range(3):
        make(f"{i}.tar", [(f"{i}/{name}", data) for name, data in samples(2)] + ([("bad.png", b"x")] if i == 2 else []))
    job = ("{0..2}.tar", "out", "--resume", "j")
    assert counts(*job, code=1) == (6, 0, 1)
    assert counts(*job, code=1) == (2, 2, 1)
    make("2.tar", [(f"2/{name}", data) for name, data in samples(3)])
    os.remove("out/0.tar")
    assert counts(*job) == (5, 1, 0) and counts(*job) == (0, 3, 0)
    for settings in (("-z0",), ("--images-only",), ("--exclude=*0.png",), ("--on-error=copy",), ("--limit=1",)):
        assert counts(*job, *settings)[1] == 0, settings
    run("emboss", "0.tar", "1.tar", "one.tar", "--resume", "k")
    assert counts("0.tar", "1.tar", "one.tar", "--resume", "k") == (0, 2, 0)
    assert counts("0.tar", "one.tar", "--resume", "k") == (2, 0, 0)  # fewer inputs are another archive
    child = start("emboss", "{0..2}.tar", "stopped", "--resume", "l", "-q")
    child.send_signal(signal.SIGTERM)
    child.communicate()
    done, skipped, failed = counts("{0..2}.tar", "stopped", "--resume", "l")
    assert done == 7 - 2 * min(skipped, 2) - 3 * (skipped == 3) and failed == 0
