# SPDX-License-Identifier: MIT
"""Tests of the Python package. CONV_REQUIRE_CUDA=1 turns the skips of tests for a GPU into failures."""

import os
import sys
from pathlib import Path

import numpy as np
import pytest

import conv

try:
    import torch
except ImportError:
    torch = None
with_torch = pytest.mark.skipif(torch is None, reason="no torch")

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "cli"))  # png_writer


def has_cuda():
    return any(device.device.startswith("cuda") for device in conv.devices())


def pytest_collection_modifyitems(items):
    if has_cuda() or os.environ.get("CONV_REQUIRE_CUDA") == "1":
        return
    for item in items:
        if "gpu" in item.keywords:
            item.add_marker(pytest.mark.skip(reason="no CUDA device"))


@pytest.fixture
def rng():
    seed = int(os.environ.get("CONV_SEED", "0")) or np.random.SeedSequence().entropy % 2**32
    print(f"CONV_SEED={seed}")
    return np.random.default_rng(seed)


@pytest.fixture(params=("cpu", pytest.param("cuda", marks=pytest.mark.gpu)))
def torch_device(request):
    if torch is None or request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip(f"no torch for {request.param}")
    return torch.device(request.param)


@pytest.fixture
def noise(rng):
    """Images of noise: noise((height, width, channels), dtype)."""

    def make(shape, dtype=np.uint8):
        return rng.integers(0, np.iinfo(dtype).max + 1, shape).astype(dtype)

    return make


# Every kind of image, as arrays in HWC layout.
SHAPES = [
    pytest.param(shape, dtype, id=f"{'x'.join(map(str, shape))}-{np.dtype(dtype).name}")
    for shape in ((61, 47), (33, 40, 2), (29, 64, 3), (17, 5, 4), (1, 1), (1, 1, 4), (300, 2, 3))
    for dtype in (np.uint8, np.uint16)
]
every_shape = pytest.mark.parametrize("shape, dtype", SHAPES)
