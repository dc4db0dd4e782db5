# SPDX-License-Identifier: MIT
"""Exceptions for which Python has no type, and tuples with names."""

from typing import NamedTuple


class ImageError(ValueError):
    """A file cannot be decoded, or an image cannot be encoded.

    index:  position in the list that was passed (0 for a single item)
    reason: a sentence
    code:   "format" (damaged), "unsupported", "limit", "memory", "usage" or "io"
    """

    def __init__(self, index: int, reason: str, code: str = "format") -> None:
        super().__init__(index, reason, code)
        self.index = index
        self.reason = reason
        self.code = code

    def __str__(self) -> str:
        return f"item {self.index}: {self.reason}"


class PngError(ImageError):
    """An ImageError of PNG files."""


class JpegError(ImageError):
    """An ImageError of JPEG files."""


class DeviceError(RuntimeError):
    """A CUDA device is missing or failed."""


class Progress(NamedTuple):
    """The progress of conv.filter_folder, and its totals."""

    done: int  # images that were filtered and saved
    failed: int  # images that were not
    skipped: int  # images whose results existed
    found: int  # images found so far; all of them once `listed`
    listed: bool
    failures: list[tuple[str, str]]  # (path, reason) of each image that failed


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
