# SPDX-License-Identifier: MIT
"""Settings that must not change any output: workers, streams, groups, memory, the order of the names, the device.

Each round draws all of them at random and compares every output, every name of a failure and every count with one
plain run (one worker, CPU). CONV_SEED repeats a round that failed; CONV_ROUNDS sets how many there are.
"""
import os
import random
import re
import subprocess

import numpy as np
import pytest

import hostile
import images
import png_writer as png
import program
from faulty import FAULTY, LIBRARY
from folders import tree

EMULATED = None if os.environ.get("CONV_SANITIZED") else program.EMULATED  # the CUDA backend on the CPU
SEED = int(os.environ.get("CONV_SEED", random.SystemRandom().randrange(1 << 32)))
ROUNDS = int(os.environ.get("CONV_ROUNDS", 3 if os.environ.get("CONV_SANITIZED") or program.RUNNER else 16))

# Settings that do change bytes; each has a plain run of its own.
JOBS = (("emboss",), ("gaussian5,sharpen", "--alpha=premultiply", "--border=wrap"),
        ("blur5,emboss,identity", "--alpha=filter", "-z2"), ("scharr-x", "--strip", "--encoder=libpng"))
SIDES = (1, 2, 3, 7, 16, 33, 64, 90, 131)
LARGEST = 2 * 8 * 131 * (256 + 131)  # upper bound of the staging bytes of the largest image: rows are aligned


class Folder:
    """The folder of images, their names, and the outputs of plain runs."""

    def __init__(self, box, good, bad):
        self.box, self.good, self.bad, self.wants = box, good, bad, {}

    def want(self, job):
        """name -> bytes"""
        if job not in self.wants:
            out = self.box / f"want{len(self.wants)}"
            program.run(*job, "-j1", "-r", "in", out, code=1, cwd=self.box)
            self.wants[job] = {name: (out / name).read_bytes() for name in tree(out)}
            assert sorted(self.wants[job]) == self.good
        return self.wants[job]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A tree `in` of every kind of image, good and bad."""
    box = tmp_path_factory.mktemp("settings")
    rng = np.random.default_rng(7)
    files = {}
    for index, kind in enumerate(images.KINDS * 2):
        width, height = (SIDES[(index * step + index // len(SIDES)) % len(SIDES)] for step in (1, 2))
        files[f"{'abc'[index % 3]}/{index:02}-{kind}.png"] = images.make(kind, rng, width, height).data
    for index in range(6):  # files and texts that fill the memory that --mem-limit leaves for them
        data = images.make("rgb8", rng, 9, 7).data
        text = png.chunk(b"tEXt", b"Comment\0".ljust(50000 << index % 3, b"x"))
        files[f"{'abc'[index % 3]}/text{index}.png"] = data[:33] + text + data[33:]  # after IHDR
    good = sorted(files)
    small = [name for name, (data, _) in sorted(hostile.REFUSED.items()) if len(data) < 10000]
    bad = {f"b/{name}.png": hostile.REFUSED[name][0] for name in small[::3]}
    bad.update({"a/cut.png": files[good[5]][:-30], "c/empty.png": b"", "c/text.png": b"no image\n" * 9})
    for name, data in {**files, **bad}.items():
        path = box / "in" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return Folder(box, good, sorted(bad))


def draw_device(draw):
    """(binary, --device, CONV_FAULTY)"""
    where = draw.choice(["cpu"] + ["streams"] * 2 * bool(FAULTY) + ["cuda"] * program.has_cuda() + ["emulated"] * bool(EMULATED))
    if where == "emulated":
        return EMULATED, "cuda", ""
    if where != "streams":
        return program.BINARY, where, ""
    count = draw.choice((1, 1, 2, 3))
    names = [f"cuda:{index}" for index in range(count)]
    draw.shuffle(names)
    asked = draw.choice(("auto", "all", ",".join(names)))
    faults = [f"devices={count}"]
    for index in range(count):
        kind = draw.choice(("", "", "lost", "room", "streams", "pins", "slow"))
        number = {"": "", "slow": draw.choice((1, 5)), "lost": int(2 ** draw.uniform(0, 6)),
                  "pins": int(2 ** draw.uniform(0, 6))}.get(kind, draw.choice((1000, 30000, 1100000)))
        if kind and (asked in ("auto", "all") or kind in ("pins", "slow")):
            faults.append(f"{index}:{kind}={number}")
        if draw.random() < 0.3:
            faults.append(f"{index}:open={draw.choice((1, 3, 10) + (60000,) * (asked in ('auto', 'all')))}")
    return FAULTY, asked, " ".join(faults)


def draw_settings(draw):
    options = [f"-j{draw.choice((1, 2, 3, 4, 8, 33))}", f"--streams={draw.choice((1, 2, 3, 4, 9))}"]
    options.append(f"--group={int(2 ** draw.uniform(0, 24))}")
    options.append(f"--mem-limit={int(LARGEST * 2 ** draw.uniform(0, 9))}")
    options.append("--encode-on=cpu")  # the bytes depend on the encoder, not on the decoder
    return options + draw.choice(([], [], ["--fsync"], ["--preserve"], ["--resume=JOURNAL"]))


def draw_inputs(draw, names):
    """(operands, standard input): the tree, or its names in any order."""
    if draw.random() < 0.3:
        return ["-r", "in"], b""
    return ["--files-from=-", "in"], "".join(f"{name}\n" for name in draw.sample(names, len(names))).encode()


@pytest.mark.every
@pytest.mark.parametrize("number", range(ROUNDS))
def test_no_setting_changes_a_byte(folder, tmp_path, number):
    draw = random.Random(SEED + number)
    job = draw.choice(JOBS)
    binary, device, fault = draw_device(draw)
    settings = draw_settings(draw)
    settings = [option.replace("JOURNAL", str(tmp_path / "journal")) for option in settings]
    inputs, names = draw_inputs(draw, folder.good + folder.bad)
    environ = {**os.environ, "CONV_FAULTY": fault}
    if LIBRARY and draw.random() < 0.3:
        (tmp_path / "seen").touch()
        environ.update(LD_PRELOAD=LIBRARY, CONV_FAULTS="short eintr", CONV_FAULTS_SEEN=str(tmp_path / "seen"))
    want = folder.want(job)
    command = [*program.RUNNER, binary, *job, f"--device={device}", *settings, *inputs, tmp_path / "out"]
    done = subprocess.run(command, input=names, capture_output=True, cwd=folder.box, env=environ, timeout=program.TIMEOUT)
    err = done.stderr.decode(errors="replace")
    said = f"CONV_SEED={SEED + number} CONV_ROUNDS=1: {' '.join(map(str, command))}, fault '{fault}'\n{err}"
    assert "Sanitizer" not in err and "runtime error:" not in err, said
    assert done.returncode == 1, said
    assert tree(tmp_path / "out") == folder.good, said
    for name in folder.good:
        assert (tmp_path / "out" / name).read_bytes() == want[name], f"{name} differs; {said}"
    assert sorted(re.findall(r"(?m)^conv: in/([abc]/\S+\.png): ", err)) == folder.bad, said
    assert f"{len(folder.good)} done, {len(folder.bad)} failed, 0 skipped" in program.closing(err), said
