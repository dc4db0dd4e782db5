# SPDX-License-Identifier: MIT
"""Convolution layers, and filter banks as their weights."""

import numpy

from . import _core
from ._core import Layer


def layer(
    images,
    weights,
    bias=None,
    *,
    stride=1,
    padding="valid",
    border=None,
    activation=None,
    precision=None,
    variant=None,
    dtype="float32",
    input_divisor=1.0,
    out=None,
    stream=None,
    device=None,
):
    """Runs a convolution layer: y[n, m] = activation(bias[m] + sum of weights[m, c] * x[n, c]), correlation.

    images:        float32 or uint8, (N, C, H, W) or (C, H, W)
    weights:       float32, (maps, C, kernel height, kernel width)
    bias:          float32, (maps,), or None
    stride:        samples from an output to the next
    padding:       "valid", "same", or a number of samples
    border:        of the padding: "constant:0" (the default), "replicate", "reflect", "reflect101", "wrap"
    activation:    None, "relu", "tanh" or "abs"
    precision:     "exact" (the default: the same bits on all devices), "fast", "tf32" or "fp16"
    variant:       a kernel to force
    dtype:         of the result: "float32" or "float16"
    input_divisor: of uint8 images: 1 or 255
    out:           where the result is written, without gaps
    stream:        a CUDA stream, as for conv.filter
    device:        "cuda" runs layers of arrays in host memory on the device

    Returns (N, maps, H', W') or (maps, H', W'). On CUDA the work is queued on `stream`, not complete.
    conv.Layer keeps the weights ready for repeated calls.
    """
    prepared = Layer(
        weights,
        bias,
        stride=stride,
        padding=padding,
        border=border,
        activation=activation,
        precision=precision,
        variant=variant,
        input="uint8" if "uint8" in str(getattr(images, "dtype", "")) else "float32",
        output=str(dtype).rpartition(".")[2],
        input_divisor=input_divisor,
    )
    return prepared(images, out=out, stream=stream, device=device)


def bank(name):
    """The filters of a bank that `conv layer` takes by name ("gabor:4x8", `conv list banks`), as weights for
    conv.layer: float32, (filters, 1, height, width), smaller filters in the middle of zeros.

    Magnitudes and maxima that `conv layer` makes of several responses are left to the caller. ValueError for
    unknown names.
    """
    data, filters, height, width = _core.bank_weights(name)
    return numpy.frombuffer(data, "float32").reshape(filters, 1, height, width)
