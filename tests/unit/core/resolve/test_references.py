"""Tests that every field that contains the name of another object is checked, or that there is a reason why it cannot be."""

import re
from collections.abc import Iterator
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

import pytest

from ome_operator.api.base import Spec
from ome_operator.api.kinds import KINDS
from ome_operator.core.observed.objects import Ref
from tests.support.linting import found
from tests.support.yamls import API, benchmark, model, runtime, service

_POD = "a part of a pod: core/podspec/named_objects.py finds its Secrets, ConfigMaps and claims"
_OUTSIDE = "the object is of a kind that the operator does not read"
_LABEL = "the name of a label, of a class in Python or of a value, not of an object"
NOT_LOOKED_UP = {
    "AcceleratorClassSpec.model": "the product name of the GPU",
    "AcceleratorResource.name": "the name of an extended resource",
    "AuthenticationRef.name": f"{_OUTSIDE}: KEDA's TriggerAuthentication",
    "Autoscaler.class": "one of the values of an enumeration",
    "BenchmarkSpec.resultFolderName": "a folder in the output location",
    "Component.topologyKey": _LABEL,
    "Component.topologySpreadKey": _LABEL,
    "DiffusionPipeline.className": _LABEL,
    "Endpoint.modelName": "the name that a server of somebody else gives its model",
    "FineTunedWeightSpec.displayName": "informational",
    "Metric.name": _LABEL,
    "ModelRef.overlays": "has no effect, which the condition Advice reports",
    "ModelRef.revision": "the condition RolledOut names a revision that does not exist",
    "ModelSpec.displayName": "informational",
    "PodOverride.volumes": _POD,
    "PredictorModel.storageUri": "has no effect, which the condition Advice reports",
    "Prometheus.authRef": _OUTSIDE,
    "RuntimeRef.revision": "the condition RolledOut names a revision that does not exist",
    "RuntimeSpec.imagePullSecrets": "the kubelet pulls anonymously without it",
    "RuntimeSpec.schedulerName": _OUTSIDE,
    "RuntimeSpec.volumes": _POD,
    "Source.storageUri": "becomes the storageUri of a ClusterBaseModel",
    "Storage.key": "a Secret in the namespace of the operator, which files do not name",
    "SupportedModelFormat.name": "the name of a format of files",
    "Version.name": "the name of a format of files, or of a framework",
    "Workers.imagePullSecrets": "the kubelet pulls anonymously without it",
    "Workers.schedulerName": _OUTSIDE,
    "Workers.volumes": _POD,
}
"""Class and field that may look like a reference -> why it is not looked up."""
GPU = {
    "apiVersion": API,
    "kind": "AcceleratorClass",
    "metadata": {"name": "gpu-large"},
    "spec": {
        "discovery": {"nodeSelector": {"gpu": "large"}},
        "resources": [{"name": "nvidia.com/gpu", "quantity": "1"}],
        "capabilities": {"memoryGB": "96"},
    },
}
LORA = {
    "apiVersion": API, "kind": "FineTunedWeight", "metadata": {"name": "lora"},
    "spec": {
        "baseModelRef": {"name": "tiny"}, "modelType": "LoRA", "storage": {"storageUri": "hf://a/b", "path": "/m/lora"},
    },
}  # fmt: skip
SERVING = {
    "apiVersion": "sglang.ai/v1", "kind": "Serving", "metadata": {"name": "short", "namespace": "team"},
    "spec": {"baseModel": "tiny", "runtime": "rt"},
}  # fmt: skip
OTHERS = frozenset({Ref("Secret", "team", "token"), Ref("PersistentVolumeClaim", "team", "results")})
"""Objects of other kinds in the files."""


def job(**spec: Any) -> dict[str, Any]:
    return benchmark("team", "job", **spec)


def of(**spec: Any) -> dict[str, Any]:
    body = service("team", "svc", "rt", "engine")
    return {**body, "spec": {**body["spec"], **spec}}


def of_runtime(**spec: Any) -> dict[str, Any]:
    body = runtime("other", router=False)
    return {**body, "spec": {**body["spec"], **spec}}


def predictor(**model_: Any) -> dict[str, Any]:
    body = of()
    return {**body, "spec": {"predictor": {"model": {"baseModel": "tiny", "runtime": "rt", **model_}}}}


def weights(**spec: Any) -> dict[str, Any]:
    return {**LORA, "metadata": {"name": "other"}, "spec": {**LORA["spec"], **spec}}


FORMAT = {"modelFormat": {"name": "safetensors"}}
EXAMPLES: dict[str, tuple[dict[str, Any], str]] = {
    "AcceleratorConstraints.excludedClasses": (
        of(acceleratorSelector={"constraints": {"excludedClasses": ["gpu-lagre"]}}), "gpu-large",
    ),
    "AcceleratorRequirements.acceleratorClasses": (
        of_runtime(acceleratorRequirements={"acceleratorClasses": ["gpu-lagre"]}), "gpu-large",
    ),
    "AcceleratorSelector.acceleratorClass": (of(acceleratorSelector={"acceleratorClass": "gpu-lagre"}), "gpu-large"),
    "Dataset.key": (job(dataset={"storageUri": "s3://a/b", "key": "tokne"}), "token"),
    "Dataset.storageUri": (job(dataset={"storageUri": "pvc://result/file"}), "results"),
    "ModelRef.fineTunedWeights": (of(model={"name": "tiny", "fineTunedWeights": ["loar"]}), "lora"),
    "ModelRef.name": (of(model={"name": "tini"}), "tiny"),
    "ObjectRef.name": (weights(baseModelRef={"name": "tini"}), "tiny"),
    "ObjectRef.namespace": (weights(baseModelRef={"name": "own"}), "BaseModel own is in namespace team"),
    "PredictorModel.baseModel": (predictor(baseModel="tini"), "tiny"),
    "PredictorModel.fineTunedWeights": (predictor(fineTunedWeights=["loar"]), "lora"),
    "PredictorModel.runtime": (predictor(runtime="rtt"), "rt"),
    "RuntimeRef.name": (of(runtime={"name": "rtt"}), "rt"),
    "SecretRef.name": (job(huggingFaceSecretReference={"name": "tokne"}), "token"),
    "ServiceRef.name": (job(endpoint={"inferenceService": {"name": "svcc", "namespace": "team"}}), "svc"),
    "ServiceRef.namespace": (
        job(endpoint={"inferenceService": {"name": "svc", "namespace": "tame"}}), "svc is in namespace team",
    ),
    "ServingSpec.baseModel": ({**SERVING, "spec": {"baseModel": "tini", "runtime": "rt"}}, "tiny"),
    "ServingSpec.runtime": ({**SERVING, "spec": {"baseModel": "tiny", "runtime": "rtt"}}, "rt"),
    "Storage.storageUri": (job(outputLocation={"storageUri": "pvc://result/x"}), "results"),
    "SupportedModelFormat.acceleratorConfig": (
        of_runtime(supportedModelFormats=[{**FORMAT, "acceleratorConfig": {"gpu-lagre": {}}}]), "gpu-large",
    ),
}  # fmt: skip
"""Class and field that refers to another object -> an object that misspells this reference, and a part of the finding."""
_LOOKS_LIKE = re.compile(r"(?i)(ref|name|class|classes|model|runtime|weights|overlays|uri|key|secrets|volumes|namespace)$")
_REFERENCES = {"ModelRef", "RuntimeRef"}
_OF_REFERENCES = {"kind", "apiGroup", "autoSync"}
"""Fields of references that select among objects of one name, or that say how edits are followed."""


def _types(annotation: Any) -> Iterator[Any]:
    """Yield the types of which a field's values, or the entries of its lists and maps, are."""
    if get_origin(annotation) is Annotated:
        yield from _types(get_args(annotation)[0])
    elif get_origin(annotation) in (Union, UnionType, list, dict):
        yield from (inner for one in get_args(annotation) for inner in _types(one))
    else:
        yield annotation


def fields() -> set[str]:
    """Return the fields of the specs of all kinds that may contain the name of an object, as CLASS.FIELD."""
    named, seen, todo = set[str](), set[type[Spec]](), [kind.spec for kind in KINDS]
    while todo:
        cls = todo.pop()
        if cls in seen:
            continue
        seen.add(cls)
        for field in cls.model_fields.values():
            inner = [one for one in _types(field.annotation) if isinstance(one, type) and issubclass(one, Spec)]
            todo += inner
            alias = str(field.alias)
            asks = cls.__name__ in _REFERENCES or _LOOKS_LIKE.search(alias)
            if alias == "acceleratorConfig" or (asks and not inner and alias not in _OF_REFERENCES):
                named.add(f"{cls.__name__}.{alias}")
    return named


def test_every_reference_field_is_in_a_test_table() -> None:
    assert fields() == EXAMPLES.keys() | NOT_LOOKED_UP.keys()
    assert not EXAMPLES.keys() & NOT_LOOKED_UP.keys()


def findings(*bodies: dict[str, Any]) -> list[str]:
    """Return the findings about objects that do not exist, among those of files with these and further objects."""
    own = {**model("own"), "kind": "BaseModel", "metadata": {"name": "own", "namespace": "team"}}
    around = [model(), own, runtime("rt", router=False), GPU, LORA]
    names = {(body["kind"], body["metadata"]["name"]) for body in bodies}
    around += [] if ("InferenceService", "svc") in names else [of()]
    return [
        f"{one.hit.says}: {one.hit.remedy}"
        for one in found([*around, *bodies], whole=False, others=OTHERS)
        if one.rule.id in ("reference-missing", "refused")
    ]


@pytest.mark.parametrize("field", EXAMPLES)
def test_misspelled_reference_is_reported_with_a_suggestion(field: str) -> None:
    body, words = EXAMPLES[field]
    said = findings(body)
    assert [text for text in said if words in text and re.search(r"did you mean|in namespace", text)], said


def test_valid_references_give_no_finding() -> None:
    constraints = {"constraints": {"excludedClasses": ["gpu-large"]}}
    target = {"inferenceService": {"name": "svc", "namespace": "team"}}
    right = [
        of(
            acceleratorSelector={"acceleratorClass": "gpu-large", **constraints},
            model={"name": "tiny", "fineTunedWeights": []},
        ),
        of_runtime(acceleratorRequirements={"acceleratorClasses": ["gpu-of-others", "gpu-large"]}),
        job(endpoint=target, huggingFaceSecretReference={"name": "token"}, outputLocation={"storageUri": "pvc://results/x"}),
        weights(baseModelRef={"name": "own", "namespace": "team"}),
        SERVING,
    ]
    assert findings(*right) == []


def test_reference_missing_in_files_may_exist_on_the_cluster() -> None:
    (said,) = findings(job(endpoint={"inferenceService": {"name": "chat", "namespace": "prod"}}))
    assert "is neither in these files nor in the catalog" in said and "`ome diff -f` with the same files finds it" in said
    assert findings(job(huggingFaceSecretReference={"name": "elsewhere"})) == [], "Secrets are expected on the cluster"
    url = {"url": "http://x", "apiFormat": "openai", "modelName": "m"}
    both = {"endpoint": url, "inferenceService": {"name": "no", "namespace": "no"}}
    assert findings(job(endpoint=both)) == [], "the URL is tested"


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"trafficScenarios": ["D(100"]}, "spec.trafficScenarios has 'D(100', which is not a supported scenario"),
        ({"outputLocation": {"storageUri": "hf://a/b"}}, "spec.outputLocation.storageUri hf://a/b is not supported here"),
        ({"endpoint": {"endpoint": {"url": "http://x", "apiFormat": "cohere"}}}, "apiFormat cohere is not supported"),
        ({"task": "image-to-text"}, "spec.task image-to-text is not supported"),
    ],
)
def test_job_that_the_operator_would_refuse_is_an_error(spec: dict[str, Any], words: str) -> None:
    (said,) = findings(job(**spec))
    assert words in said
