"""Tests of `ome logs` with real containers: all ranks of a group, merged, and followed across restarts."""

import queue
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from ome_local.cluster import Cluster
from ome_operator import keys
from ome_operator.cli.app import app
from tests.node.test_pods import eventually, pod, wait_ready
from tests.support.rig import ROOT

LIVES = """
n=$(cat /kept/life 2>/dev/null || echo 0); n=$((n + 1)); echo $n > /kept/life
echo life $n of $0; while [ ! -f /kept/end$n ]; do sleep 0.1; done; echo last words of $0 $n; exit 3
"""


def rank(number: int) -> dict[str, Any]:
    """Return a pod as the operator creates it. Its container exits when a file `end` with the number of the container's
    start exists.
    """
    name = f"chat-engine-r1-0{f'-w-{number}' if number else '-0'}"
    volume = {"name": "kept", "emptyDir": {}}
    mounted = {"volumeMounts": [{"name": "kept", "mountPath": "/kept"}]}
    container = {**mounted, "command": ["/bin/sh", "-c", LIVES, f"rank{number}"]}
    body: dict[str, Any] = pod(name, "", container=container, volumes=[volume])
    place = {keys.GROUP_INDEX: "0", **({keys.WORKER_INDEX: "0"} if number == 0 else {})}
    labels = {keys.MANAGED_BY: keys.MANAGER, keys.SERVICE: "chat", keys.COMPONENT: "engine", keys.REVISION: "r1"}
    body["metadata"]["labels"] = {**labels, **place, keys.POD_INDEX: str(number)}
    return body


@pytest.fixture(scope="module")
def chat(real: Cluster) -> Cluster:
    """Return the cluster with a group of two ranks."""
    real.apply(rank(0), rank(1))
    for name in ("chat-engine-r1-0-0", "chat-engine-r1-0-w-1"):
        wait_ready(real, name)
    return real


def logs(cluster: Cluster, *words: str) -> Result:
    return CliRunner().invoke(app, ["logs", "chat", *words, "--kubeconfig", str(cluster.kubeconfig)], catch_exceptions=False)


@contextmanager
def following(cluster: Cluster) -> Iterator["queue.Queue[str]"]:
    """Yield a queue with the lines of `ome logs -f` as they arrive."""
    command = [sys.executable, "-m", "ome_operator", "logs", "chat", "-f", "--kubeconfig", str(cluster.kubeconfig)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=ROOT)
    lines: queue.Queue[str] = queue.Queue()
    assert process.stdout is not None
    reader = threading.Thread(target=lambda: [lines.put(line.rstrip("\n")) for line in process.stdout or ()], daemon=True)
    reader.start()
    try:
        yield lines
    finally:
        process.terminate()
        process.wait()
        reader.join()


def test_logs_of_both_ranks_have_their_place_as_a_prefix(chat: Cluster) -> None:
    eventually("both have written", lambda: len(logs(chat).stdout.splitlines()) == 2)
    assert set(logs(chat).stdout.splitlines()) == {"engine/0/0 │ life 1 of rank0", "engine/0/1 │ life 1 of rank1"}
    assert logs(chat, "--rank", "1", "--tail", "1").stdout == "engine/0/1 │ life 1 of rank1\n"
    timed = logs(chat, "--timestamps").stdout.splitlines()
    assert [line.split()[2] for line in timed] == sorted(line.split()[2] for line in timed)


def test_restart_is_followed_and_previous_logs_can_be_read(chat: Cluster) -> None:
    with following(chat) as lines:
        assert {lines.get(timeout=30) for _ in range(2)} == {"engine/0/0 │ life 1 of rank0", "engine/0/1 │ life 1 of rank1"}
        chat.kubectl("exec", "chat-engine-r1-0-w-1", "--", "touch", "/kept/end1")
        assert lines.get(timeout=30) == "engine/0/1 │ last words of rank1 1"
        assert lines.get(timeout=60) == "engine/0/1 │ life 2 of rank1"
    assert "engine/0/1 │ last words of rank1 1" in logs(chat, "--rank", "1", "--previous").stdout.splitlines()


def test_unreadable_log_is_reported_and_hides_no_other(chat: Cluster) -> None:
    found = logs(chat, "--rank", "0", "--previous")
    assert found.exit_code == 1
    assert found.stderr.startswith("engine/0/0: ") and "previous terminated container" in found.stderr
