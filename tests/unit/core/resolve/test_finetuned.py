"""Tests of fine-tuned weights of a service: LoRA adapters in addition to its model, and merged weights in place of its
model.
"""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from ome_operator import names
from ome_operator.api import FineTunedWeight, Invalid, Model
from ome_operator.core.observed.objects import Deps, Observed, Ref
from ome_operator.core.reconcile.snapshot import Snapshot
from ome_operator.core.render.statefulsets import workloads
from ome_operator.core.resolve.inputs import object_refs, resolve
from ome_operator.core.rollout.intent import choose
from ome_operator.core.weights.mount import weights
from tests.support import parts, yamls
from tests.support.parts import change_deps


def weight(name: str = "poet", base: str = "tiny", kind: str = "LoRA", **more: Any) -> FineTunedWeight:
    """Return weights that were trained on `base`."""
    storage = {"storageUri": f"hf://test/{name}", "path": f"/weights/{name}"}
    spec = {"baseModelRef": {"name": base}, "modelType": kind, "storage": storage, "hyperParameters": {}, **more}
    return parts.ensure_valid(FineTunedWeight.parse({"kind": "FineTunedWeight", "metadata": {"name": name}, "spec": spec}))


def having(*weights: FineTunedWeight, image: str = "engine:1", args: list[str] | None = None) -> Deps:
    """Return a model, a runtime of SGLang, and these weights."""
    box = parts.container(image=image, command=["python3"], args=args or ["-m", "sglang.launch_server"])
    deps = parts.deps(parts.model(), parts.runtime(engineConfig={"runner": box}))
    return replace(deps, weights={one.name: one for one in weights})


def service(*names: str) -> Any:
    """Return a service with these weights."""
    return parts.service(model={"name": "tiny", "fineTunedWeights": list(names)}, engine={})


def pod(deps: Deps, *names: str) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the pod spec of the leader, and the messages about weights that were left out."""
    inputs = resolve(service(*names), deps).inputs
    assert inputs is not None
    roles, dropped = workloads("svc", "team", "r1", inputs)
    return roles["engine"]["leader"]["spec"]["template"]["spec"], dropped


def test_lora_weights_are_mounted_and_passed_to_the_engine() -> None:
    spec, dropped = pod(having(weight("poet"), weight("jurist")), "poet", "jurist")
    (main,) = spec["containers"]
    assert main["args"][-3:] == ["--lora-paths", "poet=/weights/poet", "jurist=/weights/jurist"]
    assert [one["mountPath"] for one in main["volumeMounts"]] == ["/models/tiny", "/weights/poet", "/weights/jurist"]
    assert len({one["name"] for one in spec["volumes"]}) == 3
    (term,) = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert [one["key"] for one in term["matchExpressions"]] == [
        "models.ome.io/clusterbasemodel.tiny", "models.ome.io/finetunedweight.poet", "models.ome.io/finetunedweight.jurist",
    ]  # fmt: skip
    assert not dropped


def test_lora_weights_downloaded_by_agents_have_versioned_directories() -> None:
    """LoRA weights that agents download have a directory for each version. A recycled group must not load another version of
    the adapter than the other groups. Every node needs the model and the adapter.
    """
    deps = change_deps(having(weight()), model_agent=True, holders=HOLDERS)
    one = service("poet")
    choice = choose(Snapshot(one, deps, Observed(), datetime(2026, 1, 1, tzinfo=UTC)), resolve(one, deps))
    data = choice.data[choice.target]
    assert data["directories"] == [MODEL_DIR, LORA_DIR]
    spec = data["workloads"]["engine"]["leader"]["spec"]["template"]["spec"]
    assert [one["hostPath"]["path"] for one in spec["volumes"]] == [f"/models/.ome/{MODEL_DIR}", f"/weights/.ome/{LORA_DIR}"]
    assert [one["mountPath"] for one in spec["containers"][0]["volumeMounts"]] == ["/models/tiny", "/weights/poet"]
    assert choice.held is not None and choice.held.ready_nodes == 1, "only b has the model and the weights"


MODEL_DIR, LORA_DIR = (weights(one).digest for one in (parts.model(), weight()))
HOLDERS = {
    names.revision_label("ClusterBaseModel", "", "tiny", MODEL_DIR): frozenset({"a", "b"}),
    names.revision_label("FineTunedWeight", "", "poet", LORA_DIR): frozenset({"b", "c"}),
}


def test_user_lora_arguments_are_kept() -> None:
    spec, _ = pod(having(weight(), args=["-m", "sglang.launch_server", "--lora-paths", "a=/a"]), "poet")
    assert spec["containers"][0]["args"][-2:] == ["--lora-paths", "a=/a"]


def test_engine_started_by_a_shell_gives_lora_advice() -> None:
    spec, dropped = pod(having(weight(), args=["-c", "python3 -m sglang.launch_server"]), "poet")
    assert "--lora-paths" not in spec["containers"][0]["args"]
    assert "add the directories of the weights to its args" in dropped[0]


@pytest.mark.parametrize("merged", [weight(kind="merged"), weight(configuration={"merged_weights": True})])
def test_merged_weights_replace_the_model(merged: FineTunedWeight) -> None:
    deps = having(merged)
    spec, _ = pod(deps, "poet")
    (main,) = spec["containers"]
    assert {"name": "MODEL_PATH", "value": "/weights/poet"} in main["env"]
    assert [one["mountPath"] for one in main["volumeMounts"]] == ["/weights/poet"]
    inputs = resolve(service("poet"), deps).inputs
    assert inputs is not None and inputs["base"]["name"] == "tiny"


@pytest.mark.parametrize(
    ("weights", "reason"),
    [
        ([], "FineTunedWeightNotFound"),
        ([weight(disabled=True)], "FineTunedWeightDisabled"),
        ([weight(base="other")], "WrongBaseModel"),
        ([weight(kind="merged"), weight("more")], "WeightsDoNotMix"),
    ],
)
def test_unsupported_weights_are_reported_as_a_problem(weights: list[FineTunedWeight], reason: str) -> None:
    found = resolve(service("poet", *(one.name for one in weights[1:])), having(*weights))
    assert [(one.condition, one.reason) for one in found.problems] == [("ModelReady", reason)]
    assert found.inputs is None


def of_namespace(base: str | None) -> tuple[Any, list[str]]:
    """Return the inputs and the messages of a service of `team` that uses the namespaced model `tiny` and the weights
    `poet`. `base` is the namespace that the weights state for their base model; None if they state none.
    """
    body = yamls.model()
    own = {**body, "kind": "BaseModel", "metadata": {"name": "tiny", "namespace": "team"}}
    model = parts.ensure_valid(Model.parse(own))
    deps = having(weight(baseModelRef={"name": "tiny", **({"namespace": base} if base else {})}))
    deps = replace(deps, models={Ref("BaseModel", "team", "tiny"): model})
    asked = parts.service(model={"name": "tiny", "kind": "BaseModel", "fineTunedWeights": ["poet"]}, engine={})
    found = resolve(asked, deps)
    return found.inputs, [problem.message for problem in found.problems]


def test_weights_without_base_namespace_belong_to_a_cluster_model() -> None:
    """Weights whose base model is named without a namespace belong to a cluster-wide model, and never to a BaseModel.
    Otherwise a BaseModel that happens to have this name would get the weights of another namespace's model.
    """
    inputs, said = of_namespace(None)
    assert inputs is None and said == [
        "FineTunedWeight poet was trained on model tiny, not on model tiny of namespace team: if the two are the same "
        "model, an administrator must set spec.baseModelRef.namespace of the FineTunedWeight"
    ]
    assert "of namespace other, not on model tiny of namespace team: name a weight" in of_namespace("other")[1][0]
    inputs, said = of_namespace("team")
    assert inputs is not None and not said


def test_unreadable_weights_are_reported_with_the_reason() -> None:
    found = resolve(service("poet"), replace(having(), weights={"poet": Invalid("spec.storage is missing")}))
    assert "spec.storage is missing" in found.problems[0].message


def test_object_refs_contain_the_fine_tuned_weights() -> None:
    assert object_refs(service("poet"))[-1] == ("FineTunedWeight", "", "poet")
