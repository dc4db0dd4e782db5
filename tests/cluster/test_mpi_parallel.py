# SPDX-License-Identifier: MIT
"""Open MPI and GNU parallel."""
import os
import signal
import subprocess
import tarfile

from conftest import script, wait_until
from job import check_outputs, count_outputs, fill_folder, outputs_of, run_alone, slow_filter


def call(*args, code=0):
    env = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
           "OMPI_MCA_rmaps_base_oversubscribe": "1", "PARALLEL_HOME": os.getcwd()}
    result = subprocess.run(args, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=900)
    assert result.returncode == code, f"{args}: exit code {result.returncode}\n{result.stdout}{result.stderr}"
    return result.stdout + result.stderr


def test_processes_of_mpirun_share_the_folder(box):
    fill_folder(box / "in", 60)
    assert "4 reports of 4 shards: 60 done" in call(script("mpirun.sh"), "in", "out", "logs")
    check_outputs(box)


def test_processes_of_mpirun_share_archives(box):
    """Whole archives, and then the members of one; a second job has nothing left to do."""
    fill_folder(box / "in", 60)
    for k in range(3):
        with tarfile.open(f"{k}.tar", "w") as archive:
            archive.add(f"in/sub{k}", f"sub{k}")
    mpirun = ("mpirun", "--bind-to", "none", "-n", "4", "conv", "emboss", "--shard", "auto")
    call(*mpirun, "{0..2}.tar", "tars", "--report", "whole-{shard}", "--resume", "journal-{shard}")
    assert "60 done" in call("conv", "report", "merge", *(f"whole-{i}" for i in range(4)))
    call(*mpirun, "{0..2}.tar", "tars", "--report", "again-{shard}", "--resume", "journal-{shard}")
    assert " 0 done" in call("conv", "report", "merge", *(f"again-{i}" for i in range(4)))
    for k in range(3):
        call("tar", "xf", f"tars/{k}.tar", "-C", os.fspath((box / "out").mkdir(exist_ok=True) or box / "out"))
    check_outputs(box)
    call("tar", "cf", "all.tar", "-C", "in", ".")
    call(*mpirun, "all.tar", "part-{shard}.tar", "--report", "members-{shard}")
    assert "60 done" in call("conv", "report", "merge", *(f"members-{i}" for i in range(4)))


def test_parallel_shares_the_folder(box):
    fill_folder(box / "in", 60)
    assert "8 reports of 8 shards: 60 done" in call(script("parallel.sh"), "in", "out", "logs")
    check_outputs(box)


def test_parallel_tries_a_killed_shard_again(box):
    fill_folder(box / "in", 200)
    with open(script("parallel.sh"), encoding="utf-8") as file:
        (box / "slow.sh").write_text(file.read().replace("conv emboss", f"conv emboss {slow_filter()}"))
    process = subprocess.Popen(["sh", "slow.sh", "in", "out", "logs"], env={**os.environ, "PARALLEL_HOME": os.getcwd()},
                               stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        victim = wait_until(lambda: count_outputs(box) >= 5 and find_child("/8"), 60, "a shard in the middle")
        before = outputs_of(box)
        os.kill(victim, signal.SIGKILL)
        out, _ = process.communicate(timeout=900)
    finally:
        process.kill()
    assert "of 8 shards: " in out and "0 failed" in out and process.returncode == 0, out
    check_outputs(box, unchanged=before)


def find_child(word):
    for name in os.listdir("/proc"):
        try:
            if name.isdigit() and os.readlink(f"/proc/{name}/exe") == os.path.realpath(os.environ["CONV_BINARY"]):
                with open(f"/proc/{name}/cmdline", "rb") as file:
                    if word.encode() in file.read():
                        return int(name)
        except OSError:
            pass
    return None
