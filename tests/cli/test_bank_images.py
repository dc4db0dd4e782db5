# SPDX-License-Identifier: MIT
"""conv layer with a filter bank over images, against NumPy in float64. Pooling and devices: test_bank_tensors.py."""
import os

import numpy as np
import pytest

import images
from bank_definition import expected_maps
from program import ROOT, run

# Filters of 49x49 take long under a sanitizer.
SMALL = bool(os.environ.get("CONV_SANITIZED"))
SAMPLES = os.path.join(ROOT, "samples")


@pytest.fixture
def image(tmp_path):
    made = images.make("rgb8", np.random.default_rng(7), 45, 37)
    path = tmp_path / "image.png"
    path.write_bytes(made.data)
    return path, np.tensordot([0.299, 0.587, 0.114], made.planes.astype(float), 1) / 255


@pytest.mark.parametrize("name", ["gabor:2x2", "laws:9", "sobel"] if SMALL else
                         ["gabor:3x4", "laws:25", "mr8", "sobel", "dog:1,1.6"])
def test_maps(image, tmp_path, name):
    path, luminance = image
    run("layer", name, path, tmp_path / "maps.npy", "--device", "cpu")
    maps, expected = np.load(tmp_path / "maps.npy"), expected_maps(luminance, name)
    assert maps.dtype == np.float32 and maps.shape == expected.shape
    assert np.abs(maps - expected).max() < 2e-6 * max(1, np.abs(expected).max())


def test_folder_into_one_file(tmp_path):
    run("layer", "laws:9", SAMPLES, tmp_path / "all.npy", "--pool", "mean,energy", "--device", "cpu")
    run("layer", "laws:9", SAMPLES, tmp_path / "each", "--pool", "mean,energy", "--device", "cpu")
    together = np.load(tmp_path / "all.npy")
    names = sorted(os.listdir(tmp_path / "each"))
    assert together.shape == (len(names), 9, 2)
    assert all(np.array_equal(together[i], np.load(tmp_path / "each" / name)) for i, name in enumerate(names))


@pytest.mark.parametrize("options, says", [
    (["--bias", "b.npy"], "--bias cannot be combined with a filter bank"),
    (["--stride", "2"], "--stride cannot be combined with a filter bank"),
    (["--pool", "median"], "for example mean,std:4"),
    (["--pool", "mean,mean"], "for example mean,std:4"),
    (["--pool", "mean:0"], "for example mean,std:4"),
])
def test_wrong_options(image, tmp_path, options, says):
    assert says in run("layer", "lm", image[0], tmp_path / "x.npy", *options, code=2).err


def test_wrong_inputs(image, tmp_path):
    np.save(tmp_path / "w.npy", np.zeros((1, 1, 3, 3), np.float32))
    result = run("layer", tmp_path / "w.npy", image[0], tmp_path / "x.npy", "--pool", "mean", code=2)
    assert "--pool is for filter banks" in result.err
    result = run("layer", "sobel", image[0], tmp_path / "x.npy", "--pool", "mean:40", code=1)
    assert "smaller than the grid of 40x40 cells" in result.err
