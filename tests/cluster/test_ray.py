# SPDX-License-Identifier: MIT
"""Ray Data with the Python package: a local cluster of several workers, one of which is killed in the middle."""
import io
import os
import signal
import subprocess
import sys
import tarfile

import pytest

from conftest import script, wait_until
from job import check_outputs, count_outputs, fill_folder, outputs_of

pytest.importorskip("ray")
pytest.importorskip("conv")


def start(*args):
    env = {**os.environ, "RAY_USAGE_STATS_ENABLED": "0", "RAY_DEDUP_LOGS": "0", "RAY_worker_register_timeout_seconds": "120"}
    return subprocess.Popen([sys.executable, *args], env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, text=True, start_new_session=True)


def finish(process, code=0):
    """Returns the last line. Ends what is left of the session, also when it hangs."""
    try:
        out, _ = process.communicate(timeout=900)
    finally:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    assert process.returncode == code, out
    return out.strip().splitlines()[-1]


def workers_of(parent, state):
    """Processes below `parent` that run a task of Ray with that word in their titles."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/cmdline", "rb") as file:
                title = file.read().decode(errors="replace")
            if title.startswith("ray::") and state in title and os.getsid(int(name)) == os.getsid(parent):
                found.append(int(name))
        except OSError:
            pass
    return found


def test_a_folder(box):
    fill_folder(box / "in", 120)
    assert finish(start(script("ray_folder.py"), "in", "out")) == "120 done, 0 skipped, 0 failed"
    check_outputs(box)


def test_a_folder_when_a_worker_is_killed(box):
    fill_folder(box / "in", 400)
    with open(script("ray_folder.py"), encoding="utf-8") as file:
        text = file.read()
    slow = text.replace("    return {", "    import time\n    time.sleep(1)\n    return {", 1)  # or the run is over too soon
    assert slow != text
    (box / "slow.py").write_text(slow)
    process = start("slow.py", "in", "out")
    try:
        victim = wait_until(lambda: count_outputs(box) >= 16 and process.poll() is None and workers_of(process.pid, "MapBatches"), 120,
                            "a worker in the middle")[0]
        before = outputs_of(box)
        os.kill(victim, signal.SIGKILL)
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)
        raise
    line = finish(process)
    done, skipped, failed = map(int, line.replace(",", "").split()[::2])
    assert done + skipped == 400 and failed == 0, line
    for path in (box / "out").rglob("*.part"):  # of the killed worker
        path.unlink()
    check_outputs(box, unchanged=before)


def make_shards(box, shards, images):
    """Tar files in WebDataset's layout: each image with a label."""
    fill_folder(box / "in", shards * images)
    names = sorted(str(path.relative_to(box / "in")) for path in (box / "in").rglob("*.png"))
    (box / "tars").mkdir()
    for index in range(shards):
        with tarfile.open(box / f"tars/{index:03}.tar", "w") as tar:
            for name in names[index::shards]:
                tar.add(box / "in" / name, name)
                label = tarfile.TarInfo(name[:-4] + ".cls")
                label.size = 3
                tar.addfile(label, io.BytesIO(b"cat"))


def test_tar_shards(box):
    make_shards(box, 6, 10)
    assert finish(start(script("ray_tar.py"), "tars", "filtered")) == "60 done, 0 failed, 0 shards skipped"
    labels = 0
    for index in range(6):
        with tarfile.open(box / f"tars/{index:03}.tar") as before, tarfile.open(box / f"filtered/{index:03}.tar") as after:
            assert before.getnames() == after.getnames()
            for info in after:
                if info.name.endswith(".png"):
                    after.extract(info, box / "out")
                else:
                    labels += after.extractfile(info).read() == b"cat"
    assert labels == 60
    check_outputs(box)
    assert finish(start(script("ray_tar.py"), "tars", "filtered")) == "0 done, 0 failed, 6 shards skipped"
