"""Tests of `ome fit` on a real control plane with simulated nodes: the answer agrees with where pods are then placed."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from ome_operator.cli.app import app
from tests.support import drains
from tests.support.rig import Manifest, Rig

POOL = "fit"


@pytest.fixture(scope="module", autouse=True)
def nodes(stage: Rig) -> Iterator[None]:
    """Create three nodes for engines, and delete them after the tests."""
    drains.pool(stage, POOL, 3)
    yield
    drains.empty(stage)


def asked(rig: Rig, file: Path, *bodies: Manifest) -> tuple[int, list[dict[str, Any]]]:
    """Return the exit code of the command, and its answer for each service."""
    file.write_text(yaml.safe_dump_all(bodies))
    done = CliRunner().invoke(app, ["fit", "-f", str(file), "-o", "json", "--kubeconfig", str(rig.cluster.kubeconfig)])
    assert isinstance(done.exception, SystemExit | None), done.exception
    return done.exit_code, json.loads(done.output)


def test_predicted_placement_equals_the_real_one(rig: Rig, namespace: str, tmp_path: Path) -> None:
    file, first = tmp_path / "services.yaml", drains.movable(namespace, POOL, 1, {}, engine=2)
    second = {**first, "metadata": {"name": "second", "namespace": namespace}}
    code, (found,) = asked(rig, file, first)
    assert (code, found["fits"], len(found["places"])) == (0, True, 2)
    rig.create(first)
    rig.ready(namespace, drains.NAME, 60)
    used = set(drains.nodes_of(rig, namespace, "engine"))
    assert used < {f"{POOL}-{number}" for number in range(3)}

    code, (found,) = asked(rig, file, second)
    assert (code, found["fits"]) == (1, False)
    assert "needs 2 nodes with 8 free GPUs: 1 is free" in found["why"], found["why"]
    assert {place["node"] for place in found["places"]}.isdisjoint(used)
    (gone,) = found["goes"]
    assert gone["node"] in used and gone["holders"] == [{"who": f"{namespace}/{drains.NAME}", "gpus": 8}]
    rig.create(second)
    rig.wait("a group of it waits", lambda: rig.condition(namespace, "second", "Scaled").get("reason") == "Unschedulable")

    code, (again,) = asked(rig, file, first)
    assert (code, again["fits"]) == (0, True), "the pods of the service itself do not count as used"
    rig.patch("InferenceService", namespace, drains.NAME, {"spec": {"engine": {"minReplicas": 1}}})
    rig.wait("a group is gone", lambda: len(drains.nodes_of(rig, namespace, "engine")) == 3, 60)
    rig.ready(namespace, "second", 60)
