# SPDX-License-Identifier: MIT
"""The command line: what is accepted, and the messages about everything else."""
import os
import pty
import re
import select
import subprocess
import sys

import numpy as np
import pytest

import definition
import images
import program
from program import run

BUILTINS = definition.builtins()


# The arguments, and what the message must contain. tests/unit/test_filter_parse.c and test_hints.c have those of filters.
USAGE_ERRORS = [
    ((), "FILTER"),
    (("emboss",), "emboss"),
    (("emboss", "a.png"), "output"),
    (("embos", "a.png", "b.png"), "emboss"),
    (("emboss,blurr", "a.png", "b.png"), "blur"),
    (("guassian", "a.png", "b.png"), "gaussian"),
    (("emboss,", "a.png", "b.png"), "filter"),
    (("emboss", "--bordr=wrap", "a.png", "b.png"), "--border"),
    (("emboss", "-y", "a.png", "b.png"), "-y"),
    (("emboss", "--border=refelct", "a.png", "b.png"), "reflect"),
    (("emboss", "--border", "constant:300", "a.png", "b.png"), "300"),
    (("emboss", "--border", "constant:x", "a.png", "b.png"), "constant"),
    (("emboss", "--encoder=libpgn", "a.png", "b.png"), "libpng"),
    (("emboss", "--device=gpu", "a.png", "b.png"), "gpu"),
    (("emboss", "--variant=cpu_nothing", "a.png", "b.png"), "cpu_nothing"),
    (("emboss", "--size=4", "a.png", "b.png"), "4"),
    (("emboss", "--reproducible", "--encode-on=gpu", "a.png", "b.png"), "--reproducible and --encode-on cannot be combined"),
    (("identity", "--size=5", "a.png", "b.png"), "5"),
    (("emboss", "--divisor=six", "a.png", "b.png"), "six"),
    (("emboss", "--bias", "a.png", "b.png"), "bias"),
    (("emboss", "-j", "many", "a.png", "b.png"), "many"),
    (("emboss", "-q", "90", "a.png", "b.jpg"), "-q is --quiet: use -Q 90 for the quality of JPEG"),
    (("emboss", "--jobs=99999999999999999999", "a.png", "b.png"), "jobs"),
    (("emboss", "--streams=-1", "a.png", "b.png"), "streams"),
    (("emboss", "--group=0", "a.png", "b.png"), "group"),
    (("emboss", "-z13", "a.png", "b.png"), "13"),
    (("emboss", "--encoder=libpng", "-z10", "a.png", "b.png"), "10"),
    (("emboss", "--mem-limit=lots", "a.png", "b.png"), "lots"),
    (("emboss", "--max-pixels=-5", "a.png", "b.png"), "max-pixels"),
    (("emboss", "--quiet=yes", "a.png", "b.png"), "quiet"),
    (("emboss", "a.png", "b.png", "--divisor"), "divisor"),
    (("custom", "a.png", "b.png"), "--kernel"),
    (("custom", "-k", "1 2 3 4 5 x 7 8 9", "a.png", "b.png"), "x"),
    (("custom", "-k", "@missing.mat", "a.png", "b.png"), "missing.mat"),
    (("./missing.mat", "a.png", "b.png"), "missing.mat"),
    (("emboss", "a.png", "./a.png"), "overwrite the input"),
    (("emboss", "a.png", "."), "overwrite the input"),
    (("emboss", "a.png", "a.png/"), "a file"),
    (("emboss", "a.png", "a.png/b/c.tar"), "a file"),
    (("emboss", "a.png", "b.tar.xz"), "tar.xz"),
    (("show",), "show"),
    (("show", "embos"), "emboss"),
    (("verify",), "verify"),
]


@pytest.mark.parametrize("typed,named", USAGE_ERRORS, ids=[" ".join(t) or "nothing" for t, _ in USAGE_ERRORS])
def test_usage_error_names_what_is_wrong(photo, box, typed, named):
    result = run(*typed, code=2)
    assert result.out == "", "a usage error is not an output"
    assert named in result.err
    assert len(result.err) < 2000, "a usage error is no manual page"
    assert sorted(os.listdir(box)) == ["a.png"]


@pytest.mark.parametrize("options, divisor, bias, border", (
    (("--border=edge",), 1, 0, "replicate"), (("--border=clamp",), 1, 0, "replicate"), (("--border=nearest",), 1, 0, "replicate"),
    (("--border=wrap", "--bias=7", "--divisor=3"), 3, 7, "wrap"), (("--border", "wrap", "--bias", "7", "--divisor", "3"), 3, 7, "wrap"),
    (("--bias=+7", "--bord", "wrap", "--divisor=3.0"), 3, 7, "wrap"), (("--bias", "-30"), 1, -30, "replicate")))
def test_spellings_of_values(photo, box, options, divisor, bias, border):
    """With and without an equals sign, and anywhere on the command line."""
    want = definition.apply_image(photo.planes, False, [definition.Filter(BUILTINS["emboss"].c, divisor, bias)], border)
    for words in (("emboss", *options, "a.png"), (*options, "emboss", "a.png"), ("emboss", "a.png", *options)):
        run(*words, "-o", "b.png")
        assert (images.read(box / "b.png") == want).all(), words


def test_two_dashes_end_the_options(photo, box):
    (box / "--odd.png").write_bytes(photo.data)
    run("emboss", "--", "--odd.png", "-q.png")
    assert (box / "-q.png").exists()


COMMANDS = ("FILTER", "list", "show", "verify", "layer", "bench kernels", "bench layers", "bench streams", "bench codec", "devices", "help", "version")


def options_in(text):
    """From a --help text: long option -> whether it takes an argument."""
    return {name: bool(argument) for name, argument in
            re.findall(r"(?m)^  (?:-.,|   ) --([a-z-]+)( [A-Z0-9|a-z%+]+)?(?: |$)", text)}


def test_short_help_fits_a_screen(box):
    """-h fits 24 lines of 80 columns for every command; --help lists everything, in 80 columns."""
    for command in ("", "bench", "emboss", *COMMANDS[1:]):
        result = run(*command.split(), "-h")
        lines = result.out.splitlines()
        assert result.err == "" and len(lines) < 24 and max(map(len, lines)) <= 80, command
        assert max(map(len, run(*command.split(), "--help").out.splitlines())) <= 80
        assert command != "bench" or "conv bench layers" in result.out
    every = run("--help").out
    assert set(options_in(run("-h").out)) <= set(options_in(every)), "the short form invents nothing"
    assert len(options_in(every)) >= 50 and run("help").out == every and all(f"conv {command}" in every for command in COMMANDS[1:])


@pytest.mark.parametrize("typed,usage", (
    (("help", "bench", "streams"), "conv bench streams INPUT..."), (("bench", "streams", "--help"), "conv bench streams INPUT..."),
    (("help", "emboss"), "conv FILTER INPUT... OUTPUT"), (("help", "FILTER"), "conv FILTER INPUT... OUTPUT"),
    (("help", "bench"), "conv bench codec INPUT..."), (("list", "-h"), "conv list")))
def test_help_of_one_command(box, typed, usage):
    assert usage in run(*typed).out


def test_help_of_something_unknown(box):
    assert "did you mean 'verify'" in run("help", "verfiy", code=2).err
    assert "did you mean 'emboss'" in run("help", "embos", code=2).err


def test_every_option_that_a_command_ignores_is_refused(box):
    """Each command refuses options that it does not take: exit code 2 and a message with both names."""
    every = options_in(run("--help").out)
    taken = {command: set(options_in(run("help", *command.split()).out)) for command in COMMANDS}
    assert taken["list"] == taken["devices"] == taken["help"] == {"json", "help", "version"}
    assert taken["version"] == {"help", "version"}
    assert {"html", "image-size"} <= taken["bench kernels"] and "image-size" not in taken["bench streams"]
    assert set(every) == set().union(*taken.values())
    for command in COMMANDS:
        words = ("emboss", "a.png", "b.png") if command == "FILTER" else command.split()
        ignored = {option for option in every.keys() - taken[command]
                   if not any(name.startswith(option) for name in taken[command])}  # --group abbreviates --groups
        for option in sorted(ignored)[::9]:  # one table decides
            err = run(*words, f"--{option}=1" if every[option] else f"--{option}", code=2).err
            assert f"--{option} " in err and f"conv {command}" in err, (command, option, err)
    assert os.listdir(box) == []


@pytest.mark.parametrize("typed,words", (
    (("emboss", "--include=*.png", "--files-from=l", "out"), ("--include", "--files-from")),
    (("emboss", "--exclude=*.png", "--files-from=l", "out"), ("--exclude", "--files-from")),
    (("emboss", "-r", "--files-from=l", "out"), ("--recursive", "--files-from")),
    (("emboss", "-0", "in", "out"), ("--null", "--files-from")),
    (("emboss", "-u", "--skip-existing", "in", "out"), ("--update", "--skip-existing")),
    (("emboss", "--in-place", "-u", "in"), ("--in-place", "--update")),
    (("emboss", "-q", "-v", "in", "out"), ("--quiet", "--verbose")),
    (("emboss", "--dry-run", "--no-save", "in", "out"), ("--dry-run", "--no-save")),
    (("bench", "streams", "in", "--stage=device", "--encoder=stb"), ("--stage", "--encoder")),
    (("bench", "codec", "in", "--filter=blur"), ("--filter", "--jobs")),
    (("bench", "codec", "in", "--device=cuda", "-j2"), ("--device", "--jobs")),
    (("bench", "codec", "in", "--device=cuda", "-z2"), ("--device", "--compress")),
    (("bench", "kernels", "--device=cpu", "--variant=cuda_tma"), ("--variant",)),
    (("bench", "kernels", "--in-place"), ("--in-place", "conv bench kernels")),
    (("bench", "streams", "in", "--depth=8"), ("--depth", "conv bench streams")),
    (("devices", "--in-place", "extra"), ("--in-place", "conv devices")),
    (("devices", "extra"), ("conv devices", "extra")), (("list", "extra"), ("conv list", "extra")),
    (("version", "extra"), ("conv version", "extra")), (("emboss", "--size=64x64", "in", "out"), ("--size", "64x64"))))
def test_options_that_do_nothing_together_are_refused(box, typed, words):
    (box / "in").mkdir()
    code = 4 if "--variant=cuda_tma" in typed and not program.knows_cuda() else 2
    result = run(*typed, code=code)
    assert result.out == "" and all(word in result.err for word in words), result.err
    assert os.listdir(box) == ["in"]


@pytest.mark.skipif(program.has_cuda(), reason="this machine has a GPU")
def test_a_kernel_that_needs_a_gpu_is_not_replaced_by_another(box):
    result = run("bench", "kernels", "--variant=cuda_tma", "--image-size=8x8", code=4)
    assert result.out == "" and "CUDA" in result.err


@pytest.mark.parametrize("typed,advice", (
    (("--out", "b.png"), "--output"), (("--target-directory=b",), "--output FOLDER"), (("-t", "4"), "--jobs"),
    (("--threads=4",), "--jobs"), (("-f",), "--skip-existing")))
def test_options_of_other_programs_are_understood(box, typed, advice):
    assert advice in run("emboss", "a.png", *typed, code=2).err


def test_manual_and_completions_name_the_options_of_the_program(box, tmp_path):
    """What tools/make-manual makes of the tables; docs/commands.md, which is kept, must be what it makes."""
    make = os.path.join(program.ROOT, "tools", "make-manual")
    for words in (("--output", str(tmp_path)), ("--check",)):
        result = subprocess.run([sys.executable, make, "--conv", program.BINARY, *words], capture_output=True, text=True)
        assert result.returncode == 0, result.stderr

    manual, bash, zsh, fish = ((tmp_path / name).read_text() for name in ("conv.1", "completions/conv.bash", "completions/_conv", "completions/conv.fish"))
    every = set(options_in(out := run("--help").out))
    helped = re.compile(r"(?:1:help\).*?-W '|help\) compadd |__conv_after help' -f -a ')([a-z0-9 -]+)")
    assert all(set(helped.search(text).group(1).split()) > every - {"help"} for text in (bash, zsh, fish))
    names = re.findall(r"(?m)^\.TP\n(?:\\fB\\-\w\\fR, )?\\fB\\-\\-((?:[a-z]|\\-)+)", manual)
    assert {name.replace("\\", "") for name in names} == every
    with open(os.path.join(program.ROOT, "docs", "commands.md"), encoding="utf-8") as file:
        assert set(re.findall(r"(?m)^#### (?:`-\w`, )?`--([a-z-]+)", file.read())) == every
    assert set(re.findall(r"--([a-z][a-z-]+)", re.search(r"(?s)with_value=.*?\blocal word", bash).group())) == every
    assert set(re.findall(r"--([a-z][a-z-]+)(?==?\[|[=,}])", re.search(r"(?s)_arguments.*", zsh).group())) == every
    assert set(re.findall(r"(?m)^complete .* -l ([a-z-]+)", fish)) == every
    with_value = {name for name, takes in options_in(out).items() if takes}
    for taking in (r"(?s)with_value='.*?'", bash), (r"(?s)with_value (.*?)\n    set", fish):
        assert set(re.findall(r"--([a-z][a-z-]+)", re.search(*taking).group())) == with_value
    assert all(f'.SH "{section}"' in manual for section in ("EXIT STATUS", "ENVIRONMENT", "FILES", "EXAMPLES"))
    codes = re.findall(r"(?m)^\.TP\n(\d+)", re.search(r'(?s)\.SH "EXIT STATUS".*?\.SH', manual).group())
    assert codes == re.findall(r"(?<=[ \n])([0-4]|128)(?= )", re.search(r"(?s)Exit codes.*", out).group()) + ["128"]


def test_help_as_json_has_what_help_prints(box):
    every, = run("help", "--json").records()
    assert {option["name"]: option["argument"] is not None for option in every["options"]} == options_in(run("--help").out)
    one, = run("help", "devices", "--json").records()
    assert [option["name"] for option in one["options"]] == ["json", "help", "version"] and len(one["commands"]) == 1


# --- outputs and inputs that are probably a mistake -----------------------------------------------

@pytest.mark.parametrize("typed,words", (
    (("a.png", "o.gif"), ("o.gif", "GIF", "o.png")), (("a.png", "x/o.AVIF"), ("AVIF", "x/o.png")),
    (("a.png", "b.png", "c.png"), ("c.png is not a folder", "c.png/")), (("in", "c.png"), ("c.png is not a folder",)),
    (("a.png", "b.png", "in/there.png"), ("in/there.png is a file",))))
def test_outputs_under_a_wrong_name_are_refused(photo, box, typed, words):
    (box / "b.png").write_bytes(photo.data)
    (box / "in").mkdir()
    (box / "in" / "there.png").write_bytes(photo.data)
    result = run("emboss", *typed, code=2)
    assert all(word in result.err for word in words), result.err
    assert sorted(os.listdir(box)) == ["a.png", "b.png", "in"] and os.listdir("in") == ["there.png"]


@pytest.mark.parametrize("output", ("o.PNG", "o", "o.png.new", "c.png/", "o.v2"))
def test_other_names_of_outputs_are_not(photo, box, output):
    run("emboss", "a.png", output)
    assert os.path.exists(box / output)


@pytest.mark.parametrize("jobs,code", ((0, 2), (-1, 2), (100000, 2), (1024, 0)))
def test_numbers_of_workers_that_make_no_sense(photo, box, jobs, code):
    err = run("emboss", f"--jobs={jobs}", "a.png", "b.png", code=code).err
    assert re.match(rf"conv: --jobs {jobs}: using \d+ worker threads, the most that help" if code == 0 else ".*--jobs takes", err)
    assert code == 2 or "--jobs" not in run("emboss", "-q", f"--jobs={jobs}", "a.png", "b.png").err


def test_images_neither_go_to_a_terminal_nor_come_from_one(photo, box):
    controller, terminal = pty.openpty()
    try:
        for typed, streams in (("a.png", "-"), {"stdout": terminal}), (("-", "b.png"), {"stdin": terminal}):
            options = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, **streams}
            done = subprocess.run([*program.RUNNER, program.BINARY, "emboss", *typed], stderr=subprocess.PIPE, timeout=program.TIMEOUT,
                                  **options)
            assert done.returncode == 2 and b"terminal" in done.stderr, done.stderr
        assert select.select([controller], [], [], 0)[0] == [], "something was written to the terminal"
    finally:
        os.close(controller)
        os.close(terminal)
    assert sorted(os.listdir(box)) == ["a.png"]


# --- messages about likely mistakes ---------------------------------------------------------------

@pytest.mark.parametrize("typed,words", (
    (("a.png", "b.png"), ("'a.png' is an image", "the filter comes first", "conv emboss a.png b.png")),
    (("./a.png", "b.png"), ("'./a.png' is an image", "conv emboss ./a.png b.png")),
    (("in", "out"), ("'in' is a folder", "conv emboss in out")), (("./in", "out"), ("'./in' is a folder",)),
    (("gone.jpg", "b.png"), ("'gone.jpg' is an image",)), (("a.png",), ("conv emboss a.png OUTPUT",)),
    (("x.mat", "b.png"), ("'x.mat' is an image",)),
    (("verify", "a.png", "b.png"), ("'a.png' is an image", "conv verify emboss a.png")),
    (("show", "in"), ("'in' is a folder, not a filter",)),
    (("sobl", "a.png", "b.png"), ("'sobel'",)), (("gauss", "a.png", "b.png"), ("did you mean 'gaussian'?",))))
def test_an_image_in_place_of_the_filter(photo, box, typed, words):
    (box / "in").mkdir()
    (box / "x.mat").write_bytes(photo.data)
    result = run(*typed, code=2)
    assert all(word in result.err for word in words), result.err
    assert sorted(os.listdir(box)) == ["a.png", "in", "x.mat"]


@pytest.mark.parametrize("head,name", ((b"BM\0\0", "a BMP"), (b"\0\0\0\x1cftypavif", "an AVIF"),
                                       (b"%PDF-1.5", "a PDF"), (b"GIF89a", "a GIF")))
def test_other_formats_are_recognised(box, head, name):
    (box / "a.png").write_bytes(head + bytes(100))
    subprocess.run(["tar", "cf", "a.tar", "a.png"], check=True)  # in which it was "a GIF, not a PNG"
    err = run("emboss", "a.tar", "a.png", "out", code=1).err
    assert len(re.findall(rf"conv: (?:a.tar:)?a.png: {name}; conv reads PNG,? .*and PNM only", err)) == 2
    assert ("mogrify -format png INPUT" if "BMP" in name else "vips copy INPUT OUTPUT.png") + " converts it" in err


def test_a_folder_without_png(box):
    """The message lists what was found; no empty output folder is created."""
    (box / "in").mkdir()
    formats = r"PNG,? .*or PNM"
    for name in ("a.gif", "b.gif", "c.gif"):
        (box / "in" / name).write_bytes(b"")
    assert re.fullmatch(rf"conv: no {formats} in in \(3 other files, e\.g\. [abc]\.gif; vips copy INPUT OUTPUT\.png converts GIF\)\n",
                        run("emboss", "in", "out", code=3).err)
    assert "matches --include (3 other files" in run("emboss", "--include=*.tif", "in", "out", code=3).err
    os.makedirs("empty/below")
    assert re.fullmatch(rf"conv: no {formats} in empty\n", run("emboss", "-r", "empty", "out", code=3).err)
    assert sorted(os.listdir(box)) == ["empty", "in"]


def test_an_empty_list(box):
    assert run("emboss", "--files-from=-", "out", code=3).err == "conv: the list on standard input is empty\n"
    (box / "list").write_text("\n")
    assert run("emboss", "--files-from=list", "out", code=3).err == "conv: the list list is empty\n"
    assert os.listdir(box) == ["list"]


def test_one_image_needs_no_figures(photo, box):
    assert run("emboss", "a.png", "b.png").err == ""
    assert "1 done" in program.closing(run("emboss", "-v", "a.png", "b.png").err)
    assert "1 skipped" in run("emboss", "--skip-existing", "a.png", "b.png").err
    assert "1 done" in program.closing(run("emboss", "--include=a.png", ".", "out").err)


def test_a_limit_that_is_too_small_says_which_one_is_not(box):
    (box / "a.png").write_bytes(images.make("rgb8", np.random.default_rng(1), 1500, 1000, filters=0, level=1).data)
    needed, = re.findall(r"needs (\d+[KM]) of .*: use --mem-limit \1\n", run("emboss", "--mem-limit=5M", "a.png", "b.png", code=1).err)
    run("emboss", f"--mem-limit={needed}", "a.png", "b.png")
