"""Tests of the objects that are made from the kinds of sglang.ai."""

from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest

from ome_operator.api import InferenceService, Model, Serving, SglangModel
from ome_operator.api.kinds import KINDS
from ome_operator.api.well_known import load_packaged
from ome_operator.core.observed.objects import Deps, Ref
from ome_operator.core.reasons import NOTHING, ReasonedMessage
from ome_operator.core.sglang.convert import desired_object, source
from ome_operator.core.sglang.status import mirrored_status
from tests.support import parts
from tests.support.conditions import plain
from tests.support.parts import change_deps

NOW = datetime(2026, 1, 1)


def short(repo: str = "kimi-ai/Kimi-K2-Chat", **spec: Any) -> SglangModel:
    """Return a ClusterBaseModel of sglang.ai, by default the object of the shorter text in docs/seeds.md."""
    body = {"source": {"huggingface": {"repo": repo}}, **spec}
    metadata = {"name": "kimi-k2-chat", "uid": "u", "generation": 3}
    return parts.ensure_valid(SglangModel.parse({"kind": "ClusterBaseModel", "metadata": metadata, "spec": body}))


def serving(runtime: str | None = "sglang") -> Serving:
    """Return a Serving of sglang.ai, by default the object of the shorter text in docs/seeds.md."""
    spec = {"baseModel": "kimi-k2-chat"} | ({"runtime": runtime} if runtime else {})
    metadata = {"name": "kimi-k2-chat", "namespace": "team", "uid": "u", "generation": 3}
    return parts.ensure_valid(Serving.parse({"kind": "Serving", "metadata": metadata, "spec": spec}))


def made(one: SglangModel | Serving, deps: Deps | None = None) -> dict[str, Any]:
    """Return the object that the operator creates from this object of the group sglang.ai."""
    manifest, why = desired_object(one, deps or Deps())
    assert manifest is not None, why
    return manifest


def catalog(**status: Any) -> Deps:
    """Return the shipped runtimes, and a model whose files have been read."""
    _, deps = parts.kimi()
    model = parts.ensure_valid(Model.parse(made(short())))
    facts = {
        "architecture": "DeepseekV3ForCausalLM", "quantization": {"name": "fp8"}, "parameters": 1026408232448,
        "format": {"name": "safetensors"}, "framework": {"name": "transformers"}, **status,
    }  # fmt: skip
    return replace(deps, models={Ref("ClusterBaseModel", "", model.name): replace(model, status={"facts": facts})})


def test_hub_model_is_converted_to_cluster_base_model() -> None:
    manifest = made(short())
    assert manifest["spec"] == {"storage": {"storageUri": "hf://kimi-ai/Kimi-K2-Chat"}}
    assert manifest["metadata"]["ownerReferences"] == [
        {"apiVersion": "sglang.ai/v1", "kind": "ClusterBaseModel", "name": "kimi-k2-chat", "uid": "u", "controller": True}
    ]
    parts.ensure_valid(Model.parse(manifest))


def test_revision_and_path_are_converted() -> None:
    one = short(source={"huggingface": {"repo": "a/b", "revision": "v2"}}, path="/raid/b")
    assert made(one)["spec"]["storage"] == {"storageUri": "hf://a/b@v2", "path": "/raid/b"}


def test_empty_source_is_refused() -> None:
    assert desired_object(short(source={}), Deps())[1][0] == "InvalidSpec"


def test_serving_is_converted_with_the_components_of_the_fitting_runtime() -> None:
    manifest = made(serving(), catalog())
    assert manifest["spec"] == {"model": {"name": "kimi-k2-chat"}, "engine": {}, "decoder": {}, "router": {}}
    assert manifest["metadata"]["annotations"]["ome.io/engine"] == "sglang"
    parts.ensure_valid(InferenceService.parse(manifest))


def test_serving_may_name_a_runtime() -> None:
    name = next(iter(catalog().runtimes)).name
    assert made(serving(name), catalog())["spec"]["runtime"] == {"name": name}


def test_reason_is_reported_if_no_service_can_be_created() -> None:
    assert desired_object(serving(), Deps())[1][0] == "BaseModelNotFound"
    reason, sentence = desired_object(serving("vllm"), catalog())[1]
    assert reason == "NoRuntimeFits" and "its engine is not vllm" in sentence


def test_source_digest_changes_only_with_the_spec() -> None:
    assert source(short()) == source(replace(short(), uid="other", generation=9))
    assert source(short()) != source(short("a/b"))


def test_serving_gets_status_of_inference_service() -> None:
    conditions = [{"type": "Ready", "status": "True", "reason": "Serving", "message": "m", "observedGeneration": 1}]
    found = mirrored_status(
        serving(),
        {"url": "http://x", "runtime": "rt", "state": "?", "observedGeneration": 2, "conditions": conditions},
        NOTHING,
        NOW,
    )
    assert found == {
        "url": "http://x",
        "runtime": "rt",
        "observedGeneration": 3,
        "conditions": [{**conditions[0], "observedGeneration": 3}],
    }


def test_status_written_before_the_last_edit_is_ignored() -> None:
    """A status that was written before the last edit does not count for the edited object. Otherwise Helm and `kubectl
    wait` would mistake the state of the previous service for the state of the edited service.
    """
    conditions = [{"type": "Ready", "status": "True", "reason": "Serving", "message": "m", "observedGeneration": 1}]
    found = mirrored_status(serving(), {"observedGeneration": 1, "conditions": conditions}, NOTHING, NOW, current=False)
    assert (found["observedGeneration"], found["conditions"]) == (2, [{**conditions[0], "observedGeneration": 2}])


def test_default_status_nobody_has_written_is_not_copied() -> None:
    (unseen,) = [kind.unseen for kind in KINDS if kind.kind == "InferenceService"]
    (found,) = plain(mirrored_status(serving(), unseen, NOTHING, NOW, current=False))
    assert (found["status"], found["reason"], found["observedGeneration"]) == ("False", "Creating", 3)


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ("fix spec.runtime.name", "fix spec.runtime"),
        ("fix spec.model.name", "fix spec.baseModel"),
        ("spec.engine.minAvailable has no effect", "InferenceService kimi-k2-chat: spec.engine.minAvailable has no effect"),
        ("runtime rt: spec.engineConfig.x has no effect", "runtime rt: spec.engineConfig.x has no effect"),
        ("neither the runtime's spec.engineConfig", "neither the runtime's spec.engineConfig"),
    ],
)
def test_messages_about_a_serving_name_only_fields_of_a_serving(message: str, said: str) -> None:
    """Messages about a Serving name only fields that a Serving has. Previously, a message advised to write
    spec.runtime.name, which is not a field of a Serving.
    """
    found = mirrored_status(
        serving(),
        {"observedGeneration": 2, "conditions": [{"type": "Ready", "status": "False", "message": message}]},
        NOTHING,
        NOW,
    )
    assert found["conditions"][0]["message"] == said


def test_message_about_a_model_names_its_source_field() -> None:
    message = "spec.storage.storageUri vendor://a cannot be fetched"
    found = mirrored_status(
        short(),
        {"observedGeneration": 2, "conditions": [{"type": "Ready", "status": "False", "message": message}]},
        NOTHING,
        NOW,
    )
    assert found["conditions"][0]["message"] == "spec.source vendor://a cannot be fetched"


def test_no_fitting_runtime_message_names_the_field_and_the_agent_setting() -> None:
    unknown = replace(parts.ensure_valid(Model.parse(made(short("a/B")))), status={})
    deps = replace(catalog(), models={Ref("ClusterBaseModel", "", unknown.name): unknown})
    _, (reason, sentence) = desired_object(serving(), deps)
    assert reason == "NoRuntimeFits" and "spec.runtime" in sentence
    assert "agent.enabled=true" in sentence
    assert "agent.enabled" not in desired_object(serving(), change_deps(deps, model_agent=True))[1][1]


def test_announced_models_are_served_before_agents_read_any_file() -> None:
    """The two models and the Serving of sglang.ai in docs/seeds.md run on the shipped runtimes before an agent has read any
    file: the models are well known, so their facts are available without their files.
    """
    for repo in ("kimi-ai/Kimi-K2-Chat", "kimi-ai/Kimi-K2-Base"):
        model = parts.ensure_valid(Model.parse(made(short(repo))))
        deps = replace(catalog(), models={Ref("ClusterBaseModel", "", model.name): model}, well_known=load_packaged())
        assert made(serving(), deps)["spec"] == {"model": {"name": model.name}, "engine": {}, "decoder": {}, "router": {}}


def test_status_states_why_no_object_was_created() -> None:
    found = mirrored_status(serving(), None, ReasonedMessage("NoRuntimeFits", "none fits"), NOW)
    assert [(one["status"], one["reason"], one["message"]) for one in plain(found)] == [
        ("False", "NoRuntimeFits", "none fits")
    ]
