# SPDX-License-Identifier: MIT
"""Random archives with something unusual, read by conv and by other programs.

Where the others read a member and agree, conv has to write the same bytes under the same name, or report that member.
What conv writes without a message has to be what one of the others reads. An archive that contradicts itself is either
reported or read in full. CONV_ROUNDS sets the number of archives.
"""
import os
import random
import shutil
import subprocess
import tarfile

import pytest

import odd_archives
import program

ROUNDS = int(os.environ.get("CONV_ROUNDS", 40))
SEED = int(os.environ.get("CONV_SEED", 1))
UTF8 = {**os.environ, "LC_ALL": "C.UTF-8"}


def files_below(folder):
    """The regular files, by name in bytes."""
    found = {}
    for path, _, names in os.walk(os.fsencode(folder)):
        for name in names:
            at = os.path.join(path, name)
            if not os.path.islink(at) and os.path.isfile(at):
                with open(at, "rb") as file:
                    found[os.path.relpath(at, os.fsencode(folder))] = file.read()
    return found


def extracted(*command):
    """What a program extracts, whatever it says."""
    shutil.rmtree("judge", ignore_errors=True)
    os.mkdir("judge")
    subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=program.TIMEOUT, env=UTF8)
    return files_below("judge")


def read_tar(path):
    """Python's opinion; also of members before the end of a damaged archive."""
    found = {}
    try:
        with tarfile.open(path, "r:", ignore_zeros=True, errors="surrogateescape", encoding="utf-8") as archive:
            for info in archive:
                if info.isreg():
                    found[os.fsencode(os.path.normpath(info.name))] = archive.extractfile(info).read()
                elif info.islnk():
                    found[os.fsencode(info.name)] = found.get(os.fsencode(info.linkname))
    except (tarfile.TarError, ValueError, OSError, UnicodeError, KeyError, EOFError, OverflowError):
        pass
    return found


TAR_JUDGES = {"tar": ("tar", "-C", "judge", "--no-same-owner", "--no-same-permissions", "-i", "-xf"),
              "bsdtar": ("bsdtar", "-C", "judge", "--no-same-owner", "--no-same-permissions", "--options",
                         "read_concatenated_archives", "-xf")}


def run_all(archives, ending):
    """conv's outputs and messages per archive."""
    os.mkdir("in")
    for i, data in enumerate(archives):
        with open(f"in/{i:05}{ending}", "wb") as file:
            file.write(data)
    process = program.start("identity", "--quiet", "--format=files", *(f"in/{i:05}{ending}" for i in range(len(archives))), "out")
    _, err = process.communicate(timeout=program.TIMEOUT)
    assert process.returncode in (0, 1) and b"Sanitizer" not in err, err[-2000:]
    found, said = [], []
    lines = err.split(b"\n")
    for i in range(len(archives)):
        prefix = b"conv: in/%05d%s:" % (i, ending.encode())
        folder = f"out/{i:05}" if len(archives) > 1 else "out"
        found.append(files_below(folder))
        said.append([line[len(prefix):] for line in lines if line.startswith(prefix)])
    return found, said


def compare(judges, found, said, may_end):
    """None, or what is wrong."""
    whole = [line for line in said if line.startswith(b" ")]
    if whole and not may_end:
        return f"the archive is reported: {whole}"
    first, *others = judges
    for name, data in first.items():
        if any(name not in other or other[name] != data for other in others) or data is None:
            continue
        if name in found and found[name] != data:
            return f"{name} has other bytes"
        if name not in found and not any(line.startswith((name + b": ", name + b"/: ")) for line in said) and not whole:
            return f"{name} is missing"
    for name, data in found.items():
        if not any(judge.get(name) == data for judge in judges) and not said:
            return f"{name} is read by no other program"
    return None


def test_odd_tars(box):
    rng = random.Random(SEED)
    made = [odd_archives.odd_tar(rng) for _ in range(ROUNDS)]
    found, said = run_all([data for data, _ in made], ".tar")
    wrong = []
    for i, (_, is_damaged) in enumerate(made):
        path = f"in/{i:05}.tar"
        judges = [read_tar(path), *(extracted(*judge, path) for name, judge in TAR_JUDGES.items() if shutil.which(name))]
        what = "damage is not reported" if is_damaged and not said[i] else compare(judges, found[i], said[i], is_damaged)
        if what:
            wrong.append(f"seed {SEED}, archive {i}: {what}; conv says {said[i]}, has {sorted(found[i])}; others have "
                         f"{[sorted(judge) for judge in judges]}")
    assert not wrong, f"{len(wrong)} of {ROUNDS}:\n" + "\n".join(wrong[:20])


def test_odd_zips(box):
    """Other programs do not read all of them: what is in them is known."""
    rng = random.Random(SEED)
    made = [odd_archives.odd_zip(rng) for _ in range(2 * ROUNDS)]
    found, said = run_all([data for data, _ in made], ".zip")
    wrong = [f"seed {SEED}, archive {i}: {said[i]}, {sorted(found[i])} instead of {sorted(files)}"
             for i, (_, files) in enumerate(made) if said[i] or found[i] != files]
    assert not wrong, "\n".join(wrong[:20])


def check_damaged(made, found, said):
    """Without a message every member is there, with its bytes; in zip files no member ever has others."""
    wrong = [f"seed {SEED}, archive {i}: {sorted(found[i])} of {sorted(members)}" for i, (_, members) in enumerate(made)
             if not said[i] and found[i] != members]
    wrong += [f"seed {SEED}, archive {i}: {name}" for i, (_, members) in enumerate(made) for name, data in found[i].items()
              if data != members.get(name, data) and made[i][0][:2] == b"PK"]
    assert not wrong, "\n".join(wrong[:20])


@pytest.mark.parametrize("make", (odd_archives.contradictory_zip, odd_archives.damaged_tar))
def test_archives_that_contradict_themselves(box, make):
    rng = random.Random(SEED)
    made = [make(rng) for _ in range(4 * ROUNDS)]
    check_damaged(made, *run_all([data for data, _ in made], ".zip" if make == odd_archives.contradictory_zip else ".tar.gz"))


def test_zip_files_that_contradict_themselves_from_a_pipe(box):
    rng = random.Random(SEED)
    made = [odd_archives.contradictory_zip(rng) for _ in range(ROUNDS)]
    found, said = [], []
    for i, (data, _) in enumerate(made):
        process = program.start("identity", "--quiet", "--format=zip", "-", f"out{i}", stdin=subprocess.PIPE)
        _, err = process.communicate(data, timeout=program.TIMEOUT)
        found.append(files_below(f"out{i}"))
        said.append(err if process.returncode else b"")
    check_damaged(made, found, said)


def test_damaged_7z(box):
    rng = random.Random(SEED)
    made = [odd_archives.damaged_7z(rng) for _ in range(ROUNDS)]
    found, said = run_all(made, ".7z")
    assert all(said), [f"seed {SEED}, archive {i}: {sorted(found[i])}" for i in range(ROUNDS) if not said[i]]
