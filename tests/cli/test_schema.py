# SPDX-License-Identifier: MIT
"""Reports have the members that docs/reference/report.schema.json lists, and no others."""
import json
import os
import shutil

import pytest

import program
from program import run

jsonschema = pytest.importorskip("jsonschema", reason="python3-jsonschema is not installed")


def strict(schema):
    """The schema without the members that it leaves open for later versions, so that each one is documented."""
    if isinstance(schema, list):
        return [strict(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {name: strict(value) for name, value in schema.items()}
    if "properties" in closed and isinstance(closed["properties"], dict):
        closed["additionalProperties"] = False
    return closed


@pytest.fixture(scope="module")
def validator():
    with open(os.path.join(program.ROOT, "docs", "reference", "report.schema.json"), encoding="utf-8") as file:
        schema = json.load(file)
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(strict(schema))


@pytest.fixture
def folder(box):
    os.mkdir("in")
    for name in ("badge-palette-alpha", "dunes-gray16", "dot-1x1"):
        shutil.copy(os.path.join(program.ROOT, "samples", name + ".png"), "in")
    (box / "in/bad.png").write_bytes(b"no image")


def check(validator, records, types):
    assert {record["type"] for record in records} == types
    for record in records:
        errors = [error.message for error in validator.iter_errors(record)]
        branch = "merged" if "merged" in record else record["type"]
        closer = validator.evolve(schema={**validator.schema, "oneOf": [{"$ref": f"#/$defs/{branch}"}]})
        assert not errors, [error.message for top in closer.iter_errors(record) for error in top.context]


def test_records_of_runs(validator, folder):
    every = {"begin", "file", "summary"}
    check(validator, run("emboss", "in", "out", "--json", code=1).records(), every)
    check(validator, run("emboss", "in", "out", "--json", "--skip-existing", code=1).records(), every)
    check(validator, run("emboss", "in", "new", "--json", "--dry-run").records(), every)
    check(validator, run("layer", "sobel", "in", "maps", "--json", code=1).records(), every)


@pytest.mark.skipif(not program.EMULATED, reason="no emulated device")
def test_records_of_a_device(validator, folder, monkeypatch):
    monkeypatch.setattr("program.BINARY", program.EMULATED)
    records = run("emboss", "in", "out", "--json", "--device=cuda", code=1).records()
    assert records[-1]["devices"] and records[-1]["overlap"]
    check(validator, records, {"begin", "file", "summary"})


def test_records_of_merged_reports(validator, folder):
    for shard in range(2):
        run("emboss", "in", "out", f"--shard={shard}/2", "--report={shard}.jsonl", "--exclude=bad.png")
    check(validator, run("report", "merge", "0.jsonl", "1.jsonl", "--json").records(), {"begin", "file", "summary"})
    with open("0.jsonl", encoding="utf-8") as file:
        check(validator, [json.loads(line) for line in file], {"begin", "file", "summary"})


def test_the_schema_refuses_what_is_wrong(validator):
    """Missing members, unknown ones and those of another type are found."""
    assert not validator.is_valid({"type": "begin"}) and not validator.is_valid({"type": "other"})
    good = {"type": "begin", "schema": 1, "version": "1", "filter": "emboss", "dry_run": False}
    assert validator.is_valid(good) and not validator.is_valid({**good, "new": 1}) and not validator.is_valid({**good, "schema": 2})
