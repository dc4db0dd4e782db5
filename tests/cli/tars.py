# SPDX-License-Identifier: MIT
"""Tar files of small images, made for tests, and what is in them."""
import io
import os
import tarfile

import numpy as np

import images
from program import run


RNG = np.random.default_rng(19)
PNGS = [images.make(kind, RNG, width, height).data for kind, width, height in
        (("rgb8", 40, 30), ("gray8", 7, 5), ("rgba8", 64, 48), ("gray16", 33, 9), ("rgb8", 300, 200))]


def add(archive, name, data=b"", **fields):
    info = tarfile.TarInfo(name)
    info.size = len(data)
    info.mtime, info.mode, info.uid, info.gid, info.uname, info.gname = 1700000000, 0o640, 1000, 100, "user", "group"
    for field, value in fields.items():
        setattr(info, field, value)
    archive.addfile(info, io.BytesIO(data))


def make(path, members, format=tarfile.USTAR_FORMAT):
    """A tar archive of (name, bytes) pairs."""
    with tarfile.open(path, "w", format=format) as archive:
        for name, data, *fields in members:
            add(archive, name, data, **(fields[0] if fields else {}))


def samples(count):
    """Samples as WebDataset lays them out: each an image and a label."""
    for i in range(count):
        yield f"{i:06}.png", PNGS[i % len(PNGS)]
        yield f"{i:06}.cls", b"%d" % i


def read(path):
    with tarfile.open(path) as archive:
        return [(m.name, archive.extractfile(m).read() if m.isreg() else None) for m in archive]


def filtered(box, members):
    """The outputs of the same images as files, by name."""
    folder = box / "files"
    folder.mkdir(exist_ok=True)
    names = [name for name, *_ in members if name.endswith(".png")]
    for i, (name, data, *_) in enumerate((m for m in members if m[0].endswith(".png"))):
        (folder / f"{i}.png").write_bytes(data)
    run("emboss", folder, box / "reference")
    return {name: (box / "reference" / f"{i}.png").read_bytes() for i, name in enumerate(names)}


def expected(box, members):
    pixels = filtered(box, members)
    return [(name, pixels.get(name, data)) for name, data, *_ in members]


def temporaries(folder):
    return [name for name in os.listdir(folder) if name.startswith(".conv-")]
