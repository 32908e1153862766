"""Base classes of all parsed API objects: specs that record which fields were set, and validation rules for Python and
the CRD.

A field that the user did not set stays unset, in the parsed object and in the output of `dump`. A revision records what the
user wrote, and an operator with new defaults must not create a new revision (decisions 2). Defaults are therefore applied
where a value is used, never in the parsed objects, and no CRD contains a `default:`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    ModelWrapValidatorHandler,
    ValidationInfo,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from ome_operator.api.docs import attribute_docs

_YAML, _STORED = {"spelling": "camelCase"}, {"spelling": "camelCase", "stored": "yes"}
"""Validation contexts of `Spec.read`, in which only the camelCase spelling of fields is accepted."""
RULES_KEY = "x-kubernetes-validations"


@dataclass(frozen=True)
class Rule:
    """A validation rule, written in CEL for the API server and in Python for callers without a server.

    A rule in the `RULES` of a class checks the complete object; a rule in `Annotated` checks the value of that field.
    """

    cel: str
    message: str
    """A sentence that states what is wrong and how to correct it. The caller puts the path of the field in front of the
    sentence."""
    holds: Callable[[Any], bool]
    message_cel: str = ""
    """CEL expression that computes the message from the object, for messages that propose a correct value."""
    compute_message: Callable[[Any], str] | None = None
    """Python function that computes the same message as `message_cel`. Without `message_cel`, the function computes a more
    precise message than `message`, with the value that the user probably means."""
    path: str = ""
    """Path of the field that the rule is about, such as `.metadata.name`; "" if the rule is about the value to which it
    is attached."""
    at_creation: bool = False
    """Whether the rule is checked only when the object is created. Such rules are for fields that cannot be changed
    later, because a violation must not block status updates."""
    new_only: bool = False
    """Whether the operator accepts stored objects that violate the rule, because they were stored before the rule existed
    and work. The API server checks the rule if the part of the object to which it is attached changes."""

    def check(self, value: Any) -> Any:
        """Return the value if it satisfies the rule; otherwise raise the error that becomes a sentence of `Invalid`."""
        if not self.holds(value):
            raise PydanticCustomError(
                "rule", "{sentence}", {"sentence": self.compute_message(value) if self.compute_message else self.message}
            )
        return value

    def schema(self) -> dict[str, Any]:
        """Return the rule as an entry of `x-kubernetes-validations`."""
        entry: dict[str, Any] = {"rule": self.cel, "message": self.message}
        if self.message_cel:
            entry["messageExpression"] = self.message_cel
        if self.path:
            entry["fieldPath"] = self.path
        if self.at_creation:
            entry |= {"rule": f"oldSelf.hasValue() || ({self.cel})", "optionalOldSelf": True}
        return entry

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self.check, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        json = handler(schema)
        return json | {RULES_KEY: [*json.get(RULES_KEY, ()), self.schema()]}


@dataclass(frozen=True)
class Extension:
    """Keywords that are added to the schema of a field in the CRD and have no effect in Python, such as its list type."""

    words: tuple[tuple[str, str | tuple[str, ...]], ...]

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return handler(schema) | {key: list(word) if isinstance(word, tuple) else word for key, word in self.words}


def list_map(*keys: str) -> Extension:
    """Return the extension for a list whose items are identified by these keys, so that several field managers can apply
    to the list.
    """
    return Extension((("x-kubernetes-list-type", "map"), ("x-kubernetes-list-map-keys", keys)))


ATOMIC = Extension((("x-kubernetes-list-type", "atomic"),))
"""Extension of a list that has a single writer and is replaced completely."""

ATOMIC_MAP = Extension((("x-kubernetes-map-type", "atomic"),))
"""Extension of a map that has a single writer. For an atomic map the API server stores one entry in managedFields. For
other maps it stores an entry for each field, which was half of the size of a service and slowed down each read and
write."""


class Spec(BaseModel):
    """An immutable part of an object. Its fields are in snake_case in Python and in camelCase in YAML. Unknown fields are
    dropped, as by an API server.
    """

    model_config = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        frozen=True,
        strict=True,
        extra="ignore",
        protected_namespaces=(),
        defer_build=True,  # the kinds build their parts: building each class separately took a third of the start time
    )

    RULES: ClassVar[tuple[Rule, ...]] = ()
    """Rules that compare several fields of the object."""

    @model_validator(mode="before")
    @classmethod
    def _null_is_absent(cls, data: Any) -> Any:
        """Treat `field: null` like an absent field, as an API server does."""
        if not isinstance(data, dict) or None not in data.values():
            return data
        named = {field.alias for field in cls.model_fields.values()} | cls.model_fields.keys()
        return {key: value for key, value in data.items() if value is not None or key not in named}

    @model_validator(mode="wrap")
    @classmethod
    def _rules(cls, data: Any, handler: ModelWrapValidatorHandler[Self], info: ValidationInfo) -> Self:
        parsed = handler(data)
        for rule in cls.RULES:
            if not (rule.new_only and info.context is _STORED):
                rule.check(parsed)
        return parsed

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        json = handler.resolve_ref_schema(handler(schema))
        for name, text in attribute_docs(cls).items():
            if name in cls.model_fields:
                json["properties"][cls.model_fields[name].alias]["description"] = text
        if cls.RULES:
            json[RULES_KEY] = [rule.schema() for rule in cls.RULES]
        return json

    @classmethod
    def read(cls, data: Any, stored: bool = False) -> Self:
        """Parse data from YAML, in which only the camelCase spelling is accepted. `stored`: True if an API server has stored
        the data. Raises pydantic's ValidationError.
        """
        return cls.model_validate(data, by_alias=True, by_name=False, context=_STORED if stored else _YAML)

    def dump(self) -> dict[str, Any]:
        """Return the fields that were set, in camelCase as in the YAML."""
        return self.model_dump(by_alias=True, exclude_unset=True)


class Inline(Spec):
    """A part of an object with an inline pod spec: every field that the class does not define belongs to the pod spec."""

    model_config = ConfigDict(extra="allow")
    INLINE: ClassVar[str] = "PodSpec"
    """Type of the inline fields, as in `api/pod_fields.py`."""

    @model_validator(mode="before")
    @classmethod
    def _no_snake_case(cls, data: Any, info: ValidationInfo) -> Any:
        """Reject the snake_case spelling in YAML. Such a field would be treated as a field of the pod spec, and the
        intended field would stay unset.
        """
        if (info.context is _YAML or info.context is _STORED) and isinstance(data, dict):
            for key in data.keys() & cls.model_fields.keys():
                alias = cls.model_fields[key].alias
                if alias != key:
                    raise PydanticCustomError("rule", "{sentence}", {"sentence": f"write {alias} instead of {key}"})
        return data

    @property
    def pod(self) -> dict[str, Any]:
        """The inline core/v1 PodSpec as it was written. Do not modify it in place."""
        return dict(self.model_extra or {})
