# SPDX-License-Identifier: MIT
"""What a run over folders prints: records, the progress line, messages."""
import os

import program
from folders import fill, fill_with_noise, image
from program import run

def check_records(records, expected):
    """Checks begin, a file record per image, and summary; `expected` is input -> status."""
    assert [r["type"] for r in records] == ["begin"] + ["file"] * len(expected) + ["summary"]
    assert {r["input"]: r["status"] for r in records[1:-1]} == expected
    for record in records[1:-1]:
        assert {"input", "output", "status", "error", "bytes_in", "bytes_out", "ms"} <= set(record)
        assert (record["error"] is None) == (record["status"] != "failed")
        assert (record["output"] is None) == (record["status"] == "failed")
        assert record["status"] == "skipped" or record["bytes_in"] == os.path.getsize(record["input"])
        if record["status"] == "done":
            assert record["bytes_out"] == os.path.getsize(record["output"])
            assert {"read", "decode", "kernel", "encode", "write"} <= set(record["ms"])
    counts = [list(expected.values()).count(status) for status in ("done", "failed", "skipped")]
    assert [records[-1][status] for status in ("done", "failed", "skipped")] == counts


def test_json_lines(box, device):
    fill(box / "in", "a.png", "b\n\".png", "é.png", "skip.png")
    (box / "in" / "bad.png").write_bytes(b"bad" * 50000)  # more than is read to see that it is not a PNG
    (box / "out").mkdir()
    (box / "out" / "skip.png").write_bytes(b"there")
    result = run("emboss", "--json", "--report", "run.jsonl", "--skip-existing", "--device", device, "in", "out", code=1)
    assert (box / "run.jsonl").read_bytes() == result.out_bytes
    check_records(result.records(), {"in/a.png": "done", "in/b\n\".png": "done", "in/é.png": "done",
                                     "in/skip.png": "skipped", "in/bad.png": "failed"})
    begin, summary = result.records()[0], result.records()[-1]
    assert summary["exit_code"] == 1
    assert (begin["streams"] is None) if device == "cpu" else (begin["streams"] >= 1)


def test_name_that_is_no_utf8_gives_valid_json(box):
    (box / "in").mkdir()
    with open(os.fsencode(box / "in") + b"/\xff\xfe.png", "wb") as file:
        file.write(image().data)
    assert run("emboss", "--json", "in", "out").records()[-1]["done"] == 1
    assert os.listdir(os.fsencode(box / "out")) == [b"\xff\xfe.png"]


def test_no_progress_without_a_terminal(box):
    """Without a terminal there is no progress line (test_terminal.py tests the line)."""
    fill_with_noise(box / "in", 1 if program.is_sanitized() else 12)
    for options in ((), ("--progress=never",), ("--progress=auto",)):
        assert run("emboss", *options, "-z9", "-j1", "in", "out").err.count("\n") == 1


def test_quiet_says_only_what_failed(box):
    fill(box / "in", "a.png")
    assert run("emboss", "-q", "in", "out").err == ""
    (box / "in" / "bad.png").write_bytes(b"bad")
    assert run("emboss", "-q", "in", "out", code=1).err == f"conv: in/bad.png: {program.NO_IMAGE}\n"


def test_verbose_names_the_kernel(box):
    fill(box / "in", "a.png")
    assert "cpu_" in run("emboss", "-v", "in", "out").err
