# SPDX-License-Identifier: MIT
"""Image data decoded and encoded by the device (--decode-on, --encode-on): the same pixels as on the CPU, also after failures.

`emulated` is the CUDA backend with its kernels on the CPU (tests/emulated); `cuda` needs a GPU.
"""
import json
import os
import re
import shutil
import subprocess

import numpy as np
import pytest

import hostile
import images
import png_writer as png
import program
from faulty import FAULTY, needs_faulty
from folders import contents, tree

cv2 = pytest.importorskip("cv2")
EMULATED = program.EMULATED
MODES = (("--decode-on=gpu", "--encode-on=cpu"), ("--encode-on=gpu", "--decode-on=cpu"), ("--decode-on=gpu", "--encode-on=gpu"))
AUTO = ("--decode-on=auto", "--encode-on=auto")
PLAIN = ("gray8", "gray16", "graya8", "graya16", "rgb8", "rgb16", "rgba8", "rgba16")  # what a device may decode
SLOW = bool(os.environ.get("CONV_SANITIZED") or program.RUNNER)
SIZES = ((31, 17), (1, 9), (24, 13), (40, 1)) if SLOW else ((1, 1), (1, 9), (40, 1), (31, 17), (50, 21), (66, 21))
STEP = 4 if SLOW else 3  # distance between two sizes of one kind
# Which side does the work is a matter of policy, for which the release build is enough: the other tests run the same
# code, and test_waking_device.py opens devices late.
policy = pytest.mark.skipif(bool(os.environ.get("CONV_SANITIZED")), reason="a policy; the release build tests it")
compares = pytest.mark.skipif(SLOW, reason="compares files, which the release build does; the other tests run the same code")


@pytest.fixture(params=("emulated", pytest.param("cuda", marks=pytest.mark.cuda)))
def binary(request):
    if request.param == "emulated" and not EMULATED:
        pytest.skip("no CONV_EMULATED_BINARY: not started by ctest, or no emulation in this build")
    return EMULATED if request.param == "emulated" else program.BINARY


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """`in` with every kind of image, each in one or two of the sizes."""
    box = tmp_path_factory.mktemp("coders")
    rng = np.random.default_rng(3)
    (box / "in").mkdir()
    for index, kind in enumerate(sorted(images.KINDS)):
        for width, height in SIZES[index % (STEP) :: STEP]:
            data = images.make(kind, rng, width, height).data
            (box / "in" / f"{kind}-{width}x{height}.png").write_bytes(data)
    return box


@pytest.fixture(scope="module")
def want(folder):
    """The images of `in`, filtered on the CPU by the filters of test_a_device_that_fails."""
    program.run("emboss,blur5", "-b", "in", "want", cwd=folder)
    return folder / "want"


class Said(str):
    """What a run has said on stderr; `summary` is the last line of its report, `device` is in the first one."""


def records_of(path):
    lines = path.read_text().splitlines() if path.exists() else []
    return [json.loads(line) for line in (lines or ["{}"])]


def summary_of(path):
    return records_of(path)[-1]


def run(binary, box, *args, code=0, faults="", faulty=""):
    report = box.with_name(box.name + ".jsonl")
    command = [*program.RUNNER, binary, *args, *(() if "--report" in args else ("--report", report))]
    done = subprocess.run(command, cwd=box, env={**os.environ, "CONV_EMULATED": faults, "CONV_FAULTY": faulty},
                          capture_output=True, text=True, timeout=program.TIMEOUT)
    said = f"CONV_EMULATED='{faults}' {' '.join(map(str, args))}: exit code {done.returncode}\n{done.stderr}"
    assert "Sanitizer" not in done.stderr and "runtime error:" not in done.stderr, said
    assert done.returncode == code, said
    said = Said(done.stderr)
    said.summary, said.device = summary_of(report), records_of(report)[0].get("device")
    return said


def same_pixels(box, out, want):
    """Every file is a PNG that OpenCV's libpng reads without a warning, with the same samples."""
    assert tree(box / out) == tree(box / want)
    for name in tree(box / want):
        got, expected = (cv2.imread(str(box / place / name), cv2.IMREAD_UNCHANGED) for place in (out, want))
        assert got is not None and got.dtype == expected.dtype and np.array_equal(got, expected), name


def count(said, what):
    """How many images a device has "decoded" or "encoded"."""
    return said.summary[f"{what}_on_device"]


def is_plain(name):
    return name.split("-")[0] in PLAIN


CHAIN = ("gaussian5,sharpen", "--alpha=filter", "--border=wrap")
PIXELS = ((("emboss", "--alpha=keep"), MODES[0]), (CHAIN, MODES[1]), (CHAIN, MODES[2]), (("identity",), MODES[2]))


# Each filter, and each coder alone and with the other: the code between them depends on neither.
@pytest.mark.parametrize("options, mode", PIXELS[::-1])
def test_pixels_are_the_cpus(binary, folder, tmp_path, options, mode):
    program.run(*options, "-b", "in", tmp_path / "want", cwd=folder)
    err = run(binary, folder, *options, "-b", "--device=cuda", *mode, "in", tmp_path / "out")
    names = tree(tmp_path / "want")
    same_pixels(tmp_path, "out", "want")
    assert count(err, "decoded") == (sum(map(is_plain, names)) if "--decode-on=gpu" in mode else 0), err
    assert count(err, "encoded") == (len(names) if "--encode-on=gpu" in mode else 0), err
    if "--encode-on=gpu" not in mode:  # the CPU's encoder: the same files
        assert contents(tmp_path / "out") == contents(tmp_path / "want")


@compares
def test_bytes_depend_on_nothing_but_the_image(binary, folder, tmp_path):
    settings = (("--streams=1", "-j1"), ("--streams=3", "-j5", "--group=20K"), ("--decode-on=gpu", "--mem-limit=2M"))
    for number, options in enumerate(settings):
        run(binary, folder, "emboss", "-b", "--device=cuda", "--encode-on=gpu", *options, "in", tmp_path / f"{number}")
    assert contents(tmp_path / "0") == contents(tmp_path / "1") == contents(tmp_path / "2")


@pytest.mark.parametrize("mode", MODES[::-1])
def test_odd_files_are_taken_as_on_the_cpu(binary, tmp_path, mode):
    (tmp_path / "in").mkdir()
    for name, (data, _) in hostile.ACCEPTED.items():
        if len(data) < 10000:
            (tmp_path / "in" / f"{name}.png").write_bytes(data)
    program.run("emboss", "-b", "in", "want", cwd=tmp_path)
    run(binary, tmp_path, "emboss", "-b", "--device=cuda", *mode, "in", "out")
    same_pixels(tmp_path, "out", "want")


@pytest.mark.parametrize("mode", MODES[::-1])
def test_damage_is_named_as_on_the_cpu(binary, folder, tmp_path, mode):
    rng = np.random.default_rng(8)
    (tmp_path / "in").mkdir()
    good = images.make("rgb8", rng, 50, 40).data
    for number in range(6):
        (tmp_path / "in" / f"good{number}.png").write_bytes(good)
    refused = {name: data for name, (data, _) in hostile.REFUSED.items() if len(data) < 10000}
    for name, data in refused.items():
        (tmp_path / "in" / f"{name}.png").write_bytes(data)
    want = program.run("emboss", "-b", "in", "want", code=1, cwd=tmp_path).err
    err = run(binary, tmp_path, "emboss", "-b", "--device=cuda", *mode, "in", "out", code=1)
    complaints = lambda text: sorted(line for line in text.splitlines() if line.startswith("conv: "))
    assert complaints(err) == complaints(want) and len(complaints(err)) == len(refused)
    same_pixels(tmp_path, "out", "want")


# Which call fails with which coders: calls with both coders, and each of the other combinations with one.
FAILURES = [(fault, MODES[2]) for fault in ("lost=9", "lost=14", "lost=23", "memory=450000", "memory=750000", "memory=1850000", "lost=40")]
FAILURES += [("lost=9", ()), ("memory=750000", ()), ("lost=40", MODES[0]), ("memory=450000", MODES[1])]


@pytest.mark.parametrize("faults, mode", FAILURES)
def test_a_device_that_fails(folder, want, tmp_path, faults, mode):
    if not EMULATED:
        pytest.skip("no CONV_EMULATED_BINARY")
    err = run(EMULATED, folder, "emboss,blur5", "-b", "--device=all", *mode, "--group=30K", "in", tmp_path / "out", faults=faults)
    same_pixels(tmp_path, "out", want)
    if not mode:
        return  # the CPU may have finished before the device is open
    assert err.count("continuing on the CPU") == faults.startswith("lost"), err
    assert err.count("are decoded and encoded on the CPU") == (faults in ("memory=450000", "memory=750000")) or "1850000" in faults, err


def test_a_lost_device_without_the_cpu(folder, tmp_path):
    if not EMULATED:
        pytest.skip("no CONV_EMULATED_BINARY")
    err = run(EMULATED, folder, "emboss", "-b", "--device=cuda", *MODES[2], "--group=30K", "in", tmp_path / "out", code=1,
              faults="lost=20")
    done = len(tree(tmp_path / "out"))
    failed = [line for line in err.splitlines() if line.startswith("conv: in/")]
    assert len(failed) == len(tree(folder / "in")) - done > 0, err


def test_standard_input(binary, folder):
    photo = images.make("rgb16", np.random.default_rng(2), 33, 20).data
    want = program.run("emboss", "-", "-", stdin=photo).out_bytes
    command = [*program.RUNNER, binary, "emboss", "--device=cuda", "--decode-on=gpu", "--encode-on=cpu", "-", "-"]
    assert subprocess.run(command, input=photo, capture_output=True, check=True).stdout == want


@pytest.mark.parametrize("asked", ("auto", "all"))
def test_auto_is_the_cpu_for_little_work(binary, folder, tmp_path, asked):
    """A few images are finished before a GPU is open. Chance decides which of them it gets; no file depends on it."""
    program.run("emboss", "-b", "--device=cpu", "in", tmp_path / "want", cwd=folder)
    err = run(binary, folder, "emboss", "-b", f"--device={asked}", *AUTO, "in", tmp_path / "out")
    assert count(err, "encoded") == 0 and (asked == "all" or err.summary["devices"] is None), err
    assert contents(tmp_path / "out") == contents(tmp_path / "want")


@policy
def test_auto_wakes_a_gpu_where_the_cpu_does_not_do_as_well(binary, tmp_path):
    """The GPU also gets small jobs: with large filters, with one of its kernels or with its coder selected by name."""
    (tmp_path / "a.png").write_bytes(images.make("rgb8", np.random.default_rng(4), 31, 17).data)
    kernel = "31x31: " + " ".join(",".join(["1"] * 31) for _ in range(31))
    for number, (chain, *options) in enumerate((("custom", "-k", kernel), ("emboss", "--variant=cuda_blocked"),
                                                ("emboss", "--decode-on=gpu"), ("emboss", "--encode-on=gpu"))):
        err = run(binary, tmp_path, chain, "--device=auto", *options, "a.png", f"{number}.png")
        assert err.device == "cuda:0", err


def test_auto_knows_nothing_of_a_list_that_is_read_once(binary, tmp_path):
    """The run may turn out long: the CPU begins, the GPU joins later."""
    (tmp_path / "a.png").write_bytes(images.make("rgb8", np.random.default_rng(4), 50, 40).data)
    done = subprocess.run([*program.RUNNER, binary, "emboss", "--device=auto", "--files-from=-", "--json", tmp_path, "out"], cwd=tmp_path,
                          input="a.png\n", capture_output=True, text=True, timeout=program.TIMEOUT)
    assert done.returncode == 0 and '"device":"cuda:0"' in done.stdout, done.stderr


@policy
@pytest.mark.parametrize("options", (("--encoder=libpng",), ("-z3",)))
def test_auto_is_the_cpu_where_the_device_has_no_choice(binary, folder, tmp_path, options):
    program.run("emboss", "-b", *options, "in", tmp_path / "want", cwd=folder)
    err = run(binary, folder, "emboss", "-b", "--device=cuda", *AUTO, *options, "in", tmp_path / "out")
    assert count(err, "encoded") == 0
    assert contents(tmp_path / "out") == contents(tmp_path / "want")


def much(folder, box):
    """The folder's images and a sparse file of gigabytes that is not PNG: much work for any number of cores."""
    (box / "in").mkdir()
    for name in tree(folder / "in"):
        (box / "in" / name).write_bytes((folder / "in" / name).read_bytes())
    with open(box / "in" / "+nothing.png", "wb") as hole:  # the first file, which is opened to estimate the work
        hole.truncate(os.cpu_count() << 29)


@policy
def test_auto_encodes_much_work_on_the_device(folder, tmp_path):
    """The GPU encodes every image, however late it opens: the same files each time."""
    if not EMULATED:
        pytest.skip("no CONV_EMULATED_BINARY")
    much(folder, tmp_path)
    run(EMULATED, folder, "emboss", "-b", "--alpha=keep", "--device=cuda", "--encode-on=gpu", "in", tmp_path / "want")
    for wake in (0, 700):
        out = f"out{wake}"
        err = run(EMULATED, tmp_path, "emboss", "-b", "--alpha=keep", "--device=auto", *AUTO, "in", out, code=1, faults=f"open={wake}")
        assert err.count("not a PNG") == 1 and len(err.splitlines()) == 2, err
        assert count(err, "encoded") == len(tree(tmp_path / "want")), err
        assert contents(tmp_path / out) == contents(tmp_path / "want")


@policy
@pytest.mark.parametrize("limit", range(340, 400, 12))
def test_who_encodes_does_not_depend_on_who_decodes(binary, tmp_path, limit):
    """Works however little memory there is: the three ways to group an image need different amounts."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.png").write_bytes(images.make("rgb8", np.random.default_rng(5), 290, 200).data)
    made = []
    for mode in MODES[1:]:
        command = [*program.RUNNER, binary, "emboss", "-b", "--device=cuda", *mode, f"--mem-limit={limit}K", "-j1", "--report=r", "in", "out"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        out = tmp_path / "out" / "a.png"
        made.append((done.returncode, out.read_bytes() if out.exists() else None, summary_of(tmp_path / "r")["encoded_on_device"]))
        out.unlink(missing_ok=True)
    assert made[0] == made[1]


@policy
def test_groups_of_flat_images_fit_a_streams_memory(binary, tmp_path):
    """Screenshots of 300 KB decode to 30 MB each: groups filled by file bytes alone took gigabytes of a GPU's memory."""
    (tmp_path / "in").mkdir()
    data = png.encode(64, 64, [[7] * 3 * 64] * 64, png.RGB)
    for number in range(45):
        (tmp_path / "in" / f"{number}.png").write_bytes(data)
    run(binary, tmp_path, "emboss", "-b", "--device=cuda", *MODES[2], "--streams=1", "--group=64K", "--trace=t.json", "in", "out")
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    groups = [event["args"]["images"] for event in events if event.get("ph") == "X" and event["name"] == "kernel"]
    assert sum(groups) == 45 and max(groups) <= 3 * (64 * 1024 * 5 // 2 // (64 * 64 * 3)), groups


@policy
def test_groups_that_wait_run_together(tmp_path):
    """One launch for up to three, of one image each, and the same files as where the device has memory for one at a time."""
    if not EMULATED:
        pytest.skip("no CONV_EMULATED_BINARY")
    rng = np.random.default_rng(5)
    (tmp_path / "in").mkdir()
    for number in range(6):
        kind = PLAIN[number]
        (tmp_path / "in" / f"{number}.png").write_bytes(images.make(kind, rng, 200 + number, 100).data)

    def images_per_launch(out, faults, opens=lambda process: None):
        command = [EMULATED, "emboss,blur", "-b", "--device=cuda", *MODES[2], "--streams=1", "--group=16K", f"--trace={out}.json", "in", out]
        process = subprocess.Popen(command, cwd=tmp_path, env={**os.environ, "CONV_EMULATED": faults}, stderr=subprocess.PIPE)
        opens(process)
        assert process.communicate(timeout=program.TIMEOUT)[1] is not None and process.returncode == 0
        events = json.loads((tmp_path / f"{out}.json").read_text())["traceEvents"]
        slices = [event["args"]["images"] for event in events if event.get("ph") == "X" and event["name"] == "kernel"]
        assert sum(slices) == 6, slices
        return max(slices)

    def when_groups_wait(process):
        program.until_idle(process)
        with open(tmp_path / "gate", "wb") as gate:
            gate.write(b"x")

    os.mkfifo(tmp_path / "gate")
    assert images_per_launch("one", "memory=4000000") == 1 < images_per_launch("several", "gate", when_groups_wait) <= 3
    assert contents(tmp_path / "several") == contents(tmp_path / "one")


@policy
def test_auto_does_not_wait_for_ever(folder, tmp_path):
    """A device that does not open is waited for once per run, not once per group, of which there are more than 400."""
    if not EMULATED:
        pytest.skip("no CONV_EMULATED_BINARY")
    much(folder, tmp_path)
    (tmp_path / "in" / "0.png").write_bytes(images.make("rgb8", np.random.default_rng(6), 40, 30).data)
    for number in range(1, 2 * program.TIMEOUT // 5 + 50):  # two streams that wait 5 s for each would take more than TIMEOUT
        os.link(tmp_path / "in" / "0.png", tmp_path / "in" / f"{number}.png")
    program.run("emboss", "-b", "in", "want", code=1, cwd=tmp_path)
    err = run(EMULATED, tmp_path, "emboss", "-b", "--device=auto", *AUTO, "--group=100", "--streams=2", "in", "out", code=1,
              faults="open=3600000")
    # A run whose workers are done with all images before a group is full does not wait at all.
    assert count(err, "encoded") == 0 and err.count("did not start within 5 s; continuing on the CPU") <= 1, err
    same_pixels(tmp_path, "out", "want")


@policy
@needs_faulty
def test_auto_shares_the_decoding(box):
    """A device that workers do not catch up with (tests/unit/test_decode_policy.c) gets images to decode from the first
    one on: 300 take two workers 120 ms by the first guess, which no clock decides."""
    (box / "in").mkdir()
    (box / "in" / "0.png").write_bytes(images.make("rgb8", np.random.default_rng(4), 300, 200, filters=0, level=0).data)
    for number in range(1, 300):
        os.link("in/0.png", f"in/{number}.png")
    program.run("emboss", "in/0.png", "want.png", cwd=box)
    said = run(FAULTY, box, "emboss", "--device=cuda", *AUTO, "-j2", "in", "out", faulty="codes")
    assert count(said, "encoded") == 300 and count(said, "decoded") > 0, said.summary
    assert {(box / "out" / name).read_bytes() for name in tree("out")} == {(box / "want.png").read_bytes()} and len(tree("out")) == 300


@compares
@pytest.mark.parametrize("kind", ("gray8", "graya8", "rgb8", "rgba8", "rgb16"))
def test_every_reader_takes_what_the_device_writes(binary, tmp_path, kind):
    """pngcheck has no complaint; `conv bench codec` reads the file with libpng and libdeflate and compares."""
    rng = np.random.default_rng(6)
    (tmp_path / "in").mkdir()
    for number, (width, height) in enumerate(((1, 1), (7, 300), (290, 31), (64, 64))):
        (tmp_path / "in" / f"{number}.png").write_bytes(images.make(kind, rng, width, height).data)
    err = run(binary, tmp_path, "emboss", "-b", "--alpha=keep", "--device=cuda", "--encode-on=gpu", "in", "out")
    assert count(err, "encoded") == 4
    if shutil.which("pngcheck"):
        checked = subprocess.run(["pngcheck", "-v", *sorted((tmp_path / "out").iterdir())], capture_output=True, text=True)
        assert checked.returncode == 0 and checked.stdout.count("No errors detected") == 4, checked.stdout
    if kind == "rgb8":
        said = program.run("bench", "codec", "-z1", tmp_path / "out").out
        for reader in ("conv", "libpng", "libdeflate"):
            assert re.search(rf"^{reader} +[0-9.]+ ", said, re.M), said


@pytest.mark.parametrize("options,reason", (
    (("--encode-on=gpu", "--encoder=libpng"), "cannot be combined: the GPU has its own encoder"),
    (("--encode-on=gpu", "-z3"), "cannot be combined: the GPU has its own encoder"),
    (("--encode-on=gpu", "--device=cpu"), "cannot be combined"),
    (("--decode-on=tpu",), "decode-on"),
))
def test_what_does_not_go_together(folder, tmp_path, options, reason):
    device = () if any("device" in option for option in options) else ("--device=auto",)
    assert reason in program.run("emboss", "-b", *device, *options, "in", tmp_path / "out", code=2, cwd=folder).err


@pytest.mark.skipif(program.has_cuda(), reason="there is a device")
def test_without_a_device(folder, tmp_path):
    program.run("emboss", "-b", "--device=auto", "--encode-on=gpu", "in", tmp_path / "out", code=4, cwd=folder)


@compares
def test_reproducible_files_are_those_of_the_cpu(folder, tmp_path, binary):
    """The same files, whichever device decodes and filters; without the option the GPU would write other bytes."""
    program.run("emboss", "-b", folder / "in", tmp_path / "cpu")
    run(binary, folder, "emboss", "-b", "--device=cuda", "--decode-on=gpu", "--reproducible", "in", tmp_path / "reproducible")
    run(binary, folder, "emboss", "-b", "--device=cuda", "--decode-on=gpu", "in", tmp_path / "default")
    assert contents(tmp_path / "cpu") == contents(tmp_path / "reproducible") != contents(tmp_path / "default")


@pytest.mark.skipif(not program.hides_instruction_sets(), reason="built without CONV_TESTS: no CONV_DISABLE")
@pytest.mark.parametrize("level", (1, 4))
def test_reproducible_files_are_those_of_older_processors(folder, tmp_path, level):
    """The same files with the instruction sets hidden one after the other, and with any number of workers."""
    trees = []
    for jobs, hidden in enumerate(("", "vbmi", "vbmi,vnni,avx512", "vbmi,vnni,avx512,avx2", "vbmi,vnni,avx512,avx2,sse41,neon"), 1):
        program.run("emboss", "--reproducible", f"-z{level}", f"-j{jobs}", "-b", folder / "in", tmp_path / str(jobs),
                    env={**os.environ, "CONV_DISABLE": hidden})
        trees.append(contents(tmp_path / str(jobs)))
    assert all(each == trees[0] for each in trees)
