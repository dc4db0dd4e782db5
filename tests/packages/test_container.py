# SPDX-License-Identifier: MIT
"""The Containerfile's instructions, run one by one in bare roots: a container engine would do the same. Debian's has no
CUDA; Ubuntu's is run if there is a toolkit, which is where NVIDIA's images have it."""
import os
import re
import shutil
import subprocess

import pytest

from conftest import GPUS, ROOT, TOOLKIT, unpack
from test_packages import use


IMAGES = {"debian12": ("debian:12", "debian:12-slim"), "ubuntu24.04": ("ubuntu:24.04", "ubuntu:24.04")}


def instructions(given):
    """(stage, instruction, argument) with the arguments' values put in: those given, or their defaults."""
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
                values[name] = given.get(name, value)
            if word == "FROM":
                rest, _, stage = rest.partition(" AS ")
            yield stage, word, rest


def test_container(system_name, tmp_path):
    given, toolkit, images = {}, None, []
    if system_name != "debian12":
        if not TOOLKIT:
            pytest.skip("the Containerfile begins with Debian: set CONV_CUDA_TOOLKIT for that with CUDA")
        given = dict(zip(("BUILD", "RUN"), IMAGES[system_name]), CMAKE_OPTIONS=f"-DCONV_CUDA_FOR={GPUS}")
        toolkit = TOOLKIT
    stages, folder = {}, "/"
    for stage, word, rest in instructions(given):
        if word == "FROM":
            images.append(rest)
            stages[stage] = unpack(system_name, str(tmp_path / (stage or "last")))
            if stage == "build":
                stages[stage].keep_objects()
        elif word == "WORKDIR":
            folder = rest
            os.makedirs(stages[stage].path(folder), exist_ok=True)
        elif word == "RUN":
            stages[stage].run(f"cd {folder} && {rest}", toolkit=toolkit, timeout=3600)
        elif word == "COPY" and rest == ". .":
            os.rmdir(stages[stage].path(folder))
            subprocess.run(["git", "clone", "-q", "--no-hardlinks", ROOT, stages[stage].path(folder)], check=True)
            shutil.rmtree(os.path.join(stages[stage].path(folder), ".git"))  # .dockerignore
        elif word == "COPY":
            *sources, target = rest.removeprefix("--from=build ").split()
            sources = [stages["build"].path(re.sub("/$", "/.", source)) for source in sources]  # of a folder, its content
            subprocess.run(["cp", "-r", *sources, stages[stage].path(target)], check=True)
        elif word == "ENTRYPOINT":
            assert rest == '["conv"]'
    assert tuple(images) == IMAGES[system_name]
    os.makedirs(stages[""].path("/packages"))
    use(stages[""], cuda=bool(toolkit))
