"""Tests that `ome diff` finds the revision of a service whatever hexadecimal digit the name of the revision begins with.
StatefulSets also have ControllerRevisions, with the same labels. For some first digits, their names come before those of the
operator's revisions in a list.
"""

import json
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from ome_operator.cli.app import app
from ome_operator.cli.live.cluster_from_manifests import build_cluster
from ome_operator.describe.outcome import compute_outcome
from tests.support import yamls
from tests.support.rig import Manifest, Rig

DIGITS = "0123456789abcdef"
SHAPES = {"e": ("engine",), "pd": ("engine", "decoder")}


def by_digit(namespace: str, runtime: Manifest, shape: str) -> dict[str, Manifest]:
    """Return 16 services that differ in an annotation, one for each first digit of the name of a revision."""
    found: dict[str, Manifest] = {}
    for number in count():
        parts = {name: {"annotations": {"y": str(number)}} for name in SHAPES[shape]}
        body = yamls.service(namespace, "x", runtime["metadata"]["name"], **parts)
        body["spec"].pop("router", None)
        cluster = build_cluster([yamls.model(), runtime, body])
        (kept,) = cluster.services()
        digit = compute_outcome(kept.parsed, cluster.deps()).revision[0]
        if digit not in found:
            body["metadata"]["name"] = f"{shape}{digit}"
            found[digit] = body
        if len(found) == len(DIGITS):
            return found
    raise AssertionError


@pytest.mark.parametrize("shape", SHAPES)
def test_diff_of_a_shared_runtime_covers_services_with_every_revision_digit(
    rig: Rig, namespace: str, shape: str, tmp_path: Path
) -> None:
    runtime = yamls.runtime(f"digits-{namespace}", decoder=shape == "pd", router=False)
    rig.create(runtime)
    services = by_digit(namespace, runtime, shape)
    for body in services.values():
        rig.create(body)
    roles = len(SHAPES[shape])
    rig.wait("StatefulSets with their own revisions", lambda: theirs(rig, namespace) >= len(DIGITS) * roles, 90)
    for digit, body in services.items():
        name = body["metadata"]["name"]
        assert rig.ready(namespace, name, 60)["status"]["revision"].startswith(digit)

    edited: Any = json.loads(json.dumps(runtime))
    edited["spec"]["engineConfig"]["runner"]["args"].append("--more")
    file = tmp_path / "runtime.yaml"
    file.write_text(yaml.safe_dump(edited))
    where = ["--kubeconfig", str(rig.cluster.kubeconfig), "-n", namespace]
    result = CliRunner().invoke(app, ["diff", "-f", str(file), "-o", "json", *where], catch_exceptions=False)
    assert result.exit_code == 1, result.output
    said = {one["service"]["name"]: one for one in json.loads(result.stdout)["services"]}
    assert said.keys() == {body["metadata"]["name"] for body in services.values()}
    for one in said.values():
        assert {role["component"] for role in one["restarts"]} == set(SHAPES[shape]), one["sentence"]
        assert one["why"] == [f"runtime digits-{namespace} engineConfig.runner.args added: --more"], one["sentence"]
    rig.clear(namespace)
    rig.delete("ClusterServingRuntime", "", runtime["metadata"]["name"])


def theirs(rig: Rig, namespace: str) -> int:
    """Return the number of ControllerRevisions that the StatefulSet controller has created."""
    owners = [one["metadata"]["ownerReferences"][0] for one in rig.all("ControllerRevision", namespace)]
    return sum(owner["kind"] == "StatefulSet" for owner in owners)
