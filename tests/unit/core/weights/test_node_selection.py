"""Tests of which models a node has to download, and of the contents of its NodeModels object."""

from typing import Any

import pytest

from ome_operator.agent import record
from ome_operator.core.weights.node_selection import needs_agent, selects_node
from tests.support import parts


def affinity(**expression: Any) -> dict[str, Any]:
    term = {"matchExpressions": [expression]}
    return {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}


LABELS = {"gpu": "h200", "memory": "141"}
CASES = {
    "no wish": ({}, True),
    "selected": ({"nodeSelector": {"gpu": "h200"}}, True),
    "not selected": ({"nodeSelector": {"gpu": "b200"}}, False),
    "In": ({"nodeAffinity": affinity(key="gpu", operator="In", values=["h200", "b200"])}, True),
    "not In": ({"nodeAffinity": affinity(key="gpu", operator="In", values=["b200"])}, False),
    "NotIn": ({"nodeAffinity": affinity(key="gpu", operator="NotIn", values=["b200"])}, True),
    "Exists": ({"nodeAffinity": affinity(key="gpu", operator="Exists")}, True),
    "DoesNotExist": ({"nodeAffinity": affinity(key="gpu", operator="DoesNotExist")}, False),
    "Gt": ({"nodeAffinity": affinity(key="memory", operator="Gt", values=["100"])}, True),
    "Lt": ({"nodeAffinity": affinity(key="memory", operator="Lt", values=["100"])}, False),
    "Gt of a word": ({"nodeAffinity": affinity(key="gpu", operator="Gt", values=["100"])}, False),
    "unknown operator": ({"nodeAffinity": affinity(key="gpu", operator="Like", values=["h"])}, False),
    "both": ({"nodeSelector": {"gpu": "h200"}, "nodeAffinity": affinity(key="gpu", operator="DoesNotExist")}, False),
}


@pytest.mark.parametrize("case", CASES)
def test_model_node_selection_matches_like_the_scheduler(case: str) -> None:
    storage, expected = CASES[case]
    model = parts.model(storage={"storageUri": "hf://a/b", **storage})
    assert selects_node(model, "n1", LABELS) is expected


def test_model_can_select_a_node_by_name() -> None:
    fields = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}
    wish = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [fields]}}
    model = parts.model(storage={"storageUri": "hf://a/b", "nodeAffinity": wish})
    assert selects_node(model, "n1", {}) and not selects_node(model, "n2", {})


def test_models_on_claims_need_no_agent() -> None:
    assert not needs_agent(parts.model("pvc://claim/x"))
    assert not needs_agent(parts.model("vendor://x"))
    assert needs_agent(parts.model("s3://b/x")) and needs_agent(parts.model("local:///models/tiny"))


def test_node_models_entry_contains_only_known_fields() -> None:
    model = parts.model("hf://a/b", "k2")
    said = record.status([record.entry(model, record.Report(total=10, bytes=5, speed=2.5, revision="c1"))])
    assert said["summary"] == "1 Updating"
    (one,) = said["models"]
    assert one == {
        "kind": "ClusterBaseModel", "name": "k2", "uri": "hf://a/b", "revision": "c1", "state": "Updating",
        "bytes": 5, "total": 10, "speed": 2,
    }  # fmt: skip


def test_state_change_is_essential_but_progress_is_not() -> None:
    model = parts.model("hf://a/b", "k2")

    def said(**report: Any) -> dict[str, Any]:
        return record.status([record.entry(model, record.Report(**report))])

    assert not record.essential_change(said(bytes=1, speed=1.0), said(bytes=2, speed=2.0))
    assert record.essential_change(said(), said(state="Ready"))
    assert record.essential_change(said(state="Failed", message="a"), said(state="Failed", message="b"))
