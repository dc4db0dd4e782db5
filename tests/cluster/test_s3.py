# SPDX-License-Identifier: MIT
"""Images from S3 to S3 through pipes, on a local server (moto)."""
import os
import subprocess
import sys
import urllib.request

import pytest

from conftest import free_ports, script, wait_until
from job import check_outputs, fill_folder


@pytest.fixture
def s3(box, monkeypatch):
    """A server with an empty bucket; returns a function that calls `aws s3`."""
    pytest.importorskip("moto")
    port = free_ports(1)[0]
    monkeypatch.setenv("PATH", f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}")
    for name, value in {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}", "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test",
                        "AWS_DEFAULT_REGION": "us-east-1"}.items():
        monkeypatch.setenv(name, value)
    with open(box / "moto.log", "wb") as log:
        server = subprocess.Popen([sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)], stdout=log, stderr=log)

    def answers():
        assert server.poll() is None, (box / "moto.log").read_text()
        try:
            return urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=5)
        except OSError:
            return None

    def aws(*args):
        return subprocess.run(["aws", "s3", *args], check=True, capture_output=True, text=True, timeout=600).stdout
    try:
        wait_until(answers, 60, "the server answers")
        aws("mb", "s3://images")
        yield aws
    finally:
        server.terminate()
        server.wait(30)


def shard(index, count, code=0):
    result = subprocess.run([script("s3.sh"), "s3://images/in", "s3://images/out", str(index), str(count)], capture_output=True,
                            text=True, timeout=900)
    assert result.returncode == code, result.stdout + result.stderr
    return result.stderr


def test_shards_of_a_prefix_go_through_pipes(box, s3):
    fill_folder(box / "in", 6)
    s3("sync", "in", "s3://images/in")
    for index in range(2):
        shard(index, 2)
    s3("sync", "s3://images/out", "out")
    check_outputs(box)


def test_a_damaged_image_leaves_no_object(box, s3):
    fill_folder(box / "in", 2)
    (box / "in/sub0/0000.png").write_bytes(b"\x89PNG damaged")
    s3("sync", "in", "s3://images/in")
    err = shard(0, 1, code=1)
    assert "sub0/0000.png: failed" in err and s3("ls", "--recursive", "s3://images/out").split()[3::4] == ["out/sub1/0001.png"]
