# SPDX-License-Identifier: MIT
"""What does not show in a table of times: the memory of long runs."""
import os
import random
import resource
import shutil
import statistics
import subprocess
import sys
import time

from inputs import Folder, empty, png
from measure import Report

MOST_OPEN = 3 * (os.cpu_count() or 1)  # files that all workers have open at a time
IMAGES = 16  # different files; one after the other in every folder


def make_images(folder, side):
    """Images similar to small photographs: ramps with some noise."""
    empty(folder)
    draw = random.Random(3)
    for index in range(IMAGES):
        rows = [[(x * 3 + y * 2 + c * 50 + draw.randrange(16)) % 256 for x in range(side) for c in range(3)] for y in range(side)]
        png.write(f"{folder}/{index}.png", side, side, rows, png.RGB)
    return [f"{folder}/{index}.png" for index in range(IMAGES)]


def look_at(process):
    """(resident MiB, file descriptors, threads), or None when the process has ended."""
    try:
        with open(f"/proc/{process.pid}/statm") as file:
            pages = int(file.read().split()[1])
        if pages < 200:  # the program has not started yet, or has ended
            return None
        return (pages * resource.getpagesize() / 2**20, len(os.listdir(f"/proc/{process.pid}/fd")),
                len(os.listdir(f"/proc/{process.pid}/task")))
    except (OSError, IndexError):
        return None


def processor_seconds():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def watch_run(command):
    """(seconds, processor seconds, [(resident MiB, descriptors, threads), ...] in equal steps)"""
    before, start = processor_seconds(), time.monotonic()
    process = subprocess.Popen(command, stderr=subprocess.PIPE)
    looks, step = [], 0.002
    while process.poll() is None:
        look = look_at(process)
        if look:
            looks.append(look)
        if len(looks) == 1000:  # keeps every second one, and samples half as often
            looks, step = looks[::2], step * 2
        time.sleep(step)
    seconds, used = time.monotonic() - start, processor_seconds() - before
    if process.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit code {process.returncode}\n{process.stderr.read().decode()}")
    return seconds, used, looks


def measure(options, images, count):
    folder, out = Folder(f"{options.scratch}/in", [images[i % IMAGES] for i in range(count)]), f"{options.scratch}/out"
    results = []
    for _ in range(max(1, min(options.repeat, 20000 // count))):  # one short run is not enough
        shutil.rmtree(out, ignore_errors=True)
        results.append(watch_run([options.conv, options.filter, *options.conv_options, folder.path, out]))
    if len(os.listdir(out)) != count:
        sys.exit(f"{count} images in, {len(os.listdir(out))} out")
    shutil.rmtree(out)
    folder.remove()
    looks = max((looks for _, _, looks in results), key=len)
    return statistics.median(r[0] for r in results), statistics.median(r[1] for r in results), looks


class Growth:
    """Figures from the samples of one run."""

    def __init__(self, looks):
        tenth = len(looks) // 10
        early, late = looks[tenth:2 * tenth + 1], looks[-tenth - 2:-1] or looks  # in the very last sample the program is ending
        self.memory = [statistics.median(look[0] for look in part) for part in (early, late)]
        self.most = [max(look[i] for look in looks) for i in range(3)]
        halves = looks[tenth:len(looks) // 2], looks[len(looks) // 2:]
        self.more = [max((look[i] for look in halves[1]), default=0) - max((look[i] for look in halves[0]), default=0)
                     for i in (1, 2)]

    def complaints(self, tolerance):
        said = []
        if self.memory[1] > self.memory[0] * (1 + tolerance / 100):
            said.append(f"memory grew from {self.memory[0]:.1f} to {self.memory[1]:.1f} MiB")
        return said + [f"{more} more {name} in the second half"
                       for more, name, fine in zip(self.more, ("descriptors", "threads"), (MOST_OPEN, 0)) if more > fine]


def scale(parser):
    """Shows that time per image and memory do not grow from a hundred to two hundred thousand images.

    For each count a folder of that many names (links to a few small images) is filtered into a new folder. Printed are wall
    time and processor time per image, after subtracting a run of sixteen images, in which workers start; resident memory
    after the first tenth of the run and at its end; file descriptors and threads. Exit code 1 if the processor time of an
    image differs by more than --tolerance percent from that of the first count, if in the last run memory grows by more
    than --growth percent, descriptors by more than the files that all workers have open, or threads, or if an output is
    missing. Words after -- are options of conv. A soak test, with little memory:

    tools/bench scale /dev/shm/scale --counts 100000 -- --device cpu --mem-limit 16M"""
    parser.add_argument("scratch", help="a folder for images and outputs, best on a memory file system; emptied")
    parser.option("counts", "100,1000,10000,200000")
    parser.option("side", 64, "of the square images")
    parser.option("filter", "emboss")
    parser.option("repeat", 15, "runs of small counts, at most")
    parser.option("tolerance", 10.0, "of time, in percent")
    parser.option("growth", 10.0, "of memory, in percent")
    options = parser.read()
    counts = [int(count) for count in options.counts.split(",")]
    if min(counts) <= IMAGES:
        parser.error(f"counts begin beyond {IMAGES}")
    empty(options.scratch)
    images = make_images(f"{options.scratch}/images", options.side)
    report = Report(options)
    start, start_used, _ = measure(options, images, IMAGES)
    report.table("images", "seconds", "us each", "CPU us each", "MiB first tenth", "MiB end", "MiB most", "descriptors", "threads")
    said, first = [], None
    for count in counts:
        seconds, used, looks = measure(options, images, count)
        growth = Growth(looks)
        cost = (used - start_used) / (count - IMAGES)
        first = first or cost
        if abs(cost / first - 1) > options.tolerance / 100:
            said.append(f"an image among {count} takes {cost / first:.2f} of the processor time of one among {counts[0]}")
        report.row(count, f"{seconds:.3f}", f"{1e6 * (seconds - start) / (count - IMAGES):.1f}", f"{1e6 * cost:.1f}", f"{growth.memory[0]:.1f}",
                   f"{growth.memory[1]:.1f}", f"{growth.most[0]:.1f}", growth.most[1], growth.most[2], count=count, seconds=seconds, cpu_seconds=used)
    said += growth.complaints(options.growth)
    shutil.rmtree(options.scratch)
    report.finish()
    print("\n".join(said) if said else "flat")
    return 1 if said else 0
