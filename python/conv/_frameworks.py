# SPDX-License-Identifier: MIT
"""What the extension module asks of torch, cupy and jax. None of them is imported before one of its
arrays, or its name, has been passed to a function of conv."""

import numpy

_KINDS = {"numpy": "numpy", "torch": "torch", "cupy": "cupy", "jax": "jax", "jaxlib": "jax", "conv": "conv"}


def kind_of_type(array_type):
    """The package that arrays of a type, or of a type it is derived from, belong to."""
    for base in array_type.__mro__:
        kind = _KINDS.get(base.__module__.partition(".")[0])
        if kind and (kind != "conv" or base.__name__ == "Array"):
            return kind
    return "other"


def torch_stream(device):
    import torch

    return torch.cuda.current_stream(device).cuda_stream


def cupy_stream(device):
    import cupy

    with cupy.cuda.Device(device):
        return cupy.cuda.get_current_stream().ptr


def torch_empty(shape, dtype, device):
    import torch

    tensor = torch.empty(
        shape, dtype=getattr(torch, dtype), device="cpu" if device < 0 else f"cuda:{device}"
    )
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
    """A copy with positive strides, or None."""
    if kind == "torch":
        return array.contiguous()
    if kind == "cupy":
        return array.copy(order="C")
    if kind == "numpy" or isinstance(array, memoryview):
        return numpy.ascontiguousarray(array)
    return None


def host_floats(array):
    """A float32 array in host memory, row-major, of what NumPy, torch or cupy has."""
    if hasattr(array, "detach"):  # torch
        array = array.detach().cpu().numpy()
    elif hasattr(array, "get"):  # cupy
        array = array.get()
    elif hasattr(array, "numpy"):  # conv.Array
        array = array.numpy()
    array = numpy.asarray(array)
    if array.dtype.kind not in "fiu":
        raise TypeError(f"weights are numbers, not {array.dtype}")
    return numpy.ascontiguousarray(array, dtype=numpy.float32)
