# SPDX-License-Identifier: MIT
"""What counts as done with --resume and -u follows from what decides the result: random settings, inputs, archives and outputs.

Judge: a run without a journal. CONV_ROUNDS repeats the random tests, CONV_SEED begins them elsewhere.
"""
import io
import os
import random
import shutil
import subprocess
import tarfile
import zlib

import numpy as np
import pytest

import png_writer as png
import program
from faulty import LIBRARY, needs_library
from folders import fill, image, tree
from program import run

ROUNDS = int(os.environ.get("CONV_ROUNDS", "1"))
SEED = int(os.environ.get("CONV_SEED") or random.SystemRandom().randrange(10**6))


def contents(folder):
    return {name: (folder / name).read_bytes() for name in tree(folder)}


def summary(*args, code=0, **options):
    totals = run(*args, "--json", code=code, **options).records()[-1]
    return totals["done"], totals["skipped"]


# --- random settings ------------------------------------------------------------------------------

def number(draw, low, high):
    """(text, another text for the same number)"""
    text = f"{draw.uniform(low, high):.{draw.randint(1, 3)}f}"
    return text, draw.choice((text + "0", f"{text}e0", "0" + text))


def random_filter(draw):
    kind = draw.randrange(6)
    if kind == 0:
        name = draw.choice(("emboss", "blur", "sharpen", "sobel", "identity", "emboss5"))
        return name, name
    if kind == 1:
        return tuple(f"gaussian:{text}" for text in number(draw, 0.5, 4))
    if kind == 2:
        parts = [number(draw, 0.5, 3), number(draw, 0.2, 2), number(draw, 0, 9)]
        return tuple("unsharp:" + ",".join(part[i] for part in parts) for i in range(2))
    if kind == 3:
        one, other = zip(*(random_filter(draw) for _ in range(2)))
        return ",".join(one), ",".join(other)
    if kind == 4:
        return "one.mat", "./one.mat"
    return tuple(f"box:{text}" for text in ("3", "03"))


def border(draw):
    value = draw.randrange(256)
    return draw.choice(((["--border", "edge"], ["--border=replicate"]), (["--border", "wrap"],) * 2,
                        ([f"--border=constant:{value}"], [f"--border=constant:0{value}"])))


EXTRA = (
    border,
    lambda draw: tuple([f"--bias={text}"] for text in number(draw, 1, 9)),
    lambda draw: tuple([f"--divisor={text}"] for text in number(draw, 1, 9)),
    lambda draw: (["--flip"],) * 2,
    lambda draw: ([f"--alpha={draw.choice(('filter', 'premultiply'))}"],) * 2,
    lambda draw: (["--gray"],) * 2,
    lambda draw: (lambda share: ([f"--mix={share}%"], [f"--mix={share}.0%"]))(draw.randrange(101)),
    lambda draw: (lambda x: ([f"--roi=9x9+{x}+1"], [f"--roi=09x9+0{x}+01"]))(draw.randrange(5)),
    lambda draw: ([f"--output-type={draw.choice(('u8', 'u16'))}"],) * 2,
    lambda draw: (["--strip"],) * 2,
    lambda draw: (["-p"], ["--preserve"]),
    lambda draw: (lambda level: ([f"-z{level}"], [f"--compress=0{level}"]))(draw.randrange(10)),
    lambda draw: ([f"--encoder={draw.choice(('libpng', 'stb'))}"],) * 2,
    lambda draw: (["--encode-on=cpu"], ["--reproducible"]),
)


def random_settings(draw):
    """Two spellings of the same settings."""
    filters = random_filter(draw)
    extra = [choice(draw) for choice in draw.sample(EXTRA, draw.randrange(4))]
    # -z0: outputs of equal size
    store = ["-z0"] if draw.randrange(2) and not any("-z" in one[0] for one, _ in extra) else []
    shuffled = draw.sample(extra, len(extra))
    return [[filters[i], *store, *(word for part in parts for word in part[i])] for i, parts in enumerate((extra, shuffled))]


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


@pytest.mark.parametrize("source", ("folder", "tar", "pipe"))
def test_what_is_skipped_is_what_would_be_written(box, source):
    """A run with a journal leaves what a run without one writes, whatever ran before and was changed since; the same settings in other
    words do nothing."""
    draw = random.Random(f"{SEED} {source}")
    made = {"a.png": stored(1), "b.png": stored(2), "c.png": image(3, kind="rgba8").data, "d.png": image(4, kind="rgb16").data}
    (box / "in").mkdir()
    (box / "one.mat").write_text("1 1 1 0\n1\n")
    where = {"folder": "in", "tar": "in.tar", "pipe": "-"}[source]

    def write():
        for name, data in made.items():
            if not (box / "in" / name).exists() or (box / "in" / name).read_bytes() != data:
                (box / "in" / name).write_bytes(data)
        if source != "folder":
            pack(box / "in.tar", made, 10**9)

    def process(settings, *args):
        stream = (box / "in.tar").read_bytes() if source == "pipe" else b""
        words = [program.BINARY, *settings, "--json", *args]
        done = subprocess.run([*program.RUNNER, *words], input=stream, capture_output=True, timeout=program.TIMEOUT)
        return done.returncode, done

    write()
    before = None
    spelled = equal = 0
    for turn in range(16 * ROUNDS):
        said = f"CONV_SEED={SEED} {source}, turn {turn}: {before}"
        change = draw.randrange(6)
        if before and change == 0:  # other words, nothing else
            code, done = process(before[1], "--resume", "journal", where, "out")
            totals = run_totals(done)
            assert code == 0 and totals["done"] == 0 and totals["skipped"] == len(made), f"{said} {done.stderr}"
            spelled += 1
            continue
        if change == 1:
            made[draw.choice("ab") + ".png"] = stored(draw.randrange(1000))  # equal sizes, and equal times in the archive
            write()
        elif change == 2 and before:
            shutil.copy2(box / "out" / "a.png", box / "out" / "b.png")
        elif change == 3 and before:
            (box / "out" / "b.png").unlink()
        elif change == 4 and before:  # by a run without the journal
            process(random_settings(draw)[0], where, "out")
        settings = random_settings(draw) if not before or draw.randrange(3) else before
        said += f" -> {settings}, change {change}"
        shutil.rmtree(box / "want", ignore_errors=True)
        code, done = process(settings[0], where, "want")
        if code != 0:  # these settings exclude each other, or fit no image of these
            before = None
            continue
        got, done = process(settings[0], "--resume", "journal", where, "out")
        assert got == 0, f"{said} {done.stderr}"
        assert contents(box / "out") == contents(box / "want"), said
        equal += run_totals(done)["skipped"] > 0
        before = settings
    assert ROUNDS < 3 or (spelled and equal), "nothing was ever skipped"


def run_totals(done):
    return program.json.loads(done.stdout.splitlines()[-1])


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
