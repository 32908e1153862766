"""Find the references of an object to other objects, and those references whose objects do not exist.

The model, the runtime, the fine-tuned weights and the accelerator class of a service are left out: `core/resolve/inputs.py`
finds them when it resolves the service.
"""

from collections.abc import Collection, Iterable, Iterator
from typing import Any, NamedTuple

from ome_operator.api import (
    BenchmarkJob,
    FineTunedWeight,
    InferenceService,
    Model,
    Object,
    Runtime,
    RuntimeSpec,
    ServiceSpec,
    Spec,
)
from ome_operator.core.observed.objects import Ref
from ome_operator.core.podspec.named_objects import CLAIM, SECRET
from ome_operator.core.podspec.named_objects import references as named_objects
from ome_operator.core.weights.mount import claim
from ome_operator.util.memoize import memoize_by_identity
from ome_operator.util.similar import suggestion

MOST = 5
"""Maximum number of missing accelerator classes of an object that are reported, because an object can name any number of
classes."""
_LONGEST = 253
"""Maximum number of characters of a name in a message: the length of the longest name that an object may have."""
_CLASS = "AcceleratorClass"
_NAMESPACED = {"ClusterBaseModel": "BaseModel"}
"""Cluster-wide kind -> the kind of the same objects in a namespace."""


class NamedReference(NamedTuple):
    """A reference to another object."""

    field: str
    """Path of the field that contains the name, such as `spec.baseModelRef.name`."""
    ref: Ref


class _Classes(NamedTuple):
    """The accelerator classes that a field names."""

    field: str
    names: Collection[str]
    one_of: bool
    """Whether a single existing class is enough."""


def _classes(spec: Spec) -> Iterator[_Classes]:
    """Yield the fields of the spec of a service or a runtime that name accelerator classes."""
    if isinstance(spec, RuntimeSpec):
        for number, form in enumerate(spec.supported_model_formats or ()):
            if form.accelerator_config:
                yield _Classes(f"spec.supportedModelFormats[{number}].acceleratorConfig", form.accelerator_config, True)
        required = spec.accelerator_requirements
        if required is not None and required.accelerator_classes:
            yield _Classes("spec.acceleratorRequirements.acceleratorClasses", required.accelerator_classes, True)
    elif isinstance(spec, ServiceSpec):
        parts = [("engine", spec.engine), ("decoder", spec.decoder)]
        selectors = [("spec.acceleratorSelector", spec.accelerator_selector)]
        selectors += [(f"spec.{name}.acceleratorOverride", part.accelerator_override) for name, part in parts if part]
        for where, selector in selectors:
            if excluded := (selector and selector.constraints and selector.constraints.excluded_classes):
                yield _Classes(f"{where}.constraints.excludedClasses", excluded, False)


def _reference(item: Object[Any]) -> NamedReference | None:
    """Return the reference of fine-tuned weights to their model, or the reference of a BenchmarkJob to its service; None if
    the object has no such reference.
    """
    if isinstance(item, FineTunedWeight):
        base = item.spec.base_model_ref
        kind = "BaseModel" if base.namespace else "ClusterBaseModel"
        return NamedReference("spec.baseModelRef.name", Ref(kind, base.namespace or "", base.name))
    if isinstance(item, BenchmarkJob):
        service = item.spec.endpoint.inference_service
        if service is not None and item.spec.endpoint.endpoint is None:
            ref = Ref("InferenceService", service.namespace, service.name)
            return NamedReference("spec.endpoint.inferenceService.name", ref)
    return None


def needed_objects(item: Object[Any]) -> Iterator[NamedReference]:
    """Yield the references of an object to claims, Secrets and ConfigMaps whose namespace is known.

    Three kinds of references are left out: those in the pods of a service (`core/podspec/named_objects.py`); the claim of a
    cluster-wide model if its URI names no namespace, because each pod uses the claim of this name in its own namespace; and
    `spec.storage.key` of a model, which names a Secret in the namespace of the operator.
    """
    if isinstance(item, BenchmarkJob):
        spec, namespace = item.spec, item.namespace
        for name, storage in (("dataset", spec.dataset), ("outputLocation", spec.output_location)):
            if storage is not None:
                yield from _claim(f"spec.{name}.storageUri", storage.storage_uri, namespace)
                if storage.key:
                    yield NamedReference(f"spec.{name}.key", Ref(SECRET, namespace, storage.key))
        if (secret := spec.hugging_face_secret_reference) is not None:
            yield NamedReference("spec.huggingFaceSecretReference.name", Ref(SECRET, namespace, secret.name))
        more = spec.pod_override.dump() if spec.pod_override is not None else {}
        pod = {"volumes": more.get("volumes"), "containers": [{key: more.get(key) for key in ("env", "envFrom")}]}
        for kind, name in named_objects(pod):
            yield NamedReference("spec.podOverride", Ref(kind, namespace, name))
    elif isinstance(item, Model | FineTunedWeight):
        yield from _claim("spec.storage.storageUri", item.spec.storage.storage_uri, item.namespace)


def _claim(field: str, uri: str, namespace: str) -> Iterator[NamedReference]:
    found = claim(uri)
    if found is not None and (found[0] or namespace):
        yield NamedReference(field, Ref(CLAIM, found[0] or namespace, found[1]))


class MissingReference(NamedTuple):
    """A reference to an object that does not exist."""

    field: str
    sentence: str
    """A text that states which object does not exist, and what to do."""


def missing_references(item: Object[Any], existing: Collection[Ref]) -> tuple[MissingReference, ...]:
    """Return those references of an object whose objects are not in `existing`. If an existing object has a similar name,
    the sentence proposes this name.
    """
    if isinstance(item, InferenceService | Runtime):
        return missing_classes(item.spec, (each.name for each in existing if each.kind == _CLASS))
    found = _reference(item)
    if found is None or found.ref in existing:
        return ()
    return (MissingReference(found.field, _sentence(found.field, found.ref, existing)),)


def missing_classes(spec: ServiceSpec | RuntimeSpec, existing: Iterable[str]) -> tuple[MissingReference, ...]:
    """Return the references of a service or a runtime to accelerator classes other than those in `existing`. Only the first
    `MOST` classes are named.
    """
    return _missing_classes(spec, tuple(sorted(existing))) if any(_classes(spec)) else ()


@memoize_by_identity(1024)
def _missing_classes(spec: Spec, existing: tuple[str, ...]) -> tuple[MissingReference, ...]:
    known, refs = frozenset(existing), tuple(Ref(_CLASS, "", name) for name in existing)
    named, others = list[MissingReference](), dict[str, int]()
    for field, names, one_of in _classes(spec):
        absent = [name for name in dict.fromkeys(names) if name not in known]
        if one_of and len(absent) < len(set(names)):
            continue
        told = absent[: MOST - len(named)]
        named += (MissingReference(field, _sentence(field, Ref(_CLASS, "", name), refs)) for name in told)
        if len(absent) > len(told):
            others[field] = len(absent) - len(told)
    if others:
        number, (first, *more) = sum(others.values()), others
        what = f"1 more {_CLASS}" if number == 1 else f"each of {number} more {_CLASS}es"
        where = f"{first} and other fields" if more else first
        named.append(MissingReference(first, f"{what} does not exist: apply it, or fix {where}"))
    return tuple(named)


def _sentence(field: str, ref: Ref, existing: Collection[Ref]) -> str:
    name = ref.name if len(ref.name) <= _LONGEST else f"{ref.name[:_LONGEST]}…"
    what = f"{ref.kind} {name}" + (f" in namespace {ref.namespace}" if ref.namespace else "")
    kinds = {ref.kind, _NAMESPACED.get(ref.kind, ref.kind)}
    elsewhere = next((each for each in existing if each.name == ref.name and each.kind in kinds and each.namespace), None)
    if elsewhere is not None:
        above = field.rpartition(".")[0]
        return (
            f"{what} does not exist: {elsewhere.kind} {ref.name} is in namespace {elsewhere.namespace}, so write "
            f"{above}.namespace: {elsewhere.namespace}"
        )
    question = suggestion(ref.name, (each.name for each in existing if each[:2] == ref[:2]))
    return f"{what} does not exist: {question}apply it, or fix {field}"
