# SPDX-License-Identifier: MIT
"""The extension module's access to torch, cupy and jax. None of them is imported before one of its
arrays, or its name, has been passed to a function of conv."""

import numpy

from ._types import DeviceError

_KINDS = {"numpy": "numpy", "torch": "torch", "cupy": "cupy", "jax": "jax", "jaxlib": "jax", "conv": "conv"}


def kind_of_type(array_type):
    """The package that arrays of a type, or of a type it is derived from, belong to."""
    for base in array_type.__mro__:
        kind = _KINDS.get(base.__module__.partition(".")[0])
        if kind and (kind != "conv" or base.__name__ == "Array"):
            return kind
    return "other"


# --- torch: reading its attributes takes a third of the time that DLPack takes -------------------

_torch = None  # the module, once one of its arrays has been seen
_torch_types: dict = {}  # its types: (conv_sample)
_torch_devices: dict = {}


def _load_torch():
    global _torch, _raw_stream
    import torch

    # uint16 came with torch 2.3. The function that returns a number is what Triton uses.
    names = (("uint8", 1), ("uint16", 2), ("float32", 3), ("float16", 4), ("bfloat16", 5))
    _torch_types.update({getattr(torch, name): code for name, code in names if hasattr(torch, name)})
    _raw_stream = getattr(torch._C, "_cuda_getCurrentRawStream", None)
    if _raw_stream is None:
        _raw_stream = lambda device: torch.cuda.current_stream(device).cuda_stream  # noqa: E731
    _torch = torch
    return torch


def torch_stream(device):
    if _torch is None:
        _load_torch()
    try:
        return _raw_stream(device)
    except (AssertionError, RuntimeError) as error:  # torch without CUDA, or without such a device
        raise DeviceError(f"torch cannot use cuda:{device}: {str(error).partition(chr(10))[0]}") from None


def refuse_grad(tensor, name):
    if tensor.requires_grad and (_torch or _load_torch()).is_grad_enabled():
        raise BufferError(f"{name}: the tensor requires grad, and conv computes no gradients: pass "
                          "tensor.detach(), or call it under torch.no_grad()")


def torch_view(tensor, name):
    """(address, device, its current stream, conv_sample, shape, strides in elements) of a tensor; device
    -1 is the host. None if the tensor has to be read through DLPack, or DLPack has to report why it cannot be read."""
    refuse_grad(tensor, name)
    sample = _torch_types.get(tensor.dtype)
    if sample is None or tensor.layout is not _torch.strided or tensor.is_neg():
        return None
    if tensor.is_cuda:
        device = tensor.get_device()
        return tensor.data_ptr(), device, _raw_stream(device), sample, tensor.shape, tensor.stride()
    if tensor.device.type != "cpu":
        return None
    return tensor.data_ptr(), -1, 0, sample, tensor.shape, tensor.stride()


def cupy_stream(device):
    import cupy

    with cupy.cuda.Device(device):
        return cupy.cuda.get_current_stream().ptr


def torch_empty(shape, dtype, device):
    torch = _torch or _load_torch()
    place = _torch_devices.get(device)
    if place is None:
        place = torch.device("cpu" if device < 0 else f"cuda:{device}")
        _torch_devices[device] = place
    tensor = torch.empty(shape, dtype=getattr(torch, dtype), device=place)
    return tensor, tensor.data_ptr()


def cupy_empty(shape, dtype, device):
    import cupy

    if device < 0:
        raise ValueError("cupy arrays are in device memory: pass device='cuda'")
    with cupy.cuda.Device(device):
        array = cupy.empty(shape, dtype)
    return array, array.data.ptr


def jax_array(array):
    import jax

    return jax.dlpack.from_dlpack(array)


def contiguous(kind, array):
    """A copy in device memory with positive strides, or None."""
    return array.contiguous() if kind == "torch" else array.copy(order="C") if kind == "cupy" else None


def host_numbers(array, name, dtype):
    """The numbers of an array, or of nested sequences, as a row-major array of NumPy in host memory."""
    kind = kind_of_type(type(array))
    if kind == "torch":
        refuse_grad(array, name)
        array = array.detach().cpu()
        array = (array.float() if str(array.dtype) == "torch.bfloat16" else array).numpy()
    elif kind == "cupy":
        array = array.get()
    elif kind == "conv":
        array = array.numpy()
    elif hasattr(array, "__dlpack__") and not hasattr(array, "__array__"):
        array = numpy.from_dlpack(array)
    array = numpy.asarray(array)
    if array.dtype.name == "bfloat16":  # of ml_dtypes, which JAX has
        array = array.astype("float32")
    if array.dtype.kind not in "fiub":
        raise TypeError(f"{name} must be numbers, not {array.dtype}")
    with numpy.errstate(over="ignore"):
        result = numpy.ascontiguousarray(array, dtype)
    if not numpy.isfinite(result).all() and numpy.isfinite(array).all():
        raise ValueError(f"{name} are too large for {dtype}")
    return result


def joined(filter):
    """A list of filters as one text, anything else as it is."""
    several = isinstance(filter, (list, tuple)) and filter and all(isinstance(each, str) for each in filter)
    return ",".join(filter) if several else filter


def _differing(state, defaults):
    return "".join(f", {name}={value!r}" for value, (name, default) in zip(state, defaults.items()) if value != default)


def filter_text(state):
    is_text = isinstance(state[0], str)
    what = repr(state[0]) if is_text else f"matrix of {len(state[0])} x {len(state[0][0])}"
    return what + _differing(state[1:], {"border": None, "alpha": None, "kernel": None, "divisor": None if is_text else 1,
                                         "bias": None if is_text else 0, "variant": None, "side": 0, "flip": False,
                                         "floats": False, "luma": False})


def layer_text(state):
    ones = (1,) * len(state[2])
    bias = "" if state[1] is None else ", with bias"
    return bias + _differing(state[2:], {"stride": ones, "padding": None, "border": None, "activation": None, "precision": None,
                                         "variant": None, "input": "float32", "output": "float32", "input_divisor": 1,
                                         "dilation": ones, "groups": 1})


def read_file(path):
    with open(path, "rb") as file:
        return file.read()


def dtype_name(dtype):
    """The name of a type of samples: of a class or dtype of NumPy, its name or code, or a dtype of torch."""
    if type(dtype).__module__ == "torch":
        dtype = str(dtype)
    if isinstance(dtype, str):
        dtype = dtype.removeprefix("torch.")
        if dtype == "bfloat16":  # which NumPy does not have
            return dtype
    try:
        known = numpy.dtype(dtype)
    except (TypeError, ValueError, SyntaxError):
        return ""
    return known.name if dtype is not None and known.isnative else ""
