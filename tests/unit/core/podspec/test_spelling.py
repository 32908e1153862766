"""Tests of misspelled fields of a component, which look like fields of a pod: the message names the path and the intended
field.
"""

import time
from typing import Any

import pytest

from ome_operator.api import Runtime
from ome_operator.core.observed.objects import Observed, Refusal
from ome_operator.core.podspec.spelling import MOST, misspelled, translated
from ome_operator.core.reconcile.sync import sync
from ome_operator.describe.outcome import outcome
from tests.support import parts
from tests.support.simulator import START, World

RUNTIME = parts.simple()
CASES: dict[str, tuple[dict[str, Any], str, str]] = {
    "a field of the component": (
        {"minReplica": 2},
        ".minReplica",
        "spec.engine.minReplica is not a field of a pod: did you mean minReplicas?",
    ),
    "a field of the container": (
        {"runner": {"envs": []}},
        '.containers[name="ome-container"].envs',
        "spec.engine.runner.envs is not a field of a pod: did you mean env?",
    ),
    "a kind of volume, in other letters": (
        {"volumes": [{"name": "v", "hostpath": {"path": "/v"}}]},
        '.volumes[name="v"].hostpath',
        "spec.engine.volumes[0].hostpath is not a field of a pod: did you mean hostPath?",
    ),
    "of a container beside": (
        {"leader": {"containers": [parts.container("beside", portz=[])]}},
        '.containers[name="beside"].portz',
        "spec.engine.leader.containers[0].portz is not a field of a pod: did you mean ports?",
    ),
}
ABOUT = "failed to create typed patch object (team/svc-engine-0; apps/v1, Kind=StatefulSet): "


def refusal(*paths: str) -> str:
    """Return the answer of an API server of Kubernetes 1.34."""
    said = [f".spec.template.spec{path}: field not declared in schema" for path in paths]
    return ABOUT + (said[0] if len(said) == 1 else "errors:\n  " + "\n  ".join(said))


@pytest.mark.parametrize("case", CASES)
def test_what_is_like_a_field_is_told_with_the_field(case: str) -> None:
    engine, path, said = CASES[case]
    assert misspelled(parts.service(engine=engine), RUNTIME) == (said,)
    assert translated(refusal(path), parts.service(engine=engine), RUNTIME) == said


def test_a_runtime_is_named() -> None:
    runtime: Runtime = parts.runtime(decoderConfig={"runner": {"imag": "x"}})
    (said,) = misspelled(parts.service(engine={}, decoder={}), runtime)
    assert said == "runtime rt: spec.decoderConfig.runner.imag is not a field of a pod: did you mean image?"


@pytest.mark.parametrize(
    "engine",
    [
        {},
        {"nodeSelector": {"minReplica": "x"}, "runner": {"resources": {"limits": {"cpus": 1}}}},
        {"aFieldOfTomorrow": {"deep": [1]}, "runner": {"env": [{"name": "A", "valueFrom": {"fieldRef": {}}}]}},
        {"worker": {"size": 1, "tolerations": [{"key": "a"}]}, "hostIPC": True, "setHostnameAsFQDN": True},
    ],
)
def test_what_may_be_a_field_is_left_to_the_server(engine: dict[str, Any]) -> None:
    """A field that may exist in another version of Kubernetes is left to the API server to accept or refuse."""
    assert misspelled(parts.service(engine=engine), RUNTIME) == ()


def test_the_shipped_runtimes_are_spelled_well() -> None:
    service, deps = parts.kimi()
    (runtime,) = deps.runtimes.values()
    assert isinstance(runtime, Runtime) and misspelled(service, runtime) == ()


def test_several_fields_and_those_that_are_like_none() -> None:
    service = parts.service(engine={"minReplica": 2, "aFieldOfTomorrow": 1})
    said = translated(refusal(".minReplica", ".aFieldOfTomorrow"), service, RUNTIME)
    assert said.split("; ") == [
        "spec.engine.minReplica is not a field of a pod: did you mean minReplicas?",
        "spec.engine.aFieldOfTomorrow is not a field of a pod: remove it",
    ]


@pytest.mark.parametrize(
    "message", ["quota exceeded", refusal(".minReplica"), ABOUT + ".spec.template.spec.x: expected map"]
)
def test_other_words_stay_as_they_are(message: str) -> None:
    assert translated(message, parts.service(engine={}), RUNTIME) == message


def test_a_service_that_runs_keeps_on_and_says_what_was_meant() -> None:
    world = World(parts.service(engine={}, router={}), parts.deps(parts.model(), parts.simple()), seed=1)
    world.settle()
    world.verdict = lambda _: refusal(".minReplica")
    pods = {pod.uid for pod in world.pods.values()}
    world.edit(parts.service(engine={"minReplica": 2}, router={}))
    world.settle()
    told = world.condition("RolledOut")
    assert told["reason"] == "DryRunRefused"
    assert "spec.engine.minReplica is not a field of a pod: did you mean minReplicas?" in told["message"]
    assert world.condition("Ready")["status"] == "True" and {pod.uid for pod in world.pods.values()} == pods


def test_what_would_come_of_an_edit_says_it_too() -> None:
    """`ome diff` and `ome render` also report misspelled fields, because they may run without an API server."""
    found = outcome(parts.service(engine={"minReplica": 2}), parts.deps(parts.model(), parts.simple(router=False)))
    assert "spec.engine.minReplica is not a field of a pod: did you mean minReplicas?" in found.advice


def test_a_new_service_says_it_of_its_pods() -> None:
    service, deps = parts.service(engine={"minReplica": 2}), parts.deps(parts.model(), parts.simple(router=False))
    world = World(service, deps, seed=1)
    name = next(apply.manifest["metadata"]["name"] for apply in world.sync().apply if apply.kind == "StatefulSet")
    refused = {("StatefulSet", name): Refusal("Invalid", refusal(".minReplica"))}
    conditions = sync(service, deps, Observed(refusals=refused), START).status["conditions"]
    (told,) = [condition for condition in conditions if condition["type"] == "EngineReady"]
    assert (told["reason"], told["message"]) == (
        "InvalidPod",
        "spec.engine.minReplica is not a field of a pod: did you mean minReplicas?",
    )


def test_fifty_thousand_misspelled_fields_take_no_time() -> None:
    """A service with fifty thousand misspelled fields is checked quickly. Previously, a service of 1 MB blocked the
    operator's event loop for 3.5 s after each edit.
    """
    fields = {f"livenessProb{number}": 1 for number in range(50_000)}
    service = parts.service(engine={"runner": {"name": "ome-container", **fields}})
    begin = time.process_time()
    said = misspelled(service, None)
    took = time.process_time() - begin
    assert len(said) == MOST and took < 0.5
    message = "".join(f".spec.template.spec.containers.{name}: field not declared in schema " for name in fields)
    begin = time.process_time()
    assert translated(message, service, None).count("did you mean livenessProbe?") == MOST
    assert time.process_time() - begin < 0.5
