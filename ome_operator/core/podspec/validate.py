"""Check that the parts of a pod spec have the right types, and describe the first mistake.

The CRDs leave these fields open, so they can contain values of any type: a map of variables instead of a list, a string as
args. Layers are checked before they are merged, because a merge of values of the wrong type would hide the mistake.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from ome_operator import quantity
from ome_operator.api.invalid import as_yaml
from ome_operator.core.podspec.merge import FREE

_ENTRIES: Mapping[str, str] = {
    "containers": "name", "initContainers": "name", "env": "name", "ports": "containerPort", "volumes": "name",
    "volumeMounts": "mountPath", "volumeDevices": "devicePath", "imagePullSecrets": "name", "hostAliases": "ip",
    "tolerations": "", "envFrom": "", "topologySpreadConstraints": "", "nodeSelectorTerms": "", "matchExpressions": "key",
    "matchFields": "key",
    "requiredDuringSchedulingIgnoredDuringExecution": "", "preferredDuringSchedulingIgnoredDuringExecution": "",
    "resourceClaims": "name", "claims": "name",
}  # fmt: skip
"""Maps the name of each list of maps to the key that each of its entries must have; "" if no key is required."""
_MAPS = frozenset(
    {
        "resources", "limits", "requests", "securityContext", "capabilities", "lifecycle", "nodeSelector", "affinity",
        "podAffinity", "podAntiAffinity", "labelSelector", "namespaceSelector",
        "nodeAffinity", "nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution", "valueFrom", "overhead",
        "matchLabels", "readinessProbe", "livenessProbe", "startupProbe", "preStop", "postStart", "exec", "httpGet",
        "tcpSocket", "grpc", "sleep",
    }
)  # fmt: skip
"""Names of fields that must be maps. If a name has two meanings, the name of the parent precedes it: for example, the
required terms of pod affinity are a list."""
_LISTS_OF_TEXTS = frozenset({"command", "args", "add", "drop", "values", "namespaces"})
_TEXTS = frozenset(
    {
        "name", "mountPath", "devicePath", "ip", "key", "protocol", "topologyKey", "whenUnsatisfiable", "serviceAccountName",
        "operator", "effect",
    }
)  # fmt: skip
"""Names of fields that must be strings, because they identify entries or the operator reads them. `image` is not
included, because the image of a volume is a map."""
_NUMBERS = frozenset({"containerPort", "terminationGracePeriodSeconds"})
_AMOUNTS = frozenset({"sizeLimit", "divisor"})
_LEAVES = _TEXTS | _NUMBERS | _AMOUNTS | {"value"}
_MAPS_OF_AMOUNTS = frozenset({"limits", "requests", "overhead"})


def first_mistake(value: Any, location: str, field: str = "") -> str:
    """Return a message about the first value of the wrong type in `value`, whose path is `location`; "" if all types are
    right.

    `field` is the name of the field that holds the value; "" for a pod spec or container itself.
    """
    if value is None:
        return ""
    if field in _ENTRIES:
        return _wrong_entries(value, location, field)
    if field in _LISTS_OF_TEXTS:
        fine = isinstance(value, list) and all(isinstance(item, str | int | float) for item in value)
        return "" if fine else f"{location} must be a list of strings"
    if isinstance(value, Mapping) and field not in _LEAVES:
        return _wrong_map(value, location, field)
    if isinstance(value, list) and field not in _MAPS | _LEAVES:
        return _first(first_mistake(item, f"{location}[{number}]") for number, item in enumerate(value))
    return _wrong_one(value, location, field)


def _wrong_map(value: Mapping[str, Any], location: str, field: str) -> str:
    if field in _MAPS_OF_AMOUNTS:
        return _first(_wrong_amount(amount, f"{location}.{name}") for name, amount in value.items() if amount is not None)
    inside = () if field in FREE else value.items()
    return _first(first_mistake(inner, f"{location}.{name}", _field(field, str(name))) for name, inner in inside)


def _wrong_one(value: Any, location: str, field: str) -> str:
    """Return a message about a scalar value that has the wrong type; "" if the type is right. `location` is the path of the
    value.
    """
    if field in _MAPS:
        return f"{location} must be a map"
    if field in _TEXTS and not isinstance(value, str):
        return f"{location} is {as_yaml(value)}: write a string; put quotes around numbers, true and false"
    if field in _NUMBERS and quantity.whole_number(value) is None:
        return f"{location} must be a whole number"
    if field == "value" and not isinstance(value, str | int | float):
        return f"{location} is {as_yaml(value)}: write a string, a number, true or false"
    return _wrong_amount(value, location) if field in _AMOUNTS else ""


def _wrong_amount(value: Any, location: str) -> str:
    if quantity.is_valid(value):
        return ""
    return f'{location} is {as_yaml(value)}: write an amount such as 8, "500m" or "80Gi"'


def _field(parent: str, name: str) -> str:
    """Return the name of a field as the tables of this module contain it."""
    return f"{parent}.{name}" if f"{parent}.{name}" in _MAPS else name


def _wrong_entries(value: Any, location: str, field: str) -> str:
    key = _ENTRIES[field]
    if not isinstance(value, list):
        return f"{location} must be a list of maps{f', each with a {key}' if key else ''}"
    for number, entry in enumerate(value):
        if not isinstance(entry, Mapping) or (key and entry.get(key) in (None, "")):
            return f"{location}[{number}] must be a map with a {key}" if key else f"{location}[{number}] must be a map"
    return _first(first_mistake(entry, f"{location}[{number}]") for number, entry in enumerate(value))


def _first(sentences: Iterable[str]) -> str:
    return next((sentence for sentence in sentences if sentence), "")
