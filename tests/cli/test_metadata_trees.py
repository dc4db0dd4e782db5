# SPDX-License-Identifier: MIT
"""Random metadata through every pair of formats: no image remains in them, what describes the image does, and exiftool
can read it. CONV_ROUNDS sets how many files of each format."""
import json
import os
import shutil
import subprocess

import numpy as np
import pytest

import images
import jpeg
import metadata_trees
import png_writer as png
import program
from program import run

ROUNDS = int(os.environ.get("CONV_ROUNDS", "25"))
EXIFTOOL = shutil.which("exiftool")

pytestmark = pytest.mark.skipif(not program.HAS_JPEG, reason="built without libjpeg-turbo")


def read_tags(*folders):
    """exiftool's reading of all files of folders, by path."""
    out = subprocess.run([EXIFTOOL, "-json", "-n", "-G1", "-a", "-struct", *folders], stdout=subprocess.PIPE, check=False).stdout
    return {row["SourceFile"]: row for row in json.loads(out)}


def make_files(seed, folder):
    trees = {}
    os.makedirs(folder)
    for i in range(ROUNDS):
        for kind in ("jpg", "png"):
            rng = np.random.default_rng((seed, i, kind == "png"))
            tree = metadata_trees.Tree(rng)
            planes = images.texture(rng, 3, 24, 17, 255)
            data = tree.jpeg(planes.transpose(1, 2, 0)) if kind == "jpg" else tree.png(png.encode(17, 24, images.rows_of(planes), png.RGB, 8))
            trees[f"{i}{kind[0]}.{kind}"] = tree
            with open(os.path.join(folder, f"{i}{kind[0]}.{kind}"), "wb") as file:
                file.write(data)
    return trees


@pytest.fixture(scope="module")
def filtered(tmp_path_factory):
    """The trees by name of their files, and the folders: sources, then outputs in the same format, PNG and JPEG."""
    seed = int(os.environ.get("CONV_SEED", "0")) or int.from_bytes(os.urandom(3), "big")
    print(f"CONV_SEED={seed}")
    box = str(tmp_path_factory.mktemp("trees"))
    trees = make_files(seed, f"{box}/in")
    for folder, options in (("same", ()), ("png", ("--to=png",)), ("jpg", ("--to=jpg",)), ("look", ("--strip",)), ("none", ("--strip=all", "--to=png"))):
        run("identity", *options, f"{box}/in", f"{box}/{folder}")
    return trees, box


def outputs(trees, box, *folders):
    for folder in folders:
        for name, tree in trees.items():
            path = os.path.join(box, folder, name if folder in ("same", "look") else f"{name[:-3]}{'png' if folder == 'none' else folder}")
            yield path, os.path.join(box, "in", name), tree


def test_no_image_of_the_input_remains(filtered):
    """Thumbnails and previews in MakerNote, SubIFDs, XMP, PNG and others were carried over."""
    for path, source, tree in outputs(*filtered, "same", "png", "jpg", "look"):
        with open(path, "rb") as file:
            views = metadata_trees.views(file.read())
        for image in tree.images:
            assert not metadata_trees.is_shown(image, views), (path, source, image[:12])


@pytest.mark.skipif(not EXIFTOOL, reason="no exiftool")
def test_what_describes_the_image_remains(filtered):
    """Orientation, camera, place, rights, captions; and nothing that exiftool warns about."""
    trees, box = filtered
    tags = read_tags(*(f"{box}/{folder}" for folder in ("same", "png", "jpg", "look", "none")))
    wanted = 0
    for path, source, tree in outputs(trees, box, "same", "png", "jpg"):
        after = tags[path]
        wanted += len(tree.kept)
        for tag, value in tree.kept.items():
            assert after.get(tag) == value, (path, source, tag, after)
        warnings = [text for key, text in after.items() if key.endswith((":Warning", ":Error")) and "after PNG IDAT" not in text]
        assert not warnings, (path, source, warnings)
        shown = [key for key in after if "Thumbnail" in key or "Preview" in key or "MakerNote" in key or "HasExtended" in key or key.startswith(("SubIFD", "IFD1", "MPF"))]
        assert not shown, (path, source, shown)
    assert wanted > 20 * len(trees)
    for path, source, tree in outputs(trees, box, "look"):
        assert tags[path].get("IFD0:Orientation") == tree.kept.get("IFD0:Orientation"), (path, source)
        assert not {"IFD0:Make", "GPS:GPSLatitude", "XMP-xmp:Rating", "IPTC:City"} & set(tags[path]), path
    for path, _, _ in outputs(trees, box, "none"):
        assert "IFD0:Orientation" not in tags[path], path
