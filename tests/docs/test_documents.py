# SPDX-License-Identifier: MIT
"""Runs every command of README.md and the documentation, and compares output where it is shown. By name: tools/test docs.

A block of code that is indented by four spaces, or fenced as sh, is one script, run by bash in a folder of its own with the
files of `workplace`. A comment before a block makes an exception:

    <!-- docs-test: skip (REASON) -->      not run
    <!-- docs-test: gpu -->                run where conv finds a GPU; so is any block with `--device cuda`
    <!-- docs-test: program -->            run if the tool that it needs (first word of the block) is installed
    <!-- docs-test: source -->             run in the checkout, without changing it
    <!-- docs-test: until interrupted -->  ended by SIGINT after a second
    <!-- docs-test: exit N -->             run; the last command ends with that exit code
    <!-- docs-test: output -->             the output of the block before it; numbers may differ, `...` stands for any lines, … for the rest of one
    <!-- docs-test: run -->                run, apart from the block before
    <!-- docs-test: text -->               no command: a formula, a drawing, a file
"""
import ast
import os
import re
import shutil
import signal
import subprocess

import numpy as np
import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BINARY = os.path.abspath(os.environ.get("CONV_BINARY") or os.path.join(ROOT, "build", "conv"))
TIMEOUT = 600
DOCUMENTS = ["README.md", "CONTRIBUTING.md", "kernels/README.md", "kernels/layer/README.md",
             "kernels/layer/beside-cudnn.md", "kernels/layer/cpu-kernels.md", "kernels/layer/fast-kernels.md"] + sorted(
    os.path.relpath(os.path.join(folder, name), ROOT) for folder, _, names in os.walk(os.path.join(ROOT, "docs")) for name in names
    if name.endswith(".md"))
BLOCK = re.compile(r"(?ms)(?:^<!-- docs-test: ([^\n]*?) -->\n\n?)?(?:^```(\w*)\n(.*?)^```$|((?:^    [^\n]*\n(?:\n(?=    ))?)+))")
KINDS = ("gpu", "program", "source", "until interrupted", "output", "text")


class Block:
    def __init__(self, document, line, kind, language, text):
        self.document, self.line, self.kind, self.language, self.text = document, line, kind, language, text
        self.name = f"{document}:{line}"


def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        return file.read()


def blocks_of(document):
    text = read(document)
    if document == "docs/commands.md":  # the rest is syntax
        start = text.index("## Examples")
        text = "\n" * text[:start].count("\n") + text[start:]
    found = []
    for match in BLOCK.finditer(text):
        language = match[2] or ""
        body = match[3] if match[3] is not None else re.sub(r"(?m)^    ", "", match[4])
        before = text[:match.start()].rstrip("\n").rsplit("\n", 1)[-1]
        if body.startswith("<!-- "):
            continue  # filled in when the site is built
        if match[4] and re.match(r"\s*(- |\d+\. |: )", before):
            continue  # the text of a list
        if match[3] is not None and language not in ("", "sh", "bash", "console") and not match[1]:
            if language == "python":
                found.append(Block(document, text[:match.start()].count("\n") + 1, "python", language, body))
            continue
        kind = match[1] or ("gpu" if "--device cuda" in body else "run")
        found.append(Block(document, text[:match.start()].count("\n") + 1, kind, language, body))
    return found


BLOCKS = [block for document in DOCUMENTS for block in blocks_of(document)]


def write_tensors(folder):
    rng = np.random.default_rng(1)
    for name, shape in (("w", (4, 3, 5, 5)), ("weights", (4, 3, 5, 5)), ("x", (2, 3, 32, 32))):
        np.save(os.path.join(folder, f"{name}.npy"), rng.standard_normal(shape).astype(np.float32))
    weights = rng.standard_normal((4, 3, 5, 5)).astype(np.float32)
    header = b'{"conv1.weight":{"dtype":"F32","shape":[4,3,5,5],"data_offsets":[0,%d]}}' % weights.nbytes
    with open(os.path.join(folder, "model.safetensors"), "wb") as file:
        file.write(len(header).to_bytes(8, "little") + header + weights.tobytes())


@pytest.fixture(scope="session")
def template(tmp_path_factory):
    """The files that the commands of the documentation name."""
    folder = str(tmp_path_factory.mktemp("template"))
    run = lambda *words: subprocess.run([BINARY, *words, "--device=cpu"], cwd=folder, check=True)  # noqa: E731
    sample = lambda name: os.path.join(ROOT, "samples", name)  # noqa: E731
    for name in ("photos", "in", "in/deeper", "folder", "copies", "incoming", "images", "logs"):
        os.makedirs(os.path.join(folder, name))
    for i, name in enumerate(("landscape-rgb.png", "spheres-rgb.png", "plasma-interlaced.png")):
        for place in ("in", "in/deeper", "folder", "images", "copies"):
            shutil.copy(sample(name), os.path.join(folder, place, "abc"[i] + ".png"))
    for name in ("photo.jpg", "photos/d.jpg"):
        shutil.copy(os.path.join(ROOT, "docs", "photo.jpg"), os.path.join(folder, name))
    for name, words in (("a", "identity"), ("b", "blur"), ("c", "motion")):
        run(words, "photo.jpg", f"photos/{name}.png")
    os.mkdir(os.path.join(folder, "broken"))
    shutil.copy(sample("spheres-rgb.png"), os.path.join(folder, "broken", "good.png"))
    with open(os.path.join(folder, "broken", "bad.png"), "wb") as file:
        file.write(b"no image")
    run("identity", "photo.jpg", "photo.png")
    for name in ("in.png", "scan.png"):
        shutil.copy(sample("landscape-rgb.png"), os.path.join(folder, name))
    with open(os.path.join(folder, "mine.mat"), "w", encoding="utf-8") as file:
        file.write("3 3 1 0\n-2 -1 0\n-1 1 1\n0 1 2\n")
    subprocess.run(["tar", "cf", "in.tar", "images"], cwd=folder, check=True)
    shutil.make_archive(os.path.join(folder, "in"), "zip", folder, "images")
    for i in range(128):
        subprocess.run(["tar", "cf", f"shards-{i:06d}.tar", "-C", os.path.join(ROOT, "samples"), "dot-1x1.png"], cwd=folder, check=True)
    for shard in range(2):
        run("emboss", "photos", "reported", f"--shard={shard}/2", f"--report=logs/report-{shard}.jsonl", "-q")
    shutil.rmtree(os.path.join(folder, "reported"))
    write_tensors(folder)
    os.mkdir(os.path.join(folder, "bin"))
    os.symlink(BINARY, os.path.join(folder, "bin", "conv"))
    return folder


@pytest.fixture
def workplace(template, tmp_path):
    folder = str(tmp_path / "work")
    shutil.copytree(template, folder, symlinks=True)
    return folder


def run_script(text, folder, interrupted=False, code=0):
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "OMPI_", "PMI_"))}
    environment.update(PATH=os.path.join(folder, "bin") + os.pathsep + os.environ["PATH"], LC_ALL="C.UTF-8")
    script = "set -euo pipefail\n" + re.sub(r"(?m)^\$ ", "", text)
    process = subprocess.Popen(["bash", "-c", script], cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True, start_new_session=True)
    try:
        out, err = process.communicate(timeout=1.5 if interrupted else TIMEOUT)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGINT if interrupted else signal.SIGKILL)
        out, err = process.communicate()
        assert interrupted, f"not over after {TIMEOUT} s:\n{text}"
        return out, err
    assert process.returncode == code, f"exit code {process.returncode}:\n{text}\n{err[-2000:]}"
    return out, err


def pattern_of(shown):
    """A pattern for the shown output, with any numbers and any lines in the place of `...`."""
    lines = []
    for line in shown.splitlines():
        if line.strip() == "...":
            lines.append(r"(?:[^\n]*\n)*?")
            continue
        parts = re.split(r"(\d[\d.]*|…)", " ".join(line.split()))
        lines.append("".join(("[^\n]*" if part == "…" else r"\d[\d.]*") if i % 2 else re.escape(part) for i, part in enumerate(parts)) + r"\n")
    return "".join(lines)


@pytest.mark.parametrize("block", [b for b in BLOCKS if b.kind not in ("output", "text", "python") and not b.kind.startswith("skip")],
                         ids=lambda block: block.name)
def test_block_runs(block, workplace):
    if block.kind == "gpu" and "cuda:0" not in subprocess.run([BINARY, "devices"], capture_output=True, text=True).stdout:
        pytest.skip("no GPU")
    if block.kind == "program" and not shutil.which(block.text.split()[0]):
        pytest.skip(f"{block.text.split()[0]} is not installed")
    folder = workplace
    if block.kind == "source":
        for name in ("tools", "share", "docs", "samples", "filters", "build", "examples"):
            if not os.path.lexists(os.path.join(folder, name)) and os.path.exists(os.path.join(ROOT, name)):
                os.symlink(os.path.join(ROOT, name), os.path.join(folder, name))
    out, err = run_script(block.text, folder, block.kind == "until interrupted",
                          int(block.kind[5:]) if block.kind.startswith("exit ") else 0)
    at = BLOCKS.index(block) + 1
    if at < len(BLOCKS) and BLOCKS[at].kind == "output" and BLOCKS[at].document == block.document:
        said = "\n".join(" ".join(line.split()) for line in (out + err).splitlines()) + "\n"
        assert re.search(pattern_of(BLOCKS[at].text), said), f"{BLOCKS[at].name} shows\n{BLOCKS[at].text}\nbut the output is\n{out}{err}"


@pytest.mark.parametrize("block", [b for b in BLOCKS if b.kind == "python"], ids=lambda block: block.name)
def test_python_is_valid(block):
    ast.parse(block.text)


def test_the_version_to_cite_is_that_of_the_program():
    cited = re.search(r"(?m)^version: (.*)$", read("CITATION.cff"))[1]
    assert subprocess.run([BINARY, "--version"], capture_output=True, text=True).stdout.split()[1] == cited


def test_benchmarks_that_are_named_exist():
    """`tools/bench CASE` where figures come from. A folder that does not exist was a traceback."""
    def bench(*words):
        return subprocess.run([os.path.join(ROOT, "tools", "bench"), *words], capture_output=True, text=True, env={**os.environ, "CONV_BINARY": BINARY})
    named = {case for document in DOCUMENTS for case in re.findall(r"tools/bench\s+([a-z][a-z-]*)", read(document))}
    cases = set(re.findall(r"(?m)^  ([a-z-]+) ", bench().stdout))
    assert len(cases) > 20 and "competitors" in named and named <= cases, named - cases
    assert bench("competitors", "/none", "/none/out").stderr == "tools/bench competitors: /none: No such file or directory\n"


def test_tests_of_faults_exist():
    """Two that docs/faults.md named had become parts of others."""
    cells = re.findall(r"(?m)^\|.*\| ([^|]*[a-z][^|]*) \|$", read("docs/faults.md"))
    names = {re.split("[: ]", name.strip("`"))[0] for cell in cells if cell != "test" for name in cell.split(", ")}
    paths = {name: re.sub("^unit/(.*)", r"tests/unit/test_\1.c", name) if "/" in name else f"tests/cli/test_{name}.py" for name in names}
    assert len(paths) > 40 and not [name for name, path in paths.items() if not os.path.exists(os.path.join(ROOT, path))]


def test_marks_are_known():
    """Each mark is one of those above, with a reason where it needs one; at least half of the blocks are run."""
    kinds = [block.kind for block in BLOCKS]
    wrong = [block.name for block in BLOCKS if block.kind not in (*KINDS, "run", "python") and not re.fullmatch(r"skip \(.{8,}\)|exit [1-9]", block.kind)]
    assert not wrong
    assert kinds.count("run") > sum(kind.startswith("skip") for kind in kinds)


def test_an_output_that_differs_is_found():
    assert re.search(pattern_of("a 1.5 b\n...\nend 2"), "a 7 b\nx\ny\nend 33\n")
    assert not re.search(pattern_of("a 1.5 b\n...\nend 2"), "a 7 c\nend 33\n")
