# SPDX-License-Identifier: MIT
"""Installs a build into a temporary folder: the links in the documents work, and uninstalling removes every file.

Usage: check_install.py CMAKE SOURCE_FOLDER BUILD_FOLDER
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile


def find_files(folder):
    return sorted(os.path.join(root, name) for root, _, names in os.walk(folder) for name in names)


def check_links(path):
    with open(path, encoding="utf-8") as file:
        text = re.sub(r"(?ms)^```.*?^```|`[^`\n]+`", "", file.read())
    links = re.findall(r"\]\(([^)#\s]+)", text) + re.findall(r'(?:src|srcset)="([^"]+)"', text)
    missing = [link for link in links if not link.startswith("http") and
               not os.path.exists(os.path.join(os.path.dirname(path), link))]
    assert not missing, f"{path} links to {missing}, which are not installed"
    return len(links)


def main():
    cmake, source, build = sys.argv[1:]
    manifest = os.path.join(build, "install_manifest.txt")
    with tempfile.TemporaryDirectory() as scratch:
        kept = os.path.join(scratch, "kept")
        if os.path.exists(manifest):  # left by an earlier installation of this build
            shutil.copy(manifest, kept)
        prefix = os.path.join(scratch, "prefix")
        try:
            subprocess.run([cmake, "--install", build, "--prefix", prefix], check=True, stdout=subprocess.DEVNULL)
            own = shutil.copy(manifest, os.path.join(scratch, "own"))
        finally:
            os.remove(manifest)
            if os.path.exists(kept):
                shutil.copy(kept, manifest)
        installed = find_files(prefix)
        names = {os.path.relpath(path, prefix) for path in installed}
        assert {"bin/conv", "bin/conv-bench", "share/man/man1/conv.1", "share/man/man1/conv-bench.1",
                "share/bash-completion/completions/conv", "share/zsh/site-functions/_conv", "share/fish/vendor_completions.d/conv.fish",
                "share/doc/conv/README.md", "share/doc/conv/docs/gallery/sharpen.jpg", "share/conv/filters/emboss.mat"} <= names, names
        with open(os.path.join(source, "CMakeLists.txt"), encoding="utf-8") as file:
            version = re.search(r"project\(conv VERSION ([0-9.]+)", file.read())[1]
        with open(os.path.join(prefix, "share/man/man1/conv.1"), encoding="utf-8") as file:
            assert f'"conv {version}"' in file.read(), "the manual page has another version"
        said = subprocess.run([os.path.join(prefix, "bin/conv"), "--version"], check=True, capture_output=True, text=True).stdout
        assert said.split()[1] == version, said
        bench = [os.path.join(prefix, "bin/conv"), "bench", "codec", "--device", "cpu", os.path.join(source, "samples", "landscape-rgb.png")]
        subprocess.run(bench, check=True, stdout=subprocess.DEVNULL)  # runs bin/conv-bench
        links = sum(check_links(path) for path in installed if path.endswith(".md"))
        assert links > 8
        stranger = os.path.join(prefix, "share/doc/conv/notes")
        os.mknod(stranger)
        uninstall = [cmake, f"-DMANIFEST={own}", "-P", os.path.join(source, "cmake", "uninstall.cmake")]
        subprocess.run(uninstall, check=True, stdout=subprocess.DEVNULL)
        assert find_files(prefix) == [stranger], "uninstalling left files, or took one that is not conv's"
        os.remove(stranger)
        subprocess.run(uninstall, check=True, stdout=subprocess.DEVNULL)
        assert not os.path.exists(os.path.join(prefix, "share/doc/conv")) and not os.path.exists(os.path.join(prefix, "share/conv"))
    print(f"{len(installed)} files installed and removed, {links} links lead somewhere")


if __name__ == "__main__":
    main()
