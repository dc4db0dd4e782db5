# SPDX-License-Identifier: MIT
from typing import Any, Sequence, final

import numpy as np

from ._types import ArrayLike, Device, Layout, Matrix, Padding, Steps, Stream

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
    def numpy(self) -> np.ndarray[Any, Any]: ...
    def __len__(self) -> int: ...
    def __getitem__(self, index: int) -> Array: ...
    def __array__(self, *args: Any, **options: Any) -> np.ndarray[Any, Any]: ...
    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> object: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...
    @property
    def __cuda_array_interface__(self) -> dict[str, Any]: ...

@final
class Filter:
    def __init__(
        self,
        filter: str | Matrix,
        *,
        border: str | None = None,
        alpha: str | None = None,
        kernel: str | None = None,
        divisor: float | str | None = None,
        bias: float | None = None,
        variant: str | None = None,
        side: int = 0,
        flip: bool = False,
        floats: bool = False,
        luma: bool = False,
    ) -> None: ...
    def __call__(
        self,
        images: ArrayLike | Sequence[ArrayLike],
        *,
        layout: Layout = "HWC",
        out: Any = None,
        stream: Stream = None,
        device: Device = None,
    ) -> Any: ...
    def __getstate__(self) -> tuple[Any, ...]: ...
    def __setstate__(self, state: tuple[Any, ...]) -> None: ...
    def kernels(self, device: Device = "cpu", dtype: Any = "uint8") -> list[str]: ...

@final
class Layer:
    def __init__(
        self,
        weights: ArrayLike,
        bias: ArrayLike | None = None,
        *,
        stride: Steps = 1,
        padding: Padding = None,
        border: str | None = None,
        activation: str | None = None,
        precision: str | None = None,
        variant: str | None = None,
        input: Any = "float32",
        output: Any = "float32",
        input_divisor: float = 1.0,
        dilation: Steps = 1,
        groups: int = 1,
    ) -> None: ...
    def __call__(
        self,
        images: ArrayLike,
        *,
        out: Any = None,
        stream: Stream = None,
        device: Device = None,
    ) -> Any: ...
    def workspace(self, *args: int) -> tuple[int, int, int]: ...  # as run_with for conv.torch
    def run_with(self, *args: Any) -> None: ...
    def __getstate__(self) -> tuple[Any, ...]: ...
    def __setstate__(self, state: tuple[Any, ...]) -> None: ...
