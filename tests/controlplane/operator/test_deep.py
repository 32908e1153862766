"""Tests of objects with the deepest nesting that the API server accepts: the operator rejects them with a message, and
continues to handle all other objects.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.support import yamls
from tests.support.deep import HERE, filled
from tests.support.rig import ROOT, Rig, probe_state

DEPTHS = {"as reported": 2_000, "near the API server's own limit": 9_000}


@pytest.fixture
def deep(rig: Rig, namespace: str) -> Iterator[list[str]]:
    """Yield an empty list, to which the test adds the names of services that Python cannot parse. kubectl deletes these
    services after the test.
    """
    names: list[str] = []
    yield names
    for name in names:
        rig.cluster.kubectl("delete", "inferenceservice", name, "-n", namespace, "--ignore-not-found")


def test_deeply_nested_service_does_not_stop_the_operator(rig: Rig, namespace: str, deep: list[str]) -> None:
    """Services with deeply nested specs do not end the operator, and other services are still handled. Each of these
    services once made the operator exit, again after every restart.
    """
    process, runtime = rig.cluster.process("operator"), f"deep-{namespace}"
    rig.create(yamls.runtime(runtime, router=False))
    try:
        for name, levels in {f"d{levels}": levels for levels in DEPTHS.values()}.items():
            runner = {"name": "x", "image": "x", "z": HERE}
            metadata = {"name": name, "namespace": namespace}
            spec = {"model": {"name": "m"}, "engine": {"runner": runner}}
            body = {"apiVersion": yamls.API, "kind": "InferenceService", "metadata": metadata, "spec": spec}
            deep.append(name)
            rig.cluster.kubectl("create", "-f", "-", stdin=filled(json.dumps(body).encode(), levels).decode())
            rig.wait(
                f"{name} is refused", lambda name=name: "nested more than 50 levels deep" in condition(rig, namespace, name)
            )
        rig.create(yamls.service(namespace, "another", runtime, "engine"))
        rig.ready(namespace, "another")
        assert rig.cluster.process("operator") == process
        rig.restart()
        rig.wait_for_leader()
        rig.cluster.kubectl("delete", "inferenceservice", "another", "-n", namespace)
        rig.create(yamls.service(namespace, "afterwards", runtime, "engine"))
        rig.ready(namespace, "afterwards")
        assert probe_state(rig.port) == "leading"
        shown = ome(rig, "status", "-n", namespace)
        assert all(name in shown for name in (*deep, "afterwards")), shown
        assert "nested more than 50 levels deep" in ome(rig, "explain", deep[-1], "-n", namespace)
    finally:
        rig.delete("ClusterServingRuntime", "", runtime)


def condition(rig: Rig, namespace: str, name: str) -> str:
    """Return the message of the service's condition Ready. It is read with kubectl, because Python cannot parse the complete
    object.
    """
    path = '{.status.conditions[?(@.type=="Ready")].message}'
    return rig.cluster.kubectl("get", "inferenceservice", name, "-n", namespace, "-o", f"jsonpath={path}")


def ome(rig: Rig, *words: str) -> str:
    """Return the output of a command that runs in a separate process."""
    argv = [sys.executable, "-m", "ome_operator", *words, "--kubeconfig", str(rig.cluster.kubeconfig)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, cwd=ROOT, env=os.environ, timeout=60)
    assert "Traceback" not in done.stderr, done.stderr
    return done.stdout + done.stderr
