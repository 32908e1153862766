"""Refuse a new revision if its weights have a path on the nodes that is a directory of the operating system."""

from collections.abc import Iterable, Mapping
from typing import Any

from ome_operator.core.problem import Problem
from ome_operator.core.reasons import MODEL_READY, Reason
from ome_operator.core.resolve.finetuned import mounted_weights
from ome_operator.core.weights.mount import DEFAULT_ROOT, claim, directory
from ome_operator.core.weights.system_paths import system_directory


def of_system(inputs: Mapping[str, Any], kept: Iterable[Mapping[str, Any]], agents: bool) -> tuple[Problem, ...]:
    """Return a problem for each set of weights in the inputs of a revision whose path on the nodes is a directory of the
    operating system. A path that a stored revision of the service already mounts is no problem, so that a service which an
    earlier version accepted keeps serving and can be edited.

    `kept` are the inputs of the stored revisions. `agents` is true if agents download the weights.
    """
    before = {each.get("path") for known in kept for each in mounted_weights(known)}
    new = (each for each in mounted_weights(inputs) if each["path"] not in before and _on_node(each, agents))
    messages = (refusal(each["kind"], each["name"], each["path"]) for each in new)
    return tuple(Problem(MODEL_READY, Reason.INVALID_MODEL, message) for message in messages if message)


def refusal(kind: str, name: str, path: str) -> str:
    """Return a message if `path`, the path of an object's weights on the nodes, is a directory of the operating system;
    otherwise "".
    """
    if not (system := system_directory(path)):
        return ""
    return (
        f"spec.storage.path of {kind} {name} is {path}, and {system} belongs to the operating system of the nodes: choose "
        f"another directory, such as {DEFAULT_ROOT}/{name}"
    )


def _on_node(identity: Mapping[str, str], agents: bool) -> bool:
    """Return whether pods mount the weights from the path on the node itself, and not from a volume claim or from a
    directory of a namespace. `agents` states whether agents download the weights.
    """
    return claim(identity["uri"]) is None and not (identity["namespace"] and directory(identity, agents))
