"""Weights are removed only if no stored revision and no pod refers to them. This holds for each way in which pods mount
weights (decisions 7).
"""

import asyncio
from typing import Any, NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from ome_operator import keys
from ome_operator.cache.cluster_cache import ClusterCache
from ome_operator.controllers.weights_gc import WeightsGC
from ome_operator.core.observed.nodes import node_record
from ome_operator.core.observed.objects import Deps
from tests.support.fake_api import FakeApi

HOME, PATH, NODE = "/mnt/models/.ome", "/mnt/models/k2", "n"
DIGESTS = ("0000000a", "0000000b", "0000000c")


class Use(NamedTuple):
    """A reference to weights by a mount of a pod or of a stored revision."""

    way: str
    target: str
    """Digest of the directory that is mounted; "" if the pod or revision mounts none."""
    alive: bool
    """Whether the reference counts. References of revisions always count, and those of pods count until the pod has ended.
    """

    def pod(self) -> dict[str, Any]:
        """Return the pod spec."""
        place, part = {
            "directory": (f"{HOME}/{self.target}", ""),
            "inside": (f"{HOME}/{self.target}/tokenizer/", ""),
            "crooked": (f"/mnt//models/x/../.ome/{self.target}", ""),
            "part": ("/mnt/models", f".ome/{self.target}"),
            "former path": (f"{PATH}-{self.target}", ""),
            "whole disk": ("/mnt/models", ""),
            "whole node": ("/", ""),
            "namesake": (f"{HOME}/{DIGESTS[0]}-copy", ""),
        }[self.way]
        mount = {"name": "v", "mountPath": "/x", **({"subPath": part} if part else {})}
        box = {"name": "c", "volumeMounts": [mount, {"name": "scratch", "mountPath": "/y"}]}
        volumes = [{"name": "v", "hostPath": {"path": place}}, {"name": "scratch", "emptyDir": {}}]
        return {"containers": [box], "volumes": volumes}


referring = st.builds(
    Use, st.sampled_from(["directory", "inside", "crooked", "part", "former path"]), st.sampled_from(DIGESTS), st.booleans()
)
strange = st.builds(Use, st.sampled_from(["whole disk", "whole node", "namesake"]), st.just(""), st.booleans())
uses = st.lists(referring | strange, max_size=4)


def server(*pods: Use) -> FakeApi:
    """Return an API server with pods of one node."""
    bodies = [{"spec": one.pod(), "status": {"phase": "Running" if one.alive else "Succeeded"}} for one in pods]
    return FakeApi({"list_objects Pod": bodies})


def body(**parts: Any) -> dict[str, Any]:
    return {"metadata": {"name": NODE, "uid": "uid-n", "resourceVersion": "7"}, **parts}


def stored(cluster: ClusterCache, number: int, use: Use) -> None:
    """Store a ControllerRevision whose workers use the weights."""
    labels = {keys.SERVICE: "svc", keys.MANAGED_BY: keys.MANAGER}
    worker = {"spec": {"template": {"spec": use.pod()}}}
    data = {"workloads": {"engine": {"leader": {"spec": {"template": {"spec": {"containers": []}}}}, "worker": worker}}}
    metadata = {"name": f"r{number}", "namespace": "ns", "uid": f"r{number}", "resourceVersion": "1", "labels": labels}
    cluster.store_observed("ControllerRevision", {"metadata": metadata, "revision": number, "data": data})


@given(uses, uses, st.sets(st.sampled_from(DIGESTS)), st.sets(st.sampled_from(DIGESTS)))
def test_only_unreferenced_weights_may_be_removed(
    revisions: list[Use], pods: list[Use], offered: set[str], before: set[str]
) -> None:
    cluster = ClusterCache(Deps())
    for number, use in enumerate(revisions):
        stored(cluster, number, use)
    unused = [
        {"directory": f"{HOME}/{one}", "paths": [f"{PATH}-{one}"], **({"offer": "now"} if one in offered else {})}
        for one in DIGESTS
    ]
    already = [{"directory": f"{HOME}/{one}", "offer": "now"} for one in sorted(before)]
    api = server(*pods)
    record = node_record(body(status={"unused": unused}, spec={"remove": already}))
    asyncio.run(WeightsGC(cluster, api).answer(record))
    needed = {one.target for one in revisions} | {one.target for one in pods if one.alive}
    expected = offered - needed
    if expected == before:
        assert api.kinds("apply") == []
        return
    assert {call.selector for call in api.calls if call.kind == "Pod"} <= {f"spec.nodeName={NODE}"}
    (call,) = [call for call in api.calls if call.verb == "apply"]
    assert call.uid == "uid-n"
    allowed = {(one["directory"], one["offer"]) for one in call.body["spec"]["remove"]}
    assert allowed == {(f"{HOME}/{one}", "now") for one in expected}


def test_permission_for_an_older_offer_is_withdrawn() -> None:
    cluster, api = ClusterCache(Deps()), server()
    place = f"{HOME}/{DIGESTS[0]}"
    spec = {"remove": [{"directory": place, "offer": "then"}]}
    asyncio.run(WeightsGC(cluster, api).answer(node_record(body(spec=spec))))
    assert [one["spec"]["remove"] for one in api.bodies("apply")] == [[]]
