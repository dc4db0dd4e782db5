# SPDX-License-Identifier: MIT
"""Other packages that encode and decode PNG files in memory, for tools/bench-python: encoders in the fastest setting
that compresses. OpenCV's default (one filter, runs only) takes half the time of its level 1; Pillow takes less time
at level 1 with runs only; torchvision and torchcodec only have levels."""

import importlib
import io
import sys
import zlib

import numpy as np


def optional(name):
    try:
        return importlib.import_module(name)
    except Exception as error:  # CUDA packages fail in many ways
        print(f"{name}: not measured ({type(error).__name__}: {str(error)[:80]})", file=sys.stderr)
        return None


class Coder:
    """`decode` takes what `as_file` makes of bytes; `encode` takes what `as_image` makes of an array H x W x C and
    returns something with a length in bytes. Either may be None."""

    def __init__(self, name, decode=None, encode=None, as_file=bytes, as_image=lambda image: image):
        self.name, self.decode, self.encode, self.as_file, self.as_image = name, decode, encode, as_file, as_image


def version(module):
    return getattr(module, "__version__", "")


def opencv():
    cv2 = optional("cv2")
    if not cv2:
        return None
    cv2.setNumThreads(1)
    return Coder(f"OpenCV {version(cv2)}", lambda file: cv2.imdecode(file, cv2.IMREAD_UNCHANGED),
                 lambda image: cv2.imencode(".png", image)[1], lambda file: np.frombuffer(file, np.uint8))


def pillow():
    module = optional("PIL.Image")
    if not module:
        return None

    def encode(image):
        file = io.BytesIO()
        image.save(file, "png", compress_level=1, compress_type=zlib.Z_RLE)
        return file.getbuffer()

    return Coder(f"Pillow {version(module)}", lambda file: np.asarray(module.open(io.BytesIO(file))), encode,
                 as_image=module.fromarray)


def imageio():
    module = optional("imageio.v3")
    if not module:
        return None
    return Coder(f"imageio {version(optional('imageio'))}", lambda file: module.imread(file, extension=".png"),
                 lambda image: module.imwrite("<bytes>", image, extension=".png", compress_level=1,
                                              compress_type=zlib.Z_RLE))


def pyspng():
    module = optional("pyspng")
    return module and Coder(f"pyspng {version(module)}".strip(), module.load)


def fpng():
    module = optional("fpng_py")
    return module and Coder("fpng_py", None, lambda image: module.fpng_encode_image_to_memory(
        image[1], image[0].shape[1], image[0].shape[0], image[0].shape[2]), as_image=lambda i: (i, i.tobytes()))


def torch_tensors():
    torch = optional("torch")
    return torch and dict(as_file=lambda file: torch.frombuffer(bytearray(file), dtype=torch.uint8),
                          as_image=lambda image: torch.from_numpy(image).permute(2, 0, 1).contiguous())


def torchvision():
    tensors, module = torch_tensors(), optional("torchvision.io")
    return tensors and module and Coder(f"torchvision {version(optional('torchvision'))}", module.decode_png,
                                        lambda image: module.encode_png(image, 1), **tensors)


def torchcodec():
    tensors, decoders, encoders = torch_tensors(), optional("torchcodec.decoders"), optional("torchcodec.encoders")
    if not tensors or not hasattr(decoders, "decode_png") or not hasattr(encoders, "PngEncoder"):
        return None
    return Coder(f"torchcodec {version(optional('torchcodec'))}", decoders.decode_png,
                 lambda image: encoders.PngEncoder(image).to_tensor(compression_level=1), **tensors)


def coders():
    """The coders that can be imported."""
    made = [make() for make in (opencv, pillow, imageio, pyspng, fpng, torchvision, torchcodec)]
    return [coder for coder in made if coder]
