"""A scenario for tests of faults: several services go through all kinds of changes in a few steps, next to objects of other
users. The correct state after each step is learned from a run without faults. The name of the namespace and values that the
API server generates (UIDs, addresses, times) are left out of the state, so that runs in different namespaces compare equal.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from tests.support import yamls
from tests.support.kubelet import exited, silent, write_status
from tests.support.rig import Manifest, Rig, is_ready

QUICK = {"hangTimeout": "1s", "selfHealTimeout": "1s"}
MINE, THEIRS = "ome.io/managed-by=ome-operator", "ome.io/managed-by%21=ome-operator"
OBJECTS = (
    "StatefulSet", "Deployment", "Service", "PodDisruptionBudget", "Role", "RoleBinding", "ServiceAccount", "RoleScale",
    "HorizontalPodAutoscaler", "ControllerRevision", "Secret",
)  # fmt: skip
STRANGE = ("StatefulSet", "ConfigMap", "Secret", "Service", "PodDisruptionBudget", "Pod")
CONTENT = ("spec", "data", "rules", "subjects", "roleRef", "revision")
GIVEN = ("clusterIP", "clusterIPs")
RUNTIMES = (yamls.runtime("l-solo"), yamls.runtime("l-pairs", size=2, decoder=True))

REMAINS = "deleted services of which something is left"
"""Message for remaining objects of deleted services. The garbage collector learns the kinds of a new cluster only every 30
s.
"""

State = dict[str, Any]
"""Kind and name → the relevant part of the object."""


class PodPlace(NamedTuple):
    """The place of a pod in a service."""

    service: str
    component: str
    revision: str
    group: str
    """Number of the group. For a router: its position in the order of names."""
    rank: str = "0"


class ScenarioRun:
    """A run of the scenario in a namespace of its own, which exists already."""

    def __init__(self, rig: Rig, namespace: str) -> None:
        self.rig, self.namespace = rig, namespace
        rig.wait("the account that pods need", lambda: rig.get("ServiceAccount", namespace, "default"))
        for body in _strangers(namespace):
            rig.create(body)
        rig.wait("the stranger's pods run", lambda: [_ready(one) for one in self._foreign("Pod")] == [True, True])
        rig.wait("their StatefulSet knows", lambda: self._foreign("StatefulSet")[0]["status"].get("readyReplicas") == 1)
        rig.wait("their budget is seen", lambda: "observedGeneration" in self._foreign("PodDisruptionBudget")[0]["status"])
        self.theirs = self.foreign_versions()

    # --- what there is ----------------------------------------------------------------------------------------------
    def state(self) -> State:
        """Return everything that the operator created, and the statuses of the services."""
        found: State = {}
        of = set()
        for kind in OBJECTS:
            for body in self.rig.all(kind, self.namespace, MINE):
                of.add(body["metadata"]["labels"]["ome.io/inferenceservice"])
                owners = [one["kind"] for one in body["metadata"].get("ownerReferences", ())]  # an orphan has none
                if kind != "ControllerRevision" or "InferenceService" in owners:
                    found[f"{kind} {body['metadata']['name']}"] = self._matters(kind, body)
        for place, pod in self.pods().items():
            found[f"Pod {'/'.join(place)}"] = [_ready(pod), pod["spec"]["containers"][0]["image"]]
        for service in self.rig.all("InferenceService", self.namespace):
            found[f"InferenceService {service['metadata']['name']}"] = _told(service)
            of.discard(service["metadata"]["name"])
        found[REMAINS] = sorted(of)
        return found

    def pods(self) -> dict[PodPlace, Manifest]:
        """Return the operator's pods by place."""
        out: dict[PodPlace, Manifest] = {}
        for pod in sorted(self.rig.all("Pod", self.namespace, MINE), key=lambda one: str(one["metadata"]["name"])):
            out[_place(pod, out)] = pod
        return out

    def pod_starts(self) -> dict[PodPlace, str]:
        """Return place -> UID of the pod and number of its restarts, which differ after any restart."""
        return {place: pod["metadata"]["uid"] + _restarts(pod) for place, pod in self.pods().items()}

    def foreign_versions(self) -> dict[str, str]:
        """Return the resourceVersions of the objects of other users, which the operator must not change."""
        found = ((kind, body["metadata"]) for kind in STRANGE for body in self._foreign(kind))
        return {f"{kind} {one['name']}": one["resourceVersion"] for kind, one in found}

    def _foreign(self, kind: str) -> list[Manifest]:
        return [one for one in self.rig.all(kind, self.namespace, THEIRS) if one["metadata"]["name"] != "kube-root-ca.crt"]

    def _matters(self, kind: str, body: Manifest) -> Any:
        if kind == "Secret":
            return sorted(body["data"])
        content: Manifest = {part: body[part] for part in CONTENT if part in body}
        spec = {key: value for key, value in content.pop("spec", {}).items() if key not in GIVEN}
        text = json.dumps([body["metadata"]["labels"], content, spec], sort_keys=True)
        return text.replace(self.namespace, "NAMESPACE")

    # --- what happens -----------------------------------------------------------------------------------------------
    def create(self, name: str, runtime: str, *parts: str, **spec: Any) -> None:
        """Create a service."""
        self.rig.create(yamls.service(self.namespace, name, runtime, *parts, **spec))

    def edit(self, name: str, **spec: Any) -> None:
        """Edit a service."""
        self.rig.patch("InferenceService", self.namespace, name, {"spec": spec})

    def scale(self, role: str, replicas: int) -> None:
        """Scale a role as an autoscaler does."""
        self.rig.patch("RoleScale", self.namespace, role, {"spec": {"replicas": replicas}})

    def delete_object(self, kind: str, name: str) -> None:
        """Delete an object and what depends on it."""
        self.rig.delete(kind, self.namespace, name)

    def strike(self, change: Callable[[Manifest], None], service: str, component: str, group: str, rank: str) -> None:
        """Change the status of the pod of a rank, as a fault of its container does."""
        write_status(self.rig, self.pod(service, component, group, rank), change)

    def pod(self, service: str, component: str, group: str = "0", rank: str = "0") -> Manifest:
        """Return the pod at a place, whatever its revision."""
        wanted = service, component, group, rank
        (found,) = (pod for place, pod in self.pods().items() if (*place[:2], *place[3:]) == wanted)
        return found


class ScenarioStep(NamedTuple):
    """Something that happens to several services at once."""

    name: str
    act: Callable[[ScenarioRun], None]
    concerns: Callable[[PodPlace], bool]
    """Returns whether a pod may be replaced by the step. All other pods must stay the same."""


def _come_up(life: ScenarioRun) -> None:
    life.create("calm", "l-pairs", "engine", "router", engine={"lifecycle": QUICK})
    life.create("solo", "l-solo", "engine", engine={"minReplicas": 2, "lifecycle": QUICK})
    scaled = {"minReplicas": 2, "maxReplicas": 4, "scaleMetric": "cpu"}
    pair = {**scaled, "lifecycle": QUICK, "annotations": {"ome.io/ssh-keys": "ssh"}}
    life.create("pair", "l-pairs", "engine", "router", engine=pair)
    split = {"rollout": {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}, "decoder": {"lifecycle": QUICK}}
    life.create("split", "l-pairs", "engine", "decoder", "router", **split)


def _edit(life: ScenarioRun) -> None:
    life.edit("solo", engine={"runner": {"image": "engine:2"}})
    life.scale("pair-engine", 3)
    life.strike(exited, "split", "decoder", "0", "1")
    life.delete_object("Pod", life.pod("calm", "router")["metadata"]["name"])


def _edit_another(life: ScenarioRun) -> None:
    life.edit("split", engine={"runner": {"image": "engine:2"}})
    life.scale("pair-engine", 2)
    life.strike(silent, "solo", "engine", "1", "0")
    # Pods of the service that is scaled down are left out: which group is removed would depend on the order of events.
    life.delete_object("StatefulSet", life.pod("calm", "engine", rank="1")["metadata"]["ownerReferences"][0]["name"])


def _delete(life: ScenarioRun) -> None:
    life.rig.delete("InferenceService", life.namespace, "solo")
    life.edit("calm", engine={"minReplicas": 2})


STEPS = (
    ScenarioStep("come up", _come_up, lambda _: False),
    ScenarioStep(
        "edit, scale up, lose a rank and a router",
        _edit,
        lambda one: one.service == "solo" or one[:2] in (("split", "decoder"), ("calm", "router")),
    ),
    ScenarioStep(
        "edit another, scale down, hang, lose a workload",
        _edit_another,
        lambda one: one.service == "split" or (one.service, one.group) in (("pair", "2"), ("calm", "0"), ("solo", "1")),
    ),
    ScenarioStep("delete, scale up", _delete, lambda one: one.service == "solo"),
)


def _strangers(namespace: str) -> Iterator[Manifest]:
    """Yield objects of other users in the namespace, whose names and labels resemble the operator's."""

    def body(api: str, kind: str, name: str, labels: Mapping[str, str], **more: Any) -> Manifest:
        metadata = {"name": name, "namespace": namespace, "labels": dict(labels)}
        return {"apiVersion": api, "kind": kind, "metadata": metadata, **more}

    like = {"ome.io/inferenceservice": "split", "component": "engine"}
    box = {"containers": [yamls.container()]}
    template = {"metadata": {"labels": like}, "spec": box}
    sets = {"replicas": 1, "selector": {"matchLabels": like}, "serviceName": "theirs", "template": template}
    yield body("apps/v1", "StatefulSet", "split-engine", like, spec=sets)
    yield body("v1", "Pod", "solo-engine-0", {**like, "ome.io/inferenceservice": "solo"}, spec=box)
    yield body("v1", "ConfigMap", "pair", like, data={"key": "value"})
    yield body("v1", "Secret", "pair-router", like, stringData={"key": "value"})
    yield body("v1", "Service", "theirs", like, spec={"selector": like, "ports": [{"port": 80}]})
    budget = {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "theirs"}}}
    yield body("policy/v1", "PodDisruptionBudget", "theirs", like, spec=budget)


def _told(service: Manifest) -> Any:
    """Return the parts of a service's status that are equal in all runs, which excludes times and messages.

    The number of recycles is left out, too: kwok deletes pods by name, and on a busy machine sometimes also the next pod of
    that name, and a pod that was created from a changed template has to be deleted. Advice is left out because an autoscaler
    without metrics reports this with a delay of up to 15 s.
    """
    status = service.get("status", {})
    current = status.get("observedGeneration") == service["metadata"]["generation"]
    conditions = {one["type"]: [one["status"], one["reason"]] for one in status.get("conditions", ())}
    conditions.pop("Advice", None)
    if conditions.get("Recovered") == ["True", "Recovered"]:
        del conditions["Recovered"]
    groups = [[one["name"], one["phase"]] for one in status.get("groups", ())]
    return [current, conditions, groups, status.get("revision", "")]


def well(state: State) -> bool:
    """Return whether all pods are ready, and every service has as many groups as its spec requests."""
    told = [one for name, one in state.items() if name.startswith("InferenceService")]
    ready = all(pod[0] for name, pod in state.items() if name.startswith("Pod "))
    return (
        ready
        and not state[REMAINS]
        and all(
            current
            and all(conditions.get(name, [""])[0] == "True" for name in ("Ready", "Scaled"))
            and {phase for _, phase in groups} == {"Ready"}
            for current, conditions, groups, _ in told
        )
    )


def _restarts(pod: Manifest) -> str:
    return "".join(f".{one['restartCount']}" for one in pod.get("status", {}).get("containerStatuses", ()))


def _ready(pod: Manifest) -> bool:
    return "deletionTimestamp" not in pod["metadata"] and is_ready(pod)


def _place(pod: Manifest, taken: Mapping[PodPlace, Manifest]) -> PodPlace:
    labels = pod["metadata"]["labels"]
    where = labels["ome.io/inferenceservice"], labels["component"], labels["ome.io/revision"]
    if where[1] == "router":
        return PodPlace(*where, str(sum(one[:3] == where for one in taken)))
    return PodPlace(*where, labels["ome.io/group"], labels["apps.kubernetes.io/pod-index"])
