# SPDX-License-Identifier: MIT
"""Real schedulers on this machine, for tools/test cluster: Slurm with two nodes, Open MPI, GNU parallel, Ray, an S3 server.

Environment: CONV_BINARY (default: build/conv). All daemons live in a temporary folder, with ports and keys of their
own, and are ended by their process ids, also when a test fails.
"""
import os
import shutil
import signal
import socket
import subprocess
import sys
import time

import pytest

sys.dont_write_bytecode = True
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SCRIPTS = os.path.join(ROOT, "examples", "cluster")
sys.path[:0] = [os.path.join(ROOT, "tests", "cli")]
os.environ.setdefault("CONV_BINARY", os.path.join(ROOT, "build", "conv"))

SLURM_CONF = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MpiDefault=none
ReturnToService=2
SlurmctldPort={ports[0]}
JobRequeue=1
KillWait=2
MinJobAge=3600
SchedulerParameters=batch_sched_delay=1,sched_interval=2
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=2
NodeName=n2 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} CPUs=2
PartitionName=p Nodes=n1,n2 Default=YES MaxTime=60 State=UP
"""


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def wait_until(condition, seconds, what):
    """The first true value of condition(); fails after five times the longest time on an idle machine, `seconds`."""
    end = time.monotonic() + 5 * seconds  # a busy machine
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < end, f"not within {5 * seconds} s: {what}"
        time.sleep(0.1)


def end_by_pid_file(path):
    """Ends the process and waits for it; it may be gone already."""
    try:
        with open(path, encoding="ascii") as file:
            pid = int(file.read())
        os.kill(pid, signal.SIGTERM)
        for _ in range(100):
            os.kill(pid, 0)
            time.sleep(0.1)
        os.kill(pid, signal.SIGKILL)
    except (OSError, ValueError):
        pass


class Slurm:
    def __init__(self, folder):
        self.folder = folder

    def start(self):
        host = socket.gethostname().split(".")[0]
        user = subprocess.run(["id", "-un"], check=True, capture_output=True, text=True).stdout.strip()
        for name in ("state", "spool-n1", "spool-n2"):
            (self.folder / name).mkdir()
        (self.folder / "slurm.conf").write_text(SLURM_CONF.format(host=host, user=user, folder=self.folder, ports=free_ports(3)))
        (self.folder / "munge.key").write_bytes(os.urandom(128))
        (self.folder / "munge.key").chmod(0o400)
        self.call("munged", "--force", f"--key-file={self.folder}/munge.key", f"--socket={self.folder}/munge.socket",
                  f"--pid-file={self.folder}/munged.pid", f"--log-file={self.folder}/munged.log", f"--seed-file={self.folder}/munge.seed")
        self.call("slurmctld", "-f", f"{self.folder}/slurm.conf")
        for node in ("n1", "n2"):
            self.call("slurmd", "-N", node, "-f", f"{self.folder}/slurm.conf")
        wait_until(lambda: self.call("sinfo", "-h", "-o", "%D %T", check=False).stdout.strip() == "2 idle", 60, "two idle nodes")

    def stop(self):
        if (self.folder / "slurmctld.pid").exists():
            self.call("scancel", "--full", "-u", str(os.getuid()), check=False)
        for name in ("slurmd-n1", "slurmd-n2", "slurmctld", "munged"):
            end_by_pid_file(self.folder / f"{name}.pid")

    def call(self, *args, check=True, env=None, timeout=600):
        own = {"SLURM_CONF": f"{self.folder}/slurm.conf", "PATH": os.environ["PATH"] + ":/usr/sbin:/sbin"}
        result = subprocess.run([os.fspath(a) for a in args], env={**os.environ, **own, **(env or {})}, text=True,
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=timeout)
        assert not check or result.returncode == 0, f"{args}: {result.stdout}{result.stderr}"
        return result

    def submit(self, *args):
        """The job's number."""
        return int(self.call("sbatch", "--parsable", *args).stdout.split(";")[0])

    def state(self, job):
        """The state of a job or of a task of an array ("7_2"): RUNNING, COMPLETED, ..."""
        text = self.call("scontrol", "show", "job", str(job), "-o", check=False).stdout
        return text.split("JobState=")[1].split()[0] if "JobState=" in text else ""

    def wait(self, job, seconds=300, but=""):
        """Waits for the job with all its tasks, or for one task of an array."""
        def is_over():
            queue = self.call("squeue", "-h", "-r", "-o", "%i", "-j", str(job), check=False)
            return queue.returncode == 0 and set(queue.stdout.split()) <= {but}
        wait_until(is_over, seconds, f"job {job}")


@pytest.fixture(scope="session")
def slurm(tmp_path_factory):
    cluster = Slurm(tmp_path_factory.mktemp("slurm"))
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


@pytest.fixture(autouse=True)
def program_on_path(tmp_path_factory, monkeypatch):
    """`conv` in scripts is the program under test, with few threads, as the machine is small."""
    folder = tmp_path_factory.mktemp("bin")
    (folder / "conv").symlink_to(os.environ["CONV_BINARY"])
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


@pytest.fixture
def box(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    shutil.rmtree(tmp_path, ignore_errors=True)


def script(name):
    return os.path.join(SCRIPTS, name)
