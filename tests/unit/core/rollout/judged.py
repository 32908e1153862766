"""A ready service of SGLang, edits of its arguments, and whether the operator refused to roll them out."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ome_operator import keys
from ome_operator.core.observed.objects import Deps
from ome_operator.lint.validator import Validator
from tests.support import parts
from tests.support.simulator import World

GOOD, BAD = "--mem-fraction-static=0.8", "--enable-deepep-moe"
OFFICIAL = "docker.io/lmsysorg/sglang:v0.5.23"


def service(groups: int = 1, notes: Mapping[str, str] | None = None, **more: Any) -> Any:
    """Return a service with this number of groups."""
    return parts.service(engine={"minReplicas": groups}, annotations=dict(notes or {}), **more)


def deps(*args: str, image: str = OFFICIAL, judge: Any = None, command: list[str] | None = None) -> Deps:
    """Return the objects that the service refers to, with an engine that has these arguments."""
    box = parts.container(
        image=image,
        command=command or ["python3", "-m", "sglang.launch_server"],
        args=["--model-path=$(MODEL_PATH)", "--host=0.0.0.0", "--port=8080", *args],
        resources={"limits": {"nvidia.com/gpu": 1}},
    )
    runtime = parts.runtime(engineConfig={"runner": box})
    return replace(parts.deps(parts.model(), runtime), judge=judge or Validator())


def world(*args: str, notes: Mapping[str, str] | None = None, **more: Any) -> World:
    """Return the simulated world of a service that has settled."""
    made = World(service(notes=notes), deps(*args, **more), 1)
    made.settle()
    return made


def edited(before: World, *args: str, judge: Any = None, **more: Any) -> World:
    """Edit the runtime of a service, and return its world after everything has settled."""
    before.edit(deps=deps(*args, judge=judge or before.deps.judge, **more))
    before.settle()
    return before


def refused(found: World) -> bool:
    """Return whether the status reports that the edit is refused."""
    return bool(found.condition("RolledOut")["reason"] == "ConfigurationRefused")


def revisions(found: World) -> int:
    """Return the number of stored revisions."""
    return sum(kind == "ControllerRevision" for kind, _ in found.children)


def revision_names(found: World) -> set[str]:
    """Return the names of the stored revisions."""
    return {one.labels[keys.REVISION] for (kind, _), one in found.children.items() if kind == "ControllerRevision"}
