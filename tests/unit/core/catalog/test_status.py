"""Tests of the status of models, runtimes and accelerator classes."""

from datetime import datetime
from typing import Any

import pytest

from ome_operator import names
from ome_operator.core.catalog.node_models import LISTED
from ome_operator.core.catalog.status import accelerator_status, model_status, runtime_status
from ome_operator.core.observed.objects import Node, NodeHolding, Ref
from ome_operator.core.reconcile.sync import refuse_spec
from ome_operator.core.weights.mount import weights
from ome_operator.settings.policy import AGENT_PODS
from tests.support import parts
from tests.support.conditions import plain

NOW = datetime(2026, 1, 1)


def ready(status: dict[str, Any]) -> tuple[str, str]:
    """Return the status and the reason of the condition Ready."""
    (one,) = plain(status)
    return one["status"], one["reason"]


def test_model_status_lists_ready_nodes_and_users() -> None:
    found = model_status(parts.model(), ("team/b", "team/a"), frozenset({"n2", "n1"}), NOW)
    assert (found["state"], found["nodesReady"], found["summary"], found["users"]) == ("Ready", ["n1", "n2"], "2", 2)
    assert found["usedBy"] == [{"namespace": "team", "name": "a"}, {"namespace": "team", "name": "b"}]
    assert ready(found) == ("True", "OnNodes")


@pytest.mark.parametrize(
    ("model", "state", "condition"),
    [
        (parts.model(), "Creating", ("False", "OnNoNode")),
        (parts.model("pvc://weights"), "Ready", ("True", "Claim")),
        (parts.model(disabled=True), "Creating", ("False", "Disabled")),
    ],
)
def test_a_model_on_no_node(model: Any, state: str, condition: tuple[str, str]) -> None:
    found = model_status(model, (), frozenset(), NOW)
    assert (found["state"], ready(found)) == (state, condition)
    assert [] not in found.values(), "empty lists would be written again after each restart"


def test_long_lists_are_cut_and_counted() -> None:
    users = tuple(f"team/{number}" for number in range(200))
    found = model_status(parts.model(), users, frozenset(users), NOW)
    assert (len(found["usedBy"]), found["users"], len(found["nodesReady"]), found["summary"]) == (LISTED, 200, LISTED, "200")


def test_status_columns_of_the_kimi_runtime() -> None:
    _, deps = parts.kimi()
    (runtime,) = deps.runtimes.values()
    found = runtime_status(runtime, ("kimi/kimi",), NOW)  # type: ignore[arg-type]
    assert (found["roles"], found["nodes"], found["gpus"]) == ("prefill+decode+router", "4+12", "128")
    assert found["strategy"] == "TP32 DP32 EP + TP96 DP96 EP"
    assert found["engine"].startswith("sglang:")
    assert ready(found) == ("True", "Usable")


RUNTIMES: dict[str, tuple[Any, tuple[str, str]]] = {
    "nothing": (parts.runtime(), ("False", "Empty")),
    "disabled": (parts.runtime(disabled=True, containers=[parts.container()]), ("False", "Disabled")),
    "services bring the image": (parts.runtime(engineConfig={}), ("False", "Incomplete")),
    "no pod spec": (parts.runtime(engineConfig={"runner": {"env": {"A": "1"}}}), ("False", "InvalidPod")),
    "containers at the top": (parts.runtime(containers=[parts.container()]), ("True", "Usable")),
}


@pytest.mark.parametrize("case", RUNTIMES)
def test_unsupported_runtime_is_reported_as_not_ready(case: str) -> None:
    runtime, expected = RUNTIMES[case]
    assert ready(runtime_status(runtime, (), NOW)) == expected


def node(name: str, up: bool = True, **labels: str) -> Node:
    """Return a node with 8 GPUs."""
    return Node(name, 1, labels, up, 8)


def test_accelerators_are_counted_on_their_nodes() -> None:
    nodes = [
        node("b", gpu="h200"),
        node("a", gpu="h200"),
        node("down", up=False, gpu="h200"),
        node("x", gpu="b200"),
        node("y"),
    ]
    found = accelerator_status(parts.accelerator("h200", discovery={"nodeSelector": {"gpu": "h200"}}), nodes, NOW)
    assert found["nodes"] == ["a", "b", "down"]
    counts = (found["availableNodes"], found["availableAccelerators"], found["totalAccelerators"])
    assert counts == (2, 16, 24)
    assert ready(found) == ("True", "Found")


def test_accelerators_without_nodes_or_discovery() -> None:
    lost = parts.accelerator("h200", discovery={"nodeSelector": {"gpu": "h200"}})
    assert ready(accelerator_status(lost, [node("a")], NOW)) == ("False", "NoNodes")
    assert ready(accelerator_status(parts.accelerator("any"), [node("a")], NOW)) == ("False", "NoDiscovery")


def test_refused_spec_keeps_the_other_status_fields() -> None:
    found = refuse_spec({"users": 3}, 7, "InvalidSpec", "spec.x is wrong", NOW).status
    assert (found["users"], found["observedGeneration"], ready(found)) == (3, 7, ("False", "InvalidSpec"))


@pytest.mark.parametrize(
    ("uri", "agent", "said"),
    [
        ("hf://org/model", False, "This operator uses no model agents, so nothing downloads hf://org/model"),
        ("hf://org/model", True, ""),
        ("local:///models/m", False, ""),
    ],
)
def test_status_says_that_no_agent_downloads_the_model(uri: str, agent: bool, said: str) -> None:
    status = model_status(parts.model(uri, "m", path="/models/m"), (), frozenset(), NOW, agent=agent)
    (message,) = [one["message"] for one in status["conditions"] if one["type"] == "Ready"]
    assert ("uses no model agents" in message) == bool(said) and said in message
    assert ("No model agent reports it" in message) == agent


def test_status_says_that_agents_are_silent_about_a_manually_labelled_model() -> None:
    """If a person has labeled nodes of a model and no agent reports, the status says that agents do not report. New
    revisions need the label that agents set; the condition of the service names this label, too.
    """
    model = parts.model("hf://org/model", "m")
    label = names.revision_label(model.kind, "", "m", weights(model).digest)
    holding = NodeHolding(ref=Ref(model.kind, "", "m"), uri="hf://org/model", state="Ready", revision="r")

    def message(**given: Any) -> str:
        status = model_status(model, (), frozenset({"n"}), NOW, **given)
        (found,) = [one["message"] for one in status["conditions"] if one["type"] == "Ready"]
        return str(found)

    assert "no model agent reports the model" in message(
        agent=True
    ) and f"sets the label {label}. To list the agents: {AGENT_PODS}" in message(agent=True)
    assert message(agent=False) == message(agent=True, holdings={"n": holding}) == "1 node holds the model"
