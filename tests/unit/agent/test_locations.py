"""Tests of the places on a node where a model's weights may be stored."""

from pathlib import Path
from typing import Any

import pytest

from ome_operator.agent.access import namespace_of, owner_of
from ome_operator.agent.locations import AgentRoots, path_conflict
from ome_operator.agent.manifest import Manifest
from ome_operator.api import Model
from ome_operator.core.weights.mount import weights
from tests.support import parts

ROOTS = ("/mnt/models", "/raid", "/raid/models")


def model(path: str, uri: str = "hf://a/b", namespace: str = "", name: str = "m") -> Model:
    """Return a ClusterBaseModel, or a BaseModel if a namespace is given."""
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    kind = "BaseModel" if namespace else "ClusterBaseModel"
    body = {"kind": kind, "metadata": metadata, "spec": {"storage": {"storageUri": uri, "path": path}}}
    made: Model = parts.ensure_valid(Model.parse(body))
    return made


@pytest.mark.parametrize("path", ["/mnt/models", "/etc/x", "/mnt/models2/x", "//mnt/models/x"])
def test_path_outside_the_roots_is_refused(path: str) -> None:
    assert "is not below /mnt/models" in AgentRoots(ROOTS[:1]).misplaced_message(model(path))


@pytest.mark.parametrize("path", ["/raid/m/x/", "/raid/models/x", "/mnt/models/a/b/c/d"])
@pytest.mark.parametrize("namespace", ["", "team-a"])
def test_a_path_below_a_root_is_fine(path: str, namespace: str) -> None:
    assert AgentRoots(ROOTS).misplaced_message(model(path, namespace=namespace)) == ""


@pytest.mark.parametrize(
    ("path", "component"),
    [
        ("/raid/.ome/x", ".ome"), ("/raid/.ome/0a.partial", ".ome"), ("/raid/x/.ome", ".ome"), ("/raid/./.ome/x", ".ome"),
        ("/raid/.namespaces/team-a/x", ".namespaces"), ("/raid/models/.namespaces/team-b/x", ".namespaces"),
        ("/raid/x/.namespaces/team-a/x", ".namespaces"), ("/raid/x/.NAMESPACES/team-a/x", ".NAMESPACES"),
        ("/raid/x/.OME/x", ".OME"), ("/raid/.namespace\u017f/x", ".namespace\u017f"), ("/raid/.o\u200bme/x", ".o\u200bme"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("namespace", ["", "team-a"])
def test_reserved_path_components_are_refused(path: str, component: str, namespace: str) -> None:
    assert f"has the component {component}," in AgentRoots(ROOTS).misplaced_message(model(path, namespace=namespace))


@pytest.mark.parametrize(
    ("path", "namespace", "fine"),
    [
        ("/raid/.namespaces/team-a/x", "team-a", True), ("/raid/.namespaces/team-a", "team-a", False),
        ("/raid/.namespaces/team-b/x", "team-a", False), ("/raid/.namespaces/team-a/x", "", False),
        ("/raid/.namespaces/team-a/.ome/x", "team-a", False),
        ("/raid/.namespaces/team-a/.namespaces/team-b", "team-a", False),
    ],
)  # fmt: skip
def test_local_files_in_a_namespace_directory_belong_to_that_namespace(path: str, namespace: str, fine: bool) -> None:
    assert (AgentRoots(ROOTS).misplaced_message(model(path, f"local://{path}", namespace)) == "") is fine


@pytest.mark.parametrize(
    ("path", "namespace", "home"),
    [
        ("/raid/models/org/m", "", "/raid/models/org/.ome"),
        ("/raid/models/org/m", "team-a", "/raid/models/.namespaces/team-a/.ome"),
        ("/raid/org/m", "team-a", "/raid/.namespaces/team-a/.ome"),
    ],
)
def test_store_of_a_model_depends_on_its_namespace_and_the_innermost_root(path: str, namespace: str, home: str) -> None:
    store = AgentRoots(ROOTS).store(model(path, namespace=namespace))
    assert str(store.home) == home and store.root.name == weights(model(path, namespace=namespace)).digest
    assert store.has_link is (namespace == "")


def test_path_used_by_a_model_with_other_files_is_a_conflict() -> None:
    taken = {"/raid/a": weights(model("/raid/a"))}
    assert path_conflict(weights(model("/raid/a", name="other")), taken) == ""
    assert "is in use by ClusterBaseModel m" in path_conflict(weights(model("/raid/a", "hf://a/c")), taken)
    assert "is in use by ClusterBaseModel m" in path_conflict(weights(model("/raid/./a", "hf://a/c")), taken)
    assert "is inside /raid/a, which is in use by" in path_conflict(weights(model("/raid/a/b/c")), taken)
    assert path_conflict(weights(model("/raid/a/b", "local:///raid/a/b")), taken) == "", "the files were put there manually"
    assert path_conflict(weights(model("/raid/ab")), taken) == ""
    by_hand = {"/raid/a": weights(model("/raid/a", "local:///raid/a"))}
    assert path_conflict(weights(model("/raid/a/b")), by_hand) == "", "models with a local:// URI have no symbolic link"


@pytest.mark.parametrize(
    ("place", "namespace"),
    [
        ("/raid/.ome", ""), ("/raid/.namespaces/team-a/.ome", "team-a"), ("/raid/.namespaces/.ome", None),
        ("/raid/.namespaces/.former/team-a.x/.ome", None), ("/raid/.namespaces/a/.namespaces/b/.ome", None),
    ],
)  # fmt: skip
def test_namespace_is_derived_from_the_path(place: str, namespace: str | None) -> None:
    assert namespace_of(Path(place)) == namespace


def known(model: Model, **more: Any) -> Manifest:
    identity = {**weights(model)._asdict(), **more}
    return Manifest(identity["uri"], "c1", (), "", identity=identity)


def test_directory_owner_requires_matching_name_path_and_manifest() -> None:
    ours, theirs = model("/raid/a"), model("/raid/a", namespace="team-a")
    home, own = Path("/raid/.ome"), Path("/raid/.namespaces/team-a/.ome")
    assert owner_of(home, weights(ours).digest, known(ours)) == ""
    assert owner_of(own, weights(theirs).digest, known(theirs)) == "team-a"
    wrong = [
        (home, weights(ours).digest, known(ours, uri="hf://evil/b")),
        (home, weights(ours).digest, known(ours, source="endpoint=http%3A%2F%2Fevil")),
        (home, weights(theirs).digest, known(theirs)),
        (own, weights(ours).digest, known(ours)),
        (Path("/raid/.namespaces/team-b/.ome"), weights(theirs).digest, known(theirs)),
        (Path("/raid/moved/.ome"), weights(ours).digest, known(ours)),
        (home, weights(ours).digest, Manifest("hf://a/b", "c1", (), "")),
    ]
    assert [owner_of(*each) for each in wrong] == [None] * len(wrong)


def test_former_directory_belongs_to_the_cluster_only_if_all_labels_do() -> None:
    label = "models.ome.io/clusterbasemodel.k2"
    former = Manifest("hf://a/b", "c1", (), "", (label,))
    assert owner_of(Path("/raid/.ome"), "0a1b2c3d", former) == ""
    for labels in ((label, "models.ome.io/team-a.basemodel.k2"), ("models.ome.io/team-a.basemodel.k2",), ()):
        assert owner_of(Path("/raid/.ome"), "0a1b2c3d", former._replace(models=labels)) is None
