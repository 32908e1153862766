"""Tests of `ome freeze` and `ome thaw`: what is written to which object, under which name, and when it is confirmed."""

import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from ome_operator import keys
from ome_operator.cli import connect
from ome_operator.cli import freeze as command
from ome_operator.cli.app import app
from ome_operator.errors import UserError
from ome_operator.kube.errors import Forbidden, KubeError, NotFound
from tests.support.fake_api import Call, FakeApi

OLD = "2026-11-24T15:40:00Z by bob: driver"
WHO = {"status": {"userInfo": {"username": "alice"}}}


def service(name: str = "r1", frozen: str = "", told: str = "", of: str = "") -> dict[str, Any]:
    conditions = [{"type": "Frozen", "status": "True", "message": f"frozen since {told}; nothing waits"}] if told else []
    notes = {"annotations": {keys.FREEZE: frozen}} if frozen else {}
    labels = {"labels": {keys.OPERATOR_CLASS: of}} if of else {}
    metadata = {"name": name, "namespace": "team", "uid": f"uid-{name}", "resourceVersion": "1", **notes, **labels}
    return {"kind": "InferenceService", "metadata": metadata, "status": {"conditions": conditions}}


def lease(frozen: str = "", namespace: str = "ome", name: str = "ome-operator") -> dict[str, Any]:
    notes = {"annotations": {keys.FREEZE: frozen}} if frozen else {}
    uid = name.replace("ome-operator", "uid-lease")
    return {"kind": "Lease", "metadata": {"name": name, "namespace": namespace, "uid": uid, "resourceVersion": "1", **notes}}


def selected(call: Call, bodies: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the services that a call selects: by name, by operator class, or all."""
    key, _, value = call.selector.removeprefix("!").partition("=")

    def has(metadata: dict[str, Any]) -> str:
        return str(metadata["name"] if key == "metadata.name" else (metadata.get("labels") or {}).get(key, ""))

    return [item for item in bodies if not key or has(item["metadata"]) == value]


class Cluster(FakeApi):
    """A cluster with services and Leases, and with or without an operator that confirms a freeze."""

    def __init__(self, services: list[dict[str, Any]], leases: list[dict[str, Any]], *, runs: bool) -> None:
        self.services, self.leases, self.runs = services, leases, runs
        super().__init__(
            {
                "get InferenceService": self.found,
                "list_objects InferenceService": lambda call: selected(call, self.services),
                "list_objects Lease": lambda call: selected(call, self.leases),
                "get Lease": self.lease,
                "create SelfSubjectReview": WHO,
                "patch_merge": self.patched,
            }
        )
        self.connection = SimpleNamespace(namespace="team")  # type: ignore[assignment]

    async def create(self, manifest: dict[str, Any], manager: str = "") -> dict[str, Any]:
        return dict(await self._answer(Call("create", manifest["kind"], manifest["metadata"].get("name", ""), manifest)))

    def found(self, call: Call) -> dict[str, Any] | KubeError:
        return next((item for item in self.services if item["metadata"]["name"] == call.name), NotFound("no", 404))

    def lease(self, call: Call) -> dict[str, Any] | KubeError:
        return next((item for item in self.leases if item["metadata"]["name"] == call.name), NotFound("no", 404))

    def patched(self, call: Call) -> dict[str, Any]:
        """Store the annotation of a freeze. If an operator runs, it confirms the freeze in the status."""
        value = call.body["metadata"]["annotations"][keys.FREEZE]
        if self.runs and value:
            hit = [item for item in self.services if call.kind == "Lease" or item["metadata"]["name"] == call.name]
            for item in hit:
                item["status"] = service(told=value)["status"]
        return {"metadata": {}}

    @property
    def written(self) -> list[tuple[str, str, str | None]]:
        return [
            (call.kind, call.uid, call.body["metadata"]["annotations"][keys.FREEZE])
            for call in self.calls
            if call.verb == "patch_merge"
        ]


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(command, "LOOK", 0.0)
    monkeypatch.setattr(command, "UNSEEN", 0.0)
    yield


def ome(monkeypatch: pytest.MonkeyPatch, api: FakeApi, *words: str) -> Result:
    @asynccontextmanager
    async def opened(*_: Any) -> AsyncIterator[FakeApi]:
        yield api

    monkeypatch.setattr(connect, "open_client", opened)
    return CliRunner().invoke(app, list(words))


def test_freeze_of_a_service_is_written_and_confirmed(monkeypatch: pytest.MonkeyPatch) -> None:
    api = Cluster([service(), service("r2")], [lease()], runs=True)
    done = ome(monkeypatch, api, "freeze", "r1", "--why", "new\n driver")
    assert done.exit_code == 0 and "team/r1 is frozen" in done.output and "has confirmed the freeze" in done.output
    ((kind, uid, value),) = api.written
    assert (kind, uid) == ("InferenceService", "uid-r1")
    assert re.fullmatch(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ by alice: new driver", str(value))


def test_freeze_all_is_written_to_the_lease_and_confirmed_by_every_service(monkeypatch: pytest.MonkeyPatch) -> None:
    api = Cluster([service(), service("r2")], [lease()], runs=True)
    done = ome(monkeypatch, api, "freeze", "--all")
    assert done.exit_code == 0 and "by an annotation of Lease ome/ome-operator." in done.output
    assert [(kind, uid) for kind, uid, _ in api.written] == [("Lease", "uid-lease")]


def test_freeze_all_waits_only_for_services_of_the_operator_class(monkeypatch: pytest.MonkeyPatch) -> None:
    """`--all` waits only for the services of the operator's own class. Services of another class are managed by another
    operator, and do not confirm the freeze.
    """
    leases = [lease(), lease(name="ome-operator-team-b")]
    api = Cluster([service(), service("r2", of="team-b")], leases, runs=True)
    done = ome(monkeypatch, api, "freeze", "--all", "--operator-class", "team-b")
    assert (
        "by an annotation of Lease ome/ome-operator-team-b. `ome thaw --all --operator-class team-b` ends the freeze."
        in done.output
    )
    assert done.exit_code == 0 and [(kind, uid) for kind, uid, _ in api.written] == [("Lease", "uid-lease-team-b")]
    leases[1] = lease(OLD, name="ome-operator-team-b")
    again = Cluster([service(frozen=OLD), service("r2", frozen=OLD, of="team-b")], leases, runs=True)
    assert "All services are still frozen" not in ome(monkeypatch, again, "thaw", "r1").output
    assert f"frozen since {OLD}: `ome thaw --all --operator-class team-b`" in ome(monkeypatch, again, "thaw", "r2").output
    done = ome(monkeypatch, again, "thaw", "--all", "--operator-class", "team-b")
    assert done.output == (
        "Thawed.\nteam/r2 stays frozen, because it was frozen individually. To end that freeze: `ome thaw r2 -n team`.\n"
    )


@pytest.mark.parametrize("words", [("r1",), ("--all",)])
def test_freeze_reports_missing_confirmation_without_operator(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without an operator, no service confirms the freeze, and the command says so. A status that confirms an older freeze
    does not confirm this one.
    """
    api = Cluster([service(told=OLD)], [lease()], runs=False)
    done = ome(monkeypatch, api, "freeze", *words, "--timeout", "0")
    assert (
        done.exit_code == 1
        and "Not confirmed within 0 s" in done.output
        and "Check that an operator is running" in done.output
    )
    assert len(api.written) == 1


def test_local_user_name_is_used_if_the_server_does_not_state_one(monkeypatch: pytest.MonkeyPatch) -> None:
    api = Cluster([service()], [], runs=True)
    api.answers["create SelfSubjectReview"] = Forbidden("no", 403)
    monkeypatch.setattr(command.getpass, "getuser", lambda: "me")  # type: ignore[attr-defined]
    assert ome(monkeypatch, api, "freeze", "r1").exit_code == 0
    assert str(api.written[0][2]).endswith(" by me")


def test_freeze_all_creates_a_lease_without_leader_election(monkeypatch: pytest.MonkeyPatch) -> None:
    api = Cluster([], [], runs=True)
    done = ome(monkeypatch, api, "freeze", "--all", "--namespace-of-lease", "ops")
    assert done.exit_code == 0 and "No service exists whose status could confirm the freeze" in done.output
    made = next(body for body in api.bodies("create") if body["kind"] == "Lease")
    assert made["metadata"]["namespace"] == "ops" and " by alice" in made["metadata"]["annotations"][keys.FREEZE]


@pytest.mark.parametrize(
    ("words", "leases", "said"),
    [
        ((), [lease()], "Name a SERVICE, or use --all"),
        (("r1", "--all"), [lease()], "Name a SERVICE, or use --all"),
        (("--all", "-n", "team"), [lease()], "leave out -n"),
        (("r1", "--operator-class", "b"), [lease()], "the label of a SERVICE states its class"),
        (("--all",), [], "in no namespace: set --namespace-of-lease"),
        (("--all",), [lease(namespace="a"), lease(namespace="b")], "in a, b: set --namespace-of-lease"),
        (("nobody",), [lease()], "there is no InferenceService nobody in namespace team"),
    ],
)
@pytest.mark.parametrize("verb", ["freeze", "thaw"])
def test_freeze_refusal_writes_nothing(
    verb: str, words: tuple[str, ...], leases: list[dict[str, Any]], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    api = Cluster([service()], leases, runs=True)
    done = ome(monkeypatch, api, verb, *words)
    assert isinstance(done.exception, UserError) and said in str(done.exception)
    assert api.written == []


def test_thaw_names_the_services_that_stay_frozen(monkeypatch: pytest.MonkeyPatch) -> None:
    api = Cluster([service(frozen=OLD), service("r2")], [lease(OLD)], runs=True)
    done = ome(monkeypatch, api, "thaw", "--all")
    assert done.output == (
        "Thawed.\nteam/r1 stays frozen, because it was frozen individually. To end that freeze: `ome thaw r1 -n team`.\n"
    )
    assert api.written == [("Lease", "uid-lease", None)]
    done = ome(monkeypatch, api, "thaw", "r1")
    assert (
        done.output
        == f"team/r1 is no longer frozen.\nAll services are still frozen since {OLD}: `ome thaw --all` ends the freeze of "
        "all services.\n"
    )


def test_control_characters_in_the_freeze_note_are_not_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    done = ome(monkeypatch, Cluster([service()], [lease("now: \x1b]0;PWNED\x07\x1b[2J")], runs=True), "thaw", "r1")
    assert "PWNED" in done.output and not {"\x1b", "\x07"} & set(done.output)


def test_thaw_without_a_freeze_writes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    api = Cluster([service()], [lease()], runs=True)
    assert "was not frozen individually: nothing was changed" in ome(monkeypatch, api, "thaw", "r1").output
    assert "has no freeze: nothing was changed" in ome(monkeypatch, api, "thaw", "--all").output
    assert api.written == []


def test_unreadable_lease_does_not_prevent_a_thaw(monkeypatch: pytest.MonkeyPatch) -> None:
    api = Cluster([service(frozen=OLD)], [], runs=True)
    api.answers["list_objects Lease"] = Forbidden("no", 403)
    assert ome(monkeypatch, api, "thaw", "r1").output == "team/r1 is no longer frozen.\n"
