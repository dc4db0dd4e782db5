# SPDX-License-Identifier: MIT
"""Convolution layers beside other libraries as users call them: oneDNN and ONNX Runtime on a CPU, torch on a GPU."""
import ctypes
import os
import re
import time

from measure import Report, ask, optional, take_turns


def parse(line):
    """Channels, height, width, maps, rows and columns of the kernel of a layer of `conv bench layers --network`, and torch's options."""
    channels, maps, height, width, rows, columns = map(int, re.match(r"(\d+)->(\d+), (\d+)x(\d+), (\d+)x(\d+)", line["layer"]).groups())
    more = {key: tuple(map(int, value.split("x"))) if "x" in value else int(value)
            for key, value in re.findall(r"(stride|padding|dilation|groups) ([0-9x]+)", line["layer"])}
    return channels, height, width, maps, rows, columns, more


# --- on a CPU ---------------------------------------------------------------------------------------------

def time_fastest(call, runs=21):
    """In microseconds."""
    call()
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times) * 1e6


def time_torch(torch, x, w, more):
    x, w, times = torch.from_numpy(x), torch.from_numpy(w), []
    with torch.no_grad():
        for layout in (torch.contiguous_format, torch.channels_last):
            a, b = x.to(memory_format=layout), w.to(memory_format=layout)
            times.append(time_fastest(lambda: torch.nn.functional.conv2d(a, b, **more)))
    return times


def time_onnxruntime(onnx, onnxruntime, x, w, more):
    padding, stride, dilation = ((value, value) if isinstance(value, int) else value
                                 for value in (more.get(key, one) for key, one in (("padding", 0), ("stride", 1), ("dilation", 1))))
    node = onnx.helper.make_node("Conv", ["x", "w"], ["y"], pads=2 * padding, strides=stride, dilations=dilation, group=more.get("groups", 1))
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


def layers_cpu(parser):
    """Layers of networks on one CPU core, beside oneDNN (in torch) and ONNX Runtime on one thread, in microseconds: the fastest of
    about 20 calls from Python in each round and of all rounds, since other load only makes a run slower. The limit, of `conv bench
    layers`, is the time of the multiply-adds alone, in registers. conv's package is that of PYTHONPATH (build/python)."""
    parser.option("networks", "resnet18,mobilenetv2")
    parser.option("batch", 1)
    os.environ["OMP_NUM_THREADS"] = "1"
    options = parser.read(rounds=3)
    for parameter, value in ((-4, 0), (-1, (1 << 31) - 1)):  # M_MMAP_MAX, M_TRIM_THRESHOLD: the memory of torch's results is used again
        ctypes.CDLL(None).mallopt(parameter, value)
    numpy, conv, torch, onnx, runtime = map(optional, ("numpy", "conv", "torch", "onnx", "onnxruntime"))
    conv.configure(threads=1)
    if torch:
        torch.set_num_threads(1)
    report = Report(options, f"microseconds, {options.batch} images, the fastest of all rounds")
    report.table("layer ", "limit", "conv", "oneDNN (torch)", "channels_last", "ONNX Runtime", "conv is faster by")
    rng = numpy.random.default_rng(1)
    for network in options.networks.split(","):
        command = [options.conv, "bench", "layers", "--device", "cpu", "--jobs", "1", "--network", network, "--batch-size", str(options.batch), "--json"]
        lines, layers, calls = ask(command)[:-1], [], []
        for line in lines:
            channels, height, width, maps, rows, columns, more = parse(line)
            layers.append((rng.standard_normal((options.batch, channels, height, width), dtype=numpy.float32),
                           rng.standard_normal((maps, channels // more.get("groups", 1), rows, columns), dtype=numpy.float32), more))
            layer = conv.Layer(layers[-1][1], **more)
            calls.append(lambda layer=layer, x=layers[-1][0], y=layer(layers[-1][0]): layer(x, out=y))
        ways = {"conv": lambda: list(map(time_fastest, calls))}
        if torch:
            ways["torch"] = lambda: [time_torch(torch, *layer) for layer in layers]
        if onnx and runtime:
            ways["onnx"] = lambda: [time_onnxruntime(onnx, runtime, *layer) for layer in layers]
        times = take_turns(ways, options.rounds, 0)
        for at, line in enumerate(lines):
            limit, ours = 1e3 * line["ms"] * line["share_of_fma"], min(run[at] for run in times["conv"].results)
            peers = [min(column) for column in zip(*(run[at] for run in times["torch"].results))] if torch else [float("nan")] * 2
            peers.append(min(run[at] for run in times["onnx"].results) if "onnx" in times else float("nan"))
            report.row(f"{line['layer']} ({line['networks']})", *(f"{us:.0f}" for us in (limit, ours, *peers)),
                       f"{min(peers[0], peers[2]) / ours:.2f}×", layer=line["layer"], conv=ours, limit=limit, peers=peers)
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
            channels, height, width, maps, rows, columns, more = parse(line)
            times = {name: time_torch_cuda(torch, name, options.batch, channels, height, width, maps, rows, columns, more) for name in SETTINGS}
            report.row(f"{line['layer']} ({line['networks']})", f"{line['ms']:.4f}", *(f"{ms:.4f}" for ms in times.values()), layer=line["layer"],
                       conv=line["ms"], **times)
    report.finish()
