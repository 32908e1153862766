"""Tests of the InferencePool in docs/exposure.md, on an API server with the CRD of the Gateway API Inference Extension."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.support import yamls
from tests.support.rig import ROOT, Rig

CRD = ROOT / "tests/data/crds/inferencepools.yaml"
INDEX = "apps.kubernetes.io/pod-index"
KIND = "inferencepools.inference.networking.k8s.io"


def documented() -> dict[str, Any]:
    """Return the example of docs/exposure.md."""
    blocks = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs/exposure.md").read_text(), re.DOTALL)
    (found,) = (body for block in blocks if (body := yaml.safe_load(block)).get("kind") == "InferencePool")
    return dict(found)


@pytest.fixture
def pairs(rig: Rig, namespace: str) -> Iterator[str]:
    """Install the CRD, and yield the name of a runtime whose groups have two pods."""
    rig.cluster.kubectl("apply", "-f", str(CRD))
    rig.cluster.kubectl("wait", "--for=condition=Established", f"crd/{KIND}", "--timeout=30s")
    name = f"pairs-{namespace}"
    rig.create(yamls.runtime(name, size=2, router=False))
    yield name
    rig.delete("ClusterServingRuntime", "", name)
    rig.cluster.kubectl("delete", "-f", str(CRD))


def test_the_documented_pool_selects_the_leaders_and_their_port(rig: Rig, namespace: str, pairs: str) -> None:
    pool = documented()
    name = pool["metadata"]["name"]
    rig.create(yamls.service(namespace, name, pairs, "engine", engine={"minReplicas": 2}))
    rig.ready(namespace, name, 60)
    pool["metadata"]["namespace"] = namespace
    rig.cluster.kubectl("create", "-f", "-", stdin=json.dumps(pool))
    selector = ",".join(f"{key}={value}" for key, value in pool["spec"]["selector"]["matchLabels"].items())
    selected = {one["metadata"]["name"] for one in rig.all("Pod", namespace, selector)}
    pods = rig.all("Pod", namespace)
    assert selected == {one["metadata"]["name"] for one in pods if one["metadata"]["labels"][INDEX] == "0"}
    assert len(pods) == 4 and len(selected) == 2
    service = rig.get("Service", namespace, f"{name}-engine")
    assert service is not None
    assert [one["number"] for one in pool["spec"]["targetPorts"]] == [one["targetPort"] for one in service["spec"]["ports"]]
