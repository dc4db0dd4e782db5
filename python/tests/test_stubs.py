# SPDX-License-Identifier: MIT
"""The type stubs declare everything that the package has, with the same arguments and defaults."""

import ast
import builtins
import inspect
import re
from pathlib import Path

import pytest

import conv

FOLDER = Path(conv.__file__).parent
STUB = ast.parse((FOLDER / "__init__.pyi").read_text(encoding="utf-8"))
CORE = ast.parse((FOLDER / "_core.pyi").read_text(encoding="utf-8"))


def stub_arguments(function):
    arguments = function.args
    positional = [a.arg for a in arguments.args if a.arg != "self"]
    defaults = [None] * (len(positional) - len(arguments.defaults)) + arguments.defaults
    pairs = list(zip(positional, defaults))
    pairs += list(zip((a.arg for a in arguments.kwonlyargs), arguments.kw_defaults))
    return [(name, None if default is None else ast.literal_eval(default)) for name, default in pairs]


FUNCTIONS = {node.name: node for node in STUB.body if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name):
    parameters = inspect.signature(getattr(conv, name)).parameters.values()
    real = [(p.name, None if p.default is p.empty else p.default) for p in parameters]
    assert stub_arguments(FUNCTIONS[name]) == real


def test_every_public_name_has_a_stub():
    names = set(FUNCTIONS)
    for node in STUB.body:
        if isinstance(node, ast.ClassDef):
            names.add(node.name)
        if isinstance(node, ast.ImportFrom):
            names.update(alias.asname for alias in node.names if alias.asname)
    assert names - {"_CudaStream"} == set(conv.__all__)


@pytest.mark.parametrize("stub", (STUB, CORE), ids=("__init__", "_core"))
def test_names_in_stubs_are_defined(stub):
    nodes = list(ast.walk(stub))
    known = {alias.asname or alias.name for node in nodes if isinstance(node, (ast.Import, ast.ImportFrom)) for alias in node.names}
    known |= {node.name for node in nodes if isinstance(node, ast.ClassDef)}
    known |= {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    used = {node.id for node in nodes if isinstance(node, ast.Name)}
    assert used - known - set(dir(builtins)) == set()


@pytest.mark.parametrize("cls", [n for n in CORE.body if isinstance(n, ast.ClassDef)], ids=lambda c: c.name)
def test_classes(cls):
    real = getattr(conv, cls.name)
    stub = {node.name for node in cls.body}
    ours = {name for name, value in vars(real).items()
            if not name.startswith("_") or name in ("__call__", "__getitem__", "__len__")}
    assert {n for n in stub if not n.startswith("__")} == {n for n in ours if not n.startswith("__")}
    for node in cls.body:
        if node.name in ("__init__", "__call__", "kernels"):
            signature = getattr(real, node.name).__nb_signature__[0][0]
            names = re.findall(r"(\w+):", signature)
            assert [name for name, _ in stub_arguments(node)] == names


def test_everything_is_documented():
    for name in conv.__all__:
        assert inspect.getdoc(getattr(conv, name)), name
    for name in FUNCTIONS:
        documentation = inspect.getdoc(getattr(conv, name))
        for parameter in inspect.signature(getattr(conv, name)).parameters:
            assert re.search(rf"\b{parameter}\b", documentation), (name, parameter)
