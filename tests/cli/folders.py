# SPDX-License-Identifier: MIT
"""Folders of small images, made for tests, and what is in them afterwards."""
import os
import socket

import numpy as np

import definition
import images
import png_writer as png

EMBOSS = definition.builtins()["emboss"]


def image(seed=1, width=20, height=14, kind="rgb8", **options):
    return images.make(kind, np.random.default_rng(seed), width, height, **options)


def fill(folder, *names):
    """Makes PNG files of these names, each an image of its own; returns name -> Image."""
    made = {}
    for index, name in enumerate(names):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        made[name] = image(index + 1)
        path.write_bytes(made[name].data)
    return made


def fill_with_noise(folder, count):
    """`count` copies of an image that takes long to encode."""
    folder.mkdir()
    noise = np.random.default_rng(9).integers(0, 256, (256, 256 * 3)).tolist()
    (folder / "0000.png").write_bytes(png.encode(256, 256, noise, png.RGB, level=0))
    for index in range(1, count):
        os.link(folder / "0000.png", folder / f"{index:04}.png")


def tree(folder="."):
    """Every file and link below, hidden ones too."""
    return sorted(os.path.relpath(os.path.join(root, name), folder)
                  for root, _, names in os.walk(folder) for name in names)


def contents(folder):
    """name -> bytes of every file below."""
    return {name: (folder / name).read_bytes() for name in tree(folder) if (folder / name).is_file()}


def make_socket(path):
    with socket.socket(socket.AF_UNIX) as it:
        it.bind(os.path.relpath(path))


def is_embossed(path, source):
    return (images.read(path) == definition.apply_image(source.planes, source.alpha, [EMBOSS])).all()


BAD = {
    "empty.png": b"",
    "text.png": b"this is a text, not an image\n",
    "cut.png": image(3).data[:-30],
    "no_end.png": image(3).data[:-12],
    "crc.png": image(3).data[:20] + b"\xff" + image(3).data[21:],
    "jpeg.png": b"\xff\xd8\xff\xe0\0\x10JFIF\0" + bytes(64),
}
