"""The form that a value of a pod must have, such as a list or a whole number, and what to write if it has another form."""

from collections.abc import Callable, Mapping
from typing import Any

from ome_operator import quantity
from ome_operator.api import pod_fields

_FORMS: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "": (lambda _: True, ""),
    "list": (lambda value: isinstance(value, list), "write a list"),
    "map": (lambda value: isinstance(value, Mapping), "write a map of keys and values"),
    "string": (lambda value: isinstance(value, str), "write a string; put quotes around numbers, true and false"),
    "integer": (
        lambda value: isinstance(value, int) and not isinstance(value, bool),
        "write a whole number without quotes",
    ),
    "boolean": (lambda value: isinstance(value, bool), "write true or false without quotes"),
    "quantity": (quantity.is_valid, "write an amount such as 8, 500m or 80Gi"),
}
"""Maps each form of a value to a pair: a function that returns whether a value has this form, and what to write if a value
does not have it."""
_TEXTS = {
    "ConfigMapVolumeSource": "name",
    "EmptyDirVolumeSource": "medium",
    "HostPathVolumeSource": "path",
    "PersistentVolumeClaimVolumeSource": "claimName",
    "SecretVolumeSource": "secretName",
}
"""Users sometimes write a text in place of an object. The table maps the type of the object to the field in which the text
probably belongs. For other types, this is the field `name`, if the type has this field."""
_LONGEST = 60
"""Maximum number of characters of a text that a remedy repeats."""


def correction(value: Any, form: str) -> str:
    """Return what to write instead of a value that does not have the form `form`; "" if it has this form. `form` is one of
    the forms in `pod_fields.field_forms`.
    """
    kind = "list" if form.startswith("[]") else "map" if form[:1].isupper() or form.startswith("{}") else form
    fine, remedy = _FORMS[kind]
    if fine(value):
        return ""
    if isinstance(value, str) and form[:1].isupper() and (example := _example(value, form)):
        return f"write {example}"
    return remedy


def _example(text: str, type_: str) -> str:
    """Return the object of the type `type_`, in YAML, that a user probably means by writing `text` in its place; "" if
    unknown.
    """
    known = pod_fields.field_forms(type_)
    name = _TEXTS.get(type_) or ("name" if "name" in known else "")
    plain = (
        text.isprintable() and len(text) <= _LONGEST and not set(text) & set("{}[],:#\"'&*!|>%@`") and text.strip() == text
    )
    if not text or not plain or name not in known:
        return ""
    return f"{{{name}: {text}}}"
