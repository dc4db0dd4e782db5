# SPDX-License-Identifier: MIT
"""PNG decoding and encoding, image filters and convolution layers, on CPU cores and CUDA devices.

    images = conv.decode_png(files, device="cuda")
    edges = conv.filter(images, "sobel", border="replicate")
    files = conv.encode_png(edges)

Arrays. NumPy arrays, torch tensors, CuPy and JAX arrays, and all that has the buffer protocol, DLPack or
__cuda_array_interface__ are read where they are, without a copy. Results are arrays of the same package;
those of other objects are NumPy arrays in host memory and conv.Array in device memory.

Layouts. layout="HWC" (the default): height x width x channels; "CHW": channels x height x width; "HW": gray
images without an axis for channels. One axis more in front makes a batch. In "HWC" and "CHW" two axes are a
gray image. The layout is never guessed from the lengths of the axes. Channels are gray | gray, alpha |
R, G, B | R, G, B, alpha.

Devices. Work is done where the array is; `device` sends arrays in host memory to a CUDA device and back.

Streams. On CUDA, filter and layer queue their work on `stream` and return. Without `stream` that is the
current stream of torch and cupy, and else the default stream. decode_png and encode_png are complete on
return. conv.Array tells its consumers to wait for what is queued (DLPack, __cuda_array_interface__).

Threads. All functions may be called from several threads at a time and release the GIL while they work.

Errors. ValueError and TypeError for arguments, BufferError for arrays that cannot be used in place,
conv.PngError for files, conv.DeviceError for CUDA, MemoryError and OSError.
"""

import atexit
import functools
import os
from typing import NamedTuple

import numpy as _numpy

from . import _core
from ._core import Array, Filter, Layer
from ._errors import DeviceError, PngError
from ._progress import Progress

__version__ = _core.version()
__all__ = [
    "Array",
    "Device",
    "DeviceError",
    "Filter",
    "FilterName",
    "KernelName",
    "Layer",
    "PngError",
    "PngInfo",
    "Progress",
    "bank",
    "configure",
    "decode_png",
    "devices",
    "encode_png",
    "filter",
    "filter_folder",
    "filters",
    "kernels",
    "layer",
    "probe_png",
]


class PngInfo(NamedTuple):
    """What the header of a PNG file says. `channels`, `dtype` and `has_alpha` are those of the decoded
    image: palettes become RGB(A), 1, 2 and 4 bits become 8, a transparent colour becomes alpha."""

    width: int  # pixels
    height: int  # pixels
    channels: int  # 1 to 4
    dtype: str  # "uint8" or "uint16"
    has_alpha: bool
    bit_depth: int  # as in the file: 1, 2, 4, 8 or 16
    color_type: int  # as in the file: 0 gray, 2 RGB, 3 palette, 4 gray and alpha, 6 RGBA
    interlaced: bool
    animated: bool  # the first image is decoded


class Device(NamedTuple):
    device: str  # for `device` arguments: "cpu", "cuda:0"
    name: str
    memory: int  # bytes


class FilterName(NamedTuple):
    name: str
    summary: str


class KernelName(NamedTuple):
    name: str  # for `variant` arguments
    device: str  # "cpu" or "cuda"


def decode_png(
    data,
    *,
    device="cpu",
    layout="HWC",
    channels=None,
    dtype=None,
    batch=False,
    out=None,
    framework=None,
    stream=None,
    errors="raise",
):
    """Decodes PNG files in host memory.

    data:      one file (bytes or any object with the buffer protocol), or a list of files
    device:    where the images are made: "cpu", "cuda", "cuda:1"
    layout:    "HWC": (H, W, C), gray images (H, W). "CHW": (C, H, W). "HW": (H, W), gray images only
    channels:  1 to 4; None: as in the file. Gray is repeated, alpha dropped, or opaque where there is
               none. Colour is not reduced to gray
    dtype:     "uint8" or "uint16"; None: as in the file
    batch:     one array (N, H, W, C) or (N, C, H, W) for all files, which have one shape and type
    out:       arrays to decode into: a list, or one array for a single file or a batch
    framework: "numpy", "torch", "cupy" or "jax": the package of the results. None: numpy.ndarray on the
               CPU, conv.Array on CUDA
    stream:    work on the memory of results begins after what this CUDA stream holds
    errors:    "raise": conv.PngError for the first file that fails. "return": a list with a PngError in
               the place of each such file; with batch=True (array, list of PngError or None), where
               images that failed are zeros

    Returns an array for one file, else a list. All are complete on return.
    """
    return _core.decode_png(
        data,
        device=device,
        layout=layout,
        channels=channels,
        dtype=dtype,
        batch=batch,
        out=out,
        framework=framework,
        stream=stream,
        errors=errors,
    )


def encode_png(
    images, *, layout="HWC", level=None, device=None, stream=None, errors="raise", views=False
):
    """Encodes images of type uint8 or uint16 to PNG files.

    images: an array of one image or of a batch, or a list of images
    layout: "HWC", "CHW" or "HW", as for decode_png
    level:  of compression on the host, 0 to 12; None: the content of the image decides. A CUDA device
            has one level
    device: "cuda" encodes images in host memory on the device
    stream: reads begin after what this CUDA stream holds; None: the current one of torch and cupy
    errors: "raise", or "return": a list with a PngError in the place of each image that fails
    views:  memoryviews of the library's memory, which later calls reuse, instead of bytes

    Returns bytes for one image, else a list of bytes.
    """
    return _core.encode_png(
        images,
        layout=layout,
        level=level,
        device=device,
        stream=stream,
        errors=errors,
        views=views,
    )


def probe_png(data):
    """Reads the header of a PNG file (`data`: bytes or the like): conv.PngInfo. Raises conv.PngError."""
    return PngInfo._make(_core.probe_png(data))


def _names_file(text, kernel):
    return "/" in text or ".mat" in text or (kernel is not None and str(kernel).startswith("@"))


@functools.lru_cache(maxsize=128)
def _prepared(text, border, alpha, kernel, divisor, bias, variant, side, flip, floats):
    return Filter(
        text,
        border=border,
        alpha=alpha,
        kernel=kernel,
        divisor=divisor,
        bias=bias,
        variant=variant,
        side=side,
        flip=flip,
        floats=floats,
    )


def _wants_floats(dtype):
    if dtype is None:
        return False
    name = getattr(dtype, "__name__", None) or str(dtype).rpartition(".")[2]
    if name != "float32":
        raise ValueError(f"dtype is None (as the images have it) or 'float32', not {dtype!r}")
    return True


def filter(
    images,
    filter,
    *,
    border=None,
    alpha=None,
    kernel=None,
    divisor=None,
    bias=None,
    side=0,
    flip=False,
    dtype=None,
    variant=None,
    layout="HWC",
    out=None,
    stream=None,
    device=None,
):
    """Filters images of type uint8, uint16 or float32; pixels are the same on all devices.

    Results of float32 images are float32, neither rounded nor clamped: sums in one stated order of
    float32 operations (docs/python.md). Premultiplied alpha is for integers only.

    images:  an array of one image or of a batch, or a list of them
    filter:  names of built-in filters (conv.filters()), paths of matrix files, or "custom", separated by
             commas: "gaussian5,sharpen"; a matrix of coefficients (height x width, odd, 1 to 31); or a
             conv.Filter, which has its settings with it
    border:  "replicate" (the default), "reflect", "reflect101", "wrap", "constant:N" (8-bit units, or as
             float32 samples are)
    alpha:   of the last of 2 or 4 channels: "keep" (the default), "filter" or "premultiply"
    kernel:  what "custom" stands for: "1 2 1 2 4 2 1 2 1", "3x3: ...", "@FILE"
    divisor: a number or "sum"; None: the filter's own, 1 for a matrix
    bias:    a number in 8-bit units, or as float32 samples are; None: the filter's own, 0 for a matrix
    side:    3 or 5: of built-in filters that exist in several sizes
    flip:    convolution instead of correlation
    dtype:   "float32": results that are neither rounded nor clamped. None: as the images
    variant: a kernel to force (conv.kernels())
    layout:  "HWC", "CHW" or "HW"
    out:     where results are written, of the images' shape and of the results' type; in host memory it
             may be the images themselves. BufferError if it cannot be written to in place
    stream:  a CUDA stream: a number, or an object of torch, cupy or with __cuda_stream__
    device:  "cuda" filters images in host memory on the device

    Returns arrays of the images' shape and package, or `out`. On CUDA the work is queued, not complete.
    """
    if type(filter) is not Filter:
        floats = dtype is not None and _wants_floats(dtype)
        settings = (border, alpha, kernel, divisor, bias, variant, side, flip, floats)
        if type(filter) is str and not _names_file(filter, kernel):
            filter = _prepared(filter, *settings)
        else:
            filter = _prepared.__wrapped__(filter, *settings)
    elif (border, alpha, kernel, divisor, bias, variant, side, flip, dtype) != _NO_SETTINGS:
        raise ValueError("a conv.Filter has its settings with it")
    return filter(images, layout=layout, out=out, stream=stream, device=device)


_NO_SETTINGS = (None, None, None, None, None, None, 0, False, None)


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


def _shard(shard, by):
    """(part, parts, whether by names alone) as the library takes them."""
    if by not in ("bytes", "name"):
        raise ValueError(f"shard_by is 'bytes' or 'name', not {by!r}")
    part, parts = shard if shard is not None else (0, 0)
    if shard is not None and not 0 <= part < parts:
        raise ValueError(f"shard is (i, n) with i from 0 to n - 1, not {shard!r}")
    return int(part), int(parts), by == "name"


def bank(name):
    """The filters of a bank that `conv layer` takes by name ("gabor:4x8", `conv list banks`), as weights for
    conv.layer: float32, (filters, 1, height, width), smaller filters in the middle of zeros.

    Magnitudes and maxima that `conv layer` makes of several responses are left to the caller. ValueError for
    unknown names.
    """
    data, filters, height, width = _core.bank_weights(name)
    return _numpy.frombuffer(data, "float32").reshape(filters, 1, height, width)


def filter_folder(
    inputs,
    output,
    filter,
    *,
    progress=None,
    device="auto",
    border=None,
    alpha=None,
    kernel=None,
    divisor=None,
    bias=None,
    side=0,
    flip=False,
    recursive=False,
    skip_existing=False,
    update=False,
    strip=False,
    level=None,
    archives=True,
    shard=None,
    shard_by="bytes",
):
    """Filters the PNG files of folders and archives, as the program `conv` does.

    inputs:        a folder, file or archive, or a list of them
    output:        a folder, which is made where it is missing, or an archive ("out.tar")
    filter:        a chain of filters: "gaussian5,sharpen"
    progress:      called with a conv.Progress several times a second, in the calling thread; an exception that
                   it raises stops the run
    device:        "auto" (CUDA if it can be used, else the CPU), "cpu", "cuda", "cuda:1"
    border, alpha, kernel, divisor, bias, side, flip: as for conv.filter
    recursive:     folders below the inputs, too
    skip_existing: outputs that exist are kept; by default they are replaced
    update:        outputs that are not older than their inputs are kept
    strip:         metadata is not carried over
    level:         of compression, 0 to 12
    archives:      False: archives are files like any other
    shard:         (i, n): only part i of n, counted from 0: of several archives whole ones, else images
    shard_by:      "bytes", or "name": parts by names alone, without listing all inputs first

    Returns a conv.Progress with the totals; images that failed are in its `failures` and raise nothing.
    KeyboardInterrupt stops the run; files that are there then are whole.
    """
    for path in inputs if isinstance(inputs, (list, tuple)) else (inputs,):
        os.stat(path)  # FileNotFoundError for what the caller has named
    options = dict(
        border=border,
        alpha=alpha,
        kernel=kernel,
        divisor=divisor,
        bias=bias,
        side=side,
        flip=flip,
        recursive=recursive,
        skip_existing=skip_existing,
        update=update,
        strip=strip,
        level=level,
        archives=archives,
        shard=_shard(shard, shard_by),
    )
    return _core.filter_folder(inputs, output, filter, progress, device, options)


def devices():
    """The devices of this machine: a list of conv.Device; the CPU is the first."""
    return [Device._make(device) for device in _core.devices()]


def filters():
    """The built-in filters: a list of conv.FilterName."""
    return [FilterName._make(name) for name in _core.filter_names()]


def kernels():
    """The kernels that run filters: a list of conv.KernelName. The first is the definition that the others equal."""
    return [KernelName._make(name) for name in _core.kernel_names()]


def configure(*, threads=None, max_pixels=None, pool_bytes=None):
    """Settings of the process, for calls from now on; None leaves one as it is.

    threads:    CPU threads that share the work of a call; 0 (the default): one for each core. 1 is right
                for workers of a DataLoader
    max_pixels: images with more are refused; 0: 2^28
    pool_bytes: memory kept for reuse, for each call that runs at the same time; 0: no limit
    """
    before = _core.configuration()
    given = (threads, max_pixels, pool_bytes)
    _core.configure(*(old if new is None else new for old, new in zip(before, given)))


atexit.register(_core.begin_shutdown)
# The threads of contexts do not exist in a child process.
os.register_at_fork(after_in_child=_core.abandon_contexts)
