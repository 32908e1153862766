"""Read fields of untrusted JSON. A value of the wrong type is treated as absent."""

from collections.abc import Mapping
from typing import Any, TypeGuard

from ome_operator.util.visible import make_visible

LARGEST = 2**63 - 1
"""Largest number that the API server stores as an integer. A record with a larger number is rejected as a whole."""
LONGEST = 256
"""Maximum number of characters of a text that facts contain."""
Config = Mapping[str, Any]

TEXT_PARTS = ("text_config", "llm_config", "language_config", "thinker_config")
"""Names of the field in which multimodal models store the config of their text model."""


def text_part(config: Config) -> Config:
    """Return the config of the text model: the innermost nested text config, or the config itself if it contains none. A
    nested config without a `model_type` has the model type of the config around it.
    """
    inner, part, kind = config, config, None  # no recursion, because a config may be as deep as the decoder permits
    while part:
        inner, kind = part, part.get("model_type", kind)
        part = next((found for name in TEXT_PARTS if (found := section(part, name))), {})
    return inner if kind is None or "model_type" in inner else {**inner, "model_type": kind}


def section(config: Config, name: str) -> Config:
    """Return the object in the field `name` of a config, or {} if it is absent."""
    value = config.get(name)
    return value if isinstance(value, dict) else {}


def whole_number(config: Config, *names: str) -> int | None:
    """Return the value of the first of the fields `names` that is a whole number from 0 to LARGEST; None if there is no such
    field.
    """
    return next((value for name in names if is_whole(value := config.get(name))), None)


def is_whole(value: object) -> TypeGuard[int]:
    """Return whether a value is a whole number from 0 to LARGEST."""
    return type(value) is int and 0 <= value <= LARGEST


def string(config: Config, *names: str) -> str | None:
    """Return the value of the first of the fields `names` that is a non-empty string, shortened by `shorten`; None if there
    is no such field.
    """
    return next((shorten(value) for name in names if isinstance(value := config.get(name), str) and value), None)


def shorten(text: str) -> str:
    """Return at most the first LONGEST characters of a text, with invisible characters replaced by symbols."""
    return make_visible(text[:LONGEST])[:LONGEST]
