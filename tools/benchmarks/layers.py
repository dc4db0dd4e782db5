# SPDX-License-Identifier: MIT
"""Convolution layers beside other libraries as users call them: oneDNN and ONNX Runtime on a CPU, torch on a GPU."""
import os
import re
import time

from measure import Report, ask, optional, take_turns


def size_of(channels, maps, height, width, rows, columns):
    return f"{channels}→{maps}, {f'{height}²' if height == width else f'{height}×{width}'}, {rows}×{columns}"


# --- on a CPU ---------------------------------------------------------------------------------------------

# Channels, maps, side of the kernel, height, width, images.
SHAPES = [(1, 12, 5, 64, 64, 100), (1, 12, 5, 70, 70, 100), (1, 50, 5, 28, 28, 200), (12, 24, 5, 33, 33, 50),
          (1, 6, 5, 28, 28, 500), (6, 16, 5, 12, 12, 500), (3, 64, 3, 224, 224, 2), (3, 64, 7, 224, 224, 2),
          (64, 64, 3, 56, 56, 4), (256, 256, 3, 14, 14, 4), (1, 48, 49, 128, 128, 1)]


def time_fastest(call, runs=21):
    """In microseconds."""
    call()
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times) * 1e6


def time_torch(torch, x, w):
    x, w, times = torch.from_numpy(x), torch.from_numpy(w), []
    with torch.no_grad():
        for layout in (torch.contiguous_format, torch.channels_last):
            a, b = x.to(memory_format=layout), w.to(memory_format=layout)
            times.append(time_fastest(lambda: torch.nn.functional.conv2d(a, b)))
    return min(times)


def time_onnxruntime(onnx, onnxruntime, x, w):
    node = onnx.helper.make_node("Conv", ["x", "w"], ["y"])
    graph = onnx.helper.make_graph(
        [node], "layer", [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, x.shape)],
        [onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)], [onnx.numpy_helper.from_array(w, "w")])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=9)
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = settings.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), settings, ["CPUExecutionProvider"])
    y = session.run(None, {"x": x})[0]
    binding = session.io_binding()
    binding.bind_cpu_input("x", x)
    binding.bind_output("y", "cpu", 0, y.dtype, y.shape, y.ctypes.data)  # memory that exists, as conv's
    return time_fastest(lambda: session.run_with_iobinding(binding))


def time_conv(options, channels, maps, side, height, width, images):
    """Of the fastest variant: microseconds per image alone and with all threads, their number; the limit's TFLOP/s."""
    table = ask([options.conv, "bench", "layers", "--device", "cpu", "--json", "--shape", f"{images}x{channels}x{height}x{width}", "--maps", str(maps),
                 "--kernel", str(side), *(["--variant", options.variant] if options.variant else [])])[0]
    rows = [row for row in table["rows"] if row["kind"] == "variant" and "skipped" not in row]
    most = max(row["threads"] for row in rows)

    def fastest(threads):
        return min((row["ms_min"] * 1e3 / row["images"], row["name"]) for row in rows if row["threads"] == threads)
    return *fastest(1), fastest(most)[0], most, table["flops"] / images, table["cpu_fma_tflop_per_s"]


def layers_cpu(parser):
    """Layers on one CPU core, side by side with oneDNN (in torch) and ONNX Runtime on one thread, in microseconds per image:
    the fastest of about 20 runs in each round and of all rounds, since other load only makes a run slower. torch runs in both
    memory layouts, of which the better counts. conv's input and output are not in a cache, those of the libraries may be.
    The limit is the time of the multiply-adds alone, in registers."""
    parser.option("variant", help="this variant of conv (default: the fastest)")
    parser.option("shapes", len(SHAPES), "the first N only")
    os.environ["OMP_NUM_THREADS"] = "1"
    options = parser.read(rounds=3)
    numpy, torch, onnx, runtime = map(optional, ("numpy", "torch", "onnx", "onnxruntime"))
    if torch:
        torch.set_num_threads(1)
    report = Report(options, "microseconds per image, the fastest of all rounds")
    report.table("layer ", "limit", "conv", "variant ", "oneDNN (torch)", "ONNX Runtime", "conv is faster by", "all threads", "scaling")
    rng = numpy.random.default_rng(1)
    for shape in SHAPES[:options.shapes]:
        channels, maps, side, height, width, images = shape
        x = rng.standard_normal((images, channels, height, width), dtype=numpy.float32)
        w = rng.standard_normal((maps, channels, side, side), dtype=numpy.float32)
        ways = {"conv": lambda: time_conv(options, *shape)}
        if torch:
            ways["torch"] = lambda: time_torch(torch, x, w) / images
        if onnx and runtime:
            ways["onnx"] = lambda: time_onnxruntime(onnx, runtime, x, w) / images
        times = take_turns(ways, options.rounds, 0)
        alone, name = min(run[:2] for run in times["conv"].results)
        together, threads = min(run[2] for run in times["conv"].results), times["conv"].results[0][3]
        limit = times["conv"].results[0][4] / max(run[5] for run in times["conv"].results) / 1e6
        peers = [min(times[key].results) if key in times else float("nan") for key in ("torch", "onnx")]
        report.row(size_of(channels, maps, height, width, side, side), f"{limit:.1f}", f"{alone:.1f}", f"`{name}`", *(f"{peer:.1f}" for peer in peers),
                   f"{min(peers) / alone:.2f}×", f"{together:.1f}", f"{alone / together / threads:.2f}", shape=shape, conv=alone, torch=peers[0], onnx=peers[1])
    report.finish()


# --- on a GPU ---------------------------------------------------------------------------------------------

# Row: element type, memory format, cuDNN's settings.
SETTINGS = {"float32": ("float32", "contiguous_format", {"benchmark": True}), "deterministic": ("float32", "contiguous_format", {"deterministic": True}),
            "TF32": ("float32", "channels_last", {"benchmark": True, "allow_tf32": True}), "fp16": ("float16", "channels_last", {"benchmark": True}),
            "bf16": ("bfloat16", "channels_last", {"benchmark": True})}


def time_torch_cuda(torch, setting, batch, channels, height, width, maps, rows, columns, more):
    """Milliseconds, the median, of a graph: without torch's own work on the host. Triton's timer empties the cache before each."""
    from triton.testing import do_bench
    kind, layout, switches = SETTINGS[setting]
    x, w = (torch.randn(shape, device="cuda").to(getattr(torch, kind), memory_format=getattr(torch, layout))
            for shape in ((batch, channels, height, width), (maps, channels // more.get("groups", 1), rows, columns)))
    graph = torch.cuda.CUDAGraph()
    with torch.no_grad(), torch.backends.cudnn.flags(**{"enabled": True, "allow_tf32": False, **switches}):
        torch.nn.functional.conv2d(x, w, **more)  # chooses the algorithm
        with torch.cuda.graph(graph):
            torch.nn.functional.conv2d(x, w, **more)
    return do_bench(graph.replay, warmup=5, rep=15, return_mode="median")


def layers_gpu(parser):
    """Layers of networks in conv's exact order (`conv bench layers --network`, which also times cuDNN itself) beside torch as users
    call it: float32, the same with cuDNN's deterministic algorithms, and TF32, fp16 and bf16 in NHWC. Milliseconds, cold caches. conv's
    own fast, tf32, fp16 and bf16 are cuDNN's plans, so they have no columns."""
    parser.option("networks", "resnet50,vgg16,mobilenet_v1")
    parser.option("batch", 64)
    options = parser.read(rounds=1)
    import torch
    report = Report(options, f"torch {torch.__version__}, cuDNN {torch.backends.cudnn.version()}, {options.batch} images")
    report.table("layer ", "conv, exact", *(f"torch, {name}" for name in SETTINGS))
    for network in options.networks.split(","):
        for line in ask([options.conv, "bench", "layers", "--device", "cuda", "--network", network, "--batch-size", str(options.batch), "--json"])[:-1]:
            sizes = list(map(int, re.match(r"(\d+)->(\d+), (\d+)x(\d+), (\d+)x(\d+)", line["layer"]).groups()))
            more = {key: tuple(map(int, value.split("x"))) if "x" in value else int(value)
                    for key, value in re.findall(r"(stride|padding|dilation|groups) ([0-9x]+)", line["layer"])}
            times = {name: time_torch_cuda(torch, name, options.batch, sizes[0], *sizes[2:4], sizes[1], *sizes[4:], more) for name in SETTINGS}
            report.row(f"{line['layer']} ({line['networks']})", f"{line['ms']:.4f}", *(f"{ms:.4f}" for ms in times.values()), layer=line["layer"],
                       conv=line["ms"], **times)
    report.finish()
