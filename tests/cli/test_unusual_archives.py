# SPDX-License-Identifier: MIT
"""Archives that libarchive reads, zip files, and archives that no archiver would write.

Whole members before the damage are filtered, the rest is reported; nothing is written outside the output folder; bombs
end soon. hostile_archives.py makes the archives.
"""
import bz2
import gzip
import io
import lzma
import os
import shutil
import subprocess
import tarfile
import zipfile
import zlib

import numpy as np
import pytest

import archive_writer
import hostile_archives as hostile
import images
import program
from program import is_sanitized, measure, run

PLANES = images.decode(hostile.GOOD)
HANG = program.TIMEOUT


@pytest.fixture(scope="module", autouse=True)
def needs_libarchive(tmp_path_factory):
    box = tmp_path_factory.mktemp("probe")
    (box / "a.7z").write_bytes(hostile.CASES["7z"].data)
    process = program.start("identity", box / "a.7z", box / "out")
    _, err = process.communicate(timeout=HANG)
    if b"without libarchive" in err:
        pytest.skip("built without libarchive")


def extension(name):
    for start, end in (("zip", ".zip"), ("gz", ".tar.gz"), ("sparse_gz", ".tar.gz"), ("xz", ".tar.xz"),
                       ("bz2", ".tar.bz2"), ("zst", ".tar.zst"), ("7z", ".7z")):
        if name.startswith(start):
            return end
    return ".tar"


def files_below(folder):
    found = {}
    for path, _, names in os.walk(folder):
        for name in names:
            at = os.path.join(path, name)
            assert not os.path.islink(at), at
            with open(at, "rb") as file:
                found[os.path.relpath(at, folder)] = file.read()
    return found


def check_content(name, data):
    if name.endswith(".png"):
        assert (images.decode(data) == PLANES).all(), name
    elif name.endswith(".json"):
        assert data == hostile.TEXT, name


def paths_of(case):
    """The names of the whole members below a folder: leading slashes are removed."""
    return {name.lstrip("/") for name in case.whole}


def check_case(name, case, found, result):
    said = f"{name}: {result.err}"
    assert set(found) == paths_of(case), said
    for path, data in found.items():
        check_content(path, data)
    if case.whole or case.damage is not None:
        assert result.code == (1 if case.damage is not None or case.refused else 0), said
    if case.damage:
        assert case.damage in result.err, said


def run_any(*args, stdin=b""):
    process = program.start(*args, stdin=subprocess.PIPE)
    out, err = process.communicate(stdin, timeout=HANG)
    result = program.Result(process.returncode, out, err)
    assert "Sanitizer" not in result.err and "runtime error:" not in result.err, result.err
    assert result.code in (0, 1, 3), result.err
    return result


@pytest.mark.every
@pytest.mark.parametrize("name", hostile.CASES)
def test_to_a_folder(box, name):
    case = hostile.CASES[name]
    (box / "work").mkdir()
    (box / "outside.png").write_bytes(b"not to be written to")
    os.chdir("work")
    archive = "in" + extension(name)
    with open(archive, "wb") as file:
        file.write(case.data)
    result = run_any("identity", archive, "out")
    found = files_below("out") if os.path.isdir("out") else {}
    check_case(name, case, found, result)
    assert sorted(os.listdir(".")) == sorted([archive] + ["out"] * os.path.isdir("out"))
    assert sorted(os.listdir("..")) == ["outside.png", "work"]


PIPED = [name for name, case in hostile.CASES.items() if not case.pipe_differs]


@pytest.mark.parametrize("name", PIPED)
def test_from_a_pipe(box, name):
    case = hostile.CASES[name]
    result = run_any("identity", "-", "out", stdin=case.data)
    found = files_below("out") if os.path.isdir("out") else {}
    check_case(name, case, found, result)


def read_zip(data):
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        assert archive.testzip() is None
        return [(info.filename, archive.read(info)) for info in archive.infolist()]


def read_tar(data, mode):
    with tarfile.open(fileobj=io.BytesIO(data), mode=mode) as archive:
        return [(info.name, archive.extractfile(info).read()) for info in archive if info.isfile()]


def read_zst(data):
    packer = shutil.which("zstd")
    if not packer:
        pytest.skip("no zstd")
    return read_tar(subprocess.run([packer, "-dcq"], input=data, stdout=subprocess.PIPE, check=True).stdout, "r:")


def unpack_blocks(data):
    """The whole blocks of hostile.zstd()."""
    out, at = b"", 9
    while at + 3 <= len(data):
        head = int.from_bytes(data[at:at + 3], "little")
        block = data[at + 3:at + 3 + (head >> 3)]
        if head >> 1 & 3 or len(block) < head >> 3:
            break
        out, at = out + block, at + 3 + len(block)
    return out


def unpack(kind, data, at):
    """All that a decompressor returns before it meets the damage, which is not before byte `at`."""
    if kind == "zst":
        return unpack_blocks(data)
    stream = {"gz": lambda: zlib.decompressobj(31), "xz": lzma.LZMADecompressor, "bz2": bz2.BZ2Decompressor}[kind]()
    out = stream.decompress(data[:at])
    try:
        for i in range(at, len(data)):
            out += stream.decompress(data[i:i + 1])
    except (zlib.error, lzma.LZMAError, OSError, EOFError):
        pass
    return out


@pytest.mark.parametrize("harm", ["cut", "flip"])
@pytest.mark.parametrize("kind", ["gz", "zst", "xz", "bz2"])
def test_whole_members_before_damage_are_done(box, kind, harm):
    """None is lost, although decompressors work in blocks and libarchive drops the one that the damage is in."""
    rng = np.random.default_rng(3)
    bodies = [rng.integers(0, 64, 5000, np.uint8).tobytes() for _ in range(80)]  # a quarter of it compresses away
    plain = b"".join(archive_writer.tar_member(b"%02d.bin" % i, body) for i, body in enumerate(bodies)) + bytes(1024)
    pack = {"gz": lambda: gzip.compress(plain, 1), "zst": lambda: hostile.zstd(plain),
            "xz": lambda: lzma.compress(plain, preset=0), "bz2": lambda: bz2.compress(plain, 1)}[kind]
    data = pack()
    at = 9 + 4 * (3 + (1 << 16)) if kind == "zst" else len(data) * 7 // 10  # the head of a block in a zstd stream
    data = data[:at] if harm == "cut" else data[:at] + bytes((data[at] ^ 6,)) + data[at + 1:]
    there = unpack(kind, data, at)
    expected, step = {}, 512 + 5120
    for i in range(80):
        at = i * step
        if there[at:at + 512] != plain[at:at + 512] or len(there) < at + 5512:
            break  # a damaged block may decompress to anything
        expected["%02d.bin" % i] = there[at + 512:at + 5512]
    assert 20 < len(expected) < 80
    (box / ("in.tar." + kind)).write_bytes(data)
    result = run_any("identity", "in.tar." + kind, "out")
    assert result.code == 1
    assert "stream is invalid" in result.err or "truncated" in result.err or "no header" in result.err, result.err
    assert files_below("out") == expected


READERS = {"zip": read_zip, "tar": lambda data: read_tar(data, "r:"), "tar.gz": lambda data: read_tar(data, "r:gz"),
           "tar.zst": read_zst}


@pytest.mark.parametrize("target", READERS)
@pytest.mark.parametrize("source", ["zip_plain", "gz", "zst", "xz", "bz2", "7z", "plain"])
def test_archive_to_archive(box, source, target):
    """Order and names are kept, other members are copied, and the bytes depend on neither threads nor time zone."""
    name = "in" + extension(source)
    (box / name).write_bytes(hostile.CASES[source].data)
    run("identity", "-j3", name, f"out.{target}")
    data = (box / f"out.{target}").read_bytes()
    members = READERS[target](data)
    assert [member for member, _ in members] == ["a.png", "t.json", "z.png"]
    for member, content in members:
        check_content(member, content)
    run("identity", "-j1", name, f"again.{target}", env={**os.environ, "TZ": "Asia/Tokyo", "LC_ALL": "C"})
    assert (box / f"again.{target}").read_bytes() == data


@pytest.mark.parametrize("kind", ["zip", "tar.gz", "tar.zst"])
def test_through_pipes(box, kind):
    """Standard input to standard output: the same format, and the output can be read from a pipe again."""
    source = {"zip": "zip_descriptors", "tar.gz": "gz", "tar.zst": "zst"}[kind]
    first = run("identity", "--format", kind, "-", "-", stdin=hostile.CASES[source].data).out_bytes
    second = run("identity", "-", "-", stdin=first).out_bytes
    for data in (first, second):
        assert [name for name, _ in READERS[kind](data)] == ["a.png", "t.json", "z.png"]


def test_folder_to_zip(box):
    (box / "in" / "sub").mkdir(parents=True)
    for name in ("b.png", "a.png", "sub/ä.png"):
        (box / "in" / name).write_bytes(hostile.GOOD)
    run("identity", "in", "-r", "out.zip")
    members = read_zip((box / "out.zip").read_bytes())
    assert sorted(name for name, _ in members) == ["a.png", "b.png", "sub/ä.png"]
    for name, content in members:
        check_content(name, content)


def test_modes_and_times_of_a_zip_file(box):
    info = zipfile.ZipInfo("a.png", (2001, 2, 3, 4, 5, 6))
    info.external_attr = 0o100600 << 16
    with zipfile.ZipFile("in.zip", "w") as archive:
        archive.writestr(info, hostile.GOOD)
    run("identity", "in.zip", "out.zip")
    with zipfile.ZipFile("out.zip") as archive:
        [got] = archive.infolist()
    assert got.date_time == info.date_time and got.external_attr >> 16 == 0o100600


def test_texts_are_compressed_and_images_are_not(box):
    with zipfile.ZipFile("in.zip", "w") as archive:
        archive.writestr("a.png", hostile.GOOD)
        archive.writestr("t.json", hostile.TEXT * 1000)
    run("identity", "in.zip", "out.zip")
    with zipfile.ZipFile("out.zip") as archive:
        image, text = archive.infolist()
    assert image.compress_type == zipfile.ZIP_STORED
    assert text.compress_type == zipfile.ZIP_DEFLATED and text.compress_size < text.file_size // 10


def test_truncated_anywhere(box):
    """Every truncated archive produces a message, and the images before the cut."""
    cuts = hostile.truncations()
    names = list(cuts) if not is_sanitized() else list(cuts)[::9]
    for name in names:
        (box / name).write_bytes(cuts[name][0])
    result = run_any("identity", "--format", "files", *names, "out")
    assert result.code == 1
    found = files_below("out")
    for path, data in found.items():
        check_content(path, data)
    for name in names:
        data, has_first = cuts[name]
        folder = name.split(".")[0]
        if f"{name}/" in "".join(found):
            folder = name  # another archive has the same name except for the extension
        assert any(f"{name}:" in line for line in result.err.splitlines()), name
        assert not has_first or any(path.startswith(f"{folder}/") for path in found) or "/" not in "".join(found), name


@pytest.mark.every
@pytest.mark.parametrize("name", hostile.NONE)
def test_no_archive_at_all(box, name):
    for kind in ("tar", "zip", "tar.gz"):
        archive = f"in.{kind}"
        (box / archive).write_bytes(hostile.NONE[name])
        result = run_any("identity", archive, "out")
        assert result.code == 1 and archive in result.err, result.err
        assert not os.path.isdir("out") or not os.listdir("out")


@pytest.fixture(scope="module")
def bombs():
    return {**hostile.bombs(), **hostile.many(100_000 if not is_sanitized() else 3000)}


USUAL = 48 << 20  # bytes that a run with two workers needs


@pytest.mark.parametrize("name", ["bomb_png.zip", "bomb_overlap.zip", "bomb.tar.gz", "bomb.tar.zst"])
@pytest.mark.skipif(is_sanitized(), reason="takes long")
def test_bomb(box, bombs, name):
    """A bomb ends, and needs little memory, whatever it would expand to."""
    (box / name).write_bytes(bombs[name])
    result = measure("identity", "--device=cpu", "-j2", "--mem-limit", "200M", name, "out.tar", code=1, timeout=HANG)
    assert result.peak < 300 << 20, result.peak
    assert "bomb" in result.err or "memory" in result.err, result.err


def test_nested_archive_is_only_copied(box, bombs):
    (box / "in.zip").write_bytes(bombs["bomb_nested.zip"])
    run("identity", "in.zip", "out.zip")
    assert [len(data) for name, data in read_zip((box / "out.zip").read_bytes()) if name == "in.zip"][0] < 11_000_000


@pytest.mark.parametrize("kind", ["tar.gz", "zip"])
def test_memory_does_not_grow_with_members(box, bombs, kind):
    (box / f"in.{kind}").write_bytes(bombs[f"many.{kind}"])
    result = measure("identity", "--device=cpu", "-j2", f"in.{kind}", f"out.{kind}", timeout=HANG)
    if not is_sanitized():
        assert result.peak < USUAL + len(bombs[f"many.{kind}"]), result.peak
