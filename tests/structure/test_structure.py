# SPDX-License-Identifier: MIT
"""The shape of the tree: which folder may include which, headers that compile alone and have
unique names, names of external symbols, messages and format. Each rule is also run on a copy of
the sources with one violation planted, and must find it.

CONV_SOURCE_DIR and CONV_BUILD_DIR name the two trees, CONV_LIBRARIES the static libraries."""
import collections
import os
import pathlib
import re
import shutil
import subprocess

import pytest

SOURCE = pathlib.Path(os.environ.get("CONV_SOURCE_DIR", pathlib.Path(__file__).parents[2]))
BUILD = pathlib.Path(os.environ.get("CONV_BUILD_DIR", SOURCE / "build"))

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


def is_template(path, root):
    folder = path.parent.relative_to(root).as_posix()
    return path.name in TEMPLATES.get(folder, ())


def headers_that_need_others(root, folder=""):
    """C headers of a folder; those of CUDA are compiled as C++ with the emulation's declarations."""
    compiler = os.environ.get("CC", "cc")
    jobs = []
    for path in sources(root, ".h"):
        name = path.relative_to(root).as_posix()
        if is_template(path, root) or not name.startswith(folder):
            continue
        command = [compiler, "-std=c17", "-D_GNU_SOURCE", "-DCONV_HAVE_CUDA=1", "-fsyntax-only", "-Wall", "-Werror",
                   "-x", "c", "-", "-I", str(root / "src"), "-I", str(root), "-I", str(root / "include"),
                   "-isystem", str(SOURCE / "tests/emulated/include")]
        jobs.append((name, command, f'#include "{name.removeprefix("src/").removeprefix("include/")}"\n' * 2))
    found = []
    for start in range(0, len(jobs), 8):
        running = []
        for name, command, text in jobs[start:start + 8]:
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            process.stdin.write(text)
            process.stdin.close()
            running.append((name, process))
        for name, process in running:
            errors = process.stderr.read()
            if process.wait():
                found.append(f"{name}: {errors.splitlines()[0] if errors else 'refused'}")
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


def unprefixed_symbols(*libraries):
    """External symbols that a C program linking the library could collide with."""
    found = []
    for library in libraries:
        out = subprocess.run(["nm", "--defined-only", "--extern-only", "-C", str(library)], check=True, text=True,
                             stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout
        for line in out.splitlines():
            fields = line.split(maxsplit=2)
            if len(fields) < 3 or fields[1] in "WVuw":  # weak ones are inline functions of C++
                continue
            symbol = fields[2]
            plain = re.sub(r"^(void |__device_stub__)", "", symbol)
            if not plain.startswith(("conv_", "_conv_", "__cuda", "__asan", "__tsan", "__odr_asan")):
                found.append(f"{os.path.basename(library)}: {symbol}")
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
        out = subprocess.run(["nm", "-A", "--format=sysv", str(library)], check=True, text=True,
                             stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout
        for line in out.splitlines():
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


def test_folders_include_from_below():
    assert wrong_includes(SOURCE) == []


def test_header_names_are_unique():
    assert shared_header_names(SOURCE) == []


def test_headers_compile_alone():
    assert headers_that_need_others(SOURCE) == []


def test_commands_use_the_library():
    assert clients_of_the_engine(SOURCE) == []


def test_external_symbols_are_ours():
    libraries = os.environ.get("CONV_LIBRARIES", "").split(":")
    if libraries == [""]:
        pytest.skip("CONV_LIBRARIES names no library")
    assert unprefixed_symbols(*libraries) == []


def test_libraries_have_no_state_of_the_process():
    libraries = os.environ.get("CONV_LIBRARIES", "").split(":")
    if libraries == [""]:
        pytest.skip("CONV_LIBRARIES names no library")
    assert process_state(*libraries) == []


@pytest.mark.skipif(shutil.which("doxygen") is None, reason="no doxygen")
def test_the_reference_of_the_library_has_no_warnings(tmp_path):
    for folder in ("include", "docs", "examples"):
        shutil.copytree(SOURCE / folder, tmp_path / folder)
    subprocess.run(["doxygen", "docs/reference/Doxyfile"], cwd=tmp_path, check=True, capture_output=True)


def test_messages_name_no_options():
    assert options_in_messages(SOURCE) == []


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


def test_a_planted_way_around_the_library_is_found(planted):
    root = planted("src/cli/verify.c", '\n#include "engine/engine.h"\n')
    assert clients_of_the_engine(root) == ["src/cli/verify.c includes engine/engine.h"]


def test_a_planted_header_of_the_same_name_is_found(planted):
    assert shared_header_names(planted("src/base/png.h", "")) == ["src/base/png.h and src/png/png.h"]


def test_a_planted_header_that_needs_another_is_found(planted):
    found = headers_that_need_others(planted("src/base/clock.h", "\nextern size_t conv_clock_planted;\n"), "src/base/")
    assert len(found) == 1 and found[0].startswith("src/base/clock.h: ")


def test_a_planted_symbol_is_found(tmp_path):
    (tmp_path / "a.c").write_text("int planted(void) { return 1; }\nint conv_fine(void) { return 2; }\n", encoding="utf-8")
    subprocess.run([os.environ.get("CC", "cc"), "-c", "a.c", "-o", "a.o"], cwd=tmp_path, check=True)
    assert unprefixed_symbols(tmp_path / "a.o") == ["a.o: planted"]


def test_planted_state_is_found(tmp_path):
    (tmp_path / "a.c").write_text("static int count;\nstatic const int one = 1;\n_Thread_local int own = 2;\n"
                                  "int conv_a(void) { return count++ + one + own; }\n", encoding="utf-8")
    subprocess.run([os.environ.get("CC", "cc"), "-c", "a.c", "-o", "a.o"], cwd=tmp_path, check=True)
    assert sorted(process_state(tmp_path / "a.o")) == ["a.c: count", "a.c: own"]


def test_a_planted_option_is_found(planted):
    found = options_in_messages(planted("src/base/clock.c", 'const char *conv_clock_text = "use --mem-limit";\n'))
    assert len(found) == 1 and found[0].startswith("src/base/clock.c:")


@pytest.mark.skipif(clang_format() is None, reason="no clang-format of release 14")
def test_a_planted_line_is_found(planted):
    root = planted("src/base/clock.c", "\nint  conv_clock_planted ( void ) ;\n")
    assert len(badly_formatted(root, [root / "src/base/clock.c"])) >= 1
