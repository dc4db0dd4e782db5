# SPDX-License-Identifier: MIT
"""What a first-time user types, line by line from a review: tables 2 (messages) and 4 (what photographers and scripts
expect). Each line runs once, cheaply; depth is in the tests of each subject. Lines on Python, containers, limits of
cgroups, the page and exercises are not commands: they have tests, or issues, of their own."""
import json
import os
import re
import signal

import pytest

import png_writer as png
import program
from program import HAS_JPEG, run, start, until

DOT = png.encode(9, 7, [[(x * y) % 256 for x in range(27)] for y in range(7)], png.RGB, 8)


@pytest.fixture(scope="module")
def desk(tmp_path_factory):
    """The folder that all lines are typed in."""
    desk = tmp_path_factory.mktemp("desk")
    (desk / "photos").mkdir()
    for name in ("01.png", "02.png", "03.png"):
        (desk / "photos" / name).write_bytes(DOT)
    (desk / "photo.png").write_bytes(DOT)
    (desk / "notes").mkdir()
    for i in range(5):
        (desk / "notes" / f"{i}.txt").write_text("a note")
    (desk / "scan.tif").write_bytes(b"II*\0" + bytes(20))
    (desk / "web.webp").write_bytes(b"RIFF\x24\0\0\0WEBPVP8 " + bytes(20))
    (desk / "mac").mkdir()
    for name in ("a.png", "._a.png", ".thumb1.png"):
        (desk / "mac" / name).write_bytes(DOT)
    (desk / "mac" / "@eaDir").mkdir()
    (desk / "mac" / "@eaDir" / "a.png").write_bytes(DOT)
    if HAS_JPEG:
        run("emboss", "photo.png", "photo.jpg", cwd=desk)
        (desk / "jpegs").mkdir()
        os.link(desk / "photo.jpg", desk / "jpegs" / "a.jpg")
    return desk


first = "the filter comes first, e.g. conv emboss"
is_ok = ""  # no message
# The command, its exit code, and a part of its messages; "" means that there must be no message.
MESSAGES = [
    ("photo.png out.png", 2, f"'photo.png' is an image: {first} photo.png out.png"),
    ("./photo.png out.png", 2, f"'./photo.png' is an image: {first} ./photo.png out.png"),
    ("photos out", 2, f"'photos' is a folder: {first} photos out"),
    ("emboss scan.tif o.png", 1, r"scan.tif: a TIFF; conv reads .*vips copy INPUT OUTPUT.png"),
    ("emboss web.webp o.png", 1, r"web.webp: a WebP; conv reads .*vips copy INPUT OUTPUT.png"),
    ("emboss notes out2", 3, r"no PNG.* in notes \(5 other files, e.g. \d.txt\)\n$"),
    ("emboss --files-from - out3", 3, "the list on standard input is empty\n$"),
    ("emboss -t 2 photos out4", 2, "use --jobs N"),
    ("emboss --threads 2 photos out4", 2, "use --jobs N"),
    ("emboss -n photos out4", 2, "use --dry-run"),
    ("sobell photo.png out5.png", 2, "did you mean 'sobel'"),
    ("emboss --mem-limit 1K photo.png out6.png", 1, r"the limit is 1K: use --mem-limit \d+K"),
    ("emboss --jobs 1000 photos out7", 0, r"--jobs 1000: using \d+ worker threads"),
    ("emboss -q 90 photo.png out8.jpg", 2, "-q is --quiet: use -Q 90 for the quality of JPEG"),
    ("emboss photo.png photos/01.png c.png", 2, "the output c.png is not a folder"),
    ("emboss photo.png out9.gif", 2, "use out9.png"),
    ("gausian:2 photo.png out10.png", 2, "did you mean gaussian:SIGMA, for example gaussian:2.5"),
    ("emboss photo.png out11.png", 0, is_ok),
    ("emboss -o out12 photo.png photos/01.png", 0, r"^2 done, .*\n$"),
    ("sobel photo.png out13.png", 0, is_ok),
    ("emboss --dry-run mac out14", 0, "1 to do, 0 failed, 0 skipped, 2 ignored"),
    ("emboss -r --dry-run mac out14", 0, "1 to do, 0 failed, 0 skipped, 3 ignored"),
]


@pytest.mark.parametrize("typed, code, said", MESSAGES, ids=[line[0].replace("/", "|") for line in MESSAGES])
def test_what_it_says(desk, typed, code, said):
    result = run(*typed.split(), code=code, cwd=desk)
    assert re.search(said, result.err) if said else not result.err, result.err
    if code in (2, 3):
        assert not result.out and not [name for name in os.listdir(desk) if name.startswith("out") and name in typed]


def test_help_and_version(desk):
    assert run("version", cwd=desk).out.startswith("conv ") and run("--version", cwd=desk).out == run("version", cwd=desk).out
    assert run("help", cwd=desk).out == run("--help", cwd=desk).out
    short, long = run("-h", cwd=desk).out, run("--help", cwd=desk).out
    assert 10 < len(short.splitlines()) < len(long.splitlines())
    for text in (short, long, run("bench", "--help", cwd=desk).out, run("show", "--help", cwd=desk).out):
        assert max(map(len, text.splitlines())) <= 80 and "conv" in text


def test_a_larger_run_without_a_gpu_says_no_more_than_its_result(desk):
    result = run("emboss", "--device", "auto", "photos", "auto", cwd=desk)
    assert re.fullmatch(r"3 done, 0 failed, 0 skipped, .*\n", result.err), result.err


def test_verify_says_once_that_there_are_no_cuda_kernels(desk):
    result = run("verify", "emboss", "photo.png", cwd=desk)
    lines = (result.out + result.err).splitlines()  # CUDA, the kernels that this CPU cannot run, the result
    assert sum("cuda" in line.lower() for line in lines) <= 1 and len(lines) <= 3, lines
    assert "identical pixels" in result.out


def test_ctrl_c_says_what_is_left(desk):
    os.mkfifo(desk / "pipe.png")
    names = ["photo.png", "pipe.png", "photos/01.png"]
    process = start("emboss", "--jobs", "1", "-o", "stopped", *names, cwd=desk)
    try:
        until((desk / "stopped" / "photo.png").exists, process)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=program.TIMEOUT)
    finally:
        process.kill()
        os.unlink(desk / "pipe.png")
    assert process.returncode == 130
    assert re.search(rb"interrupted: 1 of 3 done, 2 left; --skip-existing continues\n$", err), err


# --- what photographers expect -----------------------------------------------------------------

def files(desk, folder):
    return sorted(os.listdir(desk / folder))


WANTED = [
    ("gaussian:3.5 photos w1", ["01.png", "02.png", "03.png"]),
    ("unsharp:2,0.8 photos w2", ["01.png", "02.png", "03.png"]),
    ("unsharp:2,0.8,3 photos w3", ["01.png", "02.png", "03.png"]),
    ("emboss --suffix _relief photos w4", ["01_relief.png", "02_relief.png", "03_relief.png"]),
    ("emboss --limit 2 photos w5", ["01.png", "02.png"]),
    ("emboss --mix 40% photos w6", ["01.png", "02.png", "03.png"]),
    ("emboss --gray --roi 3x3+1+1 photos w7", ["01.png", "02.png", "03.png"]),
    ("emboss --include {01,03}.png photos w8", ["01.png", "03.png"]),
    ("emboss --exclude **/02.png photos w9", ["01.png", "03.png"]),
    ("emboss --output-type u16 photos w10", ["01.png", "02.png", "03.png"]),
    ("sobel --output-type f32 photos w11", ["01.npy", "02.npy", "03.npy"]),
    ("emboss mac w12", ["a.png"]),
    ("emboss --shard 0/1 photos w13", ["01.png", "02.png", "03.png"]),
    ("emboss --reproducible photos w14", ["01.png", "02.png", "03.png"]),
]


@pytest.mark.parametrize("typed, names", WANTED, ids=[line[0].replace("/", "|") for line in WANTED])
def test_what_it_makes(desk, typed, names):
    run(*typed.split(), cwd=desk)
    assert files(desk, typed.split()[-1]) == names


@pytest.mark.skipif(not HAS_JPEG, reason="built without libjpeg-turbo")
def test_jpeg_in_and_out(desk):
    run("emboss", "jpegs", "x1", cwd=desk)
    run("emboss", "--to", "jpg", "-Q", "80", "photos", "x2", cwd=desk)
    run("emboss", "photo.jpg", "x3.png", cwd=desk)
    assert files(desk, "x1") == ["a.jpg"] and files(desk, "x2") == ["01.jpg", "02.jpg", "03.jpg"]
    assert (desk / "x2" / "01.jpg").read_bytes()[:3] == b"\xff\xd8\xff"
    assert (desk / "x3.png").read_bytes()[:4] == b"\x89PNG"
    run("emboss", "-", "x4/", stdin=(desk / "photo.jpg").read_bytes(), cwd=desk)
    assert files(desk, "x4") == ["stdin.jpg"], "named as what it holds"


def test_beside_and_samples(desk, tmp_path):
    for name in ("1.png", "2.png", "3.png"):
        (tmp_path / name).write_bytes(DOT)
    for folder in ("some", "again"):
        run("emboss", "--sample", "2", "--seed", "4", ".", folder, cwd=tmp_path)
    assert len(files(tmp_path, "some")) == 2 and files(tmp_path, "some") == files(tmp_path, "again")
    run("emboss", "--beside", "--suffix", "_x", "1.png", "3.png", cwd=tmp_path)
    assert [name for name in files(tmp_path, ".") if "_x" in name] == ["1_x.png", "3_x.png"]


def test_progress_has_a_total(desk):
    result = run("emboss", "--progress", "always", "photos", "progress", cwd=desk)
    assert "3 done" in result.err
    plain = run("emboss", "-v", "photos", "sorted", cwd=desk).err
    assert re.findall(r"done (photos/\S+)", plain) == [f"photos/{i}.png" for i in ("01", "02", "03")]


def test_json_for_scripts(desk):
    records = run("emboss", "--json", "photos", "json", cwd=desk).records()
    assert [r["type"] for r in records] == ["begin", "file", "file", "file", "summary"]
    assert {"version", "filter", "device", "jobs"} <= records[0].keys() and records[-1]["done"] == 3
    for command in (["list", "--json"], ["show", "emboss", "--json"], ["devices", "--json"]):
        assert all("type" in json.loads(line) for line in run(*command, cwd=desk).out.splitlines())


def test_benchmarks_state_their_spread(desk):
    if program.is_sanitized():
        pytest.skip("kernels are slow with sanitizers")
    record = json.loads(run("bench", "kernels", "--json", "--image-size", "32x32", "--device", "cpu", "--variant",
                            "cpu_portable", cwd=desk).out)
    assert {"runs", "ms_min", "ms_max", "ms_p25", "ms_p75"} <= record["rows"][-1].keys()
