"""Tests of misspelled fields of a component, which look like fields of a pod: the message names the path and the intended
field.
"""

import time
from typing import Any

import pytest

from ome_operator.api import Component, Runtime, ServiceSpec, pod_fields, strict
from ome_operator.api.kinds import KINDS
from ome_operator.core.observed.objects import Observed, Refusal
from ome_operator.core.podspec.spelling import MOST, misspelled_fields, translate_errors
from ome_operator.core.reconcile.sync import sync
from ome_operator.describe.outcome import compute_outcome
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
    """Return the message with which an API server of Kubernetes 1.34 refuses fields of a pod at these paths."""
    said = [f".spec.template.spec{path}: field not declared in schema" for path in paths]
    return ABOUT + (said[0] if len(said) == 1 else "errors:\n  " + "\n  ".join(said))


@pytest.mark.parametrize("case", CASES)
def test_misspelled_field_is_reported_with_the_intended_field(case: str) -> None:
    engine, path, said = CASES[case]
    assert misspelled_fields(parts.service(engine=engine), RUNTIME) == (said,)
    assert translate_errors(refusal(path), parts.service(engine=engine), RUNTIME) == said


EPHEMERAL = "ephemeralContainers"
"""A field of pods that the template of a pod cannot have."""
PLACES = {
    "spec.engine": "PodSpec",
    "spec.engine.leader": "PodSpec",
    "spec.engine.worker": "PodSpec",
    "spec.engine.runner": "Container",
    "spec.engine.leader.runner": "Container",
    "spec.engine.volumes[0]": "Volume",
    "spec.engine.securityContext": "PodSecurityContext",
    "spec.engine.runner.resources": "ResourceRequirements",
    "spec.engine.runner.securityContext": "SecurityContext",
    "spec.engine.runner.env[0]": "EnvVar",
    "spec.engine.runner.livenessProbe": "Probe",
}
"""Place in a service -> type of core/v1 whose fields are valid there."""


def placed(place: str, key: str, value: Any) -> dict[str, Any]:
    """Return the spec of a service with a field at this place."""
    body: Any = {key: value}
    for name in reversed(place.split(".")[1:]):
        name, listed, _ = name.partition("[")
        body = {name: [body] if listed else body}
    return {"model": {"name": "m"}, **body}


def elsewhere(place: str) -> dict[str, Any]:
    """Return each field, with a value, that is valid one level below a place, in the pod, in its container or, for the parts
    of a component, in the component and the service.
    """
    valid = pod_fields.fields(PLACES[place])
    found: dict[str, Any] = {
        name: 1 for key, inner in valid.items() if key != EPHEMERAL for name in pod_fields.fields(inner)
    }
    for type_ in ("PodSpec", "Container"):
        found |= {name: [] if form.startswith("[]") else 1 for name, form in pod_fields.field_forms(type_).items()}
    if PLACES[place] == "PodSpec":
        for part in (Component, ServiceSpec) if place != "spec.engine" else (ServiceSpec,):
            for field in part.model_fields.values():
                form = next(strict._form(one) for one in strict._alternatives(field.annotation) if one is not type(None))
                found[str(field.alias)] = {} if form is dict else [] if form is list else 1
        found = {name: value for name, value in found.items() if name not in ("runner", "size", "leader", "worker")}
    ours = {str(field.alias) for field in Component.model_fields.values()} if place == "spec.engine" else set[str]()
    return {name: value for name, value in found.items() if name not in valid and name not in ours}


@pytest.mark.parametrize("place", PLACES)
def test_misplaced_field_is_reported_with_its_correct_place(place: str) -> None:
    """The condition and `ome lint` give the same remedy for each field that is valid in another part of a service, and the
    remedy is the place of the field.
    """
    kind = next(one for one in KINDS if one.kind == "InferenceService")
    differ, removed = {}, []
    for key, value in elsewhere(place).items():
        spec = placed(place, key, value)
        path = f"{place}.{key}"
        linted = next((one.sentence for one in strict.find_mistakes(kind, {"spec": spec}) if one.field == path), "")
        found = [one for one in misspelled_fields(parts.service(**spec), None) if one.startswith(f"{path} ")]
        if found != ([linted] if not linted.endswith(": remove it") else []):
            differ[path] = linted, found
        if linted.endswith(": remove it"):
            removed.append(key)
    assert differ == {}
    assert removed == []


def test_field_unknown_to_the_api_server_is_not_suggested_for_itself() -> None:
    """A field that is right, but that the API server does not know, is not proposed as its own replacement."""
    service = parts.service(engine={"hostUsers": False})
    assert translate_errors(refusal(".hostUsers"), service, RUNTIME) == (
        "spec.engine.hostUsers is not a field of a pod in the Kubernetes version of this cluster: upgrade the cluster, or "
        "remove it"
    )


def test_the_workers_of_a_runtime_are_read_too() -> None:
    runtime: Runtime = parts.runtime(workers={"volumes": [{"name": "v", "claimName": "c"}]})
    (said,) = misspelled_fields(parts.service(engine={}), runtime)
    assert said == (
        "runtime rt: spec.workers.volumes[0].claimName is not a field of a pod: "
        "did you mean persistentVolumeClaim.claimName?"
    )


def test_misspelled_field_message_names_the_runtime() -> None:
    runtime: Runtime = parts.runtime(decoderConfig={"runner": {"imag": "x"}})
    (said,) = misspelled_fields(parts.service(engine={}, decoder={}), runtime)
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
def test_field_that_may_exist_in_kubernetes_is_left_to_the_api_server(engine: dict[str, Any]) -> None:
    """A field that may exist in another version of Kubernetes is left to the API server to accept or refuse."""
    assert misspelled_fields(parts.service(engine=engine), RUNTIME) == ()


def test_shipped_runtimes_have_no_misspelled_fields() -> None:
    service, deps = parts.kimi()
    (runtime,) = deps.runtimes.values()
    assert isinstance(runtime, Runtime) and misspelled_fields(service, runtime) == ()


def test_several_fields_and_those_that_are_like_none() -> None:
    service = parts.service(engine={"minReplica": 2, "aFieldOfTomorrow": 1})
    said = translate_errors(refusal(".minReplica", ".aFieldOfTomorrow"), service, RUNTIME)
    assert said.split("; ") == [
        "spec.engine.minReplica is not a field of a pod: did you mean minReplicas?",
        "spec.engine.aFieldOfTomorrow is not a field of a pod: remove it",
    ]


@pytest.mark.parametrize(
    "message", ["quota exceeded", refusal(".minReplica"), ABOUT + ".spec.template.spec.x: expected map"]
)
def test_unrelated_api_errors_are_returned_unchanged(message: str) -> None:
    assert translate_errors(message, parts.service(engine={}), RUNTIME) == message


def test_running_service_keeps_serving_and_reports_the_misspelled_field() -> None:
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


def test_diff_and_render_report_misspelled_fields() -> None:
    """`ome diff` and `ome render` also report misspelled fields, because they may run without an API server."""
    found = compute_outcome(parts.service(engine={"minReplica": 2}), parts.deps(parts.model(), parts.simple(router=False)))
    assert "spec.engine.minReplica is not a field of a pod: did you mean minReplicas?" in found.advice


def test_new_service_reports_misspelled_field_in_engine_ready() -> None:
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


def test_fifty_thousand_misspelled_fields_are_checked_quickly() -> None:
    """A service with fifty thousand misspelled fields is checked quickly. Previously, a service of 1 MB blocked the
    operator's event loop for 3.5 s after each edit.
    """
    fields = {f"livenessProb{number}": 1 for number in range(50_000)}
    service = parts.service(engine={"runner": {"name": "ome-container", **fields}})
    begin = time.process_time()
    said = misspelled_fields(service, None)
    took = time.process_time() - begin
    assert len(said) == MOST and took < 0.5
    message = "".join(f".spec.template.spec.containers.{name}: field not declared in schema " for name in fields)
    begin = time.process_time()
    assert translate_errors(message, service, None).count("did you mean livenessProbe?") == MOST
    assert time.process_time() - begin < 0.5
