# SPDX-License-Identifier: MIT
"""Filters and inflate of other GPU libraries, on the same bytes in device memory as conv's."""
import ctypes
import functools
import glob
import os
import site
import statistics
import struct
import sys
import tempfile
import zlib

from inputs import images_in, place_filter, read_matrix
from measure import Report, ask, spread, take_turns, versions_of

CALLS = 10  # that are queued and timed together


def timed(torch, call):
    """Seconds per call of calls that are queued one after the other, on whichever stream a library uses."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(CALLS):
        call()
    torch.cuda.synchronize()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / CALLS / 1e3


def find_library(package, name):
    """A shared library of a wheel, else of the toolkit."""
    for folder in [*site.getsitepackages(), *sys.path, "/usr/local/cuda/lib64"]:
        for path in sorted(glob.glob(f"{folder}/nvidia/**/{name}.so.*", recursive=True) + glob.glob(f"{folder}/{name}.so.*")):
            return path
    raise ModuleNotFoundError(f"no {name}: install {package}")


# --- filters ---------------------------------------------------------------------------------------------
# Each makes of a task what filters once, and where the result H x W x 3 is; None: not this kernel.

class Task:
    """An image, interleaved and as planes, and a kernel; `exact` if it has integers only."""

    def __init__(self, torch, size, matrix):
        height, width = self.size = size
        self.torch, self.rows, self.divisor = torch, torch.tensor(matrix["rows"], dtype=torch.float64), matrix["scale"]
        self.image = torch.randint(0, 256, (height, width, 3), dtype=torch.uint8, device="cuda", generator=torch.Generator("cuda").manual_seed(1))
        self.planes, self.out = self.image.permute(2, 0, 1).contiguous(), torch.empty_like(self.image)
        self.exact = bool((self.rows == self.rows.round()).all())
        self.passes = [self.rows.sum(axis) for axis in (1, 0)]
        self.separable = self.exact and bool((torch.outer(*self.passes) == self.rows * self.rows.sum()).all())

    def differences(self, result, rows=96):
        """Of the first rows from float64 sums that are rounded half to even: the share of samples, and the largest."""
        torch, side = self.torch, len(self.rows) // 2
        planes = torch.nn.functional.pad(self.planes[None, :, :rows + side].double(), (side, side, side, 0), "replicate")
        sums = sum(self.rows[j, i].item() * planes[:, :, j:j + rows, i:i + self.size[1]] for j in range(2 * side + 1) for i in range(2 * side + 1))
        expected = (sums / self.divisor).round().clamp(0, 255)[0].permute(1, 2, 0)
        apart = (expected - result[:rows].double()).abs()
        return (apart > 0).double().mean().item(), int(apart.max())


class NppContext(ctypes.Structure):
    _fields_ = [("stream", ctypes.c_void_p), *((name, ctypes.c_int) for name in ("device", "processors", "threads", "block_threads")),
                ("shared", ctypes.c_size_t), *((name, ctypes.c_int) for name in ("major", "minor", "flags", "reserved"))]


class Pair(ctypes.Structure):
    _fields_ = [("x", ctypes.c_int), ("y", ctypes.c_int)]


def npp(in_passes):
    def make(task):
        torch, path = task.torch, find_library("nvidia-npp", "libnppif")
        if in_passes and not task.separable:
            return None
        ctypes.CDLL(glob.glob(os.path.join(os.path.dirname(path), "libnppc.so.*"))[0], ctypes.RTLD_GLOBAL)
        library = ctypes.CDLL(path)
        properties = torch.cuda.get_device_properties(0)
        context = NppContext(torch.cuda.current_stream().cuda_stream, 0, properties.multi_processor_count, 2048, 1024, 49152, properties.major, properties.minor)
        (height, width), side = task.size, len(task.rows)
        size, origin, kernel, anchor, step, replicate = Pair(width, height), Pair(0, 0), Pair(side, side), Pair(side // 2, side // 2), width * 3, 2

        def on_device(numbers):  # NPP turns a kernel by 180 degrees
            return numbers.flip(list(range(numbers.dim()))).to("cuda", torch.int32 if task.exact else torch.float32)

        def call(name, source, target, *arguments):
            status = getattr(library, name)(ctypes.c_void_p(source.data_ptr()), step, size, origin, ctypes.c_void_p(target.data_ptr()), step, size, *arguments,
                                            replicate, context)
            if status < 0:
                raise RuntimeError(f"{name}: {status}")
        if not in_passes:
            numbers = on_device(task.rows if task.exact else task.rows / task.divisor)
            words = (ctypes.c_void_p(numbers.data_ptr()), kernel, anchor, *([int(task.divisor)] if task.exact else []))
            name = "nppiFilterBorder_8u_C3R_Ctx" if task.exact else "nppiFilterBorder32f_8u_C3R_Ctx"
            return lambda numbers=numbers: call(name, task.image, task.out, *words), task.out
        between, total = torch.empty_like(task.image), int(task.rows.sum())
        column, row = map(on_device, task.passes)  # each is a pass times the sum of the other

        def in_two():
            call("nppiFilterRowBorder_8u_C3R_Ctx", task.image, between, ctypes.c_void_p(row.data_ptr()), side, side // 2, total)
            call("nppiFilterColumnBorder_8u_C3R_Ctx", between, task.out, ctypes.c_void_p(column.data_ptr()), side, side // 2, total)
        return in_two, task.out
    return make


def cv_cuda(task):
    """Its convolution takes batches of images of any size and one kernel for each."""
    import cvcuda
    torch, side = task.torch, len(task.rows)
    weights = (task.rows / task.divisor).to("cuda", torch.float32).contiguous()
    sources, targets, kernels = (cvcuda.ImageBatchVarShape(1) for _ in range(3))
    sources.pushback(cvcuda.as_image(task.image, cvcuda.Format.RGB8))
    targets.pushback(cvcuda.as_image(task.out, cvcuda.Format.RGB8))
    kernels.pushback(cvcuda.as_image(weights, cvcuda.Format.F32))
    anchors = cvcuda.as_tensor(torch.full((1, 2), side // 2, dtype=torch.int32, device="cuda"), "NC")
    stream = cvcuda.as_stream(torch.cuda.current_stream().cuda_stream)
    return lambda: cvcuda.conv2d_into(targets, sources, kernels, anchors, cvcuda.Border.REPLICATE, stream=stream), task.out


def torch_layer(task):
    """A depthwise layer in float16; torch has no uint8 convolution, so both conversions are part of the job."""
    torch, side = task.torch, len(task.rows)
    weight = (task.rows / task.divisor).to("cuda", torch.float16).expand(3, 1, side, side).contiguous()
    pad, layer, result = torch.nn.ReplicationPad2d(side // 2), torch.nn.functional.conv2d, {}

    def filter_once():
        result["planes"] = layer(pad(task.planes[None].half()), weight, groups=3).round_().clamp_(0, 255).to(torch.uint8)
    filter_once()
    return filter_once, result["planes"][0].permute(1, 2, 0)


def cucim_ndimage(task):
    """What its filters call: on planes a column and a row, which have its fast kernels, or one kernel."""
    import cupy
    from cucim.skimage._vendored import ndimage
    planes, weights = cupy.from_dlpack(task.planes), cupy.asarray((task.rows / task.divisor).numpy().astype("float32"))
    column, row = (cupy.asarray((line / line.sum()).numpy().astype("float32")) for line in task.passes)
    between, out, edge = cupy.empty(planes.shape[1:], "float32"), cupy.empty_like(planes), {"mode": "nearest"}
    def filter_once():
        for source, target in zip(planes, out):
            if task.separable:
                ndimage.correlate1d(source, column, 0, between, **edge)
                ndimage.correlate1d(between, row, 1, target, **edge)
            else:
                ndimage.correlate(source, weights, output=target, **edge)
    return filter_once, task.torch.from_dlpack(out).permute(1, 2, 0)


def kornia(task):
    """Boxes, the only filter of its that takes any size and has integers; a result is new memory in each call."""
    from kornia_rs import image, imgproc
    source, size = image.Image.from_dlpack(task.image), 2 * (len(task.rows),)
    return (task.rows == 1).all() and (lambda: imgproc.box_blur(source, size), task.torch.from_dlpack(imgproc.box_blur(source, size)))


LIBRARIES = {"NPP FilterBorder": npp(False), "NPP row, then column": npp(True), "CV-CUDA": cv_cuda, "torch, float16": torch_layer,
             "cuCIM": cucim_ndimage, "kornia-rs": kornia}


def gpu_filters(parser):
    """Compares filters of other GPU libraries with conv's on one interleaved image of bytes in device memory: NPP, CV-CUDA, torch
    (a depthwise layer, with conversions from and to bytes), cuCIM, and of boxes kornia-rs. Images do not fit the cache.

    conv's figures are those of its fastest kernel in `conv bench kernels` on planes, which compares each sample. Each figure is
    divided by a copy that its own program measures. A column says how many samples differ from sums in float64."""
    parser.option("size", "8192x8192")
    parser.option("filters", "tent3,tent5,dense5,real5,tent9,tent15,dense15,tent31,box3,box5,box15", "kinds and sides of inputs.make_matrix")
    options = parser.read(rounds=5)
    import torch
    size = tuple(map(int, reversed(options.size.split("x"))))
    report = Report(options, versions_of("nvidia-npp", "cvcuda-cu13", "torch", "cupy-cuda13x", "cucim-cu13", "kornia-rs"))
    report.table("filter ", "library ", "microseconds", "GB/s", "of a copy", "samples that differ", "by at most", "of conv's time")
    with tempfile.TemporaryDirectory() as folder:
        for name in options.filters.split(","):
            path = place_filter(name, folder)
            task, ways, results = Task(torch, size, read_matrix(path)), {}, {}
            moved = 2 * task.image.nbytes
            ways["copy"] = lambda: timed(torch, lambda: task.out.copy_(task.image))
            ours = ask([options.conv, "bench", "kernels", "--device", "cuda", "--image-size", options.size, "--filter", path, "--json"])[0]["rows"]
            best = min((row for row in ours if row["where"] == "cuda" and row["kind"] == "variant" and "skipped" not in row), key=lambda row: row["ms"])
            for library, make in LIBRARIES.items():
                try:
                    made = make(task)
                    if made:
                        made[0]()
                        results[library] = task.differences(made[1])
                        ways[library] = functools.partial(timed, torch, made[0])
                except Exception as error:  # each library has its own
                    print(f"{name}, {library}: not measured: {type(error).__name__}: {str(error)[:100]}", file=sys.stderr)
            times = take_turns(ways, options.rounds)
            copy = statistics.median(times["copy"].results)
            report.row(name, f"conv `{best['name']}`", f"{1e3 * best['ms']:.0f}", f"{moved / best['ms'] / 1e6:.0f}", f"{best['share_of_copy']:.2f}", 0, 0, 1,
                       filter=name, conv=best)
            for library in results:
                if library in times:
                    seconds = statistics.median(times[library].results)
                    report.row(name, library, spread([1e6 * each for each in times[library].results], 0), f"{moved / seconds / 1e9:.0f}", f"{copy / seconds:.2f}",
                               f"{100 * results[library][0]:.2f} %", results[library][1], f"{1e3 * seconds / best['ms']:.2f}",
                               filter=name, library=library, seconds=times[library].results)
    report.finish()


# --- inflate ---------------------------------------------------------------------------------------------

class GzipOptions(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int) for name in ("backend", "algorithm", "sort")] + [("reserved", ctypes.c_char * 52)]


def gzip_of(file):
    """The samples of a PNG file as a gzip stream, and their number of bytes."""
    at, stream = 8, b""
    while at < len(file):
        size, kind = struct.unpack(">I4s", file[at:at + 8])
        stream, at = stream + (file[at + 8:at + 8 + size] if kind == b"IDAT" else b""), at + 12 + size
    raw = zlib.decompress(stream)
    return b"\x1f\x8b\x08" + bytes(6) + b"\xff" + stream[2:-4] + struct.pack("<II", zlib.crc32(raw), len(raw)), raw


def nvcomp_way(torch, streams, raws, algorithm):
    """Inflates all streams in one batch; its results have been compared."""
    library, count = ctypes.CDLL(find_library("nvidia-libnvcomp-cu13", "libnvcomp")), len(streams)

    def places(sizes):
        ends = torch.tensor([-(-size // 256) * 256 for size in sizes]).cumsum(0)
        memory = torch.zeros(int(ends[-1]), dtype=torch.uint8, device="cuda")
        return memory, torch.cat((torch.zeros(1, dtype=torch.int64), ends[:-1]))

    def on_device(numbers):
        return torch.as_tensor(numbers, dtype=torch.int64, device="cuda")
    source, starts = places(list(map(len, streams)))
    for stream, start in zip(streams, starts):
        source[start:start + len(stream)] = torch.frombuffer(bytearray(stream), dtype=torch.uint8)
    target, ends = places(list(map(len, raws)))
    arrays = [on_device(values) for values in (starts + source.data_ptr(), list(map(len, streams)), list(map(len, raws)), ends + target.data_ptr())]
    written, statuses, options = on_device([0] * count), torch.zeros(count, dtype=torch.int32, device="cuda"), GzipOptions(2, algorithm, 0, b"")
    size, queue = ctypes.c_size_t(), ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
    if library.nvcompBatchedGzipDecompressGetTempSize(ctypes.c_size_t(count), ctypes.c_size_t(max(map(len, raws))), options, ctypes.byref(size),
                                                      ctypes.c_size_t(sum(map(len, raws))), queue):
        raise RuntimeError("no memory size")
    scratch = torch.empty(max(size.value, 1), dtype=torch.uint8, device="cuda")
    starts_at, sizes_at, room_at, ends_at, written_at, statuses_at, scratch_at = (
        ctypes.c_void_p(tensor.data_ptr()) for tensor in (*arrays, written, statuses, scratch))

    def inflate(kept=(arrays, source)):
        if library.nvcompBatchedGzipDecompressAsync(starts_at, sizes_at, room_at, written_at, ctypes.c_size_t(count), scratch_at, size, ends_at, options,
                                                    statuses_at, queue):
            raise RuntimeError("it refuses the call")
    inflate()
    torch.cuda.synchronize()
    for i in range(min(count, 24)):
        if statuses[i] or target[ends[i]:ends[i] + len(raws[i])].cpu().numpy().tobytes() != raws[i]:
            raise RuntimeError(f"wrong bytes, status {int(statuses[i])}")
    return inflate


def gpu_inflate(parser):
    """Compares nvCOMP's inflate (gzip, both algorithms), which leaves filtered rows and checks no filter, with conv's whole
    decoding of the same PNG files (`conv bench codec --device cuda`): everything in device memory, GB/s of samples."""
    parser.add_argument("photos")
    parser.option("counts", "1,24,1000,4000", "files in flight")
    options = parser.read(rounds=5)
    import torch
    report = Report(options, versions_of("nvidia-libnvcomp-cu13"))
    report.table("files", "library ", "ms", "GB/s")
    paths = images_in(options.photos)
    files = [gzip_of(open(path, "rb").read()) for path in paths]
    for count in map(int, options.counts.split(",")):
        batch = [files[i % len(files)] for i in range(count)]
        samples = sum(len(raw) for _, raw in batch)
        for algorithm, name in enumerate(("naive", "lookahead")[:1 + (count <= 24)]):  # the second one takes streams one by one
            try:
                inflate = nvcomp_way(torch, *zip(*batch), algorithm)
                seconds = [timed(torch, inflate) for _ in range(options.rounds)]
                report.row(count, f"nvCOMP, {name}: inflate alone", spread([1e3 * each for each in seconds]), f"{samples / statistics.median(seconds) / 1e9:.1f}",
                           count=count, name=name, seconds=seconds)
            except Exception as error:
                report.row(count, f"nvCOMP, {name}: not measured: {str(error)[:80]}", "", "", count=count, name=name)
        for line in ask([options.conv, "bench", "codec", "--device", "cuda", "--images", str(count), "--json", options.photos]):
            if line["direction"] == "decode" and line["threads"] == 0:
                report.row(count, {"all": "conv: decode"}.get(line["kernel"], f"conv: {line['kernel']} alone"), f"{line['ms']:.3f}", f"{line['gb_s']:.1f}", conv=line)
    report.finish()
