"""Tests of the ResourceQuota in docs/tenancy.md: it limits the objects of a tenant's services, and the tenant gets its
message.
"""

import re
from pathlib import Path

import pytest
import yaml

from ome_local.kubeapi import ApiError
from tests.support import yamls
from tests.support.rig import ROOT, Manifest, Rig

pytestmark = pytest.mark.timeout(600)
PAGE = (Path(ROOT) / "docs/tenancy.md").read_text(encoding="utf-8")


def quota(namespace: str) -> Manifest:
    """Return the ResourceQuota of docs/tenancy.md for a namespace."""
    (text,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    body: Manifest = yaml.safe_load(text)
    body["metadata"]["namespace"] = namespace
    return body


def limited(rig: Rig, namespace: str) -> dict[str, int]:
    """Create the quota, wait until it counts every kind, and return its limits. The quota controller learns the kinds of a
    new cluster only after a minute or two.
    """
    body = quota(namespace)
    rig.create(body)
    hard: dict[str, str] = body["spec"]["hard"]

    def counts() -> bool:
        return (rig.all("ResourceQuota", namespace)[0].get("status", {}).get("used") or {}).keys() == hard.keys()

    rig.wait("the quota counts", counts, 240)
    return {name: int(value) for name, value in hard.items()}


def test_a_quota_limits_the_objects_of_a_namespace(rig: Rig, namespace: str) -> None:
    hard = limited(rig, namespace)
    groups, services = hard["count/statefulsets.apps"], hard["count/inferenceservices.ome.io"]
    rig.create(yamls.runtime("counted", gpus=1, router=False))
    large = yamls.service(namespace, "large", "counted", "engine")
    large["spec"]["engine"] = {"minReplicas": groups + 5, "maxReplicas": groups + 5}
    try:
        rig.create(large)
        rig.wait("as many groups as the quota permits", lambda: len(rig.all("StatefulSet", namespace)) == groups, 60)
        rig.wait(
            "the condition names the quota",
            lambda: "exceeded quota: objects" in str(rig.condition(namespace, "large", "EngineReady").get("message")),
            60,
        )
        assert len(rig.all("StatefulSet", namespace)) == groups
        for number in range(services - 1):
            rig.create(yamls.service(namespace, f"s{number}", "none", "engine"))
        rig.wait(  # the quota controller may have written an older number last, counted in its own cache
            "the quota counts every service",
            lambda: (
                rig.all("ResourceQuota", namespace)[0]["status"]["used"]["count/inferenceservices.ome.io"] == str(services)
            ),
            60,
        )
        with pytest.raises(ApiError, match="exceeded quota: objects"):
            rig.create(yamls.service(namespace, "more", "none", "engine"))
    finally:
        rig.delete("ClusterServingRuntime", "", "counted")


def test_a_service_fits_into_the_quota(rig: Rig, namespace: str) -> None:
    """A service with prefill, decode and a router fits into the quota with all objects that the operator creates for it."""
    limited(rig, namespace)
    rig.create(yamls.runtime("counted", size=2, gpus=8, decoder=True))
    rig.create(yamls.service(namespace, "s", "counted", "engine", "decoder", "router"))
    try:
        rig.ready(namespace, "s", 60)
    finally:
        rig.delete("ClusterServingRuntime", "", "counted")
