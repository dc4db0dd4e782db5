# SPDX-License-Identifier: MIT
"""--watch sees every way in which a file can arrive or change. A random sequence of all of them; in the end each image has
the output of its last version."""
import ctypes
import mmap
import os
import random
import shutil
import signal
from pathlib import Path

import numpy as np
import pytest

import images
from folders import image, is_embossed
from program import closing, stop, until
from watching import watch

LIBC = ctypes.CDLL(None, use_errno=True)
EXCHANGE = 2


def exchange(a, b):
    if LIBC.renameat2(-100, os.fsencode(a), -100, os.fsencode(b), EXCHANGE) != 0:
        pytest.skip("no RENAME_EXCHANGE")


def give_name(fd, path):
    at_cwd, follow = -100, 0x400
    if LIBC.linkat(at_cwd, b"/proc/self/fd/%d" % fd, at_cwd, os.fsencode(path), follow) != 0:
        raise OSError(ctypes.get_errno(), "linkat")


class World:
    """A watched tree, a folder beside it, and what can happen to both."""

    def __init__(self, box, seed):
        self.choose = random.Random(seed)
        self.source, self.aside = box / "in", box / "aside"
        self.source.mkdir()
        self.aside.mkdir()
        self.count = 0
        self.made = {}  # bytes -> image

    def new(self):
        self.count += 1
        made = image(self.count, width=self.choose.choice((5, 9, 90)), height=7)
        self.made[made.data] = made
        return made.data

    def folders(self):
        return [self.source, *(path for path in self.source.rglob("*") if path.is_dir())]

    def files(self):
        return [path for path in self.source.rglob("*.png") if path.is_file() and not path.is_symlink()]

    def name(self):
        """Of a new image or of one that is there."""
        return self.choose.choice(self.folders()) / f"{self.choose.randrange(30)}.png"

    def outside(self):
        self.count += 1
        path = self.aside / f"{self.count}.png"
        path.write_bytes(self.new())
        return path

    def write(self):
        data, path = self.new(), self.name()
        path.unlink(missing_ok=True)
        with open(path, "wb", buffering=0) as file:
            half = self.choose.randrange(len(data))
            file.write(data[:half])
            self.pause()
            file.write(data[half:])

    def rewrite(self):
        files = self.files()
        if files:
            self.write_into(self.choose.choice(files))

    def write_into(self, path):
        data = self.new()
        with open(path, "wb", buffering=0) as file:
            file.write(data[:50])
            self.pause()
            file.write(data[50:])

    def rename(self):
        os.rename(self.outside(), self.name())

    def rename_hidden(self):
        path = self.name()
        hidden = path.with_name(f".{path.name}.Xy12")
        hidden.write_bytes(self.new())
        os.utime(hidden, (1e9, 1e9))
        os.rename(hidden, path)

    def unnamed(self):
        path = self.name()
        path.unlink(missing_ok=True)
        fd = os.open(path.parent, os.O_TMPFILE | os.O_WRONLY, 0o644)
        os.write(fd, self.new())
        if self.choose.random() < 0.5:
            give_name(fd, path)
            os.close(fd)
        else:  # closed for writing before it has a name
            reader = os.open(f"/proc/self/fd/{fd}", os.O_RDONLY)
            os.close(fd)
            give_name(reader, path)
            os.close(reader)

    def link(self):
        path, outside = self.name(), self.outside()
        path.unlink(missing_ok=True)
        os.link(outside, path)
        if self.choose.random() < 0.7:
            outside.unlink()

    def link_before_it_is_complete(self):
        path, outside, data = self.name(), self.outside(), self.new()
        path.unlink(missing_ok=True)
        with open(outside, "wb", buffering=0) as file:
            file.write(data[:60])
            os.link(outside, path)
            self.pause()
            file.write(data[60:])

    def symlink(self):
        path = self.name()
        path.unlink(missing_ok=True)
        if self.choose.random() < 0.5:
            path.symlink_to(self.outside())
        else:
            self.count += 1
            late = self.aside / f"{self.count}.png"
            path.symlink_to(late)
            self.pause()
            late.write_bytes(self.new())

    def swap(self):
        path = self.name()
        if path.is_file():
            exchange(path, self.outside())

    def swap_within(self):
        files = self.files()
        if len(files) > 1:
            exchange(*self.choose.sample(files, 2))

    def map(self):
        files = self.files()
        if not files:
            return
        path = self.choose.choice(files)
        with open(path, "r+b") as file:
            pages = mmap.mmap(file.fileno(), 0)
        other = self.new()
        if len(other) == len(pages):
            pages[:] = other
        pages.close()

    def times(self):
        data, path = self.new(), self.name()
        path.unlink(missing_ok=True)
        with open(path, "wb") as file:
            file.write(data)
            file.flush()
            os.utime(file.fileno(), (1e9, 1e9))
            os.fchmod(file.fileno(), 0o600)

    def remove(self):
        self.name().unlink(missing_ok=True)

    def fill_folder(self):
        self.count += 1
        folder = self.choose.choice(self.folders()[:3]) / f"d{self.count}" / "e"
        folder.mkdir(parents=True)
        for i in range(3):
            (folder / f"{i}.png").write_bytes(self.new())

    def tree(self):
        self.count += 1
        folder = self.aside / f"t{self.count}"
        (folder / "below").mkdir(parents=True)
        for name in ("a.png", "below/b.png"):
            (folder / name).write_bytes(self.new())
        os.rename(folder, self.choose.choice(self.folders()[:3]) / folder.name)

    def move_folder(self):
        if len(self.folders()) > 2:
            self.count += 1
            os.rename(self.choose.choice(self.folders()[1:]), self.source / f"m{self.count}")

    def swap_folders(self):
        top = [path for path in self.source.iterdir() if path.is_dir()]
        if len(top) > 1:
            exchange(*self.choose.sample(top, 2))

    def remove_folder(self):
        if len(self.folders()) > 6:
            shutil.rmtree(self.choose.choice(self.folders()[1:]))

    def pause(self):
        """Sometimes the program comes to see what is half done: where it does not, the test is only easier."""
        if self.choose.random() < 0.3:
            signal.sigtimedwait([], self.choose.choice((0.001, 0.015, 0.05)))

    def step(self):
        self.choose.choice((
            self.write, self.rewrite, self.rename, self.rename_hidden, self.unnamed, self.link, self.link_before_it_is_complete,
            self.symlink, self.swap, self.swap_within, self.map, self.times, self.remove, self.fill_folder, self.tree,
            self.move_folder, self.swap_folders, self.remove_folder))()

    def late(self, target):
        """The images without the output of their last version."""
        found = []
        for path in self.source.rglob("*.png"):
            output = target / path.relative_to(self.source)
            if not output.exists() or not is_embossed_now(output, self.made[path.read_bytes()]):
                found.append(path)
        return found


def is_embossed_now(output, made):
    try:
        return images.read(output).shape == made.planes.shape and is_embossed(output, made)
    except FileNotFoundError:  # it is being replaced
        return False


def test_random_arrivals(box):
    seed = int(os.environ.get("CONV_SEED") or random.randrange(1 << 32))
    print(f"CONV_SEED={seed}")
    world, target = World(box, seed), box / "out"
    with watch(world.source, target, "-r", "-j2") as watched:
        for turn in range(int(os.environ.get("CONV_ROUNDS") or 6)):
            if world.choose.random() < 0.4:
                stop(watched.process)
            for _ in range(world.choose.choice((1, 5, 30))):
                world.step()
            watched.process.send_signal(signal.SIGCONT)
            until(lambda: not world.late(target), watched.process)
        assert ", 0 failed" in closing(watched.end(signal.SIGTERM))


def test_a_folder_above_is_renamed(box):
    """The system reports nothing about that: images were ignored."""
    source, target = box / "a" / "b" / "in", box / "out"
    source.mkdir(parents=True)
    with watch(source, target) as watched:
        os.rename(box / "a", box / "c")
        (box / "c" / "b" / "in" / "x.png").write_bytes(image().data)
        assert f"{source}: the folder was removed or renamed" in watched.end(None, code=1)


def test_a_tree_arrives_while_events_are_dropped(box):
    """Its files have not changed for long: they were not listed again."""
    with open("/proc/sys/fs/inotify/max_queued_events", encoding="ascii") as file:
        most = int(file.read())
    if most > 20000:
        pytest.skip(f"the system keeps {most} events")
    world, target = World(box, 1), box / "out"
    (box / "aside" / "t" / "u").mkdir(parents=True)
    for name in ("a.png", "u/b.png"):
        path = box / "aside" / "t" / name
        path.write_bytes(world.new())
    with watch(world.source, target, "-r") as watched:
        stop(watched.process)
        for i in range(most + 10):  # equal events in a row count as one
            os.close(os.open(world.source / "ab"[i % 2], os.O_WRONLY | os.O_CREAT))
        os.rename(box / "aside" / "t", world.source / "t")
        watched.process.send_signal(signal.SIGCONT)
        until(lambda: not world.late(target), watched.process)


@pytest.mark.parametrize("options, output", ((("--to", "png"), "a.png"), (("--output-type", "f32"), "a.npy")))
def test_an_image_of_another_format_takes_the_name(box, options, output):
    """While both are there, the later one is refused; it gets the output when the other one goes."""
    source, target = box / "in", box / "out"
    source.mkdir()
    second = image(2, width=16)
    (source / "a.jpg").write_bytes(image(1, width=8).data)  # what it is does not depend on its name

    def width():
        path = target / output
        if not path.exists():
            return 0
        return np.load(path).shape[-1] if output == "a.npy" else images.read(path).shape[-1]

    with watch(source, target, "--report=r", *options, filters="identity") as watched:
        until(lambda: width() == 8, watched.process)
        (source / "a.png").write_bytes(second.data)
        until(lambda: Path("r").read_text().count('in/a.png","output') > 0, watched.process)
        assert width() == 8
        (source / "a.jpg").unlink()
        until(lambda: width() == 16, watched.process)
        assert watched.end(signal.SIGTERM).count("another image has the same output") == 1


def test_an_image_that_is_replaced_by_one_of_another_format(box):
    """It had "the same output" as the one that was gone."""
    source, target = box / "in", box / "out"
    source.mkdir()
    (source / "a.jpg").write_bytes(image(1, width=8).data)
    with watch(source, target, "--to", "png", filters="identity") as watched:
        watched.has("a.png")
        stop(watched.process)
        (source / "a.png").write_bytes(image(2, width=16).data)
        (source / "a.jpg").unlink()
        watched.process.send_signal(signal.SIGCONT)
        until(lambda: images.read(target / "a.png").shape[-1] == 16, watched.process)
        assert "2 done, 0 failed" in closing(watched.end(signal.SIGTERM))
