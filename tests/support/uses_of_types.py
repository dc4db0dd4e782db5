# SPDX-License-Identifier: MIT
# Read by checkers of types, never run: test_stubs.py.
from pathlib import Path

import conv
import numpy as np
import torch
from numpy.typing import NDArray

data, image = b"", np.zeros((4, 5), np.uint8)
one: NDArray[np.uint8] = conv.decode_png(data, layout="chw", dtype="uint8")
many: list[NDArray[np.uint8]] = conv.decode_image([data, Path("a.png")], channels="rgb")
batch: NDArray[np.uint8] = conv.decode_jpeg([data], batch=True, device="cpu")
x: torch.Tensor = conv.decode_png([data], framework="torch", device="cuda", batch=True, dtype=torch.uint8)
on_device: conv.Array = conv.decode_png(data, device="cuda:1")
for result in conv.decode_png([data], errors="return"):
    text: str = result.reason if isinstance(result, conv.ImageError) else str(result.shape)
file: bytes = conv.encode_png(image, level=1)
files: list[bytes] = conv.encode_jpeg([image, image], quality=80, sampling="4:2:0")
soft: NDArray[np.uint8] = conv.filter(image, ["blur", "sobel"], border=0.5, layout="HW", dtype=np.float32)
softer: torch.Tensor = conv.filter(x, "blur", device=0, layout="NCHW")
soft_list: list[torch.Tensor] = conv.filter([x], [[1.0, 2.0, 1.0]], divisor="sum")
y: torch.Tensor = conv.layer(x, x, padding="same", activation="relu", stride=(2, 1), dtype="bfloat16")
z: torch.Tensor = conv.Layer(np.zeros((2, 3, 3, 3)), padding=[(0, 1), 2])(x)
made: torch.Tensor = conv.Filter("blur", border="wrap", alpha="keep")(x)
done: int = conv.filter_folder("in", Path("out"), ["blur"], progress=lambda p: print(p.done), to="jpg").done
names: list[str] = [row.name for row in conv.filters() + conv.banks()] + [row.device for row in conv.kernels()]
weights: NDArray[np.float32] = conv.bank("lm")
shape: tuple[int, ...] = on_device.shape

a: int = conv.decode_png(data)  # wrong
b: int = conv.encode_png(image)  # wrong
c: bytes = conv.encode_png([image])  # wrong
d: int = conv.filter(image, "blur")  # wrong
e: NDArray[np.uint8] = conv.filter(torch.Tensor(), "blur")  # wrong
f: NDArray[np.uint8] = conv.decode_png(data, framework="torch")  # wrong
conv.filter(image, "blur", border="mirror")  # wrong
conv.filter(image, "blur", borders="wrap")  # wrong
conv.filter("photo.png", "blur")  # wrong
conv.layer(image, image, activation="gelu")  # wrong
conv.layer(image, image, padding="full")  # wrong
conv.decode_png(data, layout="WHC")  # wrong
conv.encode_jpeg(image, sampling="4:1:1")  # wrong
conv.filter_folder("in", "out", "blur", to="gif")  # wrong
conv.configure(threads="all")  # wrong
conv.Filter("blur", alpha="drop")  # wrong
conv.Layer(image, precision="fp8")  # wrong
