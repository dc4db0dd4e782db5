# SPDX-License-Identifier: MIT
"""Random images of every kind with the planes that a decoder must return, and a small independent PNG reader."""
import struct
import zlib

import numpy as np

import png_writer as png


class Image:
    """A PNG file's bytes and its planes as an array (channels, height, width) of uint8 or uint16."""

    def __init__(self, data, planes, alpha):
        self.data, self.planes, self.alpha = data, planes, alpha


def texture(rng, channels, height, width, top):
    """Ramps that run up and down, with noise of changing strength: few sums of a filter leave the range."""
    y, x = np.mgrid[0:height, 0:width]
    out = np.empty((channels, height, width), np.int64)
    for c in range(channels):
        slope = rng.uniform(-2, 2, 2) * top / 255
        grain = rng.choice([2, 8, 40], (height // 5 + 1, width // 7 + 1)).repeat(5, 0).repeat(7, 1)[:height, :width]
        ramp = (rng.uniform(0, 1) + (slope[0] * x + slope[1] * y) / top) % 1
        value = top * (0.2 + 1.2 * np.minimum(ramp, 1 - ramp))
        out[c] = np.clip(value + rng.uniform(-1, 1, (height, width)) * grain * top / 255, 0, top)
    return out.astype(np.uint8 if top == 255 else np.uint16)


def rows_of(planes):
    return planes.transpose(1, 2, 0).reshape(planes.shape[1], -1).tolist()


COLOR_TYPES = {"gray": png.GRAY, "graya": png.GRAY_ALPHA, "rgb": png.RGB, "rgba": png.RGBA, "palette": png.PALETTE}


def make(kind, rng, width, height, **options):
    """An Image of one of KINDS; options go to the writer."""
    name, _, mark = kind.partition("+")
    color_name = name.rstrip("0123456789")
    color_type, depth = COLOR_TYPES[color_name], int(name[len(color_name):])
    options.setdefault("filters", "cycle")
    options["interlaced"] = mark == "adam7"
    top = (1 << depth) - 1
    transparency = None
    if color_type == png.PALETTE:
        size = min(1 << depth, 200)
        palette = rng.integers(0, 256, (size, 3))
        index = rng.integers(0, size, (1, height, width))
        planes = palette[index[0]].transpose(2, 0, 1).astype(np.uint8)
        if mark == "trns":
            values = rng.integers(0, 256, size - size // 4)  # a tRNS may be shorter than the palette
            transparency = bytes(values.tolist())
            full = np.concatenate([values, np.full(size // 4, 255)])
            planes = np.concatenate([planes, full[index].astype(np.uint8)])
        data = png.encode(width, height, rows_of(index), color_type, depth, palette=palette.tolist(),
                          transparency=transparency, **options)
        return Image(data, planes, mark == "trns")
    if depth < 8:
        samples = rng.integers(0, top + 1, (png.CHANNELS[color_type], height, width))
        planes = (samples * (255 // top)).astype(np.uint8)
    else:
        samples = planes = texture(rng, png.CHANNELS[color_type], height, width, top)
    alpha = color_type in (png.GRAY_ALPHA, png.RGBA)
    if mark == "trns":
        key = samples[:, height // 2, width // 2].astype(np.int64)
        transparency = struct.pack(f">{len(key)}H", *key.tolist())
        opaque = (samples != key[:, None, None]).any(0)
        planes = np.concatenate([planes, np.where(opaque, 65535 if depth == 16 else 255, 0)[None].astype(planes.dtype)])
        alpha = True
    return Image(png.encode(width, height, rows_of(samples), color_type, depth, transparency=transparency, **options),
                   planes, alpha)


KINDS = ("gray1", "gray2", "gray4", "gray8", "gray16", "graya8", "graya16", "rgb8", "rgb16", "rgba8", "rgba16",
         "palette1", "palette2", "palette4", "palette8", "palette8+trns", "palette2+trns", "gray8+trns", "gray16+trns",
         "gray4+trns", "rgb8+trns", "rgb16+trns", "gray1+adam7", "gray16+adam7", "rgb8+adam7", "rgba8+adam7",
         "palette4+adam7")


def chunks(data):
    """(type, content) of each chunk; every CRC is checked and the file must end with IEND."""
    assert data[:8] == png.SIGNATURE, "not a PNG"
    out, at = [], 8
    while at < len(data):
        size, kind = struct.unpack_from(">I4s", data, at)
        content = data[at + 8:at + 8 + size]
        assert data[at + 8 + size:at + 12 + size] == struct.pack(">I", zlib.crc32(kind + content)), f"CRC of {kind}"
        out.append((kind, content))
        at += 12 + size
    assert out[-1][0] == b"IEND", "cut short"
    return out


def _unfilter(kind, line, above, distance):
    if kind == 0:
        return line
    if kind == 2:
        return (np.frombuffer(line, np.uint8) + np.frombuffer(above, np.uint8)).tobytes()
    if kind == 1:
        padded = np.frombuffer(line + bytes(-len(line) % distance), np.uint8).reshape(-1, distance)
        return np.cumsum(padded, 0, dtype=np.uint8).tobytes()[:len(line)]
    out = bytearray(distance) + bytearray(line)
    up = bytes(distance) + above
    for i in range(distance, len(out)):
        a, b, c = out[i - distance], up[i], up[i - distance]
        if kind == 3:
            guess = (a + b) >> 1
        else:
            pa, pb, pc = abs(b - c), abs(a - c), abs(a + b - c - c)
            guess = a if pa <= pb and pa <= pc else b if pb <= pc else c
        out[i] = (out[i] + guess) & 255
    return bytes(out[distance:])


def decode(data):
    """Planes of a PNG as the program writes it: 8 or 16 bits, no palette, not interlaced."""
    parts = chunks(data)
    width, height, depth, color_type, _, _, interlaced = struct.unpack(">IIBBBBB", parts[0][1])
    assert depth in (8, 16) and color_type != png.PALETTE and not interlaced
    channels = png.CHANNELS[color_type]
    distance = channels * depth // 8
    size = width * distance
    stream = zlib.decompress(b"".join(content for kind, content in parts if kind == b"IDAT"))
    assert len(stream) == (size + 1) * height
    lines, above = [], bytes(size)
    for y in range(height):
        at = y * (size + 1)
        above = _unfilter(stream[at], stream[at + 1:at + 1 + size], above, distance)
        lines.append(above)
    pixels = np.frombuffer(b"".join(lines), ">u2" if depth == 16 else np.uint8)
    return pixels.reshape(height, width, channels).transpose(2, 0, 1).astype(np.uint16 if depth == 16 else np.uint8)


def read(path):
    with open(path, "rb") as file:
        return decode(file.read())
