# SPDX-License-Identifier: MIT
"""--trace and --html of runs on a GPU without room or that fails in the middle, and of runs that continue on other devices.

The device is that of tests/faulty.
"""
import json
import signal
import time

import numpy as np
import pytest

import images
from faulty import SMALL, big_images, needs_faulty, run_faulty
from folders import fill
from program import TIMEOUT, run, start, until, waiting_bytes, waits_and_catches
from test_page import check_figures, check_page
from test_trace import check_rows, load, slices

SHOWN = ("--trace=t.json", "--html=p.html", "--report=r.jsonl")
ENGINES = {"copy in": "copy_in", "kernel": "kernel", "copy out": "copy_out"}


def check_shown():
    """Trace, page and report are whole and agree. Returns the events, the page and the records."""
    events, page = load("t.json"), check_page("p.html")
    with open("r.jsonl") as file:
        records = [json.loads(line) for line in file]
    rows, summary = check_rows(events), records[-1]
    assert page.record == summary
    check_figures(page, summary)
    used = {event["tid"] for event in slices(events)}  # the page leaves out rows without slices
    assert all(name in page.text for tid, name in rows.items() if tid in used)
    done = {r["input"]: r for r in records if r["type"] == "file" and r["status"] == "done"}
    for stage in ("decode", "encode", "write"):
        own = [e["args"]["image"] for e in slices(events) if e["name"] == stage and e["args"]["image"] in done]
        assert sorted(own) == sorted(done), f"each image that was done has one slice of {stage}"
    return events, page, records


def check_streams(events, records):
    """The streams' tracks: slices per engine, and the kernel slices that ran on the CPU. They agree with the report."""
    rows = check_rows(events)
    found = {stage: [] for stage in ENGINES.values()}
    for event in slices(events):
        name = rows[event["tid"]]
        if name.startswith("stream"):
            assert event["name"] == ENGINES[name.split(" ", 2)[2]]
            found[event["name"]].append(event)
    fallback = [e for e in found["kernel"] if e["args"].get("device") == "cpu"]
    assert len(found["copy_in"]) == len(found["copy_out"]) == len(found["kernel"]) - len(fallback)
    assert not any("device" in e["args"] for e in found["copy_in"] + found["copy_out"])
    assert sum(e["args"]["images"] for e in found["kernel"]) == records[-1]["done"]
    for stage, own in found.items():
        assert sum(e["dur"] for e in own) / 1000 == pytest.approx(records[-1]["ms"][stage], rel=0.01, abs=0.05), stage
    # A track holds one slice at a time, so the device was busy for the union of the slices of all tracks.
    ends = sorted((e["ts"], e["ts"] + e["dur"]) for e in found["kernel"])
    busy, until = 0, 0
    for begin, end in ends:
        busy += max(0, end - max(begin, until))
        until = max(until, end)
    assert busy / 1e6 / records[-1]["seconds"] == pytest.approx(records[-1]["busy"]["kernel"], rel=0.01, abs=1e-3)
    return found, fallback


def bytes_of(events):
    return sum(e["args"]["bytes"] for e in events)


@needs_faulty
@pytest.mark.parametrize("where", (1, 5))
def test_a_device_that_is_lost(box, batch, where):
    done = run_faulty(box, f"lost={where}", "--device=all", *SMALL, *SHOWN)
    events, page, records = check_shown()
    found, fallback = check_streams(events, records)
    assert records[-1]["done"] == 63 and len(fallback) > 0
    assert len(found["copy_in"]) == where - 1
    if where > 1:
        assert min(e["ts"] for e in fallback) > min(e["ts"] for e in found["copy_in"])
    assert "CUDA failed to do what a test forbids; continuing on the CPU" in page.text
    assert done.stderr.count("continuing on the CPU") == 1


@needs_faulty
def test_a_device_that_is_lost_and_nothing_else_may_do_the_work(box, batch):
    run_faulty(box, "lost=4", "--device=cuda", "--streams=2", *SMALL, *SHOWN, code=1)
    events, page, records = check_shown()
    found, fallback = check_streams(events, records)
    assert fallback == [] and len(found["kernel"]) == 3 and 0 < records[-1]["done"] < 63
    assert records[-1]["done"] + records[-1]["failed"] == 63
    assert "CUDA failed to do what a test forbids" in page.text  # failures are grouped by their reason
    failed = [record["input"] for record in records if record["type"] == "file" and record["status"] == "failed"]
    assert len(failed) == records[-1]["failed"] and all(name in page.text for name in failed[:3])


@needs_faulty
@pytest.mark.parametrize("room,parts", ((1_280_000, 1), (333_000, 3)))
def test_a_slice_is_a_part(box, room, parts):
    big_images(box)
    run_faulty(box, f"room={room}", "--device=all", "--group=256K", *SHOWN)
    events, page, records = check_shown()
    found, fallback = check_streams(events, records)
    assert fallback == [] and 'class="note"' not in page.source
    for own in found.values():
        assert len(own) == 3 * parts and bytes_of(own) >= 3 * 3 * 512 * 640
        assert max(e["args"]["bytes"] for e in own) <= room


@needs_faulty
def test_parts_of_one_group_on_both(box, batch):
    run_faulty(box, "room=8000 lost=40", "--device=all", "--group=8M", "-j2", *SHOWN)
    events, _, records = check_shown()
    found, fallback = check_streams(events, records)
    assert len(fallback) > 0 and len(found["copy_in"]) > 0
    run_faulty(box, "", "--device=all", "--group=8M", "-j2", *SHOWN)
    whole, _, records = check_shown()
    assert bytes_of(found["kernel"]) == bytes_of(check_streams(whole, records)[0]["kernel"])


@needs_faulty
def test_what_has_no_room_at_all(box):
    big_images(box)
    run_faulty(box, "room=300000", "--device=all", *SHOWN)
    events, page, records = check_shown()
    found, fallback = check_streams(events, records)
    assert len(fallback) == 9 and found["copy_in"] == [] and records[-1]["busy"]["copy_in"] == 0
    assert "images without room there are filtered on the CPU" in page.text


def test_a_run_that_goes_on(box):
    fill(box / "in", "a.png", "b.png", "c.png")
    run("emboss", "--resume=journal", "in", "out")
    fill(box / "in", "d.png", "e.png")
    options = ("--resume=journal", *SHOWN)
    run("emboss", *options, "in", "out")
    events, page, records = check_shown()
    assert {e["args"]["image"] for e in slices(events)} == {"in/d.png", "in/e.png"}
    assert (records[-1]["done"], records[-1]["skipped"], len(page.images)) == (2, 3, 4)
    run("emboss", *options, "in", "out")
    events, page, records = check_shown()
    assert slices(events) == [] and (records[-1]["done"], records[-1]["skipped"], len(page.images)) == (0, 5, 0)


def test_in_place_there_is_no_before(box):
    fill(box / "in", "a.png", "b.png")
    run("emboss", "--in-place", "--resume=journal", *SHOWN, "in")
    _, page, records = check_shown()
    assert records[-1]["done"] == 2 and page.images == []


def test_waiting_for_a_pipe_is_not_reading(box):
    """Between two slices there is at least the time from when the process sleeps before an empty pipe to the next byte."""
    data = images.make("rgb8", np.random.default_rng(3), 500, 400, filters=0).data
    process = start("emboss", "--trace=t.json", "--report=r.jsonl", "-", "out.png", stdin=-1)
    process.stdin.write(data[:len(data) // 2])
    process.stdin.flush()
    until(lambda: not waiting_bytes(process.stdin) and waits_and_catches(process, signal.SIGINT), process)
    begun = time.monotonic()
    time.sleep(0.1)
    waited = time.monotonic() - begun
    process.communicate(data[len(data) // 2:], timeout=TIMEOUT)
    assert process.returncode == 0
    events = load("t.json")
    check_rows(events)
    reads = sorted((e["ts"], e["ts"] + e["dur"]) for e in slices(events) if e["name"] == "read")
    assert max((after[0] - before[1] for before, after in zip(reads, reads[1:])), default=0) >= 1e6 * waited
    with open("r.jsonl") as file:
        summary = json.loads(file.readlines()[-1])
    assert sum(end - begin for begin, end in reads) / 1000 == pytest.approx(summary["ms"]["read"], abs=0.01)
