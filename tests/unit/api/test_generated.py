"""Tests of the CRDs: they are up to date, small and structural, and contain nothing that would change stored objects."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from ome_operator.api import crds
from ome_operator.api.kinds import KINDS, Kind
from ome_operator.core.reasons import REASONS, Kstatus
from tests.support.kstatus import kstatus
from tests.unit.api.walker import OPEN, nodes

RECORDS = {"NodeModels", "NodeFaults"}
"""Kinds that record the state of nodes."""
ALL = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.crd)


def schema_of(kind: Kind) -> dict[str, Any]:
    """Return the schema of a complete object of the kind."""
    return crds.crd(kind)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]


def test_committed_crds_equal_the_generated_ones() -> None:
    """The committed CRDs are up to date: the test fails if `python -m ome_operator.api.crds` was not run after the last
    change of a model.
    """
    assert crds.differences() == []


def test_differences_lists_changed_missing_and_superfluous_files(tmp_path: Path) -> None:
    """The check of the committed CRDs finds changed, missing and superfluous files. Writing the folder again repairs all of
    them.
    """
    crds.write(tmp_path)
    assert crds.differences(tmp_path) == []
    (tmp_path / "crds/rolescales.ome.io.yaml").write_text("changed")
    (tmp_path / "crds/servings.sglang.ai.yaml").unlink()
    (tmp_path / "charts/ome-crd/templates/left.ome.io.yaml").write_text("left over")
    assert crds.differences(tmp_path) == [
        "charts/ome-crd/templates/left.ome.io.yaml",
        "crds/rolescales.ome.io.yaml",
        "crds/servings.sglang.ai.yaml",
    ]
    crds.write(tmp_path)
    assert crds.differences(tmp_path) == []


@ALL
def test_small_enough_for_a_client_side_apply(kind: Kind) -> None:
    """Each CRD is small enough for a client-side `kubectl apply`, which writes the object into an annotation as JSON."""
    assert len(json.dumps(crds.crd(kind), separators=(",", ":")).encode()) < crds.LIMIT


@ALL
def test_every_field_has_a_description(kind: Kind) -> None:
    """Every field has a description, which `kubectl explain` prints."""
    known = nodes(schema_of(kind))
    fields = {at: node for at, node in known if not at.endswith(("[]", "{}")) and not at.startswith(".metadata")}
    assert [at for at, node in fields.items() if not node.get("description")] == []


@ALL
def test_spec_fields_have_no_defaults(kind: Kind) -> None:
    """No field of a spec has a default, because a default would change stored objects when they are read, and with them
    every revision (decisions 2). A status is no input of a revision, so its fields may have defaults.
    """
    found = [at for at, node in nodes(schema_of(kind)) if "default" in node]
    assert found == ([] if kind.kind in RECORDS else [".status"])


@ALL
def test_new_object_has_default_conditions_unprocessed(kind: Kind) -> None:
    """A new object has conditions from the CRD's defaults that say that no operator has processed it. `kubectl get` shows
    this state, and kstatus does not consider the object complete.
    """
    default = schema_of(kind)["properties"]["status"].get("default")
    if kind.kind in RECORDS:  # written by agents or the operator; no client waits for it
        assert default is None
        return
    (condition,) = default["conditions"]
    assert kind.status.model_validate(default, by_alias=True, by_name=False).dump() == default
    assert (condition["status"], REASONS[condition["reason"]].kstatus) == ("Unknown", Kstatus.IN_PROGRESS)
    assert kstatus({"metadata": {"generation": 1}, "status": default}) == "InProgress"


def test_printed_columns_begin_with_the_most_important_and_end_with_url() -> None:
    """The columns of `kubectl get` begin with what users look for. The URL is the last column, because it is often longer
    than the rest of the line on a terminal.
    """
    (service,) = (kind for kind in KINDS if kind.kind == "InferenceService")
    names = [column.name for column in service.columns if not column.wide]
    assert names[:2] == ["Ready", "Reason"] and names[-1] == "URL"


def test_wide_output_has_columns_for_pinned_revisions() -> None:
    """`kubectl get isvc -o wide` shows three revisions: the one to which the service is pinned, and the revisions of its
    model and of its runtime.
    """
    (service,) = (kind for kind in KINDS if kind.kind == "InferenceService")
    wide = {column.name: column.path for column in service.columns if column.wide}
    assert wide == {
        "Pinned": ".spec.rollout.revision",
        "Model revision": ".spec.model.revision",
        "Runtime revision": ".spec.runtime.revision",
    }
    known = {at for at, _ in nodes(schema_of(service))}
    assert set(wide.values()) <= known


@ALL
def test_schema_nodes_have_one_type_or_are_open(kind: Kind) -> None:
    """Every node of a schema has one type, or is marked as open, and every list declares the type of its items."""
    for at, node in nodes(schema_of(kind)):
        assert node.keys() & {"type", "x-kubernetes-int-or-string", OPEN}, at
        assert not node.keys() & {"$ref", "anyOf", "allOf", "oneOf", "title", "const"}, at
        assert ("items" in node) == (node.get("type") == "array"), at
        assert not ("properties" in node and "additionalProperties" in node), at


@ALL
def test_status_lists_declare_their_merge_strategy(kind: Kind) -> None:
    """Every list of a status declares whether it is replaced or merged by key. The keys of a merged list are required."""
    for at, node in nodes(schema_of(kind)["properties"]["status"]):
        if node.get("type") != "array":
            continue
        assert node["x-kubernetes-list-type"] in ("atomic", "map"), at
        assert set(node.get("x-kubernetes-list-map-keys", ())) <= set(node["items"].get("required", ())), at


@ALL
def test_conditions_are_merged_by_type(kind: Kind) -> None:
    """Every kind except records of nodes has conditions that are merged by their type, and the status of every kind is a
    subresource.
    """
    conditions = schema_of(kind)["properties"]["status"]["properties"].get("conditions")
    assert conditions is not None or kind.kind in RECORDS, "records of nodes have no conditions"
    assert conditions is None or conditions["x-kubernetes-list-map-keys"] == ["type"]
    assert "status" in crds.crd(kind)["spec"]["versions"][0]["subresources"]


@ALL
def test_printed_columns_refer_to_existing_fields(kind: Kind) -> None:
    """Every column of a CRD points at a field of its schema. A column with a misspelled path would stay empty without any
    error.
    """
    root = schema_of(kind)
    for column in kind.columns:
        if column.path.startswith((".metadata", ".status.conditions")):
            continue
        node = root
        for part in column.path.strip(".").split("."):
            node = node["properties"].get(part) if "properties" in node else node["additionalProperties"]
            assert node, f"{column.name}: {column.path}"


def test_chart_contains_the_same_crds_with_the_keep_annotation() -> None:
    """The chart with the CRDs contains the same CRDs, with the annotation that keeps them: uninstalling the chart must not
    delete every service of a cluster.
    """
    for path, text in crds.files().items():
        if path.parent != crds.CHART:
            continue
        kept = yaml.load(text, Loader=yaml.CSafeLoader)
        assert kept["metadata"].pop("annotations") == {"helm.sh/resource-policy": "keep"}
        assert kept == yaml.load(crds.files()[crds.PLAIN / path.name], Loader=yaml.CSafeLoader)


def test_braces_in_schemas_are_escaped_for_helm() -> None:
    """Braces in a schema are replaced by a template that prints them, because helm would interpret them otherwise."""
    assert crds.escape_for_helm("a {{ b") == 'a {{ "{{" }} b'


@ALL
def test_validation_rules_have_unique_messages_with_a_remedy(kind: Kind) -> None:
    """Every validation rule has a message, and no message repeats the rule itself."""
    for at, node in nodes(schema_of(kind)):
        for rule in node.get("x-kubernetes-validations", ()):
            assert rule["message"], at
            assert "self." not in rule["message"], at
            assert len(json.dumps(rule)) < 2048, at
