# SPDX-License-Identifier: MIT
"""PNG and JPEG decoding and encoding, image filters and convolution layers, on CPU cores and CUDA devices.

    images = conv.decode_image(files, device="cuda")
    edges = conv.filter(images, "sobel", border="replicate")
    files = conv.encode_png(edges)

Arrays. NumPy arrays, torch tensors, CuPy and JAX arrays, and all that has the buffer protocol, DLPack or
__cuda_array_interface__ are read where they are; those with negative or zero strides, or samples at addresses
that are not multiples of their size, are copied first. Results are arrays of the same package;
those of other objects are NumPy arrays in host memory and conv.Array in device memory.

Layouts. layout="HWC" (the default): height x width x channels; "CHW": channels x height x width; "HW": gray
images without an axis for channels. One axis more in front makes a batch. In "HWC" and "CHW" two axes are a
gray image. The layout is never guessed from the lengths of the axes. Channels are gray | gray, alpha |
R, G, B | R, G, B, alpha.

Devices. Work is done where the array is; `device` sends arrays in host memory to a CUDA device and back.

Streams. On CUDA, filter and layer queue their work on `stream` and return. Without `stream` that is the
current stream of torch and cupy, and else the default stream. Decoding and encoding are complete on
return. conv.Array tells its consumers to wait for what is queued (DLPack, __cuda_array_interface__).

Threads. All functions may be called from several threads at a time and release the GIL while they work.

Errors. ValueError and TypeError for arguments, BufferError for arrays that cannot be used in place,
conv.PngError and conv.JpegError (of conv.ImageError) for files, conv.DeviceError for CUDA, MemoryError and OSError.
"""

import atexit
import os

from . import _core
from ._core import Array, Filter, Layer
from ._files import decode_image, decode_jpeg, decode_png, encode_jpeg, encode_png, probe_png
from ._filter import banks, filter, filters, kernels
from ._folder import filter_folder
from ._layer import bank, layer
from ._types import Device, DeviceError, FilterName, ImageError, JpegError, KernelName, PngError, PngInfo, Progress

__version__ = _core.version()


def devices():
    """The devices of this machine: a list of conv.Device; the CPU is the first."""
    return [Device._make(device) for device in _core.devices()]


def configure(*, threads=None, max_pixels=None, pool_bytes=None):
    """Settings of the process, for calls from now on; None leaves one as it is.

    threads:    CPU threads that share the work of a call; 0 (the default): one for each core. 1 is right
                for workers of a DataLoader
    max_pixels: images with more are refused; 0: 2^28
    pool_bytes: memory kept for reuse, for each call that runs at the same time; 0: no limit
    """
    _core.configure(threads, max_pixels, pool_bytes)


# Messages, help() and pickles show the names that users use, not the files that define them.
__all__ = sorted(name for name, value in globals().items() if getattr(value, "__module__", "").startswith("conv"))
for _name in set(__all__) - {"Array", "Filter", "Layer"}:
    globals()[_name].__module__ = __name__
del _name

atexit.register(_core.begin_shutdown)
# The threads of contexts do not exist in a child process.
os.register_at_fork(after_in_child=_core.abandon_contexts)
