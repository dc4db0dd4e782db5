# SPDX-License-Identifier: MIT
"""Each file of a release is installed on a bare system, used and removed."""
import hashlib
import json
import os
import re
import shutil
import subprocess
import tomllib

from conftest import ROOT, clone, unpack

with open(os.path.join(ROOT, "CMakeLists.txt"), encoding="utf-8") as cmake:
    VERSION = re.search(r"project\(conv VERSION ([0-9.]+)", cmake.read())[1]
# Filters one of the project's samples with the options that need the libraries. A root has no driver: the GPU is
# reported as unusable, refused where it is required, and otherwise not mentioned.
USE = """
conv --version | grep -x "conv {version}"
conv devices | grep -x "cuda    none: {no_gpu}"
mkdir -p /tmp/in && cp /packages/sample.png /tmp/in/
conv emboss /tmp/in /tmp/out 2>/tmp/said && test -s /tmp/out/sample.png
if grep -iE "cuda|driver" /tmp/said; then exit 1; fi
conv verify emboss /tmp/in/sample.png
status=0; conv emboss --device cuda /tmp/in /tmp/gpu 2>/tmp/said || status=$?
test $status = 4 && grep -x "conv: {no_gpu}" /tmp/said
conv gaussian:2 --to jpg /tmp/in /tmp/jpg && test -s /tmp/jpg/sample.jpg
rm -rf /tmp/in /tmp/out /tmp/jpg /tmp/said
"""


def has_cuda(release):
    return any(name.endswith("-cuda.tar.gz") for name in os.listdir(release))


def use(system, cuda, before=""):
    shutil.copy(os.path.join(ROOT, "samples", "spheres-rgb.png"), system.path("/packages/sample.png"))
    no_gpu = "no CUDA driver on this machine" if cuda else "this conv was built without CUDA"
    system.run(before + USE.format(version=VERSION, no_gpu=no_gpu))


def test_files(release):
    names = set(os.listdir(release)) - {"SHA256SUMS"}
    for kind in (r"conv-[\d.]+\.tar\.gz", r"conv-.*-linux-.*\.tar\.gz", r"conv_.*\.deb", r"libconv\d+_.*\.deb",
                 r"libconv-dev_.*\.deb", r"exactconv-.*manylinux_2_28_.*\.whl"):
        assert sum(bool(re.fullmatch(kind, name)) for name in names) == 1, kind
    for name in (name for name in names if name.endswith(".spdx.json")):
        with open(os.path.join(release, name), encoding="utf-8") as file:
            assert {"conv", "libpng", "zlib", "libstb", "nanobind" if ".whl" in name else "libgcc"} <= {package["name"] for package in json.load(file)["packages"]}
    with open(os.path.join(release, "SHA256SUMS"), encoding="utf-8") as file:
        sums = dict(reversed(line.split()) for line in file)
    assert set(sums) <= names and sum(name.endswith(".deb") for name in sums) == 3
    for name, digest in sums.items():
        with open(os.path.join(release, name), "rb") as file:
            assert hashlib.sha256(file.read()).hexdigest() == digest
        assert VERSION in name


def check_removal(system, *packages):
    """Removes the packages; none of their files may stay, nor any file called conv, nor anything to be purged."""
    names = " ".join(packages)
    system.run(f"dpkg --verify {names}")
    installed = {name for name in system.run(f"dpkg -L {names}").split("\n") if os.path.isfile(system.path(name))}
    assert len(installed) > 2
    system.run(f"apt-get remove -q -y {names}")
    left = {name for name in system.files() if name in installed or re.search(r"/(lib)?conv(\W|$)", name)}
    assert not left
    assert not system.run(f"dpkg-query -W {names} 2>/dev/null || true")


def test_program(bare, release):
    bare.run("apt-get install -q -y --no-install-recommends /packages/conv_*.deb")
    # dpkg on a small system omits files as configured; those that are there must be right.
    use(bare, has_cuda(release))
    assert os.path.exists(bare.path("/usr/share/bash-completion/completions/conv"))
    listed = bare.run("dpkg -L conv").split()
    assert "/usr/share/man/man1/conv.1.gz" in listed and "/usr/share/doc/conv/copyright" in listed
    assert ("cudart_static" in bare.run("cat /usr/share/doc/conv/copyright")) == has_cuda(release)
    about = bare.run("dpkg -s conv")
    assert f"Version: {VERSION}-" in about and ("no code for GPUs" in about) != has_cuda(release)
    check_removal(bare, "conv")


# Packages of an older version, with a file that the new ones lack.
OLDER = """
mkdir /tmp/old && cd /tmp/old
for package in /packages/*.deb; do
    name=$(dpkg-deb -f $package Package) version=$(dpkg-deb -f $package Version)
    dpkg-deb -R $package $name
    sed -i "s/$version/0.9.0-1/" $name/DEBIAN/control
    touch $name/usr/share/doc/$name/conv.old
    dpkg-deb -Znone --build $name >/dev/null
done
apt-get install -q -y --no-install-recommends ./*.deb
cd / && rm -r /tmp/old
"""


def test_upgrade(bare, release):
    bare.run(OLDER)
    packages = bare.run("dpkg-query -W -f '${Package} ' conv 'libconv*'").split()
    assert len(packages) == 3 and all(os.path.exists(bare.path(f"/usr/share/doc/{name}/conv.old")) for name in packages)
    bare.run("apt-get install -q -y --no-install-recommends /packages/*.deb")
    assert {line.split("-")[0] for line in bare.run("dpkg-query -W -f '${Version}\n' " + " ".join(packages)).splitlines()} == {VERSION}
    assert not any(os.path.exists(bare.path(f"/usr/share/doc/{name}/conv.old")) for name in packages)
    use(bare, has_cuda(release))
    check_removal(bare, *packages)


def test_lintian(release):
    packages = [os.path.join(release, name) for name in os.listdir(release) if name.endswith(".deb")]
    result = subprocess.run(["lintian", "--allow-root", "--fail-on", "error", *packages], capture_output=True, text=True)
    assert result.returncode == 0, result.stdout


def test_library(bare):
    bare.run("apt-get install -q -y --no-install-recommends gcc libc6-dev pkg-config cmake make")
    bare.run("apt-get install -q -y --no-install-recommends /packages/libconv*.deb")
    with open(bare.path("/tmp/a.c"), "w", encoding="utf-8") as file:
        file.write("#include <conv.h>\n#include <stdio.h>\nint main(void) { puts(conv_version()); return 0; }\n")
    with open(bare.path("/tmp/CMakeLists.txt"), "w", encoding="utf-8") as file:
        file.write(f"cmake_minimum_required(VERSION 3.25)\nproject(a C)\nfind_package(conv {VERSION} REQUIRED)\n"
                   "add_executable(a a.c)\ntarget_link_libraries(a conv::conv)\n")
    assert bare.run("pkg-config --modversion conv").strip() == VERSION
    assert bare.run("cd /tmp && gcc a.c -o a $(pkg-config --cflags --libs conv) && ./a").strip() == VERSION
    assert bare.run("cd /tmp && cmake -S . -B b >/dev/null && cmake --build b >/dev/null && b/a").strip() == VERSION
    check_removal(bare, *re.findall(r"libconv[\w-]*", bare.run("dpkg-query -W -f '${Package} ' 'libconv*'")))


def test_static_program(bare, release):
    """The program needs no other package: no library, no interpreter. Only with CUDA it is linked with the C library."""
    bare.run("tar -C /tmp -xzf /packages/conv-*-linux-*.tar.gz && mkdir -p /opt/conv && cp -r /tmp/conv-*/bin /tmp/conv-*/share /opt/conv/")
    use(bare, has_cuda(release), "export PATH=/opt/conv/bin:$PATH\n")
    needs = r"needs glibc 2\.\d+ or later" if has_cuda(release) else "needs no libraries"
    assert re.search(needs, bare.run("cat /tmp/conv-*/README.txt"))
    licences = os.listdir(bare.path("/opt/conv/share/doc/conv/licences"))
    last = ("cuda-toolkit", "libstdc++") if has_cuda(release) else ("libc6",)
    for library in ("png", "zlib", "deflate", "jpeg", "stb", "libgcc", *last):
        assert any(library in name for name in licences), (library, licences)


def test_wheel(bare, release):
    bare.run("apt-get install -q -y --no-install-recommends python3-venv ca-certificates")
    bare.run("python3 -m venv /tmp/venv && /tmp/venv/bin/pip install -q /packages/exactconv-*.whl")
    use_it = ("import conv, numpy; a = numpy.arange(300, dtype=numpy.uint8).reshape(10, 10, 3); "
              "assert (conv.decode_png(conv.encode_png(a)) == a).all(); print(conv.__version__)")
    assert bare.run(f"cd / && /tmp/venv/bin/python -c '{use_it}'").strip() == VERSION
    for command in ("/tmp/venv/bin/conv", "/tmp/venv/bin/python -m conv"):
        assert bare.run(f"cd / && {command} --version").startswith(f"conv {VERSION}\nwith libpng")
    licences = bare.run("ls /tmp/venv/lib/python3*/site-packages/exactconv-*.dist-info/licenses")
    for part in ("LICENSE", "png", "deflate", "jpeg", "stb"):
        assert part in licences, part
    assert ("cuda-toolkit" in licences) == has_cuda(release)
    bare.run("/tmp/venv/bin/pip uninstall -q -y exactconv && ! /tmp/venv/bin/python -c 'import conv' 2>/dev/null")
    assert not bare.run("find /tmp/venv -regextype egrep -regex '.*/site-packages/(exact)?conv[/-].*'").strip()


def installation_commands():
    """The commands of docs/python.md that install the package from a checkout."""
    with open(os.path.join(ROOT, "docs", "python.md"), encoding="utf-8") as file:
        blocks = re.findall(r"(?:^    .*\n)+", file.read(), re.MULTILINE)
    block = next(block for block in blocks if "pip install .\n" in block)
    return "\n".join(line.strip() for line in block.splitlines())


def test_pip_install(system_name, tmp_path):
    """The package as docs/python.md says, on a system that has nothing of what it needs; and its tests."""
    with open(os.path.join(ROOT, "pyproject.toml"), "rb") as file:
        needed = " ".join(tomllib.load(file)["project"]["optional-dependencies"]["test"])
    system = unpack(system_name, str(tmp_path / "root"))
    system.keep_objects()
    clone(system)
    system.run("apt-get update -q && apt-get install -q -y --no-install-recommends ca-certificates")
    # Without a compiler pip says what to run. No tool of this remains.
    said = system.run("apt-get install -q -y --no-install-recommends python3-venv && python3 -m venv /tmp/venv && ! /tmp/venv/bin/pip install /conv 2>&1"
                      " && rm -r /tmp/venv && apt-get purge -q -y --autoremove python3-venv")
    assert "conv was not built" in said and "`tools/setup wheel`" in said
    system.run(f"cd /conv\n{installation_commands()}\n", timeout=3600)
    tests = system.run(f"~/conv-env/bin/pip install -q {needed} && cd /tmp && "
                       "~/conv-env/bin/python -m pytest -q -p no:cacheprovider -c /conv/pyproject.toml /conv/python/tests", timeout=3600)
    assert re.search(r"\b[1-9]\d* passed", tests) and "failed" not in tests, tests
    system.run("~/conv-env/bin/pip uninstall -q -y exactconv")
    assert not system.run("find ~/conv-env -regextype egrep -regex '.*/site-packages/(exact)?conv[/-].*'").strip()
    shutil.rmtree(system.folder)
