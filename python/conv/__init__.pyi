# SPDX-License-Identifier: MIT
import os
from typing import Any, Callable, Iterable, Literal, NamedTuple, Protocol, Sequence

import numpy as np

from ._core import Array as Array
from ._core import Filter as Filter
from ._core import Layer as Layer
from ._types import DeviceError as DeviceError
from ._types import PngError as PngError
from ._types import Progress as Progress

__version__: str
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

_Layout = Literal["HWC", "CHW", "HW"]
_Framework = Literal["numpy", "torch", "cupy", "jax"]
_Errors = Literal["raise", "return"]
# Arrays of NumPy, torch, CuPy and JAX, and all that has the buffer protocol, DLPack or
# __cuda_array_interface__.
_ArrayLike = Any
# bytes, bytearray, memoryview, mmap, ...: whatever has the buffer protocol.
_Bytes = Any
_Matrix = Sequence[Sequence[float]] | Any
_Path = str | bytes | os.PathLike[Any]

class _CudaStream(Protocol):
    def __cuda_stream__(self) -> tuple[int, int]: ...

_StreamLike = int | _CudaStream | Any | None
_DeviceLike = str | Any | None

class PngInfo(NamedTuple):
    width: int
    height: int
    channels: int
    dtype: str
    has_alpha: bool
    bit_depth: int
    color_type: int
    interlaced: bool
    animated: bool

class Device(NamedTuple):
    device: str
    name: str
    memory: int

class KernelName(NamedTuple):
    name: str
    device: str

class FilterName(NamedTuple):
    name: str
    summary: str

def decode_png(
    data: _Bytes | Iterable[_Bytes],
    *,
    device: _DeviceLike = "cpu",
    layout: _Layout = "HWC",
    channels: int | None = None,
    dtype: Any = None,
    batch: bool = False,
    out: Any = None,
    framework: _Framework | None = None,
    stream: _StreamLike = None,
    errors: _Errors = "raise",
) -> Any: ...
def encode_png(
    images: _ArrayLike | Sequence[_ArrayLike],
    *,
    layout: _Layout = "HWC",
    level: int | None = None,
    device: _DeviceLike = None,
    stream: _StreamLike = None,
    errors: _Errors = "raise",
    views: bool = False,
) -> Any: ...
def probe_png(data: _Bytes) -> PngInfo: ...
def filter(
    images: _ArrayLike | Sequence[_ArrayLike],
    filter: str | _Matrix | Filter,
    *,
    border: str | None = None,
    alpha: str | None = None,
    kernel: str | None = None,
    divisor: float | str | None = None,
    bias: float | None = None,
    side: int = 0,
    flip: bool = False,
    dtype: Any = None,
    variant: str | None = None,
    layout: _Layout = "HWC",
    out: Any = None,
    stream: _StreamLike = None,
    device: _DeviceLike = None,
) -> Any: ...
def layer(
    images: _ArrayLike,
    weights: _ArrayLike,
    bias: _ArrayLike | None = None,
    *,
    stride: int = 1,
    padding: str | int = "valid",
    border: str | None = None,
    activation: str | None = None,
    precision: str | None = None,
    variant: str | None = None,
    dtype: Any = "float32",
    input_divisor: float = 1.0,
    out: Any = None,
    stream: _StreamLike = None,
    device: _DeviceLike = None,
) -> Any: ...
def bank(name: str) -> np.ndarray[Any, Any]: ...
def filter_folder(
    inputs: _Path | Sequence[_Path],
    output: _Path,
    filter: str,
    *,
    progress: Callable[[Progress], object] | None = None,
    device: str = "auto",
    border: str | None = None,
    alpha: str | None = None,
    kernel: str | None = None,
    divisor: float | str | None = None,
    bias: float | None = None,
    side: int = 0,
    flip: bool = False,
    recursive: bool = False,
    skip_existing: bool = False,
    update: bool = False,
    strip: bool | Literal["all"] = False,
    level: int | None = None,
    archives: bool = True,
    shard: tuple[int, int] | None = None,
    shard_by: str = "bytes",
) -> Progress: ...
def devices() -> list[Device]: ...
def filters() -> list[FilterName]: ...
def kernels() -> list[KernelName]: ...
def configure(
    *, threads: int | None = None, max_pixels: int | None = None, pool_bytes: int | None = None
) -> None: ...
