# SPDX-License-Identifier: MIT
"""The stub has what the package has, with the same arguments; checkers of types accept right uses and find wrong ones."""

import ast
import inspect
import os
import re
import subprocess
import sys
from importlib import metadata, util
from pathlib import Path

import pytest

import conv

from conftest import ROOT

HERE = Path(conv.__file__).parent
STUB = ast.parse((HERE / "__init__.pyi").read_text(encoding="utf-8"))
FUNCTIONS = [name for name in conv.__all__ if inspect.isfunction(getattr(conv, name))]
# What the annotations of arguments are, by name: of dictionaries with types, their keys.
DICTIONARIES = {node.targets[0].id: [key.value for key in node.value.args[1].keys] for node in STUB.body
                if isinstance(node, ast.Assign) and ast.unparse(node.value).startswith("TypedDict")}
CLASSES = {node.name: node for node in STUB.body if isinstance(node, ast.ClassDef)}


def keys_of(name):
    if name in DICTIONARIES:
        return DICTIONARIES[name]
    own = [node.target.id for node in CLASSES[name].body if isinstance(node, ast.AnnAssign)]
    return [key for base in CLASSES[name].bases if ast.unparse(base) in {*DICTIONARIES, *CLASSES} for key in keys_of(ast.unparse(base))] + own


def arguments(body, name):
    """Of all overloads together."""
    found = set()
    for node in body:
        if isinstance(node, ast.FunctionDef) and node.name == name:
            found |= {a.arg for a in node.args.args + node.args.kwonlyargs} - {"self"}
            if node.args.kwarg:
                found |= set(keys_of(re.fullmatch(r"Unpack\[(\w+)\]", ast.unparse(node.args.kwarg.annotation))[1]))
    return found


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name):
    same = arguments(CLASSES["_Decoder"].body, "__call__") if name.startswith("decode") else arguments(STUB.body, name)
    assert same == set(inspect.signature(getattr(conv, name)).parameters)


@pytest.mark.parametrize("name", ("Array", "Filter", "Layer"))
def test_classes(name):
    real, stub = getattr(conv, name), CLASSES[name].body
    ours = {key for key in vars(real) if not key.startswith("_")} - {"workspace", "run_with"}  # for conv.torch
    assert {node.name for node in stub if not node.name.startswith("_")} == ours
    for method in {node.name for node in stub} & {"__init__", "__call__", "kernels"}:
        assert arguments(stub, method) == set(re.findall(r"(\w+):", getattr(real, method).__nb_signature__[0][0]))


def test_everything_is_documented():
    for name in conv.__all__:
        assert inspect.getdoc(getattr(conv, name)), name
    for name in FUNCTIONS:
        documentation = inspect.getdoc(getattr(conv, name))
        for parameter in inspect.signature(getattr(conv, name)).parameters:
            assert re.search(rf"\b{parameter}\b", documentation), (name, parameter)


@pytest.mark.parametrize("torch", (True, False))
@pytest.mark.parametrize("checker", ("mypy", "basedpyright"))
def test_checkers(checker, torch, tmp_path):
    """Each line of the uses that is marked as wrong is found, and no other. torch is what conv's stub needs of it, or is
    missing: then a list of files once had the type of one image."""
    if util.find_spec(checker) is None or checker == "mypy" and tuple(map(int, metadata.version(checker).split(".")[:2])) < (1, 9):
        pytest.skip(f"no {checker}, or an old one, which has other names of errors")
    uses = (ROOT / "tests/support/uses_of_types.py").read_text(encoding="utf-8")
    if torch:
        (tmp_path / "torch.pyi").write_text("class Tensor:\n    def __dlpack__(self) -> object: ...\n"
                                            "class device: ...\nclass dtype: ...\nuint8: dtype\n", encoding="utf-8")
    else:
        uses = re.sub(".*torch.*", "", uses)
    (tmp_path / "uses.py").write_text(uses, encoding="utf-8")
    paths = str(tmp_path) if "site-packages" in HERE.parts else f"{HERE.parent}:{tmp_path}" # mypy refuses site-packages here
    (tmp_path / "pyrightconfig.json").write_text(f'{{"extraPaths": ["{HERE.parent}"], "typeCheckingMode": "strict"}}', encoding="utf-8")
    options = ["--strict", "--follow-imports=silent"] if checker == "mypy" else ["--level", "error", "--pythonpath", sys.executable]
    said = subprocess.run([sys.executable, "-m", checker, *options, "uses.py"], cwd=tmp_path, capture_output=True, text=True,
                          env={**os.environ, "MYPYPATH": paths}, check=False)
    found = {int(line) for line in re.findall(r"uses\.py:(\d+):.* error", said.stdout)}
    wrong = {number for number, line in enumerate(uses.splitlines(), 1) if line.endswith("# wrong")}
    assert found == wrong and len(wrong) > 10, said.stdout + said.stderr
