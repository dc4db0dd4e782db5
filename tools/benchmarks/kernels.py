# SPDX-License-Identifier: MIT
"""Kernels alone: the tables of kernels/README.md, and CPU kernels beside OpenCV's."""
import csv
import subprocess
import sys
import tempfile
import time

from inputs import place_filter, read_matrix
from measure import Report, ask, optional, take_turns

LADDER_SIZE, LADDER_FILTERS = "8192x8192", {"3×3": "gaussian", "5×5": "gaussian5"}
KINDS = {"tent": "a column times a row", "dense": "integers", "real": "real numbers"}


def measure(conv, name, size, device="cuda", depth=8):
    with tempfile.TemporaryDirectory() as folder:
        command = ["bench", "kernels", "--device", device, "--image-size", size, "--filter", place_filter(name, folder), "--depth", str(depth), "--json"]
        print("conv", *command, file=sys.stderr, flush=True)
        return ask([conv, *command])[0]


def heading(result, size):
    return (f"Measured on {time.strftime('%F')} with conv {result['version']} on one {result['cuda']}: one image of {size.replace('x', '×')}, "
            f"three planes of 8 bits, {result['border']} border, cold cache; GB/s read and written, share of a device copy of the same bytes in the "
            "same run")


def cell(row, with_step):
    if row is None or "skipped" in row:
        return "–"
    text = f"{row['gb_per_s']:.0f} GB/s, {100 * row['share_of_copy']:.0f} %"
    return text + (f", {row['step']:.2f}×" if with_step and row["step"] else "")


def kernels(parser):
    """Measures the ladder of CUDA kernels with a 3x3 and a 5x5 filter for the table of kernels/README.md."""
    options = parser.read()
    results = [measure(options.conv, name, LADDER_SIZE) for name in LADDER_FILTERS.values()]
    columns = [{row["name"]: row for row in result["rows"] if row["where"] == "cuda"} for result in results]
    runs = [row["runs"] for column in columns for row in column.values() if "skipped" not in row]
    lines = [f"{heading(results[0], LADDER_SIZE)}, step over the variant before; medians of {min(runs)} runs or more.", "",
             "| variant | " + " | ".join(f"{side} (`{name}`)" for side, name in LADDER_FILTERS.items()) + " |", "|---|---|---|"]
    shapes = ["", "The tile kernels with other block shapes:", "", "| shape | " + " | ".join(LADDER_FILTERS) + " |", "|---|---|---|"]
    for name, row in columns[0].items():
        ours = row["kind"] in ("variant", "shape")
        text = f"| {f'`{name}`' if ours else name} | " + " | ".join(cell(column.get(name), row["kind"] == "variant") for column in columns) + " |"
        if row["kind"] == "shape":
            shapes.append(text)
        elif any("skipped" not in column.get(name, row) for column in columns):
            lines.append(text)
    print("\n".join(lines + shapes))


def kernels_large(parser):
    """Measures CUDA kernels with filters of 7x7 to 31x31 for the table of kernels/README.md. Most of the time goes into
    the reference, with which every result is compared. Beside other libraries: gpu-filters."""
    parser.option("size", "2880x1800")
    parser.option("only", ",".join(kind + str(side) for kind in KINDS for side in (7, 9, 15, 31)), "these filters")
    options = parser.read()
    results = {name: measure(options.conv, name, options.size) for name in options.only.split(",")}
    lines = [f"{heading(next(iter(results.values())), options.size)}.", "",
             "| filter | | fastest variant | | of a copy |", "|---|---|---|--:|--:|"]
    for name, result in results.items():
        best = max((row for row in result["rows"] if row["where"] == "cuda" and row["kind"] == "variant" and "skipped" not in row), key=lambda row: row["gb_per_s"])
        kind, side = name.rstrip("0123456789"), name.lstrip("abcdefghijklmnopqrstuvwxyz")
        lines.append(f"| {side}×{side} | {KINDS[kind]} | `{best['name']}` | {best['gb_per_s']:.0f} GB/s | {100 * best['share_of_copy']:.0f} % |")
    print("\n".join(lines))


# What Nsight Compute counts: bytes from and to DRAM, instructions of warps, and shares of the peak in percent.
COUNTERS = {"bytes": "dram__bytes.sum", "instructions": "smsp__inst_executed.sum", "DRAM": "dram__throughput.avg.pct_of_peak_sustained_elapsed",
            "issue slots": "sm__inst_issued.avg.pct_of_peak_sustained_elapsed",
            "tensor cores": "sm__inst_executed_pipe_tensor.avg.pct_of_peak_sustained_elapsed"}


def roofline(parser):
    """Counts with Nsight Compute (ncu) what kernels of the ladder do for each sample: bytes of DRAM, of which 2 are the least, and
    instructions of a thread; and how busy DRAM, issue slots and tensor cores are. Intensity is 2 operations per tap over these bytes."""
    parser.option("size", "8192x4096")
    parser.option("variants", "naive,blocked,dp4a,tma,mma,tma_mma")
    options = parser.read(rounds=1)
    width, height = map(int, options.size.split("x"))
    report = Report(options)
    report.table("filter ", "variant ", "bytes per sample", "operations per byte", "instructions per sample", *(f"{name}, %" for name in list(COUNTERS)[2:]))
    for side, name in LADDER_FILTERS.items():
        for variant in options.variants.split(","):
            command = ["ncu", "--csv", "--page", "raw", "--print-units", "base", "--clock-control", "none", "--launch-count", "1", "--kernel-name",
                       f"regex:^{variant}$", "--metrics", ",".join(COUNTERS.values()), options.conv, "bench", "kernels", "--device", "cuda",
                       "--image-size", options.size, "--filter", name, "--variant", f"cuda_{variant}"]
            text = subprocess.run(command, stdout=subprocess.PIPE, encoding="utf-8", check=True).stdout
            names, _, values = csv.reader(line for line in text.splitlines() if line.startswith('"'))
            found = [float(values[names.index(counter)].replace(",", "")) for counter in COUNTERS.values()]
            moved, executed = found[0] / (3 * width * height), 32 * found[1] / (3 * width * height)
            report.row(f"{side} (`{name}`)", f"`cuda_{variant}`", f"{moved:.2f}", f"{2 * int(side[0]) ** 2 / moved:.1f}", f"{executed:.2f}",
                       *(f"{share:.0f}" for share in found[2:]), filter=name, variant=variant, found=found)
    report.finish()


LARGE, MEDIUM, SMALL = "8192x4096", "2880x1800", "1024x1024"
# Filter (a built-in or a made one), size of the planes, depth.
CPU_CASES = [("emboss", LARGE, 8), ("blur", LARGE, 8)]
CPU_CASES += [(name, MEDIUM, depth) for depth in (8, 16) for name in ("emboss", "blur", "gaussian", "emboss5", "blur5", "gaussian5")]
CPU_CASES += [(name, MEDIUM, 8) for name in ("classic5", "real3", "real5")]
CPU_CASES += [(name, SMALL, 8) for name in ("tent7", "dense7", "tent9", "dense9", "tent15", "dense15", "real15", "tent31", "dense31", "real31")]
CPU_CASES += [(name, SMALL, 16) for name in ("tent9", "dense9")]


def opencv_way(cv2, matrix, size, depth):
    import numpy
    width, height = map(int, size.split("x"))
    kind = numpy.uint16 if depth == 16 else numpy.uint8
    kernel = numpy.array(matrix["rows"]) / matrix["scale"]
    planes = numpy.random.default_rng(1).integers(0, numpy.iinfo(kind).max, (3, height, width), kind, True)
    out = numpy.zeros_like(planes)

    def way():
        times = []
        for _ in range(5):
            start = time.perf_counter()
            for source, target in zip(planes, out):
                cv2.filter2D(source, -1, kernel, target, borderType=cv2.BORDER_REPLICATE)
            times.append(time.perf_counter() - start)
        return width * height / sorted(times)[2] / 1e6
    return way


def kernels_cpu(parser):
    """Compares CPU kernels on one core with OpenCV's filter2D on one thread and a memcpy of the same bytes, in millions of
    three-plane pixels per second: the best round of each, since other load only makes a round slower; a round is a median.
    OpenCV rounds sums of float32, so its results can differ by one; only its speed is compared.

    CONV_DISABLE=vnni,vbmi,avx512 tools/bench kernels-cpu --rows cpu_sse41,cpu_avx2    # an AVX2 machine"""
    parser.option("rows", "cpu_avx2,cpu_vnni", "kernels to show")
    parser.option("only", "", "these filters")
    options = parser.read(rounds=3)
    cv2 = optional("cv2") or sys.exit("install python3-opencv")
    cv2.setNumThreads(1)
    rows, only = options.rows.split(","), options.only.split(",") if options.only else None
    report = Report(options, f"OpenCV {cv2.__version__}, best rounds")
    report.table("filter ", "bits", "planes ", "memcpy", "OpenCV", *(name for row in rows for name in (f"`{row}`", "× OpenCV", "of a copy")))
    with tempfile.TemporaryDirectory() as folder:
        for name, size, depth in CPU_CASES:
            if only and name not in only:
                continue
            ways = {"OpenCV": opencv_way(cv2, read_matrix(place_filter(name, folder)), size, depth),
                    "conv": lambda: measure(options.conv, name, size, "cpu", depth)["rows"]}
            times = take_turns(ways, options.rounds, 0)
            theirs = max(times["OpenCV"].results)
            runs = [{row["name"]: row["mpix_per_s"] for row in run if "skipped" not in row} for run in times["conv"].results]
            ours = {key: max(run[key] for run in runs) for key in runs[0]}
            cells = [text for row in rows for text in ((f"{ours[row]:.0f}", f"{ours[row] / theirs:.1f}", f"{ours[row] / ours['memcpy']:.2f}")
                                                       if row in ours else ("–", "–", "–"))]
            report.row(f"`{name}`", depth, size.replace("x", "×"), f"{ours['memcpy']:.0f}", f"{theirs:.0f}", *cells,
                       filter=name, depth=depth, size=size, opencv=theirs, conv=ours)
    report.finish()
