"""Tests that the operator decides in the same way as in a recorded incident. A recording becomes a test when it is moved
into this folder.

After an intended change of a decision, run `ome replay FILE`, read the difference, and then run `pytest tests/incidents
--update-golden`.
"""

import re
from pathlib import Path
from typing import Any

import pytest

from ome_operator.recorder import decision, recording, replay
from tests.support.incidents import INCIDENTS, ROWS, UNSEEN

HERE = Path(__file__).parent
FAULTS = HERE.parents[1] / "docs" / "faults.md"
BACK = ("is recycled (1st recycle)", "is restarting (1st recycle)", "is ready again (1st recycle)")
MEANT: dict[str, tuple[int, tuple[str, ...]]] = {
    "operator-killed": (0, ("create StatefulSet", "drain Pod", "delete StatefulSet", "with 1 replicas")),
    "requests-fail": (0, ("create Service svc", "ServerError: Service svc: HTTP 503", "create Service svc", "Ready True")),
    "watches-lag": (2, (*BACK, "Scaled True")),
    "clock-jumps": (1, (*BACK, "Scaled True")),
    "clock-jumps-back": (1, (*BACK, "Scaled True")),
    "two-operators": (0, ("AnotherOperator True",)),
    "stranger-edits-router": (0, ("change Deployment svc-router-",)),
    "stranger-deletes-workers": (1, ("create StatefulSet", "rank 1 has no pod", *BACK[1:], "Scaled True")),
    "stranger-has-the-name": (0, ("NameTaken: Service svc: svc belongs to somebody else", "create Service svc")),
    "node-tainted": (1, (*BACK, "Scaled True")),
    "node-deleted": (1, ("rank 0 has no pod", *BACK[1:], "Scaled True")),
    "node-lost": (1, ("on node node-0, which does not report", *BACK[1:], "Scaled True")),
    "template-edited": (4, ("being deleted", "TemplateDrift", "TemplateDrift", "TemplateDrift")),
    "rank-exits": (1, ("is restarting: container engine", "exited with code 137 (OOMKilled)", "recycle: delete Pod")),
    "rank-hangs": (
        1,
        ("was ready and no longer is", "the leader had been ready, then was not ready for 60 s", "recycle: delete Pod"),
    ),
    "rank-evicted": (1, ("Evicted", *BACK[1:], "Scaled True")),
    "rank-deleted": (1, (*BACK, "Scaled True")),
    "group-drained": (1, (*BACK, "Scaled True")),
}
"""Fault -> the number of recycles of a group, and the lines that the replay must contain in this order. The golden file
alone proves nothing, because it can be regenerated after any change. The services keep serving with their other groups, so
the lines include the condition Scaled, which reports when all groups are back.
"""
FILES = sorted(path.name for path in HERE.glob("*.json*"))


@pytest.mark.parametrize("name", FILES)
def test_replayed_incident_gives_the_recorded_decisions(name: str, update: bool) -> None:
    path = HERE / name
    found = recording.decode(path.read_bytes())
    if update:
        path.write_bytes(recording.encode(again(found, path.name), name.endswith(".gz")))
        found = recording.decode(path.read_bytes())
    other = {
        f"{service}, pass {step.number}": step.other
        for service, passes in found.services.items()
        for step in replay.replay(passes, found.redacted > 0)
        if step.other
    }
    assert not other, f"`ome replay tests/incidents/{name}` shows it; if it is intended: --update-golden"


def again(found: recording.Recording, name: str) -> dict[str, Any]:
    """Return the JSON of a file with the current decisions."""
    raw = recording.parse_json((HERE / name).read_bytes())
    for service, passes in found.services.items():
        for told, old in zip(raw["services"][service]["passes"], passes, strict=True):
            told["decided"] = decision.decision_json(replay.decide_again(old.replayed_pass, found.redacted > 0))
    return raw


@pytest.mark.parametrize("name", INCIDENTS)
def test_decisions_about_a_fault_contain_the_expected_lines(name: str) -> None:
    found = recording.decode((HERE / f"{name}.json.gz").read_bytes())
    told = [
        line
        for step in replay.replay(found.services["team/svc"], False)
        for line in (*step.steps, *(step.why if step.number > 1 else ()), *([step.error] if step.error else []))
    ]
    times, lines = MEANT[name]
    assert {int(number) for line in told for number in re.findall(r"\((\d+)\w\w recycle\)", line)} == {*range(1, times + 1)}
    assert (times > 0) == any(line.startswith("recycle: ") for line in told)
    rest = iter(told)
    missing = [wanted for wanted in lines if not any(wanted in line for line in rest)]
    assert not missing, told


def test_every_documented_fault_has_a_recording_or_a_reason() -> None:
    text = FAULTS.read_text().partition("## What is tried")[2].partition("\n## ")[0]
    rows = [line.split("|")[1].strip() for line in text.splitlines() if line.startswith("|")][2:]
    assert len(rows) > 10 and {*rows} == ROWS.keys() | UNSEEN.keys() and not ROWS.keys() & UNSEEN.keys()
    assert sorted(name for names in ROWS.values() for name in names) == sorted(INCIDENTS) == sorted(MEANT)
    assert {f"{name}.json.gz" for name in INCIDENTS} <= {*FILES}


RECOVERED = sorted(name for name, (times, lines) in MEANT.items() if times and "Scaled True" in lines)


@pytest.mark.parametrize("name", RECOVERED)
def test_a_service_with_another_group_stays_ready_while_a_group_is_recycled(name: str) -> None:
    found = recording.decode((HERE / f"{name}.json.gz").read_bytes())
    decided = [old.recorded_decision["status"]["conditions"] for old in found.services["team/svc"]]
    told = [{each["type"]: each["status"] for each in conditions} for conditions in decided]
    assert {each["Ready"] for each in told} == {"True"}
    assert {each["Scaled"] for each in told} == {"True", "False"}


def test_changed_decision_of_a_recording_is_reported() -> None:
    found = recording.decode((HERE / "rank-evicted.json.gz").read_bytes())
    passes = [
        old._replace(recorded_decision={**old.recorded_decision, "steps": ["delete Pod other"]})
        for old in found.services["team/svc"]
    ]
    told = [step.other for step in replay.replay(passes, False)]
    assert all("steps: no longer delete Pod other" in other for other in told)
