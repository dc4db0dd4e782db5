# SPDX-License-Identifier: MIT
import os
from typing import Any, Callable, Iterable, Literal, NamedTuple, Protocol, Sequence

from ._core import Array as Array
from ._core import Filter as Filter
from ._core import Layer as Layer
from ._errors import DeviceError as DeviceError
from ._errors import PngError as PngError
from ._progress import Progress as Progress

__version__: str

Layout = Literal["HWC", "CHW", "HW"]
Framework = Literal["numpy", "torch", "cupy", "jax"]
Errors = Literal["raise", "return"]
# Arrays of NumPy, torch, CuPy and JAX, and all that has the buffer protocol, DLPack or
# __cuda_array_interface__.
ArrayLike = Any
# bytes, bytearray, memoryview, mmap, ...: whatever has the buffer protocol.
Bytes = Any
Matrix = Sequence[Sequence[float]] | Any
Path = str | bytes | os.PathLike[Any]

class _CudaStream(Protocol):
    def __cuda_stream__(self) -> tuple[int, int]: ...

StreamLike = int | _CudaStream | Any | None
DeviceLike = str | Any | None

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
    data: Bytes | Iterable[Bytes],
    *,
    device: DeviceLike = "cpu",
    layout: Layout = "HWC",
    channels: int | None = None,
    dtype: Any = None,
    batch: bool = False,
    out: Any = None,
    framework: Framework | None = None,
    stream: StreamLike = None,
    errors: Errors = "raise",
) -> Any: ...
def encode_png(
    images: ArrayLike | Sequence[ArrayLike],
    *,
    layout: Layout = "HWC",
    level: int | None = None,
    device: DeviceLike = None,
    stream: StreamLike = None,
    errors: Errors = "raise",
    views: bool = False,
) -> Any: ...
def probe_png(data: Bytes) -> PngInfo: ...
def filter(
    images: ArrayLike | Sequence[ArrayLike],
    filter: str | Matrix | Filter,
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
    layout: Layout = "HWC",
    out: Any = None,
    stream: StreamLike = None,
    device: DeviceLike = None,
) -> Any: ...
def layer(
    images: ArrayLike,
    weights: ArrayLike,
    bias: ArrayLike | None = None,
    *,
    stride: int = 1,
    padding: str | int = "valid",
    border: str | None = None,
    activation: str | None = None,
    precision: str | None = None,
    variant: str | None = None,
    dtype: str = "float32",
    input_divisor: float = 1.0,
    out: Any = None,
    stream: StreamLike = None,
    device: DeviceLike = None,
) -> Any: ...
def bank(name: str) -> np.ndarray[Any, Any]: ...
def filter_folder(
    inputs: Path | Sequence[Path],
    output: Path,
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
    strip: bool = False,
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
