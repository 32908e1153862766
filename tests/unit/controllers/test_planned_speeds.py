"""Tests of the requests of the operator to the planner: their contents, how often they are made, and the effect of an
error.
"""

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from ome_operator import keys
from ome_operator.cache.resources import SERVICE, Resource, parse_or_keep
from ome_operator.controllers import planned_speeds
from ome_operator.controllers.planned_speeds import KEPT, SpeedPlanner
from ome_operator.core.demand.facts import NO_PLAN, PlannedSpeeds, PrefillWork
from ome_operator.core.demand.task import APPLY, DemandTask
from ome_operator.core.observed.objects import Child, Deps, Node, Ref
from tests.support import parts
from tests.unit.core.demand.loads import TARGETS, fleet

REF = Ref(SERVICE, "ns", "svc")
TASK = DemandTask(APPLY, fleet(), TARGETS, (2, 1, 1), revision="r1")
MODEL = parts.model("hf://deepseek-ai/DeepSeek-R1")
ARGS = {
    "engine": ["--tp-size=8", "--ep-size=8"],
    "decoder": ["--tp-size=8", "--dp-size=8", "--enable-dp-attention", "--moe-a2a-backend=deepep"],
}


def selector(product: str) -> dict[str, Any]:
    """Return the fields of an accelerator class whose nodes have the label `product` with this value."""
    return {"discovery": {"nodeSelector": {"product": product}}, "resources": [{"name": "nvidia.com/gpu"}]}


CLASSES = {name: parts.accelerator(f"nvidia-{name}", model=name, **selector(name)) for name in ("b200", "h200")}


def workload(component: str) -> dict[str, Any]:
    """Return a stored role."""
    box = {
        "image": "lmsysorg/sglang:v0.5.8.post1",
        "command": ["python3", "-m", "sglang.launch_server"],
        "args": ARGS[component],
        "resources": {"limits": {"nvidia.com/gpu": 8}},
    }
    return {"size": 1, "port": 1, "leader": {"spec": {"template": {"metadata": {}, "spec": {"containers": [box]}}}}}


class Cluster:
    """The parts of the cache that the planner reads."""

    def __init__(self, **inputs: Any) -> None:
        model = {"kind": MODEL.kind, "namespace": MODEL.namespace, "name": MODEL.name}
        self.data: Mapping[str, Any] = {
            "inputs": {"model": model, **inputs}, "workloads": {name: workload(name) for name in ARGS},
        }  # fmt: skip
        node = Node("n", 1, {"product": "b200"}, True, 8)
        self.children = {"ControllerRevision": self}
        self.known = Deps(
            models={Ref(**model): MODEL}, accelerators={each.name: each for each in CLASSES.values()}, nodes={"n": node}
        )

    def find_resource(self, service: Ref) -> Resource:
        """Return the service."""
        return parse_or_keep(
            SERVICE, {"metadata": {"namespace": service.namespace, "name": service.name, "uid": "s"}, "spec": {}}, None
        )

    def group(self, service: tuple[str, str]) -> list[Child]:
        """Return the revisions of a service of the namespace: `r1`, and one of the same name that a StatefulSet stored."""
        labels, content = {keys.REVISION: "r1"}, {"revision": 1, "data": self.data}
        own = Child("ControllerRevision", "ns", "svc-r1", "u", 1, "s", labels, "", "applied", False, 0, "", content)
        other = own._replace(name="svc-engine-r1-0", owner="set", owned="", content={"data": {"spec": {}}})
        return [other, own] if service[0] == "ns" else []

    def deps(self) -> Deps:
        """Return the catalog and the nodes."""
        return self.known


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """Replace the planner by one that answers at once. Return the list to which the GPUs and lengths of each requested
    prediction are added.
    """
    asked = list[tuple[Any, ...]]()

    def answer(data: Any, model: Any, hardware: frozenset[str], lengths: tuple[float, float]) -> PlannedSpeeds:
        asked.append((model and model.name, {*hardware}, lengths))
        return PlannedSpeeds(PrefillWork(0.0, 1.0))

    monkeypatch.setattr(planned_speeds, "_predicted", answer)
    return asked


def planner(**inputs: Any) -> SpeedPlanner:
    """Return a planner of a cluster with a service."""
    return SpeedPlanner(Cluster(**inputs))  # type: ignore[arg-type]


async def test_planner_predicts_the_speeds_of_a_real_service() -> None:
    found = await planner().predict(REF, TASK, (8000.0, 1000.0))
    assert found.missing == "" and found.work is not None and len(found.curve) > 10


async def test_prediction_is_made_once_per_class_of_lengths(calls: list[Any]) -> None:
    here = planner()
    for prompt in (6000.0, 7000.0, 8000.0, 7900.0):
        await here.predict(REF, TASK, (prompt, 1000.0))
    assert calls == [("tiny", {"b200"}, (8192.0, 1024.0))]
    await here.predict(REF, TASK, (8200.0, 1000.0))
    await here.predict(REF, TASK._replace(revision="r2"), (8000.0, 1000.0))
    assert len(calls) == 3


async def test_no_prediction_without_request_lengths_or_revision(calls: list[Any]) -> None:
    for task, lengths in ((TASK, None), (TASK, (0.0, 10.0)), (TASK._replace(revision=""), (10.0, 10.0))):
        assert await planner().predict(REF, task, lengths) == NO_PLAN
    assert not calls


@pytest.mark.parametrize(
    ("classes", "hardware"),
    [({}, {"b200"}), ({"engine": {"class": "nvidia-h200"}, "decoder": {"class": "nvidia-h200"}}, {"h200"})],
)
async def test_planner_gets_gpus_of_the_service_or_of_the_nodes(classes: Any, hardware: set[str], calls: list[Any]) -> None:
    await planner(accelerator=classes).predict(REF, TASK, (10.0, 10.0))
    assert calls[0][1] == hardware


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> SpeedPlanner:
    """Return a planner whose predictions raise an exception."""

    def fails(*_: Any) -> PlannedSpeeds:
        raise ZeroDivisionError

    monkeypatch.setattr(planned_speeds, "_predicted", fails)
    return planner()


async def test_planner_error_gives_no_prediction_and_is_logged_once(
    failing: SpeedPlanner, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR):
        for _ in range(3):
            found = await failing.predict(REF, TASK, (10.0, 10.0))
            assert found.work is None and found.missing.startswith("`ome plan` failed")
    assert len(caplog.records) == 1


async def test_malformed_revision_causes_no_planner_failure(caplog: pytest.LogCaptureFixture) -> None:
    cluster = Cluster()
    cluster.data = {"inputs": 3, "workloads": {"engine": "x"}}
    here = SpeedPlanner(cluster)  # type: ignore[arg-type]
    for _ in range(3):
        assert (await here.predict(REF, TASK, (10.0, 10.0))).missing.startswith("`ome plan` failed with ")
    assert len(caplog.records) == 1


class CountedNodes(dict[str, Node]):
    """Nodes that count how often they are searched."""

    searches = 0

    def values(self) -> Any:
        """Return the nodes, and count the search."""
        self.searches += 1
        return super().values()


async def test_gpu_nodes_are_searched_once_per_round_and_class(calls: list[Any]) -> None:
    cluster, services = Cluster(), [REF._replace(name=f"s{number}") for number in range(10)]
    nodes = CountedNodes(cluster.known.nodes)
    cluster.known = replace(cluster.known, nodes=nodes)
    here = SpeedPlanner(cluster)  # type: ignore[arg-type]
    for ref in services:
        await here.predict(ref, TASK, (10.0, 10.0))
    assert nodes.searches == len(CLASSES) and calls[0][1] == {"b200"}
    nodes["n"] = nodes["n"]._replace(labels={"product": "h200"})
    here.begin_round(services)
    for ref in services:
        await here.predict(ref, TASK, (10.0, 10.0))
    assert nodes.searches == 2 * len(CLASSES) and calls[-1][1] == {"h200"}


async def test_two_predictions_per_service_are_kept_for_any_number_of_services(calls: list[Any]) -> None:
    """Two predictions of each service are kept, however many services there are. Previously, 1,024 predictions were kept in
    all, so the predictions of 1,100 services were computed again in each round.
    """
    here, services = planner(), [REF._replace(name=f"s{number}") for number in range(1100)]
    for lengths in ((10.0, 10.0), (100.0, 10.0)) * 2:
        here.begin_round(services)
        for ref in services:
            await here.predict(ref, TASK, lengths)
    assert len(calls) == 2 * len(services)
    for prompt in (1000.0, 2000.0, 4000.0):
        await here.predict(services[0], TASK, (prompt, 10.0))
    assert len(here._kept[services[0]]) == KEPT


async def test_predictions_of_deleted_services_are_removed(failing: SpeedPlanner, caplog: pytest.LogCaptureFixture) -> None:
    for prompt in (10.0, 100.0, 1000.0, 10000.0):
        await failing.predict(REF, TASK, (prompt, 10.0))
    assert len(failing._kept[REF]) == KEPT and len(caplog.records) == 1
    failing.begin_round([])
    assert not failing._kept and not failing._failed
