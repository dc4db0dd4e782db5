# SPDX-License-Identifier: MIT
"""Filter banks: conv list banks, conv show, and conv layer with a bank over tensors, of which every plane is filtered by
itself, and over images, against NumPy in float64."""
import os
import re
import select
import subprocess

import numpy as np
import pytest

import images
import program
from bank_definition import expected_maps, features, load_bank, published
from program import ROOT, run, start

KINDS = "mean,std,max,energy"
SAMPLES = os.path.join(ROOT, "samples")


def test_list_banks():
    text = run("list", "banks").out
    assert "gabor:SCALESxANGLES" in text and "(for example gabor:4x8)" in text
    rows = run("list", "banks", "--json").records()
    assert [row["name"] for row in rows] == [line.split()[0].split(":")[0] for line in text.splitlines()]


@pytest.mark.parametrize("name", ["gabor:2x3", "laws:9", "mr8", "log:1.5"])
def test_show_bank(name):
    text = run("show", name).out
    assert f"\n{name}: a bank of " in "\n" + text  # after the filter of the same name
    rows = run("show", name, "--json").records()
    maps = [row for row in rows if row["type"] == "map"]
    filters = [row for row in rows if row["type"] == "bank_filter"]
    assert maps[-1]["first"] + maps[-1]["count"] == len(filters)
    for row in filters:
        kernel = np.array(row["kernel"])
        assert kernel.shape == (row["height"], row["width"])
        if row["terms"]:
            total = sum(np.outer(term["column"], term["row"]) for term in row["terms"])
            assert np.allclose(total, kernel, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", ("lm", "mr8", "schmid", "laws:9", "laws:25"))
def test_banks_are_their_authors(name):
    _, filters = load_bank(name)
    labels = [row["label"] for row in filters]
    expected = published(name, labels)
    assert len(expected) == len(filters)
    for row, kernel in zip(filters, expected):
        assert np.abs(np.array(row["kernel"]) - kernel).max() <= 1e-9 * np.abs(kernel).max() * (not name.startswith("laws")), row["label"]
    if name == "lm":
        assert [labels[i] for i in (0, 3, 18, 36, 43, 44)] == ["edge 1 0", "edge 1 90", "bar 1 0", "log 1.414", "log 12", "gaussian 1.414"]


def test_wrong_banks():
    result = run("show", "gabor:4", code=2)
    assert "for example gabor:4x8" in result.err


# --- tensors ------------------------------------------------------------------------------------------------------------


def random_tensor(*shape, seed=3):
    values = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
    np.save("x.npy", values)
    return values


def layer(bank, *options, output="y.npy", **kwargs):
    run("layer", bank, "x.npy", output, *options, **kwargs)
    return np.load(output)


@pytest.mark.parametrize("bank, shape", [
    ("laws:9", (13, 17)), ("laws:9", (3, 13, 17)), ("gabor:2x2", (2, 3, 13, 17)), ("laws:9", (0, 3, 13, 17)),
    *((name, (45, 37)) for name in ("gabor:3x4", "laws:25", "mr8", "sobel", "dog:1,1.6"))])
def test_maps_take_the_place_of_their_plane(box, bank, shape):
    x = random_tensor(*shape)
    y = layer(bank, "--device", "cpu", "-j", "3")
    expected = np.array([expected_maps(plane, bank) for plane in x.reshape(-1, *shape[-2:]).astype(float)])
    maps = len(load_bank(bank)[0])
    assert y.dtype == np.float32
    assert y.shape == (*shape[:-3], (shape[-3] if len(shape) > 2 else 1) * maps, *shape[-2:])
    if expected.size:
        assert np.abs(y.reshape(-1) - expected.reshape(-1)).max() < 3e-6 * max(1, np.abs(expected).max())


@pytest.mark.parametrize("grid", [1, 3])
def test_features(box, grid):
    x = random_tensor(2, 3, 13, 17)
    y = layer("gabor:2x2", "--pool", KINDS + (f":{grid}" if grid > 1 else ""), "--device", "cpu")
    assert y.shape == (2, 12, 4) + ((grid, grid) if grid > 1 else ())
    expected = [features(expected_maps(plane, "gabor:2x2"), grid) for plane in x.reshape(6, 13, 17).astype(float)]
    assert np.allclose(y.reshape(-1), np.array(expected).reshape(-1), rtol=1e-4, atol=1e-5)


def test_a_tensor_of_samples_is_an_image(image):
    np.save("x.npy", image.planes[0])
    for options in ([], ["--pool", "mean,std:4"]):
        run("layer", "gabor:2x3", "image.png", "image.npy", *options)
        assert np.array_equal(layer("gabor:2x3", "--range=1", *options), np.load("image.npy"))
        run("layer", "gabor:2x3", "image.png", "image.npy", "--range=255", *options)
        assert np.array_equal(layer("gabor:2x3", *options), np.load("image.npy"))


def test_chunks_workers_and_pipes_change_nothing(box):
    random_tensor(20, 3, 33, 41)
    expected = layer("gabor:2x3", "-j", "1")
    assert np.array_equal(layer("gabor:2x3", "-j", "7", "--mem-limit", "1M"), expected)
    with open("x.npy", "rb") as file, open("piped.npy", "wb") as out:
        subprocess.run([program.BINARY, "layer", "gabor:2x3", "-", "-"], stdin=file, stdout=out, check=True)
    assert np.array_equal(np.load("piped.npy"), expected)


@pytest.mark.skipif(not program.EMULATED, reason="no emulated device")
def test_devices_agree(box, monkeypatch):
    x = random_tensor(2, 2, 19, 23)
    maps, pooled = layer("gabor:2x2", "--device", "cpu"), layer("gabor:2x2", "--pool", KINDS, "--device", "cpu")
    monkeypatch.setattr("program.BINARY", program.EMULATED)
    assert np.array_equal(layer("gabor:2x2", "--device", "cuda"), maps)
    assert np.array_equal(layer("gabor:2x2", "--pool", KINDS, "--device", "cuda"), pooled)
    np.save("x.npy", np.abs(x * 40).astype(np.uint8))
    bytes_on_cuda = layer("laws:9", "--range=1", "--device", "cuda")
    assert np.array_equal(bytes_on_cuda, layer("laws:9", "--range=1", "--device", "cpu"))


@pytest.mark.parametrize("shape, options, says", [
    ((7,), [], "a filter bank takes (images, channels, height, width)"),
    ((1, 2, 3, 4, 5), [], "a filter bank takes (images, channels, height, width)"),
    ((3, 5, 0), [], "expected planes of 1 x 1"),
    ((3, 5, 6), ["--pool=mean:6"], "expected planes of 6 x 6"),
    ((3, 5, 6), ["--gray"], "--gray is for images"),
    ((3, 5, 6), ["--range=1"], "--range scales integers"),
])
def test_what_does_not_fit_is_refused(box, shape, options, says):
    random_tensor(*shape)
    assert says in run("layer", "laws:9", "x.npy", "y.npy", *options, code=2).err
    assert not os.path.exists("y.npy")


def test_progress(box):
    random_tensor(200, 1, 64, 64)
    data = open("x.npy", "rb").read()
    process = start("layer", "laws:9", "-", "y.npy", "--progress=always", "--mem-limit=1M", stdin=subprocess.PIPE)
    at = 0  # the first line comes with the first images after a second
    while at < len(data) - 100000 and not select.select([process.stderr], [], [], 0.05)[0]:
        process.stdin.write(data[at:at + 40000])
        process.stdin.flush()
        at += 40000
    _, err = process.communicate(data[at:], timeout=program.TIMEOUT)
    assert re.match(rb"conv: \d+ of 200 \(\d+ %\), ", err), err
    assert run("layer", "laws:9", "x.npy", "y.npy").err == ""


# --- images -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def image(box):
    made = images.make("gray8", np.random.default_rng(7), 45, 37)
    (box / "image.png").write_bytes(made.data)
    return made


def test_colours_become_luminance(box):
    made = images.make("rgb8", np.random.default_rng(7), 45, 37)
    (box / "image.png").write_bytes(made.data)
    run("layer", "sobel", "image.png", "maps.npy")
    expected = expected_maps(np.tensordot([0.299, 0.587, 0.114], made.planes.astype(float), 1) / 255, "sobel")
    assert np.abs(np.load("maps.npy") - expected).max() < 2e-6 * max(1, np.abs(expected).max())


def test_folder_into_one_file(box):
    run("layer", "laws:9", SAMPLES, "all.npy", "--pool", "mean,energy", "--device", "cpu")
    run("layer", "laws:9", SAMPLES, "each", "--pool", "mean,energy", "--device", "cpu")
    together = np.load("all.npy")
    names = sorted(os.listdir("each"))
    assert together.shape == (len(names), 9, 2)
    assert all(np.array_equal(together[i], np.load(f"each/{name}")) for i, name in enumerate(names))


@pytest.mark.parametrize("options, says", [
    (["--bias", "b.npy"], "--bias cannot be combined with a filter bank"),
    (["--stride", "2"], "--stride cannot be combined with a filter bank"),
    (["--pool", "median"], "for example mean,std:4"),
    (["--pool", "mean,mean"], "for example mean,std:4"),
    (["--pool", "mean:0"], "for example mean,std:4"),
])
def test_wrong_options(image, options, says):
    assert says in run("layer", "lm", "image.png", "x.npy", *options, code=2).err


def test_wrong_inputs(image):
    np.save("w.npy", np.zeros((1, 1, 3, 3), np.float32))
    result = run("layer", "w.npy", "image.png", "x.npy", "--pool", "mean", code=2)
    assert "--pool is for filter banks" in result.err
    result = run("layer", "sobel", "image.png", "x.npy", "--pool", "mean:40", code=1)
    assert "smaller than the grid of 40x40 cells" in result.err
