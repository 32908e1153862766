"""Tests that the facts about pods and nodes are the same whether or not the fields that nobody reads are decoded."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.pods import LAST, at_stage, pod_of
from ome_operator import keys
from ome_operator.core.observed import from_api, nodes
from ome_operator.core.observed.decoders import NODE, POD
from ome_operator.util.json_limits import decode_json
from tests.support.odd_json import typed

BOX = {
    "name": "main", "image": "i", "readinessProbe": {}, "resources": {"limits": {"nvidia.com/gpu": "8"}},
    "env": [{"name": "LWS_LEADER_ADDRESS", "value": "s-engine-r-0-0.s.other"}],
}  # fmt: skip
LABELS = {keys.GROUP_INDEX: "0", keys.POD_INDEX: "0", keys.WORKER_INDEX: "0", keys.SERVICE: "s", keys.REVISION: "r"}
TEMPLATE = {
    "metadata": {"labels": LABELS, "annotations": {keys.DRAINING: "t"}},
    "spec": {"containers": [BOX], "initContainers": [BOX], "volumes": [{"name": "v", "emptyDir": {}}]},
}
WORKLOAD = {"kind": "StatefulSet", "metadata": {"name": "w", "namespace": "n", "uid": "u"}, "spec": {"template": TEMPLATE}}
PODS = [at_stage(pod_of(WORKLOAD, 0), stage, 7) for stage in range(LAST + 1)]
APPLIED: dict[str, Any] = {"f:metadata": {"f:labels": {"f:models.ome.io/m": {}, "f:models.ome.io/o": {}}}}
NODE_BODY: dict[str, Any] = {
    "metadata": {
        "name": "n", "uid": "u", "resourceVersion": "7", "labels": {"gpu": "h200", "models.ome.io/m": "Ready"},
        "annotations": {keys.MOVE: "now"},
        "managedFields": [
            {"manager": "kubelet", "operation": "Update", "subresource": "status", "fieldsV1": {"f:status": {}}},
            {"manager": keys.MANAGER, "operation": "Apply", "fieldsV1": APPLIED},
        ],
    },
    "spec": {"podCIDR": "10.0.0.0/24", "unschedulable": True, "taints": [{"key": "k", "value": "v", "effect": "NoExecute"}]},
    "status": {
        "conditions": [{"type": "Ready", "status": "True"}, {"type": "KernelDeadlock", "status": "True", "message": "m"}],
        "allocatable": {"cpu": "8", "nvidia.com/gpu": "7"}, "capacity": {"cpu": "8", "nvidia.com/gpu": "8"},
        "images": [{"names": ["i"], "sizeBytes": 1}], "addresses": [{"type": "Hostname", "address": "n"}],
    },
}  # fmt: skip


@given(st.sampled_from(PODS).flatmap(typed))
def test_pod_facts_do_not_depend_on_skipped_fields(body: Any) -> None:
    text = json.dumps(body).encode()
    assert from_api.pod(decode_json(text, POD.item)) == from_api.pod(body)


@given(typed(NODE_BODY), typed(NODE_BODY))
def test_node_facts_do_not_depend_on_skipped_fields(body: Any, before: Any) -> None:
    """The facts of a node are the same from the partly and from the completely decoded node. They do not depend on the
    facts of an earlier state of the node.
    """
    wanted, text = nodes.node(body), json.dumps(body).encode()
    found = nodes.node(decode_json(text, NODE.item), nodes.node(before))
    assert found == wanted == nodes.node(body, wanted)
    assert (dict(found.labels), list(found.labels)) == (dict(wanted.labels), list(wanted.labels))


@pytest.mark.parametrize(
    ("decoders", "body", "skipped"), [(POD, PODS[LAST], ("spec", "volumes")), (NODE, NODE_BODY, ("status", "images"))]
)
def test_large_fields_are_skipped(decoders: Any, body: Any, skipped: tuple[str, str]) -> None:
    part, name = skipped
    event = decode_json(json.dumps({"type": "ADDED", "object": body}).encode(), decoders.event)
    assert name in body[part] and name not in event["object"][part] and event["type"] == "ADDED"


def test_only_the_labels_of_the_operator_are_decoded() -> None:
    node = nodes.node(decode_json(json.dumps(NODE_BODY).encode(), NODE.item))
    assert node.ours == {"models.ome.io/m", "models.ome.io/o"}
