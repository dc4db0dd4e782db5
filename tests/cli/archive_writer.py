# SPDX-License-Identifier: MIT
"""Writes tar and zip archives byte by byte: every field can be given a value that no archiver would write."""
import struct
import zlib

BLOCK = 512
FILE, HARD_LINK, LINK, CHARACTER, DEVICE, FOLDER, FIFO = b"0", b"1", b"2", b"3", b"4", b"5", b"6"


# --- tar -------------------------------------------------------------------------------------------

def octal(value, width):
    return f"{value:0{width - 1}o}".encode() + b"\0"


def base256(value, width=12):
    """A number in GNU's binary form; negative ones in two's complement."""
    return ((value % (1 << 8 * width - 1)) | 1 << 8 * width - 1).to_bytes(width, "big")


def tar_header(name, size=0, kind=FILE, link=b"", magic=b"ustar\x0000", prefix=b"", checksum=None, mtime=0, mode=0o644,
               tail=None, raw=None, signed=False):
    """`size` is a number or the field's 12 bytes; `tail` replaces the bytes from 345 on (GNU's sparse map); `raw` gives
    bytes for other offsets; `signed`: the checksum is that of signed bytes."""
    size = size if isinstance(size, bytes) else octal(size, 12)
    block = struct.pack("100s8s8s8s12s12s8s1s100s8s32s32s8s8s155s12x", name, octal(mode, 8), octal(0, 8), octal(0, 8),
                        size, octal(mtime, 12), b" " * 8, kind, link, magic, b"", b"", b"", b"", prefix)
    if tail is not None:
        block = block[:345] + tail.ljust(BLOCK - 345, b"\0")
    for at, data in (raw or {}).items():
        block = block[:at] + data + block[at + len(data):]
    value = sum(block) - 256 * signed * sum(byte > 127 for byte in block) if checksum is None else checksum
    return block[:148] + f"{value:06o}\0 ".encode() + block[156:]


def padded(data):
    return data + bytes(-len(data) % BLOCK)


def tar_member(name, data=b"", **fields):
    fields.setdefault("size", len(data))
    return tar_header(name, **fields) + padded(data)


def gnu_long(name, data=b"", kind=b"L", **fields):
    """A member whose name, or with kind=b"K" whose link target, is in a record of its own."""
    record = tar_member(b"././@LongLink", name + b"\0", kind=kind, magic=b"ustar  \0")
    return record + tar_member(name[:100], data, magic=b"ustar  \0", **fields)


def pax_record(key, value, length=None):
    body = b" " + key + b"=" + value + b"\n"
    if length is None:
        length = len(body) + 1
        while len(str(length)) + len(body) != length:
            length += 1
    return str(length).encode() + body


def pax(records, kind=b"x"):
    return tar_member(b"PaxHeaders/x", records, kind=kind)


TAR_END = bytes(2 * BLOCK)


# --- zip -------------------------------------------------------------------------------------------

STORED, DEFLATED = 0, 8
ENCRYPTED, DESCRIPTOR, UTF8 = 1, 8, 1 << 11
MOST = 0xFFFFFFFF


def deflate(data, level=9):
    squeeze = zlib.compressobj(level, zlib.DEFLATED, -15)
    return squeeze.compress(data) + squeeze.flush()


def deflate_zeros(count):
    """A raw deflate stream of zeros (`size` is whole MiB) at nearly 1030:1, made without compressing them all."""
    block = bytes(1 << 20)
    squeeze = zlib.compressobj(9, zlib.DEFLATED, -15)
    first = squeeze.compress(block) + squeeze.flush(zlib.Z_FULL_FLUSH)
    again = squeeze.compress(block) + squeeze.flush(zlib.Z_FULL_FLUSH)
    return first + again * (count // len(block) - 1) + squeeze.flush()


class ZipEntry:
    """One entry; `local` and `central` replace fields of the local and of the central header."""

    def __init__(self, name, data=b"", method=DEFLATED, flags=0, body=None, extra=b"", local=None, central=None,
                 zip64=False, mode=0o100644, made_by=3):
        self.body = body if body is not None else deflate(data) if method == DEFLATED else data
        self.fields = {"name": name, "flags": flags, "method": method, "crc": zlib.crc32(data),
                       "packed": len(self.body), "size": len(data), "extra": extra}
        self.local = dict(self.fields, **(local or {}))
        self.central = dict(self.fields, mode=mode, made_by=made_by, **(central or {}))
        self.zip64 = zip64
        if flags & DESCRIPTOR and local is None:
            self.local.update(crc=0, packed=0, size=0)

    def local_bytes(self):
        f = dict(self.local)
        if self.zip64:
            f["extra"] = struct.pack("<HHQQ", 1, 16, f["size"], f["packed"]) + f["extra"]
            f["size"] = f["packed"] = MOST
        head = struct.pack("<4sHHHHHIIIHH", b"PK\3\4", 45 if self.zip64 else 20, f["flags"], f["method"], 0, 33,
                           f["crc"], f["packed"], f["size"], len(f["name"]), len(f["extra"])) + f["name"] + f["extra"]
        if not f["flags"] & DESCRIPTOR:
            return head + self.body
        form = "<4sIQQ" if self.zip64 else "<4sIII"
        return head + self.body + struct.pack(form, b"PK\7\x08", self.fields["crc"], self.fields["packed"],
                                              self.fields["size"])

    def central_bytes(self, offset):
        f = dict(self.central)
        if self.zip64:
            f["extra"] = struct.pack("<HHQQQ", 1, 24, f["size"], f["packed"], offset) + f["extra"]
            f["size"] = f["packed"] = offset = MOST
        return struct.pack("<4sBBHHHHHIIIHHHHHII", b"PK\1\2", 45 if self.zip64 else 20, f["made_by"], 20, f["flags"],
                           f["method"], 0, 33, f["crc"], f["packed"], f["size"], len(f["name"]), len(f["extra"]), 0, 0,
                           0, f["mode"] << 16 | f.get("dos", 0), f.get("offset", offset)) + f["name"] + f["extra"]


def zip_file(entries, comment=b"", zip64_end=False, count=None, before=b""):
    """The archive of these entries; (entry, offset) lists an entry that the file already has at that offset."""
    out = bytearray(before)
    directory = bytearray()
    for entry in entries:
        entry, offset = entry if isinstance(entry, tuple) else (entry, None)
        if offset is None:
            offset = len(out)
            out += entry.local_bytes()
        directory += entry.central_bytes(offset)
    start = len(out)
    count = len(entries) if count is None else count
    out += directory
    if zip64_end:
        end = len(out)
        out += struct.pack("<4sQHHIIQQQQ", b"PK\6\6", 44, 45, 45, 0, 0, count, count, len(directory), start)
        out += struct.pack("<4sIQI", b"PK\6\7", 0, end, 1)
        return bytes(out + struct.pack("<4sHHHHIIH", b"PK\5\6", 0, 0, 0xFFFF, 0xFFFF, MOST, MOST, 0))
    return bytes(out + struct.pack("<4sHHHHIIH", b"PK\5\6", 0, 0, count & 0xFFFF, count & 0xFFFF, len(directory), start,
                                   len(comment)) + comment)
