# SPDX-License-Identifier: MIT
"""Entries of folders: names of every kind, entries that are not files, and names that lead out of the output folder."""
import json
import os
import re
import stat

import numpy as np
import pytest

import images
import program
from folders import make_socket, tree
from program import run

GOOD = images.make("rgb8", np.random.default_rng(1), 20, 14).data
LONG = "n" * 251 + ".png"  # 255 bytes, the most that file systems take


def fill(folder, *names):
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(GOOD)


def failures(result):
    """name -> cause, from all lines of stderr but the last; each must be about one image."""
    lines = [re.fullmatch(r"conv: (.*\.png): (.*)", line) for line in result.err.splitlines()[:-1]]
    assert all(lines), result.err
    named = {match[1]: match[2] for match in lines}
    assert len(named) == len(lines), f"named twice:\n{result.err}"
    return named


# --- things that are not images -----------------------------------------------------------------

THINGS = {
    "fifo": (os.mkfifo, "is a pipe, socket or device, not an image"),
    "socket": (make_socket, "is a pipe, socket or device, not an image"),
    "folder": (os.mkdir, "is a folder, not an image"),
    "device": (lambda path: os.symlink("/dev/zero", path), "is a pipe, socket or device, not an image"),
    "terminal": (lambda path: os.symlink("/dev/tty", path), "is a pipe, socket or device, not an image"),
    "dangling": (lambda path: os.symlink("nowhere.png", path), "cannot open: No such file or directory"),
    "circular": (lambda path: os.symlink("circular.png", path), "cannot open: Too many levels of symbolic links"),
    "folder_link": (lambda path: os.symlink("..", path), "is a folder, not an image"),
}


def make_things(folder):
    fill(folder, "a.png", "z.png")
    for name, (make, _) in THINGS.items():
        make(os.fspath(folder / f"{name}.png"))
    os.symlink("a.png", folder / "link.png")  # a link to an image is one


def test_things_in_a_folder_are_named_and_the_rest_is_done(box):
    make_things(box / "in")
    result = run("identity", "-j2", "in", "out", code=1)
    assert failures(result) == {f"in/{name}.png": cause for name, (_, cause) in THINGS.items()}
    assert tree("out") == ["a.png", "link.png", "z.png"]


def test_things_in_a_list_are_named_and_the_rest_is_done(box):
    make_things(box / "in")
    names = "".join(f"{name}.png\n" for name in ("a", *THINGS, "z"))
    result = run("identity", "--files-from=-", "in", "out", stdin=names.encode(), code=1)
    assert set(failures(result)) == {f"in/{name}.png" for name in THINGS}
    assert tree("out") == ["a.png", "z.png"]


def test_links_to_folders_are_passed_over_with_recursive(box):
    fill(box / "in", "a.png", "sub/b.png")
    fill(box / "elsewhere", "secret.png")
    os.symlink("..", box / "in" / "sub" / "up")
    os.symlink("../elsewhere", box / "in" / "out_of_the_tree")
    os.symlink("loop", box / "in" / "loop")
    run("identity", "-r", "in", "out")
    assert tree("out") == ["a.png", "sub/b.png"]


def test_a_tree_too_deep_is_named(box):
    folder = box / "in"
    fill(folder, "a.png")
    for _ in range(300):
        folder = folder / "d"
    fill(folder, "deep.png")
    result = run("identity", "-r", "in", "out", code=1)
    assert re.fullmatch(r"conv: in(/d){256}: more than 256 folders deep", result.err.splitlines()[0])
    assert tree("out") == ["a.png"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
@pytest.mark.parametrize("mode,named", ((0o000, "cannot open the folder: Permission denied"), (0o755, None)))
def test_no_permission(box, mode, named):
    """Run by a user without permissions: an image and a folder that cannot be read."""
    fill(box / "in", "a.png", "closed.png", "sub/b.png")
    (box / "in" / "closed.png").chmod(0)
    (box / "in" / "sub").chmod(mode)
    (box / "out").mkdir()
    (box / "out").chmod(0o777)
    closed = {folder: folder.stat().st_mode for folder in box.parents if not folder.stat().st_mode & stat.S_IXOTH}
    box.chmod(0o755)
    try:
        for folder, before in closed.items():
            folder.chmod(before | stat.S_IXOTH)
        result = run("identity", "-r", "in", "out", code=1, user=65534, group=65534, extra_groups=[])
    except PermissionError:
        pytest.skip("the program itself lies where nobody else may run it")
    finally:
        for folder, before in closed.items():
            folder.chmod(before)
    lines = result.err.splitlines()
    assert "conv: in/closed.png: cannot open: Permission denied" in lines
    assert (f"conv: in/sub: {named}" in lines) == (named is not None)
    assert tree("out") == (["a.png"] if named else ["a.png", "sub/b.png"])


# --- names ---------------------------------------------------------------------------------------

NAMES = ("two words.png", " .png", "new\nline.png", "tab\there.png", "bell\a.png", "escape\x1b[31m.png",
         "delete\x7f.png", "-.png", "--help.png", "-rf.png", "@file.png", "%s%n.png", "back\\slash.png", "quote'\".png",
         "$(reboot).png", "`reboot`.png", "; reboot.png", "*.png", "ünïcödé.png", "日本.png", ".png", "..png", LONG,
         "é" * 125 + "x.png",
         "c1\x9b31m.png", "turned\u202egnp.png", "line\u2028.png", "😀.png", os.fsdecode(b"cut \xe2\x82.png"),
         os.fsdecode(b"long \xc0\x80 \xed\xa0\x80.png"), os.fsdecode(b"no utf-8 \xff\xfe.png"))


def test_names_of_every_kind_are_kept(box):
    fill(box / "in", *NAMES)
    assert run("identity", "in", "out").err.startswith(f"{len(NAMES)} images -> out/ in ")
    assert tree("out") == sorted(NAMES)


def tell(char):
    """A character as messages show it; surrogates stand for bytes that are not UTF-8."""
    if char == "\\":
        return "\\\\"
    hidden = ord(char) < 32 or 127 <= ord(char) < 160 or char in "\u2028\u202e" or 0xdc80 <= ord(char) < 0xdd00
    return "".join(f"\\x{byte:02x}" for byte in os.fsencode(char)) if hidden else char


def test_names_of_every_kind_are_told_in_one_line(box):
    fill(box / "in", *NAMES)
    for name in NAMES:
        (box / "in" / name).write_bytes(b"bad")
    result = run("identity", "in", "out", code=1)
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u202e\ufffd]", result.err)
    lines = result.err.splitlines()  # also cuts at U+2028, where JSON Lines were cut, too
    assert len(lines) == len(NAMES) + 1
    for name in NAMES:
        told = "".join(map(tell, name))
        assert lines.count(f"conv: in/{told}: {program.NO_IMAGE}") == 1, told
    records = map(json.loads, run("identity", "--json", "in", "out", code=1).out.splitlines())
    assert sum(record["type"] == "file" for record in records) == len(NAMES)


EVIL = "e\x1b[31mvil\x07\x9b\u202e"
HARMFUL = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ufffd]")
SAYS_NAMES = {  # command -> exit code
    "show": (["show", f"./{EVIL}.mat"], 0),
    "show_damaged": (["show", f"./{EVIL}.bad.mat"], 2),
    "show_unknown": (["show", EVIL], 2),
    "verbose": (["-v", f"./{EVIL}.mat", EVIL, "out"], 0),
    "verify": (["verify", f"./{EVIL}.mat", EVIL], 0),
    "verify_missing": (["verify", "emboss", f"{EVIL}/nope.png"], 1),
    "kernels": (["bench", "kernels", "--device=cpu", "--filter", f"./{EVIL}.mat", "--image-size=8x8"], 0),
    "kernels_variant": (["bench", "kernels", "--device=cpu", "--variant", EVIL, "--image-size=8x8"], 2),
    "streams": (["bench", "streams", "--device=cpu", "-j1", "--filter", f"./{EVIL}.mat", EVIL], 0),
    "codec": (["bench", "codec", f"{EVIL}/nope"], 1),
    "kernel_file": (["custom", "--kernel", f"@{EVIL}.bad.mat", EVIL, "out"], 2),
    "kernel": (["custom", "--kernel", EVIL, EVIL, "out"], 2),
    "json": (["emboss", "--json", EVIL, f"{EVIL}.out"], 0),
    "dry_run": (["emboss", "--dry-run", EVIL, f"{EVIL}.out"], 0),
    "in_place": (["emboss", "--in-place", f"{EVIL}/nope.png"], 1),
    "nothing": (["emboss", "--include", EVIL, EVIL, "out"], 3),
    "command": (["bench", EVIL], 2),
    **{option: (["emboss", f"--{option}", EVIL, EVIL, "out"], 2)
       for option in ("device", "variant", "border", "encoder", "alpha", "divisor", "bias", "jobs", "size", "group", EVIL)},
    **{option: (["emboss", f"--{option}", f"{EVIL}/a.png", EVIL, "out"], 2) for option in ("report", "html", "resume")},
    "files-from": (["emboss", "--files-from", f"{EVIL}/nope", "out"], 2),
}


@pytest.mark.parametrize("case", SAYS_NAMES, ids=lambda case: case if case.isprintable() else "option")
def test_names_of_files_filters_and_values_do_no_harm_on_a_terminal(box, case):
    """`conv show` of a file named with an escape sequence turned the terminal red; so did -v and two benchmarks."""
    fill(box / EVIL, "a.png")
    (box / f"{EVIL}.mat").write_text("1 1\n1\n")
    (box / f"{EVIL}.bad.mat").write_text(f"1 1\n{EVIL}\n")
    args, code = SAYS_NAMES[case]
    result = run(*args, code=code)
    harm = HARMFUL.search(result.out + result.err)
    assert not harm, f"{harm[0]!r} in\n{result.out}{result.err}"
    if case == "json":
        assert result.records()[1]["input"] == f"{EVIL}/a.png"
    elif case not in ("verify", "command"):  # these print no names
        assert r"e\x1b[31mvil\x07\xc2\x9b\xe2\x80\xae" in result.out + result.err


@pytest.mark.parametrize("name", (name for name in NAMES if "\n" not in name))
def test_names_on_the_command_line(box, name):
    fill(box, name)
    run("identity", "--", name, "out/")
    assert tree("out") == [name]


def test_a_path_longer_than_the_system_takes(box):
    fill(box / "in", "a.png")
    name = "/".join(["x" * 250] * 20) + ".png"
    result = run("identity", "--files-from=-", "in", "out", stdin=f"{name}\na.png\n".encode(), code=1)
    assert "conv: xxx" in result.err and "path too long" in result.err
    assert len(result.err.splitlines()) == 2 and tree("out") == ["a.png"]


def test_a_pipe_may_deliver_a_long_name_in_pieces(box):
    """The list ended there if the first 4096 bytes came alone."""
    fill(box / "in", "a.png")
    name = "/".join(["x" * 250] * 20) + ".png"
    end, pipe = os.pipe()
    process = program.start("identity", "--files-from=-", "in", "out", stdin=end)
    for piece in (name[:4096], f"{name[4096:]}\na.png\n"):
        os.write(pipe, piece.encode())
        program.until(lambda: not program.waiting_bytes(end), process)
    os.close(end)
    os.close(pipe)
    err = process.communicate()[1]
    assert b"path too long" in err and tree("out") == ["a.png"]


NUL = "conv: {}: the list has NUL bytes: add -0 if its names end in NUL"


@pytest.mark.parametrize("names", ("a.png\0b.png\0", "a.png\0b.png", "\0a.png\nb.png\n", "a.png\0b.png\nc.png\n",
                                   "a.png\0" * 100000), ids=range(5))
def test_a_list_with_nul_needs_the_option(box, names):
    """The first NUL ended the line: one image was done and all others were lost, with exit code 0."""
    fill(box / "in", "a.png", "b.png", "c.png")
    (box / "list").write_bytes(names.encode())
    piped = run("identity", "--files-from=-", "in", "out", stdin=names.encode(), code=1)
    assert piped.err.splitlines()[0] == NUL.format("standard input")
    assert run("identity", "--files-from=list", "in", "out", code=1).err.splitlines()[0] == NUL.format("list")
    run("identity", "--files-from=list", "--in-place", "in", code=1)
    assert tree("out") == [] and all((box / "in" / name).read_bytes() == GOOD for name in tree("in"))


def test_names_before_a_line_with_nul_are_done(box):
    fill(box / "in", "a.png", "b.png")
    result = run("identity", "--files-from=-", "in", "out", stdin=b"a.png\nb.png\0\n", code=1)
    assert NUL.format("standard input") in result.err and tree("out") == ["a.png"]


def test_a_list_of_lines_needs_no_option(box):
    fill(box / "in", "a.png", "b.png")
    result = run("identity", "--files-from=-", "-0", "in", "out", stdin=b"a.png\nb.png\n" * 1000, code=1)
    assert "a name of more than 4096 bytes: omit -0 if its names end in newline" in result.err


def test_the_cause_is_told_behind_a_path_of_any_length(box):
    """The text of a message had room for 480 bytes, and the cause came last."""
    folder = "/".join(["d" * 250] * 10)
    fill(box / "in" / folder, "a.png")
    (box / "out" / folder / "a.png").mkdir(parents=True)
    result = run("identity", "-r", "in", "out", code=1)
    assert result.err.startswith(f"conv: in/{folder}/a.png: the output out/{folder}/a.png is a folder\n")


def test_longest_output_name_below_a_folder_of_longest_names(box):
    fill(box / "in" / ("d" * 255), LONG)
    run("identity", "-r", "in", "out")
    assert tree("out") == [f"{'d' * 255}/{LONG}"]


# --- ways out of the output folder ---------------------------------------------------------------

def everything(box):
    return sorted(os.path.join(root, name) for root, folders, names in os.walk(box) for name in folders + names)


ESCAPES = ("../a.png", "sub/../../a.png", "..", "../", "sub/..", "./../a.png", "/../a.png", "sub//..//..//a.png")


@pytest.mark.parametrize("name", ESCAPES)
def test_a_list_cannot_leave_the_output_folder(box, name):
    fill(box, "a.png", "cwd/sub/b.png")
    (box / "cwd" / "out").mkdir()
    before = everything(box)
    result = run("identity", "--files-from=-", "-0", "out", stdin=name.encode() + b"\0", code=1, cwd=box / "cwd")
    assert "may not contain '..'" in result.err and everything(box) == before


def test_an_absolute_name_in_a_list_stays_below_the_output(box):
    fill(box / "in", "a.png")
    run("identity", "--files-from=-", "out", stdin=f"{box}/in/a.png\n".encode())
    assert tree("out") == [f"{box}/in/a.png".lstrip("/")]


@pytest.mark.parametrize("name", ("..", "../", "in/..", "in/../", ".", "./", "/"))
def test_several_folders_one_of_which_has_no_name(box, name):
    """`conv emboss .. in out` wrote the images of .. to out/.., beside the output folder."""
    fill(box / "cwd" / "in", "a.png")
    fill(box, "b.png")
    before = everything(box)
    assert "has no name" in run("identity", "--", name, "in", "out", code=2, cwd=box / "cwd").err
    assert everything(box) == before


@pytest.mark.parametrize("mask,mode", ((0o022, 0o644), (0o077, 0o600), (0o002, 0o664), (0o777, 0)))
def test_created_files_have_the_mode_that_the_umask_leaves(box, mask, mode):
    if mode == 0 and os.geteuid() != 0:
        pytest.skip("a folder of mode 0 can be filled by root only")
    fill(box / "in", "sub/a.png")
    (box / "in" / "sub" / "a.png").chmod(0o4755)
    run("identity", "-r", "in", "out", "--report", "report", umask=mask)
    assert stat.S_IMODE(os.stat("out/sub/a.png").st_mode) == mode
    assert stat.S_IMODE(os.stat("report").st_mode) == mode
    assert stat.S_IMODE(os.stat("out/sub").st_mode) == 0o777 & ~mask
