"""Tests of where pods find weights, and that stored revisions do not change when agents are installed."""

import re
from datetime import UTC, datetime
from typing import Any

import pytest

from ome_operator import keys
from ome_operator.agent import record
from ome_operator.agent.locations import AgentRoots
from ome_operator.api import Invalid, Model
from ome_operator.core.observed.objects import Child, Deps, Observed
from ome_operator.core.reconcile.snapshot import Snapshot
from ome_operator.core.resolve.identity import equivalent
from ome_operator.core.resolve.inputs import resolve
from ome_operator.core.rollout.intent import Intent, choose
from ome_operator.core.weights.availability import availability
from ome_operator.core.weights.mount import DECIDING, directory, host_directories, mount, split_weights_uri, weights
from ome_operator.names import revision_label, weights_digest
from ome_operator.storage.sources import Access, open_source
from tests.support import parts
from tests.support.parts import change_deps

URI = "hf://test/tiny"
DIGEST = weights(parts.model(URI)).digest
IDENTITY = weights(parts.model(URI)).identity(True)
WHOLE = revision_label("ClusterBaseModel", "", "tiny", DIGEST)


def test_weights_are_mounted_from_their_path_without_agents() -> None:
    assert directory(IDENTITY, False) == ""
    made = mount(IDENTITY, "team")
    assert made.volume["hostPath"]["path"] == IDENTITY["path"]
    assert made.affinity == {"key": "models.ome.io/clusterbasemodel.tiny", "operator": "In", "values": ["Ready"]}


def test_revision_has_its_own_directory_and_label_with_agents() -> None:
    made = mount(IDENTITY, "team", directory=directory(IDENTITY, True))
    parent = IDENTITY["path"].rpartition("/")[0]
    assert made.volume["hostPath"]["path"] == f"{parent}/.ome/{DIGEST}"
    assert made.mount["mountPath"] == IDENTITY["path"], "the path in the container has not changed"
    assert made.affinity == {"key": WHOLE, "operator": "In", "values": ["Ready"]}


OWN = {"kind": "BaseModel", "namespace": "team-a", "name": "tiny", "uri": URI, "path": "/raid/models/org/tiny", "source": ""}


def test_weights_of_a_namespace_are_stored_in_its_part_of_the_root() -> None:
    """Weights that are downloaded for a namespace lie in the namespace's part of the root directory. The directory is stored
    as a path, which the mount, the label, the number of nodes and the removal of unused weights all use.
    """
    where = directory(OWN, True, ("/mnt/models", "/raid", "/raid/models"))
    assert where == f"/raid/models/.namespaces/team-a/.ome/{weights_digest(OWN)}"
    made = mount(OWN, "team-a", directory=where)
    assert made.volume["hostPath"] == {"path": where, "type": "Directory"}
    assert made.mount["mountPath"] == OWN["path"], "the path in the container has not changed"
    label = revision_label("BaseModel", "team-a", "tiny", weights_digest(OWN))
    assert made.affinity == {"key": label, "operator": "In", "values": ["Ready"]}
    assert availability([OWN], [(1, 2)], Deps(holders={label: frozenset({"a", "b"})}), [where]).ready_nodes == 2
    assert host_directories({"volumes": [made.volume]}) == {where}


def test_agent_and_operator_compute_the_same_directory_name() -> None:
    for namespace in ("", "team-a"):
        identity = {**OWN, "kind": "BaseModel" if namespace else "ClusterBaseModel", "namespace": namespace}
        body = {"kind": identity["kind"], "metadata": {"name": "tiny", **({"namespace": namespace} if namespace else {})}}
        storage = {"storageUri": URI, "path": OWN["path"]}
        model: Model = parts.ensure_valid(Model.parse({**body, "spec": {"storage": storage}}))
        roots = ("/raid",)
        assert record.directory(model, roots) == directory(identity, True, roots)
        assert str(AgentRoots(roots).store(model).root).endswith(directory(identity, True, roots))


DECIDED = [
    {"kind": "FineTunedWeight"}, {"namespace": "team-b"}, {"name": "other"}, {"uri": "hf://test/other"},
    {"path": "/raid/models/other/tiny"}, {"source": "endpoint=http%3A%2F%2Fevil"},
]  # fmt: skip


@pytest.mark.parametrize("other", DECIDED, ids=lambda other: next(iter(other)))
def test_digest_contains_everything_that_determines_the_files(other: dict[str, str]) -> None:
    assert weights_digest({**OWN, **other}) != weights_digest(OWN)
    assert re.fullmatch("[0-9a-f]{32}", weights_digest(OWN)), "128 bits"
    assert weights_digest({name: value for name, value in OWN.items() if name != "source"}) == weights_digest(OWN)


def test_digest_uses_all_source_parameters_except_anonymous() -> None:
    """The digest of a model depends on every parameter of a source that sources read, except `anonymous`. This parameter
    only decides whose credentials are used.
    """
    read: set[str] = set()

    class Watched(dict[str, str]):
        def get(self, key: str, default: Any = None) -> Any:
            read.add(key)
            return super().get(key, default)

        def __contains__(self, key: object) -> bool:
            read.add(str(key))
            return super().__contains__(key)

    given = {"account": "a", "endpoint": "http://127.0.0.1:9", "region": "r", "anonymous": "true", "verify": "size"}
    for uri in ("hf://a/b", "s3://b/x", "gs://b/x", "az://b/x", "oci://n/x/b/y/o/z", "oci://127.0.0.1:9/a/b:1"):
        open_source(uri, Access(Watched(given), {}))
    assert read - {"anonymous"} == set(DECIDING)
    parameters = {**given, "filesFrom": "hf://c/d"}
    found = weights(parts.model(storage={"storageUri": URI, "parameters": parameters}))
    assert found.source == "account=a&endpoint=http%3A%2F%2F127.0.0.1%3A9&region=r&verify=size"
    assert found.uri.endswith("+hf://c/d")


def test_weights_not_fetched_by_agents_have_no_revision_directory() -> None:
    for uri in ("local:///models/tiny", "pvc://claim", "vendor://x"):
        assert directory(weights(parts.model(uri)).identity(True), True) == ""


def test_files_from_a_second_repository_are_part_of_the_digest() -> None:
    """Files that are taken from another repository are part of a model's digest: the same weights with other additional
    files have another directory. A model that no agent downloads is used as it is.
    """
    other = {"filesFrom": "hf://test/original"}
    model = parts.model(storage={"storageUri": URI, "parameters": other})
    assert weights(model).uri == "hf://test/tiny+hf://test/original"
    assert split_weights_uri(weights(model).uri) == (URI, "hf://test/original") and split_weights_uri(URI) == (URI, "")
    assert directory(weights(model).identity(True), True) not in ("", DIGEST)
    by_hand = parts.model(storage={"storageUri": "local:///x", "parameters": other})
    assert weights(by_hand).uri == "local:///x"


def test_nodes_are_counted_by_the_label_that_pods_require() -> None:
    deps = Deps(holders={WHOLE: frozenset({"a", "b"}), "models.ome.io/clusterbasemodel.tiny": frozenset({"c"})})
    assert availability([IDENTITY], [(1, 2)], deps, [DIGEST]).ready_nodes == 2
    assert availability([IDENTITY], [(1, 2)], deps).ready_nodes == 1


def chosen(agents: bool, before: Observed | None = None) -> Intent:
    base = parts.deps(parts.model(URI), parts.simple())
    deps = change_deps(base, model_agent=agents)
    service = parts.service(engine={}, router={})
    return choose(Snapshot(service, deps, before or Observed(), datetime(2026, 1, 1, tzinfo=UTC)), resolve(service, deps))


def test_revision_label_is_required_and_model_label_is_preferred() -> None:
    """The label of the revision is required of a node, and the plain label of the model is only preferred. A node whose
    agent reports Failed or Updating is used if no other node is free.
    """

    def affinity(choice: Intent) -> dict[str, Any]:
        leader = choice.data[choice.target]["workloads"]["engine"]["leader"]["spec"]["template"]["spec"]
        found: dict[str, Any] = leader["affinity"]["nodeAffinity"]
        return found

    node = affinity(chosen(True))
    (wish,) = node["preferredDuringSchedulingIgnoredDuringExecution"]
    plain = "models.ome.io/clusterbasemodel.tiny"
    assert [one["key"] for one in wish["preference"]["matchExpressions"]] == [plain]
    (term,) = node["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert [one["key"] for one in term["matchExpressions"]] == [WHOLE]
    assert "preferredDuringSchedulingIgnoredDuringExecution" not in affinity(chosen(False))


def test_new_revision_stores_the_directories_of_its_weights() -> None:
    choice = chosen(True)
    data = choice.data[choice.target]
    assert data["directories"] == [DIGEST]
    volumes = data["workloads"]["engine"]["leader"]["spec"]["template"]["spec"]["volumes"]
    assert [one["hostPath"]["path"] for one in volumes if "hostPath" in one] == [f"/models/.ome/{DIGEST}"]


def test_later_installation_of_agents_rolls_out_no_service() -> None:
    """If agents are installed later, no service is rolled out: the inputs do not change, so the stored templates stay
    (decisions 2 and 3).
    """
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


def kept(data: dict[str, Any]) -> Observed:
    """Return a cluster in which `first` is a stored revision of the service."""
    labels = {keys.REVISION: "first", keys.SERVICE: parts.NAME, keys.MANAGED_BY: keys.MANAGER}
    stored = Child(
        "ControllerRevision", parts.NAMESPACE, "stored", "uid", 1, parts.UID, labels, "", "", False, 0, "",
        {"revision": 1, "data": data},
    )  # fmt: skip
    return Observed(children={("ControllerRevision", "stored"): stored})


def of(parameters: dict[str, str], before: Observed, **service: Any) -> Intent:
    """Return the chosen revision of a service whose model has these parameters, in a cluster with agents."""
    model = parts.model(storage={"storageUri": URI, "path": "/models/tiny", "parameters": parameters})
    deps = change_deps(parts.deps(model, parts.simple()), model_agent=True, agent_roots=("/models",))
    asked = parts.service(**{"engine": {}, "router": {}, **service})
    snapshot = Snapshot(asked, deps, before, datetime(2026, 1, 1, tzinfo=UTC))
    stored = {revision.name: revision.data["inputs"] for revision in snapshot.revisions}
    return choose(snapshot, resolve(asked, deps, stored))


def former() -> dict[str, Any]:
    """Return the data of a revision as earlier versions of the operator stored it, without the source of the model."""
    choice = of({}, Observed())
    data = dict(choice.data[choice.target])
    model = {name: value for name, value in data["inputs"]["model"].items() if name != "source"}
    return {**data, "inputs": {**data["inputs"], "model": model}, "directories": ["0a1b2c3d"]}


def test_upgrade_rolls_out_no_service_with_a_model_endpoint() -> None:
    after = of({"endpoint": "http://mirror"}, kept(former()))
    assert (after.target, after.ledger.write) == ("first", ())
    assert after.data["first"]["directories"] == ["0a1b2c3d"], "revisions keep the directory that they were created with"


def test_changed_source_gives_another_revision_and_directory() -> None:
    first = of({}, Observed())
    data = dict(first.data[first.target])
    same, other = of({"anonymous": "true"}, kept(data)), of({"endpoint": "http://mirror"}, kept(data))
    assert same.target == "first" and other.target != "first"
    assert other.data[other.target]["directories"] != data["directories"] == [DIGEST]


def test_kept_revision_keeps_the_directory_of_its_model() -> None:
    """A service that keeps a revision keeps the directory of the revision's model. Agents no longer create the previous
    directory, and no agent has ever downloaded that revision under the present name.
    """
    pinned = {"name": "tiny", "autoSync": False}
    after = of({"endpoint": "http://mirror"}, kept(former()), model=pinned, engine={"labels": {"a": "b"}})
    assert after.target != "first" and after.data[after.target]["directories"] == ["0a1b2c3d"]


def test_local_uri_without_path_is_mounted_from_its_own_path() -> None:
    """A model with a local URI and without `path` is mounted from the directory in the URI. The URI and `path` both name the
    directory: one of them is sufficient, and two different directories are refused.
    """
    assert weights(parts.model(storage={"storageUri": "local:///raid/weights/big/"})).path == "/raid/weights/big"
    assert weights(parts.model(storage={"storageUri": "hf://a/b"})).path == "/mnt/models/tiny"
    body = {"kind": "ClusterBaseModel", "metadata": {"name": "m"}, "spec": {"storage": {"storageUri": "local:///a"}}}
    body["spec"]["storage"]["path"] = "/b"  # type: ignore[index]
    refused = Model.parse(body)
    assert isinstance(refused, Invalid) and "storageUri names /a, but path is /b" in refused.why
    stored = Model.parse({**body, "metadata": {"name": "m", "uid": "u"}})
    assert isinstance(stored, Model) and weights(stored).path == "/b", "stored objects work as before"


def test_changed_default_path_of_local_weights_restarts_no_pods() -> None:
    """A new default path of local weights restarts no service. Earlier versions of the operator stored another default, and
    their revisions stay.
    """
    new = {"model": weights(parts.model(storage={"storageUri": "local:///raid/big"})).identity(agents=False)}
    old = {"model": {**new["model"], "path": "/mnt/models/tiny"}}
    assert equivalent(old, new) and not equivalent({"model": {**new["model"], "path": "/other"}}, new)
    assert not equivalent({"model": {**old["model"], "uri": "local:///other"}}, new)
