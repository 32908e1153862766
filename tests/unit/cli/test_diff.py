"""Tests that `ome diff -f` compares the other objects of files if one object would be refused."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from ome_operator.cli import connect
from ome_operator.cli.app import app
from ome_operator.errors import QuestionUnanswered
from ome_operator.kube.errors import Forbidden, Invalid, NotServed
from tests.support.fake_api import FakeApi
from tests.unit.cli.live.test_preview import NODES, empty, service

OTHER = {**service(), "metadata": {"name": "bad", "namespace": "nope"}}
POD_FIELD = {**OTHER, "spec": {**OTHER["spec"], "engine": {"replicas": 2}}}
NEGATIVE = {**OTHER, "spec": {**OTHER["spec"], "engine": {"minReplicas": -1}}}
TEXT = yaml.safe_dump(OTHER)
OWN_VERSION = "apiVersion: ome.io/v1beta1\n"

REFUSALS = {
    "namespace": (
        TEXT,
        NotServed('namespaces "nope" not found'),
        "namespace nope does not exist: create it, or name another namespace",
    ),
    "api-server": (TEXT, Invalid("spec.engine: no"), "spec.engine: no"),
    "policy": (TEXT, Forbidden("exceeded quota"), "exceeded quota"),
    "not-parsed": (yaml.safe_dump(NEGATIVE), None, "spec.engine.minReplicas"),
    "pod-field": (yaml.safe_dump(POD_FIELD), None, "spec.engine.replicas is not a field of a pod: write minReplicas"),
    "key-twice": (TEXT + OWN_VERSION, None, "apiVersion is given twice in one map"),
    "object-twice": (f"{TEXT}---\n{TEXT}", None, "InferenceService nope/bad is written twice"),
    "version": (TEXT.replace("ome.io/v1beta1", "ome.io/v1"), None, "write apiVersion: ome.io/v1beta1"),
}
"""The text of an object that is refused, the API server's answer to it, and the reason that is printed."""


def diff(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str, answer: Any, *words: str) -> Result:
    """Return what `ome diff` prints for files of which the API server refuses the objects in namespace nope."""
    api = empty(NODES)
    api.answers["apply"] = lambda call: answer if call.body["metadata"].get("namespace") == "nope" else call.body

    @asynccontextmanager
    async def opened(*_: object) -> AsyncIterator[FakeApi]:
        yield api

    monkeypatch.setattr(connect, "open_client", opened)
    file = tmp_path / "all.yaml"
    file.write_text(text)
    return CliRunner().invoke(app, ["diff", "-f", str(file), "-n", "team", *words])


@pytest.mark.parametrize(("text", "answer", "why"), REFUSALS.values(), ids=REFUSALS)
def test_refused_object_does_not_hide_the_diff_of_others(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str, answer: Any, why: str
) -> None:
    good = yaml.safe_dump(service())
    told = diff(monkeypatch, tmp_path, f"{good}---\n{text}", answer)
    assert "+ InferenceService svc in team" in told.stdout and "team/svc\n  new: revision " in told.stdout
    assert "bad" not in told.stdout
    assert isinstance(told.exception, QuestionUnanswered) and told.exception.exit_code == 2
    assert str(told.exception).startswith("InferenceService ") and why in str(told.exception)
    assert "bad" in str(told.exception) and str(told.exception).endswith(
        ("as if the files did not contain it", "did not contain them")
    )


def test_diff_names_each_refusal_once_and_in_json(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    text = yaml.safe_dump_all([OTHER, {**OTHER, "metadata": {"name": "worse", "namespace": "nope"}}])
    told = diff(monkeypatch, tmp_path, text, NotServed('namespaces "nope" not found'), "-o", "yaml")
    said = [
        f"InferenceService nope/{name}: namespace nope does not exist: create it, or name another namespace"
        for name in ("bad", "worse")
    ]
    printed = yaml.safe_load(told.stdout)
    assert (printed["problems"], printed["objects"], printed["services"]) == (said, [], [])
    assert str(told.exception) == "; ".join(said)
