# SPDX-License-Identifier: MIT
"""Where results go (--output, --beside, --suffix) and which images a run takes (--limit, --sample, ignored names)."""
import os
import random
import re
import subprocess
import tarfile

import numpy as np
import pytest

import images
import program
from folders import tree
from program import run

PHOTO = images.make("rgb8", np.random.default_rng(3), 8, 6).data


def fill(*names):
    for name in names:
        if os.path.dirname(name):
            os.makedirs(os.path.dirname(name), exist_ok=True)
        with open(name, "wb") as file:
            file.write(PHOTO)


@pytest.fixture
def photos(box):
    fill("in/b.png", "in/a.png", "in/sub/c.PNG")
    return box


# --- --output ------------------------------------------------------------------------------------

def test_output_for_find(photos):
    """find -exec ... {} + appends one file or many: all operands are inputs, and the output is always a folder."""
    environment = {**os.environ, "PATH": os.path.dirname(program.BINARY) + ":" + os.environ["PATH"]}
    command = ["find", "in", "-iname", "*.png", "-exec", *program.RUNNER, program.BINARY, "emboss", "-o", "out", "{}", "+"]
    assert subprocess.run(command, env=environment, stderr=subprocess.PIPE, timeout=program.TIMEOUT).returncode == 0
    assert tree("out") == ["a.png", "b.png", "c.PNG"]
    run("emboss", "-o", "one", "in/a.png")
    assert tree("one") == ["a.png"]
    for i in range(2):
        run("emboss", "-r", f"--shard={i}/2", "--suffix=_e", "-o", "part-{shard}", "in")
    assert sorted(tree("part-0") + tree("part-1")) == ["a_e.png", "b_e.png", "sub/c_e.PNG"]


@pytest.mark.parametrize("typed", (("-o", "x.png", "in/a.png"), ("in/a.png", "--output=x.png"), ("in/a.png", "x.png")))
def test_output_with_an_extension_is_a_file(photos, typed):
    run("emboss", *typed)
    assert os.path.isfile("x.png")


def test_output_to_standard_output(photos):
    assert run("identity", "-o", "-", "in/a.png").out_bytes.startswith(b"\x89PNG")


def test_outputs_that_collide_are_refused(photos):
    fill("x/a.png")
    result = run("emboss", "-o", "out", "in/a.png", "x/a.png", code=2)
    assert "in/a.png and x/a.png would become the same output file" in result.err and "--recursive" in result.err
    assert not os.path.exists("out")


@pytest.mark.parametrize("typed,words", (
    (("-o", "out"), "the input is missing"), (("-o", "out", "--in-place", "in"), "--in-place and --output cannot be combined"),
    (("-o", "out", "--beside", "--suffix=_x", "in"), "--beside and --output cannot be combined"),
    (("-o", "x.png", "in"), "x.png is not a folder"), (("--beside", "in"), "--suffix _new"),
    (("--beside", "--in-place", "--suffix=_x", "in"), "cannot be combined"), (("--suffix=_x", "--in-place", "in"), "cannot be combined"),
    (("--beside", "--suffix=_x"), "the input is missing"), (("--suffix=_x", "in/a.png", "x.png"), "--suffix is for results in a folder"),
    (("--beside", "--suffix=", "in"), "--suffix takes a part of a file name"), (("--beside", "--suffix=a/b", "in"), "--suffix takes a part"),
    (("--beside", "--suffix=_x", "-"), "standard input has no folder"), (("--beside", "--suffix=_x", "in", "in/a.png"), "overlap"),
    (("--limit=1", "--sample=1", "in", "out"), "cannot be combined"), (("--seed=1", "in", "out"), "--seed needs --sample"),
    (("--limit=0", "in", "out"), "--limit must be more than 0"), (("--include=", "in", "out"), "--include: the glob is empty"),
    (("--exclude=" + "{a,b}" * 11, "in", "out"), "alternatives")))
def test_what_makes_no_sense_together(photos, typed, words):
    result = run("emboss", *typed, code=2)
    assert words in result.err and tree() == ["in/a.png", "in/b.png", "in/sub/c.PNG"], result.err


# --- --beside and --suffix -----------------------------------------------------------------------

def test_results_next_to_the_originals(photos):
    run("emboss", "--beside", "--suffix=_e", "-r", "in")
    assert tree("in") == ["a.png", "a_e.png", "b.png", "b_e.png", "sub/c.PNG", "sub/c_e.PNG"]
    assert "3 done, 0 failed, 3 skipped" in program.closing(run("emboss", "--beside", "--suffix=_e", "-r", "in").err), "results are no images to filter"
    assert len(tree("in")) == 6
    result = run("emboss", "--beside", "--suffix=_e", "--dry-run", "in")
    assert "would skip in/a_e.png (named like a result)\n" in result.out
    assert "0 to do, 0 failed, 6 skipped" in run("emboss", "--beside", "--suffix=_e", "--dry-run", "-r", "--skip-existing", "in").err
    records = run("emboss", "--beside", "--suffix=_e", "--json", "in/a.png", "in/a_e.png").records()
    assert [record["status"] for record in records if record["type"] == "file"] == ["done", "skipped"] or \
        [record["status"] for record in records if record["type"] == "file"] == ["skipped", "done"]


def test_beside_with_another_extension_needs_no_suffix(photos):
    run("emboss", "--beside", "--output-type=f32", "in/a.png", "in/b.png")
    assert tree("in") == ["a.npy", "a.png", "b.npy", "b.png", "sub/c.PNG"]
    run("emboss", "--beside", "--suffix=_e", "--output-type=f32", "in/a.png")
    assert "a_e.npy" in tree("in")
    run("layer", "laws:9", "--beside", "--suffix=_l", "--device=cpu", "in/b.png")
    assert "b_l.npy" in tree("in")


def test_suffix_in_another_folder(photos):
    run("emboss", "-r", "--suffix=_e", "in", "out")
    assert tree("out") == ["a_e.png", "b_e.png", "sub/c_e.PNG"]
    fill("in/a_e.png", "in/.dots", "in/x.y.png")
    os.rename("in/.dots", "in/.png")  # a name without an extension
    run("emboss", "--suffix=_e", "--include=*.png", "in", "more")
    assert tree("more") == [".png_e", "a_e.png", "a_e_e.png", "b_e.png", "x.y_e.png"]
    with open("in/a.png", "rb") as file:
        run("emboss", "--suffix=_e", "-", "in/a.png", "both", stdin=file.read())
    assert tree("both") == ["a_e.png", "stdin_e.png"]


def test_beside_from_a_list(photos):
    names = "in/a.png\n./in/a.png\n" + os.path.abspath("in/b.png") + "\nin/b_e.png\n"
    fill("in/b_e.png")
    result = run("emboss", "--beside", "--suffix=_e", "--files-from=-", stdin=names.encode())
    assert "in/a.png: listed again" in result.err and "2 done, 0 failed, 2 skipped" in program.closing(result.err)
    assert tree("in") == ["a.png", "a_e.png", "b.png", "b_e.png", "sub/c.PNG"]


def test_beside_continues_with_a_journal(photos):
    first = run("emboss", "--beside", "--suffix=_e", "-r", "--resume=j", "--limit=2", "in").err
    assert "2 done, 0 failed, 0 skipped" in program.closing(first)
    assert "1 done, 0 failed, 4 skipped" in program.closing(run("emboss", "--beside", "--suffix=_e", "-r", "--resume=j", "in").err)


# --- which images --------------------------------------------------------------------------------

def planned(*options):
    return re.findall(r"(?m)^would filter (\S+) ->", run("emboss", "--dry-run", *options, "in", "out").out)


def test_order_of_lists(box):
    """Names are printed sorted, whatever the order of the file system and the number of workers."""
    names = [f"in/{i:03}.png" for i in range(60)] + [f"in/sub/{i:02}.png" for i in range(20)]
    random.Random(1).shuffle(names)
    fill(*names)
    assert planned("-r", "-j4") == sorted(names)
    said = run("emboss", "-rv", "-j4", "in", "out").err
    assert re.findall(r"(?m)^conv: done (\S+) ->", said) == sorted(names)


def test_verbose_lines_do_not_wait_for_a_failure(box):
    fill(*(f"in/{i}.png" for i in range(8)))
    (box / "in/3.png").write_bytes(b"no image")
    said = run("emboss", "-v", "in", "out", code=1).err
    assert re.findall(r"(?m)^conv: done in/(\d)", said) == list("0124567") and "conv: in/3.png: not a PNG" in said


def test_limit_takes_the_first(photos):
    assert planned("-r", "--limit=2") == ["in/a.png", "in/b.png"]
    assert planned("-r", "--limit=9") == ["in/a.png", "in/b.png", "in/sub/c.PNG"]
    run("emboss", "--limit=1", "in", "out")
    assert tree("out") == ["a.png"]
    result = run("emboss", "--limit=2", "--files-from=-", "listed", stdin=b"in/sub/c.PNG\nin/b.png\nin/a.png\n")
    assert tree("listed") == ["in/b.png", "in/sub/c.PNG"] and "2 done" in program.closing(result.err)


def test_sample_depends_on_names_and_seed_only(box):
    names = [f"{i:03}.png" for i in range(100)]
    fill(*(f"in/{name}" for name in names))
    first = planned("--sample=10")
    assert len(first) == 10 and first == sorted(first) and first != [f"in/{name}" for name in names[:10]]
    assert planned("--sample=10", "--seed=0") == first and planned("--sample=10", "--seed=1") != first
    assert set(planned("--sample=5")) < set(first), "a smaller sample is part of a larger one"
    os.rename("in", "old")
    random.Random(5).shuffle(names)
    os.mkdir("in")
    for name in names:
        os.rename(f"old/{name}", f"in/{name}")
    assert planned("--sample=10") == first
    result = run("emboss", "--dry-run", "--sample=10", "--files-from=-", "in", "out", stdin="\n".join(names).encode())
    assert sorted(re.findall(r"(?m)^would filter (\S+) ->", result.out)) == first
    drawn = sum(int(name[3:6]) for seed in range(30) for name in planned("--sample=10", f"--seed={seed}"))
    assert 40 < drawn / 300 < 59, "samples are uniform"


def test_globs(photos):
    assert planned("-r", "--include=*.{png,jpg}") == ["in/a.png", "in/b.png"]
    assert planned("-r", "--include=**/c.*") == ["in/sub/c.PNG"] and planned("-r", "--include=/a*") == ["in/a.png"]
    assert planned("-r", "--exclude=sub/") == ["in/a.png", "in/b.png"] and len(planned("-r", "--exclude=a.png/")) == 3
    assert planned("-r", "--exclude=/*.png") == ["in/sub/c.PNG"] and planned("-r", "--exclude={/a.png,sub/**}") == ["in/b.png"]


def test_files_of_other_programs(photos):
    """Each ._a.png of macOS was a failure."""
    os.makedirs("in/@eaDir")
    for name in ("in/._a.png", "in/.thumb.png", "in/@eaDir/x.png"):
        with open(name, "wb") as file:
            file.write(b"no image")
    assert "2 done, 0 failed, 0 skipped; 2 ignored" in program.closing(run("emboss", "in", "out").err)
    result = run("emboss", "-r", "--json", "in", "out")
    assert "3 done, 0 failed, 0 skipped, 2 files replaced; 3 ignored" in program.closing(result.err) and result.records()[-1]["ignored"] == 3
    assert "3 to do, 0 failed, 0 skipped; 3 ignored\n" in run("emboss", "-r", "--dry-run", "in", "out").err
    assert " 3 failed" in program.closing(run("emboss", "-r", "--no-ignore", "in", "out", code=1).err)
    assert "no image" not in run("emboss", "in/._a.png", "x.png", code=1).err and not os.path.exists("x.png")
    fill("apple/._a.png")
    assert " in apple (1 ignored: ._*, .thumb* or @eaDir; --no-ignore takes them)\n" in run("emboss", "apple", "new", code=3).err


@pytest.mark.parametrize("args", (
    ("a.png", "a.png"), ("a.png", "link.png"), ("a.png", "./../{box}/a.png"), ("a.png", "."), ("a.png", "b.png", "."), ("in", "x.tar.xz"),
    ("in", "x.tar.bz2"), ("in", "x.7z"), ("in.tar", "x.7z"), ("-q", "--format=7z", "in", "-"), ("a.png", "x.gif"), ("in", "in"),
    ("in.tar", "in.tar")))
def test_what_the_command_line_alone_makes_impossible_is_wrong_usage(box, args):
    """Exit code 1 made scripts try again for ever."""
    fill("a.png", "b.png", "in/c.png")
    with tarfile.open("in.tar", "w") as archive:
        archive.add("a.png")
    os.symlink("a.png", "link.png")
    before = {path: path.read_bytes() for path in box.rglob("*") if path.is_file()}
    run("emboss", *(arg.replace("{box}", box.name) for arg in args), code=2)
    assert {path: path.read_bytes() for path in box.rglob("*") if path.is_file()} == before
