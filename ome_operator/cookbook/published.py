"""Published measurements of recipes by others, with their source. None of them was measured in this project."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from ome_operator.cookbook.fit import RoleFit
from ome_operator.cookbook.library import source
from ome_operator.util.kubeyaml import document


@dataclass(frozen=True)
class Published:
    """Published measurements of a recipe."""

    asked: dict[str, str]
    """The model, hardware, engine and strategy."""
    roles: tuple[dict[str, int], ...]
    """The sizes of each role."""
    load: str
    """The load of the measurement."""
    figures: tuple[str, ...]
    remark: str
    by: str
    date: str
    source: str
    runtimes: tuple[str, ...]
    """Files in config/runtimes that implement the recipe."""

    @property
    def sentence(self) -> str:
        """The measurements as a sentence for the user."""
        said = f"{self.by}, {self.date}; {self.load}"
        return (
            f"Published for these sizes ({said}): {'; '.join(self.figures)}. {self.remark} Not measured here: {self.source}"
        )

    def matches(self, asked: Mapping[str, str], roles: Sequence[RoleFit]) -> bool:
        """Return whether a plan has the same model, hardware, engine, strategy and sizes as this recipe."""
        if asked != self.asked or len(roles) != len(self.roles) or any(role.groups > 1 for role in roles):
            return False
        wanted = [(role, name, size) for role, sizes in zip(roles, self.roles, strict=True) for name, size in sizes.items()]
        return all(getattr(role, name) == size for role, name, size in wanted)


@cache
def published() -> tuple[Published, ...]:
    """Return all recorded measurements."""
    data: list[dict[str, Any]] = document(source("published.yaml"))
    return tuple(
        Published(
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
