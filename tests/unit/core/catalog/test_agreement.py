"""Tests that the report of an agent always counts for the agent's own node, and for other nodes only if it is confirmed
(finding T5).
"""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from ome_operator.core.catalog.agreement import (
    LONE_WAIT,
    AgreedReports,
    Pin,
    ReportingNodes,
    agree_on_reports,
    find_reporting_nodes,
    wait_left,
)
from ome_operator.core.catalog.status import model_status
from ome_operator.core.observed.objects import Node, NodeHolding, Ref
from tests.support import parts

NOW = datetime(2026, 1, 1, tzinfo=UTC)
URI, COMMIT, EVIL = "hf://a/b", "c0ffee" + "0" * 34, "bad" * 13 + "b"
FACTS, FALSE = {"architecture": "DeepseekV3ForCausalLM"}, {"architecture": "Evil"}
OLD, YOUNG = "2025-12-31T23:55:00Z", "2025-12-31T23:55:01Z"
"""Times at which a record was made: `LONE_WAIT` before now, and a second later."""
TWO = ReportingNodes(frozenset({"a", "b"}))
MANY = ReportingNodes(frozenset({"a", "b", "c", "d", "evil"}))


def held(revision: str = COMMIT, state: str = "Updating", facts: Any = None, uri: str = URI) -> NodeHolding:
    """Return the report of one agent."""
    return NodeHolding(Ref("ClusterBaseModel", "", "k2"), uri, revision, state, facts=facts)


def judged(
    nodes: Mapping[str, NodeHolding], speakers: ReportingNodes, before: Mapping[str, Any] | None = None, uri: str = URI
) -> AgreedReports:
    return agree_on_reports(uri, before or {}, nodes, speakers, NOW)


def alone(minutes: float) -> dict[str, Any]:
    """Return the stored status of a model about which only one node has reported, for this number of minutes."""
    since = (NOW - timedelta(minutes=minutes)).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {"conditions": [{"type": "NodesAgree", "status": "Unknown", "lastTransitionTime": since}]}


def test_report_of_a_single_node_is_not_used_for_other_nodes() -> None:
    """If several nodes hold a model, the report of a single one does not count for the others. An attack from the review:
    with a node's token, another commit of the model is reported before another node has reported about it.
    """
    found = judged({"evil": held(EVIL)}, MANY)
    assert found.pin is None and found.condition is not None
    assert (found.condition.status, found.condition.reason) == (None, "Unconfirmed")
    assert found.condition.message.startswith(
        f"node evil reports revision {EVIL}; this report is used when a second node confirms it"
    )


def test_two_agreeing_nodes_determine_the_pin_and_the_dissenting_node_is_named() -> None:
    nodes = {"a": held(), "b": held(), "evil": held(EVIL, "Ready")}
    found = judged(nodes, MANY)
    assert found.pin == Pin(URI, COMMIT) and found.condition is not None
    assert (found.condition.status, found.condition.reason) == (False, "NodesDisagree")
    assert found.condition.message == f"node evil reports revision {EVIL}; all nodes use revision {COMMIT}"
    assert judged({"a": held(), "b": held()}, MANY).condition is None


@pytest.mark.parametrize("names", [("a", "evil"), ("z", "evil")])
def test_two_disagreeing_nodes_give_no_pin_and_are_named_in_condition(names: tuple[str, str]) -> None:
    honest, evil = names
    speakers = ReportingNodes(frozenset(names))
    found = judged({honest: held(), evil: held(EVIL)}, speakers, alone(60))
    assert found.pin is None and found.condition is not None and found.condition.status is False
    assert COMMIT in found.condition.message and EVIL in found.condition.message
    assert "; no report is used until two nodes agree. " in found.unpinned_reason


def test_report_of_the_only_node_is_used_without_confirmation() -> None:
    only = ReportingNodes(frozenset({"a"}))
    found = judged({"a": held(state="Ready", facts=FACTS)}, only)
    assert (found.pin, found.facts, found.condition) == (Pin(URI, COMMIT), FACTS, None)


@pytest.mark.parametrize(
    ("records", "dead", "counts"),
    [
        ({"evil": YOUNG}, (), False),  # a new cluster: the agents of the other nodes are about to start
        ({"evil": OLD}, (), True),  # a cluster in which a single node has an agent
        ({"evil": OLD, "a": OLD}, (), False),
        ({"evil": OLD, "a": OLD}, ("a",), False),  # the other node will come back
        ({"evil": YOUNG}, ("a", "b"), True),  # no other node has an agent or can have one soon
    ],
)
def test_first_report_in_a_new_cluster_is_not_used_alone(
    records: dict[str, str], dead: tuple[str, ...], counts: bool
) -> None:
    """If the agent of one node reports before any other agent has created its record, the report does not count for other
    nodes. This is an attack with the token of one agent.
    """
    nodes = {name: Node(name, 1, {}, True, 8, alive=name not in dead) for name in ("evil", "a", "b")}
    speakers = find_reporting_nodes(parts.model(URI), nodes, records.get, frozenset(), NOW)
    evil = {"evil": held(EVIL, "Ready", FALSE)}
    found = judged(evil, speakers)
    assert (found.pin, found.facts) == ((Pin(URI, EVIL), FALSE) if counts else (None, None))
    if not counts:
        assert found.condition is not None and found.condition.reason == "Unconfirmed"
        assert judged(evil, speakers, alone(4.9)).pin is None and judged(evil, speakers, alone(5)).pin == Pin(URI, EVIL)


def test_model_that_selects_one_node_needs_no_second_report() -> None:
    nodes = {name: Node(name, 1, {"kubernetes.io/hostname": name}, True, 8) for name in ("a", "b")}
    model = parts.model(storage={"storageUri": URI, "nodeSelector": {"kubernetes.io/hostname": "a"}})
    speakers = find_reporting_nodes(model, nodes, {"a": YOUNG}.get, frozenset(), NOW)
    assert judged({"a": held()}, speakers).pin == Pin(URI, COMMIT)


def test_single_report_is_used_after_timeout_if_other_nodes_are_silent() -> None:
    """If the agents of all other nodes do not report about a model, the report of a single node counts after a while. The
    other agents may be down, or their records may have no space for the model.
    """
    nodes = {"a": held(state="Ready", facts=FACTS)}
    assert judged(nodes, TWO, alone(4.9)).pin is None
    found = judged(nodes, TWO, alone(5))
    assert (found.pin, found.facts, found.condition) == (Pin(URI, COMMIT), FACTS, None)
    assert wait_left(alone(4), NOW) == 60.0 and wait_left(alone(6), NOW) is None and wait_left({}, NOW) is None
    assert timedelta(minutes=1) < LONE_WAIT <= timedelta(minutes=10)


def test_reports_of_nodes_that_the_model_does_not_select_are_ignored() -> None:
    nodes = {"evil": held(EVIL, "Ready", FALSE), "other": held(EVIL, "Ready", FALSE), "a": held()}
    assert judged(nodes, ReportingNodes(frozenset({"a"}))).pin == Pin(URI, COMMIT)
    assert judged({"evil": held(EVIL)}, ReportingNodes(frozenset({"a"})), alone(60)).pin is None


def test_trusted_nodes_named_by_administrator_determine_the_pin() -> None:
    nodes = {"a": held(), "b": held(EVIL), "c": held(EVIL), "evil": held(EVIL)}
    assert judged(nodes, MANY._replace(trusted=frozenset({"a"}))).pin == Pin(URI, COMMIT)
    silent = judged({"b": held(), "c": held()}, MANY._replace(trusted=frozenset({"a"})))
    assert silent.pin is None, "the named node has not reported yet"
    elsewhere = MANY._replace(trusted=frozenset({"of another pool"}))
    assert judged({"b": held(), "c": held()}, elsewhere).pin == Pin(URI, COMMIT), "the model selects none of them"


@pytest.mark.parametrize(
    ("uri", "revision"),
    [
        (f"hf://a/b@{COMMIT}", COMMIT),
        (f"oci://r.example/b@sha256:{'a' * 64}", f"sha256:{'a' * 64}"),
        (f"hf://a/b@{COMMIT}+hf://c/d@{COMMIT}", f"{COMMIT}+{COMMIT}"),
        ("local:///models/b", "local"),
    ],
)
def test_uri_with_revision_needs_only_one_report(uri: str, revision: str) -> None:
    nodes = {"a": held(revision, uri=uri), "evil": held(EVIL, uri=uri), "worse": held(EVIL, uri=uri)}
    assert judged(nodes, MANY, uri=uri).pin == Pin(uri, revision)
    assert judged({"evil": held(EVIL, uri=uri)}, MANY, uri=uri).pin is None


def test_pinned_revision_is_kept_until_the_uri_changes() -> None:
    before = {"weights": {"uri": URI, "revision": COMMIT}}
    assert judged({"b": held(EVIL), "c": held(EVIL)}, MANY, before).pin == Pin(URI, COMMIT)
    other = {"weights": {"uri": "hf://x/y", "revision": COMMIT}}
    assert judged({"b": held(EVIL), "c": held(EVIL)}, MANY, other).pin == Pin(URI, EVIL)


def test_facts_of_one_node_do_not_replace_those_of_the_others() -> None:
    """The facts that one node reports do not replace those that the other nodes agree on. An attack from the review: the
    record of one node reports that the model is Ready, with another architecture.
    """
    before = {"weights": {"uri": URI, "revision": COMMIT}, "facts": FACTS}
    evil = {"evil": held(state="Ready", facts=FALSE)}
    found = judged(evil, MANY, before)
    assert found.facts == FACTS and found.condition is not None
    assert found.condition.message == "node evil reports other facts than other nodes; all nodes use the facts in the status"
    new = {"weights": {"uri": URI, "revision": COMMIT}}
    assert judged(evil, MANY, new).facts is None
    honest = {name: held(state="Ready", facts=FACTS) for name in ("a", "b")}
    assert judged({**evil, **honest}, MANY, {**new, "facts": FALSE}).facts == FACTS, "false facts were stored"


def test_facts_count_from_nodes_that_hold_the_revision() -> None:
    before = {"weights": {"uri": URI, "revision": COMMIT}}
    other = {"a": held(EVIL, "Ready", FALSE), "b": held(EVIL, "Ready", FALSE), "c": held(COMMIT, "Updating", FALSE)}
    assert judged(other, MANY, before).facts is None


def test_reporting_nodes_are_the_alive_nodes_that_the_model_selects() -> None:
    model = parts.model(storage={"storageUri": URI, "nodeSelector": {"pool": "big"}})
    nodes = {
        name: Node(name, 1, {"pool": pool}, True, 8, alive=alive)
        for name, pool, alive in (("a", "big", True), ("b", "small", True), ("c", "big", False), ("d", "big", True))
    }
    found = find_reporting_nodes(model, nodes, {"a": OLD, "b": OLD, "c": OLD}.get, frozenset({"x"}), NOW)
    assert found == ReportingNodes(frozenset({"a"}), frozenset({"x"}), others=True), "c and d do not report"


@pytest.mark.parametrize(
    ("required", "expected"),
    [
        ([], {"a", "b"}),
        ({"nodeSelectorTerms": "pool"}, set()),
        ({"nodeSelectorTerms": [{"matchFields": {"key": "a"}}]}, set()),
    ],
    ids=["an empty affinity selects every node", "terms that are no list", "fields that are no list"],
)
def test_reporting_nodes_of_model_with_unreadable_affinity(required: Any, expected: set[str]) -> None:
    affinity = {"requiredDuringSchedulingIgnoredDuringExecution": required}
    model = parts.model(storage={"storageUri": URI, "nodeAffinity": affinity})
    nodes = {name: Node(name, 1, {}, True, 8) for name in ("a", "b")}
    assert find_reporting_nodes(model, nodes, lambda _: OLD, frozenset(), NOW).nodes == expected


def test_status_names_reason_if_downloaded_model_is_unconfirmed() -> None:
    status = model_status(parts.model(URI, "k2"), (), frozenset(), NOW, {"evil": held(EVIL, "Ready")}, witnesses=MANY)
    ready, agree = (next(one for one in status["conditions"] if one["type"] == type_) for type_ in ("Ready", "NodesAgree"))
    assert (ready["status"], ready["reason"], agree["status"]) == ("False", "Unconfirmed", "Unknown")
    assert "weights" not in status and ready["message"] == agree["message"]


def test_ready_model_stays_ready_if_one_node_disagrees() -> None:
    nodes = {"a": held(state="Ready"), "b": held(state="Ready"), "evil": held(EVIL, "Ready")}
    status = model_status(parts.model(URI, "k2"), (), frozenset({"a", "b"}), NOW, nodes, witnesses=MANY)
    told = {one["type"]: one["status"] for one in status["conditions"]}
    assert told == {"Ready": "True", "NodesAgree": "False"}, "neither Reconciling nor Stalled"


def test_long_message_of_one_node_is_truncated_in_status() -> None:
    nodes = {"evil": held()._replace(state="Failed", message="x" * 1_000_000)}
    status = model_status(parts.model(URI, "k2"), (), frozenset(), NOW, nodes)
    assert len(str(status)) < 5000
