"""Read fields of untrusted JSON. A value of the wrong type is treated as absent."""

import json
from collections.abc import Mapping
from typing import Any

Config = Mapping[str, Any]

TEXT_PARTS = ("text_config", "llm_config", "language_config", "thinker_config")
"""Names of the field in which multimodal models store the config of their text model."""


def parse(text: str | bytes) -> Config | None:
    """Return a JSON object, or None if the text is not a JSON object. Never raises."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def text_part(config: Config) -> Config:
    """Return the config of the text model: the innermost nested text config, or the config itself if it contains none."""
    for name in TEXT_PARTS:
        if part := section(config, name):
            return text_part(part)
    return config


def section(config: Config, name: str) -> Config:
    """Return the object in the field `name` of a config, or {} if it is absent."""
    value = config.get(name)
    return value if isinstance(value, dict) else {}


def whole_number(config: Config, *names: str) -> int | None:
    """Return the first of these fields that is a whole number of at least 0, or None."""
    for name in names:
        value = config.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            return value
    return None


def string(config: Config, *names: str) -> str | None:
    """Return the first of these fields that is a non-empty string, or None."""
    return next((value for name in names if isinstance(value := config.get(name), str) and value), None)
