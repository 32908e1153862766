"""Tests of the Job that pulls an image onto a node before a rollout."""

from typing import Any

import pytest

from ome_operator import keys
from ome_operator.core.render import image_pull
from ome_operator.core.render.meta import Owner

OWNER = Owner("svc", "team", "uid-of-svc")


def template(**spec: Any) -> dict[str, Any]:
    box = {
        "name": "ome-container", "image": "registry.example.com/engine:2", "args": ["--port=30000"],
        "resources": {"limits": {"nvidia.com/gpu": 8}}, "securityContext": {"privileged": True},
        "env": [{"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}],
        "volumeMounts": [{"name": "models", "mountPath": "/models"}],
    }  # fmt: skip
    labels = {keys.SERVICE: "svc", keys.MANAGED_BY: keys.MANAGER, keys.KUEUE_LABEL: "queue"}
    return {"metadata": {"labels": labels}, "spec": {"containers": [{**box, **spec.pop("box", {})}], **spec}}


def pod(made: dict[str, Any]) -> dict[str, Any]:
    """Return the template of the Job's pod."""
    found: dict[str, Any] = made["spec"]["template"]
    return found


def test_pull_pod_contains_only_fields_that_the_pull_depends_on() -> None:
    kept = {
        "imagePullSecrets": [{"name": "registry"}], "serviceAccountName": "engine", "runtimeClassName": "nvidia",
        "tolerations": [{"key": "gpu", "operator": "Exists"}],
    }  # fmt: skip
    others: dict[str, Any] = {
        "hostNetwork": True, "hostIPC": True, "nodeSelector": {"gpu": "H100"}, "priorityClassName": "high",
        "volumes": [{"name": "models", "hostPath": {"path": "/models"}}], "initContainers": [{"name": "i", "image": "i:1"}],
        "affinity": {"podAntiAffinity": {}}, "schedulerName": "volcano",
    }  # fmt: skip
    made = pod(image_pull.job(OWNER, "abc", "gpu-7", template(**kept, **others), 600.0))
    assert {name: made["spec"][name] for name in kept} == kept
    assert not {*others} - {"affinity"} & made["spec"].keys()
    (box,) = made["spec"]["containers"]
    assert (box["image"], box["command"]) == ("registry.example.com/engine:2", ["true"])
    assert not {"args", "volumeMounts", "imagePullPolicy"} & box.keys() and "gpu" not in str(box["resources"])
    assert box["env"] == [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}]
    assert made["spec"]["automountServiceAccountToken"] is False and made["spec"]["restartPolicy"] == "Never"


def test_pull_pod_has_no_labels_that_a_selector_matches() -> None:
    """No Service, disruption budget or queue selects the pod, and no proxy that would never end is injected into it."""
    labels = pod(image_pull.job(OWNER, "abc", "gpu-7", template(), 600.0))["metadata"]["labels"]
    assert labels == {keys.IMAGE_PULL: "abc", "sidecar.istio.io/inject": "false"}


def test_pull_pod_satisfies_the_restricted_pod_security_level() -> None:
    spec = pod(image_pull.job(OWNER, "abc", "gpu-7", template(), 600.0))["spec"]
    (box,) = spec["containers"]
    assert spec["securityContext"]["runAsNonRoot"] is True and spec["securityContext"]["runAsUser"] > 0
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert box["securityContext"]["allowPrivilegeEscalation"] is False
    assert box["securityContext"]["capabilities"] == {"drop": ["ALL"]} and "privileged" not in box["securityContext"]


def test_pull_job_has_a_deadline_and_is_owned_by_the_service() -> None:
    made = image_pull.job(OWNER, "abc", "gpu-7", template(), 600.0)
    spec, metadata = made["spec"], made["metadata"]
    assert (spec["activeDeadlineSeconds"], spec["backoffLimit"]) == (600, 0) and spec["ttlSecondsAfterFinished"] >= 3600
    assert metadata["ownerReferences"][0]["uid"] == OWNER.uid and metadata["namespace"] == OWNER.namespace
    assert metadata["labels"] == {keys.MANAGED_BY: keys.MANAGER, keys.SERVICE: "svc", keys.REVISION: "abc"}


def test_names_are_unique_and_short_enough_for_the_pods() -> None:
    owner = Owner("a-service-with-a-name-of-the-largest-length-that-is-permitted", "team", "uid")
    uid = owner._replace(uid="another")
    found = {
        image_pull.name(who, revision, node, image)
        for who in (owner, uid)
        for revision in ("11111111", "22222222")
        for node in ("n1", "n2")
        for image in ("e:1", "e:2")
    }
    assert len(found) == 16 and max(map(len, found)) + 6 <= 63


def test_a_pull_policy_is_kept() -> None:
    made = pod(image_pull.job(OWNER, "abc", "n", template(box={"imagePullPolicy": "Always"}), 600.0))
    assert made["spec"]["containers"][0]["imagePullPolicy"] == "Always"


@pytest.mark.parametrize(
    ("image", "policy"),
    [
        ("engine", "Always"),
        ("engine:latest", "Always"),
        ("registry:5000/team/engine", "Always"),
        ("registry:5000/team/engine:1", "IfNotPresent"),
        ("engine:latest@sha256:abc", "IfNotPresent"),
        ("registry:5000/engine@sha256:abc", "IfNotPresent"),
    ],
)
def test_the_default_of_the_api_server(image: str, policy: str) -> None:
    assert image_pull.policy({"image": image}) == policy
    assert image_pull.policy({"image": image, "imagePullPolicy": "Never"}) == "Never"
