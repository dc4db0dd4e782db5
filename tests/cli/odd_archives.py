# SPDX-License-Identifier: MIT
"""Random archives, made byte by byte, with something unusual at a random place."""
import bz2
import gzip
import lzma
import struct

import archive_writer as w
import hostile_archives


REPORTED = {b"no such member": b""}  # among the members of an archive that cannot be read without a message


def body(rng):
    return rng.randbytes(rng.choice((0, 1, 10, 511, 512, 513, 1500)))


# --- tar -------------------------------------------------------------------------------------------

ODD_RECORDS = ((b"uid", b""), (b"uid", b"-2"), (b"uid", b"1e3"), (b"uid", b"x"), (b"gid", b"99999999999999999999"), (b"gid", b""),
               (b"mtime", b"1e9"), (b"mtime", b"-1.5"), (b"mtime", b"1234567890.123456789123"), (b"mtime", b""),
               (b"mtime", b"."), (b"atime", b"never"), (b"comment", b"A" * 70_000), (b"comment", b"A" * 1_200_000),
               (b"comment", b"\xff\0\n=9 a=b"), (b"hdrcharset", b"BINARY"), (b"hdrcharset", b"none"), (b"uname", b"\xff\xfe"),
               (b"gname", b""), (b"size", b""), (b"VENDOR.x", b""), (b"SCHILY.xattr.user.a=b", b"c"), (b"LIBARCHIVE.creationtime", b"x"),
               (b"linkpath", b"nowhere"), (b"realtime.any", b"1"), (b"charset", b"x"), (b"size", b"-1"),
               (b"size", b"0x10"), (b"ctime", b"-0.000"))
ODD_NUMBERS = (b"       ", b"0000644", b"    644", b"644\0\0\0\0", b"644    ", b"       \0", b"\x80\0\0\0\0\0\1\xa4", b"\xff" * 8,
               b"zzzzzzz\0", b"-000001\0", b"8888888\0")


def odd_member(rng, name, data):
    """A member as bytes, and whether damage to all that follows may be reported."""
    kind = rng.choice(("pax", "pax", "pax_global", "malformed", "number", "size", "type", "unknown", "slash", "magic", "long",
                       "long_pax", "signed", "zeros", "prefix", "checksum", "label", "link", "announced"))
    member = w.tar_member(name, data)
    if kind == "pax":
        records = [w.pax_record(*rng.choice(ODD_RECORDS)) for _ in range(rng.randint(1, 3))]
        records.insert(rng.randint(0, len(records)), w.pax_record(b"path", name))
        return w.pax(b"".join(records)) + member
    if kind == "pax_global":
        key, value = rng.choice([r for r in ODD_RECORDS if r[0] not in (b"path", b"linkpath", b"size")])
        return w.pax(w.pax_record(key, value), kind=b"g") + member
    if kind == "malformed":
        record = rng.choice((b"99 path=b.bin\n", b"-5 a=b\n", b"5 a=b\n", b"a=b\n", b"0 a=b\n", b"13 comment=ab", b"\0" * 20,
                             b"99999999999999999999 a=b\n", b"7 uid=1\n0 a\n"))
        return w.pax(record, kind=rng.choice((b"x", b"g"))) + member
    if kind == "number":
        at = rng.choice((100, 108, 116, 136, 329, 337))
        return w.tar_member(name, data, raw={at: rng.choice(ODD_NUMBERS)[:8 if at != 136 else 12]})
    if kind == "size":
        size = len(data)
        field = rng.choice((w.base256(size), b"%11o " % size, b"%o\0" % size, b"%12o" % size, b"%o " % size, b"%011o\0" % size,
                            b"%012o" % size))
        return w.tar_member(name, data, size=field.ljust(12, b"\0"))
    if kind == "type":
        about = rng.choice((b"", w.pax(w.pax_record(b"mtime", b"1"))))
        data = data or b"x"
        return about + w.tar_header(name, len(data), rng.choice((b"5", b"2", b"6", b"1")), link=b"first.bin") + rng.choice((b"", w.padded(data)))
    if kind == "unknown":
        return w.tar_member(name, data, kind=rng.choice((b"\0", b"7", b"8", b"9", b"a", b"z", b"Q", b"A", b"E", b"I", b" ", b"\xff")))
    if kind == "slash":
        return w.tar_member(name + b"/", data, kind=rng.choice((b"0", b"\0")))
    if kind == "magic":
        return w.tar_member(name, data, magic=rng.choice((bytes(8), b"ustar  \0", b"ustar\0\0\0", b"ustar\x0001", b"USTAR\x0000",
                                                          rng.randbytes(8))))
    if kind == "long":
        name = b"long/" + name * rng.choice((1, 10, 20))
        text = name + rng.choice((b"", b"\0", b"\0\0\0", b"\0" + b"junk" * 200))
        return w.tar_member(b"././@LongLink", text, kind=b"L", magic=b"ustar  \0") + w.tar_member(name[:100], data, magic=b"ustar  \0")
    if kind == "long_pax":
        parts = [w.tar_member(b"././@LongLink", name + b"\0", kind=b"L", magic=b"ustar  \0"),
                 w.pax(w.pax_record(b"path", name) + w.pax_record(b"mtime", b"5")),
                 w.tar_member(b"././@LongLink", b"target\0", kind=b"K", magic=b"ustar  \0")]
        rng.shuffle(parts)
        return b"".join(parts[:rng.randint(2, 3)]) + w.tar_member(b"short.bin", data)
    if kind == "signed":
        return w.tar_member(b"\xc3\xa4" + name, data, signed=True)
    if kind == "zeros":
        return member + bytes(512) + w.tar_member(b"after-" + name, data)
    if kind == "prefix":
        return w.tar_member(name, data, prefix=b"pre/fix", magic=rng.choice((b"ustar\x0000", b"ustar  \0")))
    if kind == "checksum":
        value = sum(w.tar_header(name, len(data), checksum=0)) - sum(b"000000\0 ") + 8 * 32
        return w.tar_header(name, len(data), raw=None)[:148] + rng.choice((b"%6o\0 ", b"%07o\0", b"%o\0", b"%06o \0")).__mod__(value).ljust(
            8, b"\0") + w.tar_header(name, len(data))[156:] + w.padded(data)
    if kind == "label":
        return w.tar_member(name, b"", kind=rng.choice((b"V", b"N"))) + w.tar_member(b"after-" + name, data)
    if kind == "link":
        return w.tar_header(name, 0, rng.choice((b"1", b"2")), link=rng.choice((b"first.bin", b"nowhere", b"")))
    return w.pax(w.pax_record(b"path", name), kind=b"x") + w.tar_member(b"replaced.bin", data)


def odd_tar(rng):
    """(archive, whether its end is damaged)"""
    parts = [w.tar_member(b"first.bin", body(rng))]
    for i in range(rng.randint(2, 5)):
        name, data = b"m%d.bin" % i, body(rng)
        parts.append(odd_member(rng, name, data) if rng.random() < 0.4 else w.tar_member(name, data))
    whole = b"".join(parts)
    how = rng.randrange(12)
    end = {0: bytes(512), 1: b"", 2: w.TAR_END + b"junk" * rng.randint(1, 400), 3: bytes(10240), 4: bytes(700),
           5: w.pax(w.pax_record(b"path", b"x")) + w.TAR_END}.get(how, w.TAR_END)
    if how == 6:
        return whole[:rng.randrange(600, len(whole))], True
    return whole + end, how in (0, 1, 2, 4, 5)


# --- zip -------------------------------------------------------------------------------------------

def extra_fields(rng):
    """Fields that are known or not, at times with a length that is wrong."""
    out = b""
    for _ in range(rng.randint(0, 3)):
        ident = rng.choice((0x5455, 0x000A, 0x5855, 0x7875, 0x756E, 0x000D, 0xCAFE, 0x9999, 0x6375, 0x0017, 0x7075))
        data = rng.randbytes(rng.choice((0, 1, 4, 5, 9, 11, 32)))
        out += struct.pack("<HH", ident, len(data) + rng.choice((0, 0, 0, 0, 1, 60000))) + data
    return out + rng.choice((b"", b"", b"x", b"\0\0\0"))


def zip_entry(rng, name, data):
    """(entry, name of the file that it is, or None)"""
    kind = rng.choice(("plain", "plain", "folder_mode", "folder_dos", "folder_slash", "backslash"))
    options = {"method": rng.choice((w.STORED, w.DEFLATED)), "flags": rng.choice((0, 0, w.DESCRIPTOR)),
               "zip64": rng.random() < 0.2, "made_by": rng.choice((0, 3, 3, 10, 11, 14, 19))}
    extra = extra_fields(rng)
    options["local" if rng.random() < 0.3 else "central"] = {"extra": extra}
    if options["flags"] and "local" in options:
        options["local"].update(crc=0, packed=0, size=0)
    if options["made_by"] not in (3, 19):
        options["mode"] = 0
    if kind == "folder_mode":
        return w.ZipEntry(name, b"", **{**options, "mode": 0o40755, "made_by": 3, "method": w.STORED}), None
    if kind == "folder_slash":
        return w.ZipEntry(name + b"/", b"", **{**options, "method": w.STORED}), None
    if kind == "folder_dos":
        entry = w.ZipEntry(name, b"", **{**options, "mode": 0, "made_by": 0, "method": w.STORED})
        entry.central["dos"] = 0x10
        return entry, None
    if kind == "backslash":
        return w.ZipEntry(b"sub\\" + name, data, **{**options, "made_by": 0, "mode": 0}), b"sub/" + name
    return w.ZipEntry(name, data, **options), name


def odd_zip(rng):
    """(archive, its files): all of them can be read."""
    files = {b"first.bin": body(rng)}
    entries = [w.ZipEntry(b"first.bin", files[b"first.bin"])]
    for i in range(rng.randint(1, 5)):
        data = body(rng)
        entry, name = zip_entry(rng, b"m%d.bin" % i, data)
        entries.append(entry)
        if name:
            files[name] = data
    before = rng.choice((b"", b"", b"#!/bin/sh\nexit\n", rng.randbytes(rng.randint(1, 300))))
    moved = rng.random() < 0.5  # offsets count from the first entry
    data = w.zip_file(entries, comment=rng.choice((b"", b"", b"comment", b"PK\5\6" + bytes(18), b"xPK\5\6" + b"y" * 30)),
                      zip64_end=rng.random() < 0.2, before=b"" if moved else before)
    return (before + data if moved else data), files


BZIP2 = 12

# What can be changed in a zip file: signature of the record, offset of the field, size.
ZIP_FIELDS = {
    b"PK\3\4": ((0, 4), (6, 2), (8, 2), (14, 4), (18, 4), (22, 4), (26, 2), (28, 2)),
    b"PK\1\2": ((0, 4), (10, 2), (16, 4), (20, 4), (24, 4), (28, 2), (30, 2), (32, 2), (42, 4)),
    b"PK\5\6": ((0, 4), (4, 2), (8, 2), (10, 2), (12, 4), (16, 4), (20, 2)),
    b"PK\6\6": ((0, 4), (24, 8), (32, 8), (40, 8), (48, 8)),
    b"PK\7\x08": ((0, 4), (4, 4), (8, 4), (12, 4)),
}


def contradictory_zip(rng):
    """(zip file, its members) with one number changed, or cut, or with data after its end."""
    members = {b"m%d.bin" % i: rng.randbytes(rng.choice((1, 10, 300))) for i in range(rng.randint(2, 4))}
    options = {"flags": rng.choice((0, w.DESCRIPTOR)), "zip64": rng.random() < 0.2}
    entries = []
    for name, content in members.items():
        method = rng.choice((w.STORED, w.DEFLATED, w.STORED, w.DEFLATED, BZIP2))  # libarchive's
        entries.append(w.ZipEntry(name, content, method, body=bz2.compress(content) if method == BZIP2 else None, **options))
    data = w.zip_file(entries, zip64_end=rng.random() < 0.3, comment=rng.choice((b"", b"comment")))
    how = rng.randrange(10)
    if how == 0:
        return data[:rng.randrange(4, len(data))], {**members, **REPORTED}
    if how == 1:
        return data + rng.randbytes(rng.randint(1, 40)), {**members, **REPORTED}
    if how == 2:  # a record more, or one less, without the end record's knowledge
        at, end = data.rindex(b"PK\1\2"), data.rindex(b"PK\5\6")
        return rng.choice((data[:at] + data[end:], data[:end] + data[at:end] + data[end:])), members
    if how == 3:  # two entries at one place
        starts = [at for at in range(len(data)) if data[at:at + 4] == b"PK\1\2"]
        return data[:starts[1] + 42] + data[starts[0] + 42:starts[0] + 46] + data[starts[1] + 46:], members
    places = [(at, field) for sign, fields in ZIP_FIELDS.items() for at in range(len(data)) if data[at:at + 4] == sign for field in fields]
    at, (offset, size) = rng.choice(places)
    at += offset
    old = int.from_bytes(data[at:at + size], "little")
    new = rng.choice((0, 1, old + 1, old - 1, old + 46, old - 46, old ^ 1 << rng.randrange(8 * size), 2 * old, 256 ** size - 1,
                      rng.randrange(256 ** size), old // 2)) % 256 ** size
    return data[:at] + new.to_bytes(size, "little") + data[at + size:], members


# --- compressed ------------------------------------------------------------------------------------

def damaged_tar(rng):
    """(tar in some compression, its members) with damage inside or outside of it."""
    members = {b"m%d.bin" % i: rng.randbytes(rng.choice((0, 10, 3000))) for i in range(rng.randint(1, 4))}
    tar = b"".join(w.tar_member(name, content) for name, content in members.items()) + w.TAR_END
    inner = rng.choice((tar, tar[:rng.randrange(len(tar))], tar + b"junk" * 10, tar[:-512]))
    pack, has_sums = rng.choice(((lambda data: gzip.compress(data, 1), True), (bz2.compress, True),
                                 (lambda data: lzma.compress(data, preset=0), True), (hostile_archives.zstd, False)))
    data = pack(inner)
    at = rng.randrange(len(data))
    changed = rng.choice([data, data[:at], data + b"x" * rng.randint(1, 9)] + [hostile_archives.flipped(data, at)] * has_sums)
    if inner != tar or len(changed) != len(data):
        members.update(REPORTED)
    return changed, members


def damaged_7z(rng):
    """A 7-Zip archive that is cut off, changed in what has checksums, or followed by other data."""
    data = hostile_archives.SEVEN_ZIP
    at = rng.randrange(8, len(data))
    return rng.choice((data[:at], hostile_archives.flipped(data, at), data + b"x" * rng.randint(1, 40)))
