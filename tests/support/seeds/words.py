"""Returns the words of commands, as `ome generate` prints them and as pods run them."""

import json
import shlex
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import yaml
from typer.testing import CliRunner, Result

from ome_operator import keys
from ome_operator.cli.generate import app
from ome_operator.cookbook.library import Engine, engine
from ome_operator.core.observed.objects import Manifest, Observed
from ome_operator.core.reconcile.sync import sync
from tests.support import parts
from tests.support.simulator import START

ROUTER = "router"


class NothingThere(Exception):
    """A proof refers to an object, a component or a container that does not exist."""


@cache
def generate(words: str) -> Result:
    """Run `ome generate` with these arguments."""
    return CliRunner().invoke(app, shlex.split(words), env={"COLUMNS": "200"})


def command(words: str, block: int = 0) -> list[str]:
    """Return the words of a command that `ome generate` prints. `block` is its number in the output, which has one command
    for each node and one for the load balancer.
    """
    done = generate(words)
    blocks = done.stdout.strip().split("\n\n")
    return shell(blocks[block]) if done.exit_code == 0 and block < len(blocks) else []


def shell(text: str) -> list[str]:
    """Return the words of shell commands, without comments and continued lines."""
    return shlex.split(text.replace("\\\n", " "), comments=True)


def chosen_engine(words: str) -> Engine:
    """Return the data of the engine and the version that these arguments select."""
    said = shlex.split(words)
    found = {option: said[said.index(option) + 1] for option in ("--engine", "--engine-version") if option in said}
    return engine(found.get("--engine", "sglang"), found.get("--engine-version"))


def objects(source: Mapping[str, str]) -> list[Manifest]:
    """Return the objects that the operator's first reconciliation writes for a service.

    The service is a `sample` of `config`, the sample of Kimi K2 on another `runtime`, the output of `generate`, or a `case`
    of the golden tests.
    """
    return _objects(*(source.get(key, "") for key in ("sample", "runtime", "generate", "case")))


@cache
def _objects(sample: str, runtime: str, words: str, case: str) -> list[Manifest]:
    if words:
        made = generate(f"{words} -o yaml")
        if made.exit_code:
            raise NothingThere(f"ome generate {words}: {made.exception}")
        service, deps = parts.apply_bodies(list(yaml.safe_load_all(made.stdout)))
    elif case:
        service, deps = parts.apply_bodies(parts.read_documents(parts.ROOT / f"tests/golden/{case}/in.yaml"))
    else:
        service, deps = parts.kimi(runtime) if runtime else parts.shipped_service(sample)
    plan = sync(service, deps, Observed(), START)
    found = [written.manifest for written in (*plan.first, *plan.ensure_secret, *plan.apply, *plan.create)]
    out: list[Manifest] = json.loads(json.dumps(found))
    return out


def pod(source: Mapping[str, str]) -> Manifest:
    """Return the pod template of a `component`: of its leader, or, if `rank` is set, of its workers."""
    component, worker = source.get("component", keys.ENGINE), source.get("rank") == "worker"
    kind = "Deployment" if component == ROUTER else "StatefulSet"
    for body in objects(source):
        if body["kind"] == kind and body["metadata"]["name"].endswith("-w") == worker:
            template: Manifest = body["spec"]["template"]
            if template["metadata"]["labels"]["component"] == component:
                return template
    raise NothingThere(f"{dict(source)}: no such pod")


def container(source: Mapping[str, str]) -> Manifest:
    """Return the container in which the engine or the router runs."""
    first: Manifest = next(box for box in pod(source)["spec"]["containers"] if box["name"] in (keys.RUNNER, ROUTER))
    return first


def run(source: Mapping[str, str]) -> list[str]:
    """Return the words of a container's command, including the words of a script. A flag and its value are two words."""
    box = container(source)
    words = [*box.get("command", ()), *box.get("args", ())]
    flat = shell(words[-1]) if "-c" in words else words
    return [part for word in flat for part in _split(word)]


def _split(word: str) -> list[str]:
    name, _, value = word.partition("=")
    return [name, value] if name.startswith("--") and "=" in word else [word]


def variables(source: Mapping[str, str]) -> dict[str, Any]:
    """Return the variables of a container. A variable that the kubelet sets has its source as the value."""
    return {entry["name"]: entry.get("value", entry.get("valueFrom")) for entry in container(source).get("env", ())}


def contains_sequence(words: Sequence[str], part: Sequence[str]) -> bool:
    """Return whether the words contain the part as a contiguous sequence."""
    return any(list(words[at : at + len(part)]) == list(part) for at in range(len(words)))
