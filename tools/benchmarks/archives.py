# SPDX-License-Identifier: MIT
"""Archives against folders, on one device or several."""
import functools
import os
import sys

from inputs import SHARDS, Folders, make_archives
from measure import Report, run, take_turns

def archives(parser):
    """Times folders, a tar archive and 16 shards of the same images against each other, with --devices, for example
    `cuda:0,all`, on each of these. Words after -- are options of conv.

    The steady state is the slope between a third of the images and all of them, so that starting does not count.

    tools/bench archives ../photos --count 40000 --where /dev/shm -- --device cuda --decode-on gpu --encode-on gpu"""
    parser.add_argument("photos", help="a folder of PNG files")
    parser.option("count", 300)
    parser.option("where", help="a folder, best on a memory file system (default: a temporary one)")
    parser.option("ways", "folder to folder,tar to tar,shards to shards,tar to folder,folder to tar", "also: not saved")
    parser.option("devices", "", "devices to compare, with PNG coded by GPUs")
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
    first, last = next(iter(todo)), inputs[-1]
    for way, device in dict.fromkeys((way, device) for way, device, _ in todo):
        each = times[way, device, len(last)]
        slope = each.median - times[way, device, len(inputs[0])].median
        steady = (last.samples - inputs[0].samples) / slope / 1e9 if slope > 0 else float("nan")
        report.row(way, device, each, f"{each.cpu:.2f}", f"{last.samples / each.median / 1e9:.2f}", f"{steady:.2f}",
                   f"{times[(*first[:2], len(last))].median / each.median:.3f}×", way=way, device=device, times=each, steady_gb_s=steady)
