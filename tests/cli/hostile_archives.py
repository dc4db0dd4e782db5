# SPDX-License-Identifier: MIT
"""Archives that no archiver would write, and unusual ones that some do.

CASES: name -> Case. GOOD is the content of every image, TEXT that of every other member that is to be copied.
"""
import base64
import bz2
import gzip
import lzma
import struct
from typing import NamedTuple, Optional

import numpy as np

import archive_writer as w
import images

GOOD = images.make("rgb8", np.random.default_rng(5), 9, 7).data
TEXT = b'{"label": 3}\n'
GIB = 1 << 30


class Case(NamedTuple):
    """What an archive contains and what the program has to make of it."""
    data: bytes
    whole: tuple = ()             # members that are done: images (.png) and copies (others)
    refused: tuple = ()           # members that are reported, or skipped without a word (links, devices)
    damage: Optional[str] = None  # part of the reason why reading ends early
    pipe_differs: bool = False    # from a pipe, where a zip file's directory is not seen, it is another archive
    slow: bool = False            # not with sanitizers


def image(name, **fields):
    return w.tar_member(name.encode() if isinstance(name, str) else name, GOOD, **fields)


def text(name=b"t.json"):
    return w.tar_member(name, TEXT)


A, B = image("a.png"), image("z.png")
PLAIN = A + text() + B + w.TAR_END


def tar_of_links():
    return (A + w.tar_member(b"out", kind=w.LINK, link=b"..") + image("out/evil.png")
            + w.tar_member(b"abs", kind=w.LINK, link=b"/tmp") + image("abs/evil2.png")
            + w.tar_member(b"passwd.png", kind=w.HARD_LINK, link=b"/etc/passwd")
            + w.tar_member(b"up.png", kind=w.HARD_LINK, link=b"../../a.png")
            + w.tar_member(b"same.png", kind=w.LINK, link=b"../outside.png") + image("same.png")
            + w.tar_member(b"dev.png", kind=w.DEVICE) + w.tar_member(b"chr.png", kind=w.CHARACTER)
            + w.tar_member(b"fifo.png", kind=w.FIFO) + B + w.TAR_END)


def sparse_old(real_size, entries):
    """GNU's old sparse format: the map is in the header, the content is the parts one after the other."""
    tail = bytes(41) + b"".join(w.octal(at, 12) + w.octal(size, 12) for at, size in entries)
    tail = tail.ljust(137 + 1, b"\0") + (w.base256(real_size) if real_size >= 1 << 33 else w.octal(real_size, 12))
    body = b"".join(b"#" * size for _, size in entries)
    return w.tar_header(b"sparse.bin", len(body), b"S", magic=b"ustar  \0", tail=tail) + w.padded(body)


def quoted_zip(count, kernel):
    """Entries whose contents share their bytes, as in Fifield's bomb: each one begins with a stored block that quotes
    the header of the next entry, and goes on with that entry's content."""
    entries, parts, packed = [], [], len(kernel)
    for i in reversed(range(count)):
        sizes = {"packed": packed, "size": GIB, "crc": 0}
        entries.insert(0, w.ZipEntry(b"k%03d.bin" % i, body=b"", local=sizes, central=sizes))
        head = entries[0].local_bytes()
        if i > 0:
            head = struct.pack("<BHH", 0, len(head), len(head) ^ 0xFFFF) + head
        parts.insert(0, head)
        packed += len(head)
    starts = [sum(map(len, parts[:i])) + (5 if i else 0) for i in range(count)]
    return w.zip_file(list(zip(entries, starts)), before=b"".join(parts) + kernel)


def with_comment(data):
    """The tar in gzip with every optional field of the header."""
    packed = gzip.compress(data, mtime=1)
    return packed[:3] + bytes((4 | 8 | 16,)) + packed[4:10] + b"\4\0extr" + b"name.tar\0" + b"comment\0" + packed[10:]


def flipped(data, at):
    return data[:at] + bytes((data[at] ^ 0x40,)) + data[at + 1:]


def zstd(data):
    """A zstd stream of uncompressed blocks, so that no library is needed."""
    out = b"\x28\xb5\x2f\xfd\xa0" + struct.pack("<I", len(data))
    for at in range(0, len(data), 1 << 16):
        block = data[at:at + (1 << 16)]
        out += struct.pack("<I", len(block) << 3 | (at + len(block) == len(data)))[:3] + block
    return out


def zstd_zeros(count):
    """Zeros as blocks of one repeated byte, each 128 KiB in four bytes."""
    out = b"\x28\xb5\x2f\xfd\x00\x58"  # window of 2 MiB, size unknown
    block = struct.pack("<I", (1 << 17) << 3 | 1 << 1)[:3] + b"\0"
    return out + block * (count // (1 << 17)) + struct.pack("<I", 1)[:3]


# --- tar -------------------------------------------------------------------------------------------

TAR = {
    "plain": Case(PLAIN, ("a.png", "t.json", "z.png")),
    "empty_tar": Case(w.TAR_END),
    "empty_tar_record": Case(bytes(10240)),
    "no_end_mark": Case(PLAIN[:-1025], ("a.png", "t.json", "z.png"), damage="runcated"),
    "one_zero_block": Case(PLAIN[:-512], ("a.png", "t.json", "z.png"), damage="runcated"),
    "only_one_zero_block": Case(bytes(512), damage="", pipe_differs=True),
    "no_member_after_pax": Case(A + w.pax(w.pax_record(b"path", b"b.png")) + w.TAR_END, ("a.png",), damage="damaged"),
    "no_end": Case(A + B, ("a.png", "z.png"), damage="runcated"),
    "bad_checksum_first": Case(image("a.png", checksum=0) + B + w.TAR_END, damage=""),
    "bad_checksum_second": Case(A + image("b.png", checksum=1) + B + w.TAR_END, ("a.png",), damage=""),
    "bit_flip_in_name": Case(A + flipped(B, 1) + w.TAR_END, ("a.png",), damage=""),
    "size_negative": Case(A + w.tar_header(b"b.png", w.base256(-1)) + B + w.TAR_END, ("a.png", "z.png"), ("b.png",)),
    "size_no_number": Case(A + w.tar_header(b"b.png", b"9876zzz!\0\0\0\0") + B + w.TAR_END, ("a.png", "z.png"), ("b.png",)),
    "size_8_gib": Case(A + w.tar_header(b"b.png", b"77777777777\0") + B + w.TAR_END, ("a.png",), damage="runcated"),
    "size_8_eib": Case(A + w.tar_header(b"b.png", w.base256(2**63 - 1)) + B + w.TAR_END, ("a.png",), damage=""),
    "size_2_94": Case(A + w.tar_header(b"b.png", b"\x80" + b"\x3f" + b"\xff" * 10) + B + w.TAR_END,
                      ("a.png", "z.png"), ("b.png",)),
    "size_base256": Case(A + image("b.png", size=w.base256(len(GOOD))) + w.TAR_END, ("a.png", "b.png")),
    "old_tar": Case(image("a.png", magic=bytes(8)) + w.TAR_END, ("a.png",)),
    "gnu_long": Case(w.gnu_long(b"d/" * 60 + b"a.png", GOOD) + w.TAR_END, ("d/" * 60 + "a.png",)),
    "gnu_long_1_mb": Case(A + w.gnu_long(b"x" * 1_000_000, GOOD) + B + w.TAR_END, ("a.png", "z.png"), ("x" * 100,)),
    "gnu_long_2_gib": Case(A + w.tar_header(b"././@LongLink", w.octal(2**31, 12), b"L") + B, ("a.png",), damage=""),
    "pax_path": Case(w.pax(w.pax_record(b"path", b"b.png")) + image("a.png") + w.TAR_END, ("b.png",)),
    "pax_empty_path": Case(w.pax(w.pax_record(b"path", b"")) + image("a.png") + w.TAR_END, ("a.png",)),
    "pax_size": Case(w.pax(w.pax_record(b"size", str(len(GOOD)).encode())) + w.tar_header(b"a.png", 0) + w.padded(GOOD)
                     + B + w.TAR_END, ("a.png", "z.png")),
    "pax_size_conflict": Case(A + w.pax(w.pax_record(b"size", b"99999999")) + image("b.png") + B + w.TAR_END, ("a.png",),
                              damage=""),
    "sparse_huge": Case(A + sparse_old(2**62, [(0, 512)]) + B + w.TAR_END, ("a.png", "z.png"), ("sparse.bin",)),
    "links": Case(tar_of_links(), ("a.png", "out/evil.png", "abs/evil2.png", "same.png", "z.png"),
                  ("out", "abs", "passwd.png", "up.png", "dev.png", "chr.png", "fifo.png")),
    "names": Case(A + image("../up.png") + image("/abs.png") + image("x/../../up.png") + image("./dot.png")
                  + image(b"C:\\w.png") + image(b"..\\w.png") + image(b"\xe4.png") + w.tar_member(b"", GOOD) + B
                  + w.TAR_END, ("a.png", "abs.png", "dot.png", b"\xe4.png".decode("utf-8", "surrogateescape"), "z.png"),
                  ("../up.png", "x/../../up.png", "C:\\w.png", "..\\w.png", "")),
    "concatenated": Case(A + w.TAR_END + B + w.TAR_END, ("a.png", "z.png")),
    "nul_blocks": Case(A + bytes(512) + B + bytes(512 * 7) + text() + w.TAR_END, ("a.png", "z.png", "t.json")),
    "garbage_after_end": Case(A + w.TAR_END + b"garbage" * 100, ("a.png",), damage=""),
}
TAR.update({f"pax_length_{i}": Case(A + w.pax(record) + image("b.png") + B + w.TAR_END, ("a.png", "z.png"), ("b.png",))
            for i, record in enumerate((b"99 path=b.png\n", b"-5 path=b.png\n", b"5 path=b.png\n", b"path=b.png\n",
                                        b"99999999999999999999 path=b.png\n", b"0 path=b.png\n", b"13 path=b.png",
                                        b"3 =\n" + bytes(20)))})

# --- zip -------------------------------------------------------------------------------------------

ZA, ZT, ZB = w.ZipEntry(b"a.png", GOOD, w.STORED), w.ZipEntry(b"t.json", TEXT), w.ZipEntry(b"z.png", GOOD)
THREE = ("a.png", "t.json", "z.png")
ZIPPED = w.zip_file([ZA, ZT, ZB])
DIRECTORY = ZIPPED.index(b"PK\1\2")


def zip_with(*entries, **options):
    return w.zip_file([ZA, *entries, ZB], **options)


def bomb_entry(name, size):
    return w.ZipEntry(name, body=w.deflate_zeros(size), local={"size": size & w.MOST, "crc": 0},
                      central={"size": size & w.MOST, "crc": 0})


ZIP = {
    "zip_plain": Case(ZIPPED, THREE),
    "zip_empty": Case(w.zip_file([])),
    "zip64": Case(w.zip_file([w.ZipEntry(b"a.png", GOOD, w.STORED, zip64=True), w.ZipEntry(b"t.json", TEXT, zip64=True)],
                             zip64_end=True), THREE[:2]),
    "zip_descriptors": Case(w.zip_file([w.ZipEntry(b"a.png", GOOD, flags=w.DESCRIPTOR),
                                        w.ZipEntry(b"t.json", TEXT, flags=w.DESCRIPTOR, zip64=True), ZB]), THREE),
    "zip_comment": Case(w.zip_file([ZA, ZT, ZB], comment=b"c" * 5000), THREE),
    "zip_folders": Case(zip_with(w.ZipEntry(b"d/", b"", w.STORED, mode=0o040755), w.ZipEntry(b"d/e.png", GOOD)),
                        ("a.png", "d/e.png", "z.png")),
    "zip_utf8": Case(zip_with(w.ZipEntry("ä.png".encode(), GOOD, flags=w.UTF8)), ("a.png", "ä.png", "z.png")),
    "zip_latin1": Case(zip_with(w.ZipEntry(b"\xe4.png", GOOD)),
                       ("a.png", b"\xe4.png".decode("utf-8", "surrogateescape"), "z.png")),
    "zip_names": Case(zip_with(w.ZipEntry(b"../up.png", GOOD), w.ZipEntry(b"/abs.png", GOOD),
                               w.ZipEntry(b"x/../../up.png", GOOD), w.ZipEntry(b"..\\w.png", GOOD)),
                      ("a.png", "abs.png", "z.png"), ("../up.png", "x/../../up.png", "..\\w.png")),
    "zip_link": Case(zip_with(w.ZipEntry(b"out", b"..", w.STORED, mode=0o120777), w.ZipEntry(b"out/e.png", GOOD)),
                     ("a.png", "out/e.png", "z.png"), ("out",), pipe_differs=True),
    "zip_encrypted": Case(zip_with(w.ZipEntry(b"e.png", GOOD, w.STORED, w.ENCRYPTED, bytes(12) + GOOD)),
                          ("a.png", "z.png"), ("e.png",)),
    "zip_method_99": Case(zip_with(w.ZipEntry(b"m.png", GOOD, 77)), ("a.png", "z.png"), ("m.png",)),
    "zip_wrong_crc": Case(zip_with(w.ZipEntry(b"c.png", GOOD, local={"crc": 1}, central={"crc": 1})), ("a.png", "z.png"),
                          ("c.png",)),
    "zip_wrong_crc_stored": Case(zip_with(w.ZipEntry(b"c.json", TEXT, w.STORED, local={"crc": 1}, central={"crc": 1})),
                                 ("a.png", "z.png"), ("c.json",)),
    "zip_wrong_size": Case(zip_with(w.ZipEntry(b"s.json", TEXT, local={"size": 5}, central={"size": 5})),
                           ("a.png", "z.png"), ("s.json",)),
    "zip_bad_deflate": Case(zip_with(w.ZipEntry(b"b.json", TEXT, body=b"\xff" * 20)), ("a.png", "z.png"), ("b.json",),
                            pipe_differs=True),
    "zip_names_differ": Case(zip_with(w.ZipEntry(b"in.png", GOOD, local={"name": b"../local.png"})),
                             ("a.png", "z.png"), ("in.png",), pipe_differs=True),
    "zip_sizes_differ": Case(zip_with(w.ZipEntry(b"d.png", GOOD, w.STORED, local={"packed": 3, "size": 3})),
                             ("a.png", "z.png"), ("d.png",), pipe_differs=True),
    "zip_sizes_differ_bzip2": Case(zip_with(w.ZipEntry(b"d.json", TEXT, 12, body=bz2.compress(TEXT), central={"size": 99})),
                                   ("a.png", "d.json", "z.png"), damage="d.json: the member is damaged", pipe_differs=True),
    "zip_directory_size": Case(ZIPPED[:-10] + struct.pack("<I", len(ZIPPED) - 22 - DIRECTORY - 50) + ZIPPED[-6:],
                               damage="contradicts itself", pipe_differs=True),
    "zip_directory_place": Case(ZIPPED[:-6] + bytes(6), damage="contradicts itself", pipe_differs=True),
    "zip_directory_lies": Case(zip_with(w.ZipEntry(b"d.png", GOOD, w.STORED,
                                                   central={"packed": 2**31 - 1, "size": 2**31 - 1})),
                               ("a.png", "z.png"), ("d.png",), pipe_differs=True),
    "zip_offset_far": Case(zip_with(w.ZipEntry(b"d.png", GOOD, central={"offset": 2**31})), ("a.png", "z.png"),
                           ("d.png",), pipe_differs=True),
    "zip_offset_itself": Case(zip_with(w.ZipEntry(b"d.png", GOOD, central={"offset": DIRECTORY})), ("a.png", "z.png"),
                              ("d.png",), pipe_differs=True),
    "zip_count_lies": Case(w.zip_file([ZA, ZT, ZB], count=60000), THREE, damage="contradicts itself"),
    "zip_size_0": Case(zip_with(w.ZipEntry(b"n.json", TEXT, local={"size": 0}, central={"size": 0})), ("a.png", "z.png"),
                       ("n.json",)),
    "zip_before": Case(w.zip_file([ZA, ZB], before=b"#!/bin/sh\nexit\n"), ("a.png", "z.png"), pipe_differs=True),
    "zip_nested": Case(zip_with(w.ZipEntry(b"in.zip", ZIPPED)), ("a.png", "in.zip", "z.png")),
    "zip_twice": Case(zip_with(w.ZipEntry(b"a.png", GOOD)), ("a.png", "z.png"), ("a.png",)),
    "zip_no_directory": Case(ZIPPED[:DIRECTORY], THREE, damage=""),
    "zip_cut_in_directory": Case(ZIPPED[:-30], THREE, damage="directory"),
    "zip_cut_in_second": Case(ZIPPED[:len(ZA.local_bytes()) + 40], ("a.png",), damage=""),
}

# --- compressed tar --------------------------------------------------------------------------------

PACKED = {
    "gz": Case(gzip.compress(PLAIN, mtime=0), THREE),
    "gz_header_fields": Case(with_comment(PLAIN), THREE),
    "gz_two_streams": Case(gzip.compress(PLAIN[:1500]) + gzip.compress(PLAIN[1500:]), THREE),
    "gz_of_truncated_tar": Case(gzip.compress(PLAIN[:-1024]), THREE, damage="truncated"),
    "gz_of_one_zero_block": Case(gzip.compress(PLAIN[:-512]), THREE, damage="truncated"),
    "gz_of_damaged_tar": Case(gzip.compress(A + image("b.png", checksum=1) + B + w.TAR_END), ("a.png",), damage="header"),
    "gz_of_junk_after_the_end": Case(gzip.compress(PLAIN + b"junk" * 200), THREE, damage="after the end"),
    "xz_of_truncated_tar": Case(lzma.compress(PLAIN[:-1024]), THREE, damage="truncated"),
    "bz2_of_truncated_tar": Case(bz2.compress(PLAIN[:-1024]), THREE, damage="truncated"),
    "zst_of_truncated_tar": Case(zstd(PLAIN[:-1024]), THREE, damage="truncated"),
    "gz_padded": Case(gzip.compress(PLAIN) + bytes(3000), THREE),
    "gz_garbage": Case(gzip.compress(PLAIN) + b"garbage", THREE, damage="after"),
    "gz_cut": Case(gzip.compress(PLAIN)[:-9], THREE, damage="truncated"),
    "gz_cut_sum": Case(gzip.compress(PLAIN)[:-3], THREE, damage="truncated"),
    "gz_wrong_sum": Case(flipped(gzip.compress(PLAIN), -5), THREE, damage="gzip"),
    "gz_wrong_size": Case(flipped(gzip.compress(PLAIN), -1), THREE, damage="gzip"),
    "gz_concatenated": Case(gzip.compress(A + w.TAR_END) + gzip.compress(B + w.TAR_END), ("a.png", "z.png")),
    "gz_in_gz": Case(gzip.compress(gzip.compress(PLAIN)), damage=""),
    "gz_of_text": Case(gzip.compress(b"no archive at all\n" * 100), damage=""),
    "gz_of_nothing": Case(gzip.compress(b""), damage=""),
    "xz": Case(lzma.compress(PLAIN), THREE),
    "xz_cut": Case(lzma.compress(A + B + w.TAR_END, preset=0)[:-20], ("a.png", "z.png"), damage="truncated"),
    "xz_wrong_sum": Case(flipped(lzma.compress(PLAIN), -40), THREE, damage="xz stream"),
    "bz2": Case(bz2.compress(PLAIN), THREE),
    "bz2_cut": Case(bz2.compress(PLAIN)[:-8], THREE, damage="truncated"),
    "zst": Case(zstd(PLAIN), THREE),
    "zst_cut": Case(zstd(PLAIN)[:-700], THREE, damage="truncated"),  # in zeros that end a raw block
    "sparse_gz": Case(gzip.compress(A + sparse_old(70000, [(0, 512), (65536, 512)]) + B + w.TAR_END),
                      ("a.png", "sparse.bin", "z.png")),
    "sparse_gz_huge": Case(gzip.compress(A + sparse_old(2**62, [(0, 512)]) + B + w.TAR_END), ("a.png", "z.png"),
                           ("sparse.bin",)),
}

# The files of PLAIN, written by bsdtar --format 7zip.
SEVEN_ZIP = base64.b64decode("".join((
    "N3q8ryccAAMvUUfylAEAAAAAAAAcAAAAAAAAAMYPc/TgAhwBEF0ARJQFxHon9vfuiY5QkIizqtVQIpTMrCYneSrc+mn8lROprUG0",
    "qz4F4YLIUf7qyPMGMa/i31JGbIGGheXMNNsv7r7V/vI/fkvk2/PGT6L/Z4+9dLbbezth+AqCJGnompzgdsK4Mmuv2zvp+UTdVqQZ",
    "uP0vKF12KX/WQNIYJ62CtCsDICJByDH3MdJTH/wlgbFSlOxMIP9bA8c6u5xEMP2BkD2aLNatQI5xj3dZvqnWH0ecuUVv/Aq61gEm",
    "bvnQf54bUramCVMqCLmzULw9kqjXspqHzMgKrEqfQKK/h3pVa8NVG1JFtEYaJzeSEoPs3XI2RJmb3GA8sNlZNaeAwbn09v6YcRN7",
    "Q72yHCXPYdzQAAAA4AC9AHRdAACBMweuD9U4Wfc5xmbajfPt0O4bv5hKYDx2gveCLw1u0MhVmfnS0kYvY4rAagtKfNIO/QOaa5OP",
    "mW0FBh4SJjUqr6n1RkzMVr74UJR1GhPtVxmw2rFVcWQIDRx5tZz58Qaa+VGgT+MHnjlX06rnXLF3IAAAABcGgRgBCXwABwsBAAEh",
    "IQEWDIC+CgFVR1wiAAA=",
)))
SEVEN = {
    "7z": Case(SEVEN_ZIP, THREE, pipe_differs=True),
    "7z_cut": Case(SEVEN_ZIP[:-20], damage="", pipe_differs=True),
    "7z_wrong_byte": Case(flipped(SEVEN_ZIP, 60), (), damage="", pipe_differs=True),
}

# --- bombs: name -> (data, members that are done) ----------------------------------------------------

def many_in_zip(count):
    """Empty entries."""
    entry = w.ZipEntry(b"000000.json", b"", w.STORED)
    local, record = entry.local_bytes(), entry.central_bytes(0)
    head = record[:42]
    directory = b"".join(head + struct.pack("<I", i * len(local)) + b"%06d.json" % i for i in range(count))
    start = count * len(local)
    end = struct.pack("<4sQHHIIQQQQ", b"PK\6\6", 44, 45, 45, 0, 0, count, count, len(directory), start)
    end += struct.pack("<4sIQI", b"PK\6\7", 0, start + len(directory), 1)
    return b"".join(local[:30] + b"%06d.json" % i for i in range(count)) + directory + end + struct.pack("<4sHHHHIIH", b"PK\5\6", 0, 0, 0xFFFF, 0xFFFF, w.MOST, w.MOST, 0)


def bombs():
    """name -> data, made when it is first needed."""
    large = 5 * GIB
    zeros = w.tar_header(b"bomb.bin", w.base256(large))
    nested = w.zip_file([bomb_entry(b"bomb.bin", large)])
    return {
        "bomb_png.zip": zip_with(bomb_entry(b"bomb.png", large)),
        "bomb_overlap.zip": quoted_zip(200, w.deflate_zeros(GIB)),
        "bomb_nested.zip": zip_with(w.ZipEntry(b"in.zip", nested)),
        "bomb.tar.gz": gzip.compress(A + zeros) + b"\x1f\x8b\x08\0\0\0\0\0\0\3" + w.deflate_zeros(large) + bytes(8),
        "bomb.tar.zst": zstd(A + zeros) + zstd_zeros(large),
    }


def many(count=100_000):
    """Archives of that many empty members."""
    header = w.tar_header(b"000000.json")
    base = int(header[148:154], 8) - 6 * ord("0")
    names = (b"%06d" % i for i in range(count))
    tar = b"".join(name + header[6:148] + b"%06o" % (base + sum(name)) + header[154:] for name in names) + w.TAR_END
    return {"many.tar": tar, "many.zip": many_in_zip(count), "many.tar.gz": gzip.compress(tar, 1)}


CASES = {**TAR, **ZIP, **PACKED, **SEVEN}
NONE = {"text": b"no archive\n" * 100, "nothing": b"", "png": GOOD, "zip_magic": b"PK\3\4",
        "gz_magic": b"\x1f\x8b\x08"}


def truncations():
    """name -> data, lowest number of whole images: every interesting offset of each kind."""
    out = {}
    for at in sorted({0, 1, 99, 100, 124, 148, 257, 345, 511, 512, 513, len(A) - 1, len(A), len(A) + 1, len(A) + 512,
                      len(A) + 525, len(PLAIN) - 1025, len(PLAIN) - 1024}):
        out[f"cut{at}.tar"] = PLAIN[:at], at >= 512 + len(GOOD)
    for at in range(0, len(ZIPPED), 7):
        out[f"cut{at}.zip"] = ZIPPED[:at], at >= len(ZA.local_bytes()) + 60
    packed = gzip.compress(PLAIN, 0)
    for at in range(0, len(packed), 97):
        out[f"cut{at}.tar.gz"] = packed[:at], at >= len(A) + 600
    return out
