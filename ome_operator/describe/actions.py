"""What a person can do about a service, as commands to copy. Nothing here does anything."""

import re
import shlex
from collections.abc import Iterator
from typing import NamedTuple

from ome_operator import keys
from ome_operator.describe.tree import Tree

_COMMAND = re.compile(r"(.*?)(?:: )?(\b(?:ome|kubectl) [a-z][^;]*)", re.DOTALL)
"""A step of `describe/diagnosis.py`: words, and the command that they end with."""


class Shell(NamedTuple):
    """Makes commands that reach the same cluster as whoever shows them."""

    flags: tuple[str, ...] = ()
    """Such as `--context prod`: `ome` and `kubectl` call them alike."""

    def __call__(self, *words: str) -> str:
        """A command with every word quoted where a shell would take it apart."""
        return shlex.join([*words, *self.flags])

    def step(self, said: str) -> tuple[str, str]:
        """What a next step says, and the command that it ends with; "" for either where it has none."""
        match = _COMMAND.fullmatch(said)
        if match is None:
            return said, ""
        return match[1].rstrip(" :"), " ".join([match[2].strip(), *map(shlex.quote, self.flags)])


class Action(NamedTuple):
    """A command, and what it is for."""

    title: str
    command: str
    edits: bool = False
    """Whether it changes something on the cluster; else it only looks."""


def of_service(tree: Tree, shell: Shell, *, paused: bool, frozen: bool, rejected: bool, back: str) -> Iterator[Action]:
    """What there is to do about a service; `back`: the revision that an undo would go to, "" for none."""
    name, where = tree.name, ("-n", tree.namespace)
    yield Action("Watch it in a terminal", shell("ome", "status", name, *where, "-w"))
    yield Action("Why it is as it is", shell("ome", "explain", name, *where))
    yield Action("Follow all logs", shell("ome", "logs", name, *where, "-f"))
    if tree.url:
        yield Action("Reach it from here", shell("kubectl", "port-forward", *where, f"service/{name}", "8080:80"))
    yield Action("Everything that is stored of it", shell("kubectl", "get", "isvc", name, *where, "-o", "yaml"))
    yield Action("Edit it", shell("kubectl", "edit", "isvc", name, *where), True)
    if tree.pin:
        yield Action("End its pin, and follow the spec again", shell("ome", "undo", name, *where, "--off"), True)
    elif back:
        yield Action(f"Go back to revision {back}, and stay there", shell("ome", "undo", name, *where), True)
    if rejected:
        yield Action("Try the rejected revision again", shell("ome", "retry", name, *where), True)
    if paused:
        yield Action("Go on with what the pause holds back", shell("ome", "resume", name, *where), True)
    else:
        yield Action("Record new revisions, and roll none of them out", shell("ome", "pause", name, *where), True)
    if frozen:
        yield Action("End the freeze", shell("ome", "thaw", name, *where), True)
    else:
        yield Action("Stop everything that would touch its pods", shell("ome", "freeze", name, *where), True)
    yield Action("Replace all pods of its engines", shell("ome", "restart", name, *where), True)


def of_rank(tree: Tree, role: str, group: int, rank: int, shell: Shell, *, previous: bool = False) -> str:
    """The command that shows the log of a rank; of routers that of all of them."""
    place = () if role == keys.ROUTER else ("--group", str(group), "--rank", str(rank))
    last = ("--previous",) if previous else ()
    return shell("ome", "logs", tree.name, "-n", tree.namespace, "--role", role, *place, *last)
