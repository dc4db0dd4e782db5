# SPDX-License-Identifier: MIT
"""Several GPUs: groups go to the device that is ready, other devices take over from one that fails, and the report has each one's share.

The devices are those of tests/faulty: the CPU with an asynchronous interface, any number of them. Tests with `real` put
CUDA behind each of them, on a machine with one GPU the same one. Where a test is about which device gets work, `slow` is
many times as long as a busy machine with a sanitizer needs to prepare a group: a sleeping device uses no processor time.
"""
import json
import re

import numpy as np
import pytest

import images
import program
from faulty import ALPHA, CHAIN, FAULTY, KINDS, SMALL, big_images, check_named, needs_faulty, run_faulty, warnings
from folders import fill, tree
from program import EMULATED, run
from test_page import render
from test_trace import check_rows, load, slices

pytestmark = needs_faulty

TWO = "--device=cuda:0,cuda:1"
MANY = ("--group=1K", "-j2")  # one image per group


def summary(path="r.jsonl"):
    with open(path) as file:
        return [json.loads(line) for line in file][-1]


def shares(done):
    """The shares in the closing line: {name: percent}."""
    return {name: int(share) for name, share in re.findall(r"(c\w+(?::\d+)?) \((\d+) %\)", done.stderr.splitlines()[-1])}


@pytest.mark.parametrize("asked,count", (("all", 3), ("cuda:2,cuda:0", 2), ("cuda:1", 1), ("cuda", 1)))
def test_all_selected_devices_work(box, batch, gpu, asked, count):
    done = run_faulty(box, f"{gpu}devices=3 slow=100", f"--device={asked}", "--streams=2", *MANY, "--report=r.jsonl", "-v")
    devices = summary()["devices"]
    names = asked.split(",") if ":" in asked else [f"cuda:{i}" for i in range(count)]
    assert [d["name"] for d in devices] == names
    assert all(d["images"] > 0 and d["busy"]["kernel"] > 0 for d in devices)
    assert sum(d["images"] for d in devices) == 63 and sum(d["share"] for d in devices) == pytest.approx(1, abs=1e-5)
    if count > 1:
        assert shares(done) == {d["name"]: round(100 * d["share"]) for d in devices}
        assert ", 2 streams" in done.stderr
    else:
        assert f", {names[0]}, 2 streams" in done.stderr


OWN_TIME = pytest.mark.skipif(bool(program.RUNNER), reason="what runs the program takes its own time")


@OWN_TIME
def test_a_faster_device_gets_more(box, batch):
    run_faulty(box, "devices=2 0:slow=2000 1:slow=3", "--device=all", "--streams=1", *MANY, "--report=r.jsonl")
    slow, fast = summary()["devices"]
    assert fast["images"] > 3 * slow["images"]


@OWN_TIME
@pytest.mark.parametrize("faults,options,streams", (
    ("slow={}", (), range(5, 9)), ("slow=20", ("--device=cuda", "--streams=4"), (4,)), ("slow={} full=5", (), (4,)),
    ("devices=2 slow={}", ("--device=all",), range(5, 9)), ("devices=2 slow=20 0:lost=20", ("--device=all",), range(4, 9))))
def test_a_device_gets_more_streams_while_groups_wait(box, batch, faults, options, streams):
    """Without --streams. A stream without memory is not a failure. A device may be lost before it gets more streams."""
    for slow in (60, 400, 2400):  # ms; groups wait once they are prepared faster than that
        done = run_faulty(box, faults.format(slow), *(options or ("--device=cuda",)), *MANY, "--trace=t.json", "-v")
        count = int(re.search(r", (\d+) streams?\b", done.stderr)[1])
        if count in streams:
            break
    assert count in streams
    if "lost" not in faults:
        kernels = [track for track in check_rows(load("t.json")).values() if track.endswith("kernel")]
        assert len(kernels) == len(set(kernels)) and len(kernels) >= min(streams)


CODERS = (("--decode-on=gpu",), ("--encode-on=gpu",), ("--decode-on=gpu", "--encode-on=gpu"))


@pytest.mark.parametrize("coders", CODERS)
@pytest.mark.parametrize("faults", ("", "codes", "codes devices=2 slow=5", "codes together=3 slow=5",
                                    "codes together=3 apart slow=5", "codes lost=4", "codes room=20000", "codes pins=3"))
def test_fake_devices_code_png(box, batch, faults, coders):
    """Or leave it to the CPU, which crashed where they have no coders. The CPU codes everything, so files are equal."""
    device = "--device=cuda:0,cuda:1" if "devices" in faults else "--device=cuda"
    # Without --decode-on, a device gets its share of the decoding if the run lasts long, as on a busy machine.
    run_faulty(box, faults, device, "--alpha=keep", "--decode-on=cpu", *coders, "--group=4K", "-j2", "--report=r.jsonl", code=1 if "lost" in faults else 0)
    if faults and "lost" not in faults and "room" not in faults:
        counts = [summary()[f"{what}d_on_device"] for what in ("decode", "encode")]
        assert (counts[0] > 20) == ("--decode-on=gpu" in coders) and (counts[1] == 63) == ("--encode-on=gpu" in coders)


@pytest.mark.parametrize("alpha", ALPHA[::2])
@pytest.mark.parametrize("which, where", ((0, 4), (1, 1)))
def test_others_do_what_a_lost_one_cannot(box, batch, alpha, which, where):
    faults = f"devices=2 {1 - which}:slow=100 {which}:lost={where}"  # it is fast enough to get there
    done = run_faulty(box, faults, TWO, f"--alpha={alpha}", "--streams=2", *MANY, "--report=r.jsonl")
    assert len(re.findall(rf"(?m)^conv: cuda:{which}: CUDA failed .*; continuing on the others$", done.stderr)) == 1
    assert len(done.stderr.splitlines()) == 2
    lost, other = (summary()["devices"][i] for i in (which, 1 - which))
    assert lost["images"] + other["images"] == 63 and (lost["images"] > 0) <= (where > 1)


@pytest.mark.parametrize("faults", ("0:lost=1 1:lost=6", "lost=4", "0:lost=4 2:lost=1 1:lost=3"))
def test_when_the_last_one_is_lost(box, batch, faults):
    count = 3 if "2:" in faults else 2
    done = run_faulty(box, f"devices={count} slow=1 {faults}", "--device=all", *SMALL, "--report=r.jsonl")
    said = re.findall(r"(?m)^conv: cuda:\d: CUDA failed .*; (.*)$", done.stderr)
    assert said == ["continuing on the others"] * (count - 1) + ["continuing on the CPU"]
    assert summary()["devices"][-1]["name"] == "cpu"
    assert sum(d["images"] for d in summary()["devices"]) == 63

    names = ",".join(f"cuda:{i}" for i in range(count))
    done = run_faulty(box, f"devices={count} slow=1 {faults}", f"--device={names}", "--streams=2", *SMALL, code=1)
    check_named(box, done)


@pytest.mark.cuda
def test_cuda_loses_all_devices_of_a_process_at_once(box, batch):
    """All devices may be lost; those that continue are tested above."""
    done = run_faulty(box, "real devices=2 0:trap=3", "--device=all", *SMALL)
    assert 1 <= len(re.findall(r"(?m)^conv: cuda:\d: CUDA failed", done.stderr)) <= 2


@pytest.mark.parametrize("where", (6, 3, 10))
def test_parts_of_a_group_run_wherever_they_can(box, batch, where):
    """There is room for single planes only, then a device is lost: parts of one group come from several devices or the CPU."""
    for faults in ("devices=2 room=8000 0:", "devices=2 room=8000 ", "room=8000 "):
        run_faulty(box, f"{faults}lost={where}", "--device=all", "--group=8M", "-j2")


def test_what_has_no_room_on_one_device_goes_to_another(box):
    """Each image's planes are too large for the first device, and no other device may do the work."""
    big_images(box)
    done = run_faulty(box, "devices=2 0:room=300000", TWO, "--report=r.jsonl")
    assert len(warnings(done.stderr)) <= 1 and summary()["devices"][0]["images"] == 0


@pytest.mark.parametrize("fault", ("streams=1000", "closed"))
def test_a_device_that_is_full_from_the_start(box, batch, fault):
    done = run_faulty(box, f"devices=2 1:{fault}", "--device=all", *SMALL)
    assert len(re.findall(r"(?m)^conv: cuda:1: CUDA failed .*; (skipped|continuing on the others)$", done.stderr)) == 1
    for count, named in ((2, TWO), (1, "--device=cuda")):
        done = run_faulty(box, f"devices={count} {count - 1}:{fault}", named, *SMALL, code=4)
        assert len(warnings(done.stderr)) == 1 and done.made == [], "one that was asked for by name must be there"
        done = run_faulty(box, f"devices={count} {fault}", "--device=all", *SMALL)
        assert "on the CPU" in warnings(done.stderr)[-1]
    assert len(warnings(done.stderr)) == (2 if fault == "closed" else 1)  # of one device: the cause, and the consequence


def test_memory_that_a_lost_device_has_pinned_is_never_reused(box):
    """Slots grow and give their memory back while one of two devices is lost: the fake one aborts the program when
    memory is freed that it has pinned."""
    (box / "in").mkdir()
    rng = np.random.default_rng(3)
    for index in range(0, 40, 2 if program.is_sanitized() else 1):
        side = 60 + 12 * index
        (box / "in" / f"{index:02}.png").write_bytes(images.make("rgb8", rng, side, side, filters=0, level=1).data)
    run_faulty(box, "devices=2 slow=1 1:lost=2", TWO, "--mem-limit=3M", "--group=1K", "-j3")


@pytest.mark.parametrize("asked,code,word", (
    ("cuda:0,cuda:0", 2, "twice"), ("cuda,cuda:0", 2, "twice"), ("cuda:0,", 2, "unknown device"), (",cuda:0", 2, "unknown device"),
    ("cuda:0,cpu", 2, "unknown device"), ("cuda:0,all", 2, "unknown device"), ("cuda:0;cuda:1", 2, "unknown device"),
    ("cuda:x,cuda:1", 2, "unknown device"), ("al", 2, "did you mean 'all'"), ("cuda:0,cuda:2", 4, "0 to 1"), ("cuda:7", 4, "0 to 1")))
def test_lists_that_make_no_sense(box, asked, code, word):
    fill(box / "in", "a.png")
    done = run_faulty(box, "devices=2", f"--device={asked}", code=code)
    assert word in done.stderr and not (box / "out").exists()


@pytest.mark.parametrize("command", (("verify", "emboss", "in"), ("bench", "kernels", "--image-size=8x8")))
def test_some_commands_take_one_device(box, monkeypatch, command):
    fill(box / "in", "a.png")
    monkeypatch.setattr(program, "BINARY", FAULTY)
    for asked in ("all", "cuda:0 , cuda:1"):
        assert "one device" in run(*command, f"--device={asked}", code=2).err


def test_trace_page_and_report_tell_devices_apart(box, batch):
    run_faulty(box, "devices=2 slow=100", "--device=all", "--streams=2", *MANY, "--trace=t.json", "--html=p.html", "--report=r.jsonl")
    events = load("t.json")
    rows = check_rows(events)
    for device in summary()["devices"]:
        own = [e for e in slices(events) if rows[e["tid"]].startswith(f"{device['name']} stream ")]
        kernels = [e for e in own if e["name"] == "kernel"]
        assert sum(e["args"]["images"] for e in kernels) == device["images"] > 0
        assert sum(e["args"]["bytes"] for e in kernels) == device["bytes"]
        assert {e["name"] for e in own} == {"copy_in", "kernel", "copy_out"}
    page = render("p.html")
    assert "cuda:0,cuda:1 did this, on 2 streams each" in page and "cuda:1 stream " in page
    assert all(f"{d['name']} {100 * d['share']:.0f} %" in page for d in summary()["devices"])


@pytest.mark.skipif(program.is_sanitized(), reason="the tests above have the same threads")
@pytest.mark.parametrize("stage", ("all", "device"))
def test_bench_streams(box, gpu, monkeypatch, stage):
    """Each of two devices gets groups: if its first one fails, so does the measurement."""
    fill(box / "in", *[f"{index}.png" for index in range(40)])
    monkeypatch.setattr(program, "BINARY", FAULTY)
    command = "bench", "streams", "--device=all", f"--stage={stage}", "--group=4K", "-j2", "--json", "in"
    monkeypatch.setenv("CONV_FAULTY", f"{gpu}devices=2 slow=8")
    table = json.loads(run(*command).out)
    assert table["device"] == "cuda:0,cuda:1" and [row["streams"] for row in table["rows"]] == [1, 2, 4, 8, 16]
    assert table["rows"][0]["overlap"]["two"] < 0.02, "one stream is serial, also on each of two devices"
    for device, other in ((0, " 1:lost=2"), (1, " 0:lost=2")):  # which leaves groups to it, whenever the threads begin
        monkeypatch.setenv("CONV_FAULTY", f"{gpu}devices=2 {device}:lost=1{other if stage == 'all' else ''}")
        assert (f"cuda:{device}: " if stage == "all" else "") + "CUDA failed" in run(*command, code=None).err


CODERS = ((), ("--decode-on=gpu", "--encode-on=gpu"))
FILTERS = "emboss" if program.is_sanitized() else CHAIN  # kernels on the CPU are slow, and it is the threads around them that count


@pytest.fixture
def few(box, batch):
    """Uses only some of the images, with sanitizers a small one of each kind: an emulated device is slow."""
    for index, name in enumerate(tree("in")):
        if program.is_sanitized() and index < 7:
            (box / "in" / name).write_bytes(images.make(KINDS[index], np.random.default_rng(index), 20, 9).data)
        elif program.is_sanitized() or index >= 21:
            (box / "in" / name).unlink()


@pytest.mark.skipif(not EMULATED, reason="no CONV_EMULATED_BINARY: not started by ctest, or no emulation in this build")
@pytest.mark.parametrize("coders, asked", ((CODERS[0], "cuda:2,cuda:0"), (CODERS[1], "all")))
def test_cuda_itself_on_several_devices(box, few, monkeypatch, coders, asked):
    """CUDA's backend with its kernels on the CPU: no thread takes one device's stream, event or memory for another's."""
    run(FILTERS, "in", "want")
    monkeypatch.setattr(program, "BINARY", EMULATED)
    monkeypatch.setenv("CONV_EMULATED", "devices=3")
    done = run(FILTERS, f"--device={asked}", "--verbose", *coders, "--streams=2", *MANY, "--report=r.jsonl", "in", "out")
    assert len(warnings(done.err)) == 0, done.err
    for name in tree("want"):
        assert (images.read(f"out/{name}") == images.read(f"want/{name}")).all(), name
    devices = summary()["devices"]
    assert [d["name"] for d in devices] == (asked.split(",") if "," in asked else ["cuda:0", "cuda:1", "cuda:2"])
    assert all(d["images"] > 0 for d in devices), "the second or third did nothing, which shows nothing"


@pytest.mark.skipif(not EMULATED, reason="no CONV_EMULATED_BINARY: not started by ctest, or no emulation in this build")
@pytest.mark.parametrize("coders", CODERS, ids=("filter", "code"))
def test_cuda_itself_loses_several_devices_at_once(box, few, monkeypatch, coders):
    run(FILTERS, "in", "want")
    monkeypatch.setattr(program, "BINARY", EMULATED)
    monkeypatch.setenv("CONV_EMULATED", "devices=2 lost=24")
    done = run(FILTERS, "--device=all", "--verbose", *coders, *MANY, "in", "out")
    said = [line.split("; ")[-1] for line in warnings(done.err)]
    assert said == ["continuing on the others", "continuing on the CPU"], done.err
    for name in tree("want"):
        assert (images.read(f"out/{name}") == images.read(f"want/{name}")).all(), name
