"""Where something of a role is written: the object and the field that a person edits."""

from collections.abc import Callable, Mapping
from typing import Any

from ome_operator.lint.finding import Location
from ome_operator.lint.launch import Argument
from ome_operator.lint.subject import Role, Subject

Runner = Mapping[str, Any]


def argument(role: Role, given: Argument) -> Location:
    """Where an argument stands."""

    def says(part: str) -> Callable[[Runner], bool]:
        return lambda runner: any(given.word in str(word) for word in runner.get(part) or ())

    found = _runner(role, says("args"), "args")
    return found if found.field.endswith(".args") else _runner(role, says("command"), "command")


def arguments(role: Role) -> Location:
    """Where an argument is added."""
    return _runner(role, lambda runner: bool(runner.get("args") or runner.get("command")), "args")


def variable(role: Role, name: str) -> Location:
    """Where a variable stands, or is added."""

    def says(runner: Runner) -> bool:
        return any(isinstance(item, Mapping) and item.get("name") == name for item in runner.get("env") or ())

    return _runner(role, says, "env", lambda runner: bool(runner.get("args") or runner.get("command")))


def field(role: Role, name: str) -> Location:
    """Where a field of the main container stands, or is added."""
    return _runner(
        role, lambda runner: name in runner, name, lambda runner: bool(runner.get("args") or runner.get("command"))
    )


def whole(role: Role) -> Location:
    """A component as a whole."""
    object_, path, _ = role.written[-1] if role.written else ("", role.component, None)
    return Location(object_, path)


def service(subject: Subject) -> Location:
    """The service, or the runtime where there is none."""
    return Location(f"InferenceService {subject.service}" if subject.service else subject.runtime, "spec")


def _runner(role: Role, *says: Callable[[Runner], bool] | str) -> Location:
    """The highest layer whose runner says something: the first of several questions that any layer answers."""
    name = next(item for item in says if isinstance(item, str))
    for asks in (item for item in says if not isinstance(item, str)):
        for object_, path, component in role.written:
            for part in ("leader", "worker", ""):
                inner = getattr(component, part) if part else component
                if inner is not None and inner.runner and asks(inner.runner):
                    return Location(object_, f"{path}.{part}{'.' if part else ''}runner.{name}")
    return whole(role)
