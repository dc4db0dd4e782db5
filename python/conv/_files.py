# SPDX-License-Identifier: MIT
"""PNG and JPEG files, and arrays."""

import functools

from . import _core
from ._types import PngInfo


_PNG, _JPEG, _ANY = range(3)  # as the extension module counts formats


def decode_image(data, *, device="cpu", layout="HWC", channels=None, dtype=None, batch=False, out=None, framework=None,
                 stream=None, errors="raise", auto_orient=False):
    """Decodes PNG, JPEG, TIFF, WebP and PNM files, each by its first bytes.

    data:        one file, or a list of files: bytes or any object with the buffer protocol, a uint8 tensor of
                 torch with one axis, or a path (OSError if it cannot be read)
    device:      where the images are made: "cpu", "cuda", "cuda:1", or the number of a CUDA device
    layout:      "HWC": (H, W, C), gray images (H, W). "CHW": (C, H, W). "HW": (H, W), gray images only. Small
                 letters and an N in front ("nchw") mean the same
    channels:    1 to 4; None: as in the file. Gray is repeated, alpha dropped, or opaque where there is none.
                 "rgb": 3; "gray": 1, of colours the luminance: as a JPEG stores it, of PNG
                 0.299 R + 0.587 G + 0.114 B. Otherwise colour is not reduced to gray
    dtype:       "uint8" or "uint16", or the type itself; None: as in the file
    batch:       one array (N, H, W, C) or (N, C, H, W) for all files, which have one shape and type
    out:         arrays to decode into: a list, or one array for a single file or a batch
    framework:   "numpy", "torch", "cupy" or "jax": the package of the results. None: numpy.ndarray on the CPU,
                 conv.Array on CUDA
    stream:      work on the memory of results begins after what this CUDA stream holds
    errors:      "raise": conv.PngError, conv.JpegError or conv.ImageError for the first file that fails.
                 "return": a list with such an error in the place of each of these files; with batch=True
                 (array, list of errors or None), where images that failed are zeros, and have no pixels if no
                 file says how large it is
    auto_orient: images are turned as the orientation in their Exif says

    JPEG has the pixels of libjpeg-turbo's default settings. Damaged files are refused, not repaired.

    Returns an array for one file, else a list. All are complete on return.
    """
    return _decode(_ANY, **locals())


def _decode(format, data, device, layout, channels, dtype, batch, out, framework, stream, errors, auto_orient):
    return _core.decode(format, data, device, layout, channels, dtype, batch, out, framework, stream, errors, auto_orient)


def _decoder(same, format, name):
    """The function `same` for files of one format."""

    @functools.wraps(same)
    def decode(data, **options):
        return _decode(format, data, **{**same.__kwdefaults__, **options})

    decode.__name__ = decode.__qualname__ = f"decode_{name.lower()}"
    decode.__doc__ = same.__doc__.replace("PNG, JPEG, TIFF, WebP and PNM files, each by its first bytes", f"{name} files")
    return decode


decode_png = _decoder(decode_image, _PNG, "PNG")
decode_jpeg = _decoder(decode_image, _JPEG, "JPEG")


def encode_png(images, *, layout="HWC", level=None, device=None, stream=None, errors="raise", views=False):
    """Encodes images of type uint8 or uint16 to PNG files.

    images: an array of one image or of a batch, or a list of images
    layout: "HWC", "CHW" or "HW", as for decode_image
    level:  of compression on the host, 0 to 12; None: the content of the image decides. A CUDA device
            has one level
    device: "cuda" encodes images in host memory on the device
    stream: reads begin after what this CUDA stream holds; None: the current one of torch and cupy
    errors: "raise", or "return": a list with a PngError in the place of each image that fails
    views:  memoryviews of the library's memory, which later calls reuse, instead of bytes

    Returns bytes for one image, else a list of bytes.
    """
    return _core.encode_png(images, layout, level, device, stream, errors, views)


def encode_jpeg(images, *, layout="HWC", quality=90, sampling=None, progressive=False, optimize=False, device=None, stream=None,
                errors="raise", views=False):
    """Encodes images of type uint8 to JPEG files.

    images:      as for conv.encode_png. Alpha must be opaque, and is dropped
    quality:     1 to 100
    sampling:    of colours; None: "4:4:4" from quality 90 on, else "4:2:0"
    progressive: in several scans; optimize: with Huffman codes made for each image. Both make smaller files
                 and take longer

    layout, device, stream, errors and views, and the result, are as for conv.encode_png; errors are
    conv.JpegError.
    """
    return _core.encode_jpeg(images, layout, quality, sampling, progressive, optimize, device, stream, errors, views)


def probe_png(data):
    """Reads the header of a PNG file (`data`: bytes or the like): conv.PngInfo. Raises conv.PngError."""
    return PngInfo._make(_core.probe_png(data))
