"""Convert validation errors of pydantic to sentences. Each sentence contains the field as it is spelled in YAML, and the
correction.
"""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from pydantic_core import ErrorDetails

from ome_operator.util.json_limits import exceeds_depth

SHOWN = 3
"""Maximum number of errors in one message, because users correct the first errors first."""
NESTED = 20
"""Maximum nesting depth of a value that a message contains, because a recursive function converts the value to text."""


@dataclass(frozen=True)
class Invalid:
    """The result of parsing an invalid object. It is a value, not an exception."""

    why: str
    """The first few errors. Each error is a sentence with the path of the field and the correction."""


def combine_errors(errors: Iterable[ErrorDetails], below: str = "") -> Invalid:
    """Combine errors into one `Invalid`; `below` is the path of the part that was parsed."""
    sentences = [sentence(error, below) for error in errors]
    more = len(sentences) - SHOWN
    return Invalid("; ".join(sentences[:SHOWN]) + (f"; and {more} more" if more > 0 else ""))


def sentence(error: ErrorDetails, below: str = "") -> str:
    """Return the sentence for an error. The sentence begins with the path of the field; `below` is the path of the part
    that was parsed.
    """
    where = path(below, error["loc"])
    context = error.get("ctx", {})
    words = _WORDS.get(error["type"])
    if words is None:
        return f"{where}: {error['msg']}"
    return f"{where} {words(error['input'], context)}"


def split_error(text: str) -> tuple[str, str]:
    """Divide the sentence about an error into what is wrong and what to write; "" if it does not say what to write. If the
    first part only states that a value is refused, the cause follows it.
    """
    what, _, remedy = text.partition(": ")
    if what.endswith((" is refused", " cannot be read")) and ": " in remedy:
        cause, remedy = split_error(remedy)
        return f"{what}, because {cause}", remedy
    return what, remedy


def path(below: str, loc: Iterable[int | str]) -> str:
    """Return the path of a field, such as `spec.engine.tolerations[2].key`. `loc` is the location in the part at `below`."""
    text = below
    for part in loc:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text or "the object"


def as_yaml(value: Any) -> str:
    """Return a value in YAML notation, truncated to 60 characters. It contains no colon that is followed by a space, so that
    `split_error` finds the end of the first part of a sentence.
    """
    if exceeds_depth(value, NESTED):
        return f"a {'map' if isinstance(value, dict) else 'list'} that contains other maps or lists"
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError):
        text = str(value)
    text = text.replace(": ", ":")
    return text if len(text) <= 60 else f"{text[:57]}..."


NAMED = frozenset({"ModelRef", "RuntimeRef", "Version", "ServiceRef", "SecretRef", "ObjectRef", "AuthenticationRef"})
"""Names of the classes that identify something by its name. Users often write only the name in their place."""


def _map(value: Any, context: dict[str, Any]) -> str:
    name = isinstance(value, str) and context.get("class_name") in NAMED
    return f"is {as_yaml(value)}: write " + (f"{{name: {value}}}" if name else "a map of keys and values")


def _should(kind: str) -> Callable[[Any, dict[str, Any]], str]:
    return lambda value, _: f"is {as_yaml(value)}: write {kind}"


_WORDS: dict[str, Callable[[Any, dict[str, Any]], str]] = {
    "missing": lambda _, __: "is missing: set it",
    "invalid_key": lambda _, __: "is a key that is not a string: put quotes around it",
    "rule": lambda _, context: f"is refused: {context['sentence']}",
    "int_type": _should("a whole number without quotes"),
    "int_or_string": _should("a whole number or a string"),
    "float_type": _should("a number without quotes"),
    "string_type": _should("a string; put quotes around numbers, true and false"),
    "bool_type": _should("true or false without quotes"),
    "list_type": _should("a list"),
    "dict_type": _should("a map of keys and values"),
    "model_type": _map,
    "literal_error": lambda value, context: f"is {as_yaml(value)}: write {context['expected']}",
    "greater_than_equal": lambda value, context: f"is {as_yaml(value)}: write {context['ge']} or more",
    "less_than_equal": lambda value, context: f"is {as_yaml(value)}: write {context['le']} or less",
    "too_long": lambda _, context: f"has {context['actual_length']} entries: keep at most {context['max_length']}",
    "too_short": lambda _, context: f"has {context['actual_length']} entries: give at least {context['min_length']}",
    "string_too_short": lambda _, __: "is empty: give it a value",
    "string_too_long": lambda _, context: f"is too long: keep it below {context['max_length'] + 1} characters",
}
