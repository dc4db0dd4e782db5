# SPDX-License-Identifier: MIT
"""Installs a build into a temporary folder and builds the examples against the library there, as others would: with
pkg-config (shared and static) and with CMake. Runs them, and a program that was compiled against the first header.

Usage: check_library.py CMAKE SOURCE_FOLDER BUILD_FOLDER
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

COMPILER = os.environ.get("CC", "cc")
MAJOR = 1  # of the interface: a new one is a new SONAME, and a new folder in tests/abi


def run(*command, **options):
    command = [str(part) for part in command]
    result = subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, **options)
    assert result.returncode == 0, f"{' '.join(command)}\n{result.stdout}"
    return result.stdout


def interface(header):
    """The functions that a header declares for users."""
    text = re.sub(r"/\*.*?\*/", "", header.read_text(encoding="utf-8"), flags=re.S)
    text = re.sub(r"^#.*$", "", text, flags=re.M)
    return set(re.findall(r"CONV_API[^;(]*?\b(conv_\w+)\s*\(", text))


def exported(library, *options):
    lines = run("nm", *options, "--defined-only", "--extern-only", library).splitlines()
    names = {line.split()[-1] for line in lines if len(line.split()) == 3 and line.split()[1] != "A"}
    return {name.split("@")[0] for name in names}


def check_versions(library, first_header, major):
    """Every function of the first header of this SONAME is exported under the version that programs were linked with."""
    lines = run("nm", "--dynamic", "--defined-only", "--with-symbol-versions", library).splitlines()
    versioned = {line.split()[-1] for line in lines}
    missing = {f"{name}@@CONV_{major}.0" for name in interface(first_header)} - versioned
    assert not missing, f"programs linked with {major}.0 would not start: {sorted(missing)}"


def check_symbols(prefix, library, header, major):
    names = interface(header)
    assert len(names) > 20
    assert exported(library, "--dynamic") == names
    assert exported(library.parent / "libconv.a") == names
    # The encoder with a level for the whole process is the program's alone.
    assert "stbi_write" not in run("nm", library.parent / "libconv.a")
    dynamic = run("readelf", "--dynamic", "--wide", library)
    assert re.search(rf"\(SONAME\).*\[libconv\.so\.{major}\]", dynamic), dynamic
    # Functions that no library may call: they would print, end the process or change it for all of its threads.
    undefined = run("nm", "--dynamic", "--undefined-only", library)
    for name in ("exit", "_exit", "signal", "sigaction", "printf", "puts", "perror", "setlocale", "chdir", "mallopt", "abort", "quick_exit",
                 "umask", "raise", "alarm", "setitimer", "sigprocmask", "putenv", "unsetenv"):
        assert not re.search(rf"\b{name}(@|$)", undefined, flags=re.M), f"{library} calls {name}"


def check_header(include):
    for language, standard in (("c", "c99"), ("c", "c17"), ("c++", "c++11"), ("c++", "c++20")):
        run(COMPILER, "-x", language, f"-std={standard}", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only", include / "conv.h")


def try_programs(folder, samples, environment):
    """What the examples do, for each way of linking them."""
    sample = sorted(samples.glob("*.png"))[0]
    out = folder / "out"
    out.mkdir(exist_ok=True)
    one = out / "one.png"
    run(folder / "filter_image", "emboss", sample, one, env=environment)
    bad = out / "bad.png"
    bad.write_bytes(sample.read_bytes()[:1000])
    batch = subprocess.run([folder / "decode_batch", "emboss", out, sample, bad], env=environment, text=True, capture_output=True, check=False)
    assert batch.returncode == 1 and "bad.png" in batch.stderr and "1 files filtered on" in batch.stdout, (batch.stdout, batch.stderr)
    return one.read_bytes(), (out / sample.name).read_bytes()


def main():
    cmake, source, build = sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])
    manifest = build / "install_manifest.txt"
    kept = manifest.read_bytes() if manifest.exists() else None
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        prefix = scratch / "prefix"
        run(cmake, "--install", build, "--prefix", prefix)
        if kept is None:
            manifest.unlink()
        else:
            manifest.write_bytes(kept)
        library = next(prefix.rglob("libconv.so"))
        check_symbols(prefix, library, prefix / "include" / "conv.h", MAJOR)
        check_versions(library, source / f"tests/abi/{MAJOR}.0/conv.h", MAJOR)
        check_header(prefix / "include")

        shared = dict(os.environ, LD_LIBRARY_PATH=str(library.parent), PKG_CONFIG_PATH=str(library.parent / "pkgconfig"))
        results = []
        for kind in ("shared", "static"):
            folder = scratch / kind
            folder.mkdir()
            for name in ("filter_image", "decode_batch"):
                flags = run("pkg-config", "--cflags", "--libs", *(["--static"] if kind == "static" else []), "conv", env=shared).split()
                if kind == "static":
                    flags = [str(library.parent / "libconv.a") if flag == "-lconv" else flag for flag in flags]
                run(COMPILER, "-O1", "-Wall", "-Wextra", "-Werror", source / "examples/c" / f"{name}.c", *flags, "-o", folder / name)
            results.append(try_programs(folder, source / "samples", shared if kind == "shared" else os.environ))
        folder = scratch / "cmake"
        run(cmake, "-S", source / "examples/c", "-B", folder, f"-DCMAKE_PREFIX_PATH={prefix}")
        run(cmake, "--build", folder)
        results.append(try_programs(folder, source / "samples", shared))
        assert results[0] == results[1] == results[2]
        one = results[0][0]
        program = scratch / "program.png"
        sample = sorted((source / "samples").glob("*.png"))[0]
        run(build / "conv", "emboss", sample, program, "--strip")
        assert program.read_bytes() == one, "the library's file is not the program's"

        # A program that knows only the first header, whose structs are the smallest.
        old = scratch / "old"
        run(COMPILER, "-O1", "-Wall", "-Werror", source / "tests/abi/caller.c", "-I", source / f"tests/abi/{MAJOR}.0", "-L", library.parent, "-lconv", "-o", old)
        print(run(old, sample, env=shared), end="")
    print("shared, static and CMake builds of the examples give the same bytes as the program")


if __name__ == "__main__":
    main()
