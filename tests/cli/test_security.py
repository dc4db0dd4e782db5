# SPDX-License-Identifier: MIT
"""The binary itself: hardened as distributions harden theirs, and with one way to start another program, for conv bench."""
import json
import os
import pathlib
import re
import subprocess

import pytest

from program import BINARY, ROOT, is_sanitized

pytestmark = pytest.mark.skipif(is_sanitized(), reason="sanitizers bring their own ways")


def tell(*command):
    return subprocess.run([*command, BINARY], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True, text=True,
                          env={**os.environ, "LC_ALL": "C"}).stdout


def segments():
    """type -> set of its flags, from lines like `GNU_STACK 0x0 0x0 0x0 0x0 0x0 RW 0x10`."""
    found = {}
    for line in tell("readelf", "-lW").splitlines():
        match = re.match(r"\s+([A-Z_]+)(?:\s+0x\w+){5}\s+([RWE ]+?)\s+0x\w+$", line)
        if match:
            found.setdefault(match[1], set()).add(match[2])
    return found


def symbols():
    """The functions that the program imports; for a static one, all that it contains."""
    is_static = "INTERP" not in segments()
    lines = tell("nm") if is_static else tell("nm", "-D", "--undefined-only")
    names = {line.split()[-1].split("@")[0] for line in lines.splitlines()}
    assert "read" in names or "__read" in names, "nm tells nothing"
    return names


def compile_commands():
    """The compiler's command lines of this binary's build, if the binary is in its build folder."""
    for folder in (os.path.dirname(BINARY), os.path.join(ROOT, "build")):
        path = os.path.join(folder, "compile_commands.json")
        if os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                return [entry["command"] for entry in json.load(file)
                        if re.search(r"/(src|kernels)/.*\.c$", entry["file"])]
    pytest.skip("not in a build folder")


def test_the_program_is_position_independent():
    assert re.search(r"Type:\s+DYN", tell("readelf", "-h")) and "PIE" in tell("readelf", "-d")


def test_what_the_loader_has_relocated_is_read_only():
    assert "GNU_RELRO" in segments() and re.search(r"BIND_NOW|Flags:.*\bNOW\b", tell("readelf", "-d"))


def test_no_memory_is_writable_and_executable():
    found = segments()
    assert found["GNU_STACK"] == {"RW"}
    assert not [flags for each in found.values() for flags in each if "W" in flags and "E" in flags]


def test_libraries_are_taken_from_the_system_only():
    assert not re.search(r"R(UN)?PATH", tell("readelf", "-d"))


def test_every_file_is_compiled_with_the_hardening():
    commands = compile_commands()
    assert len(commands) > 50
    flags = ["-fstack-protector-strong", "-fstack-clash-protection"]
    if os.uname().machine == "x86_64":
        flags.append("-fcf-protection=full")
    for command in commands:
        assert not [flag for flag in flags if flag not in command], command
        assert "-D_FORTIFY_SOURCE=" in command or "-O3" not in command, command


def test_no_other_program_can_be_started():
    """Except conv-bench by `conv bench`, in one place; in a static program execv calls execve."""
    starters = r"_*(system|popen|exec[lv]\w*|fexecve|posix_spawnp?|wordexp|libc_system)(64)?"
    found = {name.lstrip("_") for name in symbols() if re.fullmatch(starters, name)}
    assert found <= {"execv", "execve"}
    calls = [path.relative_to(ROOT).as_posix() for path in sorted(pathlib.Path(ROOT, "src").rglob("*.c"))
             if re.search(rf"\b{starters}\(", path.read_text(encoding="utf-8"))]
    assert calls == ["src/main.c"]
