"""Find what an API server and the operator refuse of an object, without a cluster: unknown fields, values that the schema
or its rules refuse, and invalid metadata.

The CRDs are generated from the same classes. `tests/controlplane/test_gate.py` compares the result with that of a real API
server for every bound and every rule of the CRDs.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import UnionType
from typing import Annotated, Any, NamedTuple, Union, get_args, get_origin

from pydantic import ValidationError

from ome_operator.api import misplaced, pod_fields
from ome_operator.api.base import Inline, Spec
from ome_operator.api.invalid import as_yaml, sentence
from ome_operator.api.kinds import KINDS, Kind
from ome_operator.api.objects import DEEPEST
from ome_operator.api.service import InferenceService
from ome_operator.util.json_limits import exceeds_depth

_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = re.compile(rf"{_LABEL}([.]{_LABEL})*")
_NAMESPACE = re.compile(_LABEL)
_WORD = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)")
_NOTES = 256 * 1024
"""Maximum number of bytes in the annotations of an object."""
REMOVE = f": {pod_fields.REMOVE}"
_TOP = frozenset({"apiVersion", "kind", "metadata", "spec", "status"})


class Mistake(NamedTuple):
    """A part of an object that is refused."""

    field: str
    """Path of the field, such as `spec.engine.minReplicas`."""
    sentence: str
    """A statement of what is wrong and how to correct it, beginning with the path of the field."""
    of_pod: bool = False
    """Whether the API server accepts the object, and only the pods that the operator makes from it are refused."""


def kind_of(api_version: str, kind: str) -> Kind | None:
    """Return the kind of the operator with these names; None if there is none."""
    return next((one for one in KINDS if (f"{one.group}/{one.version}", one.kind) == (api_version, kind)), None)


def find_mistakes(kind: Kind, body: Mapping[str, Any]) -> list[Mistake]:
    """Return everything in an object that would be refused. `body` is the object as a user wrote it; its status is not
    checked.
    """
    found = [*_metadata(body.get("metadata"), kind)]
    found += [_unknown(kind.kind, key, key, _TOP) for key in body if key not in _TOP]
    spec = body.get("spec")
    if spec is None:
        return [*found, Mistake("spec", "spec is missing: set it")] if kind.spec_required else found
    if not isinstance(spec, Mapping):
        return [*found, Mistake("spec", f"spec is {as_yaml(spec)}: write a map of keys and values")]
    if exceeds_depth(spec, DEEPEST):
        return [*found, Mistake("spec", f"spec is nested more than {DEEPEST} levels deep: use fewer levels")]
    found += _fields(kind.spec, spec, ("spec",), (kind.spec,), kind.kind)
    found = [_with_home(kind, each) for each in found]
    return [*found, *_values(kind, spec)]


def _with_home(kind: Kind, mistake: Mistake) -> Mistake:
    """Return a mistake whose remedy names the place where the field belongs, if the field exists elsewhere in the kind."""
    said, found, _ = mistake.sentence.rpartition(REMOVE)
    if not found or not (place := misplaced.correct_place(kind.spec, mistake.field, mistake.of_pod)):
        return mistake
    return mistake._replace(sentence=f"{said}: {place}")


def _values(kind: Kind, spec: Mapping[str, Any]) -> Iterator[Mistake]:
    """Yield the values that the schema or its rules refuse."""
    try:
        kind.spec.read(spec)
    except ValidationError as error:
        for one in error.errors(include_url=False):
            message = sentence(one, "spec")
            yield Mistake(re.split(r" is |: | has ", message, maxsplit=1)[0], message)


def _metadata(metadata: Any, kind: Kind) -> Iterator[Mistake]:
    """Yield the mistakes in the metadata of an object."""
    if not isinstance(metadata, Mapping):
        return  # the reader of the file has refused the object
    known = pod_fields.fields(pod_fields.METADATA)
    yield from (_unknown("an object", f"metadata.{key}", key, known) for key in metadata if key not in known)
    name, namespace = metadata.get("name"), metadata.get("namespace")
    if isinstance(name, str):
        yield from _name(kind, name)
    if kind.namespaced and isinstance(namespace, str) and not (_NAMESPACE.fullmatch(namespace) and len(namespace) <= 63):
        yield Mistake(
            "metadata.namespace",
            f"metadata.namespace is {as_yaml(namespace)}: write at most 63 lowercase letters, digits and '-', beginning and "
            "ending with a letter or digit",
        )
    for field in ("labels", "annotations"):
        for key, value in (metadata.get(field) or {}).items() if isinstance(metadata.get(field), Mapping) else ():
            yield from _entry(field, str(key), value)
    notes = metadata.get("annotations")
    if isinstance(notes, Mapping) and sum(len(str(key).encode()) + len(str(notes[key]).encode()) for key in notes) > _NOTES:
        yield Mistake("metadata.annotations", f"metadata.annotations has more than {_NOTES:,} bytes: shorten them")


def _name(kind: Kind, name: str) -> Iterator[Mistake]:
    for rule in InferenceService.RULES if kind.rules else ():
        named = InferenceService(kind.kind, name, "", "", 0, {}, {}, None, {}, False)  # type: ignore[arg-type]
        if not rule.holds(named):
            said = rule.compute_message(named) if rule.compute_message else rule.message
            yield Mistake("metadata.name", f"metadata.name is refused: {said}")
            return
    if not (_SUBDOMAIN.fullmatch(name) and len(name) <= 253):
        yield Mistake(
            "metadata.name",
            f"metadata.name is {as_yaml(name)}: write at most 253 lowercase letters, digits, '-' and '.', beginning and "
            "ending with a letter or digit",
        )


def _entry(field: str, key: str, value: Any) -> Iterator[Mistake]:
    """Yield the mistakes in a label or an annotation."""
    where = f"metadata.{field}.{key}"
    prefix, slash, word = (key if field == "labels" else key.lower()).rpartition("/")
    fine = _WORD.fullmatch(word) and len(word) <= 63
    if not fine or (slash and not (_SUBDOMAIN.fullmatch(prefix) and len(prefix) <= 253)):
        yield Mistake(where, f"{where} has an invalid key: write NAME or DOMAIN/NAME, with at most 63 characters in NAME")
    if not isinstance(value, str | None):
        yield Mistake(where, f"{where} is {as_yaml(value)}: write a string; put quotes around numbers, true and false")
    elif field == "labels" and value and not (_WORD.fullmatch(value) and len(value) <= 63):
        yield Mistake(
            where,
            f"{where} is {as_yaml(value)}: write at most 63 letters, digits, '-', '_' and '.', beginning and ending with a "
            "letter or digit",
        )


def _fields(
    spec: type[Spec], value: Mapping[str, Any], where: tuple[str, ...], above: tuple[type[Spec], ...], kind: str
) -> Iterator[Mistake]:
    """Yield the unknown fields in a value of the class `spec` at the path `where`. `above` are the classes on the path, the
    innermost last.
    """
    known = {str(field.alias): field for field in spec.model_fields.values()}
    for key, inner in value.items():
        if (field := known.get(key)) is not None:
            yield from _inside(field.annotation, str(key), inner, (*where, str(key)), above, kind)
        else:
            inline, at = issubclass(spec, Inline), ".".join((*where, str(key)))
            place = outermost_match(above, str(key), inner)
            names = {*pod_fields.field_forms(spec.INLINE), *known} if issubclass(spec, Inline) else set[str]()
            if place is not None and not pod_fields.closest_field(str(key), names):
                home = ".".join(where[: place + 1])
                of = "a pod" if inline else where[-1]
                yield Mistake(at, f"{at} is not a field of {of}: move it to {home}, with less indentation", of_pod=inline)
            elif issubclass(spec, Inline):
                yield from _of_pod({key: inner}, spec.INLINE, where, names)
            else:
                yield _unknown(f"{where[-1]} of {kind}", at, str(key), known)


def outermost_match(above: Sequence[type[Spec]], key: str, value: Any) -> int | None:
    """Return the number of the outermost part of an object that has a field of this name for a value of this form; None if
    there is none. `above` are the classes on the path to the part where the field is written, outermost first.
    """
    return next((number for number, one in enumerate(above[:-1]) if _takes(one, key, value)), None)


def _takes(spec: type[Spec], key: str, value: Any) -> bool:
    """Return whether a class has a field of this name for a value of this form: a map, a list, or a single value. The number
    in `spare.router: 1`, for example, is not the misplaced map `spec.router`.
    """
    types = (one for field in spec.model_fields.values() if field.alias == key for one in _alternatives(field.annotation))
    return any(value is None or one is Any or _form(one) is _form(type(value)) for one in types if one is not type(None))


def _form(type_: Any) -> type:
    """Return dict for a type of maps, list for a type of lists, and object for any other type."""
    origin = get_origin(type_) or type_
    if not isinstance(origin, type):
        return object
    return dict if issubclass(origin, Spec | Mapping) else list if issubclass(origin, list) else object


def _inside(
    annotation: Any, key: str, value: Any, where: tuple[str, ...], above: tuple[type[Spec], ...], kind: str
) -> Iterator[Mistake]:
    """Yield the unknown fields below a field whose Python type is `annotation`."""
    for one in _alternatives(annotation):
        if isinstance(one, type) and issubclass(one, Spec) and isinstance(value, Mapping):
            yield from _fields(one, value, where, (*above, one), kind)
        elif get_origin(one) is list and isinstance(value, list):
            for number, item in enumerate(value):
                yield from _inside(get_args(one)[0], key, item, (*where[:-1], f"{where[-1]}[{number}]"), above, kind)
        elif get_origin(one) is dict and isinstance(value, Mapping):
            yield from _inside_map(get_args(one)[1], key, value, where, above, kind)


def _inside_map(
    annotation: Any, key: str, value: Mapping[Any, Any], where: tuple[str, ...], above: tuple[type[Spec], ...], kind: str
) -> Iterator[Mistake]:
    """Yield the unknown fields in the values of a map, whose Python type is `annotation`. If it is Any, the map is a part of
    a pod spec, or is not checked.
    """
    if annotation is Any:
        type_ = pod_fields.type_of(key)
        yield from _of_pod(value, type_, where) if type_ else ()
        return
    for name, item in value.items():
        yield from _inside(annotation, str(name), item, (*where, str(name)), above, kind)


def _alternatives(annotation: Any) -> Iterator[Any]:
    """Yield the types of `X | None` and `Annotated[X, …]`."""
    if get_origin(annotation) is Annotated:
        yield from _alternatives(get_args(annotation)[0])
    elif get_origin(annotation) in (Union, UnionType):
        yield from (inner for one in get_args(annotation) for inner in _alternatives(one))
    else:
        yield annotation


def _of_pod(value: Any, type_: str, where: tuple[str, ...], candidates: Iterable[str] = ()) -> Iterator[Mistake]:
    """Yield the fields below a part of a pod that Kubernetes does not have. `candidates` are the fields that may be meant;
    those of the type by default. A map in the place of a list is left to other checks.
    """
    forms = pod_fields.field_forms(type_)
    if isinstance(value, list):
        for number, item in enumerate(value):
            yield from _of_pod(item, type_, (*where[:-1], f"{where[-1]}[{number}]"), candidates)
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            at = (*where, str(key))
            if key not in forms:
                path, fix = ".".join(at), pod_fields.advice(str(key), candidates or forms, type_)
                yield Mistake(path, f"{path} is not a field of a pod: {fix}", of_pod=True)
            elif (below := pod_fields.fields(type_)[key]) and forms[key].startswith("[]") is isinstance(inner, list):
                yield from _of_pod(inner, below, at)


def _unknown(description: str, path: str, key: str, known: Iterable[str]) -> Mistake:
    near = pod_fields.closest_field(str(key), known)
    return Mistake(path, f"{path} is not a field of {description}: {f'did you mean {near}?' if near else pod_fields.REMOVE}")
