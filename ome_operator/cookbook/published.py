"""Measurements of recipes that others have published, with their sources. This project did not make any of these
measurements.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from ome_operator.cookbook.fit import RoleFit
from ome_operator.cookbook.library import source
from ome_operator.util.kubeyaml import document


@dataclass(frozen=True)
class PublishedResult:
    """The published measurements of a recipe."""

    asked: dict[str, str]
    """The model, hardware, engine and strategy of the recipe, as a mapping with the keys `model`, `hardware`, `engine` and
    `strategy`.
    """
    roles: tuple[dict[str, int], ...]
    """The sizes of each role: name of a field of RoleFit -> value."""
    load: str
    """The load under which the recipe was measured, as text."""
    figures: tuple[str, ...]
    remark: str
    by: str
    date: str
    source: str
    runtimes: tuple[str, ...]
    """Names of the files in config/runtimes that implement the recipe."""

    @property
    def sentence(self) -> str:
        """The measurements and their source as a sentence for the user."""
        message = f"{self.by}, {self.date}; {self.load}"
        return (
            f"Published figures for these sizes ({message}): {'; '.join(self.figures)}. {self.remark} Not measured by this "
            f"project. Source: {self.source}"
        )

    def matches_plan(self, asked: Mapping[str, str], roles: Sequence[RoleFit]) -> bool:
        """Return whether a plan has the same model, hardware, engine and strategy (`asked`) and the same sizes (`roles`)
        as this recipe.
        """
        if asked != self.asked or len(roles) != len(self.roles) or any(role.groups > 1 for role in roles):
            return False
        wanted = [(role, name, size) for role, sizes in zip(roles, self.roles, strict=True) for name, size in sizes.items()]
        return all(getattr(role, name) == size for role, name, size in wanted)


@cache
def published_results() -> tuple[PublishedResult, ...]:
    """Return all recorded measurements."""
    data: list[dict[str, Any]] = document(source("published.yaml"))
    return tuple(
        PublishedResult(
            asked=each["for"],
            roles=tuple(each["roles"]),
            load=each["load"],
            figures=tuple(each["figures"]),
            remark=each["remark"],
            by=each["by"],
            date=str(each["date"]),
            source=each["source"],
            runtimes=tuple(each.get("runtimes", ())),
        )
        for each in data
    )
