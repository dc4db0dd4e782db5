# SPDX-License-Identifier: MIT
"""What an output may replace, and where outputs go when standard descriptors are closed or special files are used.

After many new outputs in a row conv no longer looks for an existing file before it writes one."""
import itertools
import json
import os
import re
import stat
import subprocess
import threading

import pytest

import program
from folders import contents, fill, is_embossed, make_socket, tree
from program import run, start, until

NEW = 70  # more new outputs in a row than conv needs to expect another new one


def fill_and_list(box, last):
    """Images that all have an output of their own except the last; returns them and their names in order."""
    names = [f"{index:03}.png" for index in range(NEW)] + [last]
    made = fill(box / "in", *names)
    os.mkdir(box / "out")
    return made, names


def run_list(names, code=0, *args):
    return run("emboss", "-b", "-j1", *args, "--files-from=-", "in", "out", stdin="\n".join(names).encode(), code=code)


def check_new(made, names):
    assert all(is_embossed(f"out/{name}", made[name]) for name in names[:NEW])
    assert not [name for name in tree("out") if name.endswith(".tmp")]


def test_a_file_is_replaced(box):
    made, names = fill_and_list(box, "there.png")
    (box / "out" / "there.png").write_bytes(b"old")
    os.link(box / "out" / "there.png", box / "kept")
    assert ", 1 file replaced" in run_list(names).err
    check_new(made, names)
    assert is_embossed("out/there.png", made["there.png"]) and (box / "kept").read_bytes() == b"old"


def test_all_are_replaced(box):
    made, names = fill_and_list(box, "last.png")
    assert "replaced" not in run_list(names).err
    before = {name: os.stat(box / "out" / name).st_ino for name in names}
    assert f", {NEW + 1} files replaced" in run_list(names).err
    check_new(made, names)
    assert all(os.stat(box / "out" / name).st_ino != before[name] for name in names)


@pytest.mark.parametrize("link", (os.symlink, os.link))
def test_the_input_is_not(box, link):
    made, names = fill_and_list(box, "there.png")
    link(box / "in" / "there.png", box / "out" / "there.png")
    done = run_list(names, 1)
    check_new(made, names)
    assert "there.png: the output would overwrite the input" in done.err
    assert (box / "in" / "there.png").read_bytes() == made["there.png"].data
    assert f"{NEW} done, 1 failed" in program.closing(done.err)


def test_a_folder_is_not(box):
    made, names = fill_and_list(box, "there.png")
    os.mkdir(box / "out" / "there.png")
    done = run_list(names, 1)
    check_new(made, names)
    assert "there.png is a folder" in done.err and os.path.isdir(box / "out" / "there.png")


def make_link(target):
    return lambda path: os.symlink(target, path)


KEPT = {"pipe": os.mkfifo, "socket": make_socket}  # reported and left alone
REPLACED = {"to_null": make_link("/dev/null"), "to_pipe": make_link("../pipe"), "to_nothing": make_link("nothing"),
            "to_itself": make_link("to_itself.png"), "to_file": make_link("../file")}
if os.geteuid() == 0:
    KEPT["device"] = lambda path: os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 3))


@pytest.mark.parametrize("before", (0, NEW))
@pytest.mark.parametrize("options", ((), ("--skip-existing",), ("--update",), ("--resume=journal",)), ids=" ".join)
def test_special_files_in_a_folder(box, options, before):
    """A link to /dev/null was written through: `1 done`, no image. A pipe held up the run for ever."""
    names = [f"{index:03}.png" for index in range(before)] + [f"{thing}.png" for thing in (*KEPT, *REPLACED)]
    made = fill(box / "in", *names)
    os.mkdir(box / "out")
    os.mkfifo(box / "pipe")
    (box / "file").write_bytes(b"kept")
    for thing, make in (KEPT | REPLACED).items():
        make(os.fspath(box / "out" / f"{thing}.png"))
    modes = {thing: os.lstat(box / "out" / f"{thing}.png").st_mode for thing in KEPT}
    if options == ("--skip-existing",) or options == ("--update",):
        names.remove("to_file.png")  # an output like any other
        del made["to_file.png"]
    done = run_list(names, 1, *options)
    for thing in KEPT:
        assert f"in/{thing}.png: the output out/{thing}.png is a pipe, socket or device" in done.err
        assert os.lstat(box / "out" / f"{thing}.png").st_mode == modes[thing]
        del made[f"{thing}.png"]
    assert all(is_embossed(f"out/{name}", made[name]) for name in made)
    assert not any(os.path.islink(box / "out" / name) for name in made)
    assert (box / "file").read_bytes() == b"kept" and not os.path.exists(box / "out" / "nothing")
    assert f"{len(made)} done, {len(KEPT)} failed" in program.closing(done.err)


def test_a_dry_run_reports_what_is_in_the_way(box):
    fill(box / "in", "a.png", "b.png")
    os.mkdir(box / "out")
    os.mkfifo(box / "out" / "a.png")
    os.mkdir(box / "out" / "b.png")
    done = run("emboss", "--dry-run", "in", "out", code=1)
    assert "out/a.png is a pipe" in done.err and "out/b.png is a folder" in done.err and done.out == ""


@pytest.mark.parametrize("link", (False, True))
def test_a_pipe_that_is_named_is_written_to(box, link):
    made = fill(box, "a.png")
    os.mkfifo(box / "pipe")
    if link:
        os.symlink("pipe", box / "link")
    got = []
    reader = threading.Thread(target=lambda: got.append((box / "pipe").read_bytes()), daemon=True)
    reader.start()
    run("emboss", "a.png", "link" if link else "pipe")
    reader.join(program.TIMEOUT)
    (box / "got.png").write_bytes(got[0])
    assert is_embossed("got.png", made["a.png"]) and stat.S_ISFIFO(os.stat(box / "pipe").st_mode)


def test_devices_that_are_named(box):
    fill(box, "a.png")
    # It is not the output of an earlier run.
    assert run("emboss", "--skip-existing", "--json", "a.png", "/dev/null").records()[1]["status"] == "done"
    assert "/dev/full: No space left on device" in run("emboss", "a.png", "/dev/full", code=1).err
    assert run("emboss", "/dev/full", "b.png", code=1).err.startswith("conv: /dev/full: not a PNG")
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode) and tree(box) == ["a.png"]


@pytest.mark.parametrize("name", ("/proc/self/fd/{}", "/dev/fd/{}", "fds/{}"))
def test_descriptors_that_are_named(box, name):
    """They are written to, even if they are files: with stdout in a file, the link /dev/stdout was once replaced."""
    made = fill(box / "in", "a.png")
    os.symlink("/dev/fd", box / "fds")
    for number in (1, 3):
        (box / "out.png").write_bytes(b"head")
        done = subprocess.run(["sh", "-c", f'exec "$@" {number}>>out.png', "sh", *program.RUNNER, program.BINARY,
                               "emboss", "--device=cpu", "--report=report", "in/a.png", name.format(number)],
                              stderr=subprocess.PIPE, timeout=program.TIMEOUT)
        assert done.returncode == 0, done.stderr
        content = (box / "out.png").read_bytes()
        assert content[:4] == b"head"
        (box / "cut.png").write_bytes(content[4:])
        assert is_embossed("cut.png", made["a.png"])
    assert b"PNG" not in (box / "report").read_bytes()
    assert sorted(os.listdir(box)) == ["cut.png", "fds", "in", "out.png", "report"]


@pytest.mark.parametrize("args", (("in/a.png", "/dev/fd/3"), ("in/a.png", "/dev/fd/4"),
                                  ("--report=/dev/fd/3", "--files-from=list", "in", "out"),
                                  ("--trace=/dev/fd/3", "--files-from=list", "in", "out"),
                                  ("--html=/dev/fd/3", "--files-from=list", "in", "out")), ids=" ".join)
def test_descriptors_that_are_not_open(box, args):
    """The first files that the run opens get the closed descriptors: the list of names was overwritten."""
    fill(box / "in", "a.png")
    (box / "list").write_bytes(b"a.png\n")
    options = ("--resume=journal",) if "list" not in args else ()
    assert "is not open" in run("emboss", *options, *args, code=2).err
    assert (box / "list").read_bytes() == b"a.png\n" and tree(box) == ["in/a.png", "list"]


@pytest.mark.parametrize("option", ("--skip-existing", "--update"))
def test_what_is_to_be_skipped_is(box, option):
    _, names = fill_and_list(box, "there.png")
    (box / "out" / "there.png").write_bytes(b"old")
    run_list(names, 0, option)
    assert (box / "out" / "there.png").read_bytes() == b"old"


def test_a_folder_that_is_moved_away_meanwhile(box):
    """Outputs go where their paths lead."""
    made, names = fill_and_list(box, "last.png")
    process = start("emboss", "-b", "-j1", "--files-from=-", "in", "out", stdin=subprocess.PIPE)
    process.stdin.write("".join(f"{name}\n" for name in names[:NEW]).encode())
    process.stdin.flush()
    until((box / "out" / names[NEW - 1]).exists, process)
    os.rename(box / "out", box / "moved")
    process.communicate(names[NEW].encode(), timeout=program.TIMEOUT)
    assert process.returncode == 0
    assert tree("out") == ["last.png"] and is_embossed("out/last.png", made["last.png"])


# --- the files that a run writes besides its outputs ---------------------------------------------

OWN = ("--report", "--trace", "--html", "--resume")


@pytest.fixture
def desk(box):
    """One file of each kind that a run reads, and other spellings of their names."""
    fill(box, "a.png", "in/b.png")
    (box / "a.dat").write_bytes(b"an input that is not an image, which a look at it would not protect")
    (box / "own.mat").write_text("1 1 1 0\n1\n")
    (box / "names").write_text("b.png\n")
    (box / "here").mkdir()
    os.symlink("../names", box / "here" / "names")
    os.symlink("../own.mat", box / "here" / "own.mat")
    os.symlink("../out.png", box / "here" / "out.png")  # leads to nothing
    os.link("own.mat", "twin.mat")
    return box


@pytest.mark.parametrize("option", OWN)
@pytest.mark.parametrize("own,args", (
    ("./names", ("emboss", "--files-from", "names", "in", "out")), ("here/names", ("emboss", "--files-from", "names", "in", "out")),
    ("names", ("emboss", "--in-place", "--files-from", "here/names", "in")),
    ("own.mat", ("./own.mat", "a.png", "out.png")), ("here/own.mat", ("emboss, own.mat,blur", "a.png", "out.png")),
    ("twin.mat", ("custom", "-k", "@own.mat", "a.png", "out.png")),
    ("here/../a.dat", ("emboss", "a.dat", "out.png")), ("./a.dat", ("emboss", "--in-place", "a.dat")),
    ("./out.jpeg", ("emboss", "a.dat", "out.jpeg")), ("here/out.png", ("emboss", "a.png", "here/../out.png")),
    ("{box}/here/a.dat", ("emboss", "a.dat", "here")), ("in/../here/a.png", ("emboss", "a.png", "a.dat", "here")),
    ("in/new.png", ("emboss", "in", "out")), ("here/new.png", ("emboss", "in", "here")),
))
def test_own_files_are_no_others(desk, option, own, args):
    """However its name is spelled: the list, a filter, an input, an output, or a file whose name makes it one."""
    before = contents(desk)
    own = own.format(box=desk)
    said = run(args[0], option, own, *args[1:], code=2).err
    assert f"{option} {own}" in said and contents(desk) == before and not (desk / "out").exists()


@pytest.mark.parametrize("one,other", itertools.combinations(OWN, 2))
def test_own_files_are_not_each_other(desk, one, other):
    before = contents(desk)
    for names in (("x", "./x"), ("here/../x", f"{desk}/x"), ("here/out.png", "out.png")):
        said = run("emboss", one, names[0], other, names[1], "in", "out", code=2).err
        assert one in said and other in said and "same file" in said
    (desk / "x").write_text("old\n")
    os.link("x", "y")
    assert "same file" in run("emboss", one, "x", other, "y", "in", "out", code=2).err
    os.remove("x"), os.remove("y")
    assert contents(desk) == before and not (desk / "out").exists()
    if "--resume" not in (one, other):
        run("emboss", one, "/dev/null", other, "/dev/null", "in", "out")


def test_own_files_where_json_goes(desk):
    with open("all", "wb") as file:
        process = subprocess.run([program.BINARY, "emboss", "--json", "--report", "all", "in", "out"], stdout=file,
                                 stderr=subprocess.PIPE, check=False)
    assert process.returncode == 2 and b"standard output" in process.stderr and (desk / "all").read_bytes() == b""
    with open("image", "wb") as file:
        process = subprocess.run([program.BINARY, "emboss", "--report", "image", "a.png", "-"], stdout=file,
                                 stderr=subprocess.PIPE, check=False)
    assert process.returncode == 2 and b"the output" in process.stderr and (desk / "image").read_bytes() == b""


@pytest.mark.parametrize("option", OWN)
def test_no_output_of_a_list_replaces_an_own_file(desk, option):
    """The list's names are not known before the run: the image fails, the file stays."""
    (desk / "in" / "r").write_bytes((desk / "a.png").read_bytes())
    (desk / "out").mkdir()
    said = run("emboss", option, "out/r", "--files-from=-", "in", "out", stdin=b"r\nb.png\n", code=1).err
    assert "in/r: the output would overwrite the run's own" in said and "1 done, 1 failed" in program.closing(said)
    assert (desk / "out" / "r").read_bytes()[:4] != b"\x89PNG" and (desk / "out" / "b.png").exists()


def test_own_files_beside_images_are_fine(desk):
    run("emboss", "--report", "in/r.json", "--trace", "in/t.json", "--html", "out.html", "--resume", "in/journal", "in", "out")
    run("emboss", "--report", "out/r.json", "--resume", "in/journal", "in", "out")
    run("emboss", "--report", "here/c.png", "a.png", "out.png")
    assert tree("out") == ["b.png", "r.json"]


def test_own_files_of_a_benchmark(desk):
    before = contents(desk)
    for args in (("kernels", "--filter", "./own.mat", "--html", "here/own.mat"),
                 ("kernels", "--html", "twin.mat", "--filter", "own.mat"), ("streams", "--html", "in/x.png", "in"),
                 ("kernels", "--html", "a.png")):
        assert "--" in run("bench", *args, code=2).err
    assert contents(desk) == before


# --- closed descriptors --------------------------------------------------------------------------

CLOSE = ("<&-", ">&-", "2>&-")
CLOSED = [set(fds) for count in range(4) for fds in itertools.combinations(range(3), count)]


def run_closed(closed, *args, stdin=b""):
    """The exit code and both outputs of the program, started with the descriptors `closed` closed."""
    script = 'exec "$@" ' + " ".join(CLOSE[fd] for fd in closed)
    command = ["sh", "-c", script, "sh", *program.RUNNER, program.BINARY, *args]
    done = subprocess.run(command, input=stdin, capture_output=True, timeout=program.TIMEOUT)
    return done.returncode, done.stdout, done.stderr


def check_files_of_run(folder):
    """Report, journal, trace and page have their own content and nothing else."""
    records = [json.loads(line) for line in (folder / "report").read_bytes().splitlines()]
    assert [records[0]["type"], records[-1]["type"]] == ["begin", "summary"]
    lines = (folder / "journal").read_text().splitlines()
    assert re.fullmatch(r"conv-journal \d+", lines[0]) and len(lines) == 3
    assert all(len(line.split(" ")[0]) == 32 and line.split(" ")[1].startswith("in/") for line in lines[1:])
    json.loads((folder / "trace").read_bytes())
    page = (folder / "page").read_bytes()
    assert page.startswith(b"<!doctype html>") and page.endswith(b"</html>\n") and b"conv: done" not in page


@pytest.mark.parametrize("closed", CLOSED, ids=lambda fds: "".join(map(str, sorted(fds))) or "none")
def test_closed_descriptors(box, closed):
    """Messages and images landed in the first files that were opened: in outputs, reports, journals. Exit code 0."""
    made = fill(box / "in", "a.png", "b.png")
    run("emboss", "in", "want")
    want = {name: (box / "want" / name).read_bytes() for name in made}
    code, _, err = run_closed(closed, "emboss", "--device=cpu", "-v", "--report=report", "--resume=journal",
                              "--trace=trace", "--html=page", "in", "out")
    assert code == 0, err
    assert {name: (box / "out" / name).read_bytes() for name in tree("out")} == want
    check_files_of_run(box)

    code, out, err = run_closed(closed, "emboss", "--device=cpu", "-v", "--report=single", "in/a.png", "-")
    records = [json.loads(line) for line in (box / "single").read_bytes().splitlines()]
    if 1 in closed:
        assert (code, out, records[1]["status"]) == (1, b"", "failed")
        assert 2 in closed or b"cannot write to standard output: it is closed" in err
    else:
        assert (code, out, records[1]["status"]) == (0, want["a.png"], "done")

    code, _, err = run_closed(closed, "emboss", "--device=cpu", "-", "b.png", stdin=made["b.png"].data)
    if 0 in closed:
        assert code == 1 and not os.path.exists("b.png")
        assert 2 in closed or b"standard input: cannot read: it is closed" in err
    else:
        assert code == 0 and (box / "b.png").read_bytes() == want["b.png"]
    code, _, err = run_closed(closed, "emboss", "--device=cpu", "--files-from=-", "in", "listed", stdin=b"a.png\n")
    assert code == (2 if 0 in closed else 0), err
    assert sorted(os.listdir(box)) == sorted(["in", "want", "out", "report", "journal", "trace", "page", "single"]
                                             + (["b.png", "listed"] if 0 not in closed else []))


PRINTED = (("list",), ("show", "emboss"), ("devices",), ("--help",), ("--version",), ("verify", "emboss", "in/a.png"),
           ("bench", "kernels", "--device=cpu", "--image-size=16x16", "--variant=cpu_portable"),
           ("emboss", "--device=cpu", "--dry-run", "in", "out"), ("emboss", "--device=cpu", "--json", "in", "out"),
           ("emboss", "--device=cpu", "in/a.png", "/dev/stdout"), ("emboss", "--device=cpu", "in/a.png", "/dev/fd/1"),
           ("emboss", "--device=cpu", "in", "out", "--report=/dev/stdout"))


@pytest.mark.parametrize("args", PRINTED, ids=" ".join)
def test_what_cannot_be_printed_is_an_error(box, args):
    """A dry run's list vanished with exit code 0; on a full disk, too."""
    fill(box / "in", "a.png")
    code, _, err = run_closed({1}, *args)
    assert code == (2 if "--report=/dev/stdout" in args else 1) and b"conv: " in err and b"Bad file" not in err, err
    command = [*program.RUNNER, program.BINARY, *args]
    with open("/dev/full", "wb") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, timeout=program.TIMEOUT)
    assert done.returncode == 1 and b"conv: " in done.stderr and b"Success" not in done.stderr, done.stderr


def test_an_image_and_messages_on_one_file(box):
    """`conv emboss -v a.png - >b.png 2>&1` had messages before and after the image."""
    fill(box / "in", "a.png")
    for args, code in ((("-v",), 2), ((), 2), (("-q",), 0)):
        with open("b.png", "wb") as both:
            done = subprocess.run([*program.RUNNER, program.BINARY, "emboss", "--device=cpu", *args, "in/a.png", "-"],
                                  stdout=both, stderr=both, timeout=program.TIMEOUT)
        assert done.returncode == code
    run("emboss", "in/a.png", "want.png")
    assert (box / "b.png").read_bytes() == (box / "want.png").read_bytes()
