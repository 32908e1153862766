"""Which values of a pod spec the API server refuses. The checks need no server, and know nothing of engines."""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from ome_operator import quantity
from ome_operator.api import pod_fields
from ome_operator.api.invalid import shown
from ome_operator.lint.subject import Manifest, below, items


class RefusedValue(NamedTuple):
    """A value that the API server refuses."""

    path: tuple[str, ...]
    """The fields on the way from the pod spec to the value, without the positions in lists."""
    says: str
    """A statement of what is wrong, without a full stop."""
    remedy: str
    """The instruction how to correct it, without capital letter and full stop."""


ALLOWED: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("PodSpec", "restartPolicy"): ("Always",),
    ("PodSpec", "dnsPolicy"): ("ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"),
    ("Container", "imagePullPolicy"): ("Always", "IfNotPresent", "Never"),
    ("Container", "terminationMessagePolicy"): ("File", "FallbackToLogsOnError"),
    ("ContainerPort", "protocol"): ("TCP", "UDP", "SCTP"),
    ("HTTPGetAction", "scheme"): ("HTTP", "HTTPS"),
    ("Toleration", "operator"): ("Exists", "Equal", "Lt", "Gt"),
    ("Toleration", "effect"): ("NoSchedule", "PreferNoSchedule", "NoExecute"),
    ("NodeSelectorRequirement", "operator"): ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"),
    ("LabelSelectorRequirement", "operator"): ("In", "NotIn", "Exists", "DoesNotExist"),
    ("TopologySpreadConstraint", "whenUnsatisfiable"): ("DoNotSchedule", "ScheduleAnyway"),
    ("HostPathVolumeSource", "type"): (
        "DirectoryOrCreate", "Directory", "FileOrCreate", "File", "Socket", "CharDevice", "BlockDevice",
    ),
    ("VolumeMount", "mountPropagation"): ("None", "HostToContainer", "Bidirectional"),
    ("SeccompProfile", "type"): ("RuntimeDefault", "Unconfined", "Localhost"),
}  # fmt: skip
"""(type, field) -> the values that the API server accepts in a pod of a StatefulSet or Deployment. Where a field may be
empty, the empty string is accepted too. The operators Lt and Gt of tolerations need Kubernetes 1.35."""
_EMPTY = frozenset({("HostPathVolumeSource", "type"), ("Toleration", "operator"), ("Toleration", "effect")})
PATTERNS: Mapping[tuple[str, str], tuple[str, str]] = {
    ("ObjectFieldSelector", "fieldPath"): (
        r"metadata\.(name|namespace|uid|labels(\['.+'\])?|annotations(\['.+'\])?)|spec\.(nodeName|serviceAccountName)"
        r"|status\.(hostIP|hostIPs|podIP|podIPs)",
        "write a field such as metadata.name, metadata.labels['KEY'], spec.nodeName or status.podIP",
    ),
    ("EnvVar", "name"): (r"[ -<>-~]+", "write printable ASCII characters without ="),
    ("Container", "name"): (r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", "write at most 63 lowercase letters, digits and '-'"),
    ("Volume", "name"): (r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", "write at most 63 lowercase letters, digits and '-'"),
    ("ContainerPort", "name"): (
        r"(?!.*--)(?=.*[a-z])[a-z0-9]([-a-z0-9]{0,13}[a-z0-9])?", "write at most 15 lowercase letters, digits and '-'"
    ),
}  # fmt: skip
"""(type, field) -> the regular expression of the values that the API server accepts, and what to write instead."""
BOUNDS: Mapping[tuple[str, str], tuple[int, int]] = {
    ("ContainerPort", "containerPort"): (1, 65535),
    ("ContainerPort", "hostPort"): (0, 65535),
    ("HTTPGetAction", "port"): (1, 65535),
    ("TCPSocketAction", "port"): (1, 65535),
    ("TopologySpreadConstraint", "maxSkew"): (1, 2**31 - 1),
    ("PreferredSchedulingTerm", "weight"): (1, 100),
    ("WeightedPodAffinityTerm", "weight"): (1, 100),
    ("Probe", "initialDelaySeconds"): (0, 2**31 - 1),
    ("Probe", "timeoutSeconds"): (0, 2**31 - 1),
    ("Probe", "periodSeconds"): (0, 2**31 - 1),
    ("Probe", "successThreshold"): (0, 2**31 - 1),
    ("Probe", "failureThreshold"): (0, 2**31 - 1),
}
"""(type, field) -> the least and the greatest number that the API server accepts."""
_FORMS: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "": (lambda _: True, ""),
    "list": (lambda value: isinstance(value, list), "write a list"),
    "map": (lambda value: isinstance(value, Mapping), "write a map of keys and values"),
    "string": (lambda value: isinstance(value, str), "write a string; put quotes around numbers, true and false"),
    "integer": (
        lambda value: isinstance(value, int) and not isinstance(value, bool),
        "write a whole number without quotes",
    ),
    "boolean": (lambda value: isinstance(value, bool), "write true or false without quotes"),
    "quantity": (quantity.valid, "write an amount such as 8, 500m or 80Gi"),
}
"""Form of a value -> the check of a value, and what to write instead of another one."""


def refusals(spec: Manifest) -> Iterator[RefusedValue]:
    """Yield the values of a pod spec that the API server refuses, in the form in which the operator sends them."""
    yield from _object(spec, pod_fields.POD, (), "")
    volumes = {str(volume.get("name")) for volume in items(spec, "volumes")}
    for part in ("initContainers", "containers"):
        for box in items(spec, part):
            for mount in items(box, "volumeMounts"):
                if str(mount.get("name")) not in volumes:
                    said = f"container {box.get('name')} mounts the volume {mount.get('name')}, which the pod does not have"
                    yield RefusedValue((part, "volumeMounts"), said, "add the volume to the pod")


def _object(value: Manifest, type_: str, path: tuple[str, ...], where: str) -> Iterator[RefusedValue]:
    """Yield what is wrong with an object of a type. `where` is the path with the positions in lists. Unknown fields are
    left to other rules.
    """
    for name, form in pod_fields.forms(type_).items():
        if (inner := value.get(name)) is not None:
            at = f"{where}.{name}" if where else name
            if remedy := _refused(inner, (type_, name)):
                yield RefusedValue((*path, name), f"{at} is {shown(inner)}", remedy)
            else:
                yield from _value(inner, form, (*path, name), at)
    for said, remedy in _ACROSS.get(type_, _nothing)(value):
        yield RefusedValue(path, f"{where} {said}", remedy)


def _value(value: Any, form: str, path: tuple[str, ...], where: str) -> Iterator[RefusedValue]:
    """Yield what is wrong with a value that should have a form of `pod_fields.forms`."""
    if form.startswith("[]") and isinstance(value, list):
        for number, entry in enumerate(value):
            yield from _value(entry, form[2:], path, f"{where}[{number}]")
    elif form.startswith("{}") and isinstance(value, Mapping):
        for key, entry in value.items():
            yield from _value(entry, form[2:], path, f"{where}.{key}")
    elif form[:1].isupper() and isinstance(value, Mapping):
        yield from _object(value, form, path, where)
    else:
        kind = "list" if form.startswith("[]") else "map" if form[:1].isupper() or form.startswith("{}") else form
        fine, remedy = _FORMS[kind]
        if not fine(value):
            yield RefusedValue(path, f"{where} is {shown(value)}", remedy)


def _refused(value: Any, field: tuple[str, str]) -> str:
    """Return what to write instead of a scalar that this field does not accept; "" if it is accepted."""
    if (known := ALLOWED.get(field)) is not None and value not in known and not (value == "" and field in _EMPTY):
        same = [word for word in known if word.lower() == str(value).lower()] or list(known)
        return f"write {', '.join(same[:-1])} or {same[-1]}" if len(same) > 1 else f"write {same[0]}"
    if (bounds := BOUNDS.get(field)) is not None and isinstance(value, int) and not bounds[0] <= value <= bounds[1]:
        return f"write a number from {bounds[0]} to {bounds[1]}"
    pattern = PATTERNS.get(field)
    return pattern[1] if pattern is not None and isinstance(value, str) and not re.fullmatch(pattern[0], value) else ""


Said = Iterator[tuple[str, str]]
"""Statements of what is wrong with an object, each with the remedy."""


def _nothing(_: Manifest) -> Said:
    yield from ()


def _container(box: Manifest) -> Said:
    if not box.get("image"):
        yield "has no image", f"write the image, or correct the name of the container {box.get('name')}"


def _variable(item: Manifest) -> Said:
    if item.get("value") and item.get("valueFrom"):
        yield f"has value and valueFrom for {item.get('name')}", "keep one of them"


def _volume(volume: Manifest) -> Said:
    sources = sorted(name for name, source in volume.items() if name != "name" and source is not None)
    if len(sources) > 1:
        yield f"(volume {volume.get('name')}) has {' and '.join(sources)}", "keep one of them"


def _toleration(item: Manifest) -> Said:
    if item.get("operator") == "Exists" and item.get("value"):
        yield f"has the operator Exists and the value {shown(item['value'])}", "remove the value, or write operator: Equal"
    if not item.get("key") and item.get("operator") != "Exists":
        yield "has no key", "add the key of the taint, or write operator: Exists to tolerate every taint"


def _expression(item: Manifest) -> Said:
    operator, values = item.get("operator"), item.get("values")
    if operator in ("In", "NotIn") and not values:
        yield f"has the operator {operator} and no values", "add values, or write operator: Exists"
    elif operator in ("Exists", "DoesNotExist") and values:
        yield f"has the operator {operator} and values", "remove the values, or write operator: In"


def _resources(told: Manifest) -> Said:
    limits, requests = below(told, "limits"), below(told, "requests")
    for device, amount in {**requests, **limits}.items():
        number = quantity.parse(amount)
        if number < 0:
            yield f"asks for {amount} of {device}", "write a positive amount"
        elif "/" in device and number.denominator != 1:
            yield f"asks for {amount} of {device}, but a device cannot be divided", "write a whole number"
    for device, amount in requests.items():
        asked, limit = quantity.parse(amount), limits.get(device)
        if "/" in device and asked != quantity.parse(limit or 0):
            remedy = "write the same number for the request and the limit"
            yield f"requests {amount} of {device}, but its limit is {'not given' if limit is None else limit}", remedy
        elif limit is not None and asked > quantity.parse(limit):
            yield f"requests {amount} of {device}, which is more than its limit of {limit}", "raise the limit"


_ACROSS: Mapping[str, Callable[[Manifest], Said]] = {
    "Container": _container,
    "EnvVar": _variable,
    "Volume": _volume,
    "Toleration": _toleration,
    "NodeSelectorRequirement": _expression,
    "LabelSelectorRequirement": _expression,
    "ResourceRequirements": _resources,
}
"""Type -> the check of its fields that depend on each other."""
