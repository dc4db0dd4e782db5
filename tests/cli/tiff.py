# SPDX-License-Identifier: MIT
"""TIFF files of every kind, written and read without libtiff (TIFF 6.0; BigTIFF)."""
import struct
import zlib

import numpy as np

NONE, LZW, DEFLATE, PACKBITS = 1, 5, 8, 32773
BYTE, ASCII, SHORT, LONG, RATIONAL, UNDEFINED, DOUBLE, LONG8 = 1, 2, 3, 4, 5, 7, 12, 16
SIZES = {BYTE: "B", ASCII: "s", SHORT: "H", LONG: "I", RATIONAL: "II", UNDEFINED: "s", DOUBLE: "d", LONG8: "Q"}


def packbits(data):
    return b"".join(bytes([len(data[i:i + 128]) - 1]) + data[i:i + 128] for i in range(0, len(data), 128))


def lzw(data):
    """Codes of 9 bits only: the table is cleared before it needs more."""
    codes = []
    for i in range(0, len(data), 250):
        codes += [256, *data[i:i + 250]]
    bits = "".join(f"{code:09b}" for code in codes + [257])
    bits += "0" * (-len(bits) % 8)
    return int(bits, 2).to_bytes(len(bits) // 8, "big")


PACK = {NONE: bytes, LZW: lzw, DEFLATE: zlib.compress, 32946: zlib.compress, PACKBITS: packbits}


def _block(samples, order, bits, compression, predictor):
    """One strip or tile: (rows, columns, samples)."""
    rows = samples.shape[0]
    if bits < 8:
        wide = np.unpackbits(samples.reshape(rows, -1, 1).astype("u1"), axis=2)[:, :, 8 - bits:]
        return PACK[compression](np.packbits(wide.reshape(rows, -1), axis=1).tobytes())
    samples = samples.astype(samples.dtype.newbyteorder(order))
    if predictor == 2:
        samples = np.concatenate([samples[:, :1], samples[:, 1:] - samples[:, :-1]], axis=1).astype(samples.dtype)
    if predictor == 3:  # bytes of a row, the most significant first, as differences
        planes = np.ascontiguousarray(samples, ">f4").view("u1").reshape(rows, -1, 4).transpose(0, 2, 1).reshape(rows, -1)
        step = samples.shape[2]
        samples = np.concatenate([planes[:, :step], planes[:, step:] - planes[:, :-step]], axis=1)
    return PACK[compression](samples.tobytes())


def _field(order, kind, values):
    if kind in (ASCII, UNDEFINED) or isinstance(values, bytes):
        return len(values), values
    per = len(SIZES[kind])
    return len(values) // per, struct.pack(order + SIZES[kind] * (len(values) // per), *values)


def make(pixels, *, order="<", big=False, bits=None, compression=NONE, predictor=1, tile=None, rows=None, planar=1,
         photometric=None, extra=None, tags=(), drop=(), pages=1, later=()):
    """`tags`: {number: (type, values)} of the first directory, `later` of those of further pages."""
    pixels = pixels if pixels.ndim == 3 else pixels[:, :, None]
    height, width, channels = pixels.shape
    bits = bits or 8 * pixels.dtype.itemsize
    colors = 3 if channels >= 3 else 1
    down, across = tile or (rows or height, width)
    head = 16 if big else 8
    body, offsets, sizes = bytearray(), [], []
    for part in ([pixels] if planar == 1 else [pixels[:, :, c:c + 1] for c in range(channels)]):
        for y in range(0, height, down):
            for x in range(0, width, across):
                block = part[y:y + down, x:x + across]
                if tile:
                    block = np.pad(block, ((0, down - block.shape[0]), (0, across - block.shape[1]), (0, 0)), mode="edge")
                data = _block(block, order, bits, compression, predictor)
                offsets.append(head + len(body))
                sizes.append(len(data))
                body += data + b"\0" * (len(data) % 2)
    place = LONG8 if big else LONG
    entries = {256: (LONG, [width]), 257: (LONG, [height]), 258: (SHORT, [bits] * channels), 259: (SHORT, [compression]),
               262: (SHORT, [photometric if photometric is not None else 2 if colors == 3 else 1]), 277: (SHORT, [channels]),
               284: (SHORT, [planar])}
    if tile:
        entries |= {322: (LONG, [across]), 323: (LONG, [down]), 324: (place, offsets), 325: (place, sizes)}
    else:
        entries |= {273: (place, offsets), 278: (LONG, [down]), 279: (place, sizes)}
    if predictor > 1:
        entries[317] = (SHORT, [predictor])
    if pixels.dtype.kind == "f":
        entries[339] = (SHORT, [3] * channels)
    if channels > colors and extra != []:
        entries[338] = (SHORT, extra or [2])
    file = bytearray((b"II" if order == "<" else b"MM") + struct.pack(order + "H", 43 if big else 42))
    file += struct.pack(order + "HHQ", 8, 0, 0) if big else struct.pack(order + "I", 0)
    file += body
    link = head - (8 if big else 4)
    offset, size = ("Q", 8) if big else ("I", 4)
    for page in range(pages):
        mine = dict(sorted({**entries, **dict(later if page else tags)}.items()))
        for number in drop:
            mine.pop(number)
        at = len(file) + len(file) % 2
        file += b"\0" * (at - len(file))
        struct.pack_into(order + offset, file, link, at)
        table = bytearray(struct.pack(order + ("Q" if big else "H"), len(mine)))
        values = bytearray()
        end = at + len(table) + len(mine) * (20 if big else 12) + size
        for number, (kind, value) in mine.items():
            count, data = _field(order, kind, value)
            table += struct.pack(order + "HH" + offset, number, kind, count)
            if len(data) <= size:
                table += data.ljust(size, b"\0")
            else:
                table += struct.pack(order + offset, end + len(values))
                values += data + b"\0" * (len(data) % 2)
        link = at + len(table)
        file += table + bytes(size) + values
    return bytes(file)


def tags(data, at=None):
    """The entries of a directory of a classic file: {number: values, or bytes}."""
    order = "<" if data[:2] == b"II" else ">"
    at = at or struct.unpack_from(order + "I", data, 4)[0]
    found, numbers = {}, []
    for i in range(struct.unpack_from(order + "H", data, at)[0]):
        number, kind, count = struct.unpack_from(order + "HHI", data, at + 2 + 12 * i)
        text = SIZES.get(kind, "B") * (1 if kind in (ASCII, UNDEFINED) else count)
        text = f"{count}s" if kind in (ASCII, UNDEFINED) else text
        size = struct.calcsize(order + text)
        place = at + 10 + 12 * i if size <= 4 else struct.unpack_from(order + "I", data, at + 10 + 12 * i)[0]
        assert place % 2 == 0 and place + size <= len(data)
        values = struct.unpack_from(order + text, data, place)
        found[number] = values[0] if kind in (ASCII, UNDEFINED) else list(values)
        numbers.append(number)
    assert numbers == sorted(set(numbers))
    return found


def _unlzw(data):
    table, width, last, out, have, bits = None, 9, None, bytearray(), 0, 0
    for byte in data:
        bits = bits << 8 | byte
        have += 8
        if have < width:
            continue
        have -= width
        code = bits >> have
        bits &= (1 << have) - 1
        if code == 257:
            break
        if code == 256:
            table, width, last = [bytes([i]) for i in range(256)] + [b"", b""], 9, None
            continue
        entry = table[code] if code < len(table) else last + last[:1]
        out += entry
        if last is not None:
            table.append(last + entry[:1])
        last = entry
        width = 9 if len(table) < 511 else 10 if len(table) < 1023 else 11 if len(table) < 2047 else 12
    return bytes(out)


def _unpackbits(data):
    out, at = bytearray(), 0
    while at < len(data):
        if data[at] < 128:
            out += data[at + 1:at + 2 + data[at]]
            at += data[at] + 2
        else:
            out += data[at + 1:at + 2] * (257 - data[at])
            at += 2
    return bytes(out)


def decode(data):
    """The samples of a file that the program wrote, (height, width[, channels])."""
    found = tags(data)
    order = "<" if data[:2] == b"II" else ">"
    (width,), (height,), (channels,), (rows,), bits = (found[number] for number in (256, 257, 277, 278, 258))
    kind = f"{'f' if found[339][0] == 3 else 'u'}{bits[0] // 8}"
    unpack = {NONE: bytes, DEFLATE: zlib.decompress, LZW: _unlzw, PACKBITS: _unpackbits}[found[259][0]]
    image = np.empty((height, width, channels), kind)
    for i, (at, size) in enumerate(zip(found[273], found[279])):
        part = image[i * rows:(i + 1) * rows]
        raw = unpack(data[at:at + size])
        if found.get(317) == [3]:
            lines = np.frombuffer(raw, "u1").reshape(len(part), -1, channels)
            lines = np.add.accumulate(lines, axis=1, dtype="u1").reshape(len(part), 4, -1).transpose(0, 2, 1)
            part[:] = lines.copy().view(">f4").reshape(part.shape)
        else:
            part[:] = np.frombuffer(raw, np.dtype(kind).newbyteorder(order)).reshape(part.shape)
            if found.get(317) == [2]:
                part[:] = np.add.accumulate(part, axis=1, dtype=kind)
    return image[:, :, 0] if channels == 1 else image
