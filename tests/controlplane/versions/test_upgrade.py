"""Tests that upgrade Kubernetes by one minor version at a time under running services. Run them with `make versions`: each
version is built first.
"""

import os

import pytest

from ome_local import layout, lifecycle
from ome_local.binaries.versions import KUBERNETES, OTHERS, minor
from ome_local.cluster import Cluster
from ome_operator import keys
from tests.support import clusters, yamls
from tests.support.rig import Rig

pytestmark = [
    pytest.mark.skipif("OME_VERSIONS" not in os.environ, reason="each Kubernetes takes minutes to build: make versions"),
    pytest.mark.timeout(3600),
]
STEPS = [version for version in sorted(OTHERS) if minor(version) > minor(KUBERNETES)]
NAMESPACE = "upgraded"


def test_kubernetes_upgrade_restarts_no_pod() -> None:
    """After each upgrade by one minor version, the pods are the same as before, a service can be scaled, and a new service
    becomes Ready.
    """
    name = clusters.name("upgrade")
    try:
        rig = Rig(Cluster.up(name, nodes=16, audit=True, fast=True, kubernetes=KUBERNETES))
        rig.install()
        for node in rig.all("Node", ""):
            rig.patch("Node", "", node["metadata"]["name"], {"metadata": {"labels": yamls.READY}})
        rig.create(yamls.model())
        for runtime in (yamls.runtime("single"), yamls.runtime("pairs", size=2, decoder=True)):
            rig.create(runtime)
        rig.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
        rig.start()
        rig.create(yamls.service(NAMESPACE, "split", "pairs", "engine", "decoder", "router"))
        rig.create(yamls.service(NAMESPACE, "scaled", "single", "engine"))
        for service in ("split", "scaled"):
            rig.ready(NAMESPACE, service)
        for groups, version in enumerate(STEPS, start=2):
            before = pods(rig)
            rig.cluster = Cluster.up(name, kubernetes=version)
            rig.api = rig.cluster.api()
            if rig.cluster.process("operator") is None:  # it ended after ten seconds without a server
                rig.start()
            rig.wait_for_leader()
            assert rig.api.get("/version")["gitVersion"] == f"v{version}"
            rig.wait_until_quiet()
            assert pods(rig) == before, version
            bounds = {"minReplicas": groups, "maxReplicas": groups}
            rig.patch("InferenceService", NAMESPACE, "scaled", {"spec": {"engine": bounds}})
            rig.create(yamls.service(NAMESPACE, f"new-{minor(version)}", "single", "engine"))
            rig.ready(NAMESPACE, f"new-{minor(version)}")
            rig.wait("scaled", lambda groups=groups: len(engines(rig, "scaled")) == groups, 60)
            rig.ready(NAMESPACE, "split")
    finally:
        lifecycle.down(layout.layout(name))


def pods(rig: Rig) -> dict[str, str]:
    """Return name -> UID of all pods."""
    return {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in rig.all("Pod", NAMESPACE)}


def engines(rig: Rig, service: str) -> list[str]:
    """Return the names of the service's engine pods."""
    found = rig.all("Pod", NAMESPACE, f"{keys.SERVICE}={service},component=engine")
    return [pod["metadata"]["name"] for pod in found]
