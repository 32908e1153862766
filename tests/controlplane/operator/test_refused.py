"""Tests on a real control plane that no pod is created with a flag with which the engine would exit (docs/lint.md)."""

from tests.support import yamls
from tests.support.rig import Manifest, Rig, is_ready

IGNORE = "ome.io/lint-ignore"
GOOD, BAD = "--mem-fraction-static=0.8", "--enable-deepep-moe"
SAYS = "flag-removed: sglang 0.5.23 has no flag --enable-deepep-moe"


def runtime(name: str, flag: str) -> Manifest:
    """Return an SGLang runtime with this flag. The version is known from the tag of the image."""
    made = yamls.runtime(name, router=False)
    made["spec"]["engineConfig"]["runner"] |= {
        "image": "docker.io/lmsysorg/sglang:v0.5.23",
        "command": ["python3", "-m", "sglang.launch_server"],
        "args": ["--model-path=$(MODEL_PATH)", "--host=0.0.0.0", "--port=8080", flag],
    }
    return made


def edit(rig: Rig, name: str, flag: str) -> None:
    """Replace the flag of the runtime's engine by this one."""
    rig.patch("ClusterServingRuntime", "", name, {"spec": {"engineConfig": runtime(name, flag)["spec"]["engineConfig"]}})


def uids(rig: Rig, namespace: str) -> set[str]:
    """Return the UIDs of all pods."""
    return {pod["metadata"]["uid"] for pod in rig.all("Pod", namespace)}


def test_edit_with_a_removed_flag_leaves_serving_pods_unchanged(rig: Rig, namespace: str) -> None:
    """An edit adds a flag that the engine no longer knows. Nothing is rolled out, and the message states the rule, the fix
    and how to override the rule. While the edit waits, the service can still be scaled. The annotation that overrides the
    rule rolls the edit out.
    """
    name = f"refused-{namespace}"
    rig.create(runtime(name, GOOD))
    rig.create(yamls.service(namespace, "kimi", name, "engine"))
    rig.ready(namespace, "kimi", 60)
    before = uids(rig, namespace)
    edit(rig, name, BAD)
    told = rig.wait_for_condition(namespace, "kimi", "RolledOut", "ConfigurationRefused", SAYS)
    assert "write --moe-a2a-backend deepep" in told["message"] and f"{IGNORE}: flag-removed" in told["message"]
    rig.patch("InferenceService", namespace, "kimi", {"spec": {"engine": {"minReplicas": 2, "maxReplicas": 2}}})
    rig.wait("two groups", lambda: len(uids(rig, namespace)) == 2 and all(map(is_ready, rig.all("Pod", namespace))), 60)
    assert before < uids(rig, namespace), "the serving pod is the same"
    rig.ready(namespace, "kimi", 60)
    rig.patch("InferenceService", namespace, "kimi", {"metadata": {"annotations": {IGNORE: "flag-removed"}}})
    rig.wait("it is rolled out", lambda: len(uids(rig, namespace)) == 2 and not before & uids(rig, namespace), 90)
    rig.ready(namespace, "kimi", 60)
    rig.delete("ClusterServingRuntime", "", name)


def test_new_service_creates_no_pods_until_the_flag_is_corrected(rig: Rig, namespace: str) -> None:
    name = f"refused-{namespace}"
    rig.create(runtime(name, BAD))
    rig.create(yamls.service(namespace, "kimi", name, "engine"))
    rig.wait_for_condition(namespace, "kimi", "Ready", "ConfigurationRefused", SAYS)
    assert rig.all("StatefulSet", namespace) == [] and rig.all("ControllerRevision", namespace) == []
    edit(rig, name, GOOD)
    rig.ready(namespace, "kimi", 60)
    rig.delete("ClusterServingRuntime", "", name)
