"""A receiver of watch events (`Sink`) that records its calls."""

from collections.abc import Mapping
from typing import Any


class Sink:
    """Records the calls in their order."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def handle_object(self, kind: str, body: Mapping[str, Any]) -> None:
        """Record that an object exists."""
        self.said.append(f"seen {body['metadata']['name']}")

    def handle_deletion(self, kind: str, body: Mapping[str, Any]) -> None:
        """Record that an object was deleted."""
        self.said.append(f"deleted {body['metadata']['name']}")

    def handle_relist(self, kind: str) -> None:
        """Record that a complete list of objects has begun which is not the first."""
        self.said.append("relisted")
