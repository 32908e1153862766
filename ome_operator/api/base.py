"""The base of everything that is parsed: specs that remember what was written, and rules that stand in the CRD too.

A value that the user did not write stays unset, in the parsed object and in what `dump` gives back: a revision is what was
written, and an operator with new defaults must not see a new revision (decisions 2). Defaults are therefore applied where
a value is used, never here, and no CRD carries a `default:`.
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

_YAML = {"spelling": "camelCase"}
"""Validation context of `Spec.read`."""
RULES_KEY = "x-kubernetes-validations"


@dataclass(frozen=True)
class Rule:
    """A condition on a value, once in CEL for the API server and once in Python for everyone who has no server.

    On a class it stands in `RULES` and sees the whole object; in `Annotated` it sees the value of the field.
    """

    cel: str
    message: str
    """What is wrong and what to do about it. The field's path is put in front by whoever shows it."""
    holds: Callable[[Any], bool]
    message_cel: str = ""
    """CEL that makes the message from the object, where the object can show how to do it right."""
    say: Callable[[Any], str] | None = None
    """The same in Python."""
    path: str = ""
    """Which field it is about, where that is not the value it stands at, such as `.metadata.name`."""
    at_creation: bool = False
    """Checked only when the object is made: for what cannot be changed later, so that status can still be written."""

    def check(self, value: Any) -> Any:
        """Return the value, or raise the error that becomes a sentence of `Invalid`."""
        if not self.holds(value):
            raise PydanticCustomError("rule", "{sentence}", {"sentence": self.say(value) if self.say else self.message})
        return value

    def schema(self) -> dict[str, Any]:
        """One entry of `x-kubernetes-validations`."""
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
    """Words that the schema of a field gets in the CRD and that mean nothing to Python, such as its list type."""

    words: tuple[tuple[str, str | tuple[str, ...]], ...]

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return handler(schema) | {key: list(word) if isinstance(word, tuple) else word for key, word in self.words}


def list_map(*keys: str) -> Extension:
    """Mark a list whose items are told apart by these keys, so that several writers can apply to it."""
    return Extension((("x-kubernetes-list-type", "map"), ("x-kubernetes-list-map-keys", keys)))


ATOMIC = Extension((("x-kubernetes-list-type", "atomic"),))
"""A list that has one writer and is replaced as a whole."""

ATOMIC_MAP = Extension((("x-kubernetes-map-type", "atomic"),))
"""A map that has one writer. The server keeps a record of who wrote each field: of an atomic one it is a word, of others it
made half of a service's size, which each of its writes and reads pays for."""


class Spec(BaseModel):
    """An immutable part of an object: snake_case here, camelCase in YAML. Unknown fields are left out, as a server would."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        frozen=True,
        strict=True,
        extra="ignore",
        protected_namespaces=(),
        defer_build=True,  # parts are built into the kinds that are parsed: each by itself would be a third of a start
    )

    RULES: ClassVar[tuple[Rule, ...]] = ()
    """What holds between the fields."""

    @model_validator(mode="before")
    @classmethod
    def _null_is_absent(cls, data: Any) -> Any:
        """`field: null` is the same as no field, which is what an API server makes of it."""
        if not isinstance(data, dict) or None not in data.values():
            return data
        named = {field.alias for field in cls.model_fields.values()} | cls.model_fields.keys()
        return {key: value for key, value in data.items() if value is not None or key not in named}

    @model_validator(mode="wrap")
    @classmethod
    def _rules(cls, data: Any, handler: ModelWrapValidatorHandler[Self], info: ValidationInfo) -> Self:
        parsed = handler(data)
        for rule in cls.RULES:
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
    def read(cls, data: Any) -> Self:
        """Parse what stands in YAML, where only the camelCase spelling counts. Raises pydantic's ValidationError."""
        return cls.model_validate(data, by_alias=True, by_name=False, context=_YAML)

    def dump(self) -> dict[str, Any]:
        """The YAML that was written: camelCase, without anything that was not there."""
        return self.model_dump(by_alias=True, exclude_unset=True)


class Inline(Spec):
    """A part with a pod spec inline: every field that it does not name belongs to the pod."""

    model_config = ConfigDict(extra="allow")

    @model_validator(mode="before")
    @classmethod
    def _no_snake_case(cls, data: Any, info: ValidationInfo) -> Any:
        """Our own spelling in YAML would pass for a field of the pod and hide the field that was meant."""
        if info.context is _YAML and isinstance(data, dict):
            for key in data.keys() & cls.model_fields.keys():
                alias = cls.model_fields[key].alias
                if alias != key:
                    raise PydanticCustomError("rule", "{sentence}", {"sentence": f"write {alias} instead of {key}"})
        return data

    @property
    def pod(self) -> dict[str, Any]:
        """The inline core/v1 PodSpec as it was written. Not to be changed in place."""
        return dict(self.model_extra or {})
