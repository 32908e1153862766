"""Finds where a setting of a role is written, which is the object and the field that the user has to edit."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ome_operator.lint.finding import Location
from ome_operator.lint.launch import Argument
from ome_operator.lint.subject import Role, Subject

Runner = Mapping[str, Any]


def argument(role: Role, given: Argument) -> Location:
    """Return the location at which an argument of a role is written."""

    def says(part: str) -> Callable[[Runner], bool]:
        return lambda runner: any(given.word in str(word) for word in runner.get(part) or ())

    found = _runner(role, says("args"), "args")
    return found if found.field.endswith(".args") else _runner(role, says("command"), "command")


def arguments(role: Role) -> Location:
    """Return the location at which an argument can be added."""
    return _runner(role, lambda runner: bool(runner.get("args") or runner.get("command")), "args")


def variable(role: Role, name: str) -> Location:
    """Return the location of an environment variable. If the variable is not set, return the location at which the variable
    can be added.
    """

    def says(runner: Runner) -> bool:
        return any(isinstance(item, Mapping) and item.get("name") == name for item in runner.get("env") or ())

    return _runner(role, says, "env", lambda runner: bool(runner.get("args") or runner.get("command")))


def field(role: Role, name: str) -> Location:
    """Return the location of a field of the main container. If the field is not set, return the location at which the field
    can be added.
    """
    return _runner(
        role, lambda runner: name in runner, name, lambda runner: bool(runner.get("args") or runner.get("command"))
    )


def in_pod(role: Role, path: Sequence[str]) -> Location:
    """Return the location of a field of a pod spec. `path` contains the fields on the way to the value: none for the pod
    itself, and only `containers` for a container.
    """
    if path[:1] == ("containers",):
        return field(role, path[1]) if path[1:] else _container(role)
    for object_, at, component in role.written if path else ():
        for part in ("leader", "worker", ""):
            inner = getattr(component, part) if part else component
            if inner is not None and path[0] in inner.pod:
                return Location(object_, ".".join(filter(None, (at, part, path[0]))))
    return component_location(role)


def _container(role: Role) -> Location:
    """Return the location of the main container itself."""
    found = field(role, "image")
    return found._replace(field=found.field.removesuffix(".image"))


def component_location(role: Role) -> Location:
    """Return the location of the role's component in the lowest layer that contains it (the last of `Role.written`)."""
    object_, path, _ = role.written[-1] if role.written else ("", role.component, None)
    return Location(object_, path)


def service(subject: Subject) -> Location:
    """Return the location of the service's spec, or of the runtime's spec if the runtime is checked without a service."""
    return Location(f"InferenceService {subject.service}" if subject.service else subject.runtime, "spec")


def _runner(role: Role, *says: Callable[[Runner], bool] | str) -> Location:
    """Return the location of a field of a role's runner. `says` contains the name of the field, and functions that test a
    runner, the preferred test first. The first test that any runner satisfies decides: the location is in the topmost layer
    with such a runner. If no runner satisfies any test, return the location of the component.
    """
    name = next(item for item in says if isinstance(item, str))
    for asks in (item for item in says if not isinstance(item, str)):
        for object_, path, component in role.written:
            for part in ("leader", "worker", ""):
                inner = getattr(component, part) if part else component
                if inner is not None and inner.runner and asks(inner.runner):
                    return Location(object_, f"{path}.{part}{'.' if part else ''}runner.{name}")
    return component_location(role)
