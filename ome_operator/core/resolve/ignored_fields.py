"""What an object says and nothing acts on, as sentences for the condition Advice.

`core/resolve/no_effect.py` is the list.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from ome_operator import keys
from ome_operator.api import Component, InferenceService, Object, Runtime, RuntimeSpec, ServiceSpec, Spec, migrate
from ome_operator.core.resolve.no_effect import (
    ANNOTATIONS,
    FIELDS,
    OF_PODS,
    READ,
    READ_ON_PODS,
    READ_WHERE_EXPOSED,
    Only,
    Tree,
    Unless,
)
from ome_operator.util.memoize import memoize_by_identity

NOTHING: frozenset[str] = frozenset()
OMES = re.compile(r"([a-z-]+\.)?ome\.io/|ome\.oracle\.com/|kueue-enabled$")
"""Annotations that mean something to OME, or would."""
PARTS = {"engine": "engine", "decoder": "decoder", "router": "router"}
PARTS |= {f"{name}Config": name for name in PARTS} | {"predictor": keys.ENGINE}
"""Fields that are a component -> the component."""


def in_service(service: InferenceService, runtime: Runtime | None, exposed: bool) -> tuple[str, ...]:
    """The sentences of a service as it was written, and of the components that it has from its runtime.

    `exposed`: the operator makes an Ingress or an HTTPRoute for it, so annotations about them count.
    """
    said = [*ignored(service, READ_WHERE_EXPOSED if exposed else NOTHING)]
    if runtime is not None:
        said += _in_runtime(service.spec, runtime)
    return tuple(dict.fromkeys(said))


@memoize_by_identity(1024)
def _in_runtime(spec: ServiceSpec, runtime: Runtime) -> tuple[str, ...]:
    said: list[str] = []
    tree = FIELDS[runtime.kind]
    for name in [f"{component}Config" for component in migrate(spec).components]:
        part = {name: getattr(runtime.spec, f"{name.removesuffix('Config')}_config")}
        written = {key: value.dump() for key, value in part.items() if isinstance(value, Component)}
        said += [f"runtime {runtime.name}: {told}" for told in _fields(written, {name: tree[name]}, "spec")]
    return tuple(said)


def ignored(item: Object[Any], more: frozenset[str] = NOTHING) -> tuple[str, ...]:
    """One sentence for each field and annotation of an object that has no effect; `more`: annotations that have."""
    return _ignored(item.kind, item.spec, item.annotations, more)


@memoize_by_identity(2048)
def _ignored(kind: str, of: Spec, annotations: Mapping[str, str], more: frozenset[str]) -> tuple[str, ...]:
    """By what they are about: a service whose status alone is another has the same."""
    spec, tree = of.dump(), FIELDS.get(kind, {})
    said = list(_annotations(annotations, READ.get(kind, NOTHING) | more, ""))
    if isinstance(of, ServiceSpec) and spec.get("predictor") and migrate(of) is of:
        said.append(_sentence("spec.predictor", "spec.model, spec.runtime and spec.engine stand in its place"))
        del spec["predictor"]
    said += _fields(spec, tree, "spec")
    for name, component in PARTS.items():
        notes = (spec.get(name) or {}).get("annotations") if isinstance(spec.get(name), Mapping) else None
        said += _annotations(notes or {}, READ_ON_PODS[component], f" of spec.{name}")
    if isinstance(of, RuntimeSpec):
        said += _annotations(of.annotations or {}, READ_ON_PODS[keys.ENGINE], " of spec")
    return tuple(dict.fromkeys(said))


def _fields(value: Mapping[str, Any], tree: Tree, where: str) -> Iterator[str]:
    for name, below in tree.items():
        field = name.removesuffix("[]").removesuffix("{}")
        found, at = value.get(field), f"{where}.{field}"
        if not found:
            continue
        if isinstance(below, str):
            yield _sentence(at, below)
        elif isinstance(below, Unless):
            if found != below.value:
                yield _sentence(at, below.hint)
        elif isinstance(below, Only):
            yield from (_sentence(f"{at}.{key}", below.hint) for key in sorted(found.keys() - below.keys))
        elif name.endswith("[]"):
            for entry in found:
                yield from _fields(entry, below, at)
        elif name.endswith("{}"):
            for key, entry in found.items():
                yield from _fields(entry, below, f"{at}.{key}")
        else:
            yield from _fields(found, below, at)


def _annotations(notes: Mapping[str, str], read: frozenset[str], where: str) -> Iterator[str]:
    for name in sorted(notes):
        if OMES.match(name) and name not in read:
            of_pods = "" if where else OF_PODS if any(name in known for known in READ_ON_PODS.values()) else ""
            yield _sentence(f"annotation {name}{where}", of_pods or ANNOTATIONS.get(name, ""))


def _sentence(what: str, hint: str) -> str:
    return f"{what} has no effect" + (f": {hint}" if hint else "")
