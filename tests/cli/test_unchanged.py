# SPDX-License-Identifier: MIT
"""What counts as done with --resume and -u follows from what decides the result: archives, outputs, images in place.

Judge: a run without a journal. That each option which decides a result is compared is checked by tests/unit/test_settings_text.c.
CONV_ROUNDS repeats the random test, CONV_SEED begins it elsewhere.
"""
import io
import os
import random
import shutil
import tarfile
import zlib

import numpy as np
import pytest

import png_writer as png
from faulty import LIBRARY, needs_library
from folders import contents, fill
from program import run

ROUNDS = int(os.environ.get("CONV_ROUNDS", "1"))
SEED = int(os.environ.get("CONV_SEED") or random.SystemRandom().randrange(10**6))


def summary(*args, code=0, **options):
    totals = run(*args, "--json", code=code, **options).records()[-1]
    return totals["done"], totals["skipped"]


def pack(path, made, draw):
    """A tar file of the folder with fixed times, in place of an earlier one or under its name."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as archive:
        for name in sorted(made):
            info = tarfile.TarInfo(name)
            info.size, info.mtime = len(made[name]), draw
            archive.addfile(info, io.BytesIO(made[name]))
    path.write_bytes(data.getvalue())


def stored(seed):
    """Images of equal file size."""
    samples = np.random.default_rng(seed).integers(60, 190, (14, 20 * 3)).tolist()
    return png.encode(20, 14, samples, png.RGB, level=0)


# --- archives -------------------------------------------------------------------------------------

@pytest.mark.parametrize("command", (("identity",), ("layer", "weights.npy"), ("layer", "log:2")))
@pytest.mark.parametrize("rule", (("--resume", "journal"), ("-u",)))
def test_a_rebuilt_archive_is_processed_again(box, command, rule):
    """Times and sizes of members were compared, not those of the archive."""
    np.save(box / "weights.npy", np.ones((1, 3, 3, 3), np.float32))
    made = {"a.png": stored(1), "b.png": stored(2)}
    pack(box / "in.tar", made, 10**9)
    assert summary(*command, *rule, "in.tar", "out") == (2, 0)
    assert summary(*command, *rule, "in.tar", "out") == (0, 2)
    before = contents(box / "out")
    made["a.png"] = stored(3)
    pack(box / "in.tar", made, 10**9)
    os.utime(box / "in.tar", ns=(10**18, os.stat(box / "in.tar").st_mtime_ns + 10**9))
    assert summary(*command, *rule, "in.tar", "out") == (2, 0)
    after = contents(box / "out")
    changed = [name for name in after if after[name] != before[name]]
    assert changed == ["a.png" if command[0] == "identity" else "a.npy"]


def test_members_of_a_pipe_are_compared_by_their_bytes(box):
    made = {"a.png": stored(1), "b.png": stored(2)}
    for first, done in ((1, 2), (1, 0), (3, 1), (3, 0)):
        made["a.png"] = stored(first)
        pack(box / "in.tar", made, 10**9)
        stream = (box / "in.tar").read_bytes()
        assert summary("identity", "--resume", "journal", "-", "out", stdin=stream) == (done, 2 - done), first
    pack(box / "in.tar", made, 10**9)
    run("identity", "-u", "-", "out", stdin=(box / "in.tar").read_bytes())


@pytest.mark.parametrize("options", (("--limit=2",), ("--include=a*",), ("--exclude=a*",), ("--images-only",), ("--include=a*", "--images-only")))
def test_what_decides_the_members_of_an_archive_is_compared(box, options):
    pack(box / "in.tar", {**{f"{name}.png": stored(1) for name in "abcd"}, "text": b"text"}, 10**9)
    assert summary("identity", "--resume", "journal", "in.tar", "out.tar")[0] == 4
    assert summary("identity", "--resume", "journal", "in.tar", "out.tar") == (0, 1)
    run("identity", "--resume", "journal", *options, "in.tar", "out.tar")
    run("identity", *options, "in.tar", "want.tar")
    assert (box / "out.tar").read_bytes() == (box / "want.tar").read_bytes()


def test_a_copy_is_not_taken_for_a_result(box):
    """A member that was copied as it is stayed unfiltered when it was to be filtered, and the other way round."""
    pack(box / "in.tar", {"a.png": stored(1), "b.png": stored(2)}, 10**9)
    for options in (["--exclude=b*"], [], ["--include=b*"]):
        run("blur", "--resume", "journal", *options, "in.tar", "out")
        run("blur", *options, "in.tar", "want")
        assert contents(box / "out") == contents(box / "want")
        assert summary("blur", "--resume", "journal", *options, "in.tar", "out") == (0, 2)


# --- outputs with the times of their inputs -------------------------------------------------------

def test_an_output_with_copied_times_is_compared_by_its_bytes(box):
    """Results of another filter, of the same size and with the times of the inputs, counted as those of this one."""
    fill(box / "in", "a.png", "b.png")
    settings = ("-p", "-z0", "in", "out")
    assert summary("emboss", "--resume", "journal", *settings) == (2, 0)
    want = contents(box / "out")
    run("identity", *settings)
    assert summary("emboss", "--resume", "journal", *settings) == (2, 0)
    assert contents(box / "out") == want
    shutil.copytree("out", "copy")  # as on another machine
    shutil.rmtree("out")
    os.rename("copy", "out")
    assert summary("emboss", "--resume", "journal", *settings) == (0, 2)


# --- in place, where inode numbers end with the mount ---------------------------------------------

def constant(value, level=0):
    return png.encode(8, 8, [[value] * 8] * 8, png.GRAY, level=level)


def value_of(path):
    data = path.read_bytes()
    at = data.index(b"IDAT") + 4
    return zlib.decompress(data[at:at + int.from_bytes(data[at - 8:at - 4], "big")])[1]


NEW = 100


@needs_library
@pytest.mark.parametrize("preserve", ((), ("-p",)))
def test_in_place_no_image_is_filtered_twice_after_another_mount(box, preserve):
    """FAT, exFAT and sshfs: after a remount no image was known, and all were filtered again. Whatever is renamed, copied with its
    times, restored or moved by an hour in between, each image is filtered once, and each new one as well."""
    draw = random.Random(f"{SEED} {preserve}")
    clock = 10**18
    for turn in range(2 * ROUNDS):
        card = box / f"card{turn}"
        card.mkdir()
        coarse = draw.choice((0, 1, 2))
        for index in range(6):
            (card / f"{index}.png").write_bytes(constant(NEW))
        history = []
        for mount in range(1, 7):
            environ = {**os.environ, "LD_PRELOAD": LIBRARY, "CONV_FAULTS": f"inode={turn * 100 + mount} coarse={coarse}"}
            run("identity", "--bias=1", "-z0", *preserve, "--in-place", "-r", "--resume", f"journal{turn}", "-j2", card, env=environ)
            said = f"CONV_SEED={SEED} turn {turn}, coarse={coarse}, mount {mount}, {preserve}: {history}"
            assert {str(p): value_of(p) - NEW for p in card.rglob("*.png") if value_of(p) != NEW + 1} == {}, said
            clock += 10**10
            for _ in range(2):
                files = sorted(card.rglob("*.png"))
                one = draw.choice(files)
                history.append(change(draw.randrange(8), one, card, clock, draw))


def change(kind, one, card, clock, draw):
    """What happens to a card between two runs."""
    fresh = card / f"{draw.randrange(10**6)}.png"
    if kind == 0:
        one.rename(fresh)
    elif kind == 1:  # into a folder
        folder = card / f"folder{draw.randrange(3)}"
        folder.mkdir(exist_ok=True)
        one.rename(folder / fresh.name)
    elif kind == 2:
        shutil.copy2(one, fresh)
    elif kind == 3:  # restored from a backup without its time
        os.utime(one, ns=(clock, clock))
    elif kind == 4:  # FAT holds local times: another time zone
        for path in card.rglob("*.png"):
            os.utime(path, ns=(clock, path.stat().st_mtime_ns + 3600 * 10**9))
    elif kind == 5:
        fresh.write_bytes(constant(NEW))
    elif kind == 6:  # a new original of the same name, size and time
        time = one.stat().st_mtime_ns
        one.write_bytes(constant(NEW))
        os.utime(one, ns=(clock, time))
    else:
        one.unlink()
        fresh.write_bytes(constant(NEW))
    return f"{kind} {one.name}"


def test_in_place_a_journal_of_an_earlier_version_is_refused(box):
    """Its digests match nothing: all images would be filtered again. To a folder they are."""
    made = fill(box / "in", "a.png")
    earlier = "conv-journal 2\n" + "0" * 32 + " in/a.png\n"
    (box / "journal").write_text(earlier)
    assert "earlier version" in run("emboss", "--in-place", "--resume", "journal", "in", code=2).err
    assert "earlier version" in run("emboss", "--in-place", "--dry-run", "--resume", "journal", "in", code=2).err
    assert (box / "journal").read_text() == earlier and (box / "in" / "a.png").read_bytes() == made["a.png"].data
    assert summary("emboss", "--resume", "journal", "in", "out") == (1, 0)
    assert summary("emboss", "--resume", "journal", "in", "out") == (0, 1)
