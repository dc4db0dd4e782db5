# SPDX-License-Identifier: MIT
"""A trained network keeps its accuracy: both 5x5 layers of a small CNN on scikit-learn's digits through `conv layer`,
pooling and the dense layer in NumPy, against the predictions of torch."""
import os

import numpy as np
import pytest

from program import ROOT, run

DIGITS = os.path.join(ROOT, "tests", "data", "digits")
ALL = 1200


def path(name):
    return os.path.join(DIGITS, name + ".npy")


def load(name):
    return np.load(path(name))


def predict(count, *options, first=path("conv1-weight")):
    """The classes of the first images, which enter as 8-bit samples."""
    np.save("images.npy", load("images")[:count])
    layer = ("--padding", "same", "--activation", "relu", *options)
    run("layer", first, "images.npy", "y1.npy", "--range", "1", "--bias", path("conv1-bias"), *layer)
    run("layer", path("conv2-weight"), "y1.npy", "y2.npy", "--bias", path("conv2-bias"), *layer)
    maps = np.load("y2.npy").astype(np.float32)
    assert maps.shape == (count, 32, 8, 8)
    pooled = maps.reshape(count, 32, 4, 2, 4, 2).max((3, 5)).reshape(count, -1)
    return (pooled @ load("dense-weight").T + load("dense-bias")).argmax(1)


def test_the_stored_predictions_are_good():
    assert (load("predicted") == load("labels")).mean() > 0.95


@pytest.mark.parametrize("count", [100, 1000, ALL])
def test_same_predictions_as_torch(box, device, count):
    assert (predict(count, "--device", device) == load("predicted")[:count]).all()


@pytest.mark.parametrize("options", [("--precision", "fast"), ("--precision", "tf32"), ("--output-type", "f16")])
def test_accuracy_with_less_precision(box, device, options):
    """At most 2 of the images change their class, none of the first 100."""
    predicted = predict(ALL, "--device", device, *options)
    assert (predicted[:100] == load("predicted")[:100]).all()
    assert (predicted != load("predicted")[:ALL]).sum() <= 2


def test_turned_kernels_are_noticed(box):
    np.save("turned.npy", load("conv1-weight")[:, :, ::-1, ::-1])
    assert (predict(100, first="turned.npy") != load("predicted")[:100]).sum() > 10
