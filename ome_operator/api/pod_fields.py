"""The fields of pods and of metadata that Kubernetes has, for suggestions and for checks without a cluster.

`data/pod_fields.json` is generated from the package `kubernetes` by `python -m tests.support.pod_fields`.
"""

import json
import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from functools import cache

from ome_operator.util import package_data

POD, CONTAINER, METADATA = "PodSpec", "Container", "ObjectMeta"
MEANT = {
    "replicas": "minReplicas and maxReplicas",
    "prefill": "engine",
    "decode": "decoder",
    "modelName": "name",
    "runtimeName": "name",
    "environment": "env",
    "arguments": "args",
    "configuration": "config",
}
"""Field of other kinds, word for a component or a name, or word that a field abbreviates -> the fields that do the same."""


@cache
def _types() -> Mapping[str, Mapping[str, str]]:
    found: Mapping[str, Mapping[str, str]] = json.loads(package_data.text("ome_operator.api", "pod_fields.json"))
    return found


@cache
def fields(type_: str) -> Mapping[str, str]:
    """Return the fields of a type, each with the type of its value: "" for a scalar and for a map whose keys users choose.
    Return an empty map for an unknown type. A list has the type of its entries.
    """
    found = {name: form.removeprefix("[]") for name, form in field_forms(type_).items()}
    return {name: inner if inner[:1].isupper() else "" for name, inner in found.items()}


def field_forms(type_: str) -> Mapping[str, str]:
    """Return the fields of a type, each with the form of its value: the name of a type (`Probe`), `string`, `integer`,
    `boolean`, `quantity`, or "" for a value that may have several forms. A prefix says that the value is a list (`[]`) or
    a map with any keys (`{}`) of such values.
    """
    return _types().get(type_, {})


def type_at(chain: Iterable[str], type_: str = POD) -> str:
    """Return the type of the value at the end of a chain of fields that begins at `type_`; "" if it has no known fields."""
    for name in chain:
        type_ = fields(type_).get(name, "")
    return type_


def type_of(name: str) -> str:
    """Return the type of the field with this name in a pod or a container; "" if it has no fields of its own."""
    if name == "runner":
        return CONTAINER
    return next((found for type_ in (POD, CONTAINER, "Affinity") if (found := fields(type_).get(name))), "")


REMOVE = "remove it"
_COMMON = frozenset({"hostPath", "configMap", "secret", "emptyDir", "persistentVolumeClaim"})
"""Kinds of volumes that users write more often than others."""
_FEW = 3
"""Maximum number of fields that a suggestion names."""


def advice(name: str, known: Iterable[str], type_: str) -> str:
    """Return what to do about a field `name` in a value of a type of core/v1 that does not have it. `known` are the fields
    that are valid there.
    """
    if near := closest_field(name, known):
        return f"did you mean {near}?"
    if type_ == "PodSecurityContext" and name in fields("SecurityContext"):
        return "move it to the securityContext of the container"
    inner = _inner(name, type_, known)
    if len(inner) > _FEW:
        return f"write it below the field to which it belongs, such as {inner[0]}"
    found = inner or _of_same_words(name, known, type_)
    *others, last = found if 0 < len(found) <= _FEW else ("",)
    return f"did you mean {' or '.join(filter(None, (', '.join(others), last)))}?" if last else REMOVE


def _of_same_words(name: str, known: Iterable[str], type_: str) -> tuple[str, ...]:
    """Return the fields among `known` that begin or end with the words of a field `name`, or with which `name` begins or
    ends: `secretName` for `name`, `name` for `configMapName`, `httpGet` for `http`; () for a name without words, and for a
    pod, which has too many fields.
    """
    words, found = _words(name), []
    if type_ == POD or not words:
        return ()
    for field in sorted(known):
        short, long = sorted((words, _words(field)), key=len)
        if short in (long[: len(short)], long[-len(short) :]):
            found.append(field)
    return tuple(found)


def _words(name: str) -> list[str]:
    """Return the words of a name in camel case, in lower case."""
    return [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z0-9]+", name)]


def _inner(name: str, type_: str, known: Iterable[str]) -> tuple[str, ...]:
    """Return the paths at which a value of a type may contain a field `name` one level deeper, such as `resources.limits`.
    Fields of containers are left out for a pod, because `misplaced.home` knows the container that is meant.
    """
    if type_ == "ResourceRequirements" and ("/" in name or name in ("cpu", "memory")):
        return (f"limits.{name}",)
    if type_ == POD and name in fields(CONTAINER):
        return ()
    if type_ == POD and name in fields("ResourceRequirements") and "runner" in known:
        return (f"runner.resources.{name}",)  # a pod's own resources cannot have GPUs
    below = (outer for outer, of in fields(type_).items() if of and name in fields(of) and outer != "ephemeralContainers")
    common = sorted(below, key=lambda outer: outer not in _COMMON)
    return tuple(f"{outer}{'[]' if field_forms(type_)[outer].startswith('[]') else ''}.{name}" for outer in common)


def closest_field(name: str, known: Iterable[str]) -> str:
    """Return the field among `known` that the user of a field `name` probably meant; "" if none is similar. A field of a
    container that is written beside `runner` belongs below it.
    """
    names = sorted(known)
    if name in MEANT and MEANT[name].partition(" ")[0] in names:
        return MEANT[name]
    if "runner" in names and name in fields(CONTAINER):
        return f"runner.{name}"
    same = [field for field in names if field.lower() == name.lower()]
    if close := same or get_close_matches(name, names, 1, cutoff=0.8):
        return close[0]
    words = [word for word, fields in MEANT.items() if fields.partition(" ")[0] in names]
    return next((MEANT[word] for word in get_close_matches(name, words, 1, cutoff=0.8)), "")
