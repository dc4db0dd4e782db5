# SPDX-License-Identifier: MIT
"""Images that no encoder would write.

REFUSED: name -> bytes, the message about them; ACCEPTED: name -> bytes, planes. Each is a few lines, so that a reader
sees what is wrong with it.
"""
import struct
import zlib

import numpy as np

import png_writer as png
from program import HAS_JPEG

SIDE = 4
PLANES = np.arange(SIDE * SIDE * 3, dtype=np.uint8).reshape(SIDE, SIDE, 3).transpose(2, 0, 1) * 5
ROWS = b"".join(b"\0" + PLANES.transpose(1, 2, 0)[y].tobytes() for y in range(SIDE))  # filter 0 before each
STREAM = zlib.compress(ROWS)
IEND = png.chunk(b"IEND")
PALETTE = png.chunk(b"PLTE", bytes(range(12)))
TEXT = png.chunk(b"tEXt", b"a\0b")
INDICES = zlib.compress((b"\0" + bytes((0, 1, 2, 3))) * SIDE)


def head(width=SIDE, height=SIDE, depth=8, color_type=png.RGB, interlaced=0):
    fields = struct.pack(">IIBBBBB", width, height, depth, color_type, 0, 0, interlaced)
    return png.SIGNATURE + png.chunk(b"IHDR", fields)


def altered(field, value, color_type=png.RGB):
    """The head with another byte at a place of IHDR."""
    fields = bytearray(head(color_type=color_type)[16:29])
    fields[field] = value
    return png.SIGNATURE + png.chunk(b"IHDR", bytes(fields))


def idat(data=STREAM):
    return png.chunk(b"IDAT", data)


def zeros(count):
    """A zlib stream of zeros at the best possible ratio, made without compressing them all."""
    block = 1 << 20
    squeeze = zlib.compressobj(9)
    start = squeeze.compress(bytes(block)) + squeeze.flush(zlib.Z_FULL_FLUSH)  # no match crosses this point
    again = squeeze.compress(bytes(block)) + squeeze.flush(zlib.Z_FULL_FLUSH)
    left = squeeze.compress(bytes(count % block)) + squeeze.flush()
    adler = struct.pack(">I", (count % 65521) << 16 | 1)
    if count < block:
        return zlib.compress(bytes(count), 9)
    return start + again * (count // block - 1) + left[:-4] + adler


def rows_and_zeros(mebibytes, rows=ROWS):
    """The rows followed by zeros, as one zlib stream that is well compressed except at its end."""
    squeeze = zlib.compressobj(9)
    start = squeeze.compress(rows + bytes(1 << 20)) + squeeze.flush(zlib.Z_FULL_FLUSH)
    return start + (squeeze.compress(bytes(1 << 20)) + squeeze.flush(zlib.Z_FULL_FLUSH)) * (mebibytes - 1)


def bits(*fields):
    """A zlib stream without Adler-32 from (value, width) as RFC 1951 packs them; Huffman codes come reversed."""
    value = at = 0
    for field, width in fields:
        value |= field << at
        at += width
    return b"\x78\x01" + value.to_bytes((at + 7) // 8, "little")


def code(value, width):
    return int(f"{value:0{width}b}"[::-1], 2), width


FIXED = (1, 1), (1, 2)  # the last block, fixed codes
LITERAL_0, LENGTH_3, DISTANCE_4 = code(0x30, 8), code(1, 7), code(3, 5)


def broken(chunk):
    """The chunk with a wrong CRC."""
    return chunk[:-1] + bytes((chunk[-1] ^ 1,))


def claims(kind, length, data=b"data"):
    """A chunk that says it is longer than it is."""
    return struct.pack(">I", length) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def spread(stream, empty):
    """Each byte of the stream in an IDAT of its own, with `empty` IDATs without bytes before each."""
    return b"".join(idat(b"") * empty + idat(stream[i:i + 1]) for i in range(len(stream)))


MOST = 2**31 - 1

REFUSED = {
    # more pixels than the data contain
    "moon": (head(MOST, MOST) + idat() + IEND, "more than the limit of"),
    "moon_rgba16": (head(MOST, MOST, 16, png.RGBA) + idat() + IEND, "more than the limit of"),
    "beyond_the_moon": (head(2**32 - 1, 1) + idat() + IEND, "bad header"),
    "no_width": (head(0, 5) + idat() + IEND, "bad header"),
    "zeros_20000": (head(20000, 20000) + idat(zeros(20000 * 60001)) + IEND, "more than the limit of"),
    "promise": (head(1 << 14, 1 << 14, 16, png.RGBA) + idat() + IEND, "too little image data"),
    "promise_wide": (head(1 << 28, 1, 16, png.RGBA) + idat() + IEND, "too little image data"),
    "promise_high": (head(1, 1 << 28, 1, png.GRAY) + idat(bytes(1 << 18)) + IEND, "too little image data"),
    "promise_interlaced": (head(1 << 14, 1 << 14, 8, png.RGB, 1) + idat() + IEND, "too little image data"),
    "no_data": (head() + idat(b"") + IEND, "too little image data"),
    # headers that are none
    **{f"header_{field}_{value}": (altered(field, value) + idat() + IEND, f"bad header: {said}") for field, value, said in (
        (0, 0x80, f"{2**31 + SIDE} x {SIDE} pixels"), (3, 0, f"0 x {SIDE} pixels"), (7, 0, f"{SIDE} x 0 pixels"),
        *((9, color_type, f"colour type {color_type} with 8 bits") for color_type in (1, 5, 7, 255)),
        (10, 1, "unknown method"), (11, 64, "unknown method"), (12, 2, "unknown method"))},
    **{f"depth_{depth}": (altered(8, depth, png.GRAY) + idat() + IEND, f"bad header: colour type 0 with {depth} bits") for depth in (0, 3, 32)},
    # chunks
    "crc_ihdr": (broken(head()) + idat() + IEND, "wrong CRC"),
    "crc_plte": (head(color_type=png.PALETTE) + broken(PALETTE) + idat(INDICES) + IEND, "CRC"),
    "crc_idat": (head() + broken(idat()) + IEND, "CRC"),
    "crc_iend": (head() + idat() + broken(IEND), "CRC"),
    "no_plte": (head(color_type=png.PALETTE) + idat(INDICES) + IEND, "no palette"),
    "two_plte": (head(color_type=png.PALETTE) + PALETTE * 2 + idat(INDICES) + IEND, "damaged"),
    "late_plte": (head(color_type=png.PALETTE) + idat(INDICES) + PALETTE + IEND, "no palette"),
    "plte_of_4_bytes": (head(color_type=png.PALETTE) + png.chunk(b"PLTE", b"1234") + idat(INDICES) + IEND,
                        "palette of 4"),
    "no_iend": (head() + idat(), "truncated"),
    "no_idat": (head() + IEND, "no image data"),
    "two_ihdr": (head() + head()[8:] + idat() + IEND, "damaged"),
    "idat_first": (png.SIGNATURE + idat() + IEND, "not IHDR"),
    "text_after_empty_idats": (head() + idat(b"") * 2 + TEXT + idat() + IEND, "damaged"),
    "animation": (head() + png.chunk(b"acTL", bytes((0, 0, 0, 2, 0, 0, 0, 0))) + idat() + IEND, "animated PNG"),
    "unknown_critical": (head() + png.chunk(b"ABCD") + idat() + IEND, "damaged image: ABCD: unhandled critical chunk"),
    "length_ffffffff": (head() + claims(b"tEXt", 2**32 - 1) + idat() + IEND, "impossible chunk length"),
    "length_ffffffff_idat": (head() + claims(b"IDAT", 2**32 - 1, STREAM) + IEND, "impossible chunk length"),
    "length_ffffffff_late": (head() + idat() + claims(b"tEXt", 2**32 - 1) + IEND, "damaged"),
    "length_80000000": (head() + claims(b"tEXt", MOST + 1) + idat() + IEND, "impossible chunk length"),
    "length_2gib": (head() + claims(b"tEXt", MOST) + idat() + IEND, "truncated"),
    "length_2gib_icc": (head() + claims(b"iCCP", MOST, b"p\0\0" + STREAM) + idat() + IEND, "truncated"),
    "length_2gib_late": (head() + idat() + claims(b"zTXt", MOST) + IEND, "truncated"),
    # the zlib stream
    "endless": (head() + idat(rows_and_zeros(900)) + IEND, "far too much image data"),
    "endless_interlaced": (head(interlaced=1) + idat(rows_and_zeros(900, b"")) + IEND, "far too much"),
    "endless_20_gb": (head() + idat(rows_and_zeros(20000)) + IEND, "too much image data"),
    "endless_blocks": (head() + idat(b"\x78\x01" + bytes((0, 0, 0, 255, 255)) * 500_000) + IEND,
                       "too much image data"),
    "not_zlib": (head() + idat(b"certainly no zlib stream") + IEND, "damaged"),
    "dictionary": (head() + idat(b"\x78\xbb\0\0\0\1" + STREAM[2:]) + IEND, "damaged"),
    "reserved_block": (head() + idat(bits((1, 1), (3, 2))) + IEND, "damaged"),
    "distance": (head() + idat(bits(*FIXED, LITERAL_0, LENGTH_3, DISTANCE_4)) + IEND, "damaged"),
    "too_short": (head() + idat(zlib.compress(ROWS[:-1])) + IEND, "damaged"),
    "cut_short": (head() + idat(STREAM[:-6]) + IEND, "damaged image: Not enough image data"),
    "adler": (head() + idat(broken(STREAM)) + IEND, "damaged image: IDAT: incorrect data check"),
    "row_filter": (head() + idat(zlib.compress(ROWS[:13] + b"\5" + ROWS[14:])) + IEND, "damaged"),
    # not PNG at all
    "empty": (b"", "empty file"),
    "text": (b"this is a text, not an image\n", "not a PNG"),
    "jpeg": (b"\xff\xd8\xff\xe0\0\x10JFIF\0" + bytes(64), "damaged: no marker" if HAS_JPEG else "a JPEG; conv reads PNG only"),
    "gif": (b"GIF89a, and so on and so forth", "a GIF"),
    "text_mode": (head().replace(b"\r\n", b"\n") + idat() + IEND, "not a PNG"),
    "signature": (png.SIGNATURE, "truncated"),
}

BOMB = zeros(1 << 30)
BLACK = PLANES.copy()
BLACK[:, :, 3] = 0
INDEXED = np.stack([np.tile(np.array((0, 3, 6, 0), np.uint8) + c * np.array((1, 1, 1, 0), np.uint8), (SIDE, 1))
                    for c in range(3)])  # entries 0 to 2 of PALETTE, black

ACCEPTED = {
    "many_idats": (head() + spread(STREAM, 0) + IEND, PLANES),
    "empty_idats": (head() + spread(STREAM, 200) + idat(b"") * 5000 + IEND, PLANES),
    "too_long": (head() + idat(zlib.compress(ROWS + bytes(1000))) + IEND, PLANES),
    "far_too_long": (head() + idat(zlib.compress(ROWS + bytes(1 << 25))) + IEND, PLANES),
    "idats_after_text": (head() + idat() + TEXT + idat(b"left over") + TEXT + idat(b"") + IEND, PLANES),
    "trns_before_plte": (head() + png.chunk(b"tRNS", bytes(6)) + PALETTE + idat() + IEND, PLANES),
    "behind_the_stream": (head() + idat(STREAM + b"left over") + IEND, PLANES),
    "behind_iend": (head() + idat() + IEND + b"left over", PLANES),
    "crc_of_a_text": (head() + broken(png.chunk(b"tEXt", b"a\0b")) + idat() + IEND, PLANES),
    "ztxt_bomb": (head() + png.chunk(b"zTXt", b"c\0\0" + BOMB) + idat() + IEND, PLANES),
    "iccp_bomb": (head() + png.chunk(b"iCCP", b"p\0\0" + BOMB) + idat() + IEND, PLANES),
    "itxt_bomb_late": (head() + idat() + png.chunk(b"iTXt", b"c\0\1\0\0\0" + BOMB) + IEND, PLANES),
    "no_such_metadata": (head() + png.chunk(b"sRGB", b"\x09") + png.chunk(b"gAMA", bytes(3)) + png.chunk(b"eXIf", b"?") + idat() + IEND,
                         PLANES),
    "many_texts": (head() + png.chunk(b"tEXt", b"a\0b") * 20000 + idat() + IEND, PLANES),
    "palette_index": (head(color_type=png.PALETTE) + png.chunk(b"PLTE", bytes(range(9))) + idat(INDICES) + IEND,
                      INDEXED),
}
