# SPDX-License-Identifier: MIT
"""A real Slurm: tasks of a step, arrays, and jobs that are killed in the middle."""
import json
import os
import re
import signal

import pytest

from conftest import script, wait_until
from job import (check_outputs, check_reports, count_outputs, fill_folder, outputs_of, run_alone, slow_filter)


@pytest.fixture
def folder(box, request):
    count = getattr(request, "param", 60)
    fill_folder(box / "in", count)
    return box


def log_of(slurm, box, job):
    return "".join(path.read_text(errors="replace") for path in sorted(box.glob(f"slurm-{job}*.out")))


def test_four_tasks_of_a_step_share_the_folder(slurm, folder):
    job = slurm.submit("--wait", script("srun.sh"), "in", "out", "logs")
    log = log_of(slurm, folder, job)
    assert "4 reports of 4 shards: 60 done, 0 failed, 0 skipped" in log, log
    check_outputs(folder)
    shards = [check_reports(folder / "logs", shard=index) for index in range(4)]
    assert sorted(map(len, shards)) != [0, 0, 0, 60] and sum(map(len, shards)) == 60


def test_a_damaged_image_does_not_end_the_other_tasks(slurm, folder):
    (folder / "in/sub1/0001.png").write_bytes(b"\x89PNG damaged")
    slurm.call("sbatch", "--wait", script("srun.sh"), "in", "out", "logs", check=False)
    log = "".join(path.read_text() for path in folder.glob("slurm-*.out"))
    assert "59 done, 1 failed, 0 skipped" in log and "conv: in/sub1/0001.png: " in log, log


def test_auto_is_refused_in_the_batch_script_itself(slurm, folder):
    """The program has SLURM_PROCID=0 and SLURM_NTASKS=4, and would process a quarter of the images."""
    (folder / "job.sh").write_text('#!/bin/sh\necho "$SLURM_PROCID/$SLURM_NTASKS"\nconv emboss -r in out --shard auto; echo "exit code $?"\n')
    job = slurm.submit("--wait", "-n", "4", "job.sh")
    log = log_of(slurm, folder, job)
    assert log.startswith("0/4\n") and "this is a batch script" in log and "exit code 2" in log
    assert not (folder / "out").exists()


def test_mpirun_in_a_slurm_job_numbers_the_tasks(slurm, folder):
    """Its daemons are tasks of a step of their own, whose numbers the processes inherit."""
    os.environ.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    (folder / "job.sh").write_text(f"#!/bin/sh\nexec {script('mpirun.sh')} in out logs\n")
    job = slurm.submit("--wait", "-n", "4", "job.sh")
    assert "4 reports of 4 shards: 60 done" in log_of(slurm, folder, job)
    check_outputs(folder)


def test_an_array_shares_the_folder(slurm, folder):
    job = slurm.submit("--wait", script("array.sh"), "in", "out", "logs")
    slurm.wait(job)
    assert "8 reports of 8 shards: 60 done" in run_alone("report", "merge", *(folder / "logs").glob("*.jsonl"))
    check_outputs(folder)


def test_part_of_an_array_can_be_submitted_again(slurm, folder):
    """SLURM_ARRAY_TASK_COUNT is then 2, but the tasks are still of eight."""
    job = slurm.submit("--array=0-1,3-4,6-7", "--wait", script("array.sh"), "in", "out", "logs")
    slurm.wait(job)
    out = run_alone("report", "merge", *(folder / "logs").glob("*.jsonl"), code=1)
    assert "of 8 shards 2 are missing: 2,5" in out
    before = outputs_of(folder)
    job = slurm.submit("--array=2,5", "--wait", script("array.sh"), "in", "out", "logs")
    slurm.wait(job)
    assert "8 reports of 8 shards: 60 done" in run_alone("report", "merge", *(folder / "logs").glob("*.jsonl"))
    check_outputs(folder, unchanged=before)


# --- killed in the middle ------------------------------------------------------------------------

def slow_script(folder, name):
    """The script of the documentation with a job that takes some seconds per task."""
    with open(script(name), encoding="utf-8") as file:
        text = file.read()
    changed = text.replace("conv emboss", f"conv emboss {slow_filter()}")
    assert changed != text
    (folder / name).write_text(changed)
    return folder / name


@pytest.mark.parametrize("folder", (400,), indirect=True)
def test_a_task_that_is_killed_and_requeued_does_only_what_was_left(slurm, folder):
    array = slow_script(folder, "array.sh")
    job = slurm.submit("--array=0-3", array, "in", "out", "logs")
    wait_until(lambda: count_outputs(folder) >= 30 and slurm.state(f"{job}_1") == "RUNNING", 60, "some outputs of a running task")
    slurm.call("scontrol", "requeue", f"{job}_1")
    # A node refuses a task whose first run has not ended there.
    wait_until(lambda: slurm.state(f"{job}_1") == "PENDING" and not find_task("SLURM_ARRAY_TASK_ID", 1), 60,
               "the task is back in the queue")
    slurm.wait(job, but=f"{job}_1")
    before = outputs_of(folder)
    # Slurm would start it again after two minutes.
    slurm.call("scontrol", "update", f"JobId={job}_1", "StartTime=now")
    wait_until(lambda: slurm.state(f"{job}_1") == "COMPLETED", 200, "the task's second run")
    slurm.wait(job)
    job = slurm.submit("--array=4-7", "--wait", array, "in", "out", "logs")
    slurm.wait(job)
    out = run_alone("report", "merge", *(folder / "logs").glob("*.jsonl"))
    restarted = list((folder / "logs").glob("report-1-*-1.jsonl"))
    assert len(restarted) == 1 and "done twice" not in out, out
    records = [json.loads(line) for line in restarted[0].read_text().splitlines()]
    assert records[-1]["skipped"] > 0 and records[-1]["done"] > 0  # it was in the middle
    check_outputs(folder, unchanged=before)


@pytest.mark.parametrize("folder", (400,), indirect=True)
def test_a_process_that_is_killed_leaves_a_shard_that_can_be_done_again(slurm, folder):
    step = slow_script(folder, "srun.sh")
    job = slurm.submit(step, "in", "out", "logs")
    victim = wait_until(lambda: count_outputs(folder) >= 30 and find_task("SLURM_PROCID", 2), 60, "a task in the middle")
    os.kill(victim, signal.SIGKILL)
    slurm.wait(job)
    log = log_of(slurm, folder, job)
    assert "of 4 shards 1 did not finish: 2" in log, log
    before = outputs_of(folder)
    (folder / "again.sh").write_text(step.read_text().replace('report-{shard}-', 'report-{shard}-again-'))
    job = slurm.submit("--wait", "again.sh", "in", "out", "logs")
    log = log_of(slurm, folder, job)
    assert "8 reports of 4 shards: " in log and "0 failed" in log and "done twice" not in log, log
    check_outputs(folder, unchanged=before)


def find_task(variable, value):
    """The process of the program that has this variable."""
    for name in os.listdir("/proc"):
        try:
            if name.isdigit() and os.readlink(f"/proc/{name}/exe") == os.path.realpath(os.environ["CONV_BINARY"]):
                with open(f"/proc/{name}/environ", "rb") as file:
                    if re.search(rf"\0{variable}={value}\0".encode(), file.read()):
                        return int(name)
        except OSError:
            pass
    return None
