"""Tests of the pods of checks on demand: they equal the service's own pods in everything that decides on nodes, and no
controller adopts them.
"""

import json
from typing import Any

import pytest

from ome_operator import keys
from ome_operator.core.observed.objects import Manifest
from ome_operator.core.placement.demand import demand
from ome_operator.core.preflight.on_demand import APPARMOR, RankKey, Trial, trial, with_owner_reference
from ome_operator.core.render import meta, services
from ome_operator.core.render.statefulsets import StoredRole
from ome_operator.describe.outcome import compute_outcome
from tests.support import parts, selectors

RUN, NAME = "abcd1234", "ome-preflight-abcd1234"
BOX = {
    "name": "ome-container",
    "image": "engine:1",
    "command": ["python3", "-m", "sglang.launch_server"],
    "args": ["--port=30000", "--dist-init-addr=$(LWS_LEADER_ADDRESS):5757", "--host=$(POD_NAME).svc-pods.team"],
    "env": [{"name": "ROLE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['component']"}}}],
    "ports": [{"containerPort": 30000, "hostPort": 30000}],
    "resources": {"limits": {"nvidia.com/gpu": 8, "rdma/hca": 1}},
    "volumeMounts": [{"name": "dshm", "mountPath": "/dev/shm"}, {"name": "cache", "mountPath": "/cache"}],
    "readinessProbe": {"httpGet": {"path": "/health", "port": 30000}},
    "lifecycle": {"preStop": {"sleep": {"seconds": 1}}},
}
MOUNTS = [{"name": "cache", "mountPath": "/to"}, {"name": "dshm", "mountPath": "/d", "readOnly": True}]
FETCH = {"name": "fetch", "image": "f", "volumeMounts": MOUNTS}
PART: dict[str, Any] = {
    "runner": BOX,
    "initContainers": [FETCH],
    "containers": [{"name": "exporter", "image": "x"}],
    "worker": {"size": 1},
    "labels": {"app": "mine", keys.KUEUE_LABEL: "gold"},
    "annotations": {"k8s.v1.cni.cncf.io/networks": "rdma", keys.SSH_KEYS: "ssh"},
    "nodeSelector": {"pool": "h200"},
    "tolerations": [{"key": "gpu", "operator": "Exists"}],
    "hostNetwork": True,
    "dnsPolicy": "ClusterFirstWithHostNet",
    "priorityClassName": "high",
    "serviceAccountName": "engine",
    "imagePullSecrets": [{"name": "pull"}],
    "volumes": [{"name": "dshm", "emptyDir": {"medium": "Memory"}}, {"name": "cache", "emptyDir": {}}],
}


def roles(notes: dict[str, str] | None = None, **more: Any) -> dict[str, StoredRole]:
    """Return the stored roles prefill and decode with two ranks each."""
    part = {**PART, **more}
    runtime = parts.runtime(engineConfig=part, decoderConfig=part)
    service = parts.service(engine={"minReplicas": 2}, decoder={}, annotations=notes or {})
    return dict(compute_outcome(service, parts.deps(parts.model(), runtime)).workloads)


def made(known: dict[str, StoredRole] | None = None, **groups: int) -> Trial:
    return trial("svc", "team", known or roles(), groups or {"engine": 2, "decoder": 1}, RUN, 180)


def box(pod: Manifest) -> Manifest:
    (only,) = pod["spec"]["containers"]
    return dict(only)


def env(pod: Manifest) -> dict[str, Any]:
    return {each["name"]: each.get("value", each.get("valueFrom")) for each in box(pod)["env"]}


def test_check_pods_are_named_by_group_and_rank() -> None:
    found = made()
    assert [(*place, pod["metadata"]["name"]) for place, pod in found.pods.items()] == [
        ("engine", 0, 0, f"{NAME}-engine-0-0"),
        ("engine", 0, 1, f"{NAME}-engine-0-w-1"),
        ("engine", 1, 0, f"{NAME}-engine-1-0"),
        ("engine", 1, 1, f"{NAME}-engine-1-w-1"),
        ("decoder", 0, 0, f"{NAME}-decoder-0-0"),
        ("decoder", 0, 1, f"{NAME}-decoder-0-w-1"),
    ]
    assert all(pod["spec"]["hostname"] == pod["metadata"]["name"] for pod in found.pods.values())
    assert all(pod["spec"]["subdomain"] == NAME == found.headless["metadata"]["name"] for pod in found.pods.values())
    assert found.headless["spec"]["publishNotReadyAddresses"] and found.headless["spec"]["clusterIP"] == "None"
    assert {place.component for place in made(decoder=1).pods} == {"decoder"}


def test_no_controller_or_service_selects_the_pods_of_a_check() -> None:
    """No controller and no Service selects the pods of a check on demand. The test uses all selectors that the operator
    writes for a service, and examples of selectors of routers and users.
    """
    known = roles()
    owner = meta.Owner("svc", "team", "u")
    asked = [each["spec"]["selector"] for each in services.services(owner, (("engine", 1), ("decoder", 1)), "engine", "")]
    asked += [meta.labels("svc"), meta.labels("svc", "engine"), {keys.COMPONENT: "engine", keys.SERVICE: "svc"}]
    asked += [{keys.SERVICE: "svc"}, {keys.COMPONENT: "decoder"}, {keys.MANAGED_BY: keys.MANAGER}, {"app": "mine"}]
    asked += [{keys.WORKER_INDEX: "0"}, {keys.GROUP_INDEX: "0"}]
    asked += [role.leader["spec"]["selector"]["matchLabels"] for role in known.values()]
    found = made(known)
    for pod in found.pods.values():
        labels = pod["metadata"]["labels"]
        assert not [each for each in asked if each.items() <= labels.items()]
        strange = {key for key in labels if not key.startswith(keys.PREFLIGHT_LABEL)}
        assert strange == {keys.PREFLIGHT_RUN, keys.KUEUE_LABEL}, "Kueue needs this label"
        assert selectors.matches(found.selector, labels) and found.headless["spec"]["selector"].items() <= labels.items()
        assert all(len(key.rpartition("/")[2]) <= 63 for key in labels)
    headless = found.headless["metadata"]["labels"]
    assert headless == {keys.PREFLIGHT_RUN: RUN}


def test_check_pod_equals_service_pod_in_everything_relevant_for_scheduling() -> None:
    known = roles(containers=[])
    for place, pod in made(known).pods.items():
        workload = known[place.component].leader if place.rank == 0 else known[place.component].worker
        assert workload is not None
        template = workload["spec"]["template"]
        assert demand(template, True) == demand(pod, True)
        same = (
            "nodeSelector",
            "tolerations",
            "hostNetwork",
            "dnsPolicy",
            "serviceAccountName",
            "imagePullSecrets",
            "affinity",
        )
        assert all(pod["spec"][field] == template["spec"][field] for field in same)
        main, only = template["spec"]["containers"][0], box(pod)
        assert all(only[field] == main[field] for field in ("image", "resources", "volumeMounts", "ports"))
        assert pod["metadata"]["annotations"] == template["metadata"]["annotations"], "RDMA is requested there"


def test_check_pod_runs_only_the_check_and_has_a_deadline() -> None:
    for pod in made().pods.values():
        spec, only = pod["spec"], box(pod)
        assert only["name"] == "ome-container" and only["command"][3:] == ["preflight", *BOX["command"]]  # type: ignore[misc]
        assert not {"initContainers", "priorityClassName"} & spec.keys(), "the check preempts no other pod"
        assert not {"readinessProbe", "startupProbe", "lifecycle"} & only.keys()
        assert (spec["restartPolicy"], spec["activeDeadlineSeconds"]) == ("Never", 180 + 240 + 120)
        assert spec["automountServiceAccountToken"] is False and env(pod)["OME_PREFLIGHT_MODE"] == "Warn"


def test_check_ranks_contact_only_each_other() -> None:
    pods = made().pods
    leader, worker = pods[RankKey("decoder", 0, 0)], pods[RankKey("decoder", 0, 1)]
    facts = json.loads(env(worker)["OME_PREFLIGHT"])
    assert facts == {
        "rank": "$(LWS_WORKER_INDEX)",
        "size": 2,
        "http": 30000,
        "leader": f"{NAME}-decoder-$(LWS_GROUP_INDEX)-0.{NAME}.team",
        "worker": f"{NAME}-decoder-$(LWS_GROUP_INDEX)-w-%d.{NAME}.team",
        "seconds": 240,
        "fetched": ["/cache"],
        "gpus": 8,
    }
    assert (env(leader)["LWS_WORKER_INDEX"], env(worker)["LWS_WORKER_INDEX"]) == ("0", "1")
    assert env(worker)["LWS_GROUP_INDEX"] == "0" and env(pods[RankKey("engine", 1, 1)])["LWS_GROUP_INDEX"] == "1"
    assert env(leader)["LWS_LEADER_ADDRESS"] == f"$(POD_NAME).{NAME}.team"
    assert env(worker)["LWS_LEADER_ADDRESS"] == f"{NAME}-decoder-$(LWS_GROUP_INDEX)-0.{NAME}.team"
    assert env(leader)["ROLE"] == "decoder", "the kubelet would not find such a label"
    assert box(leader)["args"][2] == f"--host=$(POD_NAME).{NAME}.team"
    assert "svc-pods" not in json.dumps(leader["spec"]), "no Service of the service selects the pod"


def test_longer_names_with_the_same_prefix_are_not_replaced() -> None:
    said = ["--a=my-svc-pods.x", "--b=svc-podsy", "http://svc-pods:8080/", "svc-pods"]
    pod = made(roles(runner={**BOX, "args": said})).pods[RankKey("engine", 0, 0)]
    assert box(pod)["args"] == ["--a=my-svc-pods.x", "--b=svc-podsy", f"http://{NAME}:8080/", NAME]


def test_existing_check_init_container_is_not_added_twice() -> None:
    """The stored pods of a service may already contain the check as an init container. A pod on demand contains the check
    once, and the check's mount does not count as a path that an init container fills.
    """
    pod = made(roles({keys.PREFLIGHT: "Require"})).pods[RankKey("engine", 0, 0)]
    assert "initContainers" not in pod["spec"] and json.loads(env(pod)["OME_PREFLIGHT"])["fetched"] == ["/cache"]
    bare = made(roles({keys.PREFLIGHT: "Require"}, initContainers=[])).pods[RankKey("engine", 0, 0)]
    assert "fetched" not in json.loads(env(bare)["OME_PREFLIGHT"])


def test_keys_for_ssh_need_not_be_there_yet() -> None:
    volumes = {each["name"]: each for each in made().pods[RankKey("engine", 0, 0)]["spec"]["volumes"]}
    assert volumes["ssh"]["secret"]["optional"] is True


OWN = {"matchLabels": {keys.COMPONENT: "engine"}, "matchExpressions": [{"key": "app", "operator": "In", "values": ["mine"]}]}
MARKED = {
    "matchLabels": {f"{keys.PREFLIGHT_LABEL}component": "engine", keys.PREFLIGHT_RUN: RUN},
    "matchExpressions": [{"key": f"{keys.PREFLIGHT_LABEL}app", "operator": "In", "values": ["mine"]}],
}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def near(selector: Any, **more: Any) -> dict[str, Any]:
    return {"topologyKey": "rack", "labelSelector": selector, **more}


@pytest.mark.parametrize("kind", ["podAffinity", "podAntiAffinity"])
def test_pod_affinity_of_check_pods_selects_other_check_pods(kind: str) -> None:
    other = near({"matchLabels": {"app": "cache"}})
    part = {REQUIRED: [near(OWN), other], PREFERRED: [{"weight": 7, "podAffinityTerm": near(OWN)}]}
    pod = made(roles(affinity={kind: part})).pods[RankKey("engine", 0, 0)]
    found = pod["spec"]["affinity"][kind]
    before = [near(OWN)] if kind == "podAntiAffinity" else []  # serving pods must be avoided, too
    assert found[REQUIRED] == [*before, near(MARKED), other]
    assert [each["podAffinityTerm"] for each in found[PREFERRED]] == [*before, near(MARKED)]
    assert all(each["weight"] == 7 for each in found[PREFERRED])
    decode = made(roles(affinity={kind: part})).pods[RankKey("decoder", 0, 0)]["spec"]["affinity"][kind]
    assert decode[REQUIRED] == [near(OWN), other], "the term is about other pods"


def test_spread_and_keys_of_labels() -> None:
    spread = [{**near(OWN, matchLabelKeys=[keys.GROUP_INDEX]), "maxSkew": 1}]
    pod = made(roles(topologySpreadConstraints=spread)).pods[RankKey("engine", 0, 0)]
    (found,) = pod["spec"]["topologySpreadConstraints"]
    assert found["labelSelector"] == MARKED and found["maxSkew"] == 1
    assert found["matchLabelKeys"] == [f"{keys.PREFLIGHT_LABEL}ome.io_group"]
    assert f"{keys.PREFLIGHT_LABEL}ome.io_group" in pod["metadata"]["labels"]


def test_an_annotation_about_a_container_that_is_not_there_is_refused_by_kubernetes() -> None:
    about = {f"{APPARMOR}ome-container": "unconfined", f"{APPARMOR}exporter": "unconfined"}
    pod = made(roles(annotations=about)).pods[RankKey("engine", 0, 0)]
    assert pod["metadata"]["annotations"] == {f"{APPARMOR}ome-container": "unconfined"}


def test_check_pod_is_owned_by_the_headless_service() -> None:
    headless = {**made().headless, "metadata": {"name": NAME, "uid": "u7"}}
    pod = made().pods[RankKey("engine", 0, 0)]
    (owner,) = with_owner_reference(pod, headless)["metadata"]["ownerReferences"]
    assert owner == {"apiVersion": "v1", "kind": "Service", "name": NAME, "uid": "u7"}
    assert "ownerReferences" not in pod["metadata"]


def test_stored_workloads_are_not_modified_by_rendering_check_pods() -> None:
    known = roles()
    before = json.dumps([role.leader for role in known.values()])
    made(known)
    assert json.dumps([role.leader for role in known.values()]) == before


def test_check_pod_belongs_to_no_kueue_pod_group() -> None:
    """A pod of a check on demand belongs to no pod group of Kueue. Kueue refuses a pod that states how many pods its group
    has, but not the name of the group.
    """
    labels = {keys.KUEUE_LABEL: "gold", keys.KUEUE_GROUP: "mine"}
    annotations = {"a": "b", keys.KUEUE_COUNT: "8", keys.KUEUE_SERVING: "true"}
    for pod in made(roles(labels=labels, annotations=annotations)).pods.values():
        assert keys.KUEUE_GROUP not in pod["metadata"]["labels"]
        assert pod["metadata"]["annotations"] == {"a": "b"}
