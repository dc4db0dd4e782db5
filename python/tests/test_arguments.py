# SPDX-License-Identifier: MIT
"""Arguments in all the spellings that users have: types of samples, constants of borders, tensors with gradients."""

import shutil
import subprocess
import sys

import numpy as np
import pytest
from conftest import ROOT, torch, with_torch

import conv

X = np.linspace(-1, 1, 2 * 3 * 9 * 8, dtype=np.float32).reshape(2, 3, 9, 8)
WEIGHTS = np.linspace(-1, 1, 4 * 3 * 3 * 3, dtype=np.float32).reshape(4, 3, 3, 3)
IMAGE = np.arange(48, dtype=np.uint8).reshape(6, 8)


def spellings(name):
    """1.0.0 took some of them in some functions: conv.layer refused numpy.float32."""
    dtype = np.dtype(name)
    every = [name, dtype, dtype.type, dtype.str, dtype.char, f"torch.{name}", f"{dtype.kind}{dtype.itemsize}"]
    if torch is not None and hasattr(torch, name):
        every.append(getattr(torch, name))
    return every


@pytest.mark.parametrize("name", ("uint8", "uint16", "float16", "float32"))
def test_spellings_of_types(name):
    file = conv.encode_png(IMAGE)
    for dtype in spellings(name):
        if name.startswith("float"):
            assert conv.layer(X, WEIGHTS, dtype=dtype).dtype == name
            assert conv.Layer(WEIGHTS, output=dtype)(X).dtype == name
        else:
            assert conv.decode_png(file, dtype=dtype).dtype == name
            assert conv.decode_png([file], dtype=dtype, batch=True).dtype == name
        if name == "float32":
            assert conv.filter(IMAGE, "blur", dtype=dtype).dtype == name
        if name in ("uint8", "float32"):
            conv.Layer(WEIGHTS, input=dtype)(X.astype(name))
        if name != "float16":
            assert conv.Filter("blur").kernels(dtype=dtype) == conv.Filter("blur").kernels(dtype=name)


@pytest.mark.parametrize("dtype", (float, int, None, "float64", ">f4", ">u2", np.int8, "bool", [("a", "f4")], "x", 3, object(), "\udcff"))
def test_other_types(dtype):
    file = conv.encode_png(IMAGE)
    calls = [lambda: conv.Layer(WEIGHTS, output=dtype),
             lambda: conv.Layer(WEIGHTS, input=dtype), lambda: conv.Filter("blur").kernels(dtype=dtype)]
    if dtype is not None:  # None: the type that follows from the argument
        calls += [lambda: conv.layer(X, WEIGHTS, dtype=dtype), lambda: conv.filter(IMAGE, "blur", dtype=dtype), lambda: conv.decode_png(file, dtype=dtype)]
    for call in calls:
        with pytest.raises(ValueError, match="must be"):
            call()


@pytest.mark.parametrize("constant", (0.5, -1, 300, "1e3", -0.25, 0, 1e-3, "1E+2", 255, "77", 1e30))
@pytest.mark.parametrize("shape", ((9, 11), (7, 5, 3), (2, 6, 4, 1)))
def test_constants_of_borders(rng, constant, shape):
    """Of float32 images in their own units, as the texts say; 1.0.0 refused all but whole numbers from 0 to 255."""
    image = rng.random(shape, dtype=np.float32)
    kernel = rng.integers(-3, 4, (3, 5)) + 0.25
    axes = len(shape) - (3 if len(shape) > 2 else 2)
    widths = [(0, 0)] * axes + [(3, 3), (3, 3)] + [(0, 0)] * (len(shape) - axes - 2)
    padded = np.pad(image, widths, constant_values=np.float32(constant))
    inside = (slice(None),) * axes + (slice(3, -3), slice(3, -3))
    text = f"constant:{constant}"
    for chain in (kernel, "sobel", "gaussian:1.2"):
        wanted = conv.filter(padded, chain)[inside]
        assert np.array_equal(conv.filter(image, chain, border=text), wanted)
        assert np.array_equal(conv.Filter(chain, border=text)(image), wanted)
    x, weights = rng.random((2, 3, 6, 7), dtype=np.float32), rng.random((4, 3, 3, 3), dtype=np.float32)
    wanted = conv.layer(np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)), constant_values=np.float32(constant)), weights)
    assert np.array_equal(conv.layer(x, weights, padding=1, border=text), wanted)
    for integers in (IMAGE, IMAGE.astype(np.uint16)):
        if float(constant) in range(256):
            conv.filter(integers, "blur", border=text)
        else:
            for dtype in (None, "float32"):
                with pytest.raises(ValueError, match="whole number from 0 to 255"):
                    conv.filter(integers, "blur", border=text, dtype=dtype)


@pytest.mark.parametrize("text", ("constant:", "constant:nan", "constant:inf", "constant:1e31", "constant:0x1", "constant:1 2", "constant:1,2"))
def test_what_is_no_constant(text):
    for call in (lambda: conv.filter(X, "blur", border=text, layout="CHW"), lambda: conv.Filter("blur", border=text),
                 lambda: conv.layer(X, WEIGHTS, padding=1, border=text)):
        with pytest.raises(ValueError, match="border"):
            call()


def test_constants_in_folders(tmp_path):
    (tmp_path / "a.png").write_bytes(conv.encode_png(IMAGE))
    with pytest.raises(ValueError, match="whole number from 0 to 255"):
        conv.filter_folder(tmp_path / "a.png", tmp_path / "b.png", "blur", border="constant:0.5")
    assert not (tmp_path / "b.png").exists()


@pytest.mark.parametrize("module", ("fake_torch", "torch"))
def test_tensors_with_gradients(module):
    """conv computes no gradients: 1.0.0 returned a layer's result without any, so that a training loop learned nothing."""
    if module == "torch" and torch is None:
        pytest.skip("no torch")
    done = subprocess.run([sys.executable, ROOT / "tests/support/gradients.py", module], capture_output=True, text=True, check=False)
    assert done.stdout == "refused 16\n", done.stdout + done.stderr


def test_devices_layouts_borders_and_lists(noise, tmp_path):
    """As torch and users write them; 1.0.0 refused all of these."""
    image = noise((6, 8, 3))
    planes, file = image.transpose(2, 0, 1), conv.encode_png(image)
    for layout in ("chw", "NCHW", "nchw"):
        assert np.array_equal(conv.decode_png(file, layout=layout), planes) and conv.encode_png(planes, layout=layout) == file
    wanted = conv.filter(image, "gaussian5,unsharp:2,0.8", border="constant:7")
    for chain in (["gaussian5", "unsharp:2,0.8"], ("gaussian5", " unsharp:2, 0.8"), "gaussian5, unsharp:2,0.8"):
        assert np.array_equal(conv.filter(image, chain, border=7), wanted)
        assert np.array_equal(conv.Filter(chain, border=np.uint8(7))(image), wanted)
        (tmp_path / "a.png").write_bytes(file)
        conv.filter_folder(tmp_path / "a.png", tmp_path / "b.png", chain, border=7, device="cpu")
        assert np.array_equal(conv.decode_png(tmp_path / "b.png"), wanted)
    assert np.array_equal(conv.layer(X, WEIGHTS, padding=1, border=0.5), conv.layer(X, WEIGHTS, padding=1, border="constant:0.5"))
    for device in (200, np.int64(200), "cuda:200"):
        for call in (lambda: conv.filter(image, "blur", device=device), lambda: conv.decode_png(file, device=device),
                     # It raised an error of torch.
                     lambda: conv.decode_png(file, device=device, framework=torch and "torch"), lambda: conv.encode_png(image, device=device),
                     lambda: conv.filter_folder(tmp_path, tmp_path / "out", "blur", device=device)):
            with pytest.raises(conv.DeviceError):
                call()


@with_torch
def test_weights_of_bfloat16():
    weights = torch.tensor(WEIGHTS).bfloat16()
    assert np.array_equal(conv.layer(X, weights), conv.layer(X, weights.float().numpy()))


@pytest.mark.parametrize("command", ([sys.executable, "-m", "conv"], ["conv"]))
def test_the_program(command, tmp_path):
    """The package has the program: messages that name `conv list banks` lead to something."""
    if command == ["conv"]:
        command = [sys.executable, shutil.copy(ROOT / "python/conv/__main__.py", tmp_path)]
    done = subprocess.run([*command, "list", "banks"], capture_output=True, text=True, check=True)
    assert all(bank.name in done.stdout for bank in conv.banks())
    assert subprocess.run([*command, "emboss"], capture_output=True, check=False).returncode == 2
