"""Tests of what is said about the weights on nodes whose agents are silent."""

from datetime import UTC, datetime
from typing import Any

import pytest

from ome_operator.core.observed.nodes import node as parsed
from ome_operator.core.observed.nodes import node_record
from ome_operator.describe.cluster import node_rows
from ome_operator.describe.node_table import node_table
from ome_operator.describe.unknown_weights import DENIED, NEVER, unknown_weights
from tests.support import console

NOW = datetime(2026, 11, 28, 12, tzinfo=UTC)
BY_HAND = {"models.ome.io/clusterbasemodel.kimi": "Ready", "models.ome.io/team.basemodel.a": "Ready", "gpu": "h"}


def ready(status: str = "True") -> dict[str, Any]:
    """Return a status that has had this value of the condition Ready for 12 minutes."""
    return {"conditions": [{"type": "Ready", "status": status, "lastTransitionTime": "2026-11-28T11:48:00Z"}]}


def node(name: str = "n", status: str = "True", **labels: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": labels}, "status": ready(status)}


def agent(name: str = "n", status: str = "True") -> dict[str, Any]:
    return {"metadata": {"name": f"agent-{name}"}, "spec": {"nodeName": name}, "status": ready(status)}


RECORD = {"metadata": {"name": "n"}}
OTHER = agent("other")


@pytest.mark.parametrize(
    ("records", "agents", "of_node", "why"),
    [
        ([RECORD], [agent()], {}, ""),
        ([RECORD], [], {}, ""),  # the agents do not run as pods of the chart, or may not be read
        ([RECORD], [agent(status="False"), agent()], {}, ""),  # an ended pod beside its successor
        ([RECORD], [agent(status="False"), OTHER], {}, "its agent is silent for 12 min"),
        ([RECORD], [OTHER], {}, "no agent runs there any more"),
        ([RECORD], [agent()], {"status": "Unknown"}, "the node is silent for 12 min"),
        ([], [OTHER], {}, NEVER),
        ([], [], {}, NEVER),
    ],
)
def test_silent_agent_is_reported_with_its_last_report(
    records: list[Any], agents: list[Any], of_node: dict[str, str], why: str
) -> None:
    found = unknown_weights([node(**of_node)], records, agents, NOW)
    assert (found["n"].why if why else found) == (why or {})


def test_manual_labels_are_shown_in_place_of_agent_reports() -> None:
    labelled = node(**BY_HAND)
    assert unknown_weights([labelled], [], [], NOW)["n"].text == "kimi, team.basemodel.a by label"
    silent = unknown_weights([labelled], [RECORD], [OTHER], NOW)["n"]
    assert silent.text == "unknown: no agent runs there any more", "these labels are the operator's"


def test_unreadable_records_are_not_reported_as_silent_agents() -> None:
    assert unknown_weights([node()], [], [], NOW, denied=True)["n"].text == f"unknown: {DENIED}"


def test_table_distinguishes_unknown_weights_from_none() -> None:
    """The table shows a node without a report about weights differently from one without weights. Reported: `ome nodes`
    showed the same dash for both.
    """
    bodies = [console.node(name) for name in ("empty", "never", "silent")]
    held = console.record("silent", {"kind": "ClusterBaseModel", "name": "kimi", "state": "Ready"})
    records = [console.record("empty"), held]
    unknown = unknown_weights(bodies, records, [agent("empty"), agent("silent", "False")], NOW)
    text = node_table(node_rows((), map(parsed, bodies), map(node_record, records), unknown=unknown))
    weights = {line.split()[0]: line for line in text.splitlines()[1:4]}
    assert weights["empty"].endswith("none")
    assert weights["never"].endswith("unknown: no agent has reported yet")
    assert weights["silent"].endswith("unknown: its agent is silent for 12 min (before: kimi Ready)")
    assert "No model agent reports the weights of 2 nodes now (kubectl get pods -A -l app.kubernetes.io/name=" in text
