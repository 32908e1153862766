"""Find the fields and annotations of an object that have no effect, and describe them in sentences for the condition
Advice.

`core/resolve/no_effect.py` is the table of these fields and annotations.
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
    NoEffectUnless,
    ReadKeysOnly,
    Tree,
)
from ome_operator.util.memoize import memoize_by_identity

NOTHING: frozenset[str] = frozenset()
OMES = re.compile(r"([a-z-]+\.)?ome\.io/|ome\.oracle\.com/|kueue-enabled$")
"""Matches annotations in OME's domains. Such an annotation has no effect unless a table lists it as an annotation that
the operator reads."""
LABELS_OF_OPERATOR = frozenset(
    {keys.MANAGED_BY, keys.SERVICE, keys.COMPONENT, keys.REVISION, keys.WORKER_INDEX, keys.GROUP_INDEX}
)
"""Labels of pods whose values the operator sets, so that a value of the user has no effect."""
PARTS = {"engine": "engine", "decoder": "decoder", "router": "router"}
PARTS |= {f"{name}Config": name for name in PARTS} | {"predictor": keys.ENGINE}
"""Maps each field of a spec that describes a component to the name of the component."""


def in_service(service: InferenceService, runtime: Runtime | None, exposed: bool) -> tuple[str, ...]:
    """Return the sentences about a service as the user wrote it, and about the components that the service takes from its
    runtime.

    `exposed`: True if the operator creates an Ingress or an HTTPRoute for the service, so that it reads the annotations for
    them.
    """
    sentences = [*ignored_field_messages(service, READ_WHERE_EXPOSED if exposed else NOTHING)]
    if runtime is not None:
        sentences += _in_runtime(service.spec, runtime)
    return tuple(dict.fromkeys(sentences))


@memoize_by_identity(1024)
def _in_runtime(spec: ServiceSpec, runtime: Runtime) -> tuple[str, ...]:
    sentences: list[str] = []
    tree = FIELDS[runtime.kind]
    for name in [f"{component}Config" for component in migrate(spec).components]:
        part = {name: getattr(runtime.spec, f"{name.removesuffix('Config')}_config")}
        written = {key: value.dump() for key, value in part.items() if isinstance(value, Component)}
        sentences += [f"runtime {runtime.name}: {sentence}" for sentence in _fields(written, {name: tree[name]}, "spec")]
    return tuple(sentences)


def ignored_field_messages(item: Object[Any], more: frozenset[str] = NOTHING) -> tuple[str, ...]:
    """Return one sentence for each field and annotation of an object that has no effect; `more` are additional
    annotations that do have an effect.
    """
    return _ignored(item.kind, item.spec, item.annotations, more)


@memoize_by_identity(2048)
def _ignored(kind: str, spec: Spec, annotations: Mapping[str, str], more: frozenset[str]) -> tuple[str, ...]:
    """Return the result of `ignored_field_messages`, computed from plain values. The arguments exclude the status, so that
    the cached result stays valid when only the status changes.
    """
    written, tree = spec.dump(), FIELDS.get(kind, {})
    sentences = list(_annotations(annotations, READ.get(kind, NOTHING) | more, ""))
    if isinstance(spec, ServiceSpec) and written.get("predictor") and migrate(spec) is spec:
        sentences.append(_sentence("spec.predictor", "spec.model, spec.runtime and spec.engine replace this field"))
        del written["predictor"]
    sentences += _fields(written, tree, "spec")
    for name, component in PARTS.items():
        notes = (written.get(name) or {}).get("annotations") if isinstance(written.get(name), Mapping) else None
        sentences += _annotations(notes or {}, READ_ON_PODS[component], f" of spec.{name}")
        labels = (written.get(name) or {}).get("labels") if isinstance(written.get(name), Mapping) else None
        sentences += _labels(labels or {}, f" of spec.{name}")
    if isinstance(spec, RuntimeSpec):
        sentences += _annotations(spec.annotations or {}, READ_ON_PODS[keys.ENGINE], " of spec")
        sentences += _labels(spec.labels or {}, " of spec")
    return tuple(dict.fromkeys(sentences))


def _labels(labels: Mapping[str, str], location: str) -> Iterator[str]:
    for name in sorted(labels.keys() & LABELS_OF_OPERATOR):
        yield _sentence(f"label {name}{location}", "the operator sets this value on its pods")


def _fields(value: Mapping[str, Any], tree: Tree, location: str) -> Iterator[str]:
    for name, below in tree.items():
        field = name.removesuffix("[]").removesuffix("{}")
        present, path = value.get(field), f"{location}.{field}"
        if not present:
            continue
        if isinstance(below, str):
            yield _sentence(path, below)
        elif isinstance(below, NoEffectUnless):
            if present != below.value:
                yield _sentence(path, below.hint)
        elif isinstance(below, ReadKeysOnly):
            yield from (_sentence(f"{path}.{key}", below.hint) for key in sorted(present.keys() - below.keys))
        elif name.endswith("[]"):
            for entry in present:
                yield from _fields(entry, below, path)
        elif name.endswith("{}"):
            for key, entry in present.items():
                yield from _fields(entry, below, f"{path}.{key}")
        else:
            yield from _fields(present, below, path)


def _annotations(notes: Mapping[str, str], read: frozenset[str], location: str) -> Iterator[str]:
    for name in sorted(notes):
        if OMES.match(name) and name not in read:
            of_pods = "" if location else OF_PODS if any(name in known for known in READ_ON_PODS.values()) else ""
            yield _sentence(f"annotation {name}{location}", of_pods or ANNOTATIONS.get(name, ""))


def _sentence(description: str, hint: str) -> str:
    return f"{description} has no effect" + (f": {hint}" if hint else "")
