"""Tests of the Job that is created for a BenchmarkJob."""

import json
from dataclasses import replace
from typing import Any

import pytest

from ome_operator import keys
from ome_operator.api import InferenceService, Invalid
from ome_operator.core.benchmarkjob.job import PLAN, Images, desired_job
from ome_operator.core.observed.objects import Manifest
from ome_operator.core.resolve.no_effect import READ
from tests.support import parts
from tests.unit.core.benchmarkjob import jobs

IMAGES = Images("sglang:1", "tools:1")
URL = "http://svc.team.svc.cluster.local:8080"
READY = {"url": URL, "conditions": [{"type": "Ready", "status": "True"}]}


def service(status: dict[str, Any] = READY) -> InferenceService:
    """Return the service that is measured."""
    return replace(parts.service(), status=status)


def made(uri: str = "hf://test/tiny", **spec: Any) -> Manifest:
    """Return the Job of a BenchmarkJob with this spec."""
    manifest, why = desired_job(IMAGES, jobs.job(**spec), service(), parts.deps(parts.model(uri)))
    assert manifest is not None, why
    return manifest


def refused(**spec: Any) -> tuple[str, str]:
    """Return the reason and the message if no Job is created."""
    manifest, why = desired_job(IMAGES, jobs.job(**spec), service(), parts.deps(parts.model()))
    assert manifest is None
    return why


def pod(manifest: Manifest) -> Manifest:
    """Return the pod spec of the Job."""
    found: Manifest = manifest["spec"]["template"]["spec"]
    return found


def steps(manifest: Manifest) -> dict[str, Manifest]:
    """Return the containers by name."""
    spec = pod(manifest)
    return {one["name"]: one for one in (*spec["initContainers"], *spec["containers"])}


def plan(manifest: Manifest) -> Manifest:
    """Return the plan that all containers of the Job receive."""
    told = {next(one["value"] for one in box["env"] if one["name"] == PLAN) for box in steps(manifest).values()}
    (only,) = told
    found: Manifest = json.loads(only)
    return found


def test_no_job_is_created_without_an_operator_tools_image() -> None:
    """Without an image of the operator's tools, no Job is created. An image name without a registry would be pulled from a
    public registry, where anybody may have taken that name.
    """
    manifest, why = desired_job(Images("sglang:1", ""), jobs.job(), service(), parts.deps(parts.model()))
    assert manifest is None and why.reason == "NoToolsImage"
    assert "--tools-image=REGISTRY/ome-agent:TAG" in why.sentence


def test_job_is_owned_by_benchmark_job_and_not_selected_by_any_service() -> None:
    manifest = made()
    metadata = manifest["metadata"]
    assert (metadata["name"], metadata["namespace"]) == ("benchmark-speed", parts.NAMESPACE)
    assert metadata["labels"] == {keys.MANAGED_BY: keys.MANAGER, keys.BENCHMARK: "speed"}
    assert metadata["annotations"] == {keys.GENERATION: "3"}
    (owner,) = metadata["ownerReferences"]
    assert (owner["kind"], owner["uid"], owner["controller"]) == ("BenchmarkJob", jobs.UID, True)
    assert manifest["spec"]["template"]["metadata"]["labels"] == {keys.BENCHMARK: "speed"}, "no label that a Service selects"


def test_job_has_no_retries_and_a_deadline_and_a_ttl() -> None:
    spec = made()["spec"]
    assert (spec["backoffLimit"], spec["template"]["spec"]["restartPolicy"]) == (0, "Never")
    assert spec["activeDeadlineSeconds"] == 2 * (600 + 120) + 3600
    assert spec["ttlSecondsAfterFinished"] == 86_400
    assert made(ttlSecondsAfterFinished=0)["spec"]["ttlSecondsAfterFinished"] == 0


def test_job_steps_run_in_sequence_with_restricted_security_context() -> None:
    manifest = made()
    found = steps(manifest)
    assert {name: box["image"] for name, box in found.items()} == {
        "prepare": "tools:1", "run": "sglang:1", "report": "tools:1"
    }  # fmt: skip
    assert [one["name"] for one in pod(manifest)["containers"]] == ["report"], "its exit code is the Job's"
    assert pod(manifest)["automountServiceAccountToken"] is False
    assert pod(manifest)["securityContext"]["runAsNonRoot"] is True
    for box in found.values():
        assert box["securityContext"] == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
        assert box["resources"]["requests"] and box["resources"]["limits"]


def test_the_requests_of_a_service() -> None:
    told = plan(made(additionalRequestParams={"temperature": "0.5"}))
    assert " ".join(told["serving"]) == (
        f"--backend sglang --base-url {URL} --tokenizer /models/tiny --disable-tqdm --model /models/tiny --temperature 0.5"
    )
    assert told["seconds"] == 600
    first = told["runs"][0]
    assert (first["scenario"], first["lengths"]["prompt"]) == ("D(100,100)", [100, 100])
    assert first["args"][-1] == "--tokenize-prompt", "tokens are counted exactly if the server accepts tokens"


def test_the_tokenizer_comes_from_the_models_node() -> None:
    manifest = made()
    mounts = {one["mountPath"]: one for one in steps(manifest)["run"]["volumeMounts"]}
    assert mounts["/models/tiny"]["readOnly"] is True
    required = pod(manifest)["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert required["nodeSelectorTerms"][0]["matchExpressions"][0]["key"] == "models.ome.io/clusterbasemodel.tiny"
    assert "affinity" not in pod(made(tokenizer="moonshotai/Kimi-K2-Instruct"))
    claims = [one.get("persistentVolumeClaim") for one in pod(made("pvc://weights/tiny"))["volumes"]]
    assert {"claimName": "weights", "readOnly": True} in claims


def test_benchmark_plan_uses_openai_endpoint() -> None:
    endpoint = {"endpoint": {"url": "https://api.example.com/v1/", "apiFormat": "openai", "modelName": "org/model"}}
    told = plan(made(endpoint=endpoint))
    assert " ".join(told["serving"]) == (
        "--backend vllm-chat --base-url https://api.example.com --tokenizer org/model --disable-tqdm "
        "--model org/model --served-model-name org/model"
    )
    assert "--tokenize-prompt" not in told["runs"][0]["args"]


def test_benchmark_of_other_engine_uses_openai_chat_backend() -> None:
    said = {"engine": "vLLM", "version": "0.9", "gpuType": "H100", "gpuCount": 8}
    told = plan(made(serviceMetadata=said))
    assert told["serving"][:2] == ["--backend", "vllm-chat"]
    assert "--model" not in told["serving"], "the server states the name of its model"
    assert told["service"] == said


def test_job_mounts_dataset_and_output_volumes() -> None:
    manifest = made(dataset={"storageUri": "local:///data/sets/a.json"}, resultFolderName="first")
    volumes = {one["name"]: one for one in pod(manifest)["volumes"]}
    assert volumes["dataset"]["hostPath"] == {"path": "/data/sets", "type": "Directory"}
    assert volumes["output"]["persistentVolumeClaim"] == {"claimName": "results"}
    told = plan(manifest)
    assert told["output"] == {"path": "/ome/output/k2/first"}
    assert told["dataset"] == {}
    assert {one["name"] for one in steps(manifest)["report"]["volumeMounts"]} == {"work", "tmp", "output"}


def test_object_stores_open_with_files_of_their_secrets() -> None:
    out = {"storageUri": "s3://bucket@eu-west-1/runs", "key": "store", "parameters": {"endpoint": "http://minio:9000"}}
    manifest = made(outputLocation=out, dataset={"storageUri": "https://example.com/sets/test.jsonl"})
    told = plan(manifest)
    assert told["output"]["uri"] == "s3://bucket@eu-west-1/runs/speed"
    assert told["output"]["parameters"] == {"endpoint": "http://minio:9000"}
    assert told["dataset"]["path"] == "/ome/work/dataset/test.jsonl"
    secret = {"name": "output-secret", "secret": {"secretName": "store", "defaultMode": 0o440}}
    assert secret in pod(manifest)["volumes"]
    assert "/ome/secrets/output" in [one["mountPath"] for one in steps(manifest)["report"]["volumeMounts"]]
    assert "/ome/secrets/output" not in [one["mountPath"] for one in steps(manifest)["run"]["volumeMounts"]]


def test_only_the_run_container_gets_the_hub_token() -> None:
    found = steps(made(huggingFaceSecretReference={"name": "hub"}))
    token = {"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "hub", "key": "token"}}}
    assert token in found["run"]["env"]
    assert all("HF_TOKEN" not in str(found[name]) for name in ("prepare", "report"))


def test_pod_override_settings_are_applied_to_the_job_pod() -> None:
    more = {
        "image": "mine:1",
        "env": [{"name": "OPENAI_API_KEY", "valueFrom": {"secretKeyRef": {"name": "k", "key": "v"}}}],
        "envFrom": [{"secretRef": {"name": "more"}}],
        "resources": {"limits": {"memory": "1Gi"}},
        "nodeSelector": {"pool": "load"},
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
        "volumes": [{"name": "t", "emptyDir": {}}],
        "volumeMounts": [{"name": "t", "mountPath": "/t"}],
        "affinity": {"podAffinity": {"x": []}},
    }
    manifest = made(podOverride=more)
    run, spec = steps(manifest)["run"], pod(manifest)
    assert (run["image"], run["resources"], run["envFrom"]) == ("mine:1", more["resources"], more["envFrom"])
    assert more["env"][0] in run["env"] and more["volumeMounts"][0] in run["volumeMounts"]
    assert (spec["nodeSelector"], spec["tolerations"]) == (more["nodeSelector"], more["tolerations"])
    assert more["volumes"][0] in spec["volumes"]
    assert spec["affinity"].keys() == {"podAffinity", "nodeAffinity"}


def test_gsm8k_is_refused_for_other_endpoints_than_sglang() -> None:
    told = plan(made(trafficScenarios=["gsm8k"], additionalRequestParams={"num_shots": "2", "top_p": "1"}))
    assert told["gsm8k"] == {"host": "svc.team.svc.cluster.local", "port": 8080, "num_shots": 2}
    endpoint = {"endpoint": {"url": "http://a", "apiFormat": "openai", "modelName": "m"}}
    assert refused(endpoint=endpoint, trafficScenarios=["gsm8k"])[0] == "FormatNotServed"


@pytest.mark.parametrize(
    ("status", "words"),
    [
        ({}, "is not Ready"),
        ({"url": URL, "conditions": [{"type": "Ready", "status": "False"}]}, "is not Ready"),
        (
            {"url": URL, "conditions": [{"type": "Ready", "status": "True"}, {"type": "Scaled", "status": "False"}]},
            "serves, but not all of its groups are ready",
        ),
    ],
)
def test_no_job_is_created_until_the_service_is_ready(status: dict[str, Any], words: str) -> None:
    manifest, why = desired_job(IMAGES, jobs.job(), service(status), parts.deps(parts.model()))
    assert manifest is None
    assert (why[0], words in why.sentence) == ("ServiceNotReady", True)
    assert desired_job(IMAGES, jobs.job(), None, parts.deps())[1][0] == "ServiceNotFound"
    assert desired_job(IMAGES, jobs.job(), service(), parts.deps())[1][0] == "NoTokenizer"


ELSEWHERE = {"inferenceService": {"name": parts.NAME, "namespace": "elsewhere"}}


@pytest.mark.parametrize("named", ["", "other", "team-2,other", parts.NAMESPACE + "x", "*"])
def test_benchmark_of_service_in_other_namespace_needs_its_permission(named: str) -> None:
    """A BenchmarkJob gets no access to a service of another namespace without that namespace's permission. The message is
    the same whether the service does not exist, cannot be parsed, or is not Ready, so it tells nothing about the service.
    """
    notes = {keys.BENCHMARK_NAMESPACES: named} if named else {}
    there = replace(service(), namespace="elsewhere", annotations=notes)
    cases = [None, Invalid("spec.engine is a text"), there, replace(there, status={})]
    told = {desired_job(IMAGES, jobs.job(endpoint=ELSEWHERE), one, parts.deps(parts.model())) for one in cases}
    ((manifest, why),) = told
    assert manifest is None and why.reason == "ServiceNotFound"
    assert "annotation ome.io/benchmark-namespaces names team" in why.sentence


@pytest.mark.parametrize("named", [parts.NAMESPACE, f"other, {parts.NAMESPACE}", f"{parts.NAMESPACE},"])
def test_benchmark_is_allowed_from_namespaces_that_the_service_annotation_lists(named: str) -> None:
    there = replace(service(), namespace="elsewhere", annotations={keys.BENCHMARK_NAMESPACES: named})
    deps = parts.deps(parts.model())
    manifest, why = desired_job(IMAGES, jobs.job(endpoint=ELSEWHERE), there, deps)
    assert manifest is not None, why
    assert plan(manifest)["target"] == URL
    assert desired_job(IMAGES, jobs.job(endpoint=ELSEWHERE), replace(there, status={}), deps)[1].reason == "ServiceNotReady"
    assert keys.BENCHMARK_NAMESPACES in READ["InferenceService"], "or it would count as having no effect"


@pytest.mark.parametrize(
    ("spec", "reason", "words"),
    [
        ({"outputLocation": {"storageUri": "local:///a/../etc"}}, "PlaceNotServed", "contains `..`: write a path"),
        ({"dataset": {"storageUri": "pvc://data/../a.json"}}, "PlaceNotServed", "spec.dataset.storageUri"),
        ({"endpoint": {"endpoint": {"url": "http://a", "apiFormat": "cohere"}}}, "FormatNotServed", "openai or sglang"),
        ({"endpoint": {"endpoint": {"url": "http://a", "apiFormat": "openai"}}}, "NoTokenizer", "spec.tokenizer"),
        ({"outputLocation": {"storageUri": "hf://a/b"}}, "PlaceNotServed", "spec.outputLocation.storageUri"),
        ({"outputLocation": {"storageUri": "pvc://other:results"}}, "PlaceNotServed", "namespace other"),
        ({"resultFolderName": "../up"}, "PlaceNotServed", "spec.resultFolderName"),
        ({"dataset": {"storageUri": "hf://a/b"}}, "PlaceNotServed", "spec.dataset.storageUri"),
        ({"dataset": {"storageUri": "pvc://data"}}, "PlaceNotServed", "does not name a file"),
        ({"dataset": {"storageUri": "http://["}}, "PlaceNotServed", "spec.dataset.storageUri http://[ is not a URL: write"),
    ],
)
def test_unsupported_benchmark_spec_is_refused_with_reason(spec: dict[str, Any], reason: str, words: str) -> None:
    found = refused(**spec)
    assert found[0] == reason
    assert words in found[1]


@pytest.mark.parametrize("url", ["http://a:b", "http://a:99999/", "http://[", "http://a:0", "http://", "ftp://a", "a:80"])
@pytest.mark.parametrize("scenario", ["gsm8k", "D(1,1)"])
def test_invalid_endpoint_url_is_refused(url: str, scenario: str) -> None:
    endpoint = {"endpoint": {"url": url, "apiFormat": "sglang", "modelName": "m"}}
    reason, said = refused(endpoint=endpoint, trafficScenarios=[scenario])
    assert reason == "FormatNotServed"
    assert said == f"spec.endpoint.endpoint.url {url} is not the URL of a server: write one such as http://host:8000"


def node(value: Any) -> dict[str, Any]:
    """Return a node affinity with these terms."""
    return {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": value}}


@pytest.mark.parametrize(
    ("affinity", "words"),
    [
        (5, " must be a map"),
        (node(5), ".requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms must be a list"),
        (node(["x"]), ".requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0] must be a map"),
        (node([{"matchExpressions": 5}]), ".nodeSelectorTerms[0].matchExpressions must be a list"),
    ],
)
def test_malformed_affinity_is_refused(affinity: Any, words: str) -> None:
    reason, said = refused(podOverride={"affinity": {"nodeAffinity": affinity}})
    assert (reason, words in said) == ("InvalidPod", True), said
    assert said.startswith("spec.podOverride.affinity.nodeAffinity")
    if isinstance(affinity, dict):
        reason, said = refused(dataset={"storageUri": "pvc://data/a", "nodeAffinity": affinity})
        assert (reason, said.startswith("spec.dataset.nodeAffinity")) == ("InvalidPod", True)


@pytest.mark.parametrize("levels", [101, 20_000])
def test_deeply_nested_request_parameters_are_refused(levels: int) -> None:
    reason, said = refused(additionalRequestParams={"deep": "[" * levels + "]" * levels})
    assert reason == "TrafficNotServed"
    assert said == "spec.additionalRequestParams.deep has more than 100 nested lists or maps: write fewer"


def test_long_benchmark_name_gives_a_valid_job_name() -> None:
    body = jobs.body()
    body["metadata"]["name"] = "b" * 200
    manifest, why = desired_job(
        IMAGES, parts.ensure_valid(jobs.BenchmarkJob.parse(body)), service(), parts.deps(parts.model())
    )
    assert manifest is not None, why
    assert len(manifest["metadata"]["name"]) <= 57
    assert len(manifest["metadata"]["labels"][keys.BENCHMARK]) <= 63


def test_job_images_are_pulled_with_secrets_of_its_namespace() -> None:
    """The images of a Job are pulled with Secrets of the BenchmarkJob's namespace. The operator does not read these
    Secrets; it knows only their names.
    """
    images = IMAGES._replace(pull_secrets=("company",))
    manifest, why = desired_job(images, jobs.job(), service(), parts.deps(parts.model("hf://test/tiny")))
    assert manifest is not None, why
    assert pod(manifest)["imagePullSecrets"] == [{"name": "company"}]
    assert "imagePullSecrets" not in pod(made())
