"""Faults of nodes, of weights that an agent downloads, and of agents' records."""

import copy
import itertools
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from ome_local.kubeapi import ApiError
from ome_operator import keys
from tests.controlplane.alerts.conftest import Bed
from tests.controlplane.alerts.faults.known import fault
from tests.support import hub as hubs
from tests.support import yamls
from tests.support.kubelet import MERGE
from tests.support.rig import Rig, path


@fault("OmeNodesUnready")
def _(bed: Bed) -> Iterator[None]:
    """A node is cordoned."""
    bed.rig.cluster.kubectl("cordon", "h200-15")
    yield
    bed.rig.cluster.kubectl("uncordon", "h200-15")


@fault("OmeNodesAvoided")
def _(bed: Bed) -> Iterator[None]:
    """A node reports a kernel deadlock for longer than the five minutes after which services avoid the node. Afterwards the
    deadlock is gone, and the record of it is removed.
    """
    node, rig = "h200-14", bed.rig
    where = f"{path('Node', '', node)}/status"

    def reports(status: str) -> None:
        conditions = [each for each in rig.api.get(where)["status"]["conditions"] if each["type"] != "KernelDeadlock"]
        said = {"type": "KernelDeadlock", "status": status, "reason": "Test", "message": "it hangs"}
        rig.api.request("PATCH", where, {"status": {"conditions": [*conditions, said]}}, MERGE)

    bed.later(rig.delete, "NodeFaults", "", node)
    reports("True")
    yield
    reports("False")
    rig.cluster.kubectl("annotate", "nodefaults", node, f"{keys.FORGIVEN}={datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}")


NODE = "h200-01"
"""Name of the node on which an agent runs."""


@contextmanager
def fetching(bed: Bed, uri: str, bytes_: int) -> Iterator[tuple[hubs.Hub, Callable[[], None]]]:
    """Create a model that only this node has to hold. Yield the hub with its files, and a function that starts the node's
    agent.
    """
    rig, disk = bed.rig, bed.folder / uri.replace("/", "_")
    bed.later(rig.cluster.kubectl, "label", "node", NODE, f"models.{keys.GROUP}/clusterbasemodel.fetched-")
    bed.later(rig.delete, "NodeModels", "", NODE)
    bed.later(rig.delete, "ClusterBaseModel", "", "fetched")
    bed.later(rig.patch, "ClusterBaseModel", "", "tiny", {"spec": {"storage": {"nodeSelector": None}}})
    elsewhere = {"nodeSelector": {"kubernetes.io/hostname": "h200-00"}}
    rig.patch("ClusterBaseModel", "", "tiny", {"spec": {"storage": elsewhere}})
    model = yamls.model("fetched", uri)
    model["spec"]["storage"] |= {"path": str(disk / "fetched"), "nodeSelector": {"kubernetes.io/hostname": NODE}}
    with hubs.served(hubs.Hub(hubs.model(1, [bytes_]))) as hub:
        argv = [
            sys.executable, "-m", "ome_operator", "agent", "--node", NODE, "--root", str(disk), "--endpoint", hub.url,
            "--private-host", "127.0.0.1", "--private-host", "localhost", "--kubeconfig", str(rig.cluster.kubeconfig),
            "--address", "127.0.0.1", "--port", "0",
        ]  # fmt: skip
        rig.create(model)
        bed.later(rig.stop, process="agent")

        def start() -> None:
            rig.cluster.spawn("agent", argv)

        yield hub, start


def held(rig: Rig) -> list[dict[str, Any]]:
    """Return the models in the record of the agent on NODE."""
    found: list[dict[str, Any]] = (rig.get("NodeModels", "", NODE) or {}).get("status", {}).get("models", [])
    return found


@fault("OmeWeightsFailed")
def _(bed: Bed) -> Iterator[None]:
    """An agent has to download a revision that its hub does not have. Afterwards, the model names an existing revision."""
    with fetching(bed, "hf://org/model@nope", 20_000) as (_hub, start):
        start()
        bed.rig.wait("it fails", lambda: [each["state"] for each in held(bed.rig)] == ["Failed"], 60)
        yield
        bed.rig.patch("ClusterBaseModel", "", "fetched", {"spec": {"storage": {"storageUri": "hf://org/model"}}})
        bed.rig.wait("it is whole", lambda: [each["state"] for each in held(bed.rig)] == ["Ready"], 60)


@fault("OmeWeightsStall")
def _(bed: Bed) -> Iterator[None]:
    """An agent is killed during the download of a model, and is started again."""
    with fetching(bed, "hf://org/model", 2_000_000) as (hub, start):
        hub.rate = 50_000
        start()
        bed.rig.wait(
            "it fetches", lambda: any(0 < each.get("bytes", 0) < each.get("total", 0) for each in held(bed.rig)), 60
        )
        bed.rig.stop(signal.SIGKILL, process="agent")
        yield
        hub.rate = 0
        start()
        bed.rig.wait("it is whole", lambda: [each["state"] for each in held(bed.rig)] == ["Ready"], 60)


RECORDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/nodemodels.ome.io"


@fault("OmeObjectsUnread")
def _(bed: Bed) -> Iterator[None]:
    """An agent of another version writes its record with a map instead of a list as `models`. The CRD is changed to accept
    any status.
    """
    rig = bed.rig
    before = rig.api.get(RECORDS)["spec"]["versions"]
    opened = copy.deepcopy(before)
    opened[0]["schema"]["openAPIV3Schema"]["properties"]["status"] = {
        "type": "object", "x-kubernetes-preserve-unknown-fields": True
    }  # fmt: skip
    bed.later(rig.api.request, "PATCH", RECORDS, {"spec": {"versions": before}}, MERGE)
    rig.api.request("PATCH", RECORDS, {"spec": {"versions": opened}}, MERGE)
    rig.create({"apiVersion": keys.API_VERSION, "kind": "NodeModels", "metadata": {"name": NODE}})
    number = itertools.count()

    def unread() -> bool:
        status = {"models": {"ClusterBaseModel/tiny": {"bytes": next(number)}}}
        try:
            rig.api.request("PATCH", f"{path('NodeModels', '', NODE)}/status", {"status": status}, MERGE)
        except ApiError as error:
            if error.code != 422:  # for a moment, the API server still has the old schema, and refuses or prunes the status
                raise
        return bool(bed.asked.ask("ome_watch_unread_total > 0"))

    rig.wait("the operator cannot read it", unread, 60)
    yield
    rig.delete("NodeModels", "", NODE)
