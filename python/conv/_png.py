# SPDX-License-Identifier: MIT
"""PNG files and arrays."""

from typing import Any, Iterable, Literal, NamedTuple, Sequence

from . import _core
from ._types import ArrayLike, Bytes, Device, Errors, Layout, Stream


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


def decode_png(
    data: Bytes | Iterable[Bytes],
    *,
    device: Device = "cpu",
    layout: Layout = "HWC",
    channels: int | None = None,
    dtype: Any = None,
    batch: bool = False,
    out: Any = None,
    framework: Literal["numpy", "torch", "cupy", "jax"] | None = None,
    stream: Stream = None,
    errors: Errors = "raise",
) -> Any:
    """Decodes PNG files in host memory.

    data:      one file (bytes or any object with the buffer protocol), or a list of files
    device:    where the images are made: "cpu", "cuda", "cuda:1"
    layout:    "HWC": (H, W, C), gray images (H, W). "CHW": (C, H, W). "HW": (H, W), gray images only
    channels:  1 to 4; None: as in the file. Gray is repeated, alpha dropped, or opaque where there is
               none. Colour is not reduced to gray
    dtype:     "uint8" or "uint16", or the type itself; None: as in the file
    batch:     one array (N, H, W, C) or (N, C, H, W) for all files, which have one shape and type
    out:       arrays to decode into: a list, or one array for a single file or a batch
    framework: "numpy", "torch", "cupy" or "jax": the package of the results. None: numpy.ndarray on the
               CPU, conv.Array on CUDA
    stream:    work on the memory of results begins after what this CUDA stream holds
    errors:    "raise": conv.PngError for the first file that fails. "return": a list with a PngError in
               the place of each such file; with batch=True (array, list of PngError or None), where
               images that failed are zeros, and have no pixels if no file says how large it is

    Returns an array for one file, else a list. All are complete on return.
    """
    return _core.decode_png(data, device, layout, channels, dtype, batch, out, framework, stream, errors)


def encode_png(
    images: ArrayLike | Sequence[ArrayLike],
    *,
    layout: Layout = "HWC",
    level: int | None = None,
    device: Device = None,
    stream: Stream = None,
    errors: Errors = "raise",
    views: bool = False,
) -> Any:
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
    return _core.encode_png(images, layout, level, device, stream, errors, views)


def probe_png(data: Bytes) -> PngInfo:
    """Reads the header of a PNG file (`data`: bytes or the like): conv.PngInfo. Raises conv.PngError."""
    return PngInfo._make(_core.probe_png(data))
