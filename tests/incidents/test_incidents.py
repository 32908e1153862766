"""What the operator decided in an incident, it decides again: a recording that is moved here is a test from then on.

Where another decision is meant: `pytest tests/incidents --update-golden`, after `ome replay FILE` has shown the difference.
"""

from pathlib import Path
from typing import Any

import pytest

from ome_operator.recorder import decision, recording, replay
from tests.support.incidents import INCIDENTS

HERE = Path(__file__).parent
FILES = sorted(path.name for path in HERE.glob("*.json*"))


@pytest.mark.parametrize("name", FILES)
def test_the_same_is_decided_as_then(name: str, update: bool) -> None:
    path = HERE / name
    found = recording.decoded(path.read_bytes())
    if update:
        path.write_bytes(recording.encoded(again(found, path.name), name.endswith(".gz")))
        found = recording.decoded(path.read_bytes())
    other = {
        f"{service}, pass {step.number}": step.other
        for service, passes in found.services.items()
        for step in replay.replayed(passes, found.redacted > 0)
        if step.other
    }
    assert not other, f"`ome replay tests/incidents/{name}` shows it all; if it is meant: --update-golden"


def again(found: recording.Recording, name: str) -> dict[str, Any]:
    """The JSON of a file with what is decided today."""
    raw = recording.data_of((HERE / name).read_bytes())
    for service, passes in found.services.items():
        for told, old in zip(raw["services"][service]["passes"], passes, strict=True):
            told["decided"] = decision.plain(replay.again(old.made, found.redacted > 0))
    return raw


def test_each_fault_that_passes_can_see_has_a_recording() -> None:
    assert {f"{name}.json.gz" for name in INCIDENTS} <= set(FILES)


def test_a_recording_in_which_something_else_was_decided_is_told() -> None:
    found = recording.decoded((HERE / "rank-evicted.json.gz").read_bytes())
    passes = [old._replace(then={**old.then, "steps": ["delete Pod other"]}) for old in found.services["team/svc"]]
    told = [step.other for step in replay.replayed(passes, False)]
    assert all("steps: no longer delete Pod other" in other for other in told)
