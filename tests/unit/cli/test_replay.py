"""Tests of the output and the exit codes of `ome replay` and `ome record`."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ome_operator.cli import record
from ome_operator.cli.app import app
from ome_operator.cli.live.recording import record_pass
from ome_operator.core.observed.objects import Observed
from ome_operator.errors import QuestionUnanswered, UserError
from ome_operator.recorder import recording, replay
from tests.support.incidents import FOLDER
from tests.support.shapes import Shape
from tests.support.simulator import START, World

FILE = FOLDER / "rank-evicted.json.gz"


def test_replay_prints_observations_decisions_and_reasons() -> None:
    found = CliRunner().invoke(app, ["replay", str(FILE)])
    assert found.exit_code == 0, found.output
    for said in ("saw ", "says ", "does     recycle: delete Pod", "reason  → Evicted", "then     the same", "low on memory"):
        assert said in found.output


def test_changed_decision_exits_with_1_and_last_prints_the_end(tmp_path: Path) -> None:
    data = recording.parse_json(FILE.read_bytes())
    data["services"]["team/svc"]["passes"][-1]["decided"]["steps"] = ["delete Pod other\x1b[2J"]
    path = tmp_path / "other.json"
    path.write_text(json.dumps(data))
    found = CliRunner().invoke(app, ["replay", str(path), "--last", "1"])
    assert found.exit_code == 1
    assert found.output.count("\npass ") == 1
    assert "other    steps: no longer delete Pod other␛[2J" in found.output
    told = CliRunner().invoke(app, ["replay", str(path), "-o", "json"])
    assert told.exit_code == 1 and len(json.loads(told.output)["team/svc"]) > 3


@pytest.mark.parametrize("content", [b"hello", FILE.read_bytes()[:500], None])
def test_unreadable_recording_gives_a_one_line_error(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "f.json"
    if content is not None:
        path.write_bytes(content)
    found = CliRunner().invoke(app, ["replay", str(path)])
    assert isinstance(found.exception, QuestionUnanswered) and str(path) in str(found.exception)


def test_unknown_service_in_a_recording_is_reported() -> None:
    found = CliRunner().invoke(app, ["replay", str(FILE), "--service", "team/other"])
    assert "Its services: team/svc" in str(found.exception)


def test_replay_of_a_healthy_live_service_plans_nothing() -> None:
    """`ome replay` of a healthy live service plans no change. The command does not know the operator's settings, so a router
    that those settings would change, for example by its sidecar, counts as unchanged.
    """
    shape = Shape(size=2, engines=1)
    world = World(shape.service(), shape.deps(), 1)
    world.settle()
    seen = world.observed()
    router = ("Deployment", next(name for kind, name in seen.children if kind == "Deployment"))
    seen.children[router] = seen.children[router]._replace(hash="by-other-settings", owned="by-other-settings")  # type: ignore[index]
    made = record_pass(world.service, world.deps, seen, world.now)
    assert made.decided.steps == ()
    assert replay.decide_again(made) == made.decided


def test_recording_is_never_overwritten_and_write_errors_are_reported(tmp_path: Path) -> None:
    made = record_pass(Shape().service(), Shape().deps(), Observed(), START)
    for name in ("a.json", "a.json.gz"):
        record._write(tmp_path / name, "team/svc", made)
        assert "team/svc" in recording.decode((tmp_path / name).read_bytes()).services
    with pytest.raises(UserError, match="already exists"):
        record._write(tmp_path / "a.json", "team/svc", made)
    with pytest.raises(UserError, match="cannot be written"):
        record._write(tmp_path / "no/a.json", "team/svc", made)
