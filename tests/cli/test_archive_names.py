# SPDX-License-Identifier: MIT
"""Names and kinds of members that conv writes, as GNU tar, bsdtar, unzip and Python's modules read them."""
import os
import random
import shutil
import stat
import subprocess
import tarfile
import zipfile

import pytest

import tars
from program import HAS_JPEG, run

ROUNDS = int(os.environ.get("CONV_ROUNDS", 8))
ALPHABET = ("a", "Z", "9", "_", " ", "ä", "字")
LENGTHS = (1, 2, 60, 98, 99, 100, 101, 102, 154, 155, 156, 157, 253, 254, 255, 256, 257, 258, 300, 1000, 2000)


def path_of(rng, length):
    """A path of about that many bytes, as good as unique."""
    text = "%06x" % rng.randrange(1 << 24)
    while len(text.encode()) < length:
        text += "/" if text[-1] != "/" and rng.random() < 0.05 or len(text) - text.rfind("/") > 80 else rng.choice(ALPHABET)
    return text.rstrip("/ ") + "x"


def members_of(rng, bytes_too):
    """(name, type, target or content) of random members of every kind, names and targets of any length."""
    found = [(path_of(rng, rng.choice(LENGTHS)), tarfile.REGTYPE, b"%d" % rng.randrange(9)) for _ in range(rng.randint(1, 4))]
    for _ in range(rng.randint(2, 10)):
        name, kind = path_of(rng, rng.choice(LENGTHS)), rng.choice((tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE))
        if bytes_too and rng.random() < 0.2:
            name += "\udcff\udc80"
        value = {tarfile.REGTYPE: b"%d" % rng.randrange(1 << 30), tarfile.DIRTYPE: "", tarfile.SYMTYPE: "../" + path_of(rng, rng.choice(LENGTHS)),
                 tarfile.LNKTYPE: rng.choice([m[0] for m in found if m[1] == tarfile.REGTYPE])}[kind]
        found.append((name, kind, value))
    return found


def make(path, members, rng):
    tars.make(path, [(name, value if kind == tarfile.REGTYPE else b"", {"type": kind, "linkname": value if isinstance(value, str) else ""})
                     for name, kind, value in members], rng.choice((tarfile.GNU_FORMAT, tarfile.PAX_FORMAT)))


def listed(path, *names):
    """Members in the order of the archive, as Python reads them."""
    with tarfile.open(path) as archive:
        return [(m.name, m.type, archive.extractfile(m).read() if m.isreg() else m.linkname) for m in archive]


def extracted(folder):
    """The tree below a folder: path to content, target, or None for a folder; and which files are one inode."""
    found, inodes = {}, {}
    for base, folders, files in os.walk(folder):
        for name in folders + files:
            path = os.path.join(base, name)
            info = os.lstat(path)
            kind = stat.S_IFMT(info.st_mode)
            found[os.path.relpath(path, folder)] = (os.readlink(path) if kind == stat.S_IFLNK else None if kind == stat.S_IFDIR
                                                    else open(path, "rb").read())
            if kind == stat.S_IFREG:
                inodes.setdefault(info.st_ino, set()).add(os.path.relpath(path, folder))
    return found, sorted(map(sorted, inodes.values()))


@pytest.mark.parametrize("target", ("out.tar", "out.tar.gz"))
def test_names_of_any_length_of_every_kind(box, target):
    """A link with a target of more than 100 bytes and a name of 101 to 255 lost the first folders of its name."""
    for seed in range(ROUNDS):
        rng = random.Random(seed)
        members = members_of(rng, True)
        make("in.tar", members, rng)
        run("identity", "-q", "in.tar", target)
        assert listed(target) == members, seed
        with tarfile.open("plain.tar", "w", format=tarfile.PAX_FORMAT) as archive:
            for name, kind, value in members:
                tars.add(archive, name, value if kind == tarfile.REGTYPE else b"", type=kind, mode=0o755,
                         linkname=value if isinstance(value, str) else "")
        for judge in ("tar", "bsdtar"):
            if not shutil.which(judge):
                continue
            trees = []
            for path in ("plain.tar", target):
                shutil.rmtree("x", ignore_errors=True)
                os.mkdir("x")
                subprocess.run([judge, "-xf", path, "-C", "x"], check=True, stderr=subprocess.DEVNULL, env={**os.environ, "LC_ALL": "C.UTF-8"})
                trees.append(extracted("x"))
            assert trees[0] == trees[1], (seed, judge)


def test_what_a_zip_file_cannot_hold_is_one_members_failure(box):
    """A hard link ended the run without any output. Links that zip files cannot hold are reported, the rest is written."""
    for seed in range(ROUNDS):
        rng = random.Random(seed)
        members = members_of(rng, False)
        make("in.tar", members, rng)
        hard = [m[0] for m in members if m[1] == tarfile.LNKTYPE]
        result = run("identity", "in.tar", "out.zip", code=1 if hard else 0)
        assert result.err.count("a zip file cannot hold a hard link") == len(hard), seed
        with zipfile.ZipFile("out.zip") as archive:
            assert archive.testzip() is None
            found = [(i.filename.rstrip("/"), archive.read(i)) for i in archive.infolist()]
        assert found == [(name, value if isinstance(value, bytes) else value.encode()) for name, kind, value in members
                         if kind != tarfile.LNKTYPE], seed
        subprocess.run(["unzip", "-tqq", "out.zip"], check=True)


@pytest.mark.parametrize("options", (["--to", "jpg"], ["--output-type", "f32"]))
def test_links_through_folders_and_links(box, options):
    """Links lead to a renamed member in whatever order they come, through other links and links to folders."""
    if "jpg" in options and not HAS_JPEG:
        pytest.skip("built without libjpeg-turbo")
    links = [("cur", "v/w"), ("latest", "cur"), ("one.png", "latest/a.png"), ("v/two.png", "../cur/a.png"),
             ("v/three.png", "./two.png"), ("v/w/four.png", "../../one.png"), ("five", "v/three.png"), ("./six", "v//w/../w/a.png")]
    for seed in range(ROUNDS):
        rng = random.Random(seed)
        members = [("v/w/a.png", tars.PNGS[0], {})] + [(name, b"", {"type": tarfile.SYMTYPE, "linkname": link}) for name, link in links]
        rng.shuffle(members)
        at = [name for name, *_ in members].index("v/w/a.png")
        members.insert(rng.randint(at + 1, len(members)), ("v/hard", b"", {"type": tarfile.LNKTYPE, "linkname": "./v/w/a.png"}))
        tars.make("in.tar", members)
        run("identity", "-q", *options, "in.tar", "out.tar")
        shutil.rmtree("x", ignore_errors=True)
        os.mkdir("x")
        subprocess.run(["tar", "-xf", "out.tar", "-C", "x"], check=True)
        target = os.path.realpath("x/v/w/" + ("a.jpg" if "jpg" in options else "a.npy"))
        assert {name: os.path.realpath("x/" + name) for name, _ in links if not os.path.isdir("x/" + name)} == {
            name: target for name, _ in links[2:]}, seed
        assert os.path.samefile("x/v/hard", target)
