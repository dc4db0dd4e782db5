# SPDX-License-Identifier: MIT
"""Sizes of files by level (-z): none is larger than at a lower level by more than 1 %, whatever the kind of image."""
import glob
import os
import shutil
import struct
import zlib

import numpy as np

import images
import png_writer as png
from program import run

SEED = int(os.environ.get("CONV_SEED", "36"))
ROUNDS = int(os.environ.get("CONV_ROUNDS", "1"))
MORE = 1.01
FEW = 24  # bytes: of a file of some hundred bytes that is more than 1 %


def save(path, planes):
    """Planes (channels, height, width), stored without filters."""
    channels, height, width = planes.shape
    depth = 8 * planes.dtype.itemsize
    rows = planes.transpose(1, 2, 0).astype(">u2" if depth == 16 else np.uint8).tobytes()
    rows = np.frombuffer(rows, np.uint8).reshape(height, -1)
    color = {1: png.GRAY, 2: png.GRAY_ALPHA, 3: png.RGB, 4: png.RGBA}[channels]
    with open(path, "wb") as file:
        file.write(png.SIGNATURE + png.chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, color, 0, 0, 0))
                   + png.chunk(b"IDAT", zlib.compress(np.pad(rows, ((0, 0), (1, 0))).tobytes(), 1)) + png.chunk(b"IEND"))


def diagram(rng, height, width, colours, shades=False):
    """Boxes with outlines, lines of text, and gradients in some of the boxes."""
    out = np.full((height, width, 3), 255, np.uint8)
    palette = rng.integers(0, 256, (colours, 3), dtype=np.uint8)
    glyphs = rng.random((26, 12, 8)) < 0.35
    for box in range(height * width // 20000 + 4):
        y, x = rng.integers(0, height), rng.integers(0, width)
        part = out[y:y + rng.integers(8, height // 3), x:x + rng.integers(8, width // 3)]
        part[:] = np.linspace(0, 255, part.shape[1]).astype(np.uint8)[:, None] if shades and box % 3 == 0 else palette[rng.integers(colours)]
        part[:1], part[:, :1] = 0, 0
        y, x = rng.integers(0, height - 12), rng.integers(0, width - 8)
        for at in range(x, min(x + 180, width - 8), 9):
            out[y:y + 12, at:at + 8][glyphs[rng.integers(26)]] = rng.integers(0, 4) * 40 if shades else 0
    return out.transpose(2, 0, 1)


def kinds(rng, height, width):
    """name -> planes: one image of each kind."""
    y, x = np.mgrid[0:height, 0:width]
    wave = (np.sin(x / rng.uniform(40, 90)) + np.cos(y / rng.uniform(40, 90)) + 2) / 4
    grid = np.array([[0, 8, 2, 10], [12, 4, 14, 6], [3, 11, 1, 9], [15, 7, 13, 5]]) / 16
    palette = np.linspace(0, 255, 16).astype(np.uint8)
    ordered = np.clip((wave * 15 + np.tile(grid, (height // 4 + 1, width // 4 + 1))[:height, :width]).astype(int), 0, 15)
    grain = np.clip(np.rint(wave * 15 + rng.random(x.shape) - 0.5).astype(int), 0, 15)
    disc = (x - width / 2) ** 2 + (y - height / 2) ** 2 < (min(x.shape) / 3) ** 2
    flat, shaded = diagram(rng, height, width, 6), diagram(rng, height, width, 40, True)
    tile = rng.integers(0, 256, (3, 16, 16), dtype=np.uint8)
    return {
        "diagram": flat, "shaded": shaded, "gray": flat[:1], "deep": flat.astype(np.uint16) * 257,
        "icon": np.concatenate([shaded * disc, disc[None] * 255]).astype(np.uint8),
        "mask": np.stack([wave * 255 * disc, disc * 255]).astype(np.uint8),
        "ordered": np.stack([palette[ordered], palette[ordered * 7 % 16], palette[ordered * 3 % 16]]),
        "dithered": np.stack([palette[grain], palette[grain * 7 % 16], palette[grain * 3 % 16]]),
        "gradient": np.stack([x * 255 // width, y * 255 // height, (x + y) % 256]).astype(np.uint8),
        "smooth": (np.stack([wave, wave ** 2, 1 - wave]) * 255).astype(np.uint8),
        "grain16": (wave * 60000 + rng.normal(0, 50, x.shape)).clip(0, 65535).astype(np.uint16)[None],
        "dots": ((rng.random(x.shape) < 0.03) * 255).astype(np.uint8)[None],
        "tiles": np.tile(tile, (1, height // 16 + 1, width // 16 + 1))[:, :height, :width],
        "noise": rng.integers(0, 256, (3, height, width), dtype=np.uint8),
        "texture": images.texture(rng, 3, height, width, 255),
    }


def sizes(folder, level):
    records = run("identity", "--json", f"-z{level}", folder, f"out{level}").records()
    return {os.path.basename(r["input"]): r["bytes_out"] for r in records if r["type"] == "file"}


def check(folder, levels):
    least, wrong = sizes(folder, levels[0]), []
    for level in levels[1:]:
        for name, size in sizes(folder, level).items():
            if size > MORE * least[name] + FEW:
                wrong.append(f"{name}: level {level} {size}, a lower one {least[name]}")
            least[name] = min(least[name], size)
    assert not wrong, "\n".join(wrong)


# Level 9 made a diagram 41 % larger than level 8, level 4 whole sets of icons larger than level 3.
def test_no_level_is_larger_than_a_lower_one(box):
    print(f"CONV_SEED={SEED}")
    rng, made = np.random.default_rng(SEED), {}
    os.makedirs("in")
    for turn in range(ROUNDS):
        for name, planes in kinds(rng, int(rng.integers(90, 140)), int(rng.integers(90, 260))).items():
            made[f"{name}{turn}.png"] = planes
            save(f"in/{name}{turn}.png", planes)
    for path in sorted(glob.glob(os.path.join(os.environ.get("CONV_PHOTOS", "/nowhere"), "*.png")))[:1]:
        shutil.copy(path, "in/photo.png")
    levels = range(13)
    check("in", levels)
    for name, planes in made.items():
        level = levels[rng.integers(len(levels))]
        assert (images.read(f"out{level}/{name}") == planes).all(), (name, level)


# Straight gradients: level 6 made twice as large a file as level 3.
def test_no_level_of_a_regular_image_is_larger(box):
    rng = np.random.default_rng(SEED)
    os.makedirs("in")
    for turn in range(4 * ROUNDS):
        height, width = rng.integers(150, 450, 2)
        y, x = np.mgrid[0:height, 0:width]
        a, b = rng.integers(1, 9, 2)
        ramp = (x * a + y * b) * 255 // (width * a + height * b)
        save(f"in/gray{turn}.png", ramp.astype(np.uint8)[None])
        save(f"in/deep{turn}.png", ((x * a * 37 + y * b * 91) % 65536).astype(np.uint16)[None])
        save(f"in/colour{turn}.png", np.stack([ramp, x * 255 // width, (y * b + x) * 255 // (height * b + width)]).astype(np.uint8))
    check("in", range(2, 10))


# Large images are compressed in bands, after trials on samples.
def test_no_level_of_large_images_is_larger(box):
    rng = np.random.default_rng(SEED)
    os.makedirs("in")
    save("in/shaded.png", diagram(rng, 1500, 2100, 40, True))
    check("in", range(1, 10))
