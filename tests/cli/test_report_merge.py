# SPDX-License-Identifier: MIT
"""conv report merge: what the shards of a job did together, and what is missing."""
import json
import os
import shutil

import pytest

from folders import fill
from program import run

SHARDS = 4


@pytest.fixture
def job(box):
    """A job of four shards by name, with their reports."""
    fill(box / "in", *(f"{index:02}.png" for index in range(24)))
    for index in range(SHARDS):
        shard(index)
    return box


def shard(index, *args, code=0, of=SHARDS, report="r{shard}.jsonl", by="name"):
    return run("emboss", "in", "out", "--shard", f"{index}/{of}", f"--shard-by={by}", "--report", report, "-q", *args, code=code)


def records(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def merge(box, *names, code=0, **kwargs):
    names = names or sorted(os.path.basename(path) for path in box.glob("r*.jsonl"))
    return run("report", "merge", *names, code=code, **kwargs)


def test_totals_are_those_of_all_shards(job):
    result = merge(job)
    assert result.out.startswith("4 reports of 4 shards: 24 done, 0 failed, 0 skipped; ") and result.err == ""
    whole = merge(job, *(f"r{i}.jsonl" for i in range(SHARDS)), "--json").records()
    assert [whole[0]["type"], whole[-1]["type"], len(whole)] == ["begin", "summary", 26]
    assert sorted(r["input"] for r in whole[1:-1]) == sorted(f"in/{i:02}.png" for i in range(24))
    parts = [records(job / f"r{i}.jsonl")[-1] for i in range(SHARDS)]
    for name in ("done", "replaced", "pixels", "bytes_in", "bytes_out"):
        assert whole[-1][name] == sum(part[name] for part in parts)
    assert merge(job, "-q", *(f"r{i}.jsonl" for i in range(SHARDS))).out == ""


def test_missing_and_killed_shards_are_reported(job):
    os.remove(job / "r1.jsonl")
    text = (job / "r3.jsonl").read_text()
    (job / "r3.jsonl").write_text(text[:text.index('{"type":"summary"')][:-20])  # killed while it wrote
    result = merge(job, code=1)
    assert result.err.splitlines() == ["conv: of 4 shards 1 are missing: 1", "conv: of 4 shards 1 did not finish: 3"]
    summary = merge(job, *(f"r{i}.jsonl" for i in (0, 2, 3)), "--json", code=1).records()[-1]
    assert summary["merged"]["missing"] == [1] and summary["merged"]["unfinished"] == [3] and summary["exit_code"] == 1
    # The shard runs once more: finished images are skipped, and the merged report is complete again.
    shard(3, "--skip-existing", report="r3-again.jsonl")
    shard(1)
    assert " 23 done, 0 failed, 1 skipped" in merge(job).out


def test_missing_shards_are_listed_as_slurm_takes_them(box):
    fill(box / "in", "a.png")
    for index in (0, 3, 4, 9):
        shard(index, of=12)
    assert "of 12 shards 8 are missing: 1-2,5-8,10-11\n" in merge(box, code=1).err


def test_failed_images_are_named_until_a_later_run_does_them(job):
    (job / "in/05.png").write_bytes(b"\x89PNG damaged")
    for index in range(SHARDS):
        run("emboss", "in", "out", "--shard", f"{index}/4", "--shard-by=name", "--report", "r{shard}.jsonl", "-q",
            code=1 if f"in/05.png" in (job / f"r{index}.jsonl").read_text() else 0)
    result = merge(job, code=1)
    assert "conv: in/05.png: " in result.err and result.err.count("\n") == 1 and "23 done, 1 failed" in result.out
    fill(job / "in", "05.png")
    for index in range(SHARDS):
        shard(index, report="r{shard}-again.jsonl")
    assert "24 done, 0 failed, 0 skipped, 23 done twice, 47 replaced; " in merge(job).out


def test_overlapping_shards_are_found(job):
    lines = (job / "r2.jsonl").read_text().splitlines()
    with open(job / "r0.jsonl") as file:
        begin = file.readline()
    (job / "r0.jsonl").write_text(begin + "\n".join(lines[1:]) + "\n")  # repeats the work of shard 2
    result = merge(job, code=1)
    assert f"{len(lines) - 2} images are in several shards, such as in/" in result.err
    assert "in no report" in result.err


def test_inputs_that_changed_between_the_tasks_are_found(job):
    fill(job / "in", "new.png")
    shard(2)
    assert "the shards have divided different images" in merge(job, code=1).err
    for index in range(SHARDS):
        shard(index)
    merge(job)


def test_a_size_that_changed_is_found_by_bytes(box):
    fill(box / "in", *(f"{index:02}.png" for index in range(8)))
    shard(0, of=2, by="bytes")
    shutil.copy(box / "in/03.png", box / "in/04.png")
    with open(box / "in/04.png", "ab") as file:
        file.write(b"more")
    shard(1, of=2, by="bytes")
    assert "the shards have divided different images" in merge(box, code=1).err


def test_runs_that_are_no_shards_add_up_too(box):
    fill(box / "in", "a.png", "b.png")
    run("emboss", "in/a.png", "out.png", "--report", "r1.jsonl")
    run("emboss", "in/b.png", "out.png", "--report", "r2.jsonl")
    assert merge(box).out.startswith("2 reports: 2 done")
    run("emboss", "in/b.png", "again.png", "--report", "r3.jsonl")
    assert "1 image is in several reports, such as in/b.png" in merge(box, code=1).err
    (box / "r3.jsonl").write_text((box / "r3.jsonl").read_text().splitlines(keepends=True)[0])
    assert "r3.jsonl: the run did not finish" in merge(box, code=1).err


def test_names_of_any_bytes(box):
    names = ["ä \"\\\n.png", "b\x01.png", "🙂.png"]
    fill(box / "in", *names)
    (box / "in" / names[0]).write_bytes(b"damaged")
    run("emboss", "in", "out", "--report", "r1.jsonl", code=1)
    result = run("report", "merge", "r1.jsonl", "--json", code=1)
    assert sorted(r["input"] for r in result.records()[1:-1]) == sorted("in/" + name for name in names)
    assert "conv: in/ä \"\\\\\\x0a.png: " in result.err


def test_a_merged_report_can_be_merged(job):
    merge(job, "r0.jsonl", "r1.jsonl", "--report", "half", code=1)
    merge(job, "r2.jsonl", "r3.jsonl", "--report", "rest", code=1)
    assert "2 reports: 24 done" in merge(job, "half", "rest").out


@pytest.mark.parametrize("make, message", (
    (lambda box: ["r0.jsonl", "nothing"], "cannot open the report nothing: No such file"),
    (lambda box: ["r0.jsonl", "in/00.png"], "in/00.png is not a report in JSON Lines"),
    (lambda box: ["r0.jsonl", "/dev/null"], "/dev/null is not a file that can be read twice"),
    (lambda box: ["r0.jsonl", "r1.jsonl", "./r0.jsonl"], "r0.jsonl and ./r0.jsonl are the same report"),
    (lambda box: ["r0.jsonl", "other.jsonl"], "other.jsonl: shard 0/2 is of another job: the others are of 4 shards"),
    (lambda box: ["r0.jsonl", "blur.jsonl"], "blur.jsonl is of another job: its filter is blur, not emboss"),
    (lambda box: ["r0.jsonl", "--report", "r0.jsonl"], "--report r0.jsonl is one of the reports to merge"),
    (lambda box: ["r0.jsonl", "--report", "no/such/folder"], "no/such/folder"),
    (lambda box: [], "conv report takes: merge REPORT..."),
))
def test_what_is_no_report_of_the_job_is_refused(job, make, message):
    shard(0, of=2, report="other.jsonl")
    run("blur", "in", "blurred", "--report", "blur.jsonl", "-q")
    before = {path.name: path.read_bytes() for path in job.glob("*.jsonl")}
    result = run("report", "merge", *make(job), code=2)
    assert message in result.err
    assert before == {path.name: path.read_bytes() for path in job.glob("*.jsonl")}


def test_report_without_merge_is_refused(box):
    assert "conv report takes: merge REPORT..." in run("report", code=2).err
    assert "conv report takes: merge REPORT..." in run("report", "join", "a", code=2).err


def test_an_empty_report_is_of_a_killed_run(job):
    (job / "r1.jsonl").write_text("")
    result = merge(job, code=1)
    assert "of 4 shards 1 are missing: 1\n" in result.err and "r1.jsonl: the run did not finish" in result.err


def test_damaged_lines_are_counted(job):
    text = (job / "r1.jsonl").read_text().splitlines()
    for line in ('{"type":"file","input":"x"', '{"type":"file","input":"x","status":"odd"}', "[" * 5000, '{"type":"file\\u00"}', "\x00"):
        text.insert(2, line)
    (job / "r1.jsonl").write_text("\n".join(text) + "\n")
    assert "5 damaged lines" in merge(job, code=1).err
