# SPDX-License-Identifier: MIT
"""What all cases of tools/bench share: options, one way to time what is compared, tables and JSON.

What is compared runs once unmeasured, then in rounds A B C, B C A, ..., so that a machine that warms up or is disturbed
affects all alike, and no way always follows the same other one. Figures are medians, with the fastest and the slowest.
"""
import argparse
import datetime
import importlib.metadata
import json
import multiprocessing
import os
import platform
import resource
import shutil
import statistics
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
CORES = len(os.sched_getaffinity(0))


class Failed(Exception):
    """A program ended with an error, or without all of its results."""


class Parser(argparse.ArgumentParser):
    """The options of a case; those that all cases have are added here."""

    def __init__(self, case, description, arguments):
        super().__init__(prog=f"tools/bench {case}", description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
        self.case, self.arguments = case, arguments
        self.add_argument("--conv", metavar="PATH", action="append", help="the program; some cases compare several (default: CONV_BINARY, build/conv)")
        self.add_argument("--rounds", type=int, metavar="N", help="measured rounds")
        self.add_argument("--json", metavar="FILE", help="also write all figures, with the machine")

    def option(self, name, default=None, help=None, **more):
        """An option whose type is that of its default."""
        if default is not None and not isinstance(default, bool):
            more.setdefault("type", type(default))
            help = f"{help or ''} (default: %(default)s)".lstrip()
        if default is False:
            more["action"] = "store_true"
        self.add_argument(f"--{name}", default=default, help=help, **more)

    def read(self, rounds=5):
        """What comes after -- are options of conv."""
        own, _, self.rest = split(self.arguments, "--")
        options = self.parse_args(own)
        options.case, options.arguments, options.conv_options = self.case, self.arguments, self.rest
        options.rounds = options.rounds or rounds
        options.convs = [os.path.abspath(path) for path in options.conv or [os.environ.get("CONV_BINARY", f"{ROOT}/build/conv")]]
        options.conv = options.convs[0]
        for path in options.convs:
            if not os.access(path, os.X_OK):
                self.error(f"no program at {path}: build conv or give --conv PATH")
        return options


def split(items, at):
    return (items[:items.index(at)], at, items[items.index(at) + 1:]) if at in items else (items, None, [])


def optional(name):
    """A Python module, or None and a line on stderr."""
    try:
        return importlib.import_module(name)
    except Exception as error:  # CUDA packages fail in many ways
        print(f"{name}: skipped ({type(error).__name__}: {str(error)[:80]})", file=sys.stderr)
        return None


def versions_of(*packages):
    """Of packages of Python, for the head of a report."""
    def version_of(package):
        try:
            return f"{package} {importlib.metadata.version(package)}"
        except importlib.metadata.PackageNotFoundError:
            return f"no {package}"
    return ", ".join(map(version_of, packages))


# --- times -----------------------------------------------------------------------------------------

class Times:
    """Wall time, and processor time in the program and in the system, of the runs of one way; in seconds."""

    def __init__(self):
        self.wall, self.user, self.system, self.results = [], [], [], []

    def add(self, call):
        before, start = usage(), time.perf_counter()
        result = call()
        wall, after = time.perf_counter() - start, usage()
        if isinstance(result, Clock):  # it measured itself, without what comes after
            wall, after, result = result.wall, result.usage, result.result
        self.wall.append(wall)
        self.user.append(after[0] - before[0])
        self.system.append(after[1] - before[1])
        self.results.append(result)

    median = property(lambda self: statistics.median(self.wall))
    cpu = property(lambda self: statistics.median(u + s for u, s in zip(self.user, self.system)))

    def record(self):
        return {"seconds": self.wall, "user_seconds": self.user, "system_seconds": self.system}

    def __str__(self):
        return spread(self.wall)


class Clock:
    """What a way returns that cleans up after its measured part."""

    def __init__(self, result=None, wall=None):
        self.usage, self.result, self.wall = usage(), result, wall


def usage():
    both = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime for one in both), sum(one.ru_stime for one in both)


def spread(values, digits=3):
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})"


def guarded(call):
    """A call of a package, whose errors make it fail alone."""
    try:
        call()
    except Exception as error:
        raise Failed(f"{type(error).__name__}: {str(error)[:120]}") from error


def take_turns(ways, rounds, warm_up=1, skip=()):
    """{name: Times} of {name: call}. A way whose name begins with one of `skip` and that fails in the first round is left
    out with a message; any other failure ends the program."""
    ways, times, number = dict(ways), {}, 0
    for turn in range(warm_up + rounds):
        names = list(ways)
        number = turn % len(names)
        for name in names[number:] + names[:number]:
            try:
                (times.setdefault(name, Times()) if turn >= warm_up else Times()).add(ways[name])
            except Failed as failure:
                if turn > 0 or not name.startswith(tuple(skip)):
                    sys.exit(f"{name}: {failure}")
                print(f"{name}: {failure}: skipped", file=sys.stderr)
                del ways[name]
                times.pop(name, None)
        if not ways:
            sys.exit("nothing is left to measure")
    return {name: times[name] for name in ways}


def run(command, out=None, count=None, keep=False, environment=None):
    """Runs a program, whose results are in `out`: `count` files. They are removed afterwards, which is not measured."""
    start = time.perf_counter()
    done = subprocess.run([os.fspath(word) for word in command], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                          env={**os.environ, **(environment or {})})
    clock = Clock(wall=time.perf_counter() - start)
    made = [] if out is None or not os.path.exists(out) else [out] if os.path.isfile(out) else [e.path for e in os.scandir(out)]
    if done.returncode or (count is not None and len(made) != count):
        message = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
        raise Failed(f"exit code {done.returncode}, {len(made)} results; {message}")
    clock.result = sum(os.path.getsize(path) for path in made)
    if out is not None and not keep:
        remove(out)
    return clock


def remove(path):
    """Removes a file or a folder; one of many files with all cores: freeing tens of gigabytes takes one longer than a run."""
    if os.path.isfile(path):
        os.remove(path)
    elif os.path.isdir(path):
        files = [entry.path for entry in os.scandir(path) if entry.is_file(follow_symlinks=False)]
        if len(files) > 1000:
            with multiprocessing.Pool(CORES) as pool:
                pool.map(os.unlink, files, chunksize=32)
        shutil.rmtree(path)


def ask(command):
    """The JSON that a program prints."""
    return values_of(subprocess.run(command, stdout=subprocess.PIPE, encoding="utf-8", check=True).stdout)


def values_of(text):
    """JSON values one after the other."""
    values, decoder = [], json.JSONDecoder()
    while text.strip():
        value, end = decoder.raw_decode(text.lstrip())
        values.append(value)
        text = text.lstrip()[end:]
    return values


# --- results ---------------------------------------------------------------------------------------

def machine(conv):
    model = platform.processor() or platform.machine()
    with open("/proc/cpuinfo") as file:
        model = next((line.split(":", 1)[1].strip() for line in file if line.startswith("model name")), model)
    listed = subprocess.run([conv, "devices", "--json"], capture_output=True, text=True).stdout
    gpus = [device.get("model", "?") for device in json.loads(listed or "{}").get("cuda", [])]
    return {"cpu": model, "cores": CORES, "gpus": gpus, "system": f"{platform.system()} {platform.release()}",
            "load": os.getloadavg()[0], "date": datetime.date.today().isoformat()}


class Report:
    """Tables in Markdown on standard output, and the same figures for --json."""

    def __init__(self, options, text=""):
        self.options, self.rows, self.machine = options, [], machine(options.conv)
        gpus = f", {len(self.machine['gpus'])} × {self.machine['gpus'][0]}" if self.machine["gpus"] else ""
        print(f"{text}{'; ' if text else ''}{self.machine['date']}, {self.machine['cpu']}, {CORES} cores{gpus}, load "
              f"{self.machine['load']:.1f}, medians of {options.rounds} rounds", flush=True)

    def table(self, *columns):
        """Columns of numbers, after those whose names end with a space, which hold text."""
        print("\n| " + " | ".join(column.strip() for column in columns) + " |\n|"
              + "".join("---|" if column.endswith(" ") else "--:|" for column in columns), flush=True)

    def row(self, *cells, **record):
        print("| " + " | ".join(str(cell) for cell in cells) + " |", flush=True)
        self.rows.append({"cells": [str(cell) for cell in cells], **{k: v.record() if isinstance(v, Times) else v for k, v in record.items()}})

    def finish(self):
        if self.options.json:
            with open(self.options.json, "w", encoding="utf-8") as file:
                json.dump({"case": self.options.case, "arguments": self.options.arguments, "machine": self.machine, "rows": self.rows}, file, indent=1)
                file.write("\n")
