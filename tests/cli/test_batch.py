# SPDX-License-Identifier: MIT
"""Folders: which inputs are read, what is written, and no image is lost."""
import os
import re
import signal
import time

import pytest

import images
import program
from folders import BAD, fill, fill_with_noise, is_embossed, tree
from program import run, start, until

# --- inputs --------------------------------------------------------------------------------------

@pytest.mark.parametrize("flag", ((), ("-b",), ("--batch",)))
def test_main_job(box, device, flag):
    made = fill(box / "input_dir", "a.png", "b.PNG", "c d.png", "é.png")
    (box / "input_dir" / "notes.txt").write_text("not an image\n")
    result = run("emboss", *flag, "input_dir", "output_dir", "--device", device)
    assert tree("output_dir") == sorted(made)
    for name, source in made.items():
        assert is_embossed(box / "output_dir" / name, source), name
    assert result.out == "" and result.err.startswith("4 images -> output_dir/ in ")


def test_last_line_has_the_figures(box):
    fill(box / "in", "a.png", "b.png")
    assert re.fullmatch(r"2 images -> out/ in [\d.]+ s \([\d.]+ images/s\)\n", run("emboss", "in", "out").err)
    assert re.fullmatch(r"2 images replaced in [\d.]+ s \([\d.]+ images/s\)\n", run("identity", "--in-place", "out").err)
    assert re.fullmatch(r"2 images in [\d.]+ s \([\d.]+ images/s\)\n", run("emboss", "--beside", "--suffix=_x", "out").err)
    assert re.fullmatch(r"0 images -> out/ in [\d.]+ s, 2 skipped\n", run("emboss", "-n", "in", "out").err)
    assert re.fullmatch(r"2 images -> o.tar in .*\n", run("emboss", "in", "o.tar").err)
    last = run("emboss", "-v", "in", "out").err.splitlines()[-1]
    for figure in (r"2 done", r"2 replaced", r"\d s\b", r"img/s", r"pix/s", r"cpu", r"CPU utilisation \d+ %"):
        assert re.search(figure, last), f"{figure} is not in {last}"
    assert float(re.search(r"(\d+\.\d+) s\b", last).group(1)) >= 1 or "limit" not in last


def test_files_into_a_file_or_a_folder(box):
    made = fill(box, "a.png", "sub/b.png")
    (box / "there").mkdir()
    run("emboss", "a.png", "to.png")
    run("emboss", "a.png", "there")
    run("emboss", "a.png", "sub/b.png", "new")
    assert tree(box) == ["a.png", "new/a.png", "new/b.png", "sub/b.png", "there/a.png", "to.png"]
    assert all(is_embossed(name, made["a.png"]) for name in ("to.png", "there/a.png", "new/a.png"))
    assert is_embossed("new/b.png", made["sub/b.png"])


def test_standard_streams(box):
    made = fill(box, "a.png")
    data = made["a.png"].data
    run("emboss", "-", "b.png", stdin=data)
    assert is_embossed("b.png", made["a.png"]) and tree(box) == ["a.png", "b.png"]
    assert run("emboss", "-", "-", stdin=data).out_bytes == run("emboss", "a.png", "-").out_bytes == (box / "b.png").read_bytes()


def test_bad_stdin_leaves_stdout_empty(box):
    result = run("emboss", "-", "-", stdin=b"no image", code=1)
    assert result.out == "" and "not a PNG" in result.err


def test_recursive_keeps_the_shape_of_the_tree(box):
    made = fill(box / "in", "a.png", "sub/b.png", "sub/deep/er/c.png")
    run("emboss", "in", "flat")
    assert tree("flat") == ["a.png"]
    run("emboss", "-r", "in", "out")
    assert tree("out") == sorted(made) and is_embossed("out/sub/deep/er/c.png", made["sub/deep/er/c.png"])


def test_files_from(box):
    made = fill(box, "a.png", "b.png", "c.png")
    (box / "list").write_text("a.png\n\nc.png\n")
    run("emboss", "--files-from", "list", "out")
    assert tree("out") == ["a.png", "c.png"]
    run("emboss", "--files-from=-", "-0", "out2", stdin=b"b.png\0c.png\0")
    assert tree("out2") == ["b.png", "c.png"] and is_embossed("out2/b.png", made["b.png"])


def test_a_name_twice_in_a_list_is_done_once(box):
    fill(box / "in", "a.png", "b.png")
    os.symlink("in", box / "link")
    said = run("emboss", "--files-from=-", "out", "--json", stdin=b"in/a.png\n./in//a.png\nin/b.png\nlink/a.png\nin/a.png\n")
    again = [record for record in said.records() if record.get("status") == "skipped"]
    assert [(r["input"], r["reason"]) for r in again] == [(name, "listed again; only the first counts") for name in ("./in//a.png", "in/a.png")]
    assert said.records()[-1]["done"] == 3 and said.err.count("listed again") == 2
    assert tree("out") == ["in/a.png", "in/b.png", "link/a.png"], "a link to a folder is another place in the output"
    said = run("emboss", "--dry-run", "--files-from=-", "new", stdin=b"in/a.png\nin/./a.png\n")
    assert "would skip in/./a.png" in said.out and "1 to do, 0 failed, 1 skipped" in said.err


def test_two_images_of_a_list_with_one_output(box):
    """/PATH and PATH have the same output, so one of the two images was lost."""
    below = os.fspath(box)[1:]
    fill(box, f"in/{below}/a.png")
    made = fill(box, "a.png")
    said = run("emboss", "--files-from=-", "in", "out", stdin=f"{box}/a.png\n{below}/a.png\n".encode(), code=1)
    assert f"in/{below}/a.png: another name in the list has the same output" in said.err and "1 done, 1 failed" in program.closing(said.err)
    assert is_embossed(box / "out" / below / "a.png", made["a.png"])


def test_a_listed_file_that_vanished_is_named_and_the_rest_is_done(box):
    fill(box, "a.png")
    result = run("emboss", "--files-from=-", "out", stdin=b"gone.png\na.png\n", code=1)
    assert "conv: gone.png: " in result.err and tree("out") == ["a.png"]


# --- what is not changed --------------------------------------------------------------------------

def test_skip_existing(box):
    fill(box / "in", "a.png", "b.png")
    (box / "out").mkdir()
    (box / "out" / "a.png").write_bytes(b"kept")
    result = run("emboss", "--skip-existing", "in", "out")
    assert (box / "out" / "a.png").read_bytes() == b"kept"
    assert "1 done" in program.closing(result.err) and "1 skipped" in result.err


def test_update_replaces_what_is_older_than_its_input(box):
    made = fill(box / "in", "old.png", "new.png", "missing.png")
    (box / "out").mkdir()
    for name, age in (("old.png", 1000), ("new.png", -1000)):
        (box / "out" / name).write_bytes(b"before")
        os.utime(box / "out" / name, (time.time() - age, time.time() - age))
    run("emboss", "-u", "in", "out")
    assert (box / "out" / "new.png").read_bytes() == b"before"
    assert is_embossed("out/old.png", made["old.png"]) and is_embossed("out/missing.png", made["missing.png"])


def test_dry_run_writes_nothing_and_says_what_it_would_do(box):
    fill(box / "in", "a.png", "b.png")
    result = run("emboss", "--dry-run", "in", "out")
    assert "in/a.png" in result.out + result.err and "out/b.png" in result.out + result.err
    assert not (box / "out").exists()
    (box / "out").mkdir()
    (box / "out" / "a.png").write_bytes(b"kept")
    result = run("emboss", "--dry-run", "--skip-existing", "in", "out")
    assert re.search(r"in/a\.png.*(exist|skip)", result.out + result.err)
    assert tree("out") == ["a.png"] and (box / "out" / "a.png").read_bytes() == b"kept"


def test_no_save_does_everything_but_the_write(box):
    fill(box / "in", "a.png")
    assert "1 done" in program.closing(run("emboss", "--no-save", "in", "out").err)
    assert not (box / "out" / "a.png").exists()


@pytest.mark.parametrize("inside,outside", (("in", "in"), ("in", "in/"), ("in", "./in"), ("in", "link")))
def test_the_same_folder_is_refused(box, inside, outside):
    made = fill(box / "in", "a.png")
    os.symlink("in", box / "link")
    assert "--in-place" in run("emboss", inside, outside, code=2).err
    assert (box / "in" / "a.png").read_bytes() == made["a.png"].data


@pytest.mark.parametrize("inside,outside", (("in/sub", "in"), ("in", "in/nope/nope/../.."), ("in/sub", "nope/./../in"),
                                            ("in/sub", "nope/../../{here}/in")))
def test_one_folder_in_the_other_is_refused_with_recursive(box, inside, outside):
    fill(box / "in", "a.png", "sub/b.png")
    os.symlink("in", box / "link")
    before = tree(box)
    run("emboss", "-r", inside, outside.format(here=box.name), code=2)
    assert tree(box) == before and not (box / "nope").exists() and not (box / "in" / "nope").exists()


def test_a_current_folder_that_was_removed(box):
    """The search for the output's location once recursed without end."""
    fill(box / "in", "a.png")
    (box / "gone").mkdir()
    os.chdir(box / "gone")
    os.rmdir(box / "gone")
    run("emboss", "-r", box / "in", "out", code=1)
    run("emboss", "-r", box / "in", box / "out")
    assert tree(box / "out") == ["a.png"]


def test_output_folder_below_the_input_is_fine_without_recursive(box):
    fill(box / "in", "a.png")
    run("emboss", "in", "in/out")
    assert tree("in") == ["a.png", "out/a.png"]


def test_nothing_to_do_is_exit_code_3(box):
    (box / "in").mkdir()
    assert "in" in run("emboss", "in", "out", code=3).err
    (box / "in" / "notes.txt").write_text("no image")
    run("emboss", "in", "out", code=3)
    run("emboss", "--files-from=-", "out", code=3)


def test_missing_input_is_named(box):
    process = start("emboss", "nowhere", "out")
    _, err = process.communicate(timeout=program.TIMEOUT)
    assert process.returncode in (1, 2) and b"nowhere" in err and not (box / "out").exists()


# --- failures -----------------------------------------------------------------------------------

def test_bad_images_are_named_and_the_rest_is_done(box, device):
    made = fill(box / "in", "good1.png", "good2.png", "zgood.png")
    for name, data in BAD.items():
        (box / "in" / name).write_bytes(data)
    (box / "in" / "folder.png").mkdir()
    result = run("emboss", "-b", "--device", device, "in", "out", code=1)
    assert tree("out") == sorted(made)
    for name, source in made.items():
        assert is_embossed(box / "out" / name, source)
    for name in BAD:
        lines = [line for line in result.err.splitlines() if line.startswith(f"conv: in/{name}: ")]
        assert len(lines) == 1 and len(lines[0]) > len(f"conv: in/{name}: ") + 5, f"{name}:\n{result.err}"
    assert f"conv: in/text.png: {program.NO_IMAGE}" in result.err.splitlines()
    assert f"{len(made)} done" in program.closing(result.err) and "failed" in result.err.splitlines()[-1]


def test_folder_named_like_a_image(box):
    fill(box / "in", "a.png", "x.png/b.png")
    result = run("emboss", "-r", "in", "out")
    assert tree("out") == ["a.png", "x.png/b.png"] and "2 done" in program.closing(result.err)


def test_output_below_a_file(box):
    fill(box / "in", "a.png")
    (box / "file").write_text("in the way")
    process = start("emboss", "-b", "in", "file/out")
    _, err = process.communicate(timeout=program.TIMEOUT)
    assert process.returncode in (1, 2) and b"file/out" in err and (box / "file").read_text() == "in the way"


def test_fail_fast_stops(box):
    fill(box / "in", *[f"{i:03}.png" for i in range(300)])
    for i in (0, 150, 299):  # folders are read in the file system's order
        (box / "in" / f"{i:03}.png").write_bytes(b"bad")
    run("emboss", "--fail-fast", "-j1", "in", "out", code=1)
    assert len(tree("out")) < 297


# --- outputs -------------------------------------------------------------------------------------


def test_failed_image_leaves_the_old_output(box):
    (box / "in").mkdir()
    (box / "out").mkdir()
    (box / "in" / "a.png").write_bytes(BAD["cut.png"])
    (box / "out" / "a.png").write_bytes(b"before")
    run("emboss", "in", "out", code=1)
    assert (box / "out" / "a.png").read_bytes() == b"before" and tree("out") == ["a.png"]


# --- many images -------------------------------------------------------------------------------

@pytest.mark.parametrize("number,code", ((signal.SIGINT, 130), (signal.SIGTERM, 143)))
def test_signal_leaves_whole_files_only(box, number, code):
    fill_with_noise(box / "in", 3000)
    process = start("emboss", "-b", "-z9", "in", "out")
    until(lambda: (box / "out").exists() and len(os.listdir("out")) >= 3, process)
    process.send_signal(number)
    _, err = process.communicate(timeout=program.TIMEOUT)
    assert process.returncode == code
    names = os.listdir("out")
    assert len(names) < 3000, "the signal came too late to prove anything"
    left = 3000 - len(names)
    assert re.fullmatch(rf"interrupted: ({len(names)} of 3000 done, {left} left|{len(names)} done, at least \d+ left); "
                        r"--skip-existing continues\n", err.decode()), err
    assert all(re.fullmatch(r"\d{4}\.png", name) for name in names), [n for n in names if not n[0].isdigit()]
    contents = {(box / "out" / name).read_bytes() for name in names}
    assert len(contents) == 1
    images.chunks(contents.pop())
