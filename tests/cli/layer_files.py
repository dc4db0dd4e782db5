# SPDX-License-Identifier: MIT
"""Files for tests of `conv layer`, made in the working directory."""
import os

import numpy as np

import images
from program import run


def rng_of(*seed):
    return np.random.default_rng(list(seed))


def layer(*args, **kwargs):
    return run("layer", *args, **kwargs)


def save(name, values):
    np.save(name, values)
    return values


def weights(maps=5, channels=3, height=3, width=4, seed=1):
    return save("w.npy", rng_of(seed).standard_normal((maps, channels, height, width)).astype(np.float32))


def tensor(*shape, seed=2):
    return save("x.npy", rng_of(seed).standard_normal(shape).astype(np.float32))


def same_bits(a, b):
    return a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes()


def only(*names):
    """Nothing else is left in the folder, temporary files in particular."""
    assert sorted(os.listdir(".")) == sorted(names)


def write_image(name, kind, width=30, height=20, seed=0):
    image = images.make(kind, rng_of(7, seed), width, height)
    os.makedirs(os.path.dirname(name) or ".", exist_ok=True)
    with open(name, "wb") as file:
        file.write(image.data)
    return image


def channels_of(image, gray=False, top=1):
    """The definition's input: the colour planes, scaled."""
    planes = image.planes[:len(image.planes) - image.alpha]
    full = {np.dtype(np.uint8): 255, np.dtype(np.uint16): 65535}[planes.dtype]
    values = planes.astype(np.int64)
    if gray and len(values) == 3:
        values = (299 * values[0] + 587 * values[1] + 114 * values[2])[None]
        full *= 1000
    return (values / (full / top)).astype(np.float32)[None]
