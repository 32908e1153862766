"""Tests of two commands that edit the same object at the same time: neither loses what the other wrote.

The second command runs between any two requests of the first. The result has to be the same as if one of them had run
after the other.
"""

import ast
import copy
import re
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import cache
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

import ome_operator.cli
from ome_operator import keys
from ome_operator.cli import connect, rollout
from ome_operator.cli import freeze as freezing
from ome_operator.cli.app import app
from ome_operator.errors import UserError
from ome_operator.kube.errors import Conflict, NotFound
from tests.support.fake_api import Call, FakeApi

Manifest = dict[str, Any]
EDITS = {
    "move.py": ("move svc decode/1", "move svc decode/2", "move gpu-1", "move --now gpu-1"),
    "rollout.py": ("undo svc", "undo svc --off", "retry svc", "restart svc", "pause svc", "resume svc"),
    "scale.py": ("scale svc --undo",),
    "wake.py": ("wake svc",),
    "freeze.py": ("thaw svc", "thaw --all"),
}
"""Commands that write what they computed from an object that they have read, by the file of the command."""
CONSTANTS = {
    "freeze.py": ("freeze svc --timeout 0",),
    "scale.py": ("scale svc --resume",),
    "nodes.py": ("nodes forgive gpu-1",),
}
"""Commands that write a value that does not depend on the object, by the file of the command."""
COMMANDS = sorted({words for some in (EDITS, CONSTANTS) for all_ in some.values() for words in all_})
TIME = re.compile(r"20[0-9-]+T[0-9:.]+(Z|[+]00:00)")
SERVER_TIME = "2020-01-01T00:00:00Z"
"""The clock of the API server, which is far behind the one of this machine."""


def metadata(name: str, **more: Any) -> Manifest:
    return {"name": name, "namespace": "team", "uid": f"uid-{name}", "generation": 1, "resourceVersion": "1", **more}


def objects() -> dict[tuple[str, str], Manifest]:
    """Return the objects of a cluster in which each of the commands has something to do."""
    groups = [{"component": "engine", "phase": "Ready"}, *({"component": "decoder", "index": at} for at in (1, 2))]
    wanted = {"prefill": 2, "decode": 1, "routers": 1}
    sizes = [{**wanted, "prefill": 1, "time": SERVER_TIME}, {**wanted, "time": SERVER_TIME}]
    status = {
        "groups": groups,
        "components": {"engine": {"replicas": 0}, "decoder": {"replicas": 0}},
        "zero": {"groups": {"engine": 3, "decoder": 2}},
        "scaling": {"mode": "Apply", "wanted": wanted, "decisions": sizes},
        "rejected": [{"revision": "22222222", "edit": 2}],
    }
    notes = {keys.FREEZE: f"{SERVER_TIME} by bob: driver"}
    spec = {"model": {"name": "m"}, "engine": {}, "decoder": {}, "moves": {}, "rollout": {"revision": "11111111"}}
    service = {
        "kind": "InferenceService",
        "metadata": metadata("svc", annotations={**notes}),
        "spec": spec,
        "status": status,
    }
    bodies: dict[tuple[str, str], Manifest] = {
        ("InferenceService", "svc"): {"apiVersion": keys.API_VERSION, **service},
        ("Node", "gpu-1"): {"metadata": metadata("gpu-1")},
        ("NodeFaults", "gpu-1"): {"metadata": metadata("gpu-1")},
        ("Lease", "ome-operator"): {"metadata": metadata("ome-operator", annotations=notes)},
    }
    for role in ("engine", "decoder"):
        made = metadata(f"svc-{role}", labels={keys.COMPONENT: role, keys.SERVICE: "svc"})
        bodies["RoleScale", f"svc-{role}"] = {"apiVersion": keys.API_VERSION, "kind": "RoleScale", "metadata": made}
    return copy.deepcopy(bodies)


def revision(number: int) -> Manifest:
    labels = {keys.SERVICE: "svc", keys.REVISION: f"{number}" * 8, keys.MANAGED_BY: keys.MANAGER}
    owner = {"apiVersion": keys.API_VERSION, "kind": "InferenceService", "name": "svc", "uid": "uid-svc", "controller": True}
    made = {**metadata(f"svc-{number}", labels=labels), "ownerReferences": [owner]}
    data = {"inputs": {"n": number}}
    return {"apiVersion": "apps/v1", "kind": "ControllerRevision", "metadata": made, "revision": number, "data": data}


class Cluster(FakeApi):
    """A cluster that stores objects, and refuses a patch for another version of the object than the stored one."""

    def __init__(self) -> None:
        self.stored, self.versions = objects(), count(2)
        self.interrupt: Callable[[int], None] = lambda _: None
        """Called before each request, with the number of requests so far."""
        labels = {keys.SERVICE: "svc", keys.COMPONENT: "engine", keys.REVISION: "1" * 8}
        pod = {"metadata": metadata("svc-engine-11111111-0-0", labels=labels)}
        listed: dict[str, Callable[[], list[Manifest]]] = {
            "Pod": lambda: [pod],
            "ControllerRevision": lambda: [revision(1), revision(2)],
            "RoleScale": lambda: [body for (kind, _), body in self.stored.items() if kind == "RoleScale"],
            "Lease": lambda: [self.stored["Lease", "ome-operator"]],
            "InferenceService": lambda: [self.stored["InferenceService", "svc"]],
        }
        super().__init__(
            {
                "get": lambda call: self.stored.get((call.kind, call.name)) or NotFound("no", 404),
                "list_objects": lambda call: listed[call.kind](),
                "create SelfSubjectReview": {"status": {"userInfo": {"username": "alice"}}},
                "patch_merge": self.patched,
            }
        )
        self.connection = SimpleNamespace(namespace="team")  # type: ignore[assignment]

    async def _answer(self, call: Call) -> Any:
        self.interrupt(len(self.calls))
        return copy.deepcopy(await super()._answer(call))

    def patched(self, call: Call) -> Manifest | Exception:
        """Merge a patch into the stored object, and record when its annotation `ome.io/move` was written."""
        body, wanted = self.stored[call.kind, call.name], copy.deepcopy(call.body)
        seen = wanted.get("metadata", {}).pop("resourceVersion", "")
        if seen not in ("", body["metadata"]["resourceVersion"]):
            return Conflict("the object has been modified", 409)
        before = copy.deepcopy(body.get("spec"))
        merge(body, wanted)
        body["metadata"]["resourceVersion"] = str(next(self.versions))
        body["metadata"]["generation"] += body.get("spec") != before
        fields: Manifest = {"f:metadata": {"f:annotations": {f"f:{keys.MOVE}": {}}}}
        body["metadata"]["managedFields"] = [{"manager": "ome-cli", "time": SERVER_TIME, "fieldsV1": fields}]
        return body

    def state(self) -> str:
        """Return the stored objects as text, without their versions and with all times replaced."""
        kept = copy.deepcopy(self.stored)
        for body in kept.values():
            body["metadata"].pop("resourceVersion")
            body["metadata"].pop("managedFields", None)
            move = (body["metadata"].get("annotations") or {}).get(keys.MOVE)
            if move:
                body["metadata"]["annotations"][keys.MOVE] = sorted(move.split(", "))
        return TIME.sub("TIME", repr(sorted(kept.items())))


def merge(body: Manifest, patch: Manifest) -> None:
    """Apply a JSON merge patch (RFC 7386) to an object in place."""
    for key, value in patch.items():
        if isinstance(value, dict):
            merge(body.setdefault(key, {}), value)
        elif value is None:
            body.pop(key, None)
        else:
            body[key] = value


class Client(threading.local):
    """The cluster on which the commands of a thread run."""

    api: Cluster


CLIENT = Client()


@asynccontextmanager
async def opened(*_: Any) -> AsyncIterator[Cluster]:
    yield CLIENT.api


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connect, "open_client", opened)
    monkeypatch.setattr(connect, "PAUSES", (0.0, 0.0, 0.0, 0.0, 0.0))
    monkeypatch.setattr(freezing, "LOOK", 0.0)
    monkeypatch.setattr(rollout, "_now", lambda: SERVER_TIME)  # two runs in different seconds have the same result


def ome(api: Cluster, words: str) -> str:
    """Run a command in a thread of its own. Return the message with which the command refuses to act; "" if it succeeds."""
    done = []

    def run() -> None:
        CLIENT.api = api
        done.append(CliRunner().invoke(app, words.split()))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    (result,) = done
    assert result.exception is None or isinstance(result.exception, (UserError, SystemExit)), result.exception
    return str(result.exception) if isinstance(result.exception, UserError) else ""


@cache
def in_turn(*commands: str) -> str:
    """Return the state of the cluster after these commands, one after the other."""
    api = Cluster()
    for words in commands:
        ome(api, words)
    return api.state()


@pytest.mark.parametrize("first", COMMANDS)
def test_concurrent_commands_have_the_result_of_sequential_ones(first: str) -> None:
    for second in COMMANDS:
        either = {in_turn(first, second), in_turn(second, first)}
        for at in count():
            api = Cluster()

            def interrupt(number: int, at: int = at, api: Cluster = api, second: str = second) -> None:
                if number == at:
                    api.interrupt = lambda _: None
                    ome(api, second)

            api.interrupt = interrupt
            refused = ome(api, first)
            if len(api.calls) <= at:
                break
            allowed = either | ({in_turn(second)} if refused else set())
            assert api.state() in allowed, f"{second!r} ran before request {at} of {first!r}, which said {refused!r}"
            moves = [(body["metadata"].get("annotations") or {}).get(keys.MOVE) or "" for body in api.stored.values()]
            times = [found[0] for text in moves for found in TIME.finditer(text)]
            assert set(times) <= {SERVER_TIME}, f"{second!r} ran before request {at} of {first!r}: {times}"


def test_freeze_written_during_a_thaw_is_kept() -> None:
    api = Cluster()

    def interrupt(number: int) -> None:
        if number == 1:
            api.interrupt = lambda _: None
            ome(api, "freeze svc --timeout 0 --why flood")

    api.interrupt = interrupt
    assert "InferenceService team/svc was frozen again in the meantime" in ome(api, "thaw svc")
    assert "alice: flood" in api.stored["InferenceService", "svc"]["metadata"]["annotations"][keys.FREEZE]


@pytest.mark.parametrize("words", ["move svc decode/1", "pause svc", "scale svc --undo", "thaw svc", "wake svc"])
@pytest.mark.parametrize("times", [1, 5, 6])
def test_conflicting_edit_is_retried_up_to_six_times(words: str, times: int) -> None:
    """A command repeats its edit if another client has changed the object in between, up to six times in all. The sixth
    conflict ends the command with a message, and the object stays unchanged.
    """
    api, left = Cluster(), [times]

    def patched(call: Call) -> Manifest | Exception:
        if left[0]:
            left[0] -= 1
            return Conflict("the object has been modified", 409)
        return api.patched(call)

    before, api.answers["patch_merge"] = api.state(), patched
    refused = ome(api, words)
    assert refused.startswith("other clients changed the object each time") is (times == 6)
    assert (api.state() == before) is (times == 6)


@pytest.mark.parametrize("words", COMMANDS)
def test_every_tested_command_changes_an_object(words: str) -> None:
    """Each command in COMMANDS changes an object, alone or after another command, so the tests above really test it."""
    assert in_turn(words) != in_turn() or any(in_turn(before, words) != in_turn(before) for before in COMMANDS)


def test_every_command_that_writes_an_object_is_tested() -> None:
    """Every module of a command that writes an object is listed in EDITS or CONSTANTS, so that a test covers it. A command
    uses `patch_read` to write what it has computed from an object, and `patch_merge` only for values that do not depend on
    the object.
    """
    found: dict[str, set[str]] = {"patch_read": set(), "patch_merge": set()}
    root = Path(ome_operator.cli.__file__).parent
    for path in sorted(root.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            called = node.func if isinstance(node, ast.Call) else None
            name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
            if name in found:
                found[name].add(str(path.relative_to(root)))
    assert found == {"patch_read": EDITS.keys(), "patch_merge": {*CONSTANTS, "connect.py"}}
