"""Write the launch commands of a plan as text for a shell, with the reason for every flag."""

import re
import shlex
from collections.abc import Iterator

from ome_operator.cookbook.fit import RoleFit
from ome_operator.cookbook.layout import PlanProposal
from ome_operator.cookbook.preset import RANK, Launch, PresetArgument, in_pods, in_shell

_PLAIN = re.compile(r"[\w@%+=:,./${}-]+|\$\(\([\w *]+\)\)")
"""Pattern of the words that need no quotes in a shell. The words may contain variables and products of variables."""


def commands(plan: PlanProposal) -> str:
    """Return the launch commands of a plan as text. In a group of at most two nodes, each node has its own command. In a
    larger group, nodes with the same launch share a command that contains $RANK. If several engines need a load
    balancer, its command is appended.
    """
    out = []
    filled = in_shell(plan)
    for role, launch in zip(plan.roles, filled.launches, strict=True):
        for rank in _ranks(role, launch):
            starts = launch.worker if launch.worker and rank != "0" else launch
            out.append(_title(plan, role, rank, launch.worker is None) + _command(starts).replace(RANK, rank))
    if filled.balancer is not None:
        out.append(f"# The load balancer, to which clients send requests\n{_command(filled.balancer)}")
    return "\n\n".join(out) + "\n"


def _ranks(role: RoleFit, launch: Launch) -> tuple[str, ...]:
    """Return the ranks that have their own command. The rank "$RANK" stands for all nodes that share a command."""
    if launch.worker:
        return ("0", "1") if role.nodes == 2 else ("0", RANK)
    return ("0", "1") if role.nodes == 2 else (RANK,)


def _title(plan: PlanProposal, role: RoleFit, rank: str, alike: bool) -> str:
    """Return a comment line that states where a command runs; "" if all commands of the plan run at the same place. `alike`
    states whether all nodes of the group share the command.
    """
    parts = [role.stage.capitalize()] if role.stage else []
    if plan.copies > 1:
        parts.append(f"each of {plan.copies} copies")
    if role.groups > 1:
        parts.append(f"each of {role.groups} groups")
    if role.nodes > 1 and rank != RANK:
        parts.append(f"node {rank}")
    elif role.nodes > 1:
        parts.append(f"each of {role.nodes} nodes, RANK=0 to {role.nodes - 1}" if alike else "each of the other nodes")
    message = ": ".join(parts)
    return f"# {message[0].upper()}{message[1:]}\n" if message else ""


_MEANING = {
    "RANK": "the number of the node, from 0",
    "MASTER_IP": "an address of node 0 that the other nodes can connect to",
    "LOCAL_IP": "the address of the node on which the command runs",
    "PREFILL_NODE0": "the address of node 0 of prefill",
    "DECODE_NODE0": "the address of node 0 of decode",
    "IB_DEVICE": (
        "the InfiniBand devices of the node as `ibv_devices` lists them, separated by commas (pods have them in the "
        "variable IB_DEVICES)"
    ),
    "WORKER_URLS": "http://HOST:PORT of each copy, separated by spaces",
    "PORT": "a port that is free on all nodes",
    "HOST1": "the host name of node 1 for SSH; HOST2 is the host name of node 2, and so on",
}
_NODE0 = re.compile(r"(PREFILL|DECODE)(\d+)_NODE0")
_VARIABLE = re.compile(r"\$\{?([A-Z][A-Z0-9_]*)")


def variables(text: str) -> tuple[str, ...]:
    """Return a sentence for each variable in these commands that the user has to set."""
    meanings = ((name, _meaning(name)) for name in dict.fromkeys(_VARIABLE.findall(text)))
    return tuple(f"${name}: {meaning}." for name, meaning in meanings if meaning)


def _meaning(name: str) -> str:
    if found := _NODE0.fullmatch(name):
        return f"the address of node 0 of group {found[2]} of {found[1].lower()}"
    return _MEANING.get(name, "")


def reasons(plan: PlanProposal) -> str:
    """Return every flag and variable with its reason: first the flags and variables of each role, then the flags and
    variables that only the pods of a service have. A flag that two roles share is listed once.
    """
    shell, pods = in_shell(plan).launches, in_pods(plan).launches
    out: list[str] = []
    seen: set[PresetArgument] = set()
    for role, launch in zip(plan.roles, shell, strict=True):
        words = list(dict.fromkeys(one for one in _all(launch) if one not in seen))
        out += _section(role.stage or role.component, words)
        seen |= set(words)
    names = {one.name for one in seen}
    added = [one for launch in pods for one in _all(launch) if one.name not in names]
    out += _section("In pods also", list(dict.fromkeys(added)))
    return "\n".join(out) + "\n"


def _all(launch: Launch) -> tuple[PresetArgument, ...]:
    """Return every flag and variable of a launch. The flags and variables that only the other nodes than the leader's have
    are last.
    """
    return (*launch.env, *launch.flags, *(_all(launch.worker) if launch.worker else ()))


def _section(title: str, words: list[PresetArgument]) -> list[str]:
    width = max((len(_text(one)) for one in words if len(_text(one)) <= _WIDEST), default=0)
    return [f"{title[0].upper()}{title[1:]}:", *(line for one in words for line in _reason(one, width))]


_WIDEST = 44
"""Width of the column of flags, in characters. If a flag is longer, its reason is on the next line."""


def _reason(one: PresetArgument, width: int) -> Iterator[str]:
    text = _text(one)
    if len(text) > width:
        yield f"  {text}"
        text = ""
    yield f"  {text:<{width}}  {one.why}"


def _text(one: PresetArgument) -> str:
    if not one.name.startswith("-"):
        return f"{one.name}={one.value}"
    return one.name if one.value is None else f"{one.name} {one.value}"


def _command(launch: Launch) -> str:
    """Return the command over several lines. The shell lines that run before the command come first."""
    words = [f"{one.name}={_quoted(one.value or '')}" for one in launch.env]
    program = " ".join(_quoted(one) for one in launch.program)
    head = " ".join((*words, program)) if len(words) < 2 else " \\\n".join((" ".join(words), program))
    flags = [one.name if one.value is None else f"{one.name} {_quoted(one.value)}" for one in launch.flags]
    return "\n".join((*launch.before, " \\\n  ".join((head, *flags, *launch.after))))


def _quoted(word: str) -> str:
    return word if _PLAIN.fullmatch(word) else shlex.quote(word)


def script_word(word: str) -> str:
    """Return a word for a shell script. Variables in it are expanded, and the result stays a single word."""
    return f'"{word}"' if "$" in word else _quoted(word)
