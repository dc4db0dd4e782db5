# SPDX-License-Identifier: MIT
"""Disks that are full or read-only, folders that go away, and unusual names."""
import os
import subprocess

import pytest

from folders import fill, fill_with_noise, image, tree
from program import TIMEOUT, run, start, until


@pytest.fixture
def small_disk(box):
    """A tmpfs of 512 KiB at `disk`."""
    (box / "disk").mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=512k", "conv-test", "disk"], capture_output=True)
    if mounted.returncode:
        pytest.skip("no small disk to fill: mounting a tmpfs takes root")
    yield box / "disk"
    subprocess.run(["umount", "-l", box / "disk"], check=True)


def test_full_disk(box, small_disk):
    """Outputs that fit are whole, the others are reported, and no partial file remains."""
    fill_with_noise(box / "in", 8)  # each about 120 KiB once embossed
    result = run("emboss", "-j2", "in", "disk/out", code=1)
    done = tree("disk/out")
    assert 1 <= len(done) <= 5 and all(name.endswith(".png") for name in done)
    assert len([line for line in result.err.splitlines() if "No space left on device" in line]) == 8 - len(done)
    run("emboss", "in/0000.png", "want.png")
    want = (box / "want.png").read_bytes()
    assert all((small_disk / "out" / name).read_bytes() == want for name in done)
    subprocess.run(["mount", "-o", "remount,size=4m", small_disk], check=True)
    run("emboss", "--skip-existing", "in", "disk/out")
    assert tree("disk/out") == tree("in"), "with room again, the rest follows"


def test_no_room_for_a_folder_entry_or_the_report(box, small_disk):
    fill(box / "in", "a.png")
    with open(small_disk / "ballast", "wb", buffering=0) as file, pytest.raises(OSError):
        while True:
            file.write(bytes(4096))
    run("emboss", "in", "disk/out", code=1)
    assert "report" in run("emboss", "--report", "disk/report.jsonl", "in", "out", code=1).err
    assert tree("out") == ["a.png"]


def test_read_only_disk(box, small_disk):
    fill(box / "in", "a.png", "b.png")
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    result = run("emboss", "in", "disk", code=1)
    assert result.err.count("Read-only file system") == 2 and tree("disk") == []


def test_output_folder_that_goes_away(box):
    """Each image is either written or reported; the folder is created again for later ones."""
    fill_with_noise(box / "in", 300)
    process = start("emboss", "-j2", "in", "out")
    until(lambda: (box / "out").exists() and len(os.listdir("out")) >= 5, process)
    os.rename("out", "moved")
    _, err = process.communicate(timeout=TIMEOUT)
    named = [line for line in err.decode().splitlines() if line.startswith("conv: in/")]
    assert process.returncode == (1 if named else 0)
    made = tree("moved") + tree("out")
    assert len(made) + len(named) == 300 and not any(name.startswith(".conv-") for name in made)
    assert len({(box / folder / name).read_bytes() for folder in ("moved", "out") for name in tree(folder)}) == 1


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every folder")
def test_output_folder_that_may_be_written_not_read(box):
    made = fill(box / "in", "a.png")
    (box / "out").mkdir(mode=0o300)
    run("emboss", "in", "out")
    (box / "out").chmod(0o700)
    assert tree("out") == sorted(made)


def test_paths_as_long_as_the_system_takes(box):
    """The limit is 4096 bytes with the NUL: longer paths are reported, not truncated."""
    deep = box / "in"
    while len(os.fsencode(deep)) < 3500:
        deep = deep / ("d" * 200)
    deep.mkdir(parents=True)
    (deep / "a.png").write_bytes(image().data)
    length = len(os.fsencode(deep)) - len(os.fsencode(box / "in"))
    run("emboss", "-r", "in", "out")
    assert os.path.exists(box / "out" / deep.relative_to(box / "in") / "a.png")
    result = run("emboss", "-r", "in", "o" * 200 + ("/" + "o" * 200) * ((4090 - length) // 201), code=1)
    assert "too long" in result.err
