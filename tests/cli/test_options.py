# SPDX-License-Identifier: MIT
"""What may be typed, and what the program says to what may not."""
import glob
import os
import re

import numpy as np
import pytest

import definition
import pictures
import program
from program import run

BUILTINS = definition.builtins()
LARGE = ("custom", "-k", "31x31: " + " ".join(",".join(["1"] * 31) for _ in range(31)))


@pytest.fixture
def photo(box):
    """a.png in the working directory."""
    picture = pictures.make("rgb8", np.random.default_rng(5), 24, 16)
    (box / "a.png").write_bytes(picture.data)
    return picture


USAGE_ERRORS = [  # what is typed, what the message must name
    ((), "FILTER"),
    (("emboss",), "emboss"),
    (("emboss", "a.png"), "output"),
    (("embos", "a.png", "b.png"), "emboss"),
    (("emboss,blurr", "a.png", "b.png"), "blur"),
    (("guassian", "a.png", "b.png"), "gaussian"),
    (("emboss,", "a.png", "b.png"), "filter"),
    (("emboss", "--bordr=wrap", "a.png", "b.png"), "--border"),
    (("emboss", "--bach", "a.png", "b.png"), "--batch"),
    (("emboss", "-y", "a.png", "b.png"), "-y"),
    (("emboss", "--border=refelct", "a.png", "b.png"), "reflect"),
    (("emboss", "--border=replicat", "a.png", "b.png"), "replicate"),
    (("emboss", "--border", "constant:300", "a.png", "b.png"), "300"),
    (("emboss", "--border", "constant:x", "a.png", "b.png"), "constant"),
    (("emboss", "--alpha=kep", "a.png", "b.png"), "keep"),
    (("emboss", "--encoder=libpgn", "a.png", "b.png"), "libpng"),
    (("emboss", "--device=gpu", "a.png", "b.png"), "gpu"),
    (("emboss", "--variant=cpu_nothing", "a.png", "b.png"), "cpu_nothing"),
    (("emboss", "--size=4", "a.png", "b.png"), "4"),
    (("identity", "--size=5", "a.png", "b.png"), "5"),
    (("emboss", "--divisor=0", "a.png", "b.png"), "divisor"),
    (("emboss", "--divisor=six", "a.png", "b.png"), "six"),
    (("sobel-x", "--divisor=sum", "a.png", "b.png"), "sum"),
    (("emboss", "--bias=nan", "a.png", "b.png"), "bias"),
    (("emboss", "--bias", "a.png", "b.png"), "bias"),
    (("emboss", "--jobs=5000", "a.png", "b.png"), "jobs"),
    (("emboss", "-j", "many", "a.png", "b.png"), "many"),
    (("emboss", "--jobs=99999999999999999999", "a.png", "b.png"), "jobs"),
    (("emboss", "--streams=-1", "a.png", "b.png"), "streams"),
    (("emboss", "--group=0", "a.png", "b.png"), "group"),
    (("emboss", "-z13", "a.png", "b.png"), "13"),
    (("emboss", "--encoder=libpng", "-z10", "a.png", "b.png"), "10"),
    (("emboss", "--mem-limit=lots", "a.png", "b.png"), "lots"),
    (("emboss", "--max-pixels=-5", "a.png", "b.png"), "max-pixels"),
    (("emboss", "--progress=maybe", "a.png", "b.png"), "progress"),
    (("emboss", "--quiet=yes", "a.png", "b.png"), "quiet"),
    (("emboss", "a.png", "b.png", "--divisor"), "divisor"),
    (("custom", "a.png", "b.png"), "--kernel"),
    (("emboss", "-k", "1", "a.png", "b.png"), "custom"),
    (("custom", "-k", "3x3: 1,2,3 4,5,6 7,8", "a.png", "b.png"), "9"),
    (("custom", "-k", "1 2 3 4", "a.png", "b.png"), "4"),
    (("custom", "-k", "2x2: 1,2,3,4", "a.png", "b.png"), "odd"),
    (("custom", "-k", "33x33: 1", "a.png", "b.png"), "31"),
    (("custom", "-k", "1 2 3 4 5 x 7 8 9", "a.png", "b.png"), "x"),
    (("custom", "-k", "@missing.mat", "a.png", "b.png"), "missing.mat"),
    (("./missing.mat", "a.png", "b.png"), "missing.mat"),
    (("show",), "show"),
    (("show", "embos"), "emboss"),
    (("verify",), "verify"),
]


@pytest.mark.parametrize("typed,named", USAGE_ERRORS, ids=[" ".join(t) or "nothing" for t, _ in USAGE_ERRORS])
def test_usage_error_names_what_is_wrong(photo, box, typed, named):
    result = run(*typed, code=2)
    assert result.out == "", "a usage error is no output"
    assert named in result.err
    assert len(result.err) < 2000, "a usage error is no manual page"
    assert sorted(os.listdir(box)) == ["a.png"]


def test_mirror_is_refused_with_both_its_meanings(photo):
    result = run("emboss", "--border=mirror", "a.png", "b.png", code=2)
    assert re.search(r"reflect\b", result.err) and "reflect101" in result.err


@pytest.mark.parametrize("alias,border", (("edge", "replicate"), ("clamp", "replicate"), ("nearest", "replicate")))
def test_border_aliases(photo, box, alias, border):
    run("gaussian", "--border", alias, "a.png", "b.png")
    want = definition.apply_picture(photo.planes, False, [BUILTINS["gaussian"]], border)
    assert (pictures.read(box / "b.png") == want).all()


@pytest.mark.parametrize("spelling", (
    ("--border=wrap", "--bias=7", "--divisor=3"), ("--border", "wrap", "--bias", "7", "--divisor", "3"),
    ("--bias=+7", "--border", "wrap", "--divisor=3.0")))
def test_values_with_and_without_an_equals_sign(photo, box, spelling):
    run("emboss", *spelling, "a.png", "b.png")
    want = definition.apply_picture(photo.planes, False, [definition.Filter(BUILTINS["emboss"].c, 3, 7)], "wrap")
    assert (pictures.read(box / "b.png") == want).all()


def test_negative_value_behind_a_blank(photo, box):
    run("emboss", "--bias", "-30", "a.png", "b.png")
    want = definition.apply_picture(photo.planes, False, [definition.Filter(BUILTINS["emboss"].c, 1, -30)])
    assert (pictures.read(box / "b.png") == want).all()


def test_options_stand_anywhere(photo, box):
    run("emboss", "a.png", "b.png", "--border", "wrap")
    run("emboss", "a.png", "--border=wrap", "c.png")
    run("--border=wrap", "emboss", "a.png", "d.png")
    assert len({(box / name).read_bytes() for name in ("b.png", "c.png", "d.png")}) == 1


def test_two_dashes_end_the_options(photo, box):
    (box / "--odd.png").write_bytes(photo.data)
    run("emboss", "--", "--odd.png", "-q.png")
    assert (box / "-q.png").exists()


@pytest.mark.parametrize("option", ("--help", "-h"))
def test_help_on_stdout(box, option):
    result = run(option)
    assert result.err == ""
    for word in ("--batch", "--recursive", "--include", "--exclude", "--files-from", "--skip-existing", "--update",
                 "--resume", "--dry-run", "--kernel", "--size", "--divisor", "--bias", "--flip", "--border", "--alpha", "--strip",
                 "--preserve", "--in-place", "--fsync", "--encoder", "--compress", "--device", "--streams", "--group", "--jobs", "--mem-limit",
                 "--variant", "--no-save", "--max-pixels", "--fail-fast", "--progress", "--quiet", "--verbose",
                 "--json", "--report", "--trace", "--html", "--stage", "bench", "verify", "list", "show", "devices"):
        assert word in result.out, f"{word} is not in --help"
    assert max(map(len, result.out.splitlines())) <= 100


def test_version(box):
    assert re.fullmatch(r"conv \d+\.\d+\.\d+.*\n", run("--version").out)


def test_list_names_every_filter(box):
    out = run("list").out
    for name in BUILTINS:
        assert re.search(rf"(?m)^\s*{name}\b", out), name


def test_show_states_what_a_filter_does(box):
    out = run("show", "emboss").out
    assert re.search(r"-2\s+-1\s+0\s*\n\s*-1\s+1\s+1\s*\n\s*0\s+1\s+2", out), out
    for word in ("divisor", "bias", "flip", "border", "replicate", "rounding", "half", "exact", "separable", "cpu_"):
        assert word in out.lower(), f"{word} is not in:\n{out}"


def test_show_knows_what_is_separable(box):
    def answer(name):
        return re.search(r"(?mi)^.*separable.*$", run("show", name).out).group().lower()

    assert "yes" in answer("gaussian") and "no" in answer("emboss")


def test_show_takes_options(box):
    out = run("show", "custom", "-k", "0.5 1 1.5 2 2 2 3 3 3", "--bias=12").out
    assert "0.5" in out and "12" in out


def test_devices_always_knows_the_cpu(box):
    assert re.search(r"(?m)^cpu", run("devices").out)


@pytest.mark.skipif(program.has_cuda(), reason="this machine has a GPU")
def test_cuda_that_is_not_there_is_exit_code_4(photo, box):
    result = run("emboss", "--device=cuda", "a.png", "b.png", code=4)
    assert "cuda" in result.err.lower() and not (box / "b.png").exists()


@pytest.mark.skipif(program.has_cuda(), reason="this machine has a GPU")
def test_without_a_gpu_it_is_the_cpu_which_is_said_once_if_one_was_wanted(photo, box):
    for options, said in ((("emboss", "--device=all"), 1), ((*LARGE, "--device=auto"), 1), (("emboss", "--device=auto"), 0)):
        result = run(*options, "a.png", "b.png")
        assert len([line for line in result.err.splitlines() if "GPU" in line or "CUDA" in line]) == said, options
        os.unlink("b.png")


@pytest.mark.cuda
def test_cuda_that_has_no_such_ordinal_is_exit_code_4(photo):
    run("emboss", "--device=cuda:99", "a.png", "b.png", code=4)


@pytest.mark.cuda
def test_auto_takes_the_gpu_for_large_filters(photo):
    assert "cuda:0" in run(*LARGE, "--device=auto", "a.png", "b.png").err
    assert "cuda:0" not in run("emboss", "--device=auto", "a.png", "b.png").err


def test_every_variant_gives_the_same_bytes(photo, box):
    names = set()
    for path in glob.glob(os.path.join(program.ROOT, "kernels", "**", "*.c"), recursive=True):
        with open(path) as file:
            names.update(re.findall(r'"(cpu_\w+)"', file.read()))
    assert "cpu_reference" in names
    want = definition.apply_picture(photo.planes, False, [BUILTINS["emboss"]])
    for name in sorted(names):
        result = program.start("emboss", "--variant", name, "a.png", f"{name}.png")
        _, err = result.communicate(timeout=program.TIMEOUT)
        if result.returncode == 2:  # this processor lacks the instructions, or the row is for other filters
            assert name.encode() in err and not (box / f"{name}.png").exists()
            continue
        assert result.returncode == 0, err
        assert (pictures.read(box / f"{name}.png") == want).all(), name


@pytest.mark.parametrize("text,place", (
    ("3 3 1 0\n1 2 3\n4 x 6\n7 8 9\n", "3:3"), ("3 3 0 0\n1 2 3\n4 5 6\n7 8 9\n", "1"),
    ("3 3 1 0\n1 2 3\n4 5 6\n", "4"), ("4 3 1 0\n1 2 3 4\n", "odd"), ("", "1:1"),
    ("3 3 1 0\n1 2 3\n4 5 6 7\n7 8 9\n", "3:7"),
    ("3 3 1 0\n1 2 3\n4 5 1e999\n7 8 9\n", "3:5")))
def test_malformed_kernel_file_is_named_with_line_and_column(photo, box, text, place):
    (box / "bad.mat").write_text(text)
    result = run("custom", "-k", "@bad.mat", "a.png", "b.png", code=2)
    assert "bad.mat" in result.err and place in result.err, result.err


def test_verify_compares_devices(photo, box):
    result = run("verify", "emboss", "a.png")
    assert "same" in (result.out + result.err).lower() or "identical" in (result.out + result.err).lower()
    assert sorted(os.listdir(box)) == ["a.png"]
