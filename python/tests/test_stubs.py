# SPDX-License-Identifier: MIT
"""Functions have annotations; the type stubs declare what the extension module has, with the same arguments."""

import ast
import builtins
import inspect
import re
from pathlib import Path

import pytest

import conv

CORE = ast.parse((Path(conv.__file__).parent / "_core.pyi").read_text(encoding="utf-8"))


def stub_arguments(function):
    return [a.arg for a in function.args.args + function.args.kwonlyargs if a.arg != "self"]


FUNCTIONS = [name for name in conv.__all__ if inspect.isfunction(getattr(conv, name))]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_are_annotated(name):
    signature = inspect.signature(getattr(conv, name))
    assert signature.return_annotation is not signature.empty
    assert all(parameter.annotation is not parameter.empty for parameter in signature.parameters.values())


def test_names_in_stubs_are_defined():
    nodes = list(ast.walk(CORE))
    known = {alias.asname or alias.name for node in nodes if isinstance(node, (ast.Import, ast.ImportFrom)) for alias in node.names}
    known |= {node.name for node in nodes if isinstance(node, ast.ClassDef)}
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
            assert stub_arguments(node) == names


def test_everything_is_documented():
    for name in conv.__all__:
        assert inspect.getdoc(getattr(conv, name)), name
    for name in FUNCTIONS:
        documentation = inspect.getdoc(getattr(conv, name))
        for parameter in inspect.signature(getattr(conv, name)).parameters:
            assert re.search(rf"\b{parameter}\b", documentation), (name, parameter)
