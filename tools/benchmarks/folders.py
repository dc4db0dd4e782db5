# SPDX-License-Identifier: MIT
"""A folder, or one large image, through one filter into files: conv and other programs."""
import functools
import json
import os
import statistics
import subprocess
import sys
import tempfile

import competitors as others
from inputs import Folder, cut_crops, empty, images_in, in_parallel, place_filter, read_matrix, samples_of, unsharp_matrix
from measure import CORES, Report, run, take_turns

ON_GPU = ["--device", "cuda", "--decode-on", "gpu", "--encode-on", "gpu"]


def conv_way(conv, words, source, out, count=None, save=True, chain="emboss"):
    """A run of conv. NAME=VALUE among the words sets a variable."""
    environment = dict(word.split("=", 1) for word in words if "=" in word and not word.startswith("-"))
    words = [word for word in words if "=" not in word or word.startswith("-")]
    command = [conv, chain, "-q", "-b", *words, *([] if save else ["--no-save"]), source, out]
    return functools.partial(run, command, out, count if save else None, environment=environment)


def other_ways(rows, source, out, count=None):
    return {row.name: functools.partial(run, row.command(source, out), out, count, environment=row.environment) if count is None else
            functools.partial(run_into, row, source, out, count) for row in rows}


def run_into(row, source, out, count):
    empty(out)  # these programs do not make their folder
    return run(row.command(source, out), out, count, environment=row.environment)


def matching(ways, only="", without=""):
    words, not_these = ([word for word in text.lower().split(",") if word] for text in (only, without))
    return {name: way for name, way in ways.items() if (not words or any(word in name.lower() for word in words))
            and not any(word in name.lower() for word in not_these)}


def seconds_table(report, times, extra=(), cells=lambda name: ()):
    """One line for each way, relative to the first."""
    report.table("way ", "seconds", "against the first", "CPU seconds", "MB written", *extra)
    first = next(iter(times.values()))
    for name, each in times.items():
        report.row(name, each, f"{each.median / first.median:.2f}×", f"{each.cpu:.2f}", f"{(each.results[-1] or 0) / 1e6:.1f}", *cells(name),
                   name=name, times=each, written=each.results[-1])


def competitors(parser):
    """Times the same job with conv and its competitors: a folder of PNG images through one filter into a folder.

    Wall time is from the start of the first process to the end of the last. Inputs are read from the page cache; put OUTPUT
    on a RAM disk (/dev/shm) to exclude the disk.

    tools/bench crops photos /dev/shm/in 1000 && tools/bench competitors /dev/shm/in /dev/shm/out"""
    parser.add_argument("input", help="folder with PNG images")
    parser.add_argument("output", help="folder for the outputs; must not exist")
    parser.option("filter", "emboss", "a file under filters/")
    parser.option("warm-up", 1, "unmeasured rounds before; 0 where all programs have just run")
    parser.option("streams", 4, "streams of the second CUDA row")
    parser.option("only", "", "only rows whose name contains one of these words")
    parser.option("without", "", "no rows whose name contains one of these words")
    options = parser.read()
    source, out = os.path.abspath(options.input), os.path.abspath(options.output)
    if os.path.exists(out):
        sys.exit(f"{out}: exists")
    images = images_in(source)
    pixels = sum(samples_of(path) for path in images)
    conv, coders = options.conv, ["--decode-on=cpu", "--encode-on=cpu"]
    report = Report(options, f"{options.filter} on {len(images)} PNG images, {pixels / 1e6:.1f} MB of samples")
    ways = {"conv": [], "conv, CPU": ["--device=cpu"]}
    if report.machine["gpus"]:
        for streams in dict.fromkeys((1, options.streams)):
            ways[f"conv, CUDA, PNG on the CPU, {streams} stream{'s' if streams > 1 else ''}"] = ["--device=cuda", *coders, f"--streams={streams}"]
        ways["conv, CUDA, PNG on the GPU"] = ON_GPU
    else:
        print("conv finds no CUDA device: its CUDA rows are skipped", file=sys.stderr)
    ways = {name: functools.partial(run, [conv, options.filter, "-b", "-q", *words, source, out], out, len(images)) for name, words in ways.items()}
    matrix = read_matrix(place_filter(options.filter, "/nonexistent"))
    foreign = other_ways(others.competitors(matrix) + others.opencv(matrix, 1, None), source, out, len(images))
    times = take_turns(matching({**ways, **foreign}, options.only, options.without), options.rounds, options.warm_up, tuple(foreign))
    best = min((each.median for name, each in times.items() if name in foreign), default=None)
    seconds_table(report, times, ("images/s", "against the best competitor"),
                  lambda name: (f"{len(images) / times[name].median:.1f}", f"{best / times[name].median:.2f}×" if best else "–"))
    report.finish()


# --- one large image ---------------------------------------------------------------------------------

def make_image(photos, path, pixels, seed):
    """A mosaic of enlarged photographs with some noise."""
    import cv2
    import numpy as np
    files = images_in(photos)
    height = int((pixels / 1.5) ** 0.5)
    width = pixels // height
    rng = np.random.default_rng(seed)
    out = np.zeros((height, width, 3), np.uint8)
    count = 5 * (seed - 1)
    for y in range(0, height, 1000):
        x = 0
        while x < width:
            photo = cv2.imread(files[count % len(files)], cv2.IMREAD_COLOR)
            scale = max(rng.uniform(2.0, 3.5) * 1000 / photo.shape[0] / 2, 1001 / photo.shape[0])
            tile = cv2.resize(photo, None, fx=scale, fy=scale, interpolation=cv2.INTER_CUBIC)[:, ::rng.choice((-1, 1))]
            rows, columns = min(1000, height - y), min(tile.shape[1], width - x)
            out[y:y + rows, x:x + columns] = tile[:rows, :columns]
            x, count = x + columns, count + 1
    for y in range(0, height, 500):
        part = out[y:y + 500]
        part[:] = np.clip(part + rng.normal(0, 2, part.shape), 0, 255)
    return out


def encode_source(photos, path, name, conv, pixels, seed):
    """An image of that number of pixels, encoded by `opencv` (its defaults), `opencv-N`, `libpng-N` or `conv-N`, with N the level."""
    import cv2
    image = make_image(photos, path, pixels, seed)
    encoder, _, level = name.partition("-")
    if encoder == "opencv":
        cv2.imwrite(path, image, [cv2.IMWRITE_PNG_COMPRESSION, int(level)] if level else [])
        return
    plain = f"{path}-plain.png"
    cv2.imwrite(plain, image, [cv2.IMWRITE_PNG_COMPRESSION, 0])
    subprocess.run([conv, "identity", "-q", "--device", "cpu", "--encoder", {"conv": "fast"}.get(encoder, encoder), "-z", level, plain, path], check=True)
    os.remove(plain)


def stages_of(path):
    with open(path) as file:
        records = [json.loads(line)["ms"] for line in file if '"type":"file"' in line]
    return {stage: sum(record[stage] for record in records) for stage in records[0]}


def large(parser):
    """Times one large image (a mosaic of photographs), or a folder of some, with few and with all workers of conv and with
    other programs in their fastest settings. Below the table are conv's seconds per stage: decoding, filtering and
    encoding are divided among all cores, reading and writing stay on one.

    tools/bench large photos /dev/shm/large
    tools/bench large photos /dev/shm/large --conv build/conv --conv OLDER --sources opencv-1"""
    parser.add_argument("photos")
    parser.add_argument("folder", help="for the image and the outputs; the image is kept and used again")
    parser.option("megapixels", 50)
    parser.option("images", 1, "more than one: a folder, from 12 megapixels on")
    parser.option("warm-up", 1)
    parser.option("jobs", ",".join(str(n) for n in sorted({1, 2, CORES})), "workers of conv")
    parser.option("levels", "1", "of conv's compression")
    parser.option("sources", "opencv-6", "encoders of the image: opencv, opencv-N, libpng-N, conv-N with N the level")
    parser.option("without", "", "no rows whose name contains one of these words")
    options = parser.read()
    os.makedirs(options.folder, exist_ok=True)
    matrix = read_matrix(place_filter("emboss", ""))
    for name in options.sources.split(","):
        many = options.images > 1
        source = os.path.join(options.folder, f"{name}-{options.images}-images" if many else f"{name}-{options.megapixels}.png")
        if not os.path.exists(source):
            jobs = [(options.photos, source, name, options.conv, options.megapixels * 1000000, 1)]
            if many:
                os.makedirs(source)
                step = (options.megapixels - 12) / (options.images - 1)
                jobs = [(options.photos, f"{source}/{i:03}.png", name, options.conv, int(1e6 * (12 + step * i)), i + 1) for i in range(options.images)]
            in_parallel(encode_source, jobs, 1)
        out, path = os.path.join(options.folder, "out" if many else "out.png"), os.path.join(options.folder, "report.jsonl")
        count = options.images if many else 1
        ways, stages = {}, {}

        def run_conv(key, command):
            done = run(command, out, count)
            stages.setdefault(key, []).append(stages_of(path))
            return done
        for number, conv in enumerate(options.convs):
            for level in options.levels.split(","):
                for jobs in options.jobs.split(","):
                    key = f"conv{f' ({conv})' if number else ''} -z{level} -j{jobs}"
                    words = [conv, "emboss", "-q", "--device", "cpu", "-z", level, "-j", jobs, "--report", path, source, out]
                    ways[key] = functools.partial(run_conv, key, words)
        foreign = other_ways(others.competitors(matrix, (1,)), source, out, count if many else None)
        times = take_turns(matching({**ways, **foreign}, without=options.without), options.rounds, options.warm_up, tuple(foreign))
        report = Report(options, f"{count} of {options.megapixels} megapixels by {name}, emboss")
        seconds_table(report, times)
        report.table("way ", "read", "decode", "kernel", "encode", "write")
        for key, each in stages.items():
            each = each[options.warm_up:]
            medians = {stage: statistics.median(once[stage] for once in each) / 1e3 for stage in ("read", "decode", "kernel", "encode", "write")}
            report.row(key, *(f"{value:.3f} s" for value in medians.values()), name=key, stages=medians)
        report.finish()


def write_jpeg(photos, pixels, path, quality, seed):
    """A JPEG as cameras write it, with chroma at half the size: a PNG image, or a mosaic with that number of pixels."""
    import cv2
    image = make_image(photos, path, pixels, seed) if pixels else cv2.imread(photos, cv2.IMREAD_COLOR)
    cv2.imwrite(path, image, [cv2.IMWRITE_JPEG_QUALITY, quality])


def jpeg(parser):
    """Times folders of JPEG photographs, in and out, with conv on GPU and CPU and with OpenCV in as many processes as there
    are cores. PHOTOS has PNG photographs, of which crops or, with --megapixels, mosaics are cut; all files are in memory.
    Words after -- are options of conv. With --steady conv also filters twice as many and saves nothing: the last column is
    the speed of the second half, without beginning and end.

    tools/bench jpeg photos --steady
    tools/bench jpeg photos --images 96 --megapixels 24 --quality 92 --filter unsharp:1,0.8"""
    parser.add_argument("photos")
    parser.option("images", 10000)
    parser.option("distinct", 480, "different ones among them; with --megapixels at most 16")
    parser.option("size", "768x512")
    parser.option("megapixels", 0, "of a mosaic; 0: crops of --size")
    parser.option("quality", 90)
    parser.option("filter", "emboss", "emboss or another file under filters/, or unsharp:RADIUS,AMOUNT")
    parser.option("steady", False)
    options = parser.read()
    size, pixels = tuple(map(int, options.size.split("x"))), options.megapixels * 1000000
    distinct = min(options.images, options.distinct, 16 if pixels else options.distinct)
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as box:
        made, out = f"{box}/photos", f"{box}/out"
        os.mkdir(made)
        if not pixels:
            cut_crops(options.photos, f"{box}/crops", distinct, *size)
        sources = [options.photos] * distinct if pixels else images_in(f"{box}/crops")
        in_parallel(write_jpeg, [(source, pixels, f"{made}/{i}.jpg", options.quality, i + 1) for i, source in enumerate(sources)], 1)
        files = images_in(made, (".jpg",))
        folders = [Folder(f"{box}/{times}", [files[i % distinct] for i in range(times * options.images)]) for times in (1, 2)[:1 + options.steady]]
        samples = 3 * (pixels or size[0] * size[1]) * options.images
        ways = {}
        for device in ("auto", "cuda", "cpu"):
            words = ["--device", device, *options.conv_options]
            for text, save in (("", True), (", nothing saved", False)):
                ways[f"conv, {device}{text}"] = conv_way(options.conv, words, folders[0].path, out, options.images, save, options.filter)
            if options.steady:
                ways[f"conv, {device}, twice"] = conv_way(options.conv, words, folders[1].path, out, None, False, options.filter)
        report = Report(options, f"{options.filter} on {options.images} JPEG images, {sum(map(os.path.getsize, folders[0].names())) / 1e6:.1f} MB, "
                        f"{samples / 1e9:.1f} GB of samples, quality {options.quality}")
        if not report.machine["gpus"]:
            ways = matching(ways, without="cuda")
        matrix = unsharp_matrix(*map(float, options.filter[8:].split(","))) if options.filter.startswith("unsharp:") else \
            read_matrix(place_filter(options.filter, box))
        foreign = other_ways(others.best(matrix, None, options.quality) + others.opencv(matrix, None, options.quality), folders[0].path, out, options.images)
        times = take_turns({**ways, **foreign}, options.rounds, skip=tuple(foreign))

        def speeds(name):
            short = times.get(name.replace("twice", "nothing saved"))
            if name.endswith("twice"):
                return "–", f"{samples / 1e9 / (times[name].median - short.median):.1f}"
            return f"{samples / 1e9 / times[name].median:.1f}", "–"
        seconds_table(report, times, ("GB/s of samples", "GB/s of the second half"), speeds)
        report.finish()
