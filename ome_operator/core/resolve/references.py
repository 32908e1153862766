"""Find the references of an object to other objects, and the references that name nothing.

The model, the runtime, the fine-tuned weights and the accelerator class of a service are left out: `core/resolve/inputs.py`
finds them when it resolves the service.
"""

from collections.abc import Collection, Iterator
from typing import Any, NamedTuple

from ome_operator.api import BenchmarkJob, FineTunedWeight, InferenceService, Model, Object, Runtime
from ome_operator.core.observed.objects import Ref
from ome_operator.core.podspec.named_objects import CLAIM, SECRET
from ome_operator.core.podspec.named_objects import references as named_objects
from ome_operator.core.weights.mount import claim
from ome_operator.util.similar import meant

_CLASS = "AcceleratorClass"
_NAMESPACED = {"ClusterBaseModel": "BaseModel"}
"""Cluster-wide kind -> the kind of the same objects in a namespace."""


class NamedReference(NamedTuple):
    """A reference to another object."""

    field: str
    """Path of the field that contains the name, such as `spec.baseModelRef.name`."""
    ref: Ref
    one_of: bool = False
    """Whether it is enough that one of the objects exists to which the same field refers."""


def references(item: Object[Any]) -> Iterator[NamedReference]:
    """Yield the references of an object to objects of the operator's kinds, in the order of its fields."""
    if isinstance(item, FineTunedWeight):
        base = item.spec.base_model_ref
        kind = "BaseModel" if base.namespace else "ClusterBaseModel"
        yield NamedReference("spec.baseModelRef.name", Ref(kind, base.namespace or "", base.name))
    elif isinstance(item, BenchmarkJob):
        service = item.spec.endpoint.inference_service
        if service is not None and item.spec.endpoint.endpoint is None:
            ref = Ref("InferenceService", service.namespace, service.name)
            yield NamedReference("spec.endpoint.inferenceService.name", ref)
    elif isinstance(item, Runtime):
        for number, form in enumerate(item.spec.supported_model_formats or ()):
            for name in form.accelerator_config or ():
                yield NamedReference(f"spec.supportedModelFormats[{number}].acceleratorConfig", Ref(_CLASS, "", name), True)
        required = item.spec.accelerator_requirements
        for name in (required and required.accelerator_classes) or ():
            yield NamedReference("spec.acceleratorRequirements.acceleratorClasses", Ref(_CLASS, "", name), True)
    elif isinstance(item, InferenceService):
        parts = [("engine", item.spec.engine), ("decoder", item.spec.decoder)]
        selectors = [("spec.acceleratorSelector", item.spec.accelerator_selector)]
        selectors += [(f"spec.{name}.acceleratorOverride", part.accelerator_override) for name, part in parts if part]
        for where, selector in selectors:
            for name in (selector and selector.constraints and selector.constraints.excluded_classes) or ():
                yield NamedReference(f"{where}.constraints.excludedClasses", Ref(_CLASS, "", name))


def needed_objects(item: Object[Any]) -> Iterator[NamedReference]:
    """Yield the references of an object to claims, Secrets and ConfigMaps whose namespace is known.

    Left out are the objects that the pods of a service name (`core/podspec/named_objects.py`), the claim of a cluster-wide
    model, which pods of each namespace look for in their own, and `spec.storage.key`, which names a Secret in the namespace
    of the operator.
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
    """A statement of what does not exist, with what to do about it."""


def missing(item: Object[Any], existing: Collection[Ref]) -> tuple[MissingReference, ...]:
    """Return the references of an object to which no object in `existing` belongs. A similar name is proposed."""
    found = tuple(dict.fromkeys(references(item)))
    enough = {each.field for each in found if each.one_of and each.ref in existing}
    return tuple(
        MissingReference(each.field, _sentence(each.field, each.ref, existing))
        for each in found
        if each.ref not in existing and each.field not in enough
    )


def _sentence(field: str, ref: Ref, existing: Collection[Ref]) -> str:
    what = f"{ref.kind} {ref.name}" + (f" in namespace {ref.namespace}" if ref.namespace else "")
    kinds = {ref.kind, _NAMESPACED.get(ref.kind, ref.kind)}
    elsewhere = next((each for each in existing if each.name == ref.name and each.kind in kinds and each.namespace), None)
    if elsewhere is not None:
        above = field.rpartition(".")[0]
        return (
            f"{what} does not exist: {elsewhere.kind} {ref.name} is in namespace {elsewhere.namespace}, so write "
            f"{above}.namespace: {elsewhere.namespace}"
        )
    question = meant(ref.name, (each.name for each in existing if each[:2] == ref[:2]))
    return f"{what} does not exist: {question}apply it, or fix {field}"
