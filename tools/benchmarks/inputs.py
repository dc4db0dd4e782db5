# SPDX-License-Identifier: MIT
"""Inputs of the cases: folders of many names, crops, images of other kinds, archives, filters."""
import array
import ast
import collections
import concurrent.futures
import glob
import hashlib
import importlib
import math
import multiprocessing
import os
import random
import shutil
import struct
import subprocess
import sys
import tarfile
import tempfile

from measure import CORES, ROOT

sys.path.insert(1, os.path.join(ROOT, "tests", "cli"))
import png_writer as png  # noqa: E402

SHARDS = 16


def images_in(folder, kinds=(".png",)):
    found = sorted(os.path.join(folder, name) for name in os.listdir(folder) if name.lower().endswith(kinds))
    return found or sys.exit(f"{folder}: no {' or '.join(kinds)} files")


def samples_of(path):
    """Bytes of the decoded samples of a PNG file; palettes count as RGB."""
    with open(path, "rb") as file:
        head = file.read(26)
    width, height, depth, kind = struct.unpack(">IIBB", head[16:26])
    return width * height * {0: 1, 2: 3, 3: 3, 4: 2, 6: 4}[kind] * (2 if depth == 16 else 1)


def in_parallel(call, jobs, chunk=16):
    with multiprocessing.Pool(CORES) as pool:
        pool.starmap(call, jobs, chunksize=chunk)


def empty(folder):
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)


def mix(parts):
    """Equally many of each part, shuffled with a fixed seed."""
    most = max(map(len, parts))
    mixed = [part[i % len(part)] for part in parts for i in range(most)]
    if len(parts) > 1:
        random.Random(1).shuffle(mixed)
    return mixed


class Folder:
    """A folder of many names: `paths` in their order, with the bytes of their files and of their samples."""

    def __init__(self, path, files):
        self.path, self.files = path, files
        os.makedirs(path)
        for i, file in enumerate(files):
            os.link(file, f"{path}/{i:07}{os.path.splitext(file)[1]}")
        sizes = {file: (os.path.getsize(file), samples_of(file)) for file in set(files) if file.endswith(".png")}
        self.bytes, self.samples = (sum(sizes[file][i] for file in files) if sizes else 0 for i in (0, 1))

    def __len__(self):
        return len(self.files)

    def names(self):
        return sorted(os.path.join(self.path, name) for name in os.listdir(self.path))

    def remove(self):
        shutil.rmtree(self.path)


class Folders:
    """Makes them below a scratch folder, which is emptied first and removed at the end. A kind is `photos`, `icons` or
    `screens`, from the folder that the option of this name has; `deep` or `interlaced`, made of photographs; or several
    of these joined by "+"."""

    def __init__(self, options, distinct=10000):
        self.options, self.distinct, self.copies, self.scratch = options, distinct, {}, os.path.abspath(options.scratch)

    def __enter__(self):
        empty(self.scratch)
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.scratch)

    def sources(self, kind):
        if kind not in ("deep", "interlaced"):
            return images_in(getattr(self.options, kind) or sys.exit(f"--{kind} is needed"))
        folder, photos = f"{self.scratch}/{kind}", self.sources("photos")
        if not os.path.isdir(folder):
            convert = [self.options.conv, "gaussian:0.5", "-q", "--device", "cpu", "--output-type"]
            if kind == "deep":
                subprocess.run([*convert, "u16", *photos, f"{folder}/"], check=True)
            else:
                subprocess.run([*convert, "f32", *photos[:8], f"{self.scratch}/floats/"], check=True)
                os.makedirs(folder)
                in_parallel(interlace, [(f"{self.scratch}/floats/{name}", f"{folder}/{name[:-4]}.png")
                                        for name in os.listdir(f"{self.scratch}/floats")], 1)
        return images_in(folder)

    def make(self, kind, count):
        """`count` links to at most `distinct` copies, more than fit the caches."""
        if kind not in self.copies:
            mixed = mix([self.sources(part) for part in kind.split("+")])
            jobs = [(mixed[i % len(mixed)], f"{self.scratch}/{kind}-copies/{i:06}.png") for i in range(min(self.distinct, max(count, len(mixed))))]
            os.makedirs(f"{self.scratch}/{kind}-copies")
            in_parallel(shutil.copyfile, jobs)
            self.copies[kind] = [target for _, target in jobs]
        copies = self.copies[kind]
        return Folder(f"{self.scratch}/{kind}-{count}", [copies[i % len(copies)] for i in range(count)])


def interlace(source, target):
    """Writes the image of a float32 .npy file, 3 x height x width, as an interlaced PNG."""
    with open(source, "rb") as file:
        head = file.read(10)
        shape = ast.literal_eval(file.read(int.from_bytes(head[8:10], "little")).decode())["shape"]
        values = array.array("f", file.read())
    channels, height, width = shape
    rows = [[int(values[(c * height + y) * width + x]) for x in range(width) for c in range(channels)] for y in range(height)]
    png.write(target, width, height, rows, png.RGB, interlaced=True, filters=2, level=6)


def cut_crops(photos, target, count, width, height, scaled=False):
    """Crops of photographs, or with `scaled` whole ones in that size; the same ones each time."""
    import cv2
    images = [cv2.imread(path, cv2.IMREAD_UNCHANGED) for path in images_in(photos)]
    if scaled:
        images = [cv2.resize(image, (width, height), interpolation=cv2.INTER_CUBIC) for image in images]
    images = [image for image in images if image.shape[0] >= height and image.shape[1] >= width]
    if not images:
        sys.exit(f"{photos}: no photograph is as large as {width}x{height}")
    # libpng's usual effort, not OpenCV's fast mode: files as cameras and editors leave them.
    level = [cv2.IMWRITE_PNG_COMPRESSION, 6, cv2.IMWRITE_PNG_STRATEGY, cv2.IMWRITE_PNG_STRATEGY_FILTERED]
    place = random.Random(300)
    places = [(place.random(), place.random()) for _ in range(count)]
    empty(target)

    def cut(index):
        image = images[index % len(images)]
        y = int(places[index][0] * (image.shape[0] - height + 1))
        x = int(places[index][1] * (image.shape[1] - width + 1))
        return cv2.imwrite(os.path.join(target, f"{index:06}.png"), image[y:y + height, x:x + width], level)

    with concurrent.futures.ThreadPoolExecutor(CORES) as pool:  # OpenCV releases the GIL
        if not all(pool.map(cut, range(count))):
            sys.exit(f"{target}: cannot write")


# --- different images ---------------------------------------------------------------------------------

def dataset(parser):
    """Makes a set of thousands of different PNG images: those of some of Debian's packages (icons, drawings, wallpapers), each
    content once, without those of 256 MiB of samples or more, in a fixed random order. The packages are downloaded with apt-get
    and unpacked, not installed.

    tools/bench dataset /dev/shm/images && tools/bench competitors /dev/shm/images /dev/shm/out"""
    parser.add_argument("folder", help="emptied")
    parser.option("packages", "gnome-icon-theme,oxygen-icon-theme,openclipart-png,mate-backgrounds")
    parser.option("count", 0, "of the images, the first ones; 0: all")
    parser.option("oxipng", 0, "recompress each as small as oxipng's level does (package oxipng-pybind); 0: no")
    options = parser.parse_args(parser.arguments)
    empty(options.folder)
    with tempfile.TemporaryDirectory() as box:
        subprocess.run(["apt-get", "download", "-q", *options.packages.split(",")], cwd=box, check=True)
        different, kinds = {}, collections.Counter()
        for package in sorted(os.listdir(box)):
            subprocess.run(["dpkg-deb", "-x", package, "tree"], cwd=box, check=True)
        for path in filter(os.path.isfile, sorted(glob.glob(f"{box}/tree/**/*.png", recursive=True))):  # not every link leads to a file
            with open(path, "rb") as file:
                data = file.read()
            if data.startswith(png.SIGNATURE) and samples_of(path) < 1 << 28:
                different.setdefault(hashlib.sha256(data).digest(), path)
        paths = [different[key] for key in sorted(different)][:options.count or None]
        for number, path in enumerate(paths):
            target = shutil.copy(path, f"{options.folder}/{number:06}.png")
            if options.oxipng:
                importlib.import_module("oxipng").optimize(target, level=options.oxipng)
            with open(target, "rb") as file:
                kinds[file.read(26)[24:]] += 1
    names = {0: "gray", 2: "RGB", 3: "palette", 4: "gray and alpha", 6: "RGBA"}
    print(f"{len(paths)} images, {sum(map(os.path.getsize, images_in(options.folder))) / 1e6:.0f} MB, "
          f"{sum(map(samples_of, images_in(options.folder))) / 1e6:.0f} MB of samples:",
          ", ".join(f"{count} {names[kind[1]]} of {kind[0]} bits" for kind, count in kinds.most_common()))


# --- archives ---------------------------------------------------------------------------------------

def make_tar(path, names, files):
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as archive:
        for name, source in zip(names, files):
            info = tarfile.TarInfo(name)
            info.size = os.path.getsize(source)
            with open(source, "rb") as image:
                archive.addfile(info, image)


def make_archives(folder):
    """FOLDER.tar and FOLDER-shards/ with the images of a folder."""
    names = [f"{i:07}.png" for i in range(len(folder))]
    make_tar(folder.path + ".tar", names, folder.files)
    os.makedirs(folder.path + "-shards")
    for shard in range(SHARDS):
        part = slice(len(folder) * shard // SHARDS, len(folder) * (shard + 1) // SHARDS)
        make_tar(f"{folder.path}-shards/{shard:02}.tar", names[part], folder.files[part])


# --- filters -----------------------------------------------------------------------------------------

def make_matrix(name):
    """Coefficients and divisor. boxN: ones. tentN: a column times a row, rising to the middle. denseN: integers, not
    separable. realN: real numbers."""
    if name == "classic5":
        rows = [[1, 4, 7, 4, 1], [4, 16, 26, 16, 4], [7, 26, 41, 26, 7]]
        return rows + rows[1::-1], 273
    kind, side = name.rstrip("0123456789"), int(name.lstrip("abcdefghijklmnopqrstuvwxyz"))
    generator = random.Random(side)
    if kind in ("box", "tent"):
        line = [1 if kind == "box" else min(i, side - 1 - i) + 1 for i in range(side)]
        return [[a * b for a in line] for b in line], sum(line) ** 2
    if kind == "dense":
        rows = [[generator.randint(-3, 6) for _ in range(side)] for _ in range(side)]
        return rows, max(1, sum(map(sum, rows)))
    return [[generator.random() for _ in range(side)] for _ in range(side)], side * side / 2


def place_filter(name, folder):
    """The path of a filter of conv, or if it has none of that name of a matrix file, written into the folder."""
    path = os.path.join(ROOT, "filters", name + ".mat")
    if not os.path.exists(path):
        rows, divisor = make_matrix(name)
        path = os.path.join(folder, name + ".mat")
        with open(path, "w", encoding="ascii") as file:
            file.write(f"{len(rows[0])} {len(rows)} {divisor} 0\n")
            file.writelines(" ".join(map(str, row)) + "\n" for row in rows)
    return path


def read_matrix(path):
    """Rows, divisor and offset of a matrix file."""
    with open(path, encoding="ascii") as file:
        lines = [[float(word) for word in line.split()] for line in file if line.strip()]
    return {"path": path, "rows": lines[1:], "scale": lines[0][2], "offset": lines[0][3]}


def unsharp_matrix(sigma, amount):
    """The image and `amount` times what a Gaussian blur takes from it, as coefficients for other programs."""
    side = range(-math.ceil(3 * sigma), math.ceil(3 * sigma) + 1)
    line = [math.exp(-x * x / (2 * sigma * sigma)) for x in side]
    blur = amount / sum(line) ** 2
    rows = [[(1 + amount) * (x == y == 0) - blur * a * b for x, a in zip(side, line)] for y, b in zip(side, line)]
    return {"path": "", "rows": rows, "scale": 1, "offset": 0}
