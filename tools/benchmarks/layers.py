# SPDX-License-Identifier: MIT
"""Convolution layers: the tables of kernels/layer/README.md, cuDNN, oneDNN, ONNX Runtime and torch."""
import os
import sys
import time

from kernels import add_page_options, saved
from measure import Report, ask, fill, optional, take_turns


def size_of(channels, maps, height, width, rows, columns):
    return f"{channels}→{maps}, {f'{height}²' if height == width else f'{height}×{width}'}, {rows}×{columns}"


def title(table):
    return size_of(*(table[key] for key in ("channels", "maps", "height", "width", "kernel_height", "kernel_width")))


def rows_of(table):
    return {row["name"]: row for row in table["rows"] if row["where"] == "cuda" and "skipped" not in row}


def number(ms):
    return f"{ms:.3f}" if ms < 10 else f"{ms:.1f}"


def cell(row):
    return "–" if row is None else number(row["ms"]) + (f", {row['step']:.2f}×" if row["step"] else "")


def markdown(head, lines):
    return ["| " + " | ".join(head) + " |", "|---|" + "--:|" * (len(head) - 1), *("| " + " | ".join(line) + " |" for line in lines), ""]


def ladder(tables, kind):
    columns = [rows_of(table) for table in tables]
    for name in dict.fromkeys(row["name"] for table in tables for row in table["rows"] if row["where"] == "cuda" and row["kind"] == kind):
        if any(name in column for column in columns):
            yield [f"`{name}`" if name.startswith("cuda") else name, *(cell(column.get(name)) for column in columns)]


def best(rows, precisions):
    """(ms, name) of the fastest of our variants of these precisions."""
    return min(((row["ms"], name) for name, row in rows.items() if row["kind"] == "variant" and row["precision"] in precisions),
               default=(float("nan"), "none"))


def layers(parser):
    """Measures the variants of layers on a GPU and writes the tables into kernels/layer/README.md: of the largest batch of
    each layer, and of all batches for the best variants."""
    add_page_options(parser)
    options = parser.read()
    tables = saved(options, lambda: ask([options.conv, "bench", "layers", "--device", "cuda", "--json"]))
    if not tables:
        return
    largest = {}
    for table in tables:
        if table["batch"] >= largest.get(title(table), table)["batch"]:
            largest[title(table)] = table
    shown = list(largest.values())
    head = [f"{title(table)}, batch {table['batch']:,}" for table in shown]
    lines = [f"Measured on {time.strftime('%F')} with conv {tables[0]['version']} on one {tables[0]['cuda']}, cold caches; ms, and the step over the "
             "variant before. The first two lines are limits of the same run: a copy of the bytes that the layer reads and writes, and its "
             "multiply-adds in registers.", ""]
    lines += markdown(["variant", *head], [["copy", *(number(table["bytes"] / table["cuda_copy_gb_per_s"] / 1e6) for table in shown)],
                                           ["multiply-adds", *(number(table["flops"] / table["cuda_fma_tflop_per_s"] / 1e9) for table in shown)],
                                           *ladder(shown, "variant"), *ladder(shown, "competitor")])
    lines += ["Other tiles of `cuda_layer_register`, ms:", "", *markdown(["tile", *head], list(ladder(shown, "shape")))]
    lines += ["The best exact variant, the best of any order of additions and cuDNN with each batch, ms:", ""]
    batches = [[title(table), f"{table['batch']:,}", *(number(best(rows_of(table), kinds)[0]) for kinds in (("exact",), ("exact", "fast"))),
                *(cell(rows_of(table).get("cuDNN " + kind)) for kind in ("float32", "TF32", "FP16"))] for table in tables]
    lines += markdown(["layer", "batch", "exact", "fast", "cuDNN float32", "TF32", "FP16"], batches)
    fill("kernels/layer/README.md", "figures", "\n".join(lines).rstrip(), options.print)


# Batch, channels, side of the input, maps, side of the kernel.
SWEEP = """
10000,1,28,6,5 10000,1,28,32,3 10000,1,28,50,5 10000,1,32,6,5 10000,1,64,12,5 10000,1,70,12,5 1000,1,128,16,7 1000,1,128,8,11
100,1,224,64,3 10000,1,20,20,5 1000,1,96,32,9 10000,1,48,16,4 1000,1,64,32,1 10000,1,31,10,3 10000,1,29,12,5 1000,2,64,16,5
1000,2,63,16,3 1000,3,32,16,3 1000,3,32,64,5 10000,3,32,6,5 1000,3,64,32,7 100,3,224,64,3 100,3,224,64,7 100,3,224,32,5
100,3,224,96,11 1000,3,96,24,9 1000,3,64,12,1 100,3,227,64,3 1000,4,50,8,5 1000,4,64,32,3 10000,6,12,16,5 10000,6,14,16,5
1000,6,64,12,3 1000,8,64,16,7 1000,8,33,32,3 1000,8,28,8,2 10000,10,12,20,5 10000,12,33,24,5 1000,12,33,24,5 100,12,33,24,5
1000,12,40,48,3 1000,16,28,32,5 1000,16,32,16,3 1000,16,64,32,1 1000,16,34,64,3 1000,20,12,50,5 10000,20,8,50,5 1000,24,28,48,5
1000,24,56,24,3 1000,32,14,64,3 1000,32,30,64,3 1000,32,28,32,7 1000,32,32,128,1 100,48,56,48,3 1000,50,12,100,5 1000,64,16,64,3
100,64,58,64,3 1000,64,14,128,3 100,64,56,128,1 100,64,30,64,5
1000,1,64,8,2 1000,16,32,32,2 1000,3,64,16,4 1000,8,32,16,4 1000,12,33,24,4 1000,16,16,32,4 1000,1,64,8,6 1000,3,64,32,6
1000,4,64,16,8 1000,4,28,24,9 100,1,128,8,13 100,3,128,16,13 100,3,128,16,15 100,1,256,16,21 10000,1,65,12,5 1000,3,33,12,5
1000,4,65,16,5 10000,8,12,16,3 1000,128,28,128,1 100,64,56,256,1
100,1,28,6,5 100,1,28,50,5 100,1,64,12,5 100,1,70,12,5 100,6,12,16,5 100,3,32,16,3 100,8,33,32,3 100,16,28,32,5 100,20,12,50,5
100,32,14,64,3 1000,1,28,6,5 1000,1,28,50,5 1000,1,64,12,5 1000,1,70,12,5 1000,6,12,16,5 100,10,12,20,5 100,16,14,32,3
100,24,14,48,5 100,8,28,16,5 100,32,16,32,3 10,16,28,32,5 1,32,16,32,3 500,20,12,50,5"""


def layers_sweep(parser):
    """Compares the variants that `conv layer` chooses with cuDNN on about 100 layers, and lists those that are slower.

    The best exact variant is compared with cuDNN's float32; the best `fast` one, whose products have float32's precision,
    and the best one for `--precision tf32` with its TF32. A layer takes about 2 s on an H200. Exit code 1 if something is
    slower than cuDNN."""
    parser.option("precision", "tf32", "the lowest that is measured", choices=("exact", "tf32"))
    parser.option("part", "0/1", "K/N: every N-th layer from the K-th on")
    parser.add_argument("--only", metavar="TEXT", action="append", help="layers whose line contains it, such as '32→64'")
    parser.option("seconds", 1e9, "begin no layer after this number of seconds")
    options = parser.read(rounds=1)
    (first, step), start, slower = map(int, options.part.split("/")), time.monotonic(), []
    compared = [("exact", ("exact",), "cuDNN float32"), ("fast", ("exact", "fast"), "cuDNN TF32"), ("tf32", ("exact", "fast", "tf32"), "cuDNN TF32")]
    compared = compared[:1] if options.precision == "exact" else compared
    report = Report(options)
    report.table("layer, batch ", *(column for kind, _, peer in compared for column in (f"{kind}, ms", "variant ", f"of {peer}")))
    listed = [[int(word) for word in words.split(",")] for words in SWEEP.split()]
    named = {f"{size_of(c, m, s, s, k, k)}, {batch:,}": (batch, c, s, m, k) for batch, c, s, m, k in listed}
    for name, (batch, channels, side, maps, kernel) in [item for item in named.items() if any(t in item[0] for t in options.only or [""])][first::step]:
        if time.monotonic() - start > options.seconds:
            print(f"stopped before {name}", file=sys.stderr)
            break
        rows = rows_of(ask([options.conv, "bench", "layers", "--device", "cuda", "--variant", "auto", "--precision", options.precision, "--json",
                            "--shape", f"{batch}x{channels}x{side}x{side}", "--maps", str(maps), "--kernel", str(kernel)])[0])
        cells = []
        for _, precisions, peer in compared:
            (ms, variant), theirs = best(rows, precisions), rows.get(peer, {}).get("ms", float("nan"))
            slower += [f"- {name}: {variant} {ms:.4f} ms, {peer} {theirs:.4f}"] if ms > theirs else []
            cells += [f"{ms:.4f}", f"`{variant}`", f"{ms / theirs:.2f}"]
        report.row(name, *cells, layer=name, rows=rows)
    report.finish()
    print("\n".join([f"\n{len(report.rows)} layers, {len(slower)} comparisons slower than cuDNN", *slower]))
    return 1 if slower else 0


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
