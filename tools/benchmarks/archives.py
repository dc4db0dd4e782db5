# SPDX-License-Identifier: MIT
"""Archives against folders, on one device or several."""
import functools
import glob
import os
import statistics
import subprocess
import sys

from inputs import SHARDS, Folders, make_archives
from measure import Clock, Report, optional, remove, run, take_turns

WEBDATASET = """
import glob, itertools, sys, time
import multiprocessing as mp
import cv2, numpy as np, webdataset as wds
cv2.setNumThreads(1)
source, output, processes, way = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
kernel = np.array([[-2, -1, 0], [-1, 1, 1], [0, 1, 2]], np.float32)
def work(sample):
    image = cv2.imdecode(np.frombuffer(sample["png"], np.uint8), cv2.IMREAD_UNCHANGED)
    image = cv2.filter2D(image, -1, kernel, borderType=cv2.BORDER_REPLICATE)
    return {"__key__": sample["__key__"], "png": cv2.imencode(".png", image, [cv2.IMWRITE_PNG_COMPRESSION, 1])[1].tobytes()}
def write(path, samples):
    with wds.TarWriter(path) as sink:
        for sample in samples:
            sink.write(sample)
def read(path=source):
    return wds.WebDataset(path, shardshuffle=False)
def share(number):
    write(f"{output}.{number}", map(work, itertools.islice(read(), number, None, processes)))
def shard(path):
    write(output + "." + path.rsplit("/", 1)[1], map(work, read(path)))
if __name__ == "__main__":
    with mp.Pool(processes) as pool:
        pool.map(abs, range(processes)) # all are there
        start = time.monotonic()
        if way == "pool":
            write(output, pool.imap(work, read(), chunksize=8))
        elif way == "shares":
            pool.map(share, range(processes), chunksize=1)
        else:
            pool.map(shard, sorted(glob.glob(source[:-4] + "-shards/*.tar")), chunksize=1)
        print(time.monotonic() - start)
"""


def archives(parser):
    """Times folders, a tar archive and 16 shards of the same images against each other, with --devices, for example
    `cuda:0,all`, on each of these. Words after -- are options of conv.

    The steady state is the slope between a third of the images and all of them, so that starting does not count. With the
    packages webdataset and cv2, Python does the job of `tar to tar` with OpenCV on --processes processes, on at most
    --python-count images, in three ways: one process reads and writes the archive, a pool filters (pool); each process reads the
    whole archive, filters its share and writes a tar of its own (shares); each reads shards and writes one tar for each
    (shards). Starting the interpreter and imports are not timed.

    tools/bench archives ../photos --count 40000 --where /dev/shm -- --device cuda --decode-on gpu --encode-on gpu"""
    parser.add_argument("photos", help="a folder of PNG files")
    parser.option("count", 300)
    parser.option("where", help="a folder, best on a memory file system (default: a temporary one)")
    parser.option("ways", "folder to folder,tar to tar,shards to shards,tar to folder,folder to tar", "also: not saved")
    parser.option("devices", "", "devices to compare, with PNG coded by GPUs")
    parser.option("processes", min(16, os.cpu_count()))
    parser.option("python-count", 2000)
    options = parser.read()
    options.scratch = os.path.join(options.where or "/tmp", f"conv-bench-{os.getpid()}")
    report = Report(options, f"{options.count} images")
    if options.devices and "all" in options.devices and len(report.machine["gpus"]) < 2:
        sys.exit("one GPU or none: there is nothing to compare")
    with Folders(options) as folders:
        inputs = [folders.make("photos", count) for count in sorted({max(1, options.count // 3), options.count})]
        for folder in inputs:
            make_archives(folder)
        measure(options, report, folders.scratch, inputs)
    report.finish()


def measure(options, report, scratch, inputs):
    folder, tar, shards = (f"{scratch}/{name}" for name in ("out", "out.tar", "out-shards"))
    ways = {
        "folder to folder": lambda path: ([path, folder], folder),
        "tar to tar": lambda path: ([path + ".tar", tar], tar),
        "shards to shards": lambda path: ([f"{path}-shards/{{00..{SHARDS - 1}}}.tar", shards], shards),
        "tar to folder": lambda path: ([path + ".tar", folder], folder),
        "folder to tar": lambda path: ([path, tar], tar),
        "not saved": lambda path: (["--no-save", path, folder], folder),
    }
    devices = {device: ["--device", device, *([] if device == "cpu" else ["--decode-on", "gpu", "--encode-on", "gpu"])]
               for device in options.devices.split(",") if device} or {"": []}
    todo = {}
    for way in options.ways.split(","):
        for device, words in devices.items():
            for images in inputs:
                operands, out = ways[way](images.path)
                command = [options.conv, "emboss", "--quiet", *words, *options.conv_options, *operands]
                todo[way, device, len(images)] = functools.partial(run, command, out)
    times = dict(zip(todo, take_turns({" ".join(map(str, key)): call for key, call in todo.items()}, options.rounds).values()))
    report.table("way ", "device ", "seconds", "CPU seconds", "GB/s of samples", "steady state, GB/s", "against the first")
    first, rates = next(iter(todo)), {}
    last = inputs[-1]
    for way, device in dict.fromkeys((way, device) for way, device, _ in todo):
        each = times[way, device, len(last)]
        slope = each.median - times[way, device, len(inputs[0])].median
        steady = (last.samples - inputs[0].samples) / slope / 1e9 if slope > 0 else float("nan")
        rates[way] = last.samples / each.median, steady * 1e9
        report.row(way, device, each, f"{each.cpu:.2f}", f"{last.samples / each.median / 1e9:.2f}", f"{steady:.2f}",
                   f"{times[(*first[:2], len(last))].median / each.median:.3f}×", way=way, device=device, times=each, steady_gb_s=steady)
    if optional("webdataset") and optional("cv2"):
        measure_webdataset(options, report, scratch, inputs, rates.get("tar to tar"))


def measure_webdataset(options, report, scratch, inputs, ours):
    fitting = [images for images in inputs if len(images) <= options.python_count]
    if not fitting:
        sys.exit(f"--python-count: less than {len(inputs[0])}, a third of the images")
    images, out = fitting[-1], f"{scratch}/python.tar"

    def way(name):
        command = [sys.executable, "-c", WEBDATASET, images.path + ".tar", out, str(options.processes), name]
        clock = Clock(wall=float(subprocess.run(command, check=True, capture_output=True).stdout))
        for path in glob.glob(out + "*"):
            remove(path)
        return clock
    times = take_turns({name: functools.partial(way, name) for name in ("pool", "shares", "shards")}, min(3, options.rounds), 0)
    report.table("WebDataset and OpenCV ", "images", "seconds", "GB/s of samples", "conv tar to tar", "its steady state")
    for name, each in times.items():
        rate = images.samples / statistics.median(each.wall)
        ratios = [f"{mine / rate:.1f}×" for mine in ours] if ours else ["–", "–"]
        report.row(f"{name}, {options.processes} processes", len(images), each, f"{rate / 1e9:.2f}", *ratios, way=name, times=each)
