# SPDX-License-Identifier: MIT
"""The shape of the tree: which folder may include which, headers that compile alone and have
unique names, names of external symbols, messages and format. Each rule is also run on a copy of
the sources with one violation planted, and must find it.

CONV_SOURCE_DIR names the tree, CONV_LIBRARIES the static libraries."""
import collections
import concurrent.futures
import functools
import os
import pathlib
import re
import shutil
import subprocess

import pytest

SOURCE = pathlib.Path(os.environ.get("CONV_SOURCE_DIR", pathlib.Path(__file__).parents[2]))
COMPILER = os.environ.get("CC", "cc")

# Top to bottom: a folder includes from itself and from the folders below it. Folders on one line do not include each
# other. CONTRIBUTING.md explains them.
LAYERS = (
    ("src/main.c",),
    ("src/bench",),
    ("kernels/ladder",),
    ("src/cli",),
    ("src/api",),
    ("src/page",),
    ("src/run",),
    ("src/report", "src/io", "src/engine"),
    ("src/pnm", "src/tiff", "src/webp"),
    ("src/png", "src/jpeg", "kernels/stencil", "kernels/layer", "kernels/bank", "kernels/layout"),
    ("src/tensor",),
    ("kernels/common",),
    ("src/filter", "src/image"),
    ("src/base",),
    ("include",),
)
# src/png and kernels/ share one folder below; io may read files of images.
RANK = {folder: rank for rank, layer in enumerate(LAYERS) for folder in layer}
INSIDE = (  # within a folder: the first may not include the second
    ("src/png/cpu", "src/png/cuda"),
    ("src/png/cuda", "src/png/cpu"),
    ("src/jpeg/cpu", "src/jpeg/cuda"),
    ("src/jpeg/cuda", "src/jpeg/cpu"),
    ("kernels/stencil/cpu", "kernels/stencil/cuda"),
    ("kernels/stencil/cuda", "kernels/stencil/cpu"),
    ("kernels/layer/cpu", "kernels/layer/cuda"),
    ("kernels/layer/cuda", "kernels/layer/cpu"),
    ("src/io/files", "src/io/archive"),
    ("src/io/files", "src/io/walk"),
    ("src/io/archive", "src/io/walk"),
    *((other, "src/io/archive") for other in ("src/run", "src/api", "src/cli", "src/bench")),
)
# Not compiled alone: included several times with different macros, or inside a file that defines what they use.
TEMPLATES = {
    "kernels/stencil/cpu": {"decimated_floats.h", "direct.h", "dots.h", "float_samples.h", "floats.h", "gradient.h", "round.h", "vector.h", "vector_variant.h"},
    "kernels/layer/cpu": {"blocked_image.h", "blocked_tile.h"},
    "src/png/cpu": {"inflate_symbols_body.h"},
}


def sources(root, *suffixes):
    for top in ("src", "kernels", "include"):
        for path in sorted((root / top).rglob("*")):
            if path.suffix in suffixes:
                yield path


def folder_of(path):
    """The folder of LAYERS that a path relative to the root belongs to."""
    for folder in RANK:
        if path == folder or path.startswith(folder + "/"):
            return folder
    return None


def resolve(root, name):
    """The path relative to the root of what an include names; None for the system's and generated ones."""
    for prefix in ("src/", "", "include/"):
        if (root / (prefix + name)).exists():
            return prefix + name
    return None


def wrong_includes(root):
    found = []
    for path in sources(root, ".c", ".h", ".cu", ".cuh"):
        name = path.relative_to(root).as_posix()
        own = folder_of(name)
        if own is None:
            found.append(f"{name}: no layer for its folder")
            continue
        for include in re.findall(r'^\s*#\s*include "([^"]+)"', path.read_text(encoding="utf-8"), flags=re.M):
            target = resolve(root, include)
            if target is None:
                if include not in ("filter_texts.h", "layer_networks.h", "page_texts.h"):
                    found.append(f"{name}: {include} does not exist")
                continue
            other = folder_of(target)
            upward = other != own and RANK[other] <= RANK[own]
            sideways = any(name.startswith(a + "/") and target.startswith(b + "/") for a, b in INSIDE)
            if upward or sideways:
                found.append(f"{name} includes {target}")
    return found


def shared_header_names(root):
    names = collections.defaultdict(list)
    for path in sources(root, ".h", ".cuh"):
        names[path.name].append(path.relative_to(root).as_posix())
    return [" and ".join(paths) for paths in names.values() if len(paths) > 1]


def headers_that_need_others(root):
    """C headers; those of CUDA are compiled as C++ with the emulation's declarations."""
    command = [COMPILER, "-std=c17", "-D_GNU_SOURCE", "-DCONV_HAVE_CUDA=1", "-fsyntax-only", "-Wall", "-Werror", "-x", "c", "-", "-I", root / "src",
               "-I", root, "-I", root / "include", "-isystem", SOURCE / "tests/emulated/include"]

    def compile_alone(name):
        text = f'#include "{name.removeprefix("src/").removeprefix("include/")}"\n' * 2
        result = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
        return [f"{name}: {(result.stderr or 'refused').splitlines()[0]}"] * bool(result.returncode)

    templates = {f"{folder}/{name}" for folder, names in TEMPLATES.items() for name in names}
    names = {path.relative_to(root).as_posix() for path in sources(root, ".h")} - templates
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        return sum(pool.map(compile_alone, sorted(names)), [])


@functools.cache
def included(root, name):
    """The system's headers that a file includes, itself or through headers of the project."""
    found = re.findall(r'^\s*#\s*include ([<"])([^>"]+)', (root / name).read_text(encoding="utf-8"), flags=re.M)
    own = [resolve(root, header) for quote, header in found if quote == '"']
    return {header for quote, header in found if quote == "<"}.union(*(included(root, path) for path in own if path))


def declared_elsewhere(root):
    """Calls of functions whose header only another one of this C library includes: wheels are compiled with the headers of
    glibc 2.28, which include fewer of each other."""
    files = {path.relative_to(root).as_posix(): path.read_text(encoding="utf-8") for path in sources(root, ".c")}
    headers = {name: included(root, name) for name in files}
    public = set().union(*headers.values())
    declaring = collections.defaultdict(set)
    for header in public:
        text = subprocess.run([COMPILER, "-D_GNU_SOURCE", "-E", "-x", "c", "-"], input=f"#include <{header}>\n", capture_output=True, text=True, check=False).stdout
        opened = []
        for path, flag, name in re.findall(r'^# \d+ "(?:/usr/include/)?(?:[\w-]+-linux-gnu/)?([^"]*)" ?([12]?)|^extern .*?\b(\w+) \((?!\*)', text, flags=re.M):
            if name:
                declaring[name].add(next((file for file in reversed(opened) if file in public), header))
            elif flag == "2":
                opened.pop()
            elif flag:
                opened.append(path)
    found = []
    for name, text in files.items():
        code = re.sub(r'//.*|"(?:\\.|[^"\\])*"', "", text)
        own = " ".join(re.findall(r"^(?:static|#define) .*|_fn \w+", code, flags=re.M))
        called = set(re.findall(r"(?<![\w.>])([a-z]\w*)\(", code)) - set(re.findall(r"\w+", own))
        found += [f"{name} calls {function} without {' or '.join(declaring[function])}" for function in called & set(declaring)
                  if not declaring[function] & headers[name]]
    return found


# Commands that do their work through the functions of conv.h, as other programs do: of the code that filters they may
# include only that header.
CLIENTS_OF_THE_LIBRARY = ("src/cli/verify.c",)
ENGINE = ("engine/", "kernels/", "run/", "png/", "api/")


def clients_of_the_engine(root):
    found = []
    for name in CLIENTS_OF_THE_LIBRARY:
        includes = re.findall(r'^\s*#\s*include "([^"]+)"', (root / name).read_text(encoding="utf-8"), flags=re.M)
        found += [f"{name} does not include conv.h"] * ("conv.h" not in includes)
        found += [f"{name} includes {include}" for include in includes if include.startswith(ENGINE)]
    return found


def nm(*arguments):
    return subprocess.run(["nm", *arguments], check=True, text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout.splitlines()


def unprefixed_symbols(*libraries):
    """External symbols that a C program linking the library could collide with."""
    found = []
    for library in libraries:
        for line in nm("--defined-only", "--extern-only", "-C", library):
            fields = line.split(maxsplit=2)
            if len(fields) < 3 or fields[1] in "WVuw":  # weak ones are inline functions of C++
                continue
            plain = re.sub(r"^(void |__device_stub__)", "", fields[2])
            if not plain.startswith(("conv_", "_conv_", "__cuda", "__asan", "__tsan", "__odr_asan")):
                found.append(f"{os.path.basename(library)}: {fields[2]}")
    return found


# Global variables that a library may have, by file and with the reason.
PROCESS_STATE = {
    "descriptors.c": "the descriptors of a process are one resource, whatever runs in it",
    "cuda_cudnn.c": "a library is loaded once, and has one handle for each device, which has a lock",
    "temporary.c": "which process this is: constant once it is known",
    "inflate_ahead.c": "tables that depend on nothing: constant once they are made",
    "inflate_code.c": "the tables of fixed Huffman codes: constant once they are made",
    "other_encoders.c": "variables of stb's own; conv's calls take a lock",
    "bench_competitor.c": "the same",
    "ranges.c": "NVTX's header keeps the address of a profiler's functions there",
}


def process_state(*libraries):
    """Writable variables of the libraries' C files."""
    found = []
    for library in libraries:
        for line in nm("-A", "--format=sysv", library):
            fields = [field.strip() for field in line.split("|")]
            if len(fields) < 7 or not re.fullmatch(r"\.t?(data|bss)", fields[6]) or fields[3] not in ("OBJECT", "TLS"):
                continue
            member = re.search(r"([\w.]+?)(\.c)?\.o:", fields[0])
            symbol = fields[0].rsplit(":", 1)[1]
            if ".cu" in member[1] or symbol.startswith(("__", "_Z")):
                continue
            if member[1] + ".c" not in PROCESS_STATE:
                found.append(f"{member[1]}.c: {symbol}")
    return found


# stat and its kin were inline functions; base/lock.c has another way than pthread_cond_clockwait.
ALSO_BEFORE = {"stat64", "fstat64", "lstat64", "fstatat64", "pthread_cond_clockwait"}


def functions_after_2_28(*libraries):
    """Those of the C library that glibc 2.28, the oldest one that wheels are for, does not have."""
    versions = collections.defaultdict(list)
    for name in ("libc.so.6", "libm.so.6"):
        path = subprocess.check_output([COMPILER, f"-print-file-name={name}"], text=True).strip()
        for function, major, minor in re.findall(r" (\w+)@+GLIBC_(\d+)\.(\d+)", "\n".join(nm("--dynamic", "--with-symbol-versions", path))):
            versions[function].append((int(major), int(minor)))
    used = {line.split()[-1].removeprefix("__isoc23_") for line in nm("--undefined-only", *libraries) if line}  # strtol from 2.38 on
    return sorted(name for name in used - ALSO_BEFORE if min(versions.get(name, [(2, 0)])) > (2, 28))


def options_in_messages(root):
    """String literals with the name of an option: only the command line may know them."""
    found = []
    for path in sources(root, ".c", ".h", ".cu", ".cuh"):
        name = path.relative_to(root).as_posix()
        if name.startswith(("src/cli/", "src/main.c", "src/bench/bench_command.c")):
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            code = line.split("//")[0]
            if re.search(r'"[^"]*(?<![\w-])--[a-z][^"]*"', code):
                found.append(f"{name}:{number}: {line.strip()}")
    return found


def clang_format():
    """The release that .clang-format is written for; others format differently."""
    for name in ("clang-format-14", "clang-format"):
        if shutil.which(name) and " 14." in subprocess.check_output([name, "--version"], text=True):
            return name
    return None


def badly_formatted(root, paths):
    command = [clang_format(), f"--style=file:{SOURCE / '.clang-format'}", "--dry-run", *map(str, paths)]
    out = subprocess.run(command, stderr=subprocess.PIPE, check=False, text=True).stderr
    return [line for line in out.splitlines() if "warning" in line]


def formatted_files(root):
    others = [path for top in ("tests", "python") for path in (root / top).rglob("*")
              if path.suffix in (".c", ".h", ".cu", ".cpp")]
    return [*sources(root, ".c", ".h", ".cu", ".cuh"), *others]


@pytest.mark.parametrize("wrong", (wrong_includes, shared_header_names, headers_that_need_others, declared_elsewhere, clients_of_the_engine, options_in_messages))
def test_sources(wrong):
    assert wrong(SOURCE) == []


@pytest.mark.parametrize("wrong", (unprefixed_symbols, process_state, functions_after_2_28))
@pytest.mark.skipif(not os.environ.get("CONV_LIBRARIES"), reason="CONV_LIBRARIES names no library")
def test_symbols_of_libraries(wrong):
    assert wrong(*os.environ["CONV_LIBRARIES"].split(":")) == []


@pytest.mark.skipif(shutil.which("doxygen") is None, reason="no doxygen")
def test_the_reference_of_the_library_has_no_warnings(tmp_path):
    for folder in ("include", "docs", "examples"):
        shutil.copytree(SOURCE / folder, tmp_path / folder)
    subprocess.run(["doxygen", "docs/reference/Doxyfile"], cwd=tmp_path, check=True, capture_output=True)


@pytest.mark.skipif(clang_format() is None, reason="no clang-format of release 14")
def test_sources_are_formatted():
    assert badly_formatted(SOURCE, formatted_files(SOURCE)) == []


@pytest.fixture
def planted(tmp_path):
    """A copy of the sources to spoil, of links until a file is spoilt."""
    for top in ("src", "kernels", "include"):
        shutil.copytree(SOURCE / top, tmp_path / top, copy_function=os.symlink)

    def plant(name, text):
        path = tmp_path / name
        old = path.read_text(encoding="utf-8") if path.exists() else ""
        path.unlink(missing_ok=True)
        path.write_text(old + text, encoding="utf-8")
        return tmp_path

    return plant


@pytest.mark.parametrize("name, include", (
    ("src/base/clock.c", "run/pipeline.h"), ("src/png/codec.c", "engine/engine.h"),
    ("kernels/stencil/reference.c", "png/png.h"), ("src/report/json.c", "io/files/paths.h"),
    ("kernels/stencil/cpu/plan.c", "kernels/stencil/cuda/pack.cuh"), ("src/cli/options.c", "bench/bench.h"),
    ("src/io/files/paths.c", "io/archive/archive.h"), ("src/io/archive/tar_reader.c", "io/walk/walk.h"),
    ("src/run/stages.c", "io/archive/tar.h"),
    ("src/engine/chain.c", "kernels/ladder/ladder.h"), ("src/cli/verify.c", "kernels/ladder/ladder.h"),
))
def test_a_planted_include_is_found(planted, name, include):
    root = planted(name, f'\n#include "{include}"\n')
    assert [line for line in wrong_includes(root) if line.startswith(name) and line.endswith(include)]


@pytest.mark.parametrize("wrong, name, text, found", (
    (clients_of_the_engine, "src/cli/verify.c", '#include "engine/engine.h"', "src/cli/verify.c includes engine/engine.h"),
    (shared_header_names, "src/base/png.h", "", "src/base/png.h and src/png/png.h"),
    (headers_that_need_others, "src/base/clock.h", "extern size_t conv_clock_planted;", "src/base/clock.h: "),
    (declared_elsewhere, "src/base/planted.c", "#include <signal.h>\nlong a(void) { return syscall(1); }", "src/base/planted.c calls syscall without unistd.h"),
    (options_in_messages, "src/base/clock.c", 'const char *conv_clock_text = "use --mem-limit";', "src/base/clock.c:"),
))
def test_a_planted_violation_is_found(planted, wrong, name, text, found):
    lines = wrong(planted(name, f"\n{text}\n"))
    assert len(lines) == 1 and lines[0].startswith(found)


def test_planted_symbols_are_found(tmp_path):
    (tmp_path / "a.c").write_text("int gettid(void);\nint planted(void) { return gettid(); }\nstatic int count;\nstatic const int one = 1;\n"
                                  "_Thread_local int conv_own = 2;\nint conv_a(void) { return count++ + one + conv_own; }\n", encoding="utf-8")
    subprocess.run([COMPILER, "-c", "a.c", "-o", "a.o"], cwd=tmp_path, check=True)
    assert unprefixed_symbols(tmp_path / "a.o") == ["a.o: planted"]
    assert sorted(process_state(tmp_path / "a.o")) == ["a.c: conv_own", "a.c: count"]
    assert functions_after_2_28(tmp_path / "a.o") == ["gettid"]


@pytest.mark.skipif(clang_format() is None, reason="no clang-format of release 14")
def test_a_planted_line_is_found(planted):
    root = planted("src/base/clock.c", "\nint  conv_clock_planted ( void ) ;\n")
    assert len(badly_formatted(root, [root / "src/base/clock.c"])) >= 1
