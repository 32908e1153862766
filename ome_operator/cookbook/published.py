"""What others have measured and published for a recipe, with the place where they say so. Nobody here has measured it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from ome_operator.cookbook.fit import RoleFit
from ome_operator.cookbook.library import source
from ome_operator.util.kubeyaml import document


@dataclass(frozen=True)
class Published:
    """Figures of a recipe."""

    asked: dict[str, str]
    """model, hardware, engine and strategy."""
    roles: tuple[dict[str, int], ...]
    """Sizes of each role."""
    load: str
    """How it was measured."""
    figures: tuple[str, ...]
    remark: str
    by: str
    date: str
    source: str
    runtimes: tuple[str, ...]
    """Files of config/runtimes that have the recipe."""

    @property
    def sentence(self) -> str:
        """What a person is told."""
        said = f"{self.by}, {self.date}; {self.load}"
        return (
            f"Published for these sizes ({said}): {'; '.join(self.figures)}. {self.remark} Not measured here: {self.source}"
        )

    def suits(self, asked: Mapping[str, str], roles: Sequence[RoleFit]) -> bool:
        """Whether a plan is this recipe."""
        if asked != self.asked or len(roles) != len(self.roles) or any(role.groups > 1 for role in roles):
            return False
        wanted = [(role, name, size) for role, sizes in zip(roles, self.roles, strict=True) for name, size in sizes.items()]
        return all(getattr(role, name) == size for role, name, size in wanted)


@cache
def published() -> tuple[Published, ...]:
    """All that is recorded."""
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
