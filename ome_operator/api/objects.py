"""A parsed object of any kind, with its metadata, its parsed spec and its unparsed status."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Self, TypeVar, cast

from pydantic import Field, ValidationError
from pydantic_core import PydanticCustomError

from ome_operator import keys
from ome_operator.api.base import Rule, Spec
from ome_operator.api.invalid import Invalid, combine_errors, path
from ome_operator.util.json_limits import exceeds_depth

S = TypeVar("S", bound=Spec)
DEEPEST = 50
"""Maximum nesting depth of a spec. Open fields are read by recursive functions, and no useful spec is deeper."""


class Metadata(Spec):
    """The fields of an object's metadata that the operator reads."""

    name: str
    namespace: str | None = None
    uid: str | None = None
    generation: int | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    deletion_timestamp: str | None = None
    creation_timestamp: str | None = None


class _Envelope(Spec):
    """An object with an unparsed spec. The spec is parsed separately, so that the paths in error messages are short."""

    kind: str | None = None
    metadata: Metadata
    spec: dict[str, Any] = Field(default_factory=dict)
    status: dict[str, Any] | None = None


@dataclass(frozen=True)
class Object(Generic[S]):
    """An object with a parsed spec. Use `parse` to create it."""

    kind: str
    name: str
    namespace: str
    """Namespace of the object; "" for cluster-scoped kinds."""
    uid: str
    """UID of the object; "" if the object does not exist on a server yet."""
    generation: int
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    spec: S
    status: Mapping[str, Any]
    """The unparsed status, as it is stored on the server."""
    deleting: bool
    created: str = ""
    """The creation timestamp; "" if the object does not exist on a server yet."""

    API_VERSION: ClassVar[str] = keys.API_VERSION
    KINDS: ClassVar[tuple[str, ...]]
    """Names of the kinds that share this spec. The cluster-scoped kind is first."""
    SPEC: ClassVar[type[Spec]]
    RULES: ClassVar[tuple[Rule, ...]] = ()
    """Rules for the whole object, including its metadata."""

    @classmethod
    def parse(cls, body: Mapping[str, Any]) -> Self | Invalid:
        """Parse an object from a server or a YAML file. For an invalid object, the function returns `Invalid` instead of
        raising an exception.
        """
        below = ""
        try:
            envelope = _Envelope.read(_plain(body))
            below = "spec"
            if exceeds_depth(envelope.spec, DEEPEST):
                where = _deepest(envelope.spec)
                return Invalid(f"{where} is nested more than {DEEPEST} levels deep: remove what is below it")
            spec = cls.SPEC.read(envelope.spec, stored=bool(envelope.metadata.uid))
            parsed = cls._of(envelope, cast(S, spec))
            for rule in cls.RULES:
                below = rule.path.removeprefix(".")
                rule.check(parsed)
        except ValidationError as error:
            return combine_errors(error.errors(include_url=False), below)
        except PydanticCustomError as error:
            return Invalid(f"{below} is refused: {error.message()}")
        return parsed

    @classmethod
    def _of(cls, envelope: _Envelope, spec: S) -> Self:
        meta = envelope.metadata
        return cls(
            kind=envelope.kind or cls.KINDS[-1 if meta.namespace else 0],
            name=meta.name,
            namespace=meta.namespace or "",
            uid=meta.uid or "",
            generation=meta.generation or 0,
            labels=meta.labels or {},
            annotations=meta.annotations or {},
            spec=spec,
            status=envelope.status or {},
            deleting=meta.deletion_timestamp is not None,
            created=meta.creation_timestamp or "",
        )

    def dump(self) -> dict[str, Any]:
        """Return the object as a user would write it: without status and without the fields that the server sets."""
        metadata: dict[str, Any] = {"name": self.name}
        if self.namespace:
            metadata["namespace"] = self.namespace
        if self.labels:
            metadata["labels"] = dict(self.labels)
        if self.annotations:
            metadata["annotations"] = dict(self.annotations)
        return {"apiVersion": self.API_VERSION, "kind": self.kind, "metadata": metadata, "spec": self.spec.dump()}


def _deepest(spec: dict[str, Any]) -> str:
    """Return the first parts of the path of a value below the deepest permitted level. The spec must contain such a
    value.
    """
    level: dict[int, tuple[tuple[int | str, ...], Any]] = {id(spec): ((), spec)}
    for _ in range(DEEPEST):
        below: dict[int, tuple[tuple[int | str, ...], Any]] = {}
        # By id, so that each value is visited once: YAML aliases can refer to the same value many times.
        for where, value in level.values():
            items = value.items() if isinstance(value, dict) else enumerate(value)
            below |= {id(one): ((*where, key), one) for key, one in items if isinstance(one, dict | list)}
        level = below
    where, _ = next(iter(level.values()))
    return path("spec", where[:4])


def _plain(body: Any) -> Any:
    """Return the body as a dict, because watches pass read-only views of mappings. A value that is not a mapping is
    returned unchanged.
    """
    if not isinstance(body, Mapping):
        return body
    return {key: dict(value) if isinstance(value, Mapping) else value for key, value in body.items()}
