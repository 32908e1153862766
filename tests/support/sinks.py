"""A sink of watches that writes down what it is told."""

from collections.abc import Mapping
from typing import Any


class Sink:
    """What it was told, in order."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def seen(self, kind: str, body: Mapping[str, Any]) -> None:
        """An object is there."""
        self.said.append(f"seen {body['metadata']['name']}")

    def deleted(self, kind: str, body: Mapping[str, Any]) -> None:
        """An object was deleted."""
        self.said.append(f"deleted {body['metadata']['name']}")

    def relisted(self, kind: str) -> None:
        """A list was not the first to begin."""
        self.said.append("relisted")
