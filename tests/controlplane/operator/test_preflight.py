"""Tests of `ome preflight` on a real control plane with simulated nodes: pods that cannot start are named at once, and no
object is left, however the command ends.
"""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from ome_operator import keys
from ome_operator.cli.app import app
from ome_operator.errors import QuestionUnanswered
from tests.support import drains
from tests.support.rig import Manifest, Rig

POOL = "preflight"


@pytest.fixture(scope="module", autouse=True)
def nodes(stage: Rig) -> Iterator[None]:
    """Create two nodes for engines, and delete them after the tests."""
    drains.pool(stage, POOL, 2)
    yield
    drains.empty(stage)


def checked(rig: Rig, folder: Path, *bodies: Manifest) -> str:
    """Return the output of the command for these services, after a check that it ended with exit code 2 long before its
    time limit and left nothing behind.
    """
    file = folder / "services.yaml"
    file.write_text(yaml.safe_dump_all(bodies))
    began = time.monotonic()
    done = CliRunner().invoke(app, ["preflight", "-f", str(file), "--kubeconfig", str(rig.cluster.kubeconfig)])
    assert time.monotonic() - began < 120
    assert isinstance(done.exception, SystemExit | QuestionUnanswered), done.exception
    assert getattr(done.exception, "exit_code", done.exit_code) == 2
    for kind in ("Pod", "Service"):
        assert rig.all(kind, "", keys.PREFLIGHT_RUN) == []
    return done.output if isinstance(done.exception, SystemExit) else str(done.exception)


def test_pods_that_fit_no_node_are_named_at_once(rig: Rig, namespace: str, tmp_path: Path) -> None:
    said = checked(rig, tmp_path, drains.movable(namespace, POOL, 1, {}, engine=3))
    assert said.startswith(f"{namespace}/{drains.NAME}: the nodes could not hold its pods even if they were empty: ")
    assert "needs 3 nodes" in said, said
    rig.patch("Node", "", f"{POOL}-0", {"spec": {"unschedulable": True}})
    said = checked(rig, tmp_path, drains.movable(namespace, POOL, 1, {}, engine=2))
    rig.patch("Node", "", f"{POOL}-0", {"spec": {"unschedulable": None}})
    assert "nodes that report and are not cordoned" in said, said


def test_pods_that_fit_are_created_and_removed(rig: Rig, namespace: str, tmp_path: Path) -> None:
    said = checked(rig, tmp_path, drains.movable(namespace, POOL, 1, {}, engine=2))
    assert f"{POOL}-0" in said and f"{POOL}-1" in said and "the node is simulated by kwok" in said, said


def test_objects_that_the_api_server_refuses_are_told_with_the_service(rig: Rig, namespace: str, tmp_path: Path) -> None:
    fine = drains.movable(namespace, POOL, 1, {}, engine=1)
    nowhere = {**fine, "metadata": {**fine["metadata"], "namespace": "no-such-namespace"}}
    assert checked(rig, tmp_path, nowhere) == (
        f"no-such-namespace/{drains.NAME}: namespace no-such-namespace does not exist: create it, or name another namespace."
    )
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none", "namespace": namespace}}
    rig.create({**quota, "spec": {"hard": {"pods": "0"}}})
    rig.wait("the quota", lambda: (rig.get("ResourceQuota", namespace, "none") or {}).get("status", {}).get("hard"))
    said = checked(rig, tmp_path, fine)
    rig.delete("ResourceQuota", namespace, "none")
    assert said.startswith(f"{namespace}/{drains.NAME}: ") and "exceeded quota: none" in said, said
    assert "Use an account" not in said
