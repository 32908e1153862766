"""Tests of what `ome explain` reads from a cluster."""

from typing import Any

from ome_operator import keys
from ome_operator.cli.live.diagnosis import read_trouble
from tests.support import yamls
from tests.support.fake_api import Call, FakeApi


def revision(name: str, number: int, uid: str) -> dict[str, Any]:
    """Return a stored revision of the service as the API server returns it."""
    owner = {"apiVersion": "ome.io/v1beta1", "kind": "InferenceService", "name": "svc", "uid": uid, "controller": True}
    labels = {keys.SERVICE: "svc", keys.REVISION: name, keys.MANAGED_BY: keys.MANAGER}
    metadata = {"name": f"svc-{name}", "namespace": "team", "uid": name, "labels": labels, "ownerReferences": [owner]}
    return {"metadata": metadata, "revision": number, "data": {"inputs": {}}}


async def test_the_last_complete_revision_is_offered_for_a_new_one_that_fails() -> None:
    service = yamls.service("team", "svc", "rt")
    service["metadata"].setdefault("uid", "u")
    service["status"] = {"revision": "svc→new", "components": {"engine": {"latestReadyRevision": "old"}}}
    uid = service["metadata"]["uid"]
    labels = {
        keys.SERVICE: "svc", keys.REVISION: "new", keys.MANAGED_BY: keys.MANAGER, keys.COMPONENT: "engine",
        keys.GROUP_INDEX: "0", keys.WORKER_INDEX: "0",
    }  # fmt: skip
    waiting = {"reason": "ImagePullBackOff", "message": "no such image"}
    pod = {
        "metadata": {"name": "svc-engine-new-0-0", "namespace": "team", "uid": "p", "labels": labels},
        "spec": {"nodeName": "n", "containers": [{"name": "ome-container"}]},
        "status": {
            "phase": "Pending",
            "conditions": [{"type": "PodScheduled", "status": "True"}],
            "containerStatuses": [{"name": "ome-container", "state": {"waiting": waiting}}],
        },
    }

    def listed(call: Call) -> Any:
        known = {"ControllerRevision": [revision("old", 1, uid), revision("new", 2, uid)], "Pod": [pod]}
        return known.get(call.kind, [])

    found = await read_trouble(FakeApi({"list_objects": listed, "get": service}), "team", "svc")
    assert [stuck.reason for stuck in found.pods] == ["ImagePullBackOff"]
    assert found.back == "revision old was complete before; to go back to this revision: ome undo svc -n team"
