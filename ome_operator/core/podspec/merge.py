"""Strategic merge of pod specs: the runtime below, the service above (docs/architecture.md, "Merge").

Lists whose entries have a key merge by it, in the order of the lower list with new entries behind; every other list is
replaced; maps merge; scalars are replaced. Nothing is templated: a literal `{{ … }}` passes through untouched.
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
"""Merge keys of the core/v1 lists that have them. `protocol` counts as TCP where it is not said."""

FREE = frozenset(
    {
        "nodeSelector", "matchLabels", "labels", "annotations", "volumeAttributes", "options", "limits", "requests",
        "overhead",
    }
)  # fmt: skip
"""Maps whose keys people choose: a label called `env` or `ports` is no field of a pod. `options`: of a FlexVolume."""

_HANDLERS = frozenset({"exec", "httpGet", "tcpSocket", "grpc", "sleep"})
_ONE_OF = {
    "startupProbe": _HANDLERS,
    "readinessProbe": _HANDLERS,
    "livenessProbe": _HANDLERS,
    "preStop": _HANDLERS,
    "postStart": _HANDLERS,
    "env": frozenset({"value", "valueFrom"}),
}
"""Keys of which an object may carry only one: naming one above drops the others below."""


def merge(lower: Any, upper: Any, field: str = "") -> Any:
    """`upper` over `lower`; new data, neither argument is changed.

    `field` is the name under which both stand: it decides how lists merge.
    """
    if isinstance(lower, Mapping) and isinstance(upper, Mapping):
        return {**lower, **upper} if field in FREE else _merge_maps(lower, upper, field)
    if field in KEYS and isinstance(lower, list) and isinstance(upper, list):
        return _merge_lists(lower, upper, field)
    return upper


def _merge_maps(lower: Mapping[str, Any], upper: Mapping[str, Any], field: str) -> Manifest:
    replaced = _ONE_OF.get(field, frozenset())
    if field == "volumes":  # a volume has one source: naming another replaces the one below
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


def over(*layers: Mapping[str, Any] | None) -> Manifest:
    """All layers merged, the first at the bottom; absent ones are skipped."""
    out: Manifest = {}
    for layer in layers:
        out = merge(out, layer) if layer else out
    return out


def into_container(pod: Mapping[str, Any], runner: Mapping[str, Any], default_name: str) -> Manifest:
    """The pod spec with the runner as its first container.

    A container of the runner's name that the pod spec has already is merged below it, and the runner's args are appended to
    that container's args.
    """
    name = runner.get("name") or default_name
    containers = list(pod.get("containers") or ())
    below: Mapping[str, Any] = next((one for one in containers if one.get("name") == name), {})
    main = {**merge(below, runner), "name": name}
    if below.get("args") and runner.get("args"):
        main["args"] = [*below["args"], *runner["args"]]
    others = [one for one in containers if one.get("name") != name]
    return {**pod, "containers": [main, *others]}
