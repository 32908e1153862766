"""Tests that records of agents become labels of nodes and statuses of models."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from ome_operator import names
from ome_operator.api import FineTunedWeight
from ome_operator.core.catalog import agreement, node_models
from ome_operator.core.catalog.status import model_status
from ome_operator.core.observed.objects import NodeHolding, Ref, UnusedWeights
from ome_operator.core.selection.model_profile import profile_of
from ome_operator.core.weights.mount import weights
from tests.support import parts
from tests.support.conditions import plain

MODEL = Ref("ClusterBaseModel", "", "k2")
URI, OLD = "hf://a/b@2", "hf://a/b@1"
NEW_DIR, OLD_DIR = (weights(parts.model(uri, "k2")).digest for uri in (URI, OLD))
PLAIN = "models.ome.io/clusterbasemodel.k2"
WHOLE, FORMER = (names.whole_label(PLAIN, one) for one in (NEW_DIR, OLD_DIR))
PIN = {MODEL: agreement.Pin(URI, "c1")}
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def one(state: str = "Ready", **more: Any) -> NodeHolding:
    """Return the report of one agent."""
    profile_of: dict[str, Any] = {"uri": URI, "revision": "c1", "directories": (NEW_DIR,) if state == "Ready" else ()}
    return NodeHolding(MODEL, state=state, **{**profile_of, "total": 1000, **more})


def test_completely_downloaded_model_gets_both_labels() -> None:
    assert node_models.labels([one()], PIN) == {PLAIN: "Ready", WHOLE: "Ready"}


def test_former_revision_keeps_its_label_during_download_of_the_new_one() -> None:
    found = node_models.labels([one("Updating")], PIN, [UnusedWeights(f"/m/.ome/{OLD_DIR}", (PLAIN,))])
    assert found == {PLAIN: "Updating", FORMER: "Ready"}


def test_a_revision_keeps_its_label_when_its_model_is_deleted() -> None:
    assert node_models.labels([], {}, [UnusedWeights(f"/m/.ome/{OLD_DIR}", (PLAIN,))]) == {FORMER: "Ready"}
    assert node_models.labels([], {}, [UnusedWeights(f"/m/.ome/{OLD_DIR}")]) == {}, "the directory is not complete"


def test_weights_below_a_former_path_do_not_make_the_node_ready() -> None:
    """If a model gets another path, weights below its previous path do not count as Ready, because pods of the present
    revision look for them only below the present path. The name of a directory depends on the path, so the label differs.
    """
    moved = parts.model(storage={"storageUri": URI, "path": "/elsewhere/k2"}, name="k2")
    there = weights(moved).digest
    found = node_models.labels([one("Updating")], PIN, [UnusedWeights(f"/elsewhere/.ome/{there}", (PLAIN,))])
    assert found == {PLAIN: "Updating", names.whole_label(PLAIN, there): "Ready"} and WHOLE not in found


def test_weights_fetched_by_earlier_agents_keep_their_label() -> None:
    assert node_models.labels([], {}, [UnusedWeights("/m/.ome/0a1b2c3d", (PLAIN,))]) == {f"{PLAIN}.0a1b2c3d": "Ready"}


def test_node_with_a_commit_other_than_the_pin_is_not_labelled_ready() -> None:
    assert node_models.labels([one(revision="c2")], PIN) == {PLAIN: "Updating"}
    assert node_models.labels([one()], {}) == {PLAIN: "Updating"}, "nothing is pinned yet"


def test_verification_keeps_the_label_and_failure_removes_it() -> None:
    assert node_models.labels([one("Updating", directories=(NEW_DIR,))], PIN)[WHOLE] == "Ready"
    assert node_models.labels([one("Failed", directories=())], PIN) == {PLAIN: "Failed"}


def test_labels_of_long_names_are_valid() -> None:
    key = names.revision_label("BaseModel", "n" * 40, "m" * 40, NEW_DIR).partition("/")[2]
    assert len(key) <= 63 and key.endswith(f".{NEW_DIR}")


def tenants(namespaces: int, models: int, state: str = "Ready") -> list[NodeHolding]:
    """Return models of several namespaces, as the NodeModels object of a node contains them."""
    refs = [Ref("BaseModel", f"team-{place:03}", f"m-{name:03}") for place in range(namespaces) for name in range(models)]
    digests = [f"{number:032x}" for number in range(len(refs))]
    profile_of = {"revision": "c1", "state": state, "directories": ("",)}
    return [
        NodeHolding(ref, uri=URI, **{**profile_of, "directories": (digest,)})
        for ref, digest in zip(refs, digests, strict=True)
    ]


def pins(holdings: list[NodeHolding]) -> dict[Ref, agreement.Pin]:
    return {item.ref: agreement.Pin(URI, "c1") for item in holdings}


def by_namespace(found: dict[str, str]) -> Counter[str]:
    """Return the number of labels of each namespace."""
    return Counter(key.removeprefix("models.ome.io/").partition(".")[0] for key in found)


def test_labels_per_node_are_limited_with_two_thousand_tenant_models() -> None:
    """A node with two thousand models of tenants has few labels. Reported: a node had 2,019 labels, some of them for models
    that had failed, and its object had 450 kB.
    """
    mine = one()
    found = node_models.labels([mine, *(many := tenants(20, 100))], {**pins(many), **PIN})
    assert len(found) == node_models.LABEL_LIMIT + 2 and found[PLAIN] == found[WHOLE] == "Ready"
    assert set(by_namespace(found).values()) == {2, 50}, "namespaces in turn"
    assert node_models.labels(failed := tenants(20, 100, "Failed"), {}) == {}, failed[0]


def test_small_namespace_keeps_its_labels_if_others_have_many_models() -> None:
    many = [*tenants(12, 100), *tenants(13, 1)[12:]]
    assert by_namespace(node_models.labels(many, pins(many)))["team-012"] == 2


def test_models_in_use_are_labelled_first_and_unused_weights_last() -> None:
    many = tenants(10, 100)
    last = {item.ref for item in many if item.ref.name >= "m-050"}
    home, label = "/m/.namespaces/team-000/.ome", "models.ome.io/team-000.basemodel.old"
    old = [UnusedWeights(f"{home}/{number:032x}", (label,)) for number in range(9)]
    found = node_models.labels(many, pins(many), old, last.__contains__)
    keep = [item for item in many if item.ref in last]
    assert found == node_models.labels(keep, pins(keep))
    few = node_models.labels([], {}, old)
    assert len(few) == 9, "with enough space, they have their labels"


def test_labels_of_cluster_models_are_not_limited() -> None:
    refs = [Ref("ClusterBaseModel", "", f"m-{number}") for number in range(1500)]
    holdings = [NodeHolding(ref, URI, "c1", "Failed") for ref in refs]
    assert set(node_models.labels(holdings, pins(holdings)).values()) == {"Failed"}
    assert len(node_models.labels(holdings, pins(holdings))) == 1500


def test_status_says_if_no_label_was_available_for_a_model() -> None:
    model = replace(parts.model(URI, "k2"), kind="BaseModel", namespace="team-a")
    said = plain(model_status(model, (), frozenset(), NOW, {"a": one()}))[0]
    assert said["message"].startswith(
        "1 node holds the model, but no node has the label of the model yet; a node gets the labels of at most 1000 "
    )


def test_the_summary_is_nodes_share_and_time() -> None:
    nodes = [one(), one("Updating", bytes=420, speed=1), one("Updating", bytes=710, speed=1)]
    assert node_models.summary(1, nodes) == "1/3 nodes, 71 %, 10 min"
    assert node_models.summary(3, [one()] * 3) == "3/3 nodes"
    assert node_models.summary(0, [one("Updating", bytes=0, speed=0)]) == "0/1 nodes, 0 %", "the duration is unknown"
    assert node_models.duration(7200) == "2.0 h" and node_models.duration(0) == "1 s"


def condition(nodes: dict[str, NodeHolding], ready: frozenset[str] = frozenset(), uri: str = URI) -> tuple[str, str, str]:
    """Return the state of the model, and the reason and message of its condition."""
    status = model_status(parts.model(uri, "k2"), (), ready, NOW, nodes)
    said = plain(status)[0]
    return status["state"], said["reason"], said["message"]


def test_model_condition_follows_the_progress_of_the_download() -> None:
    assert condition({"a": one("Updating", bytes=500)})[:2] == ("In_Transit", "Downloading")
    state, reason, said = condition({"a": one("Failed", message="the disk is full")})
    assert (state, reason, said) == ("Failed", "DownloadFailed", "node a: the disk is full")
    assert condition({"a": one(), "b": one("Failed")}, frozenset({"a"}))[:2] == ("Ready", "OnNodes")
    assert condition({})[:2] == ("Creating", "OnNoNode")
    assert condition({"a": one()})[:2] == ("In_Transit", "Downloading"), "the label follows later"


def test_unsupported_uri_is_reported_immediately() -> None:
    state, reason, said = condition({}, uri="vendor://x/y")
    assert (state, reason) == ("Failed", "NotServed") and "vendor:// is not supported" in said
    assert condition({}, frozenset({"a"}), uri="vendor://x/y")[1] == "OnNodes", "the files were put there manually"


def test_facts_and_pin_reach_the_status() -> None:
    nodes = {"a": one(facts={"layers": 61}), "b": one("Failed", message="x")}
    voice = agreement.ReportingNodes(frozenset({"a"}))
    status = model_status(parts.model(URI, "k2"), (), frozenset({"a"}), NOW, nodes, witnesses=voice)
    assert status["weights"] == {"uri": URI, "revision": "c1", "directory": NEW_DIR}
    assert (status["facts"], status["nodesFailed"], status["summary"]) == ({"layers": 61}, ["b"], "1/2 nodes")
    assert status["nodes"]["b"] == {"state": "Failed", "bytes": 0, "total": 1000, "message": "x"}


def test_revision_of_a_second_repository_is_part_of_the_pin() -> None:
    both = f"{URI}+hf://a/original"
    model = parts.model(storage={"storageUri": URI, "parameters": {"filesFrom": "hf://a/original"}})
    held = one(uri=both, revision="c1+d1", facts={"architecture": "DeepseekV3ForCausalLM"})
    status = model_status(model, (), frozenset(), NOW, {"n": held})
    assert status["weights"] == {"uri": both, "revision": "c1+d1", "directory": weights(model).digest}
    assert profile_of(replace(model, status=status)).architecture == "DeepseekV3ForCausalLM"
    alone = model_status(model, (), frozenset(), NOW, {"n": one(uri=URI)})
    assert "weights" not in alone, "weights without these files are other weights"


def test_pin_and_facts_are_kept_without_records_until_the_uri_changes() -> None:
    def status(uri: str, before: Mapping[str, Any], nodes: Mapping[str, NodeHolding]) -> dict[str, Any]:
        verdict = agreement.agree_on_reports(uri, before, nodes, agreement.ReportingNodes(frozenset(nodes)), NOW)
        return node_models.status(verdict, "0a1b", nodes)

    before = {"weights": {"uri": URI, "revision": "c1"}, "facts": {"layers": 61}}
    kept = status(URI, before, {})
    assert (kept["weights"]["revision"], kept["facts"]) == ("c1", {"layers": 61}), "every node was drained"
    assert status(URI, before, {"a": one("Updating")})["facts"] == {"layers": 61}
    assert status(URI, before, {"a": one(facts={"layers": 7})})["facts"] == {"layers": 7}
    assert status(OLD, before, {}) == {}, "the facts were those of other files"
    assert "facts" not in status(OLD, before, {"a": one("Updating", uri=OLD)})
    other = {"a": one("Updating"), "c": one("Updating"), "b": one(revision="c2", facts={"layers": 9})}
    assert "facts" not in status(URI, {}, other), "from a node with another commit than the others"


def test_facts_about_files_of_another_uri_are_not_used() -> None:
    """Facts about files of another URI are not used. Between an edit of the URI and the next report of an agent, the
    operator uses only the facts in the spec.
    """
    model = parts.model(URI, "k2")
    told = {"facts": {"architecture": "DeepseekV3ForCausalLM"}, "weights": {"uri": URI, "revision": "c1"}}
    assert profile_of(replace(model, status=told)).architecture == "DeepseekV3ForCausalLM"
    assert not profile_of(replace(model, status={**told, "weights": {"uri": OLD, "revision": "c0"}})).learned
    status = model_status(replace(model, status={**told, "weights": {"uri": OLD}}), (), frozenset(), NOW)
    assert "facts" not in status and "architecture" not in status


def test_fine_tuned_weight_gets_the_same_status_as_a_model() -> None:
    spec = {"baseModelRef": {"name": "k2"}, "modelType": "LoRA", "storage": {"storageUri": URI}}
    weight = parts.ensure_valid(
        FineTunedWeight.parse({"kind": "FineTunedWeight", "metadata": {"name": "poet"}, "spec": spec})
    )
    status = model_status(weight, (), frozenset(), NOW, {"a": one("Updating", bytes=500)})
    assert (status["state"], plain(status)[0]["reason"]) == ("In_Transit", "Downloading")
    assert status["weights"]["revision"] == "c1" and status["summary"] == "0/1 nodes, 50 %"
    by_hand = model_status(weight, (), frozenset({"a"}), NOW, agent=False)
    assert by_hand["conditions"][0]["message"] == "1 node holds the weights"
