# SPDX-License-Identifier: MIT
"""What users of other programs type: it works, or the message says how it is written here."""
import zipfile

import pytest

from folders import fill, tree
from program import run


def filtered(*args):
    return run(*args, "a.png", "-").out_bytes


@pytest.mark.parametrize("typed, written", (
    (["unsharp:1"], ["unsharp:1,1,0"]), (["unsharp:1,150%"], ["unsharp:1,1.5"]), (["unsharp: 1 , 60% ,5"], ["unsharp:1,0.6,5"]),
    (["motion:15"], ["motion:15,0"]), (["emboss:90"], ["emboss:90,1"]), (["sharpen:50%"], ["sharpen:0.5"]),
    ([" blur , sharpen:2,  emboss "], ["blur,sharpen:2,emboss"]),
    (["blur", "--mix", "40"], ["blur", "--mix=40%"]), (["blur", "--mix=0"], ["identity"]), (["blur", "--mix=0.5%"], ["blur", "--mix", "0.50%"]),
    (["blur", "--border", "tile"], ["blur", "--border", "wrap"]), (["blur", "--border", "repeat"], ["blur", "--border", "wrap"]),
    (["blur", "--border", "copy"], ["blur"]), (["blur", "--border", "black"], ["blur", "--border", "constant:0"]),
    (["blur", "--max-pixels", "1G"], ["blur"]), (["blur", "--max-pixels", "1k"], ["blur"]),
    (["custom", "-k", "[[0, -1, 0, -1, 5, -1, 0, -1, 0]]"], ["custom", "-k", "9x1:0 -1 0 -1 5 -1 0 -1 0"]),  # was a square
    (["custom", "-k", "[[ 0 -1  0]\n [-1  5 -1]\n [ 0 -1  0]]"], ["custom", "-k", "0 -1 0 -1 5 -1 0 -1 0"]),
    (["custom", "-k", "[1 2 1; 2 4 2; 1 2 1]", "--divisor=sum"], ["gaussian"]), (["custom", "-k", "3x1:[1,0,2]"], ["custom", "-k", "[[1 0 2]]"]),
    (["custom", "-k", ":".join(["0 -1 0 -1 5 -1 0 -1 0"] * 4)], ["custom", "-k", "0 -1 0 -1 5 -1 0 -1 0"]),
    (["custom", "-k", ":".join(["1 2 1 2 4 2 1 2 1"] * 3)], ["gaussian"]),  # ffmpeg divides by the sum
    (["custom", "-k", ":".join(["-1 -1 -1 -1 8 -1 -1 -1 -1"] * 2)], ["custom", "-k", "-1 -1 -1 -1 8 -1 -1 -1 -1"]),
))
def test_forms_of_other_programs(photo, typed, written):
    assert filtered(*typed) == filtered(*written)


@pytest.mark.parametrize("args, said", (
    (["unsharp:50%", "a.png", "b.png"], "is written unsharp:SIGMA[,AMOUNT[,THRESHOLD]]"), (["motion:9,50%", "a.png", "b.png"], "motion:LENGTH[,ANGLE]"),
    (["blur", "--mix", "0.4", "a.png", "b.png"], "for example 40%"), (["blur, ", "a.png", "b.png"], "filter 2"),
    (["custom", "-k", "1 2 1 2 4 2 1 2 1:1 2 1 2 4 2 1 2 2", "a.png", "b.png"], "character 19: the planes must have one kernel"),
    (["custom", "-k", "1 2 1 2 4 2 1 2 1:1/16", "a.png", "b.png"], "'1/16' is a fraction"),
    (["custom", "-k", "1 2 1 2 4 2 1 2 1:16", "a.png", "b.png"], "rdiv and bias are options here"),
    (["custom", "-k", "[[1,2,3],[4,5],[6,7,8,9]]", "a.png", "b.png"], "the rows in brackets differ in length"),
    (["custom", "-k", "1/9 1/9 1/9", "a.png", "b.png"], "character 1: '1/9' is a fraction; its denominator is given as the divisor"),
    (["custom", "-k", "Gaussian:0x2", "a.png", "b.png"], "kernels with a name are filters: gaussian:2"),
    (["sharpen", "0x1", "a.png", "b.png"], "numbers follow a colon: sharpen:AMOUNT"), (["unsharp", "150%", "a.png", "b.png"], "numbers follow a colon"),
    (["-sharpen", "a.png", "b.png"], "filters have no dash: conv sharpen"), (["-unsharp", "0x1", "a.png", "b.png"], "filters have no dash"),
    (["--blur,gaussian:2", "a.png", "b.png"], "filters have no dash: conv blur,gaussian:2"), (["lits"], "'lits' is neither a command nor a filter; did you mean 'list'?"),
    (["emboss", "in", "a.7z"], "only tar, tar.gz, tar.zst and zip can be written: a.7z"), (["emboss", "in", "a.RAR"], "can be written: a.RAR"),
    (["help", "--border"], "conv: for --border write conv help border\n"), (["sharpen", "x", "a.png", "c.png"], "conv: x: no such file\n"), (["blur", "sharpen", "a.png", "c"], "conv blur,sharpen ..."),
    (["emboss", "in", "in"], "input and output are the same folder"), (["emboss", "in/b.png", "in/b.png"], "the output would overwrite the input"),
))
def test_messages_say_what_to_write(photo, box, args, said):
    fill(box / "in", "b.png")
    assert said in run(*args, code=2).err


def test_help_shows_an_option():
    assert run("help", "border").out.startswith("      --border MODE       pixels outside")
    assert run("help", "jobs").out.startswith("  -j, --jobs N  ")
    assert [("conv" in record, record["name"]) for record in run("help", "max-pixels", "--json").records()] == [(False, "max-pixels")]
    for word, said in (("bordr", "did you mean 'border'?"), ("exit-codes", "conv --help has all of them, and the exit codes")):
        assert said in run("help", word, code=2).err
    assert "Usage:\n  conv FILTER INPUT" in run("help", "filter").out  # it was the option --filter of conv bench


@pytest.mark.parametrize("extension", ("cbz", "epub"))
def test_an_archive_with_an_extension_of_its_own(box, extension):
    """It became a folder of that name."""
    fill(box / "in", "a.png", "b.png")
    run("identity", "in", "o.cbz")
    (box / "o.cbz").rename(f"o.{extension}")
    run("blur", f"o.{extension}", f"new.{extension}")
    with zipfile.ZipFile(f"new.{extension}") as archive:
        assert archive.namelist() == ["a.png", "b.png"]
    run("blur", f"o.{extension}", f"folder.{extension}/")
    assert tree(f"folder.{extension}") == ["a.png", "b.png"]


def test_one_filter_is_told_of_once(photo):
    assert run("blur,gaussian:12", "-v", "a.png", "b.png").err.count(" at 8 bits, ") == 2
    assert len(run("show", "gaussian:12").out.splitlines()) < 110


def test_which_of_two_images_is_written(box):
    for name in ("a.png", "a.PNG"):
        fill(box / "in", name)
    result = run("blur", "--output-type=f32", "-v", "in", "out", code=1)
    assert "conv: in/a.png: another image has the same output, a.npy, and came first\n" in result.err
