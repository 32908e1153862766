"""Objects that set every field that users of OME may have in their YAML files, made from `fields.yaml`."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ome_operator.api.kinds import KINDS, Kind
from tests.support.parts import read_documents

Tree = dict[str, Any]
FIELDS: Tree = read_documents(Path(__file__).with_name("fields.yaml"))[0]
VARIANTS = ("minAvailable", "maxUnavailable")
"""Fields that exclude each other: each variant of a sample leaves one of them out."""

_CONTAINER = {"name": "ome-container", "image": "x:1", "args": ["--a", "{{ b }}"], "env": [{"name": "A", "value": "1"}]}
_AFFINITY = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}}
_CORE: dict[str, Any] = {
    "container": _CONTAINER,
    "affinity": _AFFINITY,
    "nodeAffinity": _AFFINITY["nodeAffinity"],
    "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
    "volumes": [{"name": "v", "emptyDir": {"medium": "Memory"}}],
    "volumeMounts": [{"name": "v", "mountPath": "/v"}],
    "env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
    "resources": {"limits": {"nvidia.com/gpu": 8}},
    "pod": {
        "containers": [_CONTAINER],
        "hostNetwork": False,
        "volumes": [{"name": "v", "hostPath": {"path": "/v"}}],
        "terminationGracePeriodSeconds": 30,
        "shareProcessNamespace": True,
        "aFieldOfTomorrow": {"deep": [1]},
    },
}
_SPECIAL: dict[str, Any] = {
    "storageUri": "hf://moonshotai/Kimi-K2-Instruct@main",
    "path": "/raid/models/kimi-k2",
    "modelParameterSize": "1.04T",
    "maxReplicas": 2,
    "maxSurge": "25%",
    "minAvailable": "50%",
    "status": "True",
}


def sample(kind: Kind, leave_out: str) -> Tree:
    """Return an object that sets every known field of its kind, except for the one to leave out."""
    trees = FIELDS[kind.kind]
    metadata = {"name": "every-field"} | ({"namespace": "default"} if kind.namespaced else {})
    body = {"apiVersion": f"{kind.group}/{kind.version}", "kind": kind.kind, "metadata": metadata}
    body |= {part: _value(part, trees[part], leave_out) for part in trees}
    return body


def kinds() -> Iterator[Kind]:
    """Return the kinds of the API group ome.io that have known fields."""
    return (kind for kind in KINDS if kind.group == "ome.io" and kind.kind in FIELDS)


def paths(tree: Any, at: str = "") -> Iterator[str]:
    """Yield the dotted path of every leaf."""
    if not isinstance(tree, dict):
        yield at
        return
    for key, below in tree.items():
        yield from paths(below, f"{at}.{key}" if at else key)


def _value(name: str, tree: Any, leave_out: str) -> Any:
    if isinstance(tree, str):
        return _SPECIAL.get(name, _leaf(tree))
    out: Tree = {}
    for key, below in tree.items():
        bare = key.removesuffix("[]").removesuffix("{}")
        if key == "*":
            out |= _leaf(below)
        elif bare != leave_out:
            one = _value(bare, below, leave_out)
            out[bare] = [one] if key.endswith("[]") else {"a": one} if key.endswith("{}") else one
    return out


def _leaf(kind: str) -> Any:
    if kind.startswith("core "):
        return _CORE[kind.removeprefix("core ")]
    if kind.startswith("one of "):
        return kind.removeprefix("one of ").split("|")[-1]
    return {"int": 1, "bool": True, "string": "x", "int or string": 1, "object": {"a": {"b": [1]}}}[kind]
