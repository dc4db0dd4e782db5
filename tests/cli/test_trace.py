# SPDX-License-Identifier: MIT
"""--trace: its slices agree with the run, and the file is valid however the run ends."""
import json
import os
import re
import resource
import signal
import subprocess

import numpy as np
import pytest

import images
import program
from folders import fill, fill_with_noise
from program import TIMEOUT, is_sanitized, run, start, stop, until
from test_page import render

STAGES = ["read", "decode", "kernel", "encode", "write"]  # on the CPU


def load(path):
    with open(path, "rb") as file:
        return json.loads(file.read().decode())["traceEvents"]  # strict UTF-8


def slices(events):
    return [event for event in events if event["ph"] == "X"]


def fill_with_tiny(folder, count):
    folder.mkdir()
    data = images.make("rgb8", np.random.default_rng(3), 5, 4).data
    for index in range(count):
        (folder / f"{index:05}.png").write_bytes(data)


def check_rows(events):
    """Each row has a name, and its slices follow one another."""
    rows = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
    assert len(set(rows.values())) == len(rows)
    for tid in {event["tid"] for event in slices(events)}:
        end = 0
        for event in sorted((e for e in slices(events) if e["tid"] == tid), key=lambda e: e["ts"]):
            assert event["ts"] >= end - 0.002, f"{event} begins before the slice before it ends"
            end = event["ts"] + event["dur"]
    return rows


def test_trace_agrees_with_the_report(box):
    fill(box / "in", *(f"{i}.png" for i in range(30)))
    result = run("emboss", "--trace", "t.json", "--json", "-j", "3", "in", "out")
    events, records = load("t.json"), result.records()
    assert set(check_rows(events).values()) == {"worker 0", "worker 1", "worker 2"}
    for record in records:
        if record["type"] != "file":
            continue
        own = [e for e in slices(events) if e["args"]["image"] == record["input"]]
        assert [e["name"] for e in sorted(own, key=lambda e: e["ts"])] == STAGES
        assert len({e["tid"] for e in own}) == 1, "a worker takes its image all the way"
        assert {e["args"]["size"] for e in own} == {"20x14"}
        for event in own:
            assert event["dur"] / 1000 == pytest.approx(record["ms"][event["name"]], abs=2e-4)
    begun, ended = min(e["ts"] for e in slices(events)), max(e["ts"] + e["dur"] for e in slices(events))
    assert ended - begun <= records[-1]["seconds"] * 1e6 + 1000  # which are rounded
    counts = [e["args"] for e in events if e["ph"] == "C"]
    assert counts and max(c["in flight"] for c in counts) <= 3


def test_the_summary_adds_up(box):
    fill_with_noise(box / "in", 12)
    summary = run("emboss", "--json", "-j", "2", "in", "out").records()[-1]
    shares = summary["busy"]
    assert sum(shares.values()) + summary["waiting"] == pytest.approx(1, abs=1e-4)
    for stage, ms in summary["ms"].items():
        assert shares[stage] == pytest.approx(ms / 1000 / summary["seconds"] / 2, rel=0.01, abs=1e-5)
    assert summary["images_per_s"] == pytest.approx(12 / summary["seconds"], rel=1e-3)
    assert summary["mpix_per_s"] == pytest.approx(12 * 65536 / 1e6 / summary["seconds"], rel=1e-3)
    assert 0 < summary["cpu_utilisation"] <= 1 and summary["cores"] >= 1 and summary["overlap"] is None


def test_cpu_utilisation_is_what_the_system_counts(box):
    """The closing line once counted the time of other processes as "cores idle"; the page named it differently."""
    fill_with_noise(box / "in", 8 if is_sanitized() else 30)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    result = run("emboss", "-v", "-j", "1", "-z", "9", "--json", "--html", "p.html", "in", "out")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    summary = result.records()[-1]
    counted = summary["cpu_utilisation"] * summary["cores"] * summary["seconds"]
    # Starting, the page and the search for leaks are not counted: with sanitizers, more than the rest.
    assert (0 if is_sanitized() else used / 2) < counted < used + 0.02
    percent = f"{100 * summary['cpu_utilisation']:.0f}"
    assert re.search(rf"CPU utilisation {percent} %$", result.err.splitlines()[-1]), result.err
    page = render("p.html")
    headline = re.search(r'data-key="cpu_utilisation" data-scale="100">(\d+)</span> %</b><span>CPU utilisation, \d+ core', page)
    assert headline and headline.group(1) == percent
    assert "idle" not in page


@pytest.mark.cuda
def test_streams_have_rows_of_their_own(box):
    fill(box / "in", *(f"{i}.png" for i in range(24)))
    result = run("emboss", "--device", "cuda", "--streams", "2", "--group", "16K", "--trace", "t.json", "--json",
                 "in", "out")
    events = load("t.json")
    rows = check_rows(events)
    groups = [e for e in slices(events) if "images" in e["args"]]
    for engine, stage in (("copy in", "copy_in"), ("kernel", "kernel"), ("copy out", "copy_out")):
        own = [e for e in groups if rows[e["tid"]].endswith(engine)]
        assert {e["name"] for e in own} == {stage} and sum(e["args"]["images"] for e in own) == 24
    # The device's times are on the host's clock: each lies between the start of the run and its end,
    # and no image is encoded before the first group came back.
    back = min(e["ts"] + e["dur"] for e in groups if e["name"] == "copy_out")
    assert back < min(e["ts"] for e in slices(events) if e["name"] == "encode") + 1000
    last = max(e["ts"] + e["dur"] for e in slices(events) if e["name"] == "write")
    assert all(0 < e["ts"] < last for e in groups)
    summary = result.records()[-1]
    assert 0 <= summary["overlap"]["three"] <= summary["overlap"]["two"] < 1
    assert 0 < summary["busy"]["kernel"] < 1


def test_names_of_any_bytes(box):
    os.mkdir("in")
    data = images.make("rgb8", np.random.default_rng(3), 5, 4).data
    names = [b"\xff\xfe.png", b'"\\.png', b"line\nbreak.png", b"a" * 246 + b".png", "é.png".encode()]
    for name in names:
        with open(os.fsencode(box / "in") + b"/" + name, "wb") as file:
            file.write(data)
    run("emboss", "--trace", "t.json", "in", "out")
    shown = {event["args"]["image"] for event in slices(load("t.json"))}
    assert {"in/\ufffd\ufffd.png", 'in/"\\.png', "in/line\nbreak.png", "in/é.png"} < shown
    assert any(name.startswith("…aaa") and name.endswith("a.png") for name in shown)


def test_failed_and_skipped_images(box):
    fill(box / "in", "a.png", "b.png")
    (box / "in" / "bad.png").write_bytes(b"bad")
    (box / "out").mkdir()
    (box / "out" / "b.png").write_bytes(b"old")
    run("emboss", "--skip-existing", "--trace", "t.json", "in", "out", code=1)
    seen = [(e["args"]["image"], e["name"]) for e in slices(load("t.json"))]
    assert ("in/bad.png", "read") in seen and ("in/bad.png", "decode") not in seen
    assert not any(name == "in/b.png" for name, _ in seen)


@pytest.mark.parametrize("number,code", ((signal.SIGINT, 130), (signal.SIGKILL, -9)))
def test_a_run_that_is_ended_leaves_valid_json(box, number, code):
    fill_with_tiny(box / "in", 3000)
    # Names come from a pipe that stays open: the run cannot end before the signal.
    process = start("emboss", "-j1", "--trace", "t.json", "--files-from=-", "in", "out", stdin=subprocess.PIPE)
    os.write(process.stdin.fileno(), "".join(f"{name}\n" for name in os.listdir("in")).encode())
    until(lambda: os.path.exists("t.json") and os.path.getsize("t.json") >= 100000, process)
    assert number != signal.SIGKILL or stop(process)  # between two writes: SIGKILL cuts a write at the end of a page
    process.send_signal(number)
    assert process.wait(TIMEOUT) == code
    process.communicate()
    assert len(slices(load("t.json"))) > 300


def test_a_full_disk_is_said_and_leaves_valid_json(box):
    fill_with_tiny(box / "in", 500)

    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (100000, 100000))

    result = run("emboss", "-j1", "--trace", "t.json", "in", "out", code=1, preexec_fn=limit)
    assert "trace" in result.err and "t.json" in result.err and "500 done, 0 failed" in program.closing(result.err)
    assert os.path.getsize("t.json") <= 100000 and len(slices(load("t.json"))) > 200
    assert len(os.listdir("out")) == 500


def test_a_trace_that_cannot_be_written_ends_the_run_before_it_begins(box):
    fill(box / "in", "a.png")
    for option in ("--trace", "--report", "--html", "--resume"):
        assert f"{option} missing/t: No such file" in run("emboss", option, "missing/t", "in", "out", code=2).err
    assert "/dev/full" in run("emboss", "--trace", "/dev/full", "in", "out", code=1).err
    assert not (box / "out").exists()


def test_a_pipe_gets_the_whole_trace(box):
    fill(box / "in", "a.png")
    reader, writer = os.pipe()
    process = start("emboss", "--trace", f"/dev/fd/{writer}", "in", "out", pass_fds=(writer,))
    os.close(writer)
    with open(reader, "rb") as pipe:
        events = json.loads(pipe.read())["traceEvents"]
    process.communicate()
    assert process.returncode == 0 and len(slices(events)) == 5


@pytest.mark.skipif(is_sanitized() or bool(program.RUNNER), reason="what watches the program has memory of its own")
def test_memory_does_not_grow_with_the_trace(box):
    def peak(count):
        """The peak of memory in bytes, for a trace of 0.47 MB per 1000 images."""
        fill_with_tiny(box / str(count), 1)
        for index in range(1, count):
            os.link(f"{count}/00000.png", f"{count}/{index:05}.png")
        return program.measure("emboss", "--device=cpu", "-q", "-j1", "--no-save", "--trace", "t.json", "--html", "p.html",
                               str(count), "out").peak

    small = peak(1000)  # with fewer, or with more workers, not all buffers are in use
    before = os.path.getsize("t.json")
    large = peak(9000)
    grown = os.path.getsize("t.json") - before
    assert grown > 3 << 20, "the limit below is to be less than the trace"
    assert large < small + grown // 2, f"{small >> 10} KiB for 1000 images, {large >> 10} KiB for 9000"
