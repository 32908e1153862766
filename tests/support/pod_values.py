"""Values of pod specs that an API server accepts, and values that it refuses: for every field, every table and every check
of `lint/pod_values.py`.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from ome_operator.api import pod_fields
from ome_operator.lint.pod_values import ALLOWED, BOUNDS, PATTERNS

Json = dict[str, Any]
WRONG: dict[str, Any] = {"string": 1, "integer": "1", "boolean": "true", "quantity": "1 GB"}
"""Form of a scalar -> a value of another form."""
NEWER = frozenset({"Lt", "Gt"})
"""Operators of tolerations that need a newer version than the control plane of the tests."""
EXAMPLES: dict[tuple[str, str], tuple[tuple[Any, ...], tuple[Any, ...]]] = {
    ("ObjectFieldSelector", "fieldPath"): (
        ("metadata.name", "metadata.uid", "metadata.labels['a']", "spec.nodeName", "status.hostIP", "status.podIPs"),
        ("status.podip", "spec.nodename", "metadata.creationTimestamp", "podIP"),
    ),
    ("EnvVar", "name"): (("A", "a.b-c", "1A", "A B"), ("A=B", "Ä")),
    ("Container", "name"): (("a-1",), ("A", "a_b", "a" * 64)),
    ("Volume", "name"): (("a-1", "1a"), ("A", "a_b", "a.b", "a" * 64)),
    ("ContainerPort", "name"): (("http", "a-1", "1-a"), ("HTTP", "a--b", "1", "a" * 16)),
}
"""Field of PATTERNS -> values that the API server accepts, and values that it refuses."""


class Case(NamedTuple):
    """A pod spec, and whether an API server refuses it."""

    what: str
    spec: Json
    refused: bool


def pod(box: Json | None = None, **spec: Any) -> Json:
    """Return a valid pod spec with these fields in its container and in itself."""
    return {"containers": [{"name": "main", "image": "engine:1", **(box or {})}], **spec}


def cases() -> Iterator[Case]:
    """Yield all cases."""
    yield Case("the smallest pod", pod(), False)
    yield from _forms()
    for (type_, field), known in ALLOWED.items():
        for value in (*known, "wrong", known[0].lower()):
            if value not in NEWER or type_ != "Toleration":
                yield Case(f"{type_}.{field} {value}", placed(type_, field, value), value not in known)
    for (type_, field), (least, most) in BOUNDS.items():
        for value in (least, least - 1, *([] if most > 2**31 else [most, most + 1])):
            yield Case(f"{type_}.{field} {value}", placed(type_, field, value), not least <= value <= most)
    for (type_, field), sides in EXAMPLES.items():
        for refused, values in zip((False, True), sides, strict=True):
            yield from (Case(f"{type_}.{field} {value}", placed(type_, field, value), refused) for value in values)
    for refused, specs in ((False, FINE), (True, REFUSED)):
        yield from (Case(what, spec, refused) for what, spec in specs.items())


def _forms() -> Iterator[Case]:
    """Yield a value of another form for each field of each type below a pod spec."""
    paths: dict[str, tuple[tuple[str, bool], ...]] = {pod_fields.POD: ()}
    left = [pod_fields.POD]
    while left:
        type_ = left.pop(0)
        for field, form in pod_fields.forms(type_).items():
            bare, many = form.removeprefix("[]").removeprefix("{}"), form.startswith("[]")
            wrong = {"a": WRONG[bare]} if form.startswith("{}") else WRONG.get(bare, "text")
            if form:
                yield Case(
                    f"{type_}.{field} of another form", _nested(paths[type_], {field: [wrong] if many else wrong}), True
                )
            if many or form.startswith("{}"):
                yield Case(f"{type_}.{field} as text", _nested(paths[type_], {field: "text"}), True)
            if bare[:1].isupper() and bare not in paths:
                paths[bare] = (*paths[type_], (field, many))
                left.append(bare)


def _nested(path: tuple[tuple[str, bool], ...], value: Json) -> Json:
    for field, many in reversed(path):
        value = {field: [value] if many else value}
    return {**pod(), **value}


def placed(type_: str, field: str, value: Any) -> Json:
    """Return a pod spec that is valid but for this value."""
    own = {field: value}
    match type_:
        case "PodSpec":
            return pod(**own, **({"dnsConfig": {"nameservers": ["10.0.0.1"]}} if value == "None" else {}))
        case "Container":
            return pod(own)
        case "ContainerPort":
            return pod({"ports": [{"containerPort": 80, **own}]})
        case "HTTPGetAction" | "TCPSocketAction":
            return pod({"readinessProbe": {"httpGet" if type_[0] == "H" else "tcpSocket": {"port": 80, **own}}})
        case "Probe":
            return pod({"readinessProbe": {"httpGet": {"port": 80}, **own}})
        case "Toleration":
            return pod(tolerations=[{"key": "gpu", "operator": "Exists", **own}])
        case "NodeSelectorRequirement":
            return _affinity("nodeAffinity", {"nodeSelectorTerms": [{"matchExpressions": [_expression(value)]}]})
        case "LabelSelectorRequirement":
            return _spread(labelSelector={"matchExpressions": [_expression(value)]})
        case "TopologySpreadConstraint":
            return _spread(**own)
        case "PreferredSchedulingTerm":
            term = {"preference": {"matchExpressions": [_expression("Exists")]}, **own}
            return pod(affinity={"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [term]}})
        case "WeightedPodAffinityTerm":
            term = {"podAffinityTerm": {"topologyKey": "k", "labelSelector": {}}, **own}
            return pod(affinity={"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [term]}})
        case "HostPathVolumeSource":
            return pod(volumes=[{"name": "v", "hostPath": {"path": "/x", **own}}])
        case "Volume":
            return pod(volumes=[{"emptyDir": {}, **own}])
        case "VolumeMount":
            box = {"volumeMounts": [{"name": "v", "mountPath": "/v", **own}], "securityContext": {"privileged": True}}
            return pod(box, volumes=[{"name": "v", "emptyDir": {}}])
        case "SeccompProfile":
            profile = {**own, **({"localhostProfile": "a"} if value == "Localhost" else {})}
            return pod({"securityContext": {"seccompProfile": profile}})
        case "ObjectFieldSelector":
            return pod({"env": [{"name": "A", "valueFrom": {"fieldRef": own}}]})
        case "EnvVar":
            return pod({"env": [own]})
    raise ValueError(f"no pod has a {type_}: add a case")


def _expression(operator: str) -> Json:
    values = {"In": ["a"], "NotIn": ["a"], "Gt": ["1"], "Lt": ["1"]}.get(operator)
    return {"key": "k", "operator": operator, **({"values": values} if values else {})}


def _affinity(kind: str, required: Any) -> Json:
    return pod(affinity={kind: {"requiredDuringSchedulingIgnoredDuringExecution": required}})


def _spread(**own: Any) -> Json:
    constraint = {"maxSkew": 1, "topologyKey": "k", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {}}
    return pod(topologySpreadConstraints=[{**constraint, **own}])


def _sizes(limits: Json, requests: Json) -> Json:
    return pod({"resources": {"limits": limits, "requests": requests}})


GPU = "nvidia.com/gpu"
FINE: dict[str, Json] = {
    "empty values": pod(
        volumes=[{"name": "v", "hostPath": {"path": "/x", "type": ""}}],
        tolerations=[{"key": "k", "operator": "", "effect": ""}],
    ),
    "a volume without source": pod(volumes=[{"name": "v"}]),
    "every taint": pod(tolerations=[{"operator": "Exists"}]),
    "value of a taint": pod(tolerations=[{"key": "k", "operator": "Equal", "value": "v"}, {"key": "k", "value": "w"}]),
    "mount": pod({"volumeMounts": [{"name": "v", "mountPath": "v"}]}, volumes=[{"name": "v", "emptyDir": {}}]),
    "an empty value beside valueFrom": pod(
        {"env": [{"name": "A", "value": "", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}]}
    ),
    "amounts": _sizes({GPU: 8, "memory": "10Gi", "cpu": 1.5}, {GPU: "8", "memory": "9Gi", "cpu": "1500m"}),
    "a limit alone": _sizes({GPU: 8}, {"memory": "10Gi"}),
    "a port by name": pod(
        {"readinessProbe": {"httpGet": {"port": "http"}}, "ports": [{"name": "http", "containerPort": 80}]}
    ),
}
"""Pod specs that an API server accepts."""
REFUSED: dict[str, Json] = {
    "no image": {"containers": [{"name": "main"}]},
    "value and valueFrom": pod(
        {"env": [{"name": "A", "value": "x", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}]}
    ),
    "two sources": pod(volumes=[{"name": "v", "emptyDir": {}, "hostPath": {"path": "/x"}}]),
    "no volume": pod({"volumeMounts": [{"name": "v", "mountPath": "/v"}]}),
    "no volume of an init container": pod(
        initContainers=[{"name": "a", "image": "a:1", "volumeMounts": [{"name": "v", "mountPath": "/v"}]}]
    ),
    "Exists with a value": pod(tolerations=[{"key": "k", "operator": "Exists", "value": "v"}]),
    "a toleration without key": pod(tolerations=[{"operator": "Equal", "value": "v"}]),
    "In without values": _affinity(
        "nodeAffinity", {"nodeSelectorTerms": [{"matchExpressions": [{"key": "k", "operator": "In"}]}]}
    ),
    "Exists with values": _spread(labelSelector={"matchExpressions": [{"key": "k", "operator": "Exists", "values": ["a"]}]}),
    "negative": _sizes({GPU: -4}, {}),
    "half a GPU": _sizes({GPU: "500m"}, {}),
    "request above limit": _sizes({"memory": "10Gi"}, {"memory": "20Gi"}),
    "request of a device without limit": _sizes({}, {GPU: 4}),
    "request of a device differs": _sizes({GPU: 8}, {GPU: 4}),
}
"""Pod specs that an API server refuses."""
assert EXAMPLES.keys() == PATTERNS.keys(), "every pattern has examples"
