# SPDX-License-Identifier: MIT
"""JPEG in memory: the Python package beside other packages, and which samples they decode differently."""
import functools
import importlib
import tempfile

import conv
import cv2
import numpy as np

from coders import Coder, tensor
from folders import write_jpeg
from inputs import images_in, in_parallel
from measure import Report, guarded, spread, take_turns, versions_of

QUALITY = 90


# --- coders of lists -------------------------------------------------------------------------------------
# Each decodes to one layout, or is false if it has not this one. `encode` has several calls by what they are called.

def on_gpu(image):
    import torch
    return torch.from_numpy(image).cuda()


def conv_coder(device):
    def make(_, layout):
        conv.configure(threads=1 if device == "cpu" else 0)
        return Coder("conv", functools.partial(conv.decode_jpeg, device=device, layout=layout),
                     {f", {sampling}": functools.partial(conv.encode_jpeg, quality=QUALITY, sampling=sampling) for sampling in ("4:2:0", "4:4:4")},
                     as_image=on_gpu if device == "cuda" else np.asarray)
    return make


def one_by_one(name, layout, decode, encode, as_file=bytes, as_image=np.asarray):
    """`decode` makes an array H x W x C."""
    return Coder(name, lambda files: [decode(file) if layout == "HWC" else np.ascontiguousarray(decode(file).transpose(2, 0, 1)) for file in files],
                 {"": lambda images: list(map(encode, images))}, as_file, as_image)


def opencv(_, layout):
    cv2.setNumThreads(1)
    return one_by_one(f"OpenCV {cv2.__version__}", layout, lambda file: cv2.imdecode(file, cv2.IMREAD_COLOR_RGB),
                      lambda image: cv2.imencode(".jpg", image, [cv2.IMWRITE_JPEG_QUALITY, QUALITY])[1], lambda file: np.frombuffer(file, np.uint8))


def simplejpeg(module, layout):
    return one_by_one("simplejpeg", layout, module.decode_jpeg, lambda image: module.encode_jpeg(image, QUALITY, colorsubsampling="420"))


def torchvision(module, layout):
    import torch
    torch.set_num_threads(1)
    return one_by_one("torchvision", layout, lambda file: module.decode_jpeg(file).permute(1, 2, 0).numpy(),
                      lambda image: module.encode_jpeg(image, QUALITY), tensor, lambda image: torch.from_numpy(image).permute(2, 0, 1))


def torchvision_cuda(module, layout):
    """It leaves encoded files on the GPU."""
    return layout == "CHW" and Coder("torchvision (nvJPEG)", functools.partial(module.decode_jpeg, device="cuda"),
                                     {"": lambda images: module.encode_jpeg(images, QUALITY)}, tensor,
                                     lambda image: on_gpu(image).permute(2, 0, 1).contiguous())


def nvimgcodec(module, layout):
    decoder, encoder = module.Decoder(), module.Encoder()
    planes = module.DecodeParams(sample_format=module.SampleFormat.P_RGB if layout == "CHW" else module.SampleFormat.I_RGB)
    quality = module.EncodeParams(quality_type=module.QualityType.QUALITY, quality_value=QUALITY)
    return Coder("nvImageCodec", lambda files: decoder.decode(files, params=planes), {"": lambda images: encoder.encode(images, "jpeg", params=quality)},
                 as_image=lambda image: module.as_image(on_gpu(image)))


PACKAGES = {"cpu": {"conv": conv_coder("cpu"), "cv2": opencv, "simplejpeg": simplejpeg, "torchvision.io": torchvision},
            "cuda": {"conv": conv_coder("cuda"), "torchvision.io": torchvision_cuda, "nvidia.nvimgcodec": nvimgcodec,
                     "torchcodec.decoders": lambda module, layout: layout == "CHW" and Coder(
                         "torchcodec (nvJPEG)", functools.partial(module.decode_jpeg, device="cuda"), {}, tensor)}}


# --- the case -------------------------------------------------------------------------------------------

def on_host(image, layout):
    image = image.cpu() if hasattr(image, "cpu") else image
    image = image.numpy() if hasattr(image, "numpy") else np.asarray(image)
    return image if layout == "HWC" else image.transpose(1, 2, 0)


def compare(coder, layout, files, images, damaged):
    """The samples that differ from libjpeg-turbo's, and how many damaged files are decoded."""
    differ, most, accepted = 0, 0, 0
    for decoded, image in zip(coder.decode(list(map(coder.as_file, files))), images):
        distance = cv2.absdiff(np.ascontiguousarray(on_host(decoded, layout)), image)
        differ, most = differ + np.count_nonzero(distance), max(most, int(distance.max()))
    for file in damaged:
        try:
            accepted += coder.decode([coder.as_file(file)])[0] is not None
        except Exception:  # each package has its own
            pass
    return {"differ": differ / sum(image.size for image in images), "most": most, "accepted": accepted, "damaged": len(damaged)}


def make_files(photos, count, megapixels):
    """JPEG files of photographs, or of mosaics of them, their images, and those of the files that are refused with zeros in
    their middle."""
    sources = [photos] * min(count, 4) if megapixels else images_in(photos)[:count]
    with tempfile.TemporaryDirectory() as box:
        in_parallel(write_jpeg, [(source, megapixels * 1000000, f"{box}/{i:03}.jpg", QUALITY, i + 1) for i, source in enumerate(sources)], 1)
        files = [open(path, "rb").read() for path in images_in(box, (".jpg",))]
    damaged = [file[:len(file) // 2] + bytes(64) + file[len(file) // 2 + 64:] for file in files]
    refused = [file for file, result in zip(damaged, conv.decode_jpeg(damaged, errors="return")) if isinstance(result, conv.JpegError)]
    return files, [cv2.imdecode(np.frombuffer(file, np.uint8), cv2.IMREAD_COLOR_RGB) for file in files], refused


def jpeg_coders(parser):
    """Compares JPEG coders in memory, with lists of photographs of quality 90 and chroma at half the size: on one core, and on
    a GPU, from and to host memory. Packages that are not installed or fail are listed as not measured. Decoded samples are
    compared with OpenCV's libjpeg-turbo. Damaged files are those that conv refuses on the CPU.

    PYTHONPATH=build/python tools/bench jpeg-coders photos"""
    parser.add_argument("photos")
    parser.add_argument("--device", action="append", choices=PACKAGES, help="default: cpu, and cuda where there is one")
    parser.option("cpu", "96,4x24", "COUNT or COUNTxMEGAPIXELS,...: images per call on one core")
    parser.option("cuda", "4000,1,16x24,1x24", "the same on a GPU")
    options = parser.read(rounds=7)
    report = Report(options, versions_of("opencv-python-headless", "simplejpeg", "torchvision", "torchcodec", "nvidia-nvimgcodec-cu13"))
    for device in options.device or ["cpu"] + ["cuda"] * bool(report.machine["gpus"]):
        for work in getattr(options, device).split(","):
            count, _, megapixels = work.partition("x")
            measure(options, report, device, int(count), int(megapixels or 0))
    report.finish()


def measure(options, report, device, count, megapixels):
    """Calls for `count` images, in turns."""
    files, images, damaged = make_files(options.photos, count, megapixels)
    distinct, samples = sum(image.size for image in images), sum(images[i % len(images)].size for i in range(count))
    wait = importlib.import_module("torch").cuda.synchronize if device == "cuda" else lambda: None
    ways, found, missing = {}, {}, []

    def add(name, call, prepare, items, what):
        ready = [prepare(items[i % len(items)]) for i in range(count)]
        ways[name], found[name] = functools.partial(guarded, lambda: (call(ready), wait())), what
    for package, make in PACKAGES[device].items():
        try:
            for layout in ("HWC", "CHW"):
                coder = make(importlib.import_module(package), layout)
                if not coder:
                    continue
                add(f"decode to {layout}, {coder.name}", coder.decode, lambda file: coder.as_file(bytes(bytearray(file))), files,
                    compare(coder, layout, files, images, damaged))
                for label, encode in coder.encode.items():
                    if f"encode{label}, {coder.name}" not in ways:
                        size = sum(len(file) if hasattr(file, "__len__") else file.size for file in encode(list(map(coder.as_image, images))))
                        add(f"encode{label}, {coder.name}", encode, coder.as_image, images, {"bytes_per_sample": size / distinct})
        except Exception as error:
            missing.append((package, f"{type(error).__name__}: {str(error)[:60]}"))
    times = take_turns(ways, options.rounds, skip=tuple(ways))
    missing += [(name, "failed") for name in ways if name not in times]
    report.table(f"{device}, {count} of {images[0].size / 3e6:.1f} megapixels ", "ms", "GB/s of samples", "MB per processor second", "bytes per sample",
                 "samples that differ", "by at most", "damaged files decoded")
    for name, each in sorted(times.items()):
        what = found[name]
        cells = [f"{what['bytes_per_sample']:.3f}"] if "encode" in name else \
            ["", f"{100 * what['differ']:.3f} %", what["most"], f"{what['accepted']} of {what['damaged']}"]
        report.row(name, spread([1e3 * seconds for seconds in each.wall], 2), f"{samples / each.median / 1e9:.2f}", f"{samples / max(each.cpu, 1e-9) / 1e6:.0f}",
                   *(cells + [""] * 3)[:4], name=name, device=device, count=count, samples=samples, times=each, **what)
    for name, why in missing:
        report.row(name, f"not measured: {why}", *[""] * 6, name=name)
