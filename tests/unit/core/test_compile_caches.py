"""Tests of compile caches in pod templates: who gets a cache, why others do not, and which pods share a directory."""

import json
import re
from dataclasses import replace
from typing import Any

import pytest

from ome_operator import keys
from ome_operator.core.compile_caches import FOLDER, asked, requested, root
from ome_operator.core.observed.objects import NO_POLICY, Observed
from ome_operator.core.placement.demand import requests
from ome_operator.core.reconcile.sync import sync
from ome_operator.core.render.statefulsets import Defaults, workloads
from ome_operator.core.rollout.revisions import SIZE_LIMIT, size
from ome_operator.settings import Policy
from tests.support import parts
from tests.support.simulator import START

DIGEST = "0123456789abcdef" * 4
ON = Defaults(caches="/mnt/models")
SGLANG = {
    "name": "ome-container",
    "image": f"engine:1@sha256:{DIGEST}",
    "command": ["python3", "-m", "sglang.launch_server"],
    "args": ["--port=30000"],
    "resources": {"limits": {"nvidia.com/gpu": "8", "cpu": "4", "memory": "64Gi"}},
}


def inputs(runner: dict[str, Any] | None = None, value: str = "true", **engine: Any) -> dict[str, Any]:
    """Return the inputs of a revision whose service has the annotation."""
    weights = {"kind": "ClusterBaseModel", "namespace": "", "name": "tiny", "uri": "hf://a/b", "path": "/mnt/models/tiny"}
    config = {"engineConfig": {"runner": {**SGLANG, **(runner or {})}, **engine}}
    return {"model": weights, "runtime": config, "engine": {}, "compileCache": value}


def rendered(
    given: dict[str, Any], service: str = "svc", namespace: str = "team", revision: str = "r1", defaults: Defaults = ON
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the pod spec of the leader, and the sentences about what was dropped."""
    roles, dropped = workloads(service, namespace, revision, given, defaults=defaults)
    spec: dict[str, Any] = roles["engine"]["leader"]["spec"]["template"]["spec"]
    return spec, dropped


def directory(spec: dict[str, Any]) -> str:
    """Return the directory of the node that a pod mounts; "" if it mounts none."""
    return next(
        (volume["hostPath"]["path"] for volume in spec["volumes"] if volume["name"] == "ome-compile-cache-agent"), ""
    )


def test_pods_without_cache_annotation_are_unchanged() -> None:
    given = inputs()
    del given["compileCache"]
    assert rendered(given) == rendered(given, defaults=Defaults())


def test_engine_has_a_writable_cache_without_agent_access() -> None:
    spec, dropped = rendered(inputs())
    (main,) = spec["containers"]
    mounts = {mount["name"]: mount for mount in main["volumeMounts"]}
    assert not dropped and "ome-compile-cache-agent" not in mounts and not mounts["ome-compile-cache"].get("readOnly")
    values = {each["name"]: each.get("value") for each in main["env"]}
    assert values["SGLANG_CACHE_DIR"] == f"{FOLDER}/cache" and values["SGLANG_JIT_CACHE_DIR"] == f"{FOLDER}/cache/jit"


def test_cache_is_emptied_at_engine_start_and_other_hooks_are_kept() -> None:
    hook = {"preStop": {"sleep": {"seconds": 5}}}
    (main,) = rendered(inputs({"lifecycle": hook}))[0]["containers"]
    assert main["lifecycle"].pop("postStart")["exec"]["command"][-1] == FOLDER and main["lifecycle"] == hook


def test_the_directory_of_the_node_is_read_only_and_of_the_namespace() -> None:
    spec, _ = rendered(inputs())
    assert directory(spec).startswith("/mnt/models/.namespaces/team/.compile/")
    for box in spec["initContainers"]:
        assert [each["readOnly"] for each in box["volumeMounts"] if each["name"] == "ome-compile-cache-agent"] == [True]
        assert box["securityContext"] == {
            "seccompProfile": {"type": "RuntimeDefault"},
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        }


def test_cache_containers_use_the_engine_user_without_its_privileges() -> None:
    user = {"runAsUser": 1000, "runAsGroup": 1000, "runAsNonRoot": True}
    spec, _ = rendered(inputs({"securityContext": {**user, "privileged": True, "capabilities": {"add": ["IPC_LOCK"]}}}))
    for box in spec["initContainers"]:
        assert box["securityContext"].items() >= user.items() and "privileged" not in box["securityContext"]
        assert box["securityContext"]["capabilities"] == {"drop": ["ALL"]}


def test_cache_containers_add_small_requests_and_keep_guaranteed_qos() -> None:
    off, on = (dict(requests(rendered(inputs(value=value))[0])) for value in ("false", "true"))
    assert on["nvidia.com/gpu"] == off["nvidia.com/gpu"] and on["cpu"] > off["cpu"]
    load, seal = rendered(inputs())[0]["initContainers"]
    assert load["resources"] == SGLANG["resources"] and seal["resources"]["limits"] == seal["resources"]["requests"]
    assert seal["restartPolicy"] == "Always"


SAME = inputs()
OTHERS = {
    "another service": {"service": "other"},
    "another namespace": {"namespace": "other"},
    "another image": {"given": inputs({"image": f"engine:1@sha256:{DIGEST[::-1]}"})},
    "other arguments": {"given": inputs({"args": ["--port=30000", "--enable-torch-compile"]})},
    "another command": {"given": inputs({"command": ["python3", "-u", "-m", "sglang.launch_server"]})},
    "another variable": {"given": inputs({"env": [{"name": "TORCH_LOGS", "value": "x"}]})},
    "more ranks": {"given": inputs(worker={"size": 1})},
}


@pytest.mark.parametrize("other", OTHERS.values(), ids=list(OTHERS))
def test_pods_that_may_compile_differently_use_another_directory(other: dict[str, Any]) -> None:
    assert directory(rendered(**{"given": SAME, **other})[0]) not in ("", directory(rendered(SAME)[0]))


def test_largest_sample_with_all_checks_fits_into_a_revision() -> None:
    service, deps = parts.kimi()
    annotations = {keys.PREFLIGHT: "Require", keys.COMPILE_CACHE: "true"}
    body = {**service.spec.dump(), "annotations": annotations}
    runtimes = dict(deps.runtimes)
    for ref, found in runtimes.items():
        text = re.sub(r"(lmsysorg/sglang:[^\s\"]+)", rf"\1@sha256:{DIGEST}", json.dumps(found.spec.dump()))
        runtimes[ref] = parts.runtime(found.name, **json.loads(text))
    policy = Policy(model_agent=True, compile_caches=True, router_keys=False, gang_timeout=0.0)
    plan = sync(parts.service(body), replace(deps, runtimes=runtimes, policy=policy), Observed(), START)
    (data,) = [each.manifest["data"] for each in (*plan.first, *plan.apply) if each.manifest["kind"] == "ControllerRevision"]
    assert json.dumps(data).count('"ome-compile-cache-seal"') >= 3 and "dropped" not in data
    assert size(data) < 0.9 * SIZE_LIMIT


def test_leader_and_workers_have_different_directories() -> None:
    roles, _ = workloads("svc", "team", "r1", inputs(worker={"size": 1}), defaults=ON)
    found = {directory(roles["engine"][role]["spec"]["template"]["spec"]) for role in ("leader", "worker")}
    assert len(found) == 2 and "" not in found


def test_new_revision_with_the_same_command_keeps_the_directory() -> None:
    assert directory(rendered(SAME, revision="r2")[0]) == directory(rendered(SAME)[0])


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "a tag": ({"image": "engine:1"}, "image engine:1 has no digest"),
    "a short digest": ({"image": "engine@sha256:0123"}, "has no digest"),
    "another engine": ({"command": ["vllm", "serve"]}, "only SGLang is supported"),
    "its own directory": ({"env": [{"name": "SGLANG_CACHE_DIR", "value": "/x"}]}, "SGLANG_CACHE_DIR is set already"),
    "in a shell": (
        {"command": ["sh", "-c", "SGLANG_JIT_CACHE_DIR=/x python3 -m sglang.launch_server"]},
        "SGLANG_JIT_CACHE_DIR is set already",
    ),
    "a volume at the same path": (
        {"volumeMounts": [{"name": "v", "mountPath": "/var/cache/ome-compile/"}]},
        "mounts a volume at /var/cache/ome-compile",
    ),
    "a hook of its own": (
        {"lifecycle": {"postStart": {"exec": {"command": ["true"]}}}},
        "the container has the hook lifecycle.postStart",
    ),
    "other GPUs": ({"resources": {"limits": {"amd.com/gpu": "8"}}}, "the driver of amd.com/gpu cannot be identified"),
}


@pytest.mark.parametrize(("runner", "why"), REFUSED.values(), ids=list(REFUSED))
def test_unsupported_pod_gets_no_cache_and_a_reason(runner: dict[str, Any], why: str) -> None:
    spec, (sentence,) = rendered(inputs(runner))
    assert sentence.startswith("engine: annotation ome.io/compile-cache has no effect: ") and why in sentence
    assert spec == rendered(inputs(runner, value="false"))[0]


@pytest.mark.parametrize("command", ["ls $SGLANG_CACHE_DIR; exec python3 -m", "MY_SGLANG_CACHE_DIR=/x exec python3 -m"])
def test_command_that_only_reads_the_variable_is_supported(command: str) -> None:
    spec, dropped = rendered(inputs({"command": ["sh", "-c", f"{command} sglang.launch_server"]}))
    assert not dropped and directory(spec)


def test_cache_variable_of_the_accelerator_class_prevents_the_cache() -> None:
    given = inputs() | {"accelerator": {"engine": {"env": {"TORCH_EXTENSIONS_DIR": "/x"}}}}
    spec, (sentence,) = rendered(given)
    assert "TORCH_EXTENSIONS_DIR is set already" in sentence
    names = [variable["name"] for variable in spec["containers"][0]["env"]]
    assert names.count("TORCH_EXTENSIONS_DIR") == 1


def test_volume_with_the_same_name_prevents_the_cache() -> None:
    _, (sentence,) = rendered(inputs(volumes=[{"name": "ome-compile-cache", "emptyDir": {}}]))
    assert "the pod has a volume ome-compile-cache: rename it" in sentence


def test_agents_without_cache_support_prevent_the_cache() -> None:
    _, (sentence,) = rendered(inputs(), defaults=Defaults())
    assert "set agent.enabled=true and agent.compileCacheGB" in sentence


def test_caches_are_stored_below_the_first_agent_root() -> None:
    both = ("/raid/models", "/mnt/models")
    assert root(Policy(model_agent=True, compile_caches=True, agent_roots=both)) == "/raid/models"
    for policy in (NO_POLICY, Policy(compile_caches=True), Policy(model_agent=True)):
        assert root(policy) == ""


def test_a_component_takes_precedence_over_its_service() -> None:
    given = inputs()
    assert requested(given, "engine") and asked(parts.service(annotations={keys.COMPILE_CACHE: "True"})) == "true"
    given["engine"] = {"annotations": {keys.COMPILE_CACHE: "false"}}
    assert not requested(given, "engine")
    assert asked(parts.service(annotations={keys.COMPILE_CACHE: "yes"})) == ""
