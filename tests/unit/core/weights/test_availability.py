"""Tests of the message of the condition ModelReady: on how many nodes the weights are, and on which they are missing."""

from dataclasses import replace

import pytest

from ome_operator import names
from ome_operator.core.observed.objects import Deps, Observed
from ome_operator.core.reconcile.sync import sync
from ome_operator.core.weights.availability import availability
from ome_operator.core.weights.mount import weights
from ome_operator.settings.policy import ENABLE_AGENTS, SILENT_AGENTS
from tests.support import parts
from tests.support.parts import change_deps
from tests.support.simulator import START
from tests.unit.core.resolve.test_finetuned import having, service, weight

TINY, POET = "models.ome.io/clusterbasemodel.tiny", "models.ome.io/finetunedweight.poet"
NOBODY = "this operator uses no model agents, so nothing downloads"
BY_HAND = f"{ENABLE_AGENTS}, or label each node that has the files: kubectl label node NODE"


def said(deps: Deps, *weights: str) -> tuple[str, str]:
    """Return the status and the message of ModelReady."""
    conditions = sync(service(*weights), deps, Observed(), START).status["conditions"]
    (found,) = [told for told in conditions if told["type"] == "ModelReady"]
    return found["status"], found["message"]


def nodes(*numbers: int) -> frozenset[str]:
    return frozenset(f"n{number}" for number in numbers)


CASES: dict[str, tuple[dict[str, frozenset[str]], tuple[str, ...], tuple[str, str]]] = {
    "no node has the model": (
        {},
        (),
        (
            "False",
            "model tiny on 0 nodes, 1 needed: pods wait until more nodes hold it; "
            f"{NOBODY} hf://test/tiny: {BY_HAND} {TINY}=Ready",
        ),
    ),
    "the model is everywhere, its LoRA weights are nowhere": (
        {TINY: nodes(1, 2)},
        ("poet",),
        (
            "False",
            "fine-tuned weight poet on 0 nodes, 1 needed: pods wait until more nodes hold it; "
            f"{NOBODY} hf://test/poet: {BY_HAND} {POET}=Ready",
        ),
    ),
    "each is somewhere, and no node has both": (
        {TINY: nodes(1), POET: nodes(2)},
        ("poet",),
        (
            "False",
            "model tiny and fine-tuned weight poet together on 0 nodes, 1 needed: pods wait until more nodes hold it; "
            f"{NOBODY} hf://test/tiny and hf://test/poet: {BY_HAND} {TINY}=Ready {POET}=Ready",
        ),
    ),
    "both are there": (
        {TINY: nodes(1, 2), POET: nodes(2)},
        ("poet",),
        ("True", "model tiny and fine-tuned weight poet together on 1 node, 1 needed"),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_message_names_missing_weights_with_their_label(case: str) -> None:
    holders, weights, wanted = CASES[case]
    assert said(replace(having(weight()), holders=holders), *weights) == wanted


def test_merged_weights_count_nodes_that_hold_them() -> None:
    deps = replace(having(weight(kind="merged")), holders={TINY: nodes(1)})
    assert said(deps, "poet")[1].startswith("fine-tuned weight poet on 0 nodes, 1 needed")


def test_namespaced_model_has_its_own_node_label() -> None:
    model = replace(parts.model(), kind="BaseModel", namespace=parts.NAMESPACE)
    deps = replace(parts.deps(model, parts.simple(router=False)), holders={})
    assert "kubectl label node NODE models.ome.io/team.basemodel.tiny=Ready" in said(deps)[1]


def test_message_for_local_files_asks_only_for_the_label() -> None:
    deps = replace(parts.deps(parts.model("local:///models/tiny"), parts.simple(router=False)), holders={})
    message = said(deps)[1]
    assert message.endswith(f"; label each node that has the files: kubectl label node NODE {TINY}=Ready")


def test_message_says_that_agents_set_the_label_of_downloaded_weights() -> None:
    digest = weights(parts.model("hf://test/tiny")).digest
    message = said(change_deps(having(), model_agent=True, holders={}))[1]
    assert f"; agents set the label {names.whole_label(TINY, digest)}=Ready on nodes that have the files. " in message
    assert message.endswith(SILENT_AGENTS)


def test_manual_label_does_not_count_if_agents_are_used() -> None:
    """If a model's status counts nodes that a person has labeled, the service does not use these nodes, because it needs the
    label of agents. The message says so.
    """
    digest = weights(parts.model("hf://test/tiny")).digest
    message = said(change_deps(having(), model_agent=True, holders={TINY: nodes(1)}))[1]
    assert f"; the label {TINY}=Ready on 1 node does not count for this revision. " in message
    both = {TINY: nodes(1), names.whole_label(TINY, digest): nodes(1)}
    assert said(change_deps(having(), model_agent=True, holders=both)) == ("True", "model tiny on 1 node, 1 needed")


def test_revision_made_without_agents_asks_for_the_manual_label() -> None:
    identity = weights(parts.model("hf://test/tiny")).identity(False)
    deps = change_deps(having(), model_agent=True, holders={})
    remedy = availability([identity], [(1, 1)], deps).remedy
    assert remedy.endswith(f"NODE {TINY}=Ready. The revision was made without model agents, so its storage does not change")
