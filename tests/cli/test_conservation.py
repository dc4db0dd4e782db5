# SPDX-License-Identifier: MIT
"""Nothing is lost in silence: every record `done` or `copied` has a file or member of its own with the right content, and
every input has a record. Random runs over folders, lists and archives; CONV_ROUNDS=3000 makes more of them, and
CONV_SEED=N repeats one. On the first version with this test seven of 3,000 runs lost a file."""
import fnmatch
import io
import json
import os
import posixpath
import random
import shutil
import struct
import tarfile
import warnings
import zipfile

import numpy as np

import images
import jpeg
import tars
from program import HAS_JPEG, run

ROUNDS = int(os.environ.get("CONV_ROUNDS", 60))
STEMS, ENDS, FOLDERS = ("a", "b", "a_s"), (".png", ".png", ".jpg", ".jpeg", ".npy", ".cls", ""), ("", "", "x/", "a/", "x/y/")
SPELLINGS = ("", "", "", "./", "x/../", "/", ".//")


def content(kind, number):
    """An image that its size tells from all others, or something that is none."""
    width, height = number % 40 + 1, number // 40 + 2
    if kind == "png":
        return images.make("rgb8", np.random.default_rng(number), width, height).data
    if kind == "jpg":
        return jpeg.make(np.full((height, width, 3), number % 256, np.uint8))
    return b"content %d" % number


def size_of(data):
    """Width and height of a PNG, JPEG or .npy file, or None."""
    if data[:4] == b"\x89PNG":
        return struct.unpack(">II", data[16:24])
    if data[:2] == b"\xff\xd8":
        return jpeg.decode(data).shape[1::-1]
    if data[:6] == b"\x93NUMPY":
        return np.load(io.BytesIO(data)).shape[:-3:-1]
    return None


def make_inputs(rng):
    """Makes one to three inputs. Returns the operands and, by the name in reports, what each file or member is."""
    found, operands, number = {}, [], rng.randrange(1000)
    for kind in rng.choices(("folder", "tar", "tar", "tar.gz", "zip", "file"), k=rng.choice((1, 1, 2, 2, 3))):
        path = rng.choice(("p", "q", "d/p")) + ({"folder": "", "file": ".png"}.get(kind, "." + kind))
        if os.path.basename(path) in map(os.path.basename, operands):
            continue
        members, names = [], []
        for _ in range(1 if kind == "file" else rng.randint(0, 7)):
            number += 1
            archive = kind not in ("folder", "file")
            name = rng.choice(FOLDERS) + rng.choice(STEMS) + rng.choice(ENDS)
            if archive and rng.random() < 0.2:
                name = rng.choice(SPELLINGS) + name
            what = "jpg" if name[-4:] in (".jpg", "jpeg") and HAS_JPEG else "png"
            data = content(rng.choice((what,) * 4 + ("none",)) if name.endswith((".png", ".jpg", ".jpeg")) else "none", number)
            type_ = tarfile.REGTYPE
            if archive and rng.random() < 0.35:
                type_ = rng.choice((tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.SYMTYPE, *(() if kind == "zip" else (tarfile.LNKTYPE,) * 3 + (tarfile.FIFOTYPE,))))
            link = ""
            if type_ == tarfile.LNKTYPE:
                link = rng.choice([n for n, _, f in members if f["type"] != tarfile.DIRTYPE] or ["gone.png"])
            if type_ == tarfile.SYMTYPE:
                link = rng.choice((rng.choice(names or ["a.png"]), rng.choice(FOLDERS) + rng.choice(STEMS) + ".png", "/etc/passwd", "../../a.png"))
                link = posixpath.relpath(posixpath.normpath("/" + link), posixpath.normpath("/" + posixpath.dirname(name))) if link[:1] not in "/." else link
            if kind in ("folder", "file") and any(n == name or n.startswith(name + "/") or name.startswith(n + "/") for n in names):
                continue
            names.append(name)
            members.append((name, data if type_ == tarfile.REGTYPE else b"", {"type": type_, "linkname": link}))
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        if kind == "file":
            open(path, "wb").write(members[0][1])
            found[path] = ("file", members[0][1], path)
        elif kind == "folder":
            os.makedirs(path)
            for name, data, _ in members:
                os.makedirs(os.path.dirname(f"{path}/{name}"), exist_ok=True)
                open(f"{path}/{name}", "wb").write(data)
                found[f"{path}/{name}"] = ("file", data, name)
        else:
            write_archive(path, kind, members)
            for name, data, fields in members:
                key = f"{path}:{name}"
                found.setdefault(key, []).append((fields["type"], data, name, fields["linkname"]))
        operands.append(path)
    return operands, found


def write_archive(path, kind, members):
    if kind != "zip":
        with tarfile.open(path, "w:gz" if kind == "tar.gz" else "w", format=tarfile.GNU_FORMAT) as archive:
            for name, data, fields in members:
                tars.add(archive, name, data, **fields)
        return
    with zipfile.ZipFile(path, "w") as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of names that come twice
        for name, data, fields in members:
            info = zipfile.ZipInfo(name + "/" * (fields["type"] == tarfile.DIRTYPE))
            info.external_attr = {tarfile.REGTYPE: 0o100644, tarfile.DIRTYPE: 0o40755, tarfile.SYMTYPE: 0o120777}[fields["type"]] << 16
            archive.writestr(info, fields["linkname"].encode() if fields["type"] == tarfile.SYMTYPE else data)


def make_list(rng, folder, inputs):
    """A list of names in the folder, some of them twice or in another spelling."""
    names = [value[2] for value in inputs.values()]
    names = [rng.choice(("", "", "./")) + name for name in names + rng.choices(names, k=rng.randint(0, 2)) if rng.random() < 0.9]
    open("list", "w").write("".join(name + "\n" for name in names))
    inputs.update({f"{folder}/{name}": inputs[f"{folder}/{posixpath.normpath(name)}"] for name in names})
    return {f"{folder}/{name}" for name in names}


def options_of(rng, to_archive, any_archive):
    chosen = []
    for share, values in ((0.5, (["--to", "png"], ["--to", "jpg"] if HAS_JPEG else ["--to", "png"], ["--output-type", "f32"])),
                          (0.2, (["--suffix", "_s"],)), (0.15, (["--include", "*.png"], ["--include", "*"])),
                          (0.15, (["--exclude", "*.jpg"], ["--exclude", "b*"])), (0.3, (["-r"],)), (0.5, (["-j1"], ["-j4"])),
                          (0.1, (["--limit", "2"],)), (0.15, (["--images-only"],) if any_archive else ()), (0.3, (["--on-error", "copy"],) if to_archive else ())):
        if values and rng.random() < share:
            chosen += rng.choice(values)
    return chosen


def read_outputs(output):
    """By name as in reports: the type, content or target of all outputs. A name that comes twice is an error."""
    found = {}
    paths = [os.path.join(base, name) for base, _, files in os.walk(output) for name in files] if os.path.isdir(output) else [output]
    for path in paths:
        entries = [(path, tarfile.REGTYPE, None)]
        if path.endswith((".tar", ".tar.gz")) and (path == output or output[:3] == "all"):
            with tarfile.open(path) as archive:
                entries = [(f"{path}:{m.name}", m.type, archive.extractfile(m).read() if m.isreg() else m.linkname) for m in archive]
        elif path.endswith(".zip") and (path == output or output[:3] == "all"):
            with zipfile.ZipFile(path) as archive:
                entries = [(f"{path}:{i.filename.rstrip('/')}", {0o12: tarfile.SYMTYPE, 0o4: tarfile.DIRTYPE}.get(i.external_attr >> 28, tarfile.REGTYPE),
                            archive.read(i)) for i in archive.infolist()]
                entries = [(n, t, d if t == tarfile.REGTYPE else d.decode()) for n, t, d in entries]
        else:
            entries = [(path, tarfile.REGTYPE, open(path, "rb").read())]
        for name, type_, data in entries:
            assert name not in found, f"{name} twice"
            found[name] = (type_, data)
    spelled = [posixpath.normpath(name.replace(":", ":/")) for name in found]
    assert len(set(spelled)) == len(spelled), spelled
    return found


def resolve(link, name, hard):
    """The name of the member that a link of that name leads to, without "." and ".."; None outside of the archive."""
    if link.startswith("/") and not hard:
        return None
    path = posixpath.normpath(link.lstrip("/") if hard else posixpath.join(posixpath.dirname(name.lstrip("/")), link))
    return None if path.startswith("..") else path


def check_record(record, inputs, outputs, options):
    kind, data = outputs[record["output"]]
    candidates = inputs[record["input"]] if isinstance(inputs[record["input"]], list) else [inputs[record["input"]]]
    if record["status"] == "done":
        size = size_of(data)
        match = [c for c in candidates if size_of(c[1]) == size]
        assert match, ("another image", record)
        if data[:4] == b"\x89PNG" and match[0][1][:4] == b"\x89PNG":
            assert any(np.array_equal(images.decode(data), images.decode(c[1])) for c in match), record
        end = record["output"].rsplit(".", 1)[-1].lower()
        assert {b"\x89P": "png", b"\xff\xd8": "jpg", b"\x93N": "npy"}[data[:2]] == ("jpg" if end[:2] == "jp" else end if "." in record["output"] else end) \
            or "--include" in options, record
    elif kind == tarfile.REGTYPE:
        assert any(c[1] == data for c in candidates), ("other bytes", record)
        assert posixpath.normpath("/" + record["output"].replace(":", "/", 1)).endswith(posixpath.normpath("/" + candidates[0][2].lstrip("/"))), ("renamed", record)


def check_links(records, inputs, outputs, is_partial):
    """Links of the output lead to what the links of the input led to."""
    for record in records:
        if record["status"] != "copied" or outputs[record["output"]][0] not in (tarfile.SYMTYPE, tarfile.LNKTYPE):
            continue
        kind, link = outputs[record["output"]]
        path, name = record["output"].split(":", 1)
        hard = kind == tarfile.LNKTYPE
        members = {resolve(key.split(":", 1)[1], "", True) for key in outputs if key.startswith(path + ":")}
        target = resolve(link, name, hard)
        folders = {m[:i] for m in members for i, letter in enumerate(m) if letter == "/"}
        assert not (hard or is_partial and target) or target in members | folders, ("dangling", record, link)
        before, *others = {resolve(c[3], name, hard) for c in inputs[record["input"]] if c[0] == kind}
        if others:
            continue  # which of the members of one name was written?
        archive = record["input"].split(":")[0] + ":" if path.startswith("all") else ""
        led = [i for i, value in inputs.items() if isinstance(value, list) and i.startswith(archive)
               and before == resolve(i.split(":", 1)[1], "", True)]
        led = [r for r in records if r["input"] in led]
        kept = {resolve(r["output"].split(":", 1)[1], "", True) for r in led if r["status"] in ("done", "copied")}
        if not led or before is None or before == resolve(name, "", True):  # itself, or an earlier member of its name
            assert target == before or target in kept
            continue
        kept |= {before for r in led if "copied as it is" in (r["error"] or "")}
        if kept:
            assert target in kept, ("another target", record, link, kept)
        elif not is_partial:
            assert any(r["error"] and "an earlier link to it" in r["error"] for r in led), ("dangling", record, link, led)


def taken(operands, inputs, options):
    """The names of the inputs that must have a record."""
    names = set()
    for name, value in inputs.items():
        base = os.path.basename(name.split(":", 1)[-1])
        relative = value[2] if not isinstance(value, list) else value[0][2].lstrip("/")
        include = [options[i + 1] for i, o in enumerate(options) if o == "--include"]
        exclude = [options[i + 1] for i, o in enumerate(options) if o == "--exclude"]
        is_image = any(fnmatch.fnmatch(base, g) for g in include) if include else base.lower().endswith((".png", ".jpg", ".jpeg") if HAS_JPEG else ".png")
        is_image = is_image and not any(fnmatch.fnmatch(base, g) for g in exclude)
        if isinstance(value, tuple):
            if name in operands or is_image and ("-r" in options or "/" not in relative):
                names.add(name)
        elif "--images-only" not in options or is_image and any(c[0] in (tarfile.REGTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE) for c in value):
            names.add(name)
    return names


def place(output, shard, shards):
    return output.replace("all", f"all{shard}").replace("out.", f"out{shard}.") if shards else output


def one_run(rng):
    operands, inputs = make_inputs(rng)
    if not operands:
        return False
    archives = [o for o in operands if not os.path.isdir(o) and not o.endswith(".png")]
    output = rng.choice(("out/", "out/", "all/", "out.tar", "out.tar", "out.zip", "out.tar.gz"))
    to_archive = output.startswith("out.") or output == "all/" and archives == operands
    options = options_of(rng, to_archive, bool(archives))
    listed = None
    if len(operands) == 1 and os.path.isdir(operands[0]) and inputs and output != "all/" and rng.random() < 0.5:
        options = [o for o in options if o not in ("-r", "--include", "--exclude", "*.png", "*", "*.jpg", "b*")] + ["--files-from", "list"]
        listed = make_list(rng, operands[0], inputs)
    if output == "all/":
        options += ["--format", "tar"] if len(archives) == 1 == len(operands) else []
    if output == "out/":
        options += ["--format", "files"] if archives else []
    shards = rng.choice((0, 0, 0, 2))
    records, codes = [], []
    for i in range(shards or 1):
        where = place(output, i, shards)
        result = run("identity", *options, *operands, where, "--report", "r.jsonl", *(["--shard", f"{i}/{shards}"] if shards else []), code=None)
        codes.append(result.code)
        assert result.code in (0, 1, 2, 3), result.err
        if result.code == 2:
            return False
        lines = [json.loads(line) for line in open("r.jsonl")]
        records += [r for r in lines if r["type"] == "file"]
    for record in records:
        if record["output"] and not to_archive:
            record["output"] = posixpath.normpath(record["output"])
    outputs = {}
    for i in range(shards or 1):
        where = place(output, i, shards)
        if os.path.exists(where):
            outputs.update(read_outputs(where))
    made = [r for r in records if r["status"] in ("done", "copied")]
    assert len({r["output"] for r in made}) == len(made), "two records of one output"
    for record in made:
        assert record["output"] in outputs, ("lost", record)
        check_record(record, inputs, outputs, options)
    if to_archive:
        check_links(records, inputs, outputs, shards or "--limit" in options or "--images-only" in options)
    as_they_are = [r for r in records if "copied as it is" in (r["error"] or "")]
    numbered = {r["error"].split("this one is ")[1] for r in records if "this one is " in (r["error"] or "")}
    assert all(any(o.endswith("/" + n) for o in set(outputs) - {r["output"] for r in made}) for n in numbered), ("lost", numbered)
    assert len(outputs) == len(made) + len(as_they_are) + len(numbered), ("outputs without a record", sorted(outputs), made)
    with_record = {r["input"] for r in records}
    missing = (taken(operands, inputs, options) if listed is None else listed) - with_record
    if not to_archive:
        missing = {m for m in missing if not (isinstance(inputs[m], list) and all(c[0] == tarfile.DIRTYPE for c in inputs[m]))}
    if "--limit" in options:
        return True
    assert not missing, ("no record", missing)
    for name, value in inputs.items():
        if isinstance(value, list) and name in with_record and "--images-only" not in options and (to_archive or all(c[0] == tarfile.REGTYPE for c in value)):
            assert sum(r["input"] == name for r in records) == len(value), ("records", name)
    assert (1 in codes) == any(r["status"] == "failed" for r in records), codes
    return True


def test_conservation(box):
    first, checked = int(os.environ.get("CONV_SEED", 0)), 0
    for seed in range(first, first + (1 if "CONV_SEED" in os.environ else ROUNDS)):
        os.mkdir(f"{seed}")
        os.chdir(f"{seed}")
        try:
            checked += one_run(random.Random(seed))
        except BaseException:
            print(f"CONV_SEED={seed}")
            raise
        os.chdir("..")
        shutil.rmtree(f"{seed}")
    assert checked > ROUNDS // 2 or "CONV_SEED" in os.environ, checked
