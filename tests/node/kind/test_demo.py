"""Test that `make demo ARGS=--kind` works twice in a row: a real node of kind generates tokens, and Kimi K2 stays Ready on
simulated nodes.
"""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ome_local.cluster import Cluster
from ome_local.demo import demo
from tests.node.conftest import Steps
from tests.node.kind.test_life import SILENCE_S


def run() -> str:
    """Run the demo and return its output."""
    command = [sys.executable, "-m", "ome_operator", "demo", "--kind"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout


@pytest.mark.timeout(1200, func_only=True)
def test_demo_succeeds_twice_on_one_kind_cluster(home: Path, steps: Steps) -> None:
    """The demo works a second time on the cluster of the first run. This once failed, because the pause between two reports
    of a simulated node was longer than the time for which kind's controllers wait for a silent node.
    """
    with steps.measure("make demo ARGS=--kind, the first time"):
        assert "16 tokens in" in run()
    time.sleep(SILENCE_S)
    with steps.measure("make demo ARGS=--kind, the second time"):
        assert "16 tokens in" in run()
    cluster = Cluster.open(demo.CLUSTER)
    ready = "jsonpath={.items[*].status.conditions[?(@.type=='Ready')].status}"
    assert cluster.kubectl("get", "isvc", "-A", "-o", ready).split() == ["True", "True"]
