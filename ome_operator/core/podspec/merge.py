"""Strategic merge of pod specs: values of the service replace values of the runtime (docs/architecture.md, "Merge").

Lists whose entries have a merge key are merged by this key: entries of the lower list keep their order, and new entries
follow. Other lists are replaced, maps are merged, and scalars are replaced. There are no templates: a literal `{{ … }}` is
copied unchanged.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from ome_operator.core.observed.objects import Manifest

KEYS = {
    "containers": ("name",),
    "initContainers": ("name",),
    "env": ("name",),
    "ports": ("containerPort", "protocol"),
    "volumeMounts": ("mountPath",),
    "volumeDevices": ("devicePath",),
    "volumes": ("name",),
    "imagePullSecrets": ("name",),
    "hostAliases": ("ip",),
    "resourceClaims": ("name",),
    "claims": ("name",),
    "topologySpreadConstraints": ("topologyKey", "whenUnsatisfiable"),
}
"""Maps each list field of core/v1 to the fields that form the merge key of its entries. `protocol` defaults to TCP."""

FREE = frozenset(
    {
        "nodeSelector", "matchLabels", "labels", "annotations", "volumeAttributes", "options", "limits", "requests",
        "overhead",
    }
)  # fmt: skip
"""Map fields whose keys users choose. Their entries are not merged as fields of a pod, even if a label is called `env` or
`ports`. `options` belongs to a FlexVolume."""

_HANDLERS = frozenset({"exec", "httpGet", "tcpSocket", "grpc", "sleep"})
_ONE_OF = {
    "startupProbe": _HANDLERS,
    "readinessProbe": _HANDLERS,
    "livenessProbe": _HANDLERS,
    "preStop": _HANDLERS,
    "postStart": _HANDLERS,
    "env": frozenset({"value", "valueFrom"}),
}
"""Maps the name of an object's field to a set of fields of which the object may have only one. If the upper layer sets one
of these fields, the other fields of the set are removed from the lower layer."""


def merge(lower: Any, upper: Any, field: str = "") -> Any:
    """Merge `upper` over `lower` and return new data; the arguments are not changed.

    `field` is the name of the field that both values belong to. It determines how lists are merged.
    """
    if isinstance(lower, Mapping) and isinstance(upper, Mapping):
        return {**lower, **upper} if field in FREE else _merge_maps(lower, upper, field)
    if field in KEYS and isinstance(lower, list) and isinstance(upper, list):
        return _merge_lists(lower, upper, field)
    return upper


def _merge_maps(lower: Mapping[str, Any], upper: Mapping[str, Any], field: str) -> Manifest:
    replaced = _ONE_OF.get(field, frozenset())
    if field == "volumes":  # A volume has a single source, so another source replaces the source of the lower layer.
        replaced = frozenset(lower) - {"name"}
    out = dict(lower)
    if replaced & upper.keys() or (field == "volumes" and upper.keys() - {"name"}):
        out = {key: value for key, value in lower.items() if key not in replaced - upper.keys()}
    for key, value in upper.items():
        out[key] = merge(out[key], value, key) if key in out else value
    return out


def _merge_lists(lower: Iterable[Any], upper: Iterable[Any], field: str) -> list[Any]:
    entries: dict[Any, Any] = {}
    for item in (*lower, *upper):
        key = _key(item, field)
        entries[key] = merge(entries[key], item, field) if key in entries else item
    return list(entries.values())


def _key(item: Any, field: str) -> Any:
    if not isinstance(item, Mapping):
        return repr(item)
    return tuple(item.get(part, "TCP" if part == "protocol" else None) for part in KEYS[field])


def merge_layers(*layers: Mapping[str, Any] | None) -> Manifest:
    """Return the merge of all layers. The lowest layer comes first, and layers that are None are skipped."""
    out: Manifest = {}
    for layer in layers:
        out = merge(out, layer) if layer else out
    return out


def into_container(pod: Mapping[str, Any], runner: Mapping[str, Any], default_name: str) -> Manifest:
    """Return the pod spec with the runner as its first container.

    An existing container with the name of the runner is the lower layer of the merge, and the runner's args are appended to
    its args.
    """
    name = runner.get("name") or default_name
    containers = list(pod.get("containers") or ())
    below: Mapping[str, Any] = next((container for container in containers if container.get("name") == name), {})
    main = {**merge(below, runner), "name": name}
    if below.get("args") and runner.get("args"):
        main["args"] = [*below["args"], *runner["args"]]
    others = [container for container in containers if container.get("name") != name]
    return {**pod, "containers": [main, *others]}
