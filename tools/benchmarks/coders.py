# SPDX-License-Identifier: MIT
"""PNG coders in memory: conv's beside those of other libraries, and the Python package beside other packages."""
import ctypes
import functools
import glob
import io
import os
import resource
import statistics
import struct
import sys
import tempfile
import time
import zlib
from concurrent.futures import ThreadPoolExecutor

from measure import Clock, Report, ask, guarded, optional, spread, take_turns, versions_of

# glibc keeps freed memory, which large images would otherwise fault in again for each call.
KEEP = {"MALLOC_MMAP_THRESHOLD_": "4000000000", "MALLOC_TRIM_THRESHOLD_": "8000000000", "MALLOC_TOP_PAD_": "300000000"}


# --- other packages ------------------------------------------------------------------------------------

class Coder:
    """`decode` takes what `as_file` makes of bytes; `encode` takes what `as_image` makes of an array H x W x C and returns
    something with a length in bytes. Either may be None. Encoders are in the fastest setting that compresses: OpenCV's
    default (one filter, runs only) takes half the time of its level 1; Pillow takes less time at level 1 with runs only;
    torchvision and torchcodec only have levels. `depths` are those of colours."""

    def __init__(self, name, decode=None, encode=None, as_file=bytes, as_image=lambda image: image, depths=(8,)):
        self.name, self.decode, self.encode, self.as_file, self.as_image, self.depths = name, decode, encode, as_file, as_image, depths


def opencv(cv2):
    import numpy as np
    cv2.setNumThreads(1)
    return Coder("OpenCV", lambda file: cv2.imdecode(file, cv2.IMREAD_UNCHANGED), lambda image: cv2.imencode(".png", image)[1],
                 lambda file: np.frombuffer(file, np.uint8))


def in_memory(write, image, **options):
    """What a function writes of an image into a file."""
    file = io.BytesIO()
    write(image, file, **options)
    return file.getbuffer()


def pillow(module):
    import numpy as np
    fast = {"format": "png", "compress_level": 1, "compress_type": zlib.Z_RLE}
    return Coder("Pillow (zlib-ng)", lambda file: np.asarray(module.open(io.BytesIO(file))),
                 lambda image: in_memory(module.Image.save, image, **fast), as_image=module.fromarray)


def mtpng(module):  # an image on all cores
    return Coder("mtpng", None, lambda image: in_memory(module.encode_png, image, compression_level=module.CompressionLevel.Fast))


def image_rs(module):
    fast = module.EncodingOptions.Png(module.PngCompression.FAST, module.PngFilter.ADAPTIVE)
    return Coder("image-png", None, lambda image: module.encode_uint8_image(image, fast))


def image_png(module):
    """The decoder of Rust's image crate, in kornia-rs; of RGB and RGBA."""
    def decode(file):
        width, height, depth, kind = struct.unpack(">IIBB", file[16:26])
        return getattr(module, f"decode_image_png_u{depth}")(file, (height, width), {2: "rgb", 6: "rgba"}[kind])
    return Coder("image-png", decode, depths=(8, 16))


def wuffs(module):
    from pywuffs.aux import ImageDecoder, ImageDecoderConfig
    config = ImageDecoderConfig()
    config.pixel_format = module.PixelFormat.BGRA_NONPREMUL  # its fastest one
    return Coder("Wuffs", lambda file, decoder=ImageDecoder(config): decoder.decode(file).pixbuf)


def tensor(file):
    import torch
    return torch.frombuffer(bytearray(file), dtype=torch.uint8)


PACKAGES = {"cv2": opencv, "PIL.Image": pillow, "pyspng": lambda module: Coder("pyspng", module.load),
            "fpng": lambda module: Coder("fpng", None, module.from_ndarray), "kornia_rs.io": image_png, "image_rs": image_rs,
            "pywuffs": wuffs, "pymtpng": mtpng, "imagecodecs": lambda module: Coder("libspng", module.spng_decode, lambda image: module.spng_encode(image, 1)),
            "torchvision.io": lambda module: Coder("torchvision", module.decode_png, lambda image: module.encode_png(image, 1), tensor,
                                                   lambda image: optional("torch").from_numpy(image).permute(2, 0, 1).contiguous()),
            "torchcodec.decoders": lambda module: Coder("torchcodec", module.decode_png, None, tensor)}


ALONE = ("kornia_rs.io", "pywuffs", "image_rs", "fpng", "imagecodecs", "PIL.Image")  # of `codecs`
ALONE_FROM = ("kornia-rs", "pywuffs", "image-rs", "fpng", "imagecodecs", "pillow")


def coders(names=PACKAGES):
    """Those that can be imported."""
    modules = {name: optional(name) for name in names}
    return [PACKAGES[name](module) for name, module in modules.items() if module]


# --- one core --------------------------------------------------------------------------------------------

class Image:
    """A PNG file that other coders take: RGB or RGBA."""

    def __init__(self, path):
        with open(path, "rb") as file:
            self.data = file.read()
        width, height, depth, kind = struct.unpack(">IIBB", self.data[16:26])
        self.depth, self.fits, self.samples = depth, depth >= 8 and kind in (2, 6), width * height * (3 if kind == 2 else 4) * depth // 8


def code_all(images, code, cold):
    """CPU time of the coder alone. Before each image as much is written as the largest one has samples, so that no coder
    finds its own data in the caches."""
    size = wall = 0
    for image in images:
        ctypes.memset(cold, 0xA5, len(cold))
        start = time.thread_time()
        result = code(image)
        wall += time.thread_time() - start
        size += len(result)
    return Clock(size, wall)


def codecs(parser):
    """Compares conv's PNG coders on one core with image-png (kornia-rs, image-rs), Wuffs, fpng, libspng (imagecodecs) and Pillow
    (zlib-ng), on folders.

    `conv bench codec`, which checks every result and also measures libpng, and libdeflate and igzip with conv's
    reversal of filters, and the other coders take turns. The others are Python packages, so a call has some microseconds of Python; they
    skip images that are neither RGB nor RGBA, and folders with a depth that they lack. The table has MB/s of decoded samples in CPU time of one thread, and the size as a share of the samples."""
    parser.add_argument("folders", nargs="+", metavar="FOLDER", help="PNG files")
    parser.option("levels", False, "sizes and times of all levels of conv instead; no other coders")
    parser.option("level", 1)
    options = parser.read()
    if any(name not in os.environ for name in KEEP):
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **KEEP})
    report = Report(options, versions_of(*ALONE_FROM))
    for folder in options.folders:
        (measure_levels if options.levels else measure_codecs)(options, report, folder)
    report.finish()


def measure_codecs(options, report, folder):
    images = [image for image in map(Image, sorted(glob.glob(os.path.join(folder, "*.png")))) if image.fits]
    samples, cold = sum(image.samples for image in images), ctypes.create_string_buffer(max(image.samples for image in images))
    ways = {"conv": lambda: ask([options.conv, "bench", "codec", "-z", str(options.level), "--json", folder])}
    for coder in coders(ALONE):
        if any(image.depth not in coder.depths for image in images):
            continue
        if coder.decode:
            ways[f"decode {coder.name}"] = functools.partial(code_all, images, lambda image, coder=coder: memoryview(coder.decode(image.data)), cold)
        if coder.encode:
            import cv2
            import numpy as np
            pixels = {image: coder.as_image(cv2.imdecode(np.frombuffer(image.data, np.uint8), cv2.IMREAD_UNCHANGED)) for image in images}
            ways[f"encode {coder.name}"] = functools.partial(code_all, images, lambda image, coder=coder, pixels=pixels: coder.encode(pixels[image]), cold)
    times = take_turns(ways, options.rounds)
    rates, sizes, total = {}, {}, 0
    for lines in times.pop("conv").results:
        for line in lines:
            if "error" not in line and "direction" in line:
                name = f"{line['direction']} " + ("conv" if line["name"] == "fast" else line["name"]) + (f" -z{line['level']}" if "level" in line else "")
                rates.setdefault(name, []).append(line["mb_s"])
                sizes[name], total = line.get("ratio", 0), line["sample_bytes"]
    for name, each in times.items():
        rates[name] = [samples / seconds / 1e6 for seconds in each.wall]
        sizes[name] = each.results[-1] / samples
    report.table(f"{folder}, {total / 1e6:.1f} MB of samples, {100 * samples / total:.0f} % of them for all coders ", "MB/s", "of conv's time", "size")
    for name, values in sorted(rates.items(), key=lambda item: (item[0].split()[0], "conv" not in item[0])):
        first = next(each for key, each in rates.items() if key.startswith(name.split()[0] + " conv"))
        report.row(name, spread(values, 0), f"{statistics.median(first) / statistics.median(values):.2f}",
                   f"{sizes[name]:.4f}" if name.startswith("encode") else "", folder=folder, name=name, mb_s=values, size=sizes[name])


def run_level(options, level, folder, out):
    """User CPU time of the run, and file name -> (bytes, MB of samples)"""
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    lines = ask([options.conv, "identity", "-rqz", str(level), "--device", "cpu", "--jobs", "1", "--json", folder, out])
    seconds = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before
    return seconds, {f["input"]: (f["bytes_out"], f["width"] * f["height"] * f["channels"] * f["depth"] / 8e6) for f in lines if f["type"] == "file"}


def measure_levels(options, report, folder):
    """All levels of conv's own encoder: times beyond level 0's, and how many images are 1 % larger than at a lower level."""
    found, seconds = {}, {}
    with tempfile.TemporaryDirectory() as out:
        for _ in range(options.rounds):
            for level in range(13):
                taken, found[level] = run_level(options, level, folder, out)
                seconds[level] = min(taken, seconds.get(level, taken))
    samples = sum(mb for _, mb in found[0].values())
    report.table(f"{folder}, {len(found[0])} images, {samples:.1f} MB of samples ", "MB/s", "size", "larger than below", "the most", "image ")
    least = {name: size for name, (size, _) in found[0].items()}
    for level in range(1, 13):
        share = {name: size / least[name] - 1 for name, (size, _) in found[level].items()}
        worst = max(share, key=share.get)
        rate = samples / max(seconds[level] - seconds[0], 1e-3)
        size = sum(size for size, _ in found[level].values()) / samples / 1e6
        report.row(f"-z{level}", f"{rate:.1f}", f"{size:.4f}", sum(value > 0.01 for value in share.values()), f"{100 * share[worst]:.1f} %",
                   os.path.basename(worst), folder=folder, level=level, mb_s=rate, size=size)
        least = {name: min(size, least[name]) for name, (size, _) in found[level].items()}


# --- the Python package ------------------------------------------------------------------------------------

PARTS = ("decode", "encode", "filter", "calls")


class PythonBench:
    def __init__(self, options, report):
        import conv
        import numpy
        self.options, self.report, self.conv, self.np, self.torch = options, report, conv, numpy, optional("torch")
        paths = sorted(glob.glob(os.path.join(options.photos, "*.png"))) or sys.exit(f"{options.photos}: no PNG files")
        files = [open(path, "rb").read() for path in paths]
        self.files = [files[i % len(files)] for i in range(options.count)]
        self.samples = self.samples_of(self.files)

    def samples_of(self, files):
        return sum(i.width * i.height * i.channels * (2 if i.dtype == "uint16" else 1) for i in map(self.conv.probe_png, files))

    def add(self, name, seconds, samples=0, **more):
        """Seconds of each round."""
        median, notes = statistics.median(seconds), ", ".join(f"{key.replace('_', ' ')} {value:.4g}" for key, value in more.items())
        self.report.row(name, f"{median * 1e3:.4f}", f"{samples / median / 1e9:.2f}" if samples else "", notes, name=name, seconds=list(seconds), **more)

    def in_turns(self, ways, samples, sizes=None):
        """{name: call} that work through `samples` bytes; a competitor that fails is skipped."""
        times = take_turns({name: functools.partial(guarded, call) for name, call in ways.items()}, self.options.rounds, skip=("",))
        for name, each in times.items():
            more = {"bytes_of_samples": sizes[name] / samples} if sizes and name in sizes else {}
            self.add(name, each.wall, samples, processor_seconds=each.cpu, MB_per_processor_second=samples / max(each.cpu, 1e-9) / 1e6, **more)

    def chunks(self, items, size, call):
        return lambda: [call(items[first:first + size]) for first in range(0, len(items), size)][-1]

    def coding(self, device, decoding):
        """Competitors on the CPU are those above, each with --threads threads; on a GPU nvImageCodec."""
        conv, threads, files = self.conv, self.options.threads, self.files
        if device == "cpu":
            conv.configure(threads=threads)
        images = files if decoding else conv.decode_png(files, device=device)
        sizes, verb, ways = {}, "decode" if decoding else "encode", {}
        ours = {"": functools.partial(conv.decode_png, device=device)} if decoding else {"": conv.encode_png, ", views": functools.partial(conv.encode_png, views=True)}
        if decoding and device != "cpu" and self.torch:
            def decode_to_tensors(part):
                conv.decode_png(part, device=device, framework="torch")
                self.torch.cuda.synchronize()
            ours[", into torch tensors"] = decode_to_tensors
        for suffix, call in ours.items():
            for size in dict.fromkeys((len(files), 256)):
                ways[f"{verb}, conv{suffix}, {size} per call"] = self.chunks(images, size, call)
        if device == "cpu" and not decoding:
            ways["encode, conv level 0"] = lambda: conv.encode_png(images, level=0)
            sizes[f"encode, conv, {len(files)} per call"] = sum(map(len, conv.encode_png(images)))
        with ThreadPoolExecutor(threads) as pool:
            for coder in coders() if device == "cpu" else []:
                call, prepare = (coder.decode, coder.as_file) if decoding else (coder.encode, coder.as_image)
                if call:
                    ready, name = list(map(prepare, images)), f"{verb}, {coder.name}, {threads} threads"
                    ways[name] = lambda call=call, ready=ready: list(pool.map(call, ready))
                    if not decoding:
                        sizes[name] = sum(map(len, pool.map(call, ready)))
            nvimgcodec = optional("nvidia.nvimgcodec") if device != "cpu" and decoding else None
            if nvimgcodec:
                decoder = nvimgcodec.Decoder(max_num_cpu_threads=threads)
                ways[f"decode, nvImageCodec, 256 per call, {threads} threads"] = self.chunks(files, 256, decoder.decode)
            self.in_turns(ways, self.samples, sizes)
        conv.configure(threads=0)

    decode, encode = functools.partialmethod(coding, decoding=True), functools.partialmethod(coding, decoding=False)

    def queued(self, call, count=64):
        """Seconds per call of `count` calls that are queued one after the other, in each round."""
        torch, found = self.torch, []
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        for _ in range(self.options.rounds + 1):
            begin.record()
            for _ in range(count):
                call()
            end.record()
            torch.cuda.synchronize()
            found.append(begin.elapsed_time(end) / count / 1e3)
        return found[1:]

    def filter(self, device):
        """On the CPU 6000x4000 pixels, beside OpenCV and kornia-rs; else 8192x8192 samples, queued calls beside copies, in layouts with one and with several kernels."""
        conv, np, torch = self.conv, self.np, self.torch
        if device == "cpu":
            cv2, sigmas, pixels = optional("cv2"), (2.5, 5, 7, 10), np.random.default_rng(1).integers(0, 256, (4000, 6000, 3), dtype=np.uint8)
            for image in (pixels, pixels / np.float32(255)):
                out, matrix, edge = np.empty_like(image), np.float32([[-2, -1, 0], [-1, 1, 1], [0, 1, 2]]), {"borderType": getattr(cv2, "BORDER_REPLICATE", 1)}
                ways = {f"filter {name} {image.dtype}": lambda name=name: conv.filter(image, name, out=out) for name in ("emboss", *map("gaussian:{}".format, sigmas))}
                others = {f"cv2.GaussianBlur {s} {image.dtype}": lambda s=s: cv2.GaussianBlur(image, (0, 0), s, dst=out, **edge) for s in sigmas} | {
                    f"cv2.filter2D emboss {image.dtype}": lambda: cv2.filter2D(image, -1, matrix, dst=out, **edge)}
                if (kornia := optional("kornia_rs.imgproc")) and image is pixels:  # sides as OpenCV has them; a result is new memory
                    ways |= {f"kornia_rs gaussian_blur {s}": lambda k=round(6 * s + 1) | 1, s=s: kornia.gaussian_blur(pixels, (k, k), (s, s)) for s in sigmas}
                self.in_turns(ways | (others if cv2 else {}), 2 * image.nbytes)
        for shape, layout, dtype, names, alphas in () if device == "cpu" else (
                ((8192, 8192), "HW", "uint8", ("emboss", "gaussian5"), ("keep",)), ((8192, 8192, 4), "HWC", "uint8", ("emboss",), ("keep", "filter", "premultiply")),
                ((8192, 8192, 2), "HWC", "uint8", ("emboss",), ("keep", "filter", "premultiply")), ((4, 8192, 8192), "CHW", "uint8", ("emboss",), ("keep",)),
                ((8192, 8192, 3), "HWC", "uint16", ("emboss",), ("keep",)), ((3, 8192, 8192), "CHW", "uint16", ("emboss",), ("keep",))):
            image = torch.randint(0, 256, shape, dtype=torch.int32, device=device).to(getattr(torch, dtype))
            out, label = torch.empty_like(image), f"{'x'.join(map(str, shape))} {layout} {dtype}"
            self.add(f"copy {label}, torch", self.queued(lambda: out.copy_(image)), 2 * image.nbytes)
            for name in names:
                for alpha in alphas:
                    prepared = conv.Filter(name, alpha=alpha)
                    self.add(f"filter {name} {label}, alpha {alpha}, out=", self.queued(lambda: prepared(image, layout=layout, out=out)), 2 * image.nbytes)

    def calls(self, device):
        """What a call costs: images of 64x64."""
        conv, np, torch = self.conv, self.np, self.torch
        image = np.random.default_rng(1).integers(0, 256, (64, 64), dtype=np.uint8)
        file, out, prepared = conv.encode_png(image), np.empty_like(image), conv.Filter("emboss")
        calls = {"filter(image, 'emboss')": lambda: conv.filter(image, "emboss"), "filter(image, 'emboss', out=out)": lambda: conv.filter(image, "emboss", out=out),
                 "Filter(image)": lambda: prepared(image), "decode_png(file)": lambda: conv.decode_png(file), "encode_png(image)": lambda: conv.encode_png(image),
                 "probe_png(file)": lambda: conv.probe_png(file)}
        if cv2 := optional("cv2"):
            calls["cv2.filter2D"] = functools.partial(cv2.filter2D, image, -1, np.float32([[-2, -1, 0], [-1, 1, 1], [0, 1, 2]]))
        if device != "cpu" and torch:
            tensor, array = torch.from_numpy(image).to(device), conv.decode_png(file, device=device)
            result = torch.empty_like(tensor)
            calls.update({"torch.bitwise_not(torch.Tensor on CUDA)": lambda: torch.bitwise_not(tensor),
                          "filter(torch.Tensor on CUDA)": lambda: conv.filter(tensor, "emboss"),
                          "filter(torch.Tensor on CUDA, out=)": lambda: conv.filter(tensor, "emboss", out=result),
                          "filter(conv.Array on CUDA)": lambda: conv.filter(array, "emboss")})
        number = 2000
        times = take_turns({name: lambda call=call: [call() for _ in range(number)] and None for name, call in calls.items()}, 7)
        for name, each in times.items():
            self.add(f"64x64, {name}", [seconds / number for seconds in each.wall])


def python(parser):
    """Compares the Python package with other packages: decoding and encoding of photographs in memory, filtering 8192x8192
    samples in device memory, and the overhead of a call. PHOTOS are repeated up to --count.

    PYTHONPATH=build/python tools/bench python PHOTOS --count 4000 --json out.json"""
    parser.add_argument("photos", nargs="?", default=os.environ.get("CONV_PHOTOS"))
    parser.option("count", 4000)
    parser.option("threads", 16)
    parser.add_argument("--device", action="append", help="default: cpu, and cuda where there is one")
    parser.add_argument("--only", choices=PARTS, action="append")
    options = parser.read(rounds=7)
    if not options.photos:
        parser.error("name a folder of photographs, or set CONV_PHOTOS")
    report = Report(options, versions_of(*ALONE_FROM, "opencv-python-headless", "pyspng", "pymtpng", "torchvision", "torchcodec", "nvidia-nvimgcodec-cu13"))
    bench = PythonBench(options, report)
    for device in options.device or ["cpu"] + ["cuda"] * (len(bench.conv.devices()) > 1):
        report.table(f"{device}, {len(bench.files)} files, {bench.samples / 1e6:.0f} MB of samples ", "ms", "GB/s of samples", "and ")
        for part in options.only or PARTS:
            if device == "cpu" or bench.torch or part in ("decode", "encode", "calls"):
                getattr(bench, part)(device)
    report.finish()
