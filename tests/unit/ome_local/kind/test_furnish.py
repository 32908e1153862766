"""Tests of setting up a kind cluster: the taints of its nodes, and its add-ons. A minimal API server answers."""

from typing import Any

from ome_local.kind import furnish
from ome_local.kubeapi import ApiError, KubeApi
from ome_local.nodes import simulated

OURS = {"key": "ome.io/real", "value": "true", "effect": "PreferNoSchedule"}


class Server(KubeApi):
    """A server with tainted nodes, which records patches."""

    def __init__(self, taints: list[dict[str, str]], lacks: str = "") -> None:
        self.taints, self.lacks = taints, lacks
        self.patched: dict[str, Any] = {}

    def get(self, path: str) -> Any:
        """Return a node."""
        return {"spec": {"taints": self.taints} if self.taints else {}}

    def request(self, method: str, path: str, body: Any = None, kind: str = "application/json") -> Any:
        """Apply a merge patch."""
        assert (method, kind) == ("PATCH", "application/merge-patch+json")
        if self.lacks and path.endswith(self.lacks):
            raise ApiError(404, "not found")
        self.patched[path] = body["spec"]
        self.taints = body["spec"].get("taints", self.taints)


def test_up_keeps_existing_taints_of_node() -> None:
    """`up` adds its taint to those that a node already has. Previously, it replaced all taints, including the taint of a
    cordoned node.
    """
    cordon = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
    server = Server([cordon])
    furnish.spare(server, ["real"])
    assert server.patched == {"/api/v1/nodes/real": {"taints": [cordon, OURS]}}
    server.patched.clear()
    furnish.spare(server, ["real"])
    assert server.patched == {}, "the taint is there already"


def test_add_ons_are_not_scheduled_on_simulated_nodes() -> None:
    """The pods of add-ons are kept off simulated nodes. Previously, CoreDNS was moved to a simulated node whenever it was
    rescheduled, and no real pod could resolve a name any more.
    """
    server = Server([])
    furnish.keep_addons(server)
    names = {path.rpartition("/")[2] for path in server.patched}
    assert names == {"coredns", "kube-proxy", "kindnet", "local-path-provisioner"}
    for spec in server.patched.values():
        required = spec["template"]["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        ((expression,),) = (term["matchExpressions"] for term in required["nodeSelectorTerms"])
        labels = simulated("h200", 1)[0]["metadata"]["labels"]
        assert expression["operator"] == "NotIn"
        assert labels[expression["key"]] in expression["values"]


def test_missing_add_on_is_skipped() -> None:
    """An add-on that another version of kind does not have is skipped."""
    server = Server([], lacks="local-path-provisioner")
    furnish.keep_addons(server)
    assert len(server.patched) == 3
