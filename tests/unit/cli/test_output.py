"""Tests that JSON and YAML output contains plain strings for reasons and states, which have their own types in the code."""

import json
from dataclasses import dataclass

import pytest
import yaml

from ome_operator.cli.output import Format, emit
from ome_operator.core.reasons import Reason, State


@dataclass(frozen=True)
class RankState:
    """A record with a reason and a state, like those that commands print."""

    reason: str
    state: State
    pods: tuple[str, ...] = ("a", "b")


@pytest.mark.parametrize("format_", [Format.JSON, Format.YAML])
def test_reasons_and_states_are_written_as_plain_strings(format_: Format, capsys: pytest.CaptureFixture[str]) -> None:
    emit(format_, [RankState(Reason.NOT_READY, State.BROKEN), RankState(Reason.NOT_READY, State.BROKEN)])
    written = capsys.readouterr().out
    row = {"reason": "NotReady", "state": "broken", "pods": ["a", "b"]}
    assert (json.loads(written) if format_ is Format.JSON else yaml.safe_load(written)) == [row, row]
    assert "remedy" not in written
