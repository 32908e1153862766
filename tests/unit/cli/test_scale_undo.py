"""Tests of `ome scale --undo` and `--resume`: what is written, and when nothing is."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from ome_operator import keys
from ome_operator.cli import connect
from ome_operator.cli.app import app
from tests.support.fake_api import FakeApi

NOW, BEFORE = {"prefill": 3, "decode": 2, "routers": 1}, {"prefill": 2, "decode": 1, "routers": 1}
DECISIONS = [{**BEFORE, "time": "2026-11-28T10:00:00Z"}, {**NOW, "time": "2026-11-28T11:00:00Z"}]
BACK = "prefill=2,decode=1,routers=1"


def told(
    monkeypatch: pytest.MonkeyPatch,
    option: str,
    *,
    mode: str = "Apply",
    annotation: str = "",
    generation: int = 1,
    decisions: list[dict[str, Any]] = DECISIONS,
    spec: dict[str, Any] | None = None,
) -> tuple[str, list[Any], list[str]]:
    """Run `ome scale` with an option. Return its output, the values that it has written into the annotation, and the names
    of the objects that it has deleted. `generation` is the generation of the RoleScale.
    """
    scaling = {"mode": mode, "wanted": NOW, "decisions": decisions, "applied": {"decoder": 2}}
    labels = {keys.COMPONENT: "decoder"}
    meta = {"name": "svc-decoder", "namespace": "team", "uid": "u2", "generation": generation, "labels": labels}
    service = {
        "metadata": {"name": "svc", "namespace": "team", "uid": "u1", "resourceVersion": "1"},
        "spec": spec or {}, "status": {"scaling": scaling},
    }  # fmt: skip
    if annotation:
        service["metadata"]["annotations"] = {keys.SCALED_BACK: annotation}  # type: ignore[assignment]
    scale = {"apiVersion": "ome.io/v1beta1", "kind": "RoleScale", "metadata": meta, "spec": {"replicas": 1}}
    api = FakeApi({"get": lambda _: service, "list_objects": lambda _: [scale], "patch_merge": {}, "delete": {}})

    @asynccontextmanager
    async def opened(*_: Any) -> AsyncIterator[Any]:
        yield api

    api.connection = SimpleNamespace(namespace="team")  # type: ignore[assignment]
    monkeypatch.setattr(connect, "open_client", opened)
    result = CliRunner().invoke(app, ["scale", "svc", "-n", "team", *option.split()])
    written = [call.body["metadata"]["annotations"][keys.SCALED_BACK] for call in api.calls if call.verb == "patch_merge"]
    deleted = [call.name for call in api.calls if call.verb == "delete"]
    return result.output + (str(result.exception) if result.exception else ""), written, deleted


def test_undo_writes_the_size_before_the_last_decision(monkeypatch: pytest.MonkeyPatch) -> None:
    said, written, _ = told(monkeypatch, "--undo")
    assert written == [BACK]
    assert (
        "team/svc goes back to 2 prefill and 1 decode groups, and 1 router, the size of 2026-11-28T10:00:00Z, and keeps it "
        "until `ome scale svc -n team --resume`." in " ".join(said.split())
    )


def test_undo_reports_the_size_limited_by_present_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    former = [{**BEFORE, "prefill": 9, "time": "2026-11-28T10:00:00Z"}, *DECISIONS[1:]]
    said, written, _ = told(monkeypatch, "--undo", decisions=former, spec={"engine": {"maxReplicas": 5}})
    assert written == ["prefill=9,decode=1,routers=1"]
    assert "goes back to 5 prefill and 1 decode groups, and 1 router" in " ".join(said.split())
    assert "the size of 2026-11-28T10:00:00Z within minReplicas and maxReplicas" in " ".join(said.split())


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ({"mode": "Recommend"}, "so there is nothing to undo"),
        ({"annotation": BACK}, "keeps a previous size already"),
        ({"generation": 2}, "RoleScale svc-decoder was set by hand, and its number applies instead of the demand"),
        ({"decisions": DECISIONS[1:]}, "contain no other size"),
        ({"spec": {"engine": {"minReplicas": 3}, "decoder": {"minReplicas": 2}}}, "only permit the present size"),
    ],
)
def test_undo_without_an_earlier_size_writes_nothing(
    monkeypatch: pytest.MonkeyPatch, state: dict[str, Any], words: str
) -> None:
    said, written, deleted = told(monkeypatch, "--undo", **state)
    assert words in " ".join(said.split()) and not written and not deleted


def test_scale_resume_ends_undo(monkeypatch: pytest.MonkeyPatch) -> None:
    said, written, deleted = told(monkeypatch, "--resume", annotation=BACK, generation=2)
    assert (written, deleted) == ([None], ["svc-decoder"])
    assert "no longer keeps its previous size" in said and "RoleScale svc-decoder is created again" in said
    said, written, _ = told(monkeypatch, "--resume", annotation=BACK, mode="Recommend")
    assert written == [None], "also if the mode no longer uses it"
    said, written, deleted = told(monkeypatch, "--resume")
    assert not written and not deleted and "the service follows the demand already" in said


def test_undo_and_resume_together_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    said, written, _ = told(monkeypatch, "--undo --resume")
    assert "use only one of them" in said and not written
