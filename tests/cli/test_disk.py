# SPDX-License-Identifier: MIT
"""Disks that are full or read-only, folders that go away, and unusual names."""
import os
import subprocess

import pytest

from folders import fill, fill_with_noise, is_embossed, image, tree
from program import run, some, start, until


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
    _, err = process.communicate(timeout=300)
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


def test_input_that_vanished_before_its_turn(box):
    made = fill(box / "in", "a.png", "b.png")
    os.symlink("nowhere", box / "in" / "gone.png")  # as for a file removed since its folder was read
    result = run("emboss", "in", "out", code=1)
    assert "conv: in/gone.png: cannot open: No such file" in result.err and tree("out") == sorted(made)


NAMES = ("-r.png", "--help.png", "two  blanks.png", " .png", "new\nline.png", "tab\t.png", "größe 寸法 🖼.png", "%s%n.png",
         "'\"`$(x);.png", "back\\slash.png", ".hidden.png", ".png", "*.png", "n" * 251 + ".png", "ö" * 125 + "x.png")


def test_names_of_every_shape(box, device):
    made = fill(box / "in", *NAMES)
    run("emboss", "--device", device, "in", "out")
    assert tree("out") == sorted(made)
    for name, source in made.items():
        assert is_embossed(box / "out" / name, source), name


@pytest.mark.parametrize("name", some(NAMES))
def test_one_name_as_an_operand(box, name):
    source = image()
    (box / name).write_bytes(source.data)
    run("emboss", "--", name, "out/")
    assert is_embossed(box / "out" / name, source)


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


def test_a_link_out_of_the_tree_is_read_not_followed_by_writes(box):
    """With -r, links to folders are skipped and links to files are read; outputs stay below the output."""
    made = fill(box, "outside/a.png", "outside/sub/b.png", "in/c.png")
    os.symlink("../outside", box / "in" / "folder")
    os.symlink("../outside/a.png", box / "in" / "link.png")
    run("emboss", "-r", "in", "out")
    assert tree("out") == ["c.png", "link.png"] and not os.path.islink("out/link.png")
    assert is_embossed("out/link.png", made["outside/a.png"])
    assert (box / "outside" / "a.png").read_bytes() == made["outside/a.png"].data


def test_an_output_that_is_a_link_is_replaced_not_written_through(box):
    made = fill(box, "in/a.png", "victim.png")
    (box / "out").mkdir()
    os.symlink("../victim.png", box / "out" / "a.png")
    run("emboss", "in", "out")
    assert (box / "victim.png").read_bytes() == made["victim.png"].data
    assert not os.path.islink("out/a.png") and is_embossed("out/a.png", made["in/a.png"])
