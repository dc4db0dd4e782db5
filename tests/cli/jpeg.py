# SPDX-License-Identifier: MIT
"""Writes JPEG files with OpenCV, and segment by segment."""
import struct

import cv2
import numpy as np

SOI, EOI = b"\xff\xd8", b"\xff\xd9"
ICC = b"ICC_PROFILE\0"


def segment(code, data):
    return bytes((0xFF, code)) + struct.pack(">H", len(data) + 2) + data


def make(pixels, *segments, quality=95, **options):
    """The file of an array (height, width[, 3]) in RGB order, with `segments` after the JFIF header."""
    flags = [getattr(cv2, f"IMWRITE_JPEG_{name.upper()}") for name in options]
    bgr = pixels if pixels.ndim == 2 else pixels[:, :, ::-1]
    ok, data = cv2.imencode(".jpg", bgr, [cv2.IMWRITE_JPEG_QUALITY, quality, *(v for pair in zip(flags, options.values()) for v in pair)])
    assert ok
    data = data.tobytes()
    return data[:20] + b"".join(segments) + data[20:]


def segments(data):
    """Codes and data of the segments before the first scan, and the offset of that scan."""
    found, at = [], 2
    while data[at + 1] != 0xDA:
        assert data[at] == 0xFF
        length = struct.unpack(">H", data[at + 2:at + 4])[0]
        found.append((data[at + 1], data[at + 4:at + 2 + length]))
        at += 2 + length
    return found


def metadata(data):
    """The application segments and comments except JFIF's."""
    return [(code, part) for code, part in segments(data) if code >= 0xE0 and code != 0xE0]


def decode(data):
    """The samples as OpenCV decodes them, without rotation, in RGB order."""
    pixels = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_UNCHANGED)
    return pixels if pixels.ndim == 2 else pixels[:, :, ::-1]


def profile(space=b"RGB ", size=300):
    """Something with the header of an ICC profile."""
    return (struct.pack(">I", size) + bytes(12) + space + bytes(range(256)) * (size // 256 + 1))[:size]


def icc_segments(data, part=65519):
    parts = [data[i:i + part] for i in range(0, len(data), part)]
    return [segment(0xE2, ICC + bytes((i + 1, len(parts))) + p) for i, p in enumerate(parts)]


def exif(orientation=6, thumbnail=b""):
    """A TIFF structure with an orientation and, linked from it, a thumbnail."""
    first = struct.pack("<H HHIHH I", 1, 0x0112, 3, 1, orientation, 0, 26 if thumbnail else 0)
    second = b""
    if thumbnail:
        second = struct.pack("<H HHII HHII I", 2, 0x0201, 4, 1, 56, 0x0202, 4, 1, len(thumbnail), 0) + thumbnail
    return b"II*\0" + struct.pack("<I", 8) + first + second


def exif_segment(tiff):
    return segment(0xE1, b"Exif\0\0" + tiff)
