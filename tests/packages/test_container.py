# SPDX-License-Identifier: MIT
"""The Containerfile's instructions, run one by one in bare roots: a container engine would do the same."""
import os
import shutil
import subprocess

import pytest

from conftest import ROOT, unpack
from test_packages import use


def instructions():
    """(stage, instruction, argument) with the arguments' defaults put in."""
    values, stage = {}, None
    with open(os.path.join(ROOT, "Containerfile"), encoding="utf-8") as file:
        for line in file:
            word, _, rest = line.strip().partition(" ")
            if not word or word == "#":
                continue
            for name, value in values.items():
                rest = rest.replace("${" + name + "}", value)
            if word == "ARG":
                name, _, value = rest.partition("=")
                values[name] = value
            if word == "FROM":
                image, _, stage = rest.partition(" AS ")
                assert image.startswith("debian:12")
            yield stage, word, rest


def test_container(system_name, tmp_path):
    if system_name != "debian12":
        pytest.skip("the Containerfile begins with Debian")
    stages, folder = {}, "/"
    for stage, word, rest in instructions():
        if word == "FROM":
            stages[stage] = unpack(system_name, str(tmp_path / (stage or "last")))
            if stage == "build":
                stages[stage].keep_objects()
        elif word == "WORKDIR":
            folder = rest
            os.makedirs(stages[stage].path(folder), exist_ok=True)
        elif word == "RUN":
            stages[stage].run(f"cd {folder} && {rest}")
        elif word == "COPY" and rest == ". .":
            os.rmdir(stages[stage].path(folder))
            subprocess.run(["git", "clone", "-q", "--no-hardlinks", ROOT, stages[stage].path(folder)], check=True)
            shutil.rmtree(os.path.join(stages[stage].path(folder), ".git"))  # .dockerignore
        elif word == "COPY":
            source, target = rest.removeprefix("--from=build ").split()
            source, target = stages["build"].path(source), stages[stage].path(target)
            if os.path.isdir(source):
                shutil.copytree(source, target, dirs_exist_ok=True)
            else:
                shutil.copy(source, target)
        elif word == "ENTRYPOINT":
            assert rest == '["conv"]'
    os.makedirs(stages[""].path("/packages"))
    use(stages[""], cuda=False)
