# SPDX-License-Identifier: MIT
"""Filters on arrays. A filter given by name is prepared once and then reused."""

import functools

from . import _core
from ._core import Filter
from ._frameworks import dtype_name, joined
from ._types import FilterName, KernelName


def filters():
    """The built-in filters, then those with numbers ("gaussian:SIGMA"): a list of conv.FilterName."""
    return [FilterName._make(name) for name in _core.filter_names() + _core.family_names(False)]


def banks():
    """The filter banks of conv.bank and `conv layer`, as "gabor:SCALESxORIENTATIONS": a list of conv.FilterName."""
    return [FilterName._make(name) for name in _core.family_names(True)]


def kernels():
    """The kernels that run filters: a list of conv.KernelName. The first is the definition that the others equal."""
    return [KernelName._make(name) for name in _core.kernel_names()]


_prepared = functools.lru_cache(maxsize=128, typed=True)(Filter)  # True is no border, although it equals 1


def filter(images, filter, *, border=None, alpha=None, kernel=None, divisor=None, bias=None, side=0, flip=False, luma=False,
           dtype=None, variant=None, layout="HWC", out=None, stream=None, device=None):
    """Filters images of type uint8, uint16 or float32; pixels are the same on all devices.

    Results of float32 images are float32, neither rounded nor clamped: sums in one stated order (docs/python.md). Parametric
    filters but "gaussian-fast" are within 2^-24 of the range from float64. Premultiplied alpha is for integers only.

    images:  an array of one image or of a batch, or a list of them
    filter:  names of built-in filters (conv.filters()), paths of matrix files, or "custom", separated by
             commas: "gaussian5,sharpen", or a list of these; a matrix of coefficients (height x width, odd,
             1 to 31); or a conv.Filter, which has its settings with it
    border:  "replicate" (the default), "reflect", "reflect101", "wrap", "constant:N" or the number N (0 to 255
             in 8-bit units; for float32 images any number, as samples are)
    alpha:   of the last of 2 or 4 channels: "keep" (the default), "filter" or "premultiply"
    kernel:  what "custom" stands for: "1 2 1 2 4 2 1 2 1", "3x3: ...", "@FILE"
    divisor: a number or "sum"; None: the filter's own, 1 for a matrix
    bias:    a number in 8-bit units, or as float32 samples are; None: the filter's own, 0 for a matrix
    side:    3 or 5: of built-in filters that exist in several sizes
    flip:    convolution instead of correlation
    luma:    of colours the luminance is filtered (Y = 0.299 R + 0.587 G + 0.114 B, rounded), and its change is
             added to R, G and B and clamped; images of 8 or 16 bits in host memory
    dtype:   "float32" or numpy.float32: results that are neither rounded nor clamped. None: as the images
    variant: a kernel to force (conv.kernels())
    layout:  "HWC", "CHW" or "HW", as for conv.decode_image
    out:     where results are written, of the images' shape and of the results' type; in host memory it may overlap the
             images. BufferError if it cannot be written to in place, ValueError if results overlap each other
    stream:  a CUDA stream: a number, or an object of torch, cupy or with __cuda_stream__
    device:  "cuda", "cuda:1" or 1 filters images in host memory on the device

    Returns arrays of the images' shape and package, or `out`. On CUDA the work is queued, not complete.
    """
    if type(filter) is not Filter:
        if dtype is not None and dtype_name(dtype) != "float32":
            raise ValueError(f"dtype must be None (that of the images) or 'float32', not {dtype!r}")
        filter = joined(filter)
        reads_file = type(filter) is not str or "/" in filter or ".mat" in filter or str(kernel).startswith("@")
        filter = (Filter if reads_file else _prepared)(filter, border=border, alpha=alpha, kernel=kernel, divisor=divisor, bias=bias,
                                                       variant=variant, side=side, flip=flip, floats=dtype is not None, luma=luma)
    elif (border, alpha, kernel, divisor, bias, variant, side, flip, luma, dtype) != _NO_SETTINGS:
        raise ValueError("a conv.Filter has its settings with it")
    return filter(images, layout=layout, out=out, stream=stream, device=device)


_NO_SETTINGS = (None, None, None, None, None, None, 0, False, False, None)
