"""Tests that the pods of an engine group in a queue of Kueue form one pod group."""

from typing import Any

import pytest

from ome_operator import keys
from ome_operator.core.observed.objects import Manifest
from ome_operator.core.render import meta, pod_groups
from ome_operator.core.render.statefulsets import roles_by_component, stamp, workloads
from ome_operator.core.resolve.inputs import resolve
from tests.support import parts

QUEUE = {keys.KUEUE_LABEL: "gpus"}
OWNER = meta.Owner(parts.NAME, parts.NAMESPACE, parts.UID)
NAMES = {keys.KUEUE_GROUP, keys.KUEUE_COUNT, keys.KUEUE_SERVING, keys.KUEUE_MANAGED, keys.KUEUE_PARENT}


def data(size: int = 2, runtime: dict[str, Any] | None = None, name: str = parts.NAME, **spec: Any) -> dict[str, Any]:
    """Return the data that a new revision of a service with prefill and decode stores."""
    box = parts.container(args=["--port=30000"], resources={"limits": {"nvidia.com/gpu": 8}})
    part: dict[str, Any] = {"runner": box, **({"worker": {"size": size - 1}} if size > 1 else {})}
    found = parts.runtime(engineConfig=part, decoderConfig=part, **(runtime or {}))
    service = parts.service(None, name, **{"engine": {}, "decoder": {}, **spec})
    resolved = resolve(service, parts.deps(parts.model(), found))
    assert resolved.inputs is not None
    return {"workloads": workloads(name, parts.NAMESPACE, "0a1b2c3d", resolved.inputs)[0]}


def pods(stored_data: dict[str, Any], component: str, *groups: int) -> list[Manifest]:
    """Return the metadata of the pod templates of these groups in the order leader, workers, leader, workers, …"""
    return [one["spec"]["template"]["metadata"] for one in stamp(OWNER, roles_by_component(stored_data)[component], groups)]


def marks(metadata: Manifest) -> set[str]:
    return NAMES & {*metadata["labels"], *(metadata.get("annotations") or {})}


def test_leader_and_workers_form_one_pod_group_with_the_group_size() -> None:
    made = data(3, engine={"labels": QUEUE}, decoder={"labels": QUEUE})
    for component in (keys.ENGINE, keys.DECODER):
        leader, workers, other, _ = pods(made, component, 0, 4)
        name = f"svc-{component}-0a1b2c3d-0"
        for one in (leader, workers):
            assert one["labels"][keys.KUEUE_GROUP] == name
            assert one["labels"][keys.KUEUE_MANAGED] == "true"
            assert one["annotations"] == {
                keys.KUEUE_COUNT: "3", keys.KUEUE_SERVING: "true", keys.KUEUE_PARENT: pod_groups.PARENT
            }  # fmt: skip
        assert other["labels"][keys.KUEUE_GROUP] == f"svc-{component}-0a1b2c3d-4"


def test_statefulsets_have_no_queue_or_pod_group_label() -> None:
    """StatefulSets and their selectors name neither a queue nor a pod group, because Kueue refuses changes of a StatefulSet
    that names a queue.
    """
    made = data(2, engine={"labels": QUEUE}, decoder={"labels": QUEUE})
    for component in (keys.ENGINE, keys.DECODER):
        for one in stamp(OWNER, roles_by_component(made)[component], (0, 1)):
            selected = {*one["metadata"]["labels"], *one["spec"]["selector"]["matchLabels"]}
            assert not selected & {*NAMES, keys.KUEUE_LABEL} and "annotations" not in one["metadata"]


@pytest.mark.parametrize("name", ["s", "a-service-with-a-name-that-is-as-long-as-names-may"])
def test_the_name_of_a_pod_group_is_a_valid_label_and_belongs_to_one_group(name: str) -> None:
    made = data(1, name=name, engine={"labels": QUEUE}, decoder={"labels": QUEUE})
    found = [
        one["labels"][keys.KUEUE_GROUP]
        for component in (keys.ENGINE, keys.DECODER)
        for one in pods(made, component, 0, 1, 99999)
    ]
    assert len({*found}) == 6 and all(len(one) <= 63 for one in found)


SOURCES: dict[str, dict[str, Any]] = {
    "the component": {"engine": {"labels": QUEUE}},
    "the runtime's component": {"runtime": {"labels": QUEUE}},
    "annotations of the service": {"annotations": {keys.DEDICATED_CLUSTER: "gpus", keys.KUEUE_ENABLED: "true"}},
    "annotations of the component": {
        "engine": {"annotations": {keys.DEDICATED_CLUSTER: "gpus", keys.KUEUE_ENABLED: "true"}}
    },
}


@pytest.mark.parametrize("source", SOURCES)
def test_queue_label_of_any_source_creates_a_pod_group(source: str) -> None:
    first, second = pods(data(2, **SOURCES[source]), keys.ENGINE, 0)
    assert first["labels"][keys.KUEUE_LABEL] == second["labels"][keys.KUEUE_LABEL] == "gpus"
    assert marks(first) == marks(second) == NAMES


UNNAMED: dict[str, dict[str, Any]] = {
    "no queue": {},
    "Volcano's queue": {"engine": {"labels": {keys.VOLCANO_LABEL: "gpus"}}},
    "a queue of the workers only": {"runtime": {"workers": {"size": 1, "labels": QUEUE}}},
    "another queue of the workers": {
        "runtime": {"labels": QUEUE, "workers": {"size": 1, "labels": {keys.KUEUE_LABEL: "b"}}}
    },
}


@pytest.mark.parametrize("case", UNNAMED)
def test_no_pod_group_is_assigned_in_unsupported_cases(case: str) -> None:
    made = data(2, **UNNAMED[case])
    assert "podGroup" not in made["workloads"][keys.ENGINE]
    assert [marks(one) for one in pods(made, keys.ENGINE, 0)] == [set(), set()]


def test_user_defined_pod_group_name_is_kept() -> None:
    own = {"labels": {**QUEUE, keys.KUEUE_GROUP: "mine"}, "annotations": {keys.KUEUE_COUNT: "4"}}
    for one in pods(data(2, engine=own), keys.ENGINE, 0, 1):
        assert marks(one) == {keys.KUEUE_GROUP, keys.KUEUE_COUNT}
        assert one["labels"][keys.KUEUE_GROUP] == "mine" and one["annotations"][keys.KUEUE_COUNT] == "4"


def test_revisions_that_an_earlier_operator_stored_keep_their_pods() -> None:
    made = data(2, engine={"labels": QUEUE})
    before = made["workloads"][keys.ENGINE]
    assert before.pop("podGroup") == pod_groups.KUEUE
    assert [marks(one) for one in pods(made, keys.ENGINE, 0)] == [set(), set()]
