"""Compares complete manifests byte by byte, and checks rules that every manifest must satisfy."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from ome_operator import keys, names, quantity
from ome_operator.core.observed.managed_fields import digest
from ome_operator.core.observed.objects import Manifest
from ome_operator.core.render import meta, statefulsets
from tests.golden.cases import CASES, HERE, dumped, read, rendered, short, whole
from tests.support import parts

pytestmark = pytest.mark.parametrize("case", CASES)
HINT = "see `pytest tests/golden --update-golden`"


def test_cases_contain_exact_copies_of_shipped_objects(case: str, update: bool) -> None:
    """A case that has an object of `config` has an exact copy of it; only the runtime of a service may differ."""
    documents, file = read(case, "in.yaml"), HERE / case / "in.yaml"
    fresh = [shipped(one) for one in documents]
    if update and fresh != documents:
        head = [line for line in file.read_text().splitlines(keepends=True) if line.startswith("#")]
        file.write_text("".join(head) + dumped(fresh))
    assert read(case, "in.yaml") == fresh, HINT


def shipped(body: Manifest) -> Manifest:
    """Return the object of this kind and name in `config`; the body itself if there is none."""
    found = parts.in_config(body["metadata"]["name"], body["kind"])
    if found is None or "runtime" not in body["spec"]:
        return found or body
    return {**found, "spec": {**found["spec"], "runtime": body["spec"]["runtime"]}}


def test_rendered_manifests_equal_the_golden_files(case: str, update: bool) -> None:
    file, text = HERE / case / "out.yaml", dumped(short(rendered(case)))
    if update:
        file.write_text(text)
    assert text == file.read_text(), HINT


def test_shortened_statefulsets_can_be_restored_from_the_stored_template(case: str) -> None:
    assert whole(short(rendered(case))) == rendered(case)


def test_every_object_has_labels_owner_and_a_name_within_limits(case: str) -> None:
    limits = {"StatefulSet": 52, "Service": 63, "Deployment": 46}
    for one in rendered(case):
        metadata = one["metadata"]
        assert metadata["labels"][keys.MANAGED_BY] == keys.MANAGER
        assert metadata["labels"][keys.SERVICE]
        (owner,) = metadata["ownerReferences"]
        assert owner["controller"] is True and owner["kind"] == "InferenceService"
        assert len(metadata["name"]) <= limits.get(one["kind"], 63)
        assert one["kind"] in ("RoleScale", "Secret") or metadata["annotations"][keys.HASH] == digest(one)


def test_every_selector_selects_only_own_pods(case: str) -> None:
    everything = rendered(case)
    pods = [one["spec"]["template"]["metadata"]["labels"] for one in everything if "template" in one.get("spec", {})]
    (revision,) = [one for one in everything if one["kind"] == "ControllerRevision"]
    for role in statefulsets.roles_by_component(
        revision["data"]
    ).values():  # A role that is scaled to zero has no StatefulSet.
        pods.append(role.leader["spec"]["template"]["metadata"]["labels"])
    for one in everything:
        selector = (one.get("spec") or {}).get("selector")
        if selector is None:
            continue
        wanted = selector.get("matchLabels", selector)
        assert wanted[keys.MANAGED_BY] == keys.MANAGER
        assert any(wanted.items() <= labels.items() for labels in pods), one["metadata"]["name"]


def test_statefulset_selects_only_pods_of_its_own_template(case: str) -> None:
    """Each StatefulSet's selector matches the pods of its own template and of no other. If two StatefulSets selected the
    same pod, both would count it, and each would delete it because of the other.
    """
    sets = [one for one in rendered(case) if one["kind"] == "StatefulSet"]
    for one in sets:
        selector = one["spec"]["selector"]
        absent = [each["key"] for each in selector.get("matchExpressions", ()) if each["operator"] == "DoesNotExist"]
        assert selector.keys() <= {"matchLabels", "matchExpressions"}
        assert len(absent) == len(selector.get("matchExpressions", ()))
        found = [
            other["metadata"]["name"]
            for other in sets
            if selector["matchLabels"].items() <= (labels := other["spec"]["template"]["metadata"]["labels"]).items()
            and not labels.keys() & {*absent}
        ]
        assert found == [one["metadata"]["name"]]


def test_no_pod_is_selected_by_two_budgets(case: str) -> None:
    everything = rendered(case)
    budgets = [one["spec"]["selector"]["matchLabels"] for one in everything if one["kind"] == "PodDisruptionBudget"]
    for one in everything:
        if "template" in one.get("spec", {}):
            labels = one["spec"]["template"]["metadata"]["labels"]
            assert sum(wanted.items() <= labels.items() for wanted in budgets) == 1


def test_all_values_have_the_form_in_which_the_server_stores_them(case: str) -> None:
    """All values are written in the form in which the API server stores them. Otherwise the managed fields would differ from
    the written fields in every reconciliation (decisions 13).
    """
    for one in rendered(case):
        for path, value in walk(one) if one["kind"] != "ControllerRevision" else ():
            field = path[-1]
            assert value is not None, path
            if field == "fieldRef":
                assert value["apiVersion"] == "v1", path
            if field in ("limits", "requests"):
                assert {name: quantity.canonical_text(amount) for name, amount in value.items()} == value, path
            if field == "sizeLimit":
                assert value == quantity.canonical_text(value), path
            if field == "ports":
                assert all(port["protocol"] == "TCP" for port in value), path
            if field in ("args", "command"):
                assert all(isinstance(word, str) for word in value), path
            if field in ("env", "volumes", "containers", "volumeMounts", "ports"):
                key = "mountPath" if field == "volumeMounts" else "name"
                found = [entry[key] for entry in value if key in entry]
                assert len(found) == len(set(found)), path


def test_variable_references_name_only_earlier_variables(case: str) -> None:
    """Every `$(NAME)` in a container's variables names a variable that is defined before it. The kubelet does not expand
    references to later variables.
    """
    for one in rendered(case):
        for path, value in walk(one):
            if path[-1] != "env":
                continue
            known: set[str] = set()
            for variable in value:
                for other in value:
                    if f"$({other['name']})" in variable.get("value", ""):
                        assert other["name"] in known, (path, variable)
                known.add(variable["name"])


def test_stored_revision_always_yields_the_same_statefulsets(case: str) -> None:
    """A stored revision always yields the same StatefulSets: the data stored by the operator that wrote this golden file
    give equal objects with the current code, even for a group that is added later.
    """
    golden = whole(read(case, "out.yaml"))
    (stored,) = [one for one in golden if one["kind"] == "ControllerRevision"]
    labels, (reference,) = stored["metadata"]["labels"], stored["metadata"]["ownerReferences"]
    owner = meta.Owner(labels[keys.SERVICE], stored["metadata"]["namespace"], reference["uid"])
    sets = {one["metadata"]["name"]: one for one in golden if one["kind"] == "StatefulSet"}
    for role in statefulsets.roles_by_component(stored["data"]).values():
        numbers = [number for number in range(len(sets)) if statefulsets.set_names(role, number)[0] in sets]
        for one in statefulsets.stamp(owner, role, numbers):
            assert one == bare(sets.pop(one["metadata"]["name"]))
        first, later = (statefulsets.stamp(owner, role, [number]) for number in (0, 12345))
        assert [names.group(one["metadata"]["name"]) for one in later] == [(12345, True), (12345, False)][: len(later)]
        for one, other in zip(first, later, strict=True):
            text = json.dumps(one).replace(f'"{one["metadata"]["name"]}"', f'"{other["metadata"]["name"]}"')
            assert json.loads(text.replace(f'"{keys.GROUP_INDEX}": "0"', f'"{keys.GROUP_INDEX}": "12345"')) == other
    assert not sets


def bare(manifest: Manifest) -> Manifest:
    """Return the manifest without the operator's hash annotation, which is added when the manifest is written."""
    metadata = {key: value for key, value in manifest["metadata"].items() if key != "annotations"}
    return {**manifest, "metadata": metadata}


def walk(value: Any, path: tuple[Any, ...] = ("",)) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Yield every nested value with its path, except user input that is only recorded."""
    yield path, value
    if isinstance(value, dict):
        for key, inner in value.items():
            if key != "inputs":
                yield from walk(inner, (*path, key))
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from walk(inner, (*path, number))
