# SPDX-License-Identifier: MIT
"""conv list, show, devices, verify and --version; which device and kernel are chosen."""
import glob
import os
import re
import subprocess

import pytest

import definition
import images
import program
from program import run

BUILTINS = definition.builtins()
LARGE = ("custom", "-k", "31x31: " + " ".join(",".join(["1"] * 31) for _ in range(31)))


def test_version(box):
    assert re.fullmatch(r"conv \d+\.\d+\.\d+\nwith libpng \d\.\d\S*, zlib \d\.\d\S*, libdeflate \d\.\d+(, \S+( \S+)+)*\n", run("--version").out)
    assert run("version").out == run("--version").out


def test_no_coefficient_is_shown_as_minus_zero(box):
    assert not re.search(r"-0\b(?!\.)", run("show", "unsharp:2,0.8").out + run("show", "unsharp:2,0.8", "--json").out)


def test_show_states_what_a_filter_does(box):
    out = run("show", "emboss").out
    assert re.search(r"-2\s+-1\s+0\s*\n\s*-1\s+1\s+1\s*\n\s*0\s+1\s+2", out), out
    for word in ("divisor", "bias", "flip", "border", "replicate", "rounding", "half", "exact", "separable    no", "cpu_"):
        assert word in out.lower(), f"{word} is not in:\n{out}"
    assert "separable    yes" in run("show", "gaussian").out
    assert re.search(r"(?s)0\.5 .*12", run("show", "custom", "-k", "0.5 1 1.5 2 2 2 3 3 3", "--bias=12").out)


def test_show_of_a_name_that_is_a_filter_and_a_bank(box):
    out = run("show", "sobel").out
    assert out.startswith("sobel\n") and "transpose" in out and "filter bank" in out
    assert "a bank of 2 filters and 3 maps" in out
    row, *bank = run("show", "sobel", "--json").records()
    assert [part["type"] for part in bank] == ["map"] * 3 + ["bank_filter"] * 2
    assert row["type"] == "filter" and row["magnitude"] is True and row["exact"] is False and row["separable"] is None
    assert run("show", "sobel-x", "--json").records()[0]["magnitude"] is False


@pytest.mark.skipif(not program.EMULATED, reason="no CONV_EMULATED_BINARY: not started by ctest, or no emulation in this build")
def test_show_names_the_kernel_that_suits_the_filter(box):
    """A Gaussian of 7 x 7 ran in one pass with floats, since its coefficients are no bytes."""
    binomial = [1, 6, 15, 20, 15, 6, 1]
    kernels = {
        "7x7: " + " ".join(",".join(["1"] * 7) for _ in range(7)): (49, "cuda_tma_mma"),
        "7x7: " + " ".join(",".join(str(a * b) for b in binomial) for a in binomial): (4096, "cuda_tma_mma_wide"),
        "15x15: " + " ".join(",".join(["1"] * 15) for _ in range(15)): (225, "cuda_tma_mma_wide"),
    }
    for kernel, (divisor, variant) in kernels.items():
        shown = subprocess.run([program.EMULATED, "show", "custom", "-k", kernel, "--divisor", str(divisor)], check=True, stdout=subprocess.PIPE)
        assert f" {variant} (8 bits)" in shown.stdout.decode()


def test_list_and_show_as_json(box):
    rows = run("list", "--json").records()
    assert {row["name"] for row in rows if row["type"] == "filter"} == set(BUILTINS)
    assert [row.get("usage", row["name"]) for row in rows] == [line.split()[0] for line in run("list").out.splitlines() if line[0] != " "]
    row, = run("show", "gaussian", "--json", "--border=constant:7", "--bias=2").records()
    assert row["kernel"] == [[1, 2, 1], [2, 4, 2], [1, 2, 1]] and (row["divisor"], row["bias"]) == (16, 2)
    assert (row["border"], row["border_value"], row["exact"], row["flip"]) == ("constant", 7, True, False)
    assert row["separable"] == {"column": [1, 2, 1], "row": [1, 2, 1]}
    assert row["variants"]["cpu"]["8"].startswith("cpu_") and set(row["variants"]["cpu"]) == {"8", "16"}
    first, second = run("show", "emboss,blur", "--json").records()
    assert (first["name"], second["name"], first["separable"]) == ("emboss", "blur", None)


def test_devices_as_json(box):
    machine, = run("devices", "--json").records()
    text = run("devices").out
    assert re.search(rf"(?m)^cpu +{machine['cpu']['cores']} core", text) and f"{machine['cpu']['memory'] >> 20} MiB" in text
    assert all(name in text for name in machine["cpu"]["features"])
    assert (machine["cuda"] == []) == (machine["cuda_error"] is not None)
    assert all(gpu["name"] in text and gpu["model"] in text for gpu in machine["cuda"])


@pytest.mark.skipif(program.has_cuda(), reason="this machine has a GPU")
def test_cuda_that_is_not_there_is_exit_code_4(photo, box):
    result = run("emboss", "--device=cuda", "a.png", "b.png", code=4)
    assert "cuda" in result.err.lower() and not (box / "b.png").exists()


@pytest.mark.skipif(program.has_cuda(), reason="this machine has a GPU")
def test_without_a_gpu_it_is_the_cpu_which_is_said_once_if_one_was_wanted(photo, box):
    for options, said in ((("emboss", "--device=all"), 1), ((*LARGE, "--device=auto"), 0), ((*LARGE, "--device=auto", "-v"), 1),
                          (("emboss", "--device=auto"), 0)):
        result = run(*options, "a.png", "b.png")
        assert len([line for line in result.err.splitlines() if "GPU" in line or "CUDA" in line]) == said, options
        os.unlink("b.png")


@pytest.mark.cuda
def test_cuda_that_has_no_such_ordinal_is_exit_code_4(photo):
    run("emboss", "--device=cuda:99", "a.png", "b.png", code=4)


@pytest.mark.cuda
def test_auto_takes_the_gpu_for_large_filters(photo):
    assert "cuda:0" in run(*LARGE, "-v", "--device=auto", "a.png", "b.png").err
    assert "cuda:0" not in run("emboss", "-v", "--device=auto", "a.png", "b.png").err


def test_every_variant_gives_the_same_bytes(photo, box):
    names = set()
    for path in glob.glob(os.path.join(program.ROOT, "kernels", "**", "*.c"), recursive=True):
        with open(path) as file:
            names.update(re.findall(r'"(cpu_\w+)"', file.read()))
    assert "cpu_reference" in names
    want = definition.apply_image(photo.planes, False, [BUILTINS["emboss"]])
    for name in sorted(names):
        result = program.start("emboss", "--variant", name, "a.png", f"{name}.png")
        _, err = result.communicate(timeout=program.TIMEOUT)
        if result.returncode == 2:  # this processor lacks the instructions, or the row is for other filters
            assert name.encode() in err and not (box / f"{name}.png").exists()
            continue
        assert result.returncode == 0, err
        assert (images.read(box / f"{name}.png") == want).all(), name


def test_malformed_kernel_file_is_named_with_line_and_column(photo, box):
    (box / "bad.mat").write_text("3 3 1 0\n1 2 3\n4 x 6\n7 8 9\n")
    assert "bad.mat:3:3" in run("custom", "-k", "@bad.mat", "a.png", "b.png", code=2).err


def test_verify_runs_every_kernel_that_is_listed(photo, box):
    kernels = run("list", "kernels", "--json").records()
    assert kernels[0] == {"type": "kernel", "name": "cpu_reference", "device": "cpu"}
    assert [row["name"] for row in kernels] == [line.split()[0] for line in run("list", "kernels").out.splitlines()]
    *_, last = run("verify", "gaussian5,emboss", "--border=constant:9", "--flip", "--json", "a.png").records()
    assert sorted(last["variants"] + [row["name"] for row in last["skipped"]]) == sorted(row["name"] for row in kernels)
    (box / "m.mat").write_text("3 3\n1 2 1\n0 3 0\n1 1 5\n")
    assert "identical" in run("verify", "custom", "-k", "@m.mat", "--divisor=sum", "--alpha=premultiply", "a.png").out
    # The definition of large Gaussians is another kernel's: it could not run them, nor could a chain be compared.
    assert "cpu_reference cpu_decimated" in run("verify", "gaussian:10", "a.png").out
    assert "identical" in run("verify", "gaussian:10,sharpen", "a.png").out
    assert sorted(os.listdir(box)) == ["a.png", "m.mat"]
    os.mkfifo(box / "pipe")
    assert "not a pipe" in run("verify", "custom", "-k", "@pipe", "a.png", code=2).err


def test_verify_as_json(photo, box):
    (box / "bad.png").write_bytes(b"bad")
    *files, last = run("verify", "emboss", "--json", "a.png", "bad.png", code=1).records()
    assert [(row["input"], row["status"]) for row in files] == [("a.png", "same"), ("bad.png", "failed")]
    assert files[1]["error"] and (last["type"], last["images"], last["failed"], last["identical"]) == ("verify", 1, 1, True)
    assert "cpu_reference" in last["variants"] and all(row["reason"] for row in last["skipped"])


@pytest.mark.skipif(program.has_cuda(), reason="this machine has a GPU")
def test_verify_says_once_that_there_is_no_gpu(photo, box):
    assert len([line for line in run("verify", "emboss", "a.png").err.splitlines() if "CUDA" in line]) <= 1
    assert "CUDA" not in run("verify", "emboss", "--device=cpu", "a.png").err
    run("verify", "emboss", "--device=cuda", "a.png", code=4)
