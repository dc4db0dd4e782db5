# SPDX-License-Identifier: MIT
"""Arguments in all the spellings that users have: types of samples, constants of borders, tensors with gradients."""

import subprocess
import sys

import numpy as np
import pytest

import conv

try:
    import torch
except ImportError:
    torch = None
with_torch = pytest.mark.skipif(torch is None, reason="no torch")

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


@pytest.mark.parametrize("text", ("constant:", "constant:nan", "constant:inf", "constant:1e31", "constant:0x1", "constant: 1", "constant:1,2"))
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


# What conv uses of torch. The environments of most tests have no torch.
STUB = '''
import contextlib, sys, types
import numpy as np
torch = types.ModuleType("torch")
enabled = True
def mode(value):
    @contextlib.contextmanager
    def set_mode():
        global enabled
        before, enabled = enabled, value
        yield
        enabled = before
    return set_mode
class Tensor:
    layout, is_cuda = "strided", False
    device = types.SimpleNamespace(type="cpu")
    def __init__(self, array, requires_grad=False):
        self.array, self.requires_grad = array, requires_grad
    dtype = property(lambda self: self.array.dtype.name)
    shape = property(lambda self: self.array.shape)
    def data_ptr(self): return self.array.ctypes.data
    def stride(self): return tuple(s // self.array.itemsize for s in self.array.strides)
    def is_neg(self): return False
    def detach(self): return Tensor(self.array)
    def cpu(self): return self
    def numpy(self):
        assert not self.requires_grad
        return self.array
    def requires_grad_(self):
        self.requires_grad = True
        return self
    def __dlpack_device__(self): return (1, 0)
    def __dlpack__(self, **options):
        assert not self.requires_grad
        return self.array.__dlpack__()
Tensor.__module__ = "torch"
torch.Tensor, torch.strided, torch._C = Tensor, "strided", types.SimpleNamespace(_cuda_getCurrentRawStream=None)
torch.is_grad_enabled = lambda: enabled
torch.no_grad = torch.inference_mode = mode(False)
torch.enable_grad = mode(True)
torch.from_numpy = Tensor
torch.device = str
for name in ("uint8", "float32", "float16"):
    setattr(torch, name, name)
torch.empty = lambda shape, dtype, device: Tensor(np.empty(shape, dtype))
torch.empty_like = lambda tensor: Tensor(np.empty_like(tensor.array))
sys.modules["torch"] = torch
'''

GRADIENTS = '''
import numpy as np, conv, torch
rng = np.random.default_rng(1)
arrays = {"x": rng.random((2, 3, 9, 8), dtype="f4"), "w": rng.random((4, 3, 3, 3), dtype="f4"), "b": rng.random(4, dtype="f4"),
          "m": rng.random((3, 3), dtype="f4")}
def tensors(*with_grad):
    return [torch.from_numpy(a.copy()).requires_grad_() if n in with_grad else torch.from_numpy(a.copy()) for n, a in arrays.items()]
def calls(x, w, b, m):
    return {"layer": lambda: conv.layer(x, w, b), "Layer": lambda: conv.Layer(w, b)(x), "filter": lambda: conv.filter(x, m, layout="CHW"),
            "Filter": lambda: conv.Filter(m)(x, layout="CHW"), "list": lambda: conv.filter([x, x], m, layout="CHW")[1],
            "out": lambda: conv.filter(x.detach(), m.detach(), layout="CHW", out=x), "png": lambda: conv.encode_png(x, layout="CHW")}
uses = {"layer": "xwb", "Layer": "xwb", "filter": "xm", "Filter": "xm", "list": "xm", "out": "x", "png": "x"}
plain = {name: call for name, call in calls(*tensors()).items() if name not in ("out", "png")}
wanted = {name: call().numpy() for name, call in plain.items()}
count = 0
for grad in "xwbm":
    for name, call in calls(*tensors(grad)).items():
        if grad not in uses[name]:
            continue
        try:
            call()
        except BufferError as error:
            assert "requires grad" in str(error) and "no_grad" in str(error), error
            count += 1
        else:
            raise AssertionError((grad, name))
for no_grad in (torch.no_grad, torch.inference_mode):
    with no_grad():
        for grad in "xwbm":
            some = calls(*tensors(grad))
            for name in wanted:
                result = some[name]()
                assert np.array_equal(result.numpy(), wanted[name]) and not result.requires_grad
            assert some["out"]() is not None
        with torch.enable_grad():
            try:
                conv.layer(*tensors("w")[:3])
            except BufferError:
                count += 1
x, w, b, m = tensors("x", "w", "b", "m")
assert np.array_equal(conv.layer(x.detach(), w.detach(), b.detach()).numpy(), wanted["layer"])
print("refused", count)
'''


@pytest.mark.parametrize("module", ("stub", "torch"))
def test_tensors_with_gradients(module):
    """conv computes no gradients: 1.0.0 returned a layer's result without any, so that a training loop learned nothing."""
    if module == "torch" and torch is None:
        pytest.skip("no torch")
    text = (STUB if module == "stub" else "") + GRADIENTS
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False)
    assert done.stdout == "refused 16\n", done.stdout + done.stderr
