# SPDX-License-Identifier: MIT
"""Whole runs of conv over many images."""
import os
import shlex
import statistics

from folders import conv_way
from inputs import Folders, cut_crops
from measure import Report, spread, take_turns


def add_kinds(parser, distinct):
    parser.add_argument("scratch", help="best on a memory file system; emptied")
    for kind in ("photos", "icons", "screens"):
        parser.option(kind, help=f"a folder of {kind}")
    parser.option("distinct", distinct, "copies of images; more names are links to them")


def auto(parser):
    """Compares --device auto with the CPU alone and with the GPU, on folders of several kinds and sizes. A kind is icons,
    screens, photos, deep (photographs of 16 bits), interlaced (photographs), or several joined by "+": equally many of each,
    shuffled. Nothing is saved unless --save is given; --conv may be repeated. Words after -- are options of conv.

    tools/bench auto /dev/shm/auto --photos ../photos --icons ../icons --screens ../screens --conv old --conv new"""
    add_kinds(parser, 2400)
    parser.option("kinds", "photos:1,photos:24,photos:200,photos:1000,photos:10000,photos:40000,icons:10000,icons:40000,screens:2000,"
                           "icons+screens+photos+deep+interlaced:3000", "NAME:COUNT,...")
    parser.option("save", False, "outputs are saved")
    options = parser.read()
    report = Report(options, "milliseconds")
    devices = {"auto": [], "CPU": ["--device", "cpu"], **({"GPU": ["--device", "cuda"]} if report.machine["gpus"] else {})}
    report.table("images ", "MB", *devices, "auto / better", "CPU time of auto")
    with Folders(options, options.distinct) as folders:
        for kind in options.kinds.split(","):
            name, count = kind.split(":")
            folder, out = folders.make(name, int(count)), f"{folders.scratch}/out"
            ways = {f"{number} {way}": conv_way(conv, [*options.conv_options, *words], folder.path, out, len(folder), options.save)
                    for number, conv in enumerate(options.convs) for way, words in devices.items()}
            times = take_turns(ways, options.rounds)
            for number, conv in enumerate(options.convs):
                mine = {way: times[f"{number} {way}"] for way in devices}
                own, better = mine["auto"], min(each.median for way, each in mine.items() if way != "auto")
                cells = [spread([1e3 * seconds for seconds in each.wall], 0) for each in mine.values()]
                cells += [f"{own.median / better:.2f}", f"{1e3 * statistics.median(own.user):.0f} + {1e3 * statistics.median(own.system):.0f}"]
                report.row(f"{count} {name}" + (f" `{os.path.relpath(conv)}`" if len(options.convs) > 1 else ""), f"{folder.bytes / 1e6:.1f}", *cells,
                           kind=name, count=int(count), conv=conv, **mine)
            folder.remove()
    report.finish()


def runs(parser):
    """Times runs over many photographs. --conv and --options may be repeated; what is compared takes turns.

    slope   nothing is saved; the steady rate between the last two of --counts, and the time beyond it (start and end)
    saved   folder to folder, --saved images

    tools/bench runs /dev/shm/runs --photos ../photos --parts slope,saved --conv before/conv --conv build/conv"""
    add_kinds(parser, 10000)
    parser.option("parts", "slope,saved")
    parser.add_argument("--options", action="append", help="options of conv, once for each set to be compared")
    parser.option("counts", "40000,200000", "images of slope")
    parser.option("saved", "10000,40000", "images of saved")
    parser.option("kind", "photos")
    options = parser.read(rounds=3)
    ways = {f"`{os.path.relpath(conv) + ' ' if len(options.convs) > 1 else ''}{words}`": (conv, shlex.split(words))
            for conv in options.convs for words in options.options or [""]}
    report = Report(options)
    with Folders(options, options.distinct) as folders:
        for part in options.parts.split(","):
            {"slope": measure_slope, "saved": measure_saved}[part](options, folders, ways, report)
    report.finish()


def measure_slope(options, folders, ways, report):
    inputs = [folders.make(options.kind, int(count)) for count in options.counts.split(",")]
    times = take_turns({f"{name} {len(folder)}": conv_way(*way, folder.path, f"{folders.scratch}/out", save=False)
                        for name, way in ways.items() for folder in inputs}, options.rounds)
    report.table("options ", *(f"{len(folder)}, s" for folder in inputs), "CPU s", "slope, GB/s of samples", "start and end, s")
    more = inputs[-1].samples - inputs[-2].samples
    for name in ways:
        mine = [times[f"{name} {len(folder)}"] for folder in inputs]
        rates = [more / (last - before) / 1e9 for before, last in zip(mine[-2].wall, mine[-1].wall)]
        rate = more / (mine[-1].median - mine[-2].median)
        report.row(name, *mine, f"{mine[-1].cpu:.1f}", f"{rate / 1e9:.1f} ({min(rates):.1f} to {max(rates):.1f})",
                   f"{mine[-2].median - inputs[-2].samples / rate:.3f}", name=name, rate=rate, **{str(len(f)): each for f, each in zip(inputs, mine)})
    for folder in inputs:
        folder.remove()


def measure_saved(options, folders, ways, report):
    report.table("images", "way ", "seconds", "program, CPU s", "system, CPU s", "GB/s of samples", "GB/s of files", "images/s")
    for count in map(int, options.saved.split(",")):
        folder, out = folders.make(options.kind, count), f"{folders.scratch}/out"
        for name, each in take_turns({name: conv_way(*way, folder.path, out, count) for name, way in ways.items()}, options.rounds).items():
            report.row(count, name, each, f"{statistics.median(each.user):.1f}", f"{statistics.median(each.system):.1f}",
                       f"{folder.samples / each.median / 1e9:.1f}", f"{folder.bytes / each.median / 1e9:.1f}", f"{count / each.median:.0f}",
                       count=count, name=name, times=each)
        folder.remove()


def crops(parser):
    """Makes a set of PNG images from photographs: crops, or whole ones scaled to --size. Always the same ones."""
    parser.add_argument("photos")
    parser.add_argument("output", help="emptied")
    parser.add_argument("count", type=int)
    parser.option("size", "300x300")
    parser.option("scaled", False, "whole photographs scaled to --size, instead of crops")
    options = parser.parse_args(parser.arguments)
    width, height = map(int, options.size.split("x"))
    cut_crops(options.photos, options.output, options.count, width, height, options.scaled)
