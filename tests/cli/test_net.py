# SPDX-License-Identifier: MIT
"""A net under the user's files: what is replaced leaves a backup if asked, or stays; what is not an image is not lost."""
import os
import signal
import subprocess

import pytest

import program
from folders import fill, is_embossed, tree
from program import run, start
from test_terminal import Terminal


@pytest.mark.parametrize("option, suffix", (("--backup", "~"), ("--backup=.bak", ".bak")))
def test_backups(box, option, suffix):
    made = fill(box / "in", "a.png", "sub/b.png")
    run("emboss", "--in-place", "-r", option, "in")
    run("emboss", "--in-place", "-r", option, "in")  # whose inputs are no originals
    for name, source in made.items():
        assert (box / "in" / f"{name}{suffix}").read_bytes() == source.data
        assert (box / "in" / name).read_bytes() != source.data
    assert len(tree("in")) == 4
    run("emboss", option, "in", "out")
    first = (box / "out" / "a.png").read_bytes()
    assert tree("out") == ["a.png"], "a new file has no backup"
    run("blur", option, "in", "out")
    assert (box / "out" / f"a.png{suffix}").read_bytes() == first
    os.symlink("sub/b.png", "in/link.png")
    run("blur", option, "in/a.png", "in/link.png")
    assert os.readlink(f"in/link.png{suffix}") == "sub/b.png" and not os.path.islink("in/link.png")


@pytest.mark.parametrize("make", (os.mkdir, lambda name: os.symlink("nowhere", name)))
def test_what_is_no_backup_is_not_taken_for_one(box, make):
    made = fill(box / "in", "a.png")
    make("in/a.png~")
    assert run("emboss", "--in-place", "--backup", "in", code=1).err.startswith("conv: in/a.png: cannot keep a backup: a.png~ is in the way\n")
    assert (box / "in" / "a.png").read_bytes() == made["a.png"].data


@pytest.mark.parametrize("args, said", ((["--backup=.png", "in", "out"], "an extension that no image has"), (["--backup=", "in", "out"], "an extension"),
                                        (["--backup=a/b", "in", "out"], "an extension"), (["--backup", "in", "o.tar"], "is for files, not for an archive"),
                                        (["-n", "-u", "in", "out"], "--skip-existing and --update cannot"), (["--in-place", "-n", "in"], "cannot be combined"),
                                        (["--base", ".", "in", "out"], "--base needs --files-from"), (["--others=copy", "--in-place", "in"], "cannot be combined"),
                                        (["-r", "in/sub", "in"], "neither of in/sub and in"), (["-r", "in", "in/sub/c.png", "in/out"], "neither of in and in/out")))
def test_what_cannot_be_combined(box, args, said):
    made = fill(box / "in", "a.png", "sub/c.png")
    assert said in run("emboss", *args, code=2).err
    assert tree(box) == sorted(f"in/{name}" for name in made)


@pytest.mark.parametrize("option", ("-n", "--no-clobber"))
def test_no_clobber(box, option):
    made = fill(box, "a.png", "b.png")
    assert "1 skipped" in run("emboss", option, "a.png", "b.png").err
    assert (box / "b.png").read_bytes() == made["b.png"].data
    run("emboss", option, "a.png", "c.png")
    assert is_embossed("c.png", made["a.png"])


@pytest.mark.parametrize("name", ("b.png", "b.tar", "b.zip"))
@pytest.mark.parametrize("answer, replaces", ((b"y\n", True), (b"n\n", False), (b"\n", False), (b"\x04", False)))
def test_a_terminal_is_asked(box, name, answer, replaces):
    """conv sharpen *.png with two images and a forgotten output. Archives were replaced unasked."""
    made = fill(box, "a.png", name)
    terminal = Terminal(80, "emboss", "a.png", name)
    terminal.wait_for(rf"conv: replace {name}\? \[y/N\] ".replace(".", r"\."))
    assert (box / name).read_bytes() == made[name].data
    terminal.type(answer)
    assert terminal.end() == (0 if replaces else 1)
    assert is_embossed("b.png", made["a.png"]) if replaces and name == "b.png" else ((box / name).read_bytes() != made[name].data) == replaces


@pytest.mark.parametrize("options, files", (((), ("a.png", "c.png")), (("--force",), ("a.png", "b.png")), (("--backup",), ("a.png", "b.png")),
                                            (("-n",), ("a.png", "b.png")), (("-q",), ("a.png", "b.png")), (("-o", "b.png"), ("a.png",))))
def test_when_a_terminal_is_not_asked(box, options, files):
    fill(box, "a.png", "b.png")
    terminal = Terminal(80, "emboss", *options, *files)
    assert terminal.end() == 0 and "[y/N]" not in "".join(terminal.screen.lines)


def test_scripts_are_told(box):
    fill(box, "a.png", "b.png", "b.tar", "b.zip")
    for name in ("b.png", "b.tar", "b.zip"):
        assert run("emboss", "a.png", name).err.endswith(f"conv: replaced {name}\n")


def state():
    folder = os.path.join(os.environ["XDG_STATE_HOME"], "conv")
    return [os.path.join(folder, name) for name in os.listdir(folder)] if os.path.isdir(folder) else []


def test_an_interrupted_replacement_can_be_continued(box, monkeypatch):
    """Without a journal the images that --in-place had done were unknown."""
    monkeypatch.setenv("XDG_STATE_HOME", str(box / "state"))
    made = fill(box / "in", *[f"{i}.png" for i in range(9)])
    run("emboss", "--in-place", "in/0.png")
    assert state() == []
    os.mkfifo("list")
    process = start("emboss", "--in-place", "--files-from", "list", "in")
    with open("list", "w") as file:
        file.write("".join(f"{i}.png\n" for i in range(1, 6)))
        file.flush()
        done = lambda i: (box / "in" / f"{i}.png").read_bytes() != made[f"{i}.png"].data
        program.until(lambda: all(map(done, range(1, 6))), process)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=program.TIMEOUT)
    journal, = state()
    assert process.returncode == 130 and f"; --resume {journal} continues\n" in err.decode(), err
    again = run("emboss", "--in-place", "--resume", journal, *[f"in/{i}.png" for i in range(1, 9)])
    assert "5 skipped" in again.err and all(is_embossed(box / "in" / name, source) for name, source in made.items())
    os.remove(journal)
    run("emboss", "--in-place", "in")
    assert state() == []


@pytest.mark.parametrize("option", ("-j1", "--fail-fast"))
def test_a_replacement_with_failures_can_be_continued(box, monkeypatch, option):
    """Without a journal the same command filtered again what was done."""
    monkeypatch.setenv("XDG_STATE_HOME", str(box / "state"))
    made = fill(box / "in", "a.png", "b.png", "c.png")
    (box / "in" / "b.png").write_bytes(b"damaged")
    said = run("emboss", "--in-place", "-j1", option, "in", code=1).err
    journal, = state()
    assert said.endswith(f"conv: --resume {journal} continues\n")
    (box / "in" / "b.png").write_bytes(made["b.png"].data)
    assert "skipped" in run("emboss", "--in-place", "--resume", journal, "in").err
    assert all(is_embossed(box / "in" / name, source) for name, source in made.items())


@pytest.mark.parametrize("where", ({"XDG_STATE_HOME": "/proc/x"}, {"XDG_STATE_HOME": "", "HOME": ""}, {"XDG_STATE_HOME": "/dev/null"}))
def test_without_a_place_for_a_journal(box, where):
    made = fill(box / "in", "a.png", "b.png")
    done = subprocess.run([program.BINARY, "emboss", "--device=cpu", "--in-place", "in"], env={**os.environ, **where}, check=True, capture_output=True)
    assert b"interrupted run cannot be continued" in done.stderr and all(is_embossed(box / "in" / name, source) for name, source in made.items())


@pytest.mark.parametrize("options, output", (((), "out"), ((), "./out/"), (("--skip-existing",), "out/deep"), (("-v",), "out"), (("--shard=0/1",), "out")))
def test_the_output_in_the_input_is_not_walked(box, monkeypatch, options, output):
    """cd photos; conv sharpen -r . sharpened"""
    made = fill(box / "in", "a.png", "sub/b.png", "sub/out/c.png")
    monkeypatch.chdir(box / "in")
    for again in ((), ("--force",)):
        result = run("emboss", "-r", "--json", *options, *again, ".", output)
        assert len(result.records()) == 2 + len(made)
        assert tree(output) == sorted(made)
    run("emboss", "-r", "--output-type=f32", "--force", "../in", output)
    assert len(tree(output)) == 2 * len(made)


@pytest.mark.parametrize("allowed", ("--force", "--backup", "--skip-existing", "--update", "--dry-run", "--no-save"))
def test_originals_in_an_output_inside_the_input_stay(box, allowed):
    """conv blur -r photos photos/2026, where photos/2026 has originals"""
    made = fill(box / "in", "a.png", "2026/a.png", "2026/b.png")
    refused = run("emboss", "-r", "in", "in/2026", code=2)
    assert "in/2026 lies inside the input and is not empty" in refused.err
    assert all((box / "in" / name).read_bytes() == source.data for name, source in made.items())
    run("emboss", "-r", allowed, "in", "in/2026")


@pytest.mark.parametrize("output", ("link/new/out", "in/sub/new", "../{here}/in/sub"))
def test_it_is_found_by_other_names(box, output):
    fill(box / "in", "a.png", "sub/b.png")
    os.symlink("in", "link")
    for _ in range(2):
        result = run("emboss", "-r", "--json", "--force", "in", output.format(here=box.name))
        assert len(result.records()) == (3 if output.endswith("sub") else 4)


def test_an_archive_in_the_input(box):
    fill(box / "in", "a.png", "sub/b.png")
    for _ in range(2):
        run("emboss", "-r", "in", "in/o.tar")
    assert tree("in") == ["a.png", "o.tar", "sub/b.png"]


def test_names_with_dots_in_a_list(box, monkeypatch):
    """find ../c | conv blur --files-from -"""
    made = fill(box / "c", "a.png", "sub/b.png")
    (box / "here").mkdir()
    monkeypatch.chdir(box / "here")
    names = "../c/a.png\n../c/sub/../sub/b.png\n".encode()
    result = run("emboss", "--files-from=-", "out", stdin=names, code=1)
    assert "conv: ../c/a.png: a name in the list may not contain '..'; --base DIR makes names relative to DIR\n" in result.err
    for base, top in (("../c", ""), (box / "c", ""), ("..", "c/")):
        run("emboss", "--files-from=-", "--base", base, "--suffix=_s", top or "out", stdin=names)
        assert tree(top or "out") == ["a_s.png", "sub/b_s.png"] if not top else tree("c/c") == ["a_s.png", "sub/b_s.png"]
    absolute = f"{box}/c/a.png\n{box}/here/../c/a.png\n".encode()
    result = run("emboss", "--files-from=-", "--base", box, "all", stdin=absolute)
    assert tree("all") == ["c/a.png"] and "listed again" in result.err
    assert "conv: ../c/a.png: is not below " in run("emboss", "--files-from=-", "--base", ".", "none", stdin=names, code=1).err
    run("emboss", "--files-from=-", "--beside", "--suffix=_n", stdin=names)
    assert is_embossed("../c/sub/b_n.png", made["sub/b.png"])
    run("emboss", "--files-from=-", "--in-place", stdin=names)
    assert is_embossed("../c/a.png", made["a.png"]) and is_embossed("../c/sub/b.png", made["sub/b.png"])


@pytest.mark.parametrize("output", ("out", "o.tar", "o.zip"))
def test_other_files_are_copied(box, output):
    """A data set's captions and labels stay with its images."""
    made = fill(box / "in", "a.png", "sub/b.png")
    others = {"a.txt": b"a caption", "sub/b.json": b"{}", "sub/c.NEF": bytes(70000), "empty": b""}
    for name, data in {**others, "._a.txt": b"of another program", "skip.md": b"excluded"}.items():
        (box / "in" / name).write_bytes(data)
    result = run("emboss", "-r", "--others=copy", "--exclude=*.md", "--json", "in", output)
    assert result.records()[-1]["copied"] == len(others) and "4 copied" in result.err and "not read" not in result.err
    if output != "out":
        run("identity", output, "out", "-q")
    assert tree("out") == sorted([*made, *others])
    assert all((box / "out" / name).read_bytes() == data for name, data in others.items())
    run("emboss", "-r", "--others=skip", "in", "images")
    assert tree("images") == sorted(made)
    run("emboss", "-r", "--others=copy", "--include=a.png", "in", "chosen")
    assert tree("chosen") == sorted(["a.png", "skip.md", *others])
    assert "would copy in/a.txt -> x/a.txt (unchanged)" in run("emboss", "--others=copy", "--dry-run", "in", "x").out
