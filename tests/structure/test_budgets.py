# SPDX-License-Identifier: MIT
"""The size of the tree against budgets.txt, and no generated files in it."""
import pathlib
import re

import pytest

from test_structure import SOURCE

HERE = pathlib.Path(__file__).parent
UNCOUNTED = {".png", ".jpg", ".npy", ".pyc"}
DATA = {"kernels/layer/networks.txt", "tests/sweep/filters.txt"}  # the layers and filters that are measured and swept
# What tools/make-* and the program write at the head of their files.
MARK = re.compile(rb'made by tools/[^\n]*do not edit|name="generator" content="conv [0-9]')
# These may stand in the tree; the others are made by the build or by a tool.
GENERATED = {"docs/commands.md", "docs/ladder.svg", "docs/speed.svg"}


def read_budgets():
    rows = []
    for line in (HERE / "budgets.txt").read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            budget, ceiling, what, folders = (part.strip() for part in line.split("|"))
            rows.append((what, max(int(budget), int(ceiling or 0)), folders.split()))
    return rows


def files_of(root, folders):
    """What is counted, relative to the root."""
    without = tuple(folder[1:] + "/" for folder in folders if folder.startswith("-"))
    for folder in folders:
        top = root / folder
        for path in [top] if top.is_file() else top.rglob("*"):
            name = path.relative_to(root).as_posix()
            if (path.is_file() and path.suffix not in UNCOUNTED and name not in DATA and not name.startswith(without)
                    and (path.suffix != ".md" or folder in ("docs", "share")) and not is_generated(path)):
                yield path


def is_generated(path):
    with open(path, "rb") as file:
        return MARK.search(file.read(600)) is not None and path.parent.name not in ("structure", "tools")


def count(root, what, folders):
    paths = list(files_of(root, folders))
    return len(paths) if what.startswith("files") else sum(path.read_bytes().count(b"\n") for path in paths)


def above_budget(root):
    counts = ((what, count(root, what, folders), most) for what, most, folders in read_budgets())
    return [f"{what}: {number}, at most {most}" for what, number, most in counts if number > most]


def generated_files(root):
    tops = ("docs", "share", "src", "kernels", "include", "python", "README.md")
    paths = (path for top in tops for path in ([root / top] if (root / top).is_file() else (root / top).rglob("*")))
    found = (path.relative_to(root).as_posix() for path in paths if path.is_file() and is_generated(path))
    return sorted(set(found) - GENERATED)


def test_the_tree_keeps_its_budgets():
    assert above_budget(SOURCE) == []


def test_each_part_is_counted():
    assert all(count(SOURCE, what, folders) > 0 for what, _, folders in read_budgets())


def test_no_generated_files():
    assert generated_files(SOURCE) == []


@pytest.fixture
def planted(tmp_path):
    """An otherwise empty tree."""
    def plant(name, text):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
        return tmp_path

    return plant


@pytest.mark.parametrize("name, what", (("src/base/planted.c", "lines of src without bench"),
                                        ("kernels/stencil/planted.cuh", "lines of kernels without ladder"),
                                        ("docs/planted.md", "lines of docs and share")))
def test_planted_lines_are_found(planted, name, what):
    root = planted(name, "// \n" * 100000)
    assert [line for line in above_budget(root) if line.startswith(what)]


def test_planted_files_are_found(planted):
    for number in range(1000):
        root = planted(f"src/io/walk/planted{number}.h", "")
    assert {line.split(":")[0] for line in above_budget(root)} == {"files of the product", "files of src/io/walk"}


def test_planted_images_and_bench_are_not_counted(planted):
    for name in ("docs/planted.png", "kernels/planted.md"):
        root = planted(name, "\n" * 1000000)
    assert above_budget(root) == []


def test_a_planted_generated_file_is_found(planted):
    root = planted("docs/planted.md", "<!-- made by tools/make-gallery; do not edit -->\n")
    assert "docs/planted.md" in generated_files(root)
