"""Tests of the check's init container: it runs last, in the image of the engine's container, and requests no additional
resources.
"""

import json
from typing import Any

from ome_operator.core.placement.demand import demand
from ome_operator.core.preflight.container import add_preflight_check, group

PLACE = group("svc", "team", "r1", "decoder", 12, 30000)
MAIN: dict[str, Any] = {
    "name": "ome-container",
    "image": "engine:1",
    "command": ["python3"],
    "args": ["--rank=$(LWS_WORKER_INDEX)"],
    "env": [{"name": "A", "value": "1"}],
    "envFrom": [{"configMapRef": {"name": "c"}}],
    "ports": [{"containerPort": 30000, "hostPort": 30000}],
    "resources": {"limits": {"nvidia.com/gpu": "8", "hugepages-2Mi": "4Gi", "cpu": "2"}},
    "volumeMounts": [{"name": "dshm", "mountPath": "/dev/shm"}],
    "securityContext": {"runAsUser": 1},
    "startupProbe": {"httpGet": {"path": "/health", "port": 30000}},
    "lifecycle": {"preStop": {"sleep": {"seconds": 1}}},
}
POD = {"initContainers": [{"name": "fetch", "image": "x"}], "containers": [MAIN], "hostNetwork": True}


def test_check_container_copies_the_engine_and_is_the_last_init_container() -> None:
    pod = add_preflight_check(POD, "Warn", PLACE)
    first, box = pod["initContainers"]
    assert first["name"] == "fetch" and pod["containers"] == [MAIN]
    same = ("image", "envFrom", "resources", "volumeMounts", "securityContext", "args")
    assert all(box[field] == MAIN[field] for field in same)
    assert not box.keys() & {"ports", "startupProbe", "lifecycle"}, "these are only for the engine"
    assert box["command"][:2] == ["/bin/sh", "-c"] and box["command"][3:] == ["preflight", "python3"]


def test_check_container_does_not_change_the_node_selection() -> None:
    """The init container of the check does not change the node that the scheduler chooses. Init containers and containers do
    not run at the same time, so the scheduler sees the same requests with and without the check.
    """
    plain, looked = ({"metadata": {"labels": {}}, "spec": spec} for spec in (POD, add_preflight_check(POD, "Warn", PLACE)))
    assert demand(plain, True) == demand(looked, True)


def test_check_container_gets_the_group_facts_as_json() -> None:
    env = {each["name"]: each["value"] for each in add_preflight_check(POD, "Require", PLACE)["initContainers"][1]["env"]}
    assert env["A"] == "1" and env["OME_PREFLIGHT_MODE"] == "Require"
    facts = json.loads(env["OME_PREFLIGHT"])
    assert facts == {
        "rank": "$(LWS_WORKER_INDEX)",
        "size": 12,
        "http": 30000,
        "leader": "svc-decoder-r1-$(LWS_GROUP_INDEX)-0.svc-pods.team",
        "worker": "svc-decoder-r1-$(LWS_GROUP_INDEX)-w-%d.svc-pods.team",
        "prefill": "svc-engine-r1-%d-0.svc-pods.team",
        "seconds": 120,
        "gpus": 8,
        "hugepages": {"2Mi": 4 << 30},
    }
    alone = group("svc", "team", "r1", "engine", 1, 0)
    assert alone["seconds"] == 60 and not {"worker", "prefill"} & alone.keys()
