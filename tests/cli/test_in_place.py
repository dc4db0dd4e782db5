# SPDX-License-Identifier: MIT
"""--in-place: the image itself is replaced, whole, once, and nothing else is."""
import os
import stat

import pytest

import program
from folders import BAD, fill, is_embossed, tree
from program import run, start, until


def test_a_tree_is_filtered_where_it_is(box, device):
    made = fill(box / "in", "a.png", "sub/b.png", "notes.png.txt")
    run("emboss", "--in-place", "-r", "--device", device, "in")
    assert tree("in") == sorted(made)
    assert is_embossed("in/a.png", made["a.png"]) and is_embossed("in/sub/b.png", made["sub/b.png"])
    assert (box / "in" / "notes.png.txt").read_bytes() == made["notes.png.txt"].data


def test_files_lists_and_several_folders(box):
    made = fill(box, "a.png", "x/b.png", "y/b.png", "z/c.png", "z/d.png")
    run("emboss", "--in-place", "a.png", "x", "y")
    run("emboss", "--in-place", "--files-from=-", "z", stdin=b"c.png\n")
    assert tree(box) == sorted(made)
    for name in ("a.png", "x/b.png", "y/b.png", "z/c.png"):
        assert is_embossed(box / name, made[name]), name
    assert (box / "z" / "d.png").read_bytes() == made["z/d.png"].data


@pytest.mark.parametrize("args", (("in", "in/"), ("-r", "in", "in/sub"), ("in", "in/a.png"), ("-",), (), ("-u", "in"),
                                  ("--skip-existing", "in")))
def test_what_would_filter_twice_or_makes_no_sense_is_refused(box, args):
    made = fill(box / "in", "a.png", "sub/b.png")
    run("emboss", "--in-place", *args, code=2)
    assert all((box / "in" / name).read_bytes() == source.data for name, source in made.items())


def test_mode_stays_and_times_with_preserve(box):
    fill(box / "in", "a.png")
    (box / "in" / "a.png").chmod(0o604)
    run("emboss", "--in-place", "in")
    assert stat.S_IMODE((box / "in" / "a.png").stat().st_mode) == 0o604
    os.utime(box / "in" / "a.png", ns=(10**18, 10**18))
    run("emboss", "--in-place", "-p", "in")
    assert (box / "in" / "a.png").stat().st_mtime_ns == 10**18


def test_links_are_left_alone(box):
    """A link in a tree may lead out of it; a link given on the command line is refused."""
    made = fill(box, "outside.png", "in/a.png")
    os.symlink("../outside.png", box / "in" / "link.png")
    assert "1 done, 0 failed, 1 skipped" in program.closing(run("emboss", "--in-place", "-r", "in").err)
    assert "symbolic link" in run("emboss", "--in-place", "in/link.png", code=1).err
    assert os.path.islink("in/link.png") and (box / "outside.png").read_bytes() == made["outside.png"].data
    os.link(box / "in" / "a.png", box / "twin.png")
    before = (box / "twin.png").read_bytes()
    run("emboss", "--in-place", "in/a.png")
    assert (box / "twin.png").read_bytes() == before, "another name of the file keeps the old image"


def feed(process, *names):
    process.stdin.write("".join(f"{name}\n" for name in names).encode())
    process.stdin.flush()


AGAIN = "listed again; only the first counts"


@pytest.mark.parametrize("options", ((), ("--resume", "journal")))
def test_a_name_twice_in_a_list_is_filtered_once(box, options):
    """The image of the first name is done before the other names of it arrive, which were once taken for new inputs."""
    made = fill(box / "in", "a.png")
    os.symlink("in", box / "link")
    again = ["in/a.png", "./in/a.png", "in//./a.png", "link/a.png", f"{box}/in/a.png", f"{box}/link//a.png"]
    process = start("emboss", "--in-place", *options, "--files-from=-", stdin=-1)
    feed(process, "in/a.png")
    until(lambda: (box / "in" / "a.png").read_bytes() != made["a.png"].data, process)
    _, err = process.communicate("\n".join(again).encode(), timeout=program.TIMEOUT)
    assert process.returncode == 0 and "1 done, 0 failed, 6 skipped" in program.closing(err)
    assert all(f"conv: {name}: {AGAIN}\n".encode() in err for name in again)
    assert is_embossed("in/a.png", made["a.png"])


def test_a_list_of_all_names_twice(box):
    made = fill(box / "in", *[f"{i}.png" for i in range(50)])
    names = [f"{i}.png" for i in range(50)] + [f"./{i}.png" for i in range(50)]
    result = run("emboss", "--in-place", "--files-from=-", "-j4", "in", stdin="\n".join(names).encode())
    assert "50 done, 0 failed, 50 skipped" in program.closing(result.err) and result.err.count(AGAIN) == 50
    assert all(is_embossed(box / "in" / name, source) for name, source in made.items())


def test_what_this_run_has_made_is_no_input(box):
    """A folder that changes while it is read may list an image a second time, even by another name."""
    made = fill(box / "in", "a.png")
    process = start("emboss", "--json", "--in-place", "--files-from=-", stdin=-1)
    feed(process, "in/a.png")
    until(lambda: (box / "in" / "a.png").read_bytes() != made["a.png"].data, process)
    os.rename(box / "in" / "a.png", box / "in" / "b.png")
    out, err = process.communicate(b"in/b.png\n", timeout=program.TIMEOUT)
    assert process.returncode == 0 and "1 done, 0 failed, 1 skipped" in program.closing(err)
    assert b'"reason":"filtered in place already"' in out
    assert is_embossed(box / "in" / "b.png", made["a.png"])


def test_every_hard_link_is_an_image_of_its_own(box):
    made = fill(box / "in", "a.png")
    os.link("in/a.png", "in/b.png")
    os.link("in/a.png", "other.png")
    assert "2 done, 0 failed, 0 skipped" in program.closing(run("emboss", "--in-place", "in").err)
    assert is_embossed("in/a.png", made["a.png"]) and is_embossed("in/b.png", made["a.png"])
    assert (box / "other.png").read_bytes() == made["a.png"].data


def test_bad_images_stay_as_they_are(box):
    made = fill(box / "in", "good.png")
    for name, data in BAD.items():
        (box / "in" / name).write_bytes(data)
    run("emboss", "--in-place", "in", code=1)
    assert is_embossed("in/good.png", made["good.png"])
    assert tree("in") == sorted([*BAD, "good.png"])
    assert all((box / "in" / name).read_bytes() == data for name, data in BAD.items())


def test_a_dry_run_changes_nothing(box):
    made = fill(box / "in", "a.png")
    assert "would filter in/a.png -> in/a.png (replaces the input)" in run("emboss", "--in-place", "--dry-run", "in").out
    assert (box / "in" / "a.png").read_bytes() == made["a.png"].data


def test_many_operands_cost_no_more_each_than_few(box):
    """Every file was compared with every other: 20,000 files took minutes before the first was read."""
    fill(box, "a.png")
    for number in range(8000):
        os.link("a.png", f"{number}.png")
    before = os.times()
    run("identity", "--in-place", "--dry-run", *[f"{number}.png" for number in range(8000)])
    after = os.times()
    spent = after.children_user + after.children_system - before.children_user - before.children_system
    assert spent < (60 if program.RUNNER or os.environ.get("CONV_SANITIZED") else 5), spent  # 0.1 s; 30 s and more when compared in pairs
