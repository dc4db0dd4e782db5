# SPDX-License-Identifier: MIT
"""Arrays in and out, on the CPU: the buffer protocol, DLPack, and samples at any address, which are right or refused."""

import array
import ctypes
import gc

import numpy as np
import pytest
from conftest import torch, with_torch
from test_dlpack import Exporter

import conv


def test_dlpack_out(noise):
    """Results are NumPy arrays, whose DLPack capsules keep the library's memory."""
    image = noise((20, 31, 3))
    result = np.from_dlpack(conv.filter(image, "emboss"))
    gc.collect()
    assert np.array_equal(result, conv.filter(image, "emboss"))


def test_buffers(noise):
    image = noise((6, 8))
    wanted = conv.filter(image, "emboss")
    flat = array.array("B", image.tobytes())
    assert np.array_equal(conv.filter(memoryview(flat).cast("B", (6, 8)), "emboss"), wanted)
    pixels = (ctypes.c_uint8 * 8 * 6).from_buffer_copy(image.tobytes())
    assert np.array_equal(conv.filter(pixels, "emboss"), wanted)
    deep = (ctypes.c_uint16 * 8 * 6)()
    assert conv.filter(deep, "emboss").dtype == np.uint16
    locked = bytearray(image.tobytes())
    conv.filter(memoryview(locked).cast("B", (6, 8)), "emboss")
    locked.append(1)  # would raise BufferError if the view had not been released


def test_nothing_leaks(noise):
    resource = pytest.importorskip("resource")
    images = noise((4, 256, 256, 3))
    files = conv.encode_png(images) + [b"damaged"]

    def rounds(count):
        for _ in range(count):
            decoded = conv.decode_png(files, errors="return")
            conv.filter(decoded[:4], "emboss")
            conv.filter(Exporter(images), "gaussian5", out=images)
            conv.encode_png(decoded[:4], views=True)
            conv.Filter([[2]])(images[0])
            with pytest.raises(ValueError):
                conv.filter(images, "blur", out=images[:1])

    rounds(5)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    rounds(60)
    # KiB; each round takes 4 MiB, so a leak of any array would be far larger.
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 16 << 10


def test_torch(noise, torch_device):
    image = noise((64, 80, 3))
    tensor = torch.from_numpy(image).to(torch_device)
    result = conv.filter(tensor, "emboss")
    assert type(result) is torch.Tensor and result.dtype == torch.uint8 and result.device == tensor.device
    assert np.array_equal(result.cpu().numpy(), conv.filter(image, "emboss"))
    planes = conv.filter(tensor.permute(2, 0, 1), "emboss", layout="CHW")
    assert torch.equal(planes.permute(1, 2, 0), result)
    out = torch.zeros_like(tensor)
    assert conv.filter(tensor, "emboss", out=out) is out and torch.equal(out, result)
    assert conv.filter(tensor, "emboss", dtype=torch.float32).dtype == torch.float32
    file = conv.encode_png(tensor)
    decoded = conv.decode_png([file] * 3, device=torch_device, framework="torch", batch=True, layout="CHW")
    assert type(decoded) is torch.Tensor and decoded.shape == (3, 3, 64, 80) and torch.equal(decoded[2], tensor.permute(2, 0, 1))
    into = torch.zeros(2, 64, 80, 3, dtype=torch.uint8, device=torch_device)
    assert conv.decode_png([file] * 2, device=torch_device, batch=True, out=into) is into and torch.equal(into[1], tensor)
    expanded = tensor[:1].expand(9, -1, -1)
    assert torch.equal(conv.filter(expanded, "emboss"), conv.filter(expanded.contiguous(), "emboss"))
    with pytest.raises(BufferError):
        conv.filter(tensor, "emboss", out=tensor[:1].expand(64, -1, -1))
    if torch_device.type == "cuda":
        with pytest.raises(ValueError, match="overlap"):
            conv.filter(tensor, "emboss", out=tensor)


@with_torch
def test_torch_views_results_without_a_copy(noise):
    decoded = conv.decode_png(conv.encode_png(noise((20, 31, 3))))
    tensor = torch.from_dlpack(decoded)
    tensor[0, 0, 0] = 99
    assert decoded[0, 0, 0] == 99


def test_torch_layers(rng, torch_device):
    x, w, b = (torch.from_numpy(rng.standard_normal(shape, dtype=np.float32)).to(torch_device)
               for shape in ((2, 16, 30, 33), (8, 16, 3, 3), (8,)))
    y = conv.layer(x, w, b, padding="same")
    assert type(y) is torch.Tensor and y.device == x.device
    assert np.array_equal(y.cpu().numpy(), conv.layer(*(tensor.cpu().numpy() for tensor in (x, w, b)), padding="same"))
    reference = torch.nn.functional.conv2d(x.double(), w.double(), b.double(), padding=1)
    assert torch.allclose(y.double(), reference, atol=1e-4)
    assert torch.equal(conv.layer(x, w, b, padding="same", activation="relu"), torch.relu(y))
    assert torch.allclose(conv.Layer(w, b, padding="same", precision="fast")(x).double(), reference, atol=1e-3)
    with pytest.raises(BufferError):
        conv.layer(x.requires_grad_(), w)


def test_jax(noise):
    jax = pytest.importorskip("jax")
    image = noise((20, 31, 3))
    result = conv.filter(jax.numpy.asarray(image), "emboss")
    assert isinstance(result, jax.Array)
    assert np.array_equal(np.asarray(result), conv.filter(image, "emboss"))
    assert isinstance(conv.decode_png(conv.encode_png(image), framework="jax"), jax.Array)
    with pytest.raises(BufferError):
        conv.filter(image, "emboss", out=jax.numpy.asarray(image))


def move(array, offset):
    raw = bytearray(array.nbytes + offset)
    view = np.ndarray(array.shape, array.dtype, raw, offset)
    view[:] = array
    return view


@pytest.mark.parametrize("dtype", (np.uint16, np.float32))
def test_samples_at_any_address(rng, dtype):
    """Packed records, files mapped from an odd offset, slices of received bytes: 1.0.0 raised BufferError."""
    size = np.dtype(dtype).itemsize
    image = rng.integers(0, 60000, (7, 9, 3)).astype(dtype)
    wanted = conv.filter(image, "sharpen")
    for offset in range(1, 2 * size):
        moved = move(image, offset)
        assert np.array_equal(conv.filter(moved, "sharpen"), wanted)
        assert np.array_equal(conv.filter([moved, image], "sharpen")[0], wanted)
        assert np.array_equal(conv.filter(memoryview(moved), "sharpen"), wanted)
        assert np.array_equal(conv.filter(moved[::-1, ::2], "sharpen"), conv.filter(image[::-1, ::2], "sharpen"))
        if dtype == np.uint16:
            assert conv.encode_png(moved) == conv.encode_png(image)
        elif offset % size:
            with pytest.raises(BufferError):
                conv.filter(image, "sharpen", out=moved)
            assert np.array_equal(moved, image)
    records = np.zeros(7, [("head", "u1"), ("samples", dtype, (9, 3))])
    records["samples"] = image
    assert records["samples"].strides[0] % size and np.array_equal(conv.filter(records["samples"], "sharpen"), wanted)
    with pytest.raises(BufferError):
        conv.filter(image, "sharpen", out=records["samples"])
    with pytest.raises(BufferError):
        conv.decode_png(conv.encode_png(image.astype(np.uint16)), out=np.zeros(7, [("h", "u1"), ("s", "u2", (9, 3))])["s"])


def test_layers_with_samples_at_any_address(rng):
    x, weights, bias = (rng.standard_normal(shape, np.float32) for shape in ((2, 3, 8, 9), (4, 3, 3, 3), 4))
    wanted = conv.layer(x, weights, bias)

    for offset in range(1, 9):
        assert np.array_equal(conv.layer(move(x, offset), move(weights, offset), move(bias, offset)), wanted)
        assert np.array_equal(conv.filter(x, move(weights, offset)[0, 0], layout="CHW"), conv.filter(x, weights[0, 0], layout="CHW"))
        out = move(np.zeros_like(wanted), offset)
        if out.ctypes.data % 16:
            with pytest.raises(BufferError):
                conv.layer(x, weights, bias, out=out)
