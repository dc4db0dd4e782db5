# SPDX-License-Identifier: MIT
"""tools/simulate-cluster against what can be computed by hand, and docs/scale.md against the simulator."""
import json
import os
import re
import subprocess
import sys

import pytest

import program

TOOL = os.path.join(program.ROOT, "tools", "simulate-cluster")
IDEAL = ("--stragglers=0", "--mtbf=0", "--store=1e18", "--network=1e18", "--launch=0", "--start=0")


def simulate(*args):
    done = subprocess.run([sys.executable, TOOL, "--json", *args], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def hours(*args):
    return simulate(*args)[0]["hours"]


def test_ideal_nodes_take_the_time_of_their_rates():
    assert hours(*IDEAL, "--images=36e6", "--nodes=10", "--node-rate=1000", "--tasks=100") == pytest.approx(1)
    # Three rounds of tasks on four nodes: four, four and two.
    assert hours(*IDEAL, "--images=36e6", "--nodes=4", "--node-rate=1000", "--tasks=10") == pytest.approx(3)
    assert hours(*IDEAL, "--start=36", "--images=36e6", "--nodes=10", "--node-rate=1000", "--tasks=100") == pytest.approx(1.1)


def test_the_slowest_of_store_network_and_node_limits():
    job = ("--images=36e6", "--nodes=10", "--node-rate=1000", "--tasks=100", "--bytes-in=1e6", "--bytes-out=2e6")
    result = simulate(*IDEAL, *job, "--store=15e9")[0]
    assert result["hours"] == pytest.approx(2) and result["limits"]["store"] == pytest.approx(1)
    result = simulate(*IDEAL, *job, "--network=0.5e9")[0]
    assert result["hours"] == pytest.approx(4) and result["limits"]["network"] == pytest.approx(1)
    assert simulate(*IDEAL, *job)[0]["limits"]["node"] == pytest.approx(1)


def test_one_slow_node_delays_large_tasks_only():
    job = (*IDEAL, "--images=36e6", "--nodes=10", "--node-rate=1000", "--stragglers=0.1", "--slowness=0.5")
    assert hours(*job, "--tasks=10") == pytest.approx(2)
    assert 10 / 9.5 < hours(*job, "--tasks=1000") < 1.1


def test_failures_cost_time_and_everything_is_done():
    job = ("--images=36e6", "--nodes=10", "--node-rate=1000", "--tasks=100", "--stragglers=0", "--repair=60", "--unit=1000")
    whole = simulate(*job, "--mtbf=0")[0]
    failing = simulate(*job, "--mtbf=600")[0]
    assert failing["failures"] > 20 and failing["hours"] > whole["hours"] and 0 < failing["images_done_again"] <= 1000 * failing["failures"]
    assert failing["attempts"] > whole["attempts"] == 100
    assert simulate(*job, "--mtbf=600") == [failing] != simulate(*job, "--mtbf=600", "--seed=2")


@pytest.mark.parametrize("args", (("--nodes=0",), ("--tasks=-1",), ("--sweep", "colour", "1"), ("--sweep", "nodes"), ("--nodes=x",)))
def test_nonsense_is_refused(args):
    assert subprocess.run([sys.executable, TOOL, *args], capture_output=True, timeout=300).returncode == 2


def test_the_documentation_has_the_figures_of_the_simulator():
    with open(os.path.join(program.ROOT, "docs", "scale.md"), encoding="utf-8") as file:
        shown = re.findall(r"<!-- (--.*?) -->\n\n<!-- docs-test: text -->\n```\n(.*?)```", file.read(), re.S)
    assert len(shown) == 5
    for args, text in shown:
        assert subprocess.run([sys.executable, TOOL, *args.split()], capture_output=True, text=True, timeout=300).stdout == text, args
