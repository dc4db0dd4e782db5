# SPDX-License-Identifier: MIT
"""Who may read and write a file that conv has replaced or made: no user who could not before, at no moment.

Random owners, groups, modes, access control lists and folders; users of all classes then try to open the files."""
import contextlib
import io
import os
import random
import shutil
import stat
import struct
import subprocess
import tarfile
import tempfile
import zipfile

import numpy as np
import pytest

import program
from folders import image

ROUNDS = int(os.environ.get("CONV_ROUNDS", "2"))  # of each test below
FILES = 16  # per round
UIDS, GIDS, STRANGER = (3001, 3002, 3003), (4001, 4002), 3009
# Every user in every set of groups: (uid, groups).
USERS = [(uid, groups) for uid in (*UIDS, STRANGER) for groups in ((4009,), (4001,), (4002,), (4001, 4002))]
FEW = [(3001, (4009,)), (3002, (4009,)), (3003, (4009,)), (STRANGER, (4001,)), (STRANGER, (4009,))]
LIST, DEFAULT = "system.posix_acl_access", "system.posix_acl_default"
PNG = image().data

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: files of several users")


# --- files and users ------------------------------------------------------------------------------

def pack(entries):
    """A list as the kernel takes it; entries: (tag, permissions, id), sorted."""
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in sorted(entries))


def random_list(rng):
    """Entries of owner, group, others, and in most cases of users and groups, with a mask."""
    few = rng.random() < 0.3
    some = rng.random() < 0.5
    def permissions():
        return rng.choice((6, 4)) if some else rng.randrange(8)
    entries = [(tag, permissions(), 2**32 - 1) for tag in (1, 4, 32)]
    if not few:
        entries += [(2, permissions(), uid) for uid in rng.sample((*UIDS, STRANGER), rng.randrange(1, 3))]
        entries += [(8, permissions(), gid) for gid in rng.sample(GIDS, rng.randrange(2))]
        entries.append((16, permissions(), 2**32 - 1))
    return entries


@pytest.fixture(scope="module")
def place():
    """A folder that every user can enter, with a copy of the program that every user can start."""
    folder = tempfile.mkdtemp(prefix="conv-access-")
    os.chmod(folder, 0o755)
    shutil.copy(program.BINARY, f"{folder}/conv")
    try:
        os.setxattr(f"{folder}/conv", LIST, pack([(1, 7, 2**32 - 1), (4, 5, 2**32 - 1), (32, 5, 2**32 - 1)]))
    except OSError:
        shutil.rmtree(folder)
        pytest.skip("the file system has no access control lists")
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def work(place, monkeypatch):
    folder = tempfile.mkdtemp(dir=place)
    os.chmod(folder, 0o755)
    monkeypatch.chdir(folder)
    return folder


def conv(*args, user=None, umask=0o022):
    """The exit code and stderr of the program, started by root or (uid, groups)."""
    ids = {} if user is None else {"user": user[0], "group": user[1][0], "extra_groups": user[1]}
    done = subprocess.run([*program.RUNNER, "../conv", args[0], "--device", "cpu", *args[1:]], umask=umask,
                          capture_output=True, timeout=program.TIMEOUT, **ids)
    return done.returncode, done.stderr.decode()


def make_folder(rng, path):
    """A folder that every user may write to, in some cases with a default list and a group that is inherited."""
    os.mkdir(path)
    os.chown(path, rng.choice(UIDS), rng.choice(GIDS))
    os.chmod(path, 0o777 | (0o2000 if rng.random() < 0.3 else 0))
    if rng.random() < 0.4:
        os.setxattr(path, DEFAULT, pack(random_list(rng)))


def make_file(rng, path):
    """An image of a random owner and access."""
    with open(path, "wb") as file:
        file.write(PNG)
    os.chown(path, rng.choice((0, *UIDS)), rng.choice((0, *GIDS)))
    if LIST in os.listxattr(path):
        os.removexattr(path, LIST)
    os.setxattr(path, "user.note", path.encode())
    os.setxattr(path, "security.capability", struct.pack("<IIIII", 0x02000001, 0x2000, 0, 0, 0))  # cap_net_raw
    if rng.random() < 0.5:
        os.chmod(path, rng.choice((0o600, 0o640, 0o604, 0o644, 0o660, 0o666, 0o444, rng.randrange(0o10000))))
    else:
        os.setxattr(path, LIST, pack(random_list(rng)))


def opened(paths, users=USERS):
    """(path, user, "r" or "w") of all that users can open, found by opening as each of them."""
    found, own = set(), os.getgroups()
    for uid, groups in users:
        os.setgroups(groups)
        os.setegid(groups[0])
        os.seteuid(uid)  # without root's capabilities, until it is back
        try:
            for path in paths:
                for name, flag in (("r", os.O_RDONLY), ("w", os.O_WRONLY)):
                    with contextlib.suppress(OSError):
                        os.close(os.open(path, flag | os.O_NOFOLLOW))
                        found.add((path, (uid, groups), name))
        finally:
            os.seteuid(0)
            os.setegid(0)
            os.setgroups(own)
    return found


def access(path):
    info = os.stat(path)
    entries = os.getxattr(path, LIST) if LIST in os.listxattr(path) else None
    return stat.S_IMODE(info.st_mode) & 0o777, info.st_uid, info.st_gid, entries


def without(found, user):
    """What other users could do: the owner of a file can give himself any access to it."""
    return {item for item in found if not user or item[1][0] != user[0]}


def content(path):
    with open(path, "rb") as file:
        return file.read()


def rounds(test):
    """Runs the test with a seed for each round, which is in its name."""
    first = int(os.environ.get("CONV_SEED", "1"))
    return pytest.mark.parametrize("seed", range(first, first + ROUNDS))(needs_root(test))


def random_user(rng):
    return rng.choice((None, *USERS))


# --- replaced files -------------------------------------------------------------------------------

@rounds
@pytest.mark.parametrize("way", ("in place", "existing output"))
def test_a_replaced_file_gives_no_user_more(work, way, seed):
    rng = random.Random(seed)
    user, force = random_user(rng), rng.random() < 0.5
    make_folder(rng, "files")
    paths = [f"files/{i}.png" for i in range(FILES)]
    for path in paths:
        make_file(rng, path)
    before, owners = opened(paths), {path: access(path) for path in paths}
    refused = {path for path in paths if os.stat(path).st_mode & 0o222 == 0 or (user is not None and (path, user, "w") not in opened([path], [user]))}
    unreadable = {path for path in paths if user and way == "in place" and (path, user, "r") not in before}
    args = ["--force"] if force else []
    if way == "in place":
        code, err = conv("emboss", "--in-place", "files", *args, user=user, umask=rng.choice((0, 0o022, 0o077)))
    else:
        os.mkdir("in")
        for path in paths:
            with open(f"in/{os.path.basename(path)}", "wb") as file:
                file.write(PNG)
        code, err = conv("emboss", "in", "files", *args, user=user, umask=rng.choice((0, 0o022, 0o077)))
    after = opened(paths)
    assert without(after, user) <= without(before, user), sorted(without(after, user) - without(before, user))[:5]
    left = unreadable | (set() if force else refused)
    assert code == (1 if left else 0), err
    for path in paths:
        assert (content(path) == PNG) == (path in left), (path, err)
        assert (f"{path} is write-protected" in err or f"{path}: is write-protected" in err) \
            == (path in left - unreadable), (path, err)
        _, uid, gid, _ = owners[path]
        if path in left or user is None or (uid == user[0] and gid in user[1]):
            assert access(path) == owners[path], path
            assert os.stat(path).st_mode & 0o7000 == 0 or path in left
        if way == "in place" and user is None:
            assert os.getxattr(path, "user.note") == path.encode()
            assert ("security.capability" in os.listxattr(path)) == (path in left)
    assert sorted(os.listdir("files")) == sorted(map(os.path.basename, paths))


@rounds
def test_a_new_output_has_what_the_system_gives_a_new_file(work, seed):
    rng = random.Random(seed)
    user, umask = random_user(rng), rng.choice((0, 0o022, 0o077, 0o027))
    os.mkdir("in")
    for i in range(4):
        with open(f"in/{i}.png", "wb") as file:
            file.write(PNG)
        os.chmod(f"in/{i}.png", 0o4644)
    make_folder(rng, "out")
    ids = {} if user is None else {"user": user[0], "group": user[1][0], "extra_groups": user[1]}
    subprocess.run(["touch", "out/usual"], check=True, umask=umask, **ids)
    code, err = conv("emboss", "in", "out", user=user, umask=umask)
    assert code == 0, err
    assert {access(f"out/{name}") for name in os.listdir("out")} == {access("out/usual")}


@rounds
def test_preserve_gives_no_user_more_than_the_input(work, seed):
    rng = random.Random(seed)
    user = random_user(rng)
    os.mkdir("in")
    for i in range(FILES):
        make_file(rng, f"in/{i}.png")
    make_folder(rng, "out")
    if rng.random() < 0.5:
        for i in range(FILES):
            make_file(rng, f"out/{i}.png")
    paths = [f"in/{i}.png" for i in range(FILES)]
    before = opened(paths)
    code, err = conv("emboss", "-p", "--force", "in", "out", user=user, umask=rng.choice((0, 0o022, 0o077)))
    done = [path for path in paths if not user or (path, user, "r") in before]
    assert code == (0 if len(done) == FILES else 1), err
    after = {(path.replace("out/", "in/"), *rest) for path, *rest in opened([p.replace("in/", "out/") for p in done])}
    assert without(after, user) <= without(before, user), sorted(without(after, user) - without(before, user))[:5]
    for path in done:
        output = path.replace("in/", "out/")
        assert os.stat(output).st_mtime_ns == os.stat(path).st_mtime_ns
        assert os.stat(output).st_uid == (user[0] if user else 0) and os.stat(output).st_mode & 0o7000 == 0
        if os.stat(output).st_uid == os.stat(path).st_uid and os.stat(output).st_gid == os.stat(path).st_gid:
            assert access(output) == access(path)


@needs_root
def test_archives_and_tensors_that_are_replaced_keep_their_access(work):
    with open("a.png", "wb") as file:
        file.write(PNG)
    for name in ("a.tar", "a.zip", "a.npy"):
        args = ("layer", "gabor:2x2", "a.png", name) if name == "a.npy" else ("emboss", "a.png", name)
        conv(*args)
        os.chmod(name, 0o640)
        os.chown(name, 3001, 4001)
        os.setxattr(name, LIST, pack([(1, 6, 2**32 - 1), (2, 4, 3002), (4, 0, 2**32 - 1), (16, 4, 2**32 - 1),
                                      (32, 0, 2**32 - 1)]))
        before, inode = access(name), os.stat(name).st_ino
        assert conv(*args)[0] == 0 and os.stat(name).st_ino != inode and access(name) == before
        os.removexattr(name, LIST)
        os.chmod(name, 0o444)
        code, err = conv(*args)
        assert code == 1 and f"{name} is write-protected (--force replaces it)" in err
        code, err = conv(*args, "--force")
        assert code == 0 and stat.S_IMODE(os.stat(name).st_mode) == 0o444


# --- unfinished files -----------------------------------------------------------------------------

WAYS = {"in place": ("--in-place", "a.png"), "existing output": ("in.png", "a.png"), "preserve": ("-p", "in.png", "new.png")}


@needs_root
@pytest.mark.skipif(not shutil.which("strace"), reason="needs strace")
@pytest.mark.parametrize("way", WAYS)
def test_what_a_killed_run_leaves_gives_no_user_more(work, way):
    """Killed at each call that changes the access or the name of a file."""
    calls, seen = "fchown fchmod fsetxattr fremovexattr linkat renameat writev".split(), 0
    cases = [(0o600, None), (0o444, None), (0, pack([(1, 6, 2**32 - 1), (2, 4, 3002), (4, 0, 2**32 - 1),
                                                                    (16, 4, 2**32 - 1), (32, 0, 2**32 - 1)]))]
    for number, (mode, entries) in enumerate(cases):
        folder = str(number)
        os.mkdir(folder)
        os.setxattr(folder, DEFAULT, pack([(1, 7, 2**32 - 1), (2, 7, 3003), (4, 7, 2**32 - 1), (16, 7, 2**32 - 1),
                                           (32, 7, 2**32 - 1)]))
        paths = [f"{folder}/{name}" for name in WAYS[way] if name.endswith(".png")]
        for call in calls:
            for path in paths:
                with open(path, "wb") as file:
                    file.write(PNG)
                os.removexattr(path, LIST)
                os.chmod(path, mode)
                os.chown(path, 3001, 4001)
                if entries:
                    os.setxattr(path, LIST, entries)
            if way == "preserve":
                os.remove(paths.pop())
            reference = paths[-1]
            before = {(user, how) for _, user, how in opened([reference], FEW)}
            args = [arg if arg.startswith("-") else f"{folder}/{arg}" for arg in WAYS[way]]
            subprocess.run(["strace", "-f", "-qq", "-o", "/dev/null", "-e", f"trace={call}", "-e",
                            f"inject={call}:signal=KILL:when=1", "../conv", "emboss", "--device", "cpu", "--force", *args],
                           capture_output=True, timeout=program.TIMEOUT, umask=0)
            for name in os.listdir(folder):
                path = f"{folder}/{name}"
                if path in paths:
                    continue
                seen += name.startswith(".conv-")
                after = {(user, how) for _, user, how in opened([path], FEW)}
                assert after <= before, (way, call, oct(mode), name, oct(os.stat(path).st_mode), sorted(after - before)[:3])
                os.remove(path)
            if way == "preserve":
                paths.append(f"{folder}/new.png")
    assert seen > 5 or way == "preserve"


@pytest.mark.skipif(not shutil.which("strace"), reason="needs strace")
def test_a_list_that_cannot_be_kept_is_said_and_gives_the_group_nothing(box):
    """Users and groups that entries excluded are others then."""
    (box / "a.png").write_bytes(PNG)
    try:
        os.setxattr("a.png", LIST, pack([(1, 6, 2**32 - 1), (2, 4, 3002), (2, 5, 3003), (4, 6, 2**32 - 1), (16, 6, 2**32 - 1),
                                         (32, 6, 2**32 - 1)]))
    except OSError:
        pytest.skip("the file system has no access control lists")
    done = subprocess.run(["strace", "-f", "-qq", "-o", "/dev/null", "-e", "trace=fsetxattr", "-e",
                           "inject=fsetxattr:error=ENOSPC", program.BINARY, "emboss", "--device", "cpu", "--in-place", "a.png"],
                          capture_output=True, timeout=program.TIMEOUT,
                          env={**os.environ, "ASAN_OPTIONS": "detect_leaks=0"})  # which a traced process cannot do
    assert done.returncode == 0 and b"conv: a.png: the access control list could not be kept" in done.stderr
    assert stat.S_IMODE(os.stat("a.png").st_mode) == 0o604 and LIST not in os.listxattr("a.png")


@pytest.mark.skipif(not shutil.which("strace"), reason="needs strace")
@pytest.mark.parametrize("operands", (("emboss", "a.png", "b.png"), ("emboss", "a.png", "b.tar"), ("layer", "w.npy", "x.npy", "y.npy")))
def test_fsync_flushes_the_name_as_well(box, operands):
    """The second call, after that for the file; a tensor's folder was not flushed once."""
    (box / "a.png").write_bytes(PNG)
    np.save("w.npy", np.ones((1, 1, 3, 3), np.float32))
    np.save("x.npy", np.ones((1, 1, 8, 8), np.float32))
    done = subprocess.run(["strace", "-f", "-qq", "-o", "/dev/null", "-e", "trace=fsync", "-e", "inject=fsync:error=EIO:when=2",
                           program.BINARY, *operands, "--device", "cpu", "--fsync"],
                          capture_output=True, timeout=program.TIMEOUT, env={**os.environ, "ASAN_OPTIONS": "detect_leaks=0"})
    assert done.returncode and b"cannot flush the folder of " in done.stderr, done.stderr


# --- members of archives --------------------------------------------------------------------------

def archive(path, modes):
    """An image and a text of each mode, of another user, and a device."""
    names = {f"{mode:04o}{end}": mode for mode in modes for end in (".png", ".txt")}
    if path.endswith(".zip"):
        with zipfile.ZipFile(path, "w") as file:
            for name, mode in names.items():
                info = zipfile.ZipInfo(name)
                info.external_attr = (stat.S_IFREG | mode) << 16
                file.writestr(info, PNG if name.endswith("png") else b"text")
        return names
    with tarfile.open(path, "w") as file:
        for name, mode in names.items():
            info = tarfile.TarInfo(name)
            info.mode, info.uid, info.gid, info.mtime = mode, 3001, 4001, 1000
            data = PNG if name.endswith("png") else b"text"
            info.size = len(data)
            file.addfile(info, io.BytesIO(data))
        info = tarfile.TarInfo("device")
        info.type, info.mode = tarfile.CHRTYPE, 0o666
        file.addfile(info)
    return names


@pytest.mark.parametrize("kind", ("tar", "zip"))
@pytest.mark.parametrize("umask", (0o022, 0o077, 0o002))
def test_members_get_no_more_than_their_mode_and_the_umask_allow(box, kind, umask):
    """Set-user-ID, set-group-ID and sticky bits once came out of archives."""
    rng = random.Random(umask)
    names = archive(f"in.{kind}", [0o6755, 0o4711, 0o2755, 0o1777, 0o666, 0o600, *(rng.randrange(0o10000) for _ in range(20))])
    program.run("identity", f"in.{kind}", "out", "-p", code=1 if kind == "tar" else 0, umask=umask)
    assert sorted(os.listdir("out")) == sorted(names)
    for name, mode in names.items():
        info = os.stat(f"out/{name}")
        assert stat.S_IMODE(info.st_mode) == mode & 0o777 & ~umask, name
        assert info.st_uid == os.geteuid() and stat.S_ISREG(info.st_mode)
    program.run("identity", f"in.{kind}", "plain", code=1 if kind == "tar" else 0, umask=umask)
    assert {stat.S_IMODE(os.stat(f"plain/{name}").st_mode) for name in names} == {0o666 & ~umask}


# --- what is refused and said ---------------------------------------------------------------------

def test_a_write_protected_image_stays(box):
    """0444 is how originals are locked."""
    (box / "in").mkdir()
    for name in ("a.png", "b.png"):
        (box / "in" / name).write_bytes(PNG)
    (box / "in" / "a.png").chmod(0o444)
    assert "in/a.png: is write-protected (--force replaces it)" in program.run("emboss", "--in-place", "--dry-run", "in", code=1).err
    assert "in/a.png: is write-protected (--force replaces it)" in program.run("emboss", "--in-place", "in", code=1).err
    assert content("in/a.png") == PNG != content("in/b.png")
    result = program.run("emboss", "in/b.png", "in/a.png", code=1)
    assert "the output in/a.png is write-protected (--force replaces it)" in result.err
    assert "replaced" not in result.err and content("in/a.png") == PNG
    program.run("emboss", "--in-place", "--force", "in/a.png")
    assert content("in/a.png") != PNG and stat.S_IMODE(os.stat("in/a.png").st_mode) == 0o444


@needs_root
@pytest.mark.parametrize("flag,word", (("+i", "immutable"), ("+a", "append-only")))
def test_an_immutable_file_is_reported(box, flag, word):
    (box / "a.png").write_bytes(PNG)
    if not shutil.which("chattr") or subprocess.run(["chattr", flag, "a.png"], capture_output=True).returncode:
        pytest.skip("needs chattr and a file system that has these attributes")
    try:
        for args in (("--in-place", "a.png"), ("--in-place", "--force", "a.png")):
            assert f"a.png: is {word}" in program.run("emboss", *args, code=1).err
    finally:
        subprocess.run(["chattr", flag.replace("+", "-"), "a.png"], check=True)
    assert os.listdir() == ["a.png"] and content("a.png") == PNG


def test_the_name_of_a_file_that_the_last_operand_replaces_is_printed(box):
    """Of two images without an output the second was once replaced without a word."""
    for name in ("a.png", "b.png"):
        (box / name).write_bytes(PNG)
    assert program.run("emboss", "a.png", "b.png").err == "conv: replaced b.png\n"
    assert program.run("emboss", "a.png", "new.png").err == ""
    assert program.run("emboss", "-q", "a.png", "b.png").err == ""
    assert program.run("emboss", "a.png", "-o", "b.png").err == ""
    program.run("emboss", "a.png", "b.tar")
    assert "conv: replaced b.tar\n" in program.run("emboss", "a.png", "b.tar").err
    assert "replaced" not in program.run("emboss", "a.png", "b.tar", "--skip-existing").err
