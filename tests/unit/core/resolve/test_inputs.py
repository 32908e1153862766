"""Tests of the contents of a revision: the user's settings of engine and decoder, and what was chosen for them (decisions
2).
"""

from dataclasses import replace
from typing import Any

import pytest

from ome_operator.api import InferenceService, Model, Runtime
from ome_operator.core.observed.objects import Deps, Observed, Ref
from ome_operator.core.reconcile.sync import sync
from ome_operator.core.resolve.identity import equivalent
from ome_operator.core.resolve.inputs import model_refs, resolve, runtime_refs
from tests.support import parts
from tests.support.simulator import START

Data = dict[str, Any]


def body(**engine: Any) -> Data:
    """Return a service with many fields, so that edits have something to change."""
    spec: Data = {
        "model": {"name": "tiny"},
        "runtime": {"name": "rt"},
        "engine": {"minReplicas": 1, "labels": {"a": "1"}, "runner": {"env": [{"name": "A", "value": "1"}]}, **engine},
        "decoder": {},
        "router": {"config": {"L": "1"}},
    }
    return {"kind": "InferenceService", "metadata": {"name": "svc", "namespace": "team", "uid": parts.UID}, "spec": spec}


def runtime_body() -> Data:
    """Return the data of the runtime."""
    formats = [{"name": "safetensors", "acceleratorConfig": {"h200": {"runtimeArgsOverride": ["--tp=8"]}}}]
    engine = {"runner": parts.container(args=["--x"])}
    router = {"runner": parts.container("router")}
    spec: Data = {"supportedModelFormats": formats, "engineConfig": engine, "decoderConfig": engine, "routerConfig": router}
    return {"kind": "ClusterServingRuntime", "metadata": {"name": "rt"}, "spec": spec}


def model_body() -> Data:
    """Return the data of the model."""
    spec = {"storage": {"storageUri": "hf://a/b", "path": "/m/tiny"}, "modelFormat": {"name": "safetensors"}}
    return {"kind": "ClusterBaseModel", "metadata": {"name": "tiny"}, "spec": spec}


def revision(service: Data, runtime: Data, model: Data) -> str:
    """Return the name of the revision that results from these objects."""
    parsed = parts.ensure_valid(InferenceService.parse(service))
    deps = parts.deps(
        parts.ensure_valid(Model.parse(model)),
        parts.ensure_valid(Runtime.parse(runtime)),
        parts.accelerator("h200"),
        parts.accelerator("b200"),
    )
    return str(sync(parsed, deps, Observed(), START).status["revision"])


def edited(whole: Data, path: str, value: Any) -> Data:
    """Return the object with this value at the path `a.b.c`. The value None removes the field."""
    first, _, rest = path.partition(".")
    if rest:
        return {**whole, first: edited(whole.get(first) or {}, rest, value)}
    return {key: inner for key, inner in {**whole, first: value}.items() if inner is not None}


MUST: list[tuple[str, str, Any]] = [
    ("service", "spec.engine.runner.image", "engine:2"),
    ("service", "spec.engine.runner.args", ["--y"]),
    ("service", "spec.engine.runner.env", [{"name": "A", "value": "2"}]),
    ("service", "spec.engine.labels", {"a": "2"}),
    ("service", "spec.engine.annotations", {"a": "2"}),
    ("service", "spec.engine.worker", {"size": 1}),
    ("service", "spec.engine.nodeSelector", {"zone": "a"}),
    ("service", "spec.engine.timeoutSeconds", 60),  # it is the leaders' grace period
    ("service", "spec.decoder.runner", {"image": "engine:2"}),
    ("service", "spec.decoder", None),
    ("service", "spec.rollout", {"restartedAt": "today"}),
    ("service", "spec.acceleratorSelector", {"acceleratorClass": "h200"}),
    ("service", "spec.engine.acceleratorOverride", {"acceleratorClass": "b200"}),
    ("runtime", "spec.engineConfig.runner.image", "engine:2"),
    ("runtime", "spec.engineConfig.worker", {"size": 1}),
    ("runtime", "spec.decoderConfig.labels", {"x": "y"}),
    ("runtime", "spec.tolerations", [{"key": "gpu"}]),
    ("runtime", "spec.labels", {"x": "y"}),
    ("model", "spec.storage.storageUri", "hf://a/b@v2"),
    ("model", "spec.storage.path", "/m/other"),
]
MUST_NOT: list[tuple[str, str, Any]] = [
    ("service", "spec.engine.minReplicas", 3),
    ("service", "spec.engine.minReplicas", None),
    ("service", "spec.engine.maxReplicas", 4),
    ("service", "spec.engine.minAvailable", 1),
    ("service", "spec.engine.maxUnavailable", "50%"),
    ("service", "spec.engine.scaleTarget", 10),
    ("service", "spec.engine.scaleMetric", "memory"),
    ("service", "spec.engine.autoscaler", {"class": "External"}),
    ("service", "spec.engine.deploymentStrategy", {"type": "Recreate"}),
    ("service", "spec.engine.lifecycle", {"readyPolicy": "AllPodReady"}),
    ("service", "spec.engine.topologyKey", "rack"),
    ("service", "spec.router.config", {"L": "2"}),
    ("service", "spec.router.runner", {"image": "router:2"}),
    ("service", "spec.router", None),
    ("service", "spec.rollout", {"paused": True}),
    ("service", "spec.rollout", {"recreate": {}}),
    ("service", "metadata.labels", {"x": "y"}),
    ("service", "metadata.annotations", {"x": "y"}),
    ("service", "status", {"url": "http://x"}),
    ("runtime", "spec.routerConfig.runner.args", ["--z"]),
    ("runtime", "spec.disabled", False),
    ("runtime", "spec.supportedModelFormats", [{"name": "safetensors", "priority": 9}]),
    ("runtime", "spec.modelSizeRange", {"min": "1B", "max": "2B"}),
    ("runtime", "spec.engineConfig.minReplicas", 2),
    ("runtime", "metadata.labels", {"x": "y"}),
    ("model", "spec.modelParameterSize", "1T"),
    ("model", "spec.additionalMetadata", {"x": "y"}),
    ("model", "spec.disabled", False),
    ("model", "status", {"nodesReady": ["a"], "state": "Ready"}),
]


@pytest.mark.parametrize(("whose", "path", "value"), MUST, ids=lambda one: one if isinstance(one, str) else "")
def test_edits_that_make_a_new_revision(whose: str, path: str, value: Any) -> None:
    bodies = {"service": body(), "runtime": runtime_body(), "model": model_body()}
    before = revision(**bodies)
    assert revision(**{**bodies, whose: edited(bodies[whose], path, value)}) != before


@pytest.mark.parametrize(("whose", "path", "value"), MUST_NOT, ids=lambda one: one if isinstance(one, str) else "")
def test_edit_without_effect_on_pods_keeps_revision(whose: str, path: str, value: Any) -> None:
    bodies = {"service": body(), "runtime": runtime_body(), "model": model_body()}
    before = revision(**bodies)
    changed = edited(bodies[whose], path, value)
    assert changed != bodies[whose], "the edit must change something"
    assert revision(**{**bodies, whose: changed}) == before


def test_accelerator_override_changes_the_revision_only_if_chosen() -> None:
    bodies = {"service": body(), "runtime": runtime_body(), "model": model_body()}
    chosen = {**bodies, "service": edited(bodies["service"], "spec.acceleratorSelector", {"acceleratorClass": "h200"})}
    path, value = "spec.supportedModelFormats", [{"acceleratorConfig": {"h200": {"runtimeArgsOverride": ["--tp=4"]}}}]
    assert revision(**bodies) == revision(**{**bodies, "runtime": edited(runtime_body(), path, value)})
    assert revision(**chosen) != revision(**{**chosen, "runtime": edited(runtime_body(), path, value)})


def test_stored_inputs_are_compared_after_parsing_by_the_current_version() -> None:
    """The stored inputs of a revision are compared in the form in which the running version reads them. Fields that another
    version stored differently, or that this version cannot parse, cause no exception.
    """
    stored = {"engine": {"runner": {"image": "a"}, "timeoutSeconds": None}, "runtime": {}, "model": {}}
    assert equivalent(stored, {"engine": {"runner": {"image": "a"}}, "runtime": {}, "model": {}})
    assert not equivalent({"engine": {"timeoutSeconds": "soon"}}, {"engine": {}})
    assert equivalent({"engine": {"timeoutSeconds": "soon"}}, {"engine": {"timeoutSeconds": "soon"}})


def refs(**spec: Any) -> InferenceService:
    """Return a service with these references."""
    return parts.service({"engine": {}, **spec})


def test_reference_without_kind_tries_the_namespaced_kind_first() -> None:
    service = refs(model={"name": "m"}, runtime={"name": "r"})
    assert model_refs(service) == (Ref("BaseModel", "team", "m"), Ref("ClusterBaseModel", "", "m"))
    assert runtime_refs(service) == (Ref("ServingRuntime", "team", "r"), Ref("ClusterServingRuntime", "", "r"))
    named = refs(model={"name": "m", "kind": "ClusterBaseModel"}, runtime={"name": "r", "kind": "ServingRuntime"})
    assert model_refs(named) == (Ref("ClusterBaseModel", "", "m"),)
    assert runtime_refs(named) == (Ref("ServingRuntime", "team", "r"),)


def test_predictor_form_gives_the_same_revision() -> None:
    old = parts.service({"predictor": {"model": {"baseModel": "tiny", "runtime": "rt"}, "minReplicas": 2}})
    deps = parts.deps(parts.model(), parts.simple(router=False))
    plan = sync(old, deps, Observed(), START)
    assert plan.status["components"]["engine"]["replicas"] == 2
    assert plan.status["revision"] == sync(parts.service(engine={}), deps, Observed(), START).status["revision"]


PROBLEMS: dict[str, tuple[Data, Deps, tuple[str, str]]] = {
    "no model named": ({"runtime": {"name": "rt"}}, Deps(), ("ModelReady", "ModelNotNamed")),
    "unknown kind of model": ({"model": {"name": "m", "kind": "X"}}, Deps(), ("ModelReady", "ModelNotNamed")),
    "no such model": ({"model": {"name": "m"}}, Deps(), ("ModelReady", "BaseModelNotFound")),
    "a model that cannot be read": (
        {"model": {"name": "m"}},
        Deps(models={Ref("ClusterBaseModel", "", "m"): parts.invalid_runtime()}),
        ("ModelReady", "InvalidModel"),
    ),
    "a disabled model": (
        {"model": {"name": "tiny"}},
        parts.deps(parts.model(disabled=True)),
        ("ModelReady", "ModelDisabled"),
    ),
    "no runtime named and no model": ({"model": {"name": "m"}}, Deps(), ("RuntimeReady", "ModelUnknown")),
    "no runtime named and none there": (
        {"model": {"name": "tiny"}},
        parts.deps(parts.model()),
        ("RuntimeReady", "NoRuntimeFits"),
    ),
    "unknown kind of runtime": (
        {"model": {"name": "tiny"}, "runtime": {"name": "rt", "kind": "X"}},
        parts.deps(parts.model()),
        ("RuntimeReady", "RuntimeNotNamed"),
    ),
    "no such runtime": ({"runtime": {"name": "rt"}}, Deps(), ("RuntimeReady", "RuntimeNotFound")),
    "a runtime that cannot be read": (
        {"runtime": {"name": "rt"}},
        Deps(runtimes={Ref("ClusterServingRuntime", "", "rt"): parts.invalid_runtime()}),
        ("RuntimeReady", "InvalidRuntime"),
    ),
    "a disabled runtime": (
        {"runtime": {"name": "rt"}},
        parts.deps(parts.runtime(disabled=True)),
        ("RuntimeReady", "RuntimeDisabled"),
    ),
}


@pytest.mark.parametrize("case", PROBLEMS)
def test_missing_object_is_a_problem_with_a_message(case: str) -> None:
    spec, deps, expected = PROBLEMS[case]
    found = resolve(parts.service({"engine": {}, **spec}), deps)
    assert expected in {(one.condition, one.reason) for one in found.problems}
    assert all(one.message for one in found.problems)


def test_service_without_engine_has_no_inputs() -> None:
    found = resolve(parts.service(router={}), parts.deps(parts.model(), parts.simple()))
    assert [one.reason for one in found.problems] == ["NoEngine"]
    assert found.inputs is None


def test_namespaced_model_takes_precedence_over_cluster_model() -> None:
    everywhere = parts.model()
    here = replace(parts.model("hf://mine/tiny"), kind="BaseModel", namespace="team")
    found = resolve(parts.service(engine={}), parts.deps(everywhere, here, parts.simple()))
    assert found.inputs is not None and found.inputs["model"]["uri"] == "hf://mine/tiny"


UNFOUND: dict[str, tuple[Data, Deps, str]] = {
    "a kind of model that there is not": (
        {"model": {"name": "tiny", "kind": "ClusterBasemodel"}},
        parts.deps(parts.model()),
        'spec.model.kind is "ClusterBasemodel": write ClusterBaseModel or BaseModel, or remove kind',
    ),
    "no model at all": ({}, parts.deps(), "spec.model is missing: name the model to serve"),
    "a model of the other kind": (
        {"model": {"name": "tiny", "kind": "BaseModel"}},
        parts.deps(parts.model()),
        "BaseModel tiny in namespace team does not exist: a ClusterBaseModel of this name exists, so write "
        "ClusterBaseModel in spec.model.kind, or remove kind",
    ),
    "a kind of runtime that there is not": (
        {"model": {"name": "tiny"}, "runtime": {"name": "rt", "kind": "Servingruntime"}},
        parts.deps(parts.model(), parts.simple()),
        'spec.runtime.kind is "Servingruntime": write ClusterServingRuntime or ServingRuntime, or remove kind',
    ),
    "a runtime of the other kind": (
        {"model": {"name": "tiny"}, "runtime": {"name": "rt", "kind": "ServingRuntime"}},
        parts.deps(parts.model(), parts.simple()),
        "ServingRuntime rt in namespace team does not exist: a ClusterServingRuntime of this name exists, so write "
        "ClusterServingRuntime in spec.runtime.kind, or remove kind",
    ),
    "a model of a similar name": (
        {"model": {"name": "acme-meo"}},
        parts.deps(parts.model(name="acme-moe"), parts.model(name="other")),
        "ClusterBaseModel acme-meo does not exist: did you mean acme-moe? Otherwise apply it, or fix spec.model.name",
    ),
    "a runtime of a similar name": (
        {"model": {"name": "tiny"}, "runtime": {"name": "kimi-k2-pd-r"}},
        parts.deps(parts.model(), parts.runtime("kimi-k2-pd-rt"), parts.runtime("else")),
        "ClusterServingRuntime kimi-k2-pd-r does not exist: did you mean kimi-k2-pd-rt? Otherwise apply it, or fix "
        "spec.runtime.name",
    ),
    "nothing of that name": (
        {"model": {"name": "tiny"}, "runtime": {"name": "rt"}},
        parts.deps(parts.model()),
        "ClusterServingRuntime rt does not exist: apply it, or fix spec.runtime.name",
    ),
}


@pytest.mark.parametrize("case", UNFOUND)
def test_missing_reference_message_names_the_expected_kind(case: str) -> None:
    spec, deps, said = UNFOUND[case]
    found = resolve(parts.service({"engine": {}, **spec}), deps)
    assert said in [problem.message for problem in found.problems]


@pytest.mark.parametrize(
    ("gone", "said"),
    [
        ("model", "ClusterBaseModel acme-moe does not exist: apply it, or fix spec.model.name"),
        ("runtime", "ClusterServingRuntime acme-tp4 does not exist: apply it, or fix spec.runtime.name"),
    ],
)
def test_deleted_object_that_was_used_gives_no_spelling_suggestion(gone: str, said: str) -> None:
    service = parts.service({"engine": {}, "model": {"name": "acme-moe"}, "runtime": {"name": "acme-tp4"}})
    model, runtime = parts.model(name="acme-moe"), parts.runtime("acme-tp4")
    near = parts.model(name="acme-mop"), parts.runtime("acme-tp8")
    used = resolve(service, parts.deps(model, runtime, *near))
    assert used.inputs is not None
    left = parts.deps(*near, runtime) if gone == "model" else parts.deps(*near, model)
    assert said in [problem.message for problem in resolve(service, left, {"revision": used.inputs}).problems]
    (guess,) = [problem.message for problem in resolve(service, left).problems if "did you mean" in problem.message]
    assert guess.startswith(said.partition(":")[0])
