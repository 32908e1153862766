"""Render the pods of `ome preflight`, which check nodes in the same way as the pods of a service would, and then end
(docs/preflight.md).

Each pod is rendered like a pod of the service, with the check as its only container. It has no label of the service's pods,
so that no router, Service, disruption budget or operator mistakes it for a pod of the service.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from ome_operator import keys, names
from ome_operator.core.observed.objects import Manifest
from ome_operator.core.placement.demand import expressions
from ome_operator.core.preflight import container as check_container
from ome_operator.core.preflight.mode import WARN
from ome_operator.core.render import pod_template
from ome_operator.core.render.statefulsets import StoredRole, statefulset_prefix

KEPT = (keys.KUEUE_LABEL, keys.VOLCANO_LABEL, "sidecar.istio.io/inject")
"""Labels of the service's pods that the pods of a check keep, because they determine whether and how a pod is admitted."""
OF_POD_GROUPS = frozenset({keys.KUEUE_COUNT, keys.KUEUE_SERVING, keys.KUEUE_PARENT})
"""Annotations of the service's pods that the pods of a check do not get. They belong to a pod group of Kueue, and a check
is not part of such a group. Kueue refuses pods that have these annotations and name no group."""
ANOTHERS = frozenset(
    {"initContainers", "ephemeralContainers", "readinessGates", "priorityClassName", "priority", "preemptionPolicy"}
)
"""Fields of the service's pods that the pods of a check do not get, because a check preempts no pods, fetches no files, and
is never ready."""
APPARMOR = "container.apparmor.security.beta.kubernetes.io/"
"""Prefix of AppArmor annotations. Each of them names a container of the pod, which has to exist."""
GRACE, MARGIN = 1, 120
"""Grace period of a pod in seconds, and the number of seconds by which a pod outlives the command that created it."""
_REQUIRED, _PREFERRED = "requiredDuringSchedulingIgnoredDuringExecution", "preferredDuringSchedulingIgnoredDuringExecution"
_LABEL = re.compile(r"metadata\.labels\['(.+)'\]")

Rename = Callable[[Any], Any]


class RankKey(NamedTuple):
    """The identity of a pod in a service."""

    component: str
    group: int
    rank: int


class Trial(NamedTuple):
    """The objects that are created to check groups of a service, and that are removed afterwards."""

    service: str
    namespace: str
    run: str
    headless: Manifest
    """The headless Service that gives the pods their DNS names and owns the pods. The deletion of this Service removes
    all pods."""
    pods: Mapping[RankKey, Manifest]
    is_disaggregated: bool

    @property
    def selector(self) -> str:
        """Label selector of all objects that were created for this run."""
        return f"{keys.PREFLIGHT_RUN}={self.run}"


def check_time_limit(size: int, timeout: int) -> int:
    """Return the time limit, in seconds, for the check of a group. The group has `size` ranks, and these ranks may start up
    to `timeout` seconds apart.
    """
    return timeout + (check_container.MANY_SECONDS if size >= check_container.MANY else check_container.SECONDS)


def trial(
    service: str, namespace: str, roles: Mapping[str, StoredRole], groups: Mapping[str, int], run: str, timeout: int
) -> Trial:
    """Return the objects that check some groups of a service. `roles` maps a component to its stored workloads, and `groups`
    maps a component to the number of its groups to check; components without a number are not checked. `run` is the unique
    name of this run. `timeout` is the number of seconds within which all ranks have to start.
    """
    name = names.trial(run)
    stems = {each: f"{name}-{each}" for each in roles}
    rename = _renaming(
        {statefulset_prefix(role): stems[each] for each, role in roles.items()}, names.headless(service), name
    )
    pods = {}
    for component, role in roles.items():
        if component not in groups:
            continue
        port = pod_template.port(_main(role.leader), 0)
        # The check contacts no prefill leaders: their pods end when their own group is done, and would then seem
        # unreachable.
        place = check_container.group_data(stems[component], f"{name}.{namespace}", role.size, port, prefill="")
        place["seconds"] = check_time_limit(role.size, timeout)
        for group in range(groups[component]):
            for rank in range(role.size):
                workload = role.leader if rank == 0 or role.worker is None else role.worker
                made = _pod(workload["spec"]["template"], RankKey(component, group, rank), run, rename, place, service)
                life = timeout + place["seconds"] + MARGIN
                made["spec"] |= {"activeDeadlineSeconds": life, "hostname": made["metadata"]["name"], "subdomain": name}
                made["metadata"]["namespace"] = namespace
                pods[RankKey(component, group, rank)] = made
    # Nothing connects to the port: see core/render/services.py for why it exists.
    ports = [{"name": "http", "port": next(iter(roles.values())).port, "protocol": "TCP"}]
    spec = {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": {keys.PREFLIGHT_RUN: run}, "ports": ports}
    metadata = {"name": name, "namespace": namespace, "labels": {keys.PREFLIGHT_RUN: run}}
    headless = {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec}
    return Trial(service, namespace, run, headless, pods, keys.DECODER in roles)


def with_owner_reference(pod: Manifest, headless: Manifest) -> Manifest:
    """Return the pod with an owner reference to the headless Service of the run, so that the pod is deleted with the
    Service. `headless` is the Service as the API server returned it.
    """
    metadata = headless["metadata"]
    owner = {"apiVersion": "v1", "kind": "Service", "name": metadata["name"], "uid": metadata["uid"]}
    return {**pod, "metadata": {**pod["metadata"], "ownerReferences": [owner]}}


def _pod(template: Manifest, place: RankKey, run: str, rename: Rename, known: Mapping[str, Any], service: str) -> Manifest:
    """Return a pod that is made from the pod template `template`, with the check in place of its containers. `place` is the
    rank in whose place the pod runs. `rename` replaces names of the service's objects (`_renaming`). `known` is the data
    that the check needs about its group (`container.group_data`).
    """
    own = {keys.GROUP_INDEX: str(place.group), keys.POD_INDEX: str(place.rank)}
    labels = {**(template["metadata"].get("labels") or {}), **own}
    spec = {name: value for name, value in template["spec"].items() if name not in ANOTHERS}
    main = rename(spec["containers"][0])
    main["env"] = [_literal(each, labels) for each in main.get("env") or ()]
    filled = sorted(_filled(template["spec"], main))
    box = check_container.container(main, WARN, {**known, **({"fetched": filled} if filled else {})})
    box["name"] = main["name"]  # variables and annotations refer to the container by this name
    if main.get("ports"):
        box["ports"] = main["ports"]  # the scheduler keeps pods with the same host ports apart
    spec |= {
        "containers": [box],
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": GRACE,
        "automountServiceAccountToken": False,
    }
    if spec.get("volumes"):
        spec["volumes"] = [_there(volume, service) for volume in spec["volumes"]]
    if spec.get("affinity"):
        spec["affinity"] = _affinity(spec["affinity"], labels, run)
    if spreads := spec.get("topologySpreadConstraints"):
        spec["topologySpreadConstraints"] = [each for term in spreads for each in _terms(term, labels, run, beside=False)]
    stem = f"{names.trial(run)}-{place.component}"
    metadata: Manifest = {
        "name": names.leader_pod(stem, place.group)
        if place.rank == 0
        else f"{names.worker(stem, place.group)}-{place.rank}",
        "labels": {
            **{_marked(key): value for key, value in labels.items()},
            **{key: labels[key] for key in KEPT if key in labels},
            keys.PREFLIGHT_RUN: run,
        },
    }
    notes = template["metadata"].get("annotations") or {}  # annotations request networks and other resources of pods
    others = {f"{APPARMOR}{each['name']}" for each in template["spec"]["containers"]} - {f"{APPARMOR}{main['name']}"}
    others |= OF_POD_GROUPS
    if kept := {key: value for key, value in notes.items() if key not in others}:
        metadata["annotations"] = kept
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _main(workload: Manifest) -> Manifest:
    found: Manifest = workload["spec"]["template"]["spec"]["containers"][0]
    return found


def _marked(key: str) -> str:
    """Return the name that a label of the service's pods gets on a pod of the check. No selector of the service matches
    it.
    """
    return keys.PREFLIGHT_LABEL + names.shorten_with_digest(key.replace("/", "_"), names.LABEL)


def _renaming(stems: Mapping[str, str], headless: str, name: str) -> Rename:
    """Return a function that replaces names in all texts of a container. It replaces the prefixes of the names of the
    service's pods by the prefixes to which `stems` maps them, and the name `headless` of the service's headless Service by
    `name`.
    """
    known = {**stems, headless: name}
    words = "|".join(map(re.escape, sorted(known, key=len, reverse=True)))
    pattern = re.compile(rf"(?<![\w-])(?:({words}))(?=-(?:\d|\$)|[.:/\s,]|$)")

    def rename(value: Any) -> Any:
        if isinstance(value, str):
            return pattern.sub(lambda found: known[found[1]], value)
        if isinstance(value, list):
            return [rename(each) for each in value]
        if isinstance(value, Mapping):
            return {key: each if key in ("name", "image") else rename(each) for key, each in value.items()}
        return value

    return rename


def _literal(variable: Manifest, labels: Mapping[str, str]) -> Manifest:
    """Return the environment variable with a literal value if it refers to one of the labels `labels`, because the pod of
    the check does not have these labels. Return any other variable unchanged.
    """
    path = ((variable.get("valueFrom") or {}).get("fieldRef") or {}).get("fieldPath") or ""
    found = _LABEL.fullmatch(path)
    return {"name": variable["name"], "value": labels[found[1]]} if found and found[1] in labels else variable


def _there(volume: Manifest, service: str) -> Manifest:
    """Return the volume that a pod of the check has in place of `volume`, a volume of the pods of the service `service`. A
    volume of SSH keys becomes optional, because its Secret does not exist before the service starts.
    """
    secret = volume.get("secret") or {}
    return (
        {**volume, "secret": {**secret, "optional": True}}
        if secret.get("secretName") == names.ssh_secret(service)
        else volume
    )


def _filled(spec: Manifest, main: Manifest) -> set[str]:
    """Return the paths in the engine's container `main` at which it mounts volumes that init containers may write to."""
    boxes = [box for box in spec.get("initContainers") or () if box["name"] != keys.PREFLIGHT_CONTAINER]
    written = {mount["name"] for box in boxes for mount in box.get("volumeMounts") or () if not mount.get("readOnly")}
    return {mount["mountPath"] for mount in main.get("volumeMounts") or () if mount["name"] in written}


def _affinity(affinity: Manifest, labels: Mapping[str, str], run: str) -> Manifest:
    """Return the affinity for a pod of the run `run`, in place of `affinity`, the affinity of a pod of the service. Its
    terms relate the pods of the run to each other as the terms of `affinity` relate the pods of the service. `labels` are
    the labels of the service's pod.
    """
    out = dict(affinity)
    for kind in {"podAffinity", "podAntiAffinity"} & affinity.keys():
        part, beside = dict(affinity[kind] or {}), kind == "podAntiAffinity"
        if part.get(_REQUIRED):
            part[_REQUIRED] = [each for term in part[_REQUIRED] for each in _terms(term, labels, run, beside)]
        if part.get(_PREFERRED):
            part[_PREFERRED] = [
                {**wish, "podAffinityTerm": each}
                for wish in part[_PREFERRED]
                for each in _terms(wish["podAffinityTerm"], labels, run, beside)
            ]
        out[kind] = part
    return out


def _terms(term: Manifest, labels: Mapping[str, str], run: str, beside: bool) -> Iterator[Manifest]:
    """Yield the affinity terms that replace the term `term`. A term that matches pods with the labels `labels`, and thus
    pods of the service, is replaced by a term that matches pods of the run `run`. If `beside` is True, the term itself is
    yielded, too. Any other term is yielded unchanged.
    """
    selector = term.get("labelSelector")
    own = selector is not None and all(each.is_met(labels) for each in expressions(selector))
    if beside or not own:
        yield term
    if selector is None or not own:
        return
    same = {_marked(key): value for key, value in (selector.get("matchLabels") or {}).items()}
    asked = [{**each, "key": _marked(each["key"])} for each in selector.get("matchExpressions") or ()]
    marked = {**term, "labelSelector": {"matchLabels": {**same, keys.PREFLIGHT_RUN: run}}}
    if asked:
        marked["labelSelector"]["matchExpressions"] = asked
    for name in {"matchLabelKeys", "mismatchLabelKeys"} & term.keys():
        marked[name] = [_marked(key) for key in term[name] or ()]
    yield {name: value for name, value in marked.items() if name not in ("namespaces", "namespaceSelector")}
