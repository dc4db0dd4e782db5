# SPDX-License-Identifier: MIT
# mypy: disable-error-code="overload-overlap"
# Types for checkers. A result is of the package of its argument; `X | Any` is X, or a list if one array holds a batch.
import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, Protocol, TypedDict, TypeVar, final, overload

import numpy as np
import torch as _torch
from numpy.typing import NDArray
from torch import Tensor
from typing_extensions import Buffer, Self, TypeAlias, Unpack

from ._types import Device as Device, DeviceError as DeviceError, FilterName as FilterName, ImageError as ImageError
from ._types import JpegError as JpegError, KernelName as KernelName, PngError as PngError, PngInfo as PngInfo, Progress as Progress

__version__: str

class _DLPack(Protocol):
    def __dlpack__(self, *args: Any, **options: Any) -> Any: ...

class _CudaArray(Protocol):
    @property
    def __cuda_array_interface__(self) -> dict[str, Any]: ...

_Own = TypeVar("_Own", bound=_DLPack)  # an array whose package has the result
_NumPy: TypeAlias = NDArray[Any]
_ArrayLike: TypeAlias = _DLPack | _CudaArray | Buffer
_Numbers: TypeAlias = _ArrayLike | Sequence[Any]
_Path: TypeAlias = str | bytes | os.PathLike[Any]
_File: TypeAlias = Buffer | _DLPack | str | os.PathLike[Any]
_Layout: TypeAlias = Literal["HWC", "CHW", "HW", "NHWC", "NCHW", "NHW", "hwc", "chw", "hw", "nhwc", "nchw", "nhw"]
_Border: TypeAlias = Literal["replicate", "reflect", "reflect101", "wrap", "constant:0", "constant:255"] | float | None
_Alpha: TypeAlias = Literal["keep", "filter", "premultiply"] | None
_Precision: TypeAlias = Literal["exact", "fast", "tf32", "fp16", "bf16"] | None
_Activation: TypeAlias = Literal["relu", "tanh", "abs"] | None
_Padding: TypeAlias = Literal["valid", "same", "same_upper", "same_lower"] | int | Sequence[int | Sequence[int]] | None
_Steps: TypeAlias = int | Sequence[int]
_Sampling: TypeAlias = Literal["4:4:4", "4:2:2", "4:2:0"] | None
_To: TypeAlias = Literal["png", "jpg", "tif", "webp", "pnm", "ppm", "pgm", "pam"] | None
_Errors: TypeAlias = Literal["raise", "return"]
_Device: TypeAlias = str | int | _torch.device | None
_Stream: TypeAlias = object  # a number, None, or an object of torch, cupy or with __cuda_stream__
_Number: TypeAlias = type[np.number[Any]] | np.dtype[Any] | _torch.dtype | None
_Integer: TypeAlias = Literal["uint8", "uint16"] | _Number
_Float: TypeAlias = Literal["float32", "float16", "bfloat16"] | _Number
_Matrix: TypeAlias = Sequence[Sequence[float]] | _ArrayLike
_Filters: TypeAlias = str | Sequence[str] | _Matrix | Filter

def devices() -> list[Device]: ...
def filters() -> list[FilterName]: ...
def banks() -> list[FilterName]: ...
def kernels() -> list[KernelName]: ...
def bank(name: str) -> NDArray[np.float32]: ...
def probe_png(data: _File) -> PngInfo: ...
def configure(*, threads: int | None = None, max_pixels: int | None = None, pool_bytes: int | None = None) -> None: ...

# --- files: in `framework`, and without one in NumPy, or in conv.Array on a device -----------------------------------------

_Decode = TypedDict("_Decode", {
    "layout": _Layout, "channels": int | Literal["gray", "rgb"] | None, "dtype": _Integer, "stream": _Stream,
    "auto_orient": bool}, total=False)
_OnHost: TypeAlias = Literal["numpy"] | None

class _Decoder(Protocol):
    @overload
    def __call__(self, data: _File, *, device: Literal["cpu"] = "cpu", framework: _OnHost = None, **o: Unpack[_Decode]) -> _NumPy: ...
    @overload
    def __call__(self, data: _File, *, device: _Device = "cpu", framework: Literal["torch"], **o: Unpack[_Decode]) -> Tensor: ...
    @overload
    def __call__(self, data: _File, *, device: _Device, **o: Unpack[_Decode]) -> Array: ...
    @overload
    def __call__(self, data: Iterable[_File], *, batch: Literal[True], device: Literal["cpu"] = "cpu", framework: _OnHost = None,
                 **o: Unpack[_Decode]) -> _NumPy: ...
    @overload
    def __call__(self, data: Iterable[_File], *, batch: Literal[True], device: _Device = "cpu", framework: Literal["torch"],
                 **o: Unpack[_Decode]) -> Tensor: ...
    @overload
    def __call__(self, data: Iterable[_File], *, batch: Literal[True], device: _Device, **o: Unpack[_Decode]) -> Array: ...
    @overload
    def __call__(self, data: Iterable[_File], *, device: Literal["cpu"] = "cpu", framework: _OnHost = None,
                 **o: Unpack[_Decode]) -> list[_NumPy]: ...
    @overload
    def __call__(self, data: Iterable[_File], *, device: _Device = "cpu", framework: Literal["torch"],
                 **o: Unpack[_Decode]) -> list[Tensor]: ...
    @overload
    def __call__(self, data: Iterable[_File], *, device: _Device, **o: Unpack[_Decode]) -> list[Array]: ...
    @overload
    def __call__(self, data: Iterable[_File], *, errors: Literal["return"], device: Literal["cpu"] = "cpu", framework: _OnHost = None,
                 **o: Unpack[_Decode]) -> list[_NumPy | ImageError]: ...
    @overload
    def __call__(self, data: Iterable[_File], *, errors: Literal["return"], device: _Device = "cpu", framework: Literal["torch"],
                 **o: Unpack[_Decode]) -> list[Tensor | ImageError]: ...
    @overload
    def __call__(self, data: _File | Iterable[_File], *, device: _Device = "cpu", batch: bool = False, out: Any = None,
                 framework: Literal["numpy", "torch", "cupy", "jax"] | None = None, errors: _Errors = "raise",
                 **o: Unpack[_Decode]) -> Any: ...

decode_image: _Decoder
decode_png: _Decoder
decode_jpeg: _Decoder

_Encode = TypedDict("_Encode", {"layout": _Layout, "device": _Device, "stream": _Stream}, total=False)
_Jpeg = TypedDict("_Jpeg", {
    "layout": _Layout, "device": _Device, "stream": _Stream, "quality": int, "sampling": _Sampling, "progressive": bool,
    "optimize": bool}, total=False)

@overload
def encode_png(images: Sequence[_ArrayLike], *, level: int | None = None, **o: Unpack[_Encode]) -> list[bytes]: ...
@overload
def encode_png(images: _ArrayLike, *, level: int | None = None, **o: Unpack[_Encode]) -> bytes | Any: ...
@overload
def encode_png(images: Sequence[_ArrayLike], *, errors: Literal["return"], level: int | None = None,
               **o: Unpack[_Encode]) -> list[bytes | PngError]: ...
@overload
def encode_png(images: _ArrayLike | Sequence[_ArrayLike], *, errors: _Errors = "raise", views: bool = False, level: int | None = None,
               **o: Unpack[_Encode]) -> Any: ...
@overload
def encode_jpeg(images: Sequence[_ArrayLike], **o: Unpack[_Jpeg]) -> list[bytes]: ...
@overload
def encode_jpeg(images: _ArrayLike, **o: Unpack[_Jpeg]) -> bytes | Any: ...
@overload
def encode_jpeg(images: Sequence[_ArrayLike], *, errors: Literal["return"], **o: Unpack[_Jpeg]) -> list[bytes | JpegError]: ...
@overload
def encode_jpeg(images: _ArrayLike | Sequence[_ArrayLike], *, errors: _Errors = "raise", views: bool = False,
                **o: Unpack[_Jpeg]) -> Any: ...

# --- filters and layers ----------------------------------------------------------------------------------------------------

_Call = TypedDict("_Call", {"out": Any, "stream": _Stream, "device": _Device}, total=False)
_Filter = TypedDict("_Filter", {
    "border": _Border, "alpha": _Alpha, "kernel": str | None, "divisor": float | Literal["sum"] | None, "bias": float | None,
    "side": Literal[0, 3, 5], "flip": bool, "luma": bool, "variant": str | None}, total=False)

class _FilterCall(_Filter, _Call, total=False):
    layout: _Layout
    dtype: Literal["float32"] | _Number

@overload
def filter(images: _NumPy, filter: _Filters, **o: Unpack[_FilterCall]) -> _NumPy: ...
@overload
def filter(images: Sequence[_Own], filter: _Filters, **o: Unpack[_FilterCall]) -> list[_Own]: ...
@overload
def filter(images: _Own, filter: _Filters, **o: Unpack[_FilterCall]) -> _Own: ...
@overload
def filter(images: Buffer, filter: _Filters, **o: Unpack[_FilterCall]) -> _NumPy: ...

_Layer = TypedDict("_Layer", {
    "stride": _Steps, "padding": _Padding, "dilation": _Steps, "groups": int, "border": _Border, "activation": _Activation,
    "precision": _Precision, "variant": str | None, "input_divisor": float}, total=False)

class _LayerCall(_Layer, _Call, total=False):
    dtype: _Float

@overload
def layer(images: _NumPy, weights: _Numbers, bias: _Numbers | None = None, **o: Unpack[_LayerCall]) -> _NumPy: ...
@overload
def layer(images: _Own, weights: _Numbers, bias: _Numbers | None = None, **o: Unpack[_LayerCall]) -> _Own: ...
@final
class Filter:
    def __init__(self, filter: str | Sequence[str] | _Matrix, *, floats: bool = False, **o: Unpack[_Filter]) -> None: ...
    @overload
    def __call__(self, images: _NumPy, *, layout: _Layout = "HWC", **o: Unpack[_Call]) -> _NumPy: ...
    @overload
    def __call__(self, images: Sequence[_Own], *, layout: _Layout = "HWC", **o: Unpack[_Call]) -> list[_Own]: ...
    @overload
    def __call__(self, images: _Own, *, layout: _Layout = "HWC", **o: Unpack[_Call]) -> _Own: ...
    def kernels(self, device: _Device = "cpu", dtype: Literal["uint8", "uint16", "float32"] | _Number = "uint8") -> list[str]: ...

@final
class Layer:
    def __init__(self, weights: _Numbers, bias: _Numbers | None = None, *, input: Literal["uint8"] | _Float = "float32",
                 output: _Float = "float32", **o: Unpack[_Layer]) -> None: ...
    @overload
    def __call__(self, images: _NumPy, **o: Unpack[_Call]) -> _NumPy: ...
    @overload
    def __call__(self, images: _Own, **o: Unpack[_Call]) -> _Own: ...
    @property
    def weights(self) -> NDArray[np.float32]: ...
    @property
    def bias(self) -> NDArray[np.float32] | None: ...
    @property
    def stride(self) -> tuple[int, ...]: ...

@final
class Array:
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def strides(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> np.dtype[Any]: ...
    @property
    def ndim(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def device(self) -> str: ...
    def numpy(self) -> _NumPy: ...
    def __len__(self) -> int: ...
    def __getitem__(self, index: int) -> Self: ...
    def __array__(self, *args: Any, **options: Any) -> _NumPy: ...
    def __dlpack__(self, *, stream: int | None = None, max_version: tuple[int, int] | None = None,
                   dl_device: tuple[int, int] | None = None, copy: bool | None = None) -> object: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...
    @property
    def __cuda_array_interface__(self) -> dict[str, Any]: ...

def filter_folder(
    inputs: _Path | Sequence[_Path], output: _Path, filter: str | Sequence[str], *,
    progress: Callable[[Progress], object] | None = None, device: str | int = "auto", border: _Border = None, alpha: _Alpha = None,
    kernel: str | None = None, divisor: float | Literal["sum"] | None = None, bias: float | None = None,
    side: Literal[0, 3, 5] = 0, flip: bool = False, recursive: bool = False, skip_existing: bool = False, update: bool = False,
    strip: bool | Literal["all"] = False, level: int | None = None, quality: int | None = None, to: _To = None,
    progressive: bool = False, optimize: bool = False, gray: bool = False, luma: bool = False, linear: bool = False,
    auto_orient: bool = False, archives: bool = True, shard: tuple[int, int] | None = None,
    shard_by: Literal["bytes", "name"] = "bytes") -> Progress: ...
