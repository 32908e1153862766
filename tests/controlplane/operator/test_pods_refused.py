"""Tests on a real control plane: if the API server would refuse new pods, no serving pod is removed for them.

Each rule here refuses pods, but accepts the StatefulSets that create them.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from ome_operator.controllers.pod_dry_runs import PROBE
from ome_operator.errors import UserError
from tests.support import yamls
from tests.support.rig import USER, Manifest, Rig

ADMISSION = "admissionregistration.k8s.io/v1"
OTHER = "other.example.com/engine:2"
NOT_ALLOWED = "images of other.example.com are not allowed"
IMAGES = "object.spec.containers.all(c, !c.image.startsWith('other.example.com/'))"
ENFORCE = "pod-security.kubernetes.io/enforce"
PROBED = ("run", PROBE, "--image=i", "--dry-run=server", f"--as={USER}")
"""A command that the policy for pods denies."""


@pytest.fixture(scope="module", autouse=True)
def pairs(installed: Rig) -> None:
    """Create the runtime: prefill and decode of two nodes each, and a router."""
    installed.cluster.apply(yamls.runtime("refused-pairs", size=2, gpus=8, decoder=True))


@pytest.fixture
def served(rig: Rig, namespace: str) -> Rig:
    """Return the cluster with a service that is Ready."""
    rig.create(yamls.service(namespace, "s", "refused-pairs", "engine", "decoder", "router"))
    rig.ready(namespace, "s", 60)
    return rig


def uids(rig: Rig, namespace: str) -> set[str]:
    """Return the UIDs of all pods."""
    return {pod["metadata"]["uid"] for pod in rig.all("Pod", namespace)}


def edit(rig: Rig, namespace: str, component: str, image: str = OTHER, **more: Any) -> None:
    """Change the image of a component of the service, and other fields of its containers."""
    box = {"name": "router" if component == "router" else "ome-container", "image": image, **more}
    part: Manifest = {"runner": box} if component == "router" else {"leader": {"runner": box}, "worker": {"runner": box}}
    rig.patch("InferenceService", namespace, "s", {"spec": {component: part}})


def serves(rig: Rig, namespace: str, before: set[str]) -> None:
    """Check that no pod was removed, and that the service is Ready."""
    rig.wait_until_quiet()
    assert before <= uids(rig, namespace), "all pods that served still serve"
    assert rig.condition(namespace, "s", "Ready")["status"] == "True"


def rolled(rig: Rig, namespace: str, before: set[str]) -> None:
    """Wait until every pod was replaced."""
    rig.wait("every pod is new", lambda: len(now := uids(rig, namespace)) == 5 and not now & before, 90)
    rig.ready(namespace, "s", 60)


def sent(rig: Rig, *command: str) -> str:
    """Return the answer of the API server to a command of kubectl."""
    try:
        return rig.cluster.kubectl(*command)
    except UserError as error:
        return str(error)


def dry_run(rig: Rig, namespace: str, image: str) -> str:
    """Return the answer of the API server to a dry run of a pod by an administrator."""
    return sent(rig, "run", "p", "-n", namespace, f"--image={image}", "--dry-run=server")


@pytest.fixture
def policy(rig: Rig, namespace: str) -> Iterator[str]:
    """Install a policy of allowed repositories for pods of the namespace, and yield its name."""
    name = f"allowed-{namespace}"
    rules = [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"]}]
    here = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
    spec: dict[str, Any] = {
        "failurePolicy": "Fail",
        "matchConstraints": {"namespaceSelector": here, "resourceRules": rules},
        "validations": [{"expression": IMAGES, "message": NOT_ALLOWED}],
    }
    stored = {"apiVersion": ADMISSION, "kind": "ValidatingAdmissionPolicy", "metadata": {"name": name}, "spec": spec}
    bound = {"policyName": name, "validationActions": ["Deny"]}
    rig.cluster.apply(stored)
    rig.cluster.apply({**stored, "kind": "ValidatingAdmissionPolicyBinding", "spec": bound})
    rig.wait("the policy is in force", lambda: NOT_ALLOWED in dry_run(rig, namespace, OTHER))
    yield name
    for kind in ("validatingadmissionpolicybinding", "validatingadmissionpolicy"):
        rig.cluster.kubectl("delete", kind, name, "--ignore-not-found")


@pytest.mark.parametrize(("component", "title"), [("decoder", "decode leader"), ("engine", "prefill leader")])
@pytest.mark.usefixtures("policy")
def test_forbidden_image_is_refused_and_old_pods_keep_serving(
    served: Rig, namespace: str, component: str, title: str
) -> None:
    """An edit to an image that is not allowed leaves all pods of the old slice serving. An allowed image is rolled out."""
    rig, before = served, uids(served, namespace)
    edit(rig, namespace, component)
    told = rig.wait_for_condition(namespace, "s", "RolledOut", "DryRunRefused", NOT_ALLOWED)
    assert f"was refused by the API server: {title} pod: pods " in told["message"]
    serves(rig, namespace, before)
    edit(rig, namespace, component, "engine:2")
    rolled(rig, namespace, before)


@pytest.mark.usefixtures("policy")
def test_forbidden_router_image_is_refused_and_the_router_stays(served: Rig, namespace: str) -> None:
    """An edit names an image of the router that a policy does not allow, and changes the engine. The engine's change alone
    would remove the router's old pod with the old slice, so the edit waits and the pod stays.
    """
    rig, before = served, uids(served, namespace)
    edit(rig, namespace, "router")
    serves(rig, namespace, before)
    edit(rig, namespace, "engine", "engine:2")
    told = rig.wait_for_condition(namespace, "s", "RolledOut", "DryRunRefused", NOT_ALLOWED)
    assert "was refused by the API server: router pod: pods " in told["message"]
    serves(rig, namespace, before)
    edit(rig, namespace, "router", "router:2")
    rolled(rig, namespace, before)


def test_rollout_continues_after_the_refusing_policy_is_removed(served: Rig, namespace: str, policy: str) -> None:
    """After a policy that refused new pods is removed, the operator repeats the dry run by itself, and rolls
    the edit out.
    """
    rig, before = served, uids(served, namespace)
    edit(rig, namespace, "decoder")
    rig.wait_for_condition(namespace, "s", "RolledOut", "DryRunRefused", NOT_ALLOWED)
    for kind in ("validatingadmissionpolicybinding", "validatingadmissionpolicy"):
        rig.cluster.kubectl("delete", kind, policy)
    rolled(rig, namespace, before)


@pytest.mark.parametrize(
    ("field", "words"),
    [
        ("priorityClassName", "no PriorityClass with name absent was found"),
        ("runtimeClassName", 'pod rejected: RuntimeClass "absent" not found'),
        ("serviceAccountName", 'serviceaccount "absent" not found'),
    ],
)
def test_references_resolved_only_by_pods_are_checked_in_the_dry_run(
    served: Rig, namespace: str, field: str, words: str
) -> None:
    rig, before = served, uids(served, namespace)
    rig.patch("InferenceService", namespace, "s", {"spec": {"engine": {field: "absent"}}})
    rig.wait_for_condition(namespace, "s", "RolledOut", "DryRunRefused", words)
    serves(rig, namespace, before)


def test_edit_refused_by_limit_range_is_reported_and_old_pods_stay(served: Rig, namespace: str) -> None:
    rig, before = served, uids(served, namespace)
    limits = {"limits": [{"type": "Container", "max": {"cpu": "2"}, "default": {"cpu": "1"}}]}
    rig.cluster.apply(
        {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "l", "namespace": namespace}, "spec": limits}
    )
    edit(rig, namespace, "decoder", "engine:2", resources={"requests": {"cpu": "4"}, "limits": {"cpu": "4"}})
    rig.wait_for_condition(
        namespace, "s", "RolledOut", "DryRunRefused", "maximum cpu usage per Container is 2, but limit is 4"
    )
    serves(rig, namespace, before)


def quota(rig: Rig, namespace: str, **hard: str) -> None:
    """Create a quota, or change it, and wait until the API server has counted what it covers."""
    metadata = {"name": "q", "namespace": namespace}
    names = {name.replace("_", "/"): amount for name, amount in hard.items()}
    rig.cluster.apply({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata, "spec": {"hard": names}})

    def counted() -> bool:
        found = rig.get("ResourceQuota", namespace, "q") or {}
        status = found.get("status") or {}
        return bool(status.get("hard") == names and status.get("used", {}).keys() == names.keys())

    rig.wait("the quota is counted", counted, 60)


def test_quota_of_exactly_the_size_of_the_service_permits_edits(served: Rig, namespace: str) -> None:
    """A quota permits exactly the pods of the service, so a dry run of any further pod exceeds it. Every edit is rolled out
    nevertheless, because old pods release what new ones need.
    """
    rig, before = served, uids(served, namespace)
    hard = {"pods": "5", "requests.nvidia.com_gpu": "32", "count_statefulsets.apps": "4", "count_deployments.apps": "1"}
    quota(rig, namespace, **hard)
    rig.wait("the quota applies", lambda: "exceeded quota: q" in dry_run(rig, namespace, "i"))
    edit(rig, namespace, "decoder", "engine:2")
    rolled(rig, namespace, before)


def test_quota_too_small_for_the_new_pods_keeps_the_old_ones(served: Rig, namespace: str) -> None:
    """The pods of an edit are larger than a quota permits. The dry run of the first pod is accepted, but the operator
    computes that not all of the new pods fit, and keeps the old ones.
    """
    rig, before = served, uids(served, namespace)
    quota(rig, namespace, **{"requests.nvidia.com_gpu": "40"})
    worker = {"worker": {"size": 4, "runner": {"name": "ome-container", "image": "engine:2"}}}
    rig.patch("InferenceService", namespace, "s", {"spec": {"decoder": worker}})
    needs = (
        "ResourceQuota q has too little left: the new revision needs 56 requests.nvidia.com/gpu, but only 40 would be "
        "available (hard 40, used 32, of which the old revision releases 32)"
    )
    rig.wait_for_condition(namespace, "s", "RolledOut", "DryRunRefused", needs)
    serves(rig, namespace, before)
    quota(rig, namespace, **{"requests.nvidia.com_gpu": "56"})
    rig.wait("it rolls", lambda: len(now := uids(rig, namespace)) == 8 and not now & before, 90)


def test_pod_security_level_that_refuses_serving_pods_permits_edits(served: Rig, namespace: str) -> None:
    """A namespace gets a Pod Security level that would refuse the serving pods as well as new pods. An edit does not make
    this worse, so the status reports the level, and the edit is rolled out.
    """
    rig, before = served, uids(served, namespace)
    rig.patch("Namespace", "", namespace, {"metadata": {"labels": {ENFORCE: "restricted"}}})
    serves(rig, namespace, before)
    rig.patch("InferenceService", namespace, "s", {"spec": {"engine": {"annotations": {"a": "b"}}}})
    words = "the API server refuses this pod of the serving revision, too: pods "
    rig.wait("it is reported", lambda: words in rig.condition(namespace, "s", "Advice").get("message", ""))
    told = rig.condition(namespace, "s", "Advice")["message"]
    assert 'violates PodSecurity "restricted:latest"' in told
    rig.wait("it rolls", lambda: before - uids(rig, namespace), 60)


def test_edit_that_violates_pod_security_further_is_refused(served: Rig, namespace: str) -> None:
    """A Pod Security level already refuses the serving pods because of their weights on the node. An edit violates the level
    in a further way, so the edit is refused.
    """
    rig, before = served, uids(served, namespace)
    rig.patch("Namespace", "", namespace, {"metadata": {"labels": {ENFORCE: "baseline"}}})
    rig.patch("InferenceService", namespace, "s", {"spec": {"decoder": {"hostNetwork": True}}})
    words = 'violates PodSecurity "baseline:latest": host namespaces (hostNetwork=true), hostPath volumes'
    rig.wait_for_condition(namespace, "s", "RolledOut", "DryRunRefused", words)
    serves(rig, namespace, before)


def test_unresponsive_webhook_keeps_old_pods_and_is_named(served: Rig, namespace: str) -> None:
    """While the webhook does not answer, no pod can be created. So nothing is removed, and the status names the webhook."""
    rig, before = served, uids(served, namespace)
    name = f"down-{namespace}"
    hook = {
        "name": "pods.example.com",
        "clientConfig": {"url": "https://127.0.0.1:1/"},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"]}],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "timeoutSeconds": 1,
    }
    kind, metadata = "ValidatingWebhookConfiguration", {"name": name}
    rig.cluster.apply({"apiVersion": ADMISSION, "kind": kind, "metadata": metadata, "webhooks": [hook]})
    try:
        rig.wait("it is called", lambda: "failed calling webhook" in dry_run(rig, namespace, "i"))
        edit(rig, namespace, "decoder", "engine:2")
        rig.wait_for_condition(
            namespace, "s", "RolledOut", "Checking", 'no answer yet: Internal error occurred: failed calling webhook "pods'
        )
        assert before <= uids(rig, namespace)
    finally:
        rig.cluster.kubectl("delete", kind.lower(), name)
    rolled(rig, namespace, before)


def anew(rig: Rig) -> None:
    """Restart the operator, so that it tests its admission policy for pods at once."""
    rig.stop()
    rig.start()
    rig.wait_for_leader()


def unchecked(rig: Rig, namespace: str, image: str, words: str) -> None:
    """Edit the service, and check that it is rolled out, and that Advice states why its pods were not checked."""
    before, since = uids(rig, namespace), rig.cluster.audit_mark()
    edit(rig, namespace, "decoder", image)
    rig.wait("a sentence", lambda: words in rig.condition(namespace, "s", "Advice").get("message", ""), often=True)
    rolled(rig, namespace, before)
    asked = [one for one in rig.cluster.audit(since) if (one.user, one.resource, one.verb) == (USER, "pods", "create")]
    assert {one.name for one in asked} <= {PROBE}, "no pod was sent to the API server as a dry run"


def test_rollout_without_the_dry_run_policy_gives_advice(served: Rig, namespace: str) -> None:
    rig = served
    may = ("auth", "can-i", "create", "pods", f"--as={USER}", "-n", namespace)
    assert rig.cluster.kubectl(*may).strip() == "yes"
    no_right = "the operator has no right to create pods in dry runs: set admissionPolicy.enabled"
    try:
        for number, value in enumerate(("admissionPolicy.enabled=false", "rbac.dryRunPods=false")):
            rig.install(value)
            with pytest.raises(UserError):
                rig.cluster.kubectl(*may)
            anew(rig)
            unchecked(rig, namespace, f"engine:no-right-{number}", no_right)
        rig.install()
        rig.cluster.kubectl("delete", "validatingadmissionpolicybinding", "ome-operator-pods")
        rig.wait("the policy is not in force", lambda: "created" in sent(rig, *PROBED, "-n", namespace))
        anew(rig)
        unchecked(
            rig, namespace, "engine:no-policy", "the admission policy ome-operator-pods, which permits only dry runs of pods"
        )
    finally:
        rig.install()
        anew(rig)
