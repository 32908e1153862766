"""The actions that a user can take on a service, as commands to copy. This module runs no command."""

import re
import shlex
from collections.abc import Iterator
from typing import NamedTuple

from ome_operator import keys
from ome_operator.describe.tree import Tree

_COMMAND = re.compile(r"\b(?:ome|kubectl) [a-z]")
"""Matches the beginning of the command in a next step that `describe/diagnosis.py` returns. The command is the end of a
sentence, and contains no semicolon."""


class CommandBuilder(NamedTuple):
    """A function object that builds commands for the cluster that the current program uses."""

    flags: tuple[str, ...] = ()
    """Flags such as `--context prod`, which `ome` and `kubectl` share."""

    def __call__(self, *words: str) -> str:
        """Return a command line in which every word is quoted for a shell if necessary."""
        return shlex.join([*words, *self.flags])

    def step(self, message: str) -> tuple[str, str]:
        """Split `message`, the next step of a user, into its sentence and the command at its end. A missing part is ""."""
        match = _COMMAND.search(message, message.rfind(";") + 1)
        if match is None:
            return message, ""
        command = message[match.start() :].strip()
        return message[: match.start()].rstrip(" :"), " ".join([command, *map(shlex.quote, self.flags)])


class Action(NamedTuple):
    """A command with its purpose."""

    title: str
    command: str
    edits: bool = False
    """Whether the command changes an object on the cluster. If not, the command only reads."""


def of_service(
    tree: Tree, shell: CommandBuilder, *, paused: bool, frozen: bool, rejected: bool, back: str
) -> Iterator[Action]:
    """Yield the actions for a service. The flags state whether the service is paused, is frozen, and has a rejected
    revision. `back` is the revision to which an undo would return; "" if there is none.
    """
    name, where = tree.name, ("-n", tree.namespace)
    yield Action("Watch the service in a terminal", shell("ome", "status", name, *where, "-w"))
    yield Action("Explain the state of the service", shell("ome", "explain", name, *where))
    yield Action("Follow all logs", shell("ome", "logs", name, *where, "-f"))
    if tree.url:
        yield Action(
            ("Connect to the service from this machine"),
            shell("kubectl", "port-forward", *where, f"service/{name}", "8080:80"),
        )
    yield Action("Show the complete object", shell("kubectl", "get", "isvc", name, *where, "-o", "yaml"))
    yield Action("Edit the service", shell("kubectl", "edit", "isvc", name, *where), True)
    if tree.pin:
        yield Action(
            ("Remove the pin, so that the service follows its spec again"), shell("ome", "undo", name, *where, "--off"), True
        )
    elif back:
        yield Action(f"Go back to revision {back}, and pin the service to it", shell("ome", "undo", name, *where), True)
    if rejected:
        yield Action("Try the rejected revision again", shell("ome", "retry", name, *where), True)
    if paused:
        yield Action("Continue the paused rollout", shell("ome", "resume", name, *where), True)
    else:
        yield Action(
            ("Pause the service: record new revisions without rolling them out"), shell("ome", "pause", name, *where), True
        )
    if frozen:
        yield Action("End the freeze", shell("ome", "thaw", name, *where), True)
    else:
        yield Action(
            ("Freeze the service: stop everything that would change its pods"), shell("ome", "freeze", name, *where), True
        )
    yield Action("Replace all engine and decoder pods", shell("ome", "restart", name, *where), True)


def of_rank(tree: Tree, role: str, group: int, rank: int, shell: CommandBuilder, *, previous: bool = False) -> str:
    """Return the command that shows the log of a rank. For routers, the command shows the logs of all of their pods. If
    `previous` is true, the command shows the log of the previous container, which has ended.
    """
    place = () if role == keys.ROUTER else ("--group", str(group), "--rank", str(rank))
    last = ("--previous",) if previous else ()
    return shell("ome", "logs", tree.name, "-n", tree.namespace, "--role", role, *place, *last)
