"""Where pods find weights, and that stored revisions stay as they are when agents come."""

from datetime import UTC, datetime
from typing import Any

from ome_operator import keys, names
from ome_operator.core.observed.objects import Child, Deps, Observed
from ome_operator.core.observed.snapshot import Snapshot
from ome_operator.core.resolve.inputs import resolve
from ome_operator.core.rollout.intent import Intent, choose
from ome_operator.core.weights.availability import held
from ome_operator.core.weights.mount import both, directory, mount, weights
from tests.support import parts

URI = "hf://test/tiny"
DIGEST = names.weights_digest(URI)
IDENTITY = weights(parts.model(URI))._asdict()
WHOLE = f"models.ome.io/clusterbasemodel.tiny.{DIGEST}"


def test_without_agents_weights_lie_at_the_path() -> None:
    assert directory(IDENTITY, False) == ""
    made = mount(IDENTITY, "team")
    assert made.volume["hostPath"]["path"] == IDENTITY["path"]
    assert made.affinity == {"key": "models.ome.io/clusterbasemodel.tiny", "operator": "In", "values": ["Ready"]}


def test_with_agents_a_revision_has_its_own_directory_and_label() -> None:
    made = mount(IDENTITY, "team", directory=directory(IDENTITY, True))
    parent = IDENTITY["path"].rpartition("/")[0]
    assert made.volume["hostPath"]["path"] == f"{parent}/.ome/{DIGEST}"
    assert made.mount["mountPath"] == IDENTITY["path"], "engines see what they always saw"
    assert made.affinity == {"key": WHOLE, "operator": "In", "values": ["Ready"]}


def test_what_agents_do_not_fetch_lies_at_the_path_with_them_too() -> None:
    for uri in ("local:///x", "pvc://claim", "vendor://x"):
        assert directory(weights(parts.model(uri))._asdict(), True) == ""


def test_files_of_another_repository_belong_to_what_a_model_is() -> None:
    """Other files beside the same weights are another directory; what nobody fetches is as it lies there."""
    other = {"filesFrom": "hf://test/original"}
    model = parts.model(storage={"storageUri": URI, "parameters": other})
    assert weights(model).uri == "hf://test/tiny+hf://test/original"
    assert both(weights(model).uri) == (URI, "hf://test/original") and both(URI) == (URI, "")
    assert directory(weights(model)._asdict(), True) not in ("", DIGEST)
    by_hand = parts.model(storage={"storageUri": "local:///x", "parameters": other})
    assert weights(by_hand).uri == "local:///x"


def test_nodes_are_counted_by_the_label_that_pods_require() -> None:
    deps = Deps(holders={WHOLE: frozenset({"a", "b"}), "models.ome.io/clusterbasemodel.tiny": frozenset({"c"})})
    assert held([IDENTITY], [(1, 2)], deps, [DIGEST]).have == 2
    assert held([IDENTITY], [(1, 2)], deps).have == 1


def chosen(agents: bool, before: Observed | None = None) -> Intent:
    base = parts.deps(parts.model(URI), parts.simple())
    deps = Deps(**{**base.__dict__, "model_agent": agents})
    service = parts.service(engine={}, router={})
    return choose(Snapshot(service, deps, before or Observed(), datetime(2026, 1, 1, tzinfo=UTC)), resolve(service, deps))


def test_the_plain_label_is_a_wish_where_the_revisions_own_is_required() -> None:
    """A node whose agent says Failed or Updating is the second choice, and none where nothing else is free."""

    def affinity(choice: Intent) -> dict[str, Any]:
        leader = choice.data[choice.target]["workloads"]["engine"]["leader"]["spec"]["template"]["spec"]
        found: dict[str, Any] = leader["affinity"]["nodeAffinity"]
        return found

    node = affinity(chosen(True))
    (wish,) = node["preferredDuringSchedulingIgnoredDuringExecution"]
    plain = "models.ome.io/clusterbasemodel.tiny"
    assert [one["key"] for one in wish["preference"]["matchExpressions"]] == [plain]
    (term,) = node["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert [one["key"] for one in term["matchExpressions"]] == [f"{plain}.{DIGEST}"]
    assert "preferredDuringSchedulingIgnoredDuringExecution" not in affinity(chosen(False))


def test_a_new_revision_says_where_its_weights_are() -> None:
    choice = chosen(True)
    data = choice.data[choice.target]
    assert data["directories"] == [DIGEST]
    volumes = data["workloads"]["engine"]["leader"]["spec"]["template"]["spec"]["volumes"]
    assert [one["hostPath"]["path"] for one in volumes if "hostPath" in one] == [f"/models/.ome/{DIGEST}"]


def test_agents_that_come_later_roll_nothing() -> None:
    """The inputs are the same, so the stored templates stay (decisions 2 and 3)."""
    before = chosen(False)
    data = before.data[before.target]
    labels = {keys.REVISION: before.target, keys.SERVICE: parts.NAME, keys.MANAGED_BY: keys.MANAGER}
    stored = Child(
        "ControllerRevision", parts.NAMESPACE, "stored", "uid", 1, parts.UID, labels, "", "", False, 0, "",
        {"revision": 1, "data": data},
    )  # fmt: skip
    after = chosen(True, Observed(children={("ControllerRevision", "stored"): stored}))
    assert (after.target, after.ledger.write) == (before.target, ())
    assert after.data[after.target] == data and "directories" not in data
