# SPDX-License-Identifier: MIT
"""What a run does not process is reported: images one after the other in a file or pipe, images of other formats,
folders that are not entered. These runs ended with exit code 0 and no word about it."""
import os
import tarfile
import threading

import numpy as np
import pytest

import jpeg
from folders import fill, image
from program import HAS_JPEG, closing, run

PNG = [image(seed).data for seed in range(1, 5)]
WITH_JPEG = pytest.mark.skipif(not HAS_JPEG, reason="built without libjpeg-turbo")


def photos(count):
    return [jpeg.make(np.full((16, 24, 3), 40 * i, np.uint8)) for i in range(count)]


def refused(data, more, name="standard input"):
    """Filters `data` from a pipe to one file: an error that has the number of images that would be lost, and no output."""
    result = run("blur", "-", "o.png", stdin=data, code=1)
    follow = "1 more image follows" if more == 1 else f"{more} more images follow"
    assert f"conv: {name}: {follow}: all images but the first would be lost; --first-frame takes the first" in result.err
    assert not os.path.exists("o.png")
    assert run("blur", "--first-frame", "-", "-", stdin=data).out_bytes[:3] in (b"\x89PN", b"\xff\xd8\xff")


@pytest.mark.parametrize("count", [2, 3, 4])
def test_images_on_a_pipe(box, count):
    refused(b"".join(PNG[:count]), count - 1)
    refused(PNG[0] + PNG[1][:-5], 1)  # the last is incomplete
    for gap in (b"\n", b"\r\n \t", bytes(4096)):  # a list of files, or blocks of a tape
        refused(gap.join(PNG[:count]) + gap, count - 1)
    for rest in (b"\0" * 64, b"\x89PN", PNG[0][8:], b"text"):
        run("blur", "-", "-", stdin=PNG[0] + rest)


@WITH_JPEG
def test_jpegs_on_a_pipe(box):
    a, b, c = photos(3)
    refused(a + b + c, 2)
    refused(a + PNG[0] + b, 2)
    refused(PNG[0] + a, 1)
    for rest in (b"\xff\xd9", b"\0" * 100, b"SEFT", b"\xff\xd8"):
        run("blur", "-", "-", stdin=a + rest)
    # The index of a phone's further images; in a file they may also come without one.
    mpf = jpeg.make(jpeg.decode(a), jpeg.segment(0xE2, b"MPF\0II*\0" + bytes(60)))
    run("blur", "-", "-", stdin=mpf + b)
    fill(box / "in", "a.png")
    for name, data in (("in/b.jpg", a + b), ("in/c.jpg", mpf + b)):
        with open(name, "wb") as file:
            file.write(data)
    assert "3 done, 0 failed" in closing(run("blur", "in", "out").err)


def test_images_in_a_file_or_fifo(box):
    fill(box / "in", "a.png")
    (box / "in/two.png").write_bytes(PNG[1] + PNG[2])
    result = run("blur", "in", "out", code=1)
    assert "conv: in/two.png: 1 more image follows" in result.err and "1 done, 1 failed" in closing(result.err)
    assert os.listdir("out") == ["a.png"]
    assert "not with --in-place" in run("blur", "--in-place", "in/two.png", code=1).err
    with open("in/two.png", "rb") as file:
        run("blur", "-", "o.png", stdin=file.read(), code=1)
    os.mkfifo("fifo")
    writer = threading.Thread(target=lambda: open("fifo", "wb").write(PNG[1] + PNG[2] + PNG[3]))
    writer.start()
    assert "fifo: 2 more images follow" in run("blur", "fifo", "o.png", code=1).err
    writer.join()
    run("layer", "sobel", "in/two.png", "o.npy", code=1)


def test_other_formats_and_folders(box):
    """A card with photographs of a phone and a camera was "1 done, 0 failed, 0 skipped"."""
    fill(box / "card", "a.png", "day/b.png", "@eaDir/c.png")
    for name in ("b.HEIC", "c.gif", "d.jxl", "e.NEF", "f.cr2", "notes.txt"):
        (box / f"card/{name}").write_bytes(b"data")
    passed = "; 5 other images: CR2, GIF, HEIC, JPEG XL, NEF; 1 folder not entered (-r)\n"
    result = run("blur", "--json", "card", "out")
    summary = result.records()[-1]
    assert result.err.startswith("1 image -> out/ in ") and result.err.endswith(passed) and summary["ignored"] == 5
    assert [summary[f"{key}"] for key in ("other_images", "other_formats", "folders_not_entered")] == [5, "CR2, GIF, HEIC, JPEG XL, NEF", 1]
    assert passed in run("blur", "--dry-run", "card", "out").err
    assert "2 done, 0 failed, 0 skipped; 1 ignored; 5 other images: CR2, GIF" in closing(run("blur", "-r", "card", "tree").err)
    assert "other image" not in run("blur", "--include", "*.png", "card", "chosen").err
    assert "5 other images: " in run("layer", "sobel", "card", "maps").err
    with tarfile.open("card.tar", "w") as archive:
        archive.add("card")
    assert "2 done, 0 failed, 0 skipped; 5 other images: CR2, GIF" in closing(run("blur", "--images-only", "card.tar", "out.tar").err)
    assert "other image" not in run("blur", "card.tar", "out.tar").err  # but copied
    os.remove("card/a.png")
    result = run("blur", "card", "none", code=3)
    assert "1 folder was not entered; --recursive does" in result.err and not os.path.exists("none")


def test_format_without_archives(box):
    """--format was ignored where nothing is an archive, or where the output's name says another format."""
    fill(box / "in", "a.png")
    run("identity", "in", "a.tar")
    for args in ("in/a.png o.png", "in out", "--no-save in out", "--beside --suffix _x in"):
        for kind in ("tar", "zip", "files"):
            assert f"--format {kind}: no input is an archive" in run("blur", "--format", kind, *args.split(), code=2).err
    for args in ("zip in o.tar", "zip a.tar o.tar", "files a.tar o.tar"):
        assert "contradicts the name of the output, o.tar" in run("blur", "--format", *args.split(), code=2).err
    assert "contradicts the name of the output, o/a.tar" in run("blur", "--format", "zip", "a.tar", "o", code=2).err
    assert sorted(os.listdir()) == ["a.tar", "in"]
    for args in ("tar in o1.tar", "tar a.tar o2.tar", "tar a.tar o3", "files a.tar o4", "tar - o5.zip"):
        run("blur", "--format", *args.split(), stdin=open("a.tar", "rb").read())
