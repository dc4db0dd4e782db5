# SPDX-License-Identifier: MIT
"""Writes PNG files of every kind with Python's standard library alone.

Shared by tools and the command-line tests, so that neither trusts the PNG library that is under test.
"""
import struct
import zlib

SIGNATURE = b"\x89PNG\r\n\x1a\n"
GRAY, RGB, PALETTE, GRAY_ALPHA, RGBA = 0, 2, 3, 4, 6
CHANNELS = {GRAY: 1, RGB: 3, PALETTE: 1, GRAY_ALPHA: 2, RGBA: 4}
# x0, y0, dx, dy of the seven passes.
ADAM7 = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2))


def chunk(kind, data=b""):
    """One chunk with length and CRC; `kind` is 4 bytes such as b"tEXt"."""
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def _pack_row(row, bit_depth):
    if bit_depth == 8:
        return bytes(row)
    if bit_depth == 16:
        return struct.pack(">%dH" % len(row), *row)
    per_byte = 8 // bit_depth
    packed = bytearray((len(row) + per_byte - 1) // per_byte)
    for i, value in enumerate(row):
        packed[i // per_byte] |= value << (8 - bit_depth * (i % per_byte + 1))
    return bytes(packed)


def _filter_row(kind, line, above, distance):
    if kind == 0:
        return line
    left = bytes(distance) + line[: len(line) - distance]
    if kind == 1:
        return bytes((x - a) & 255 for x, a in zip(line, left))
    if kind == 2:
        return bytes((x - b) & 255 for x, b in zip(line, above))
    if kind == 3:
        return bytes((x - (a + b >> 1)) & 255 for x, a, b in zip(line, left, above))
    corner = bytes(distance) + above[: len(line) - distance]
    out = bytearray(len(line))
    for i, (x, a, b, c) in enumerate(zip(line, left, above, corner)):
        pa, pb, pc = abs(b - c), abs(a - c), abs(a + b - c - c)
        out[i] = (x - (a if pa <= pb and pa <= pc else b if pb <= pc else c)) & 255
    return bytes(out)


def _filter_rows(rows, bit_depth, channels, strategy):
    """The filtered stream of one pass. `strategy`: 0 to 4 for every row, "cycle", or "adaptive"."""
    distance = max(1, bit_depth * channels // 8)
    out = []
    above = None
    for y, row in enumerate(rows):
        line = _pack_row(row, bit_depth)
        above = bytes(len(line)) if above is None else above
        if strategy == "adaptive":
            tries = ((k, _filter_row(k, line, above, distance)) for k in range(5))
            kind, best = min(tries, key=lambda t: sum(v if v < 128 else 256 - v for v in t[1]))
        else:
            kind = y % 5 if strategy == "cycle" else strategy
            best = _filter_row(kind, line, above, distance)
        out.append(bytes((kind,)) + best)
        above = line
    return b"".join(out)


def encode(width, height, rows, color_type, bit_depth=8, palette=None, transparency=None,
           interlaced=False, chunks=(), late_chunks=(), filters=0, level=9):
    """The bytes of a PNG.

    rows          height sequences of width * channels integers (palette: indices)
    palette       sequence of (r, g, b); `transparency` is tRNS's bytes
    chunks        complete chunks between IHDR and PLTE; `late_chunks` between IDAT and IEND
    """
    channels = CHANNELS[color_type]
    if interlaced:
        stream = b""
        for x0, y0, dx, dy in ADAM7:
            part = [[row[x * channels + k] for x in range(x0, width, dx) for k in range(channels)]
                    for row in rows[y0::dy]]
            if x0 < width:
                stream += _filter_rows(part, bit_depth, channels, filters)
    else:
        stream = _filter_rows(rows, bit_depth, channels, filters)
    out = [SIGNATURE,
           chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, bit_depth, color_type, 0, 0, interlaced)),
           *chunks]
    if palette is not None:
        out.append(chunk(b"PLTE", b"".join(bytes(entry) for entry in palette)))
    if transparency is not None:
        out.append(chunk(b"tRNS", transparency))
    out += [chunk(b"IDAT", zlib.compress(stream, level)), *late_chunks, chunk(b"IEND")]
    return b"".join(out)


def write(path, *args, **kwargs):
    """Like encode(), into a file."""
    with open(path, "wb") as file:
        file.write(encode(*args, **kwargs))
