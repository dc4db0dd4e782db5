# SPDX-License-Identifier: MIT
"""--shard: every image in exactly one shard of equal size, whatever the listing's order and the launcher."""
import itertools
import json
import os
import random
import re
import subprocess

import pytest

import program
from faulty import FAULTY, needs_faulty
from folders import fill, tree
from program import run

CLEAN = {name: value for name, value in os.environ.items()
         if not name.startswith(("SLURM_", "OMPI_", "PMI_", "PMIX_", "MPI_"))}


def planned(*args, **kwargs):
    """The inputs that a dry run would filter, in order."""
    result = run("emboss", "--dry-run", "--json", *args, **kwargs)
    return [record["input"] for record in result.records() if record["type"] == "file"]


def divide(count, *args, **kwargs):
    return [planned("--shard", f"{index}/{count}", *args, **kwargs) for index in range(count)]


@pytest.fixture
def mixed(box):
    """Files of the sizes of photographs, screenshots and icons: a dry run reads names and sizes only."""
    rng = random.Random(1)
    for index in range(600):
        folder, size = rng.choice([("photos", 650_000), ("screens/wide", 300_000), ("icons", 3000), ("icons", 9000)])
        path = box / "in" / folder / f"{index:04}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        os.truncate(path, int(size * rng.uniform(0.3, 1.7)))
    return box


@pytest.mark.parametrize("by", ("bytes", "name"))
def test_every_image_is_in_one_shard(mixed, by):
    for count in (1, 3, 8):
        shards = divide(count, "-r", "--shard-by", by, "in", "out")
        assert sorted(itertools.chain(*shards)) == sorted(planned("-r", "in", "out"))


def test_the_order_and_the_path_of_the_listing_make_no_difference(mixed):
    names = sorted(tree(mixed / "in"), key=lambda name: name[::-1])
    for name in names:  # created in another order, they are listed in another order on most file systems
        target = mixed / "elsewhere" / "copy" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.touch()
        os.truncate(target, os.path.getsize(mixed / "in" / name))
    for by in ("bytes", "name"):
        first = [sorted(os.path.relpath(path, "in") for path in shard)
                 for shard in divide(3, "-r", "--shard-by", by, "in", "out")]
        second = [sorted(os.path.relpath(path, mixed / "elsewhere/copy") for path in shard)
                  for shard in divide(3, "-r", "--shard-by", by, mixed / "elsewhere/copy", "out")]
        assert first == second


def test_a_list_is_divided_too(mixed):
    names = tree(mixed / "in")
    (mixed / "list").write_text("\n".join(names))
    shards = divide(3, "--files-from", "list", "in", "out")
    assert sorted(itertools.chain(*shards)) == sorted(f"in/{name}" for name in names)
    folder = [sorted(shard) for shard in divide(3, "-r", "in", "out")]
    assert [sorted(shard) for shard in shards] == folder
    text = "\n".join(names).encode()
    result = run("emboss", "--shard=0/3", "--files-from=-", "in", "out", "--dry-run", stdin=text, code=2)
    assert "can be read only once; use a file, or --shard-by name" in result.err
    piped = [planned(f"--shard={i}/3", "--shard-by=name", "--files-from=-", "in", "out", stdin=text) for i in range(3)]
    assert sorted(itertools.chain(*piped)) == sorted(f"in/{name}" for name in names)


# --- runs ----------------------------------------------------------------------------------------

def test_shards_write_what_one_run_writes(box, device):
    fill(box / "in", *(f"{index % 3}/{index}.png" for index in range(12)))
    run("emboss", "-r", "in", "whole", "--device", device, "--reproducible")
    reports = []
    for index in range(3):
        run("emboss", "-r", "in", "out", "--device", device, "--reproducible", "--shard", f"{index}/3",
            "--report", "report-{shard}", "--resume", "journal-{shard}")
        reports.append([json.loads(line) for line in (box / f"report-{index}").read_text().splitlines()])
    assert {name: (box / "out" / name).read_bytes() for name in tree(box / "out")} == \
        {name: (box / "whole" / name).read_bytes() for name in tree(box / "whole")}
    assert sum(report[-1]["done"] for report in reports) == 12
    assert [report[0]["shard"] for report in reports] == [{"index": i, "count": 3, "by": "bytes"} for i in range(3)]
    listings = [report[-1]["listing"] for report in reports]
    assert listings[0]["images"] == 12 and listings[0] == listings[1] == listings[2]
    for index in range(3):  # each has a journal of its own
        again = run("emboss", "-r", "in", "out", "--reproducible", "--shard", f"{index}/3", "--json",
                    "--resume", "journal-{shard}").records()[-1]
        assert again["done"] == 0 and again["skipped"] == reports[index][-1]["done"]


def test_in_place_shards_go_by_name(box):
    made = fill(box / "in", *(f"{index}.png" for index in range(9)))
    for index in (2, 0, 1):
        report = run("emboss", "--in-place", "--shard", f"{index}/3", "--json", "in").records()
        assert report[0]["shard"]["by"] == "name"
    assert all((box / "in" / name).read_bytes() != source.data for name, source in made.items())
    err = run("emboss", "--in-place", "--shard=0/3", "--shard-by=bytes", "in", code=2).err
    assert "--shard-by bytes and --in-place cannot be combined" in err


def test_a_shard_without_images_is_no_error(box):
    fill(box / "in", "a.png")
    results = [run("emboss", "in", "out", "--shard", f"{index}/4") for index in range(4)]
    assert [r.err for r in results].count("") <= 1 and tree(box / "out") == ["a.png"]
    assert sum("has none of the 1 image\n" in result.err for result in results) == 3
    os.remove(box / "in/a.png")
    assert "no PNG" in run("emboss", "in", "out", "--shard", "0/4", code=3).err


def test_a_folder_that_cannot_be_read_fails_every_shard(box):
    fill(box / "in", "a.png")
    deep = box / "in" / "/".join(["d"] * 300)
    deep.mkdir(parents=True)
    for index in range(2):
        assert "folders deep" in run("emboss", "-r", "in", "out", "--shard", f"{index}/2", code=1).err


def test_layers_are_divided_too(box):
    fill(box / "in", *(f"{index}.png" for index in range(8)))
    for index in range(2):
        run("layer", "gabor:2x2", "in", "out", "--device=cpu", "--shard", f"{index}/2")
    assert tree(box / "out") == [f"{index}.npy" for index in range(8)]
    for index in range(2):
        run("layer", "gabor:2x2", "in", "maps-{shard}.npy", "--pool=mean", "--device=cpu", "--shard", f"{index}/2")
    assert (box / "maps-0.npy").exists() and (box / "maps-1.npy").exists()


# --- what is refused -----------------------------------------------------------------------------

@pytest.mark.parametrize("text, message", (
    ("5/4", "--shard 5/4: shards are numbered from 0, so these are 0/4 to 3/4 (a Slurm array: --array=0-3)"),
    ("4/4", "shards are numbered from 0"),
    ("0/0", "there are 1 to 1000000 shards"),
    ("0/1000001", "there are 1 to 1000000 shards"),
    ("/4", "(a variable before the slash was empty)"),
    ("1", "--shard takes I/N"), ("-1/4", "--shard takes I/N"), ("1/4x", "--shard takes I/N"), ("", "--shard takes I/N"),
    ("1/", "--shard takes I/N"), ("99999999999999999999/4", "--shard takes I/N"), ("all", "--shard takes I/N"),
))
def test_a_shard_that_makes_no_sense_is_refused(box, text, message):
    fill(box / "in", "a.png")
    result = run("emboss", "in", "out", f"--shard={text}", code=2)
    assert message in result.err and result.err.count("\n") == 1 and not (box / "out").exists()


def test_shard_by_needs_shard(box):
    assert "--shard-by needs --shard" in run("emboss", "in", "out", "--shard-by=name", code=2).err


def test_a_watch_is_not_divided(box):
    fill(box / "in", "a.png")
    assert "--watch and --shard cannot be combined" in run("emboss", "in", "out", "--watch", "--shard=0/2", code=2).err


STEP = {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0"}


@pytest.mark.parametrize("env, shard", (
    ({"SLURM_PROCID": "2", "SLURM_NTASKS": "4"}, (2, 4)),
    ({**STEP, "SLURM_PROCID": "0", "SLURM_NTASKS": "1"}, (0, 1)),
    ({"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "3"}, (1, 3)),
    ({"PMI_RANK": "1", "PMI_SIZE": "3"}, (1, 3)),
    # srun with --mpi=pmi2.
    ({**STEP, "SLURM_PROCID": "1", "SLURM_NTASKS": "3", "PMI_RANK": "1", "PMI_SIZE": "3"}, (1, 3)),
    # mpirun in a batch script, and on nodes where Slurm has started its daemon, one per node.
    ({"SLURM_JOB_ID": "7", "SLURM_PROCID": "0", "SLURM_NTASKS": "4", "OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "4"}, (3, 4)),
    ({**STEP, "SLURM_PROCID": "1", "SLURM_NTASKS": "2", "SLURM_STEP_NUM_TASKS": "2", "SLURM_STEP_NUM_NODES": "2",
      "OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "4"}, (3, 4)),
))
def test_auto_takes_the_numbers_of_the_launcher(mixed, env, shard):
    result = run("emboss", "-r", "in", "out", "--dry-run", "--json", "--shard=auto", env={**CLEAN, **env}).records()
    assert (result[0]["shard"]["index"], result[0]["shard"]["count"]) == shard


@pytest.mark.parametrize("env, message", (
    ({}, "none of SLURM_PROCID, OMPI_COMM_WORLD_RANK and PMI_RANK is set"),
    ({"SLURM_PROCID": "2"}, "SLURM_PROCID is set, but SLURM_NTASKS is not"),
    ({"PMI_SIZE": "2"}, "PMI_SIZE is set, but PMI_RANK is not"),
    ({"SLURM_PROCID": "4", "SLURM_NTASKS": "4"}, "make no sense"),
    ({"SLURM_PROCID": "x", "SLURM_NTASKS": "4"}, "make no sense"),
    ({"SLURM_PROCID": "1", "SLURM_NTASKS": "4", "OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_SIZE": "4"},
     "Open MPI says 2/4 (OMPI_COMM_WORLD_RANK), Slurm says 1/4 (SLURM_PROCID)"),
    ({"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2", "PMI_RANK": "0", "PMI_SIZE": "3"}, "PMI says 0/3"),
    ({"SLURM_JOB_ID": "7", "SLURM_PROCID": "0", "SLURM_NTASKS": "4"}, "this is a batch script, which runs once for all tasks"),
    ({**STEP, "SLURM_PROCID": "0", "SLURM_NTASKS": "", "SLURM_ARRAY_TASK_ID": "2", "SLURM_ARRAY_TASK_COUNT": "1"},
     "--shard $SLURM_ARRAY_TASK_ID/N"),
))
def test_auto_is_refused_where_nobody_numbers_the_tasks(box, env, message):
    fill(box / "in", "a.png")
    result = run("emboss", "in", "out", "--shard=auto", env={**CLEAN, **env}, code=2)
    assert message in result.err and result.err.count("\n") == 1 and not (box / "out").exists()


@pytest.mark.parametrize("option", ("resume", "report", "trace", "html"))
def test_with_auto_tasks_share_no_file(box, option):
    fill(box / "in", "a.png")
    env = {**CLEAN, "SLURM_PROCID": "1", "SLURM_NTASKS": "2"}
    result = run("emboss", "in", "out", "--shard=auto", f"--{option}=file", env=env, code=2)
    assert "would be one file of all 2 tasks; put {shard} into its name" in result.err
    assert not (box / "file").exists()
    run("emboss", "in", "out", "--shard=auto", f"--{option}=file-{{shard}}", env=env)
    assert (box / "file-1").exists()


def test_the_documentation_names_the_scripts_that_are_tested():
    """tools/test cluster runs them."""
    with open(os.path.join(program.ROOT, "docs", "clusters.md"), encoding="utf-8") as file:
        named = re.findall(r"\(\.\./examples/cluster/([\w.]+)\)", file.read())
    assert sorted(named) == sorted(os.listdir(os.path.join(program.ROOT, "examples", "cluster")))


# --- several processes on one machine ------------------------------------------------------------


@needs_faulty
@pytest.mark.parametrize("env, asked, taken", (
    ({}, "cuda", "cuda:0"),
    ({"SLURM_LOCALID": "0"}, "cuda", "cuda:0"),
    ({"SLURM_LOCALID": "1"}, "cuda", "cuda:1"),
    ({"SLURM_LOCALID": "5"}, "auto", "cuda:2"),
    ({"OMPI_COMM_WORLD_LOCAL_RANK": "2", "SLURM_LOCALID": "0"}, "cuda", "cuda:2"),  # mpirun in a Slurm job
    ({"MPI_LOCALRANKID": "1"}, "cuda", "cuda:1"),
    ({"SLURM_LOCALID": "1"}, "cuda:0", "cuda:0"),
    ({"SLURM_LOCALID": "1"}, "cuda:2,cuda:0", "cuda:2,cuda:0"),
    ({"SLURM_LOCALID": "1"}, "all", "cuda:0,cuda:1,cuda:2"),
    ({"SLURM_LOCALID": "x"}, "cuda", "cuda:0"),
))
def test_processes_of_one_machine_take_different_devices(box, env, asked, taken):
    fill(box / "in", "a.png")
    heavy = "gaussian5,blur5,unsharp"  # or with `auto` the CPU filters a single image
    done = subprocess.run([FAULTY, heavy, "in", "out", "--json", "--device", asked], capture_output=True,
                          env={**CLEAN, "CONV_FAULTY": "devices=3", **env}, timeout=program.TIMEOUT)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[0])["device"] == taken


@needs_faulty
def test_the_only_visible_device_is_taken(box):
    """Slurm's binding: CUDA_VISIBLE_DEVICES holds the task's own device."""
    fill(box / "in", "a.png")
    done = subprocess.run([FAULTY, "emboss", "in", "out", "--json", "--device=cuda"], capture_output=True,
                          env={**CLEAN, "CONV_FAULTY": "devices=1", "SLURM_LOCALID": "3"}, timeout=program.TIMEOUT)
    assert json.loads(done.stdout.splitlines()[0])["device"] == "cuda:0"
