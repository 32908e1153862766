"""Careful reading of JSON that anybody may have written: a value of the wrong type is the same as none."""

import json
from collections.abc import Mapping
from typing import Any

Config = Mapping[str, Any]

TEXT_PARTS = ("text_config", "llm_config", "language_config", "thinker_config")
"""Where models of several senses keep the part that reads and writes text."""


def parse(text: str | bytes) -> Config | None:
    """A JSON object, None when it is none. Never raises."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def text_part(config: Config) -> Config:
    """The text model's own part of a config: the config itself, or the innermost part that wraps it."""
    for name in TEXT_PARTS:
        if part := section(config, name):
            return text_part(part)
    return config


def section(config: Config, name: str) -> Config:
    """A part of a config, empty when there is none."""
    found = config.get(name)
    return found if isinstance(found, dict) else {}


def whole(config: Config, *names: str) -> int | None:
    """The first of these fields that is a whole number of at least 0."""
    for name in names:
        value = config.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            return value
    return None


def word(config: Config, *names: str) -> str | None:
    """The first of these fields that is a text."""
    return next((value for name in names if isinstance(value := config.get(name), str) and value), None)
