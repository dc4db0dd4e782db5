# SPDX-License-Identifier: MIT
"""Exceptions of conv for which Python has no type, and the progress of a run, which the extension module creates;
the names that annotations use."""

import os
from typing import Any, Literal, NamedTuple, Sequence

Layout = Literal["HWC", "CHW", "HW"]
Errors = Literal["raise", "return"]
# Arrays of NumPy, torch, CuPy and JAX, and all that has the buffer protocol, DLPack or
# __cuda_array_interface__.
ArrayLike = Any
# bytes, bytearray, memoryview, mmap, ...: whatever has the buffer protocol; uint8 tensors of torch; paths
Bytes = Any
Framework = Literal["numpy", "torch", "cupy", "jax"] | None
Matrix = Sequence[Sequence[float]] | Any
Path = str | bytes | os.PathLike[Any]
Stream = int | Any | None  # a number, or an object of torch, cupy or with __cuda_stream__
Device = str | Any | None
Steps = int | Sequence[int]  # of all axes, or of each
Padding = str | int | Sequence[int | Sequence[int]] | None


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
