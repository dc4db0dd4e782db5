# SPDX-License-Identifier: MIT
"""Convolution layers, and filter banks as their weights."""

import sys

import numpy

from . import _core
from ._core import Layer
from ._frameworks import dtype_name, refuse_grad


def _sample_name(images):
    dtype = getattr(images, "dtype", None)
    return _core.sample_name(images) if dtype is None else dtype_name(dtype)


def layer(images, weights, bias=None, *, stride=1, padding="valid", dilation=1, groups=1, border=None, activation=None,
          precision=None, variant=None, dtype=None, input_divisor=1.0, out=None, stream=None, device=None):
    """Runs a convolution layer: y[n, m] = activation(bias[m] + sum of weights[m, c] * x[n, c]), correlation.

    images:        float32, float16, bfloat16 (torch) or uint8, (N, C, H, W) or (C, H, W); with weights of one axis
                   (N, C, L) or (C, L)
    weights:       numbers, used as float32, (maps, C / groups, kernel height, kernel width) or (maps, C / groups, length)
    bias:          the same, (maps,), or None
    stride:        samples from an output to the next: a number, or one for each axis
    padding:       "valid", "same" (as torch), "same_upper" (as ONNX, and TensorFlow's SAME), "same_lower", a number of
                   samples, or for each axis a number or a pair (before, after)
    dilation:      samples from a tap of the kernel to the next: a number, or one for each axis
    groups:        of channels and maps; a map reads the channels of its group
    border:        of the padding: a number (0 is the default) or "constant:N", "replicate", "reflect", "reflect101", "wrap"
    activation:    None, "relu", "tanh" or "abs"
    precision:     "exact" (the default: the same bits on all devices, by sums in one order), "fast", "tf32", "fp16" or
                   "bf16"; on CUDA they are computed by cuDNN where that is installed and faster
    variant:       a kernel to force
    dtype:         of the result: "float32", "float16" or "bfloat16", or the type itself; None: that of the images, float32
                   for uint8
    input_divisor: of uint8 images: 1 or 255
    out:           where the result is written, without gaps
    stream:        a CUDA stream, as for conv.filter
    device:        "cuda" runs layers of arrays in host memory on the device

    No gradients are computed: BufferError for tensors of torch that require grad, except under torch.no_grad().

    Returns (N, maps, H', W') or (maps, H', W'). On CUDA the work is queued on `stream`, not complete.
    conv.Layer keeps the weights ready for repeated calls.
    """
    sample = _sample_name(images)
    sample = sample if sample in ("uint8", "float16", "bfloat16") else "float32"
    if dtype is None:
        dtype = "float32" if sample == "uint8" else sample
    elif dtype != "float32":
        dtype = dtype_name(dtype)
    if stream is None and device is None and variant is None and _is_on_device(images, weights, bias, out):
        return _run_there(images, weights, bias, out, (stride, padding, dilation, groups, border, activation, sample, dtype,
                                                       input_divisor, precision))
    prepared = Layer(weights, bias, stride=stride, padding=padding, dilation=dilation, groups=groups, border=border,
                     activation=activation, precision=precision, variant=variant, output=dtype, input_divisor=input_divisor,
                     input=sample)
    return prepared(images, out=out, stream=stream, device=device)


def _is_on_device(images, weights, *others):
    """Whether these are torch's tensors on a CUDA device, of 4 axes, whose layer can read its weights there."""
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(images, torch.Tensor) or not images.is_cuda or images.dim() != 4:
        return False
    if any(tensor is not None and (not isinstance(tensor, torch.Tensor) or tensor.device != images.device)
           for tensor in (weights, *others)) or weights is None or weights.dim() != 4:
        return False
    floats = (torch.float32, torch.float16, torch.bfloat16)
    return weights.dtype in floats and (images.dtype in floats or images.dtype is torch.uint8)


def _hashable(setting):
    if hasattr(setting, "tolist"):  # of NumPy
        setting = setting.tolist()
    return tuple(map(_hashable, setting)) if isinstance(setting, (list, tuple)) else setting


def _run_there(images, weights, bias, out, settings):
    """Nothing is copied to the host, and nothing waits."""
    from .torch import run

    for name, tensor in (("images", images), ("weights", weights), ("bias", bias)):
        if tensor is not None:
            refuse_grad(tensor, name)
    return run(images, weights, bias, _hashable(settings), out)


def bank(name):
    """The filters of a bank that `conv layer` takes by name ("gabor:4x8"; conv.banks()), as weights for
    conv.layer: float32, (filters, 1, height, width), smaller filters in the middle of zeros.

    Magnitudes and maxima that `conv layer` makes of several responses are left to the caller. ValueError for
    unknown names.
    """
    data, filters, height, width = _core.bank_weights(name)
    return numpy.frombuffer(data, "float32").reshape(filters, 1, height, width)
