"""Tests that every reason has a record that is complete, consistent, and used by the code."""

import ast
import copy
import json
import pickle
import re
from dataclasses import is_dataclass
from pathlib import Path

import pytest

from ome_operator.core.reasons import (
    ANOTHER,
    COMPLETE,
    FAMILIES,
    NODES_AGREE,
    ORDER,
    ORDINARY,
    POD,
    REASONS,
    ROLLED_OUT,
    Kstatus,
    Reason,
    ReasonRecord,
    RolloutStage,
    State,
    conditions,
    record_of,
)
from ome_operator.recorder.facts import fact_json

PACKAGE = Path(__file__).parents[4] / "ome_operator"
RECORDS = [
    pytest.param(name, getattr(Reason, name), id=getattr(Reason, name).word) for name in dir(Reason) if name.isupper()
]
CODE = "".join(file.read_text() for file in PACKAGE.rglob("*.py") if PACKAGE / "core/reasons" not in file.parents)


@pytest.mark.parametrize(("name", "record"), RECORDS)
def test_reason_record_has_conditions_meaning_and_remedy(name: str, record: ReasonRecord) -> None:
    """The name of a record equals its reason. It has existing conditions, a meaning and, unless everything is in order, a
    remedy.
    """
    assert name == re.sub(r"(?<=[a-z])(?=[A-Z])", "_", record.word).upper()
    assert record.of and set(record.of) <= {*ORDER, ANOTHER, COMPLETE, NODES_AGREE, POD}
    assert record.meaning and (record.is_good or record.remedy)
    assert not record.router_remedy or record.printed
    assert all("|" not in text and "\n" not in text for text in (record.meaning, record.remedy, record.see))


@pytest.mark.parametrize(("name", "record"), RECORDS)
def test_every_reason_is_used_in_the_code(name: str, record: ReasonRecord) -> None:
    """The code uses every reason of the table. Words that are only passed on from the kubelet, the scheduler or the client
    of the API need no name in the code.
    """
    passed_on = {"Unschedulable", "ImagePullBackOff", "ErrImagePull", "Invalid", "Forbidden"}
    assert re.search(rf"\bReason\.{name}\b", CODE) or record.word in passed_on


@pytest.mark.parametrize(("name", "record"), RECORDS)
def test_values_of_reason_record_are_consistent(name: str, record: ReasonRecord) -> None:
    """The values of a record are consistent: a reason that disappears without any action is not Failed, a reason with a
    warning Event is not Current, and a good reason is Current.
    """
    assert isinstance(record.kstatus, Kstatus)
    if record.is_good:
        assert record.kstatus is Kstatus.CURRENT
        assert not (record.passing or record.loud or record.printed or record.stage)
    if record.passing or record.on_its_way or record.state in (State.STARTING, State.HELD):
        assert record.kstatus is Kstatus.IN_PROGRESS
    if record.loud or record.stage is not None:
        assert ROLLED_OUT in record.of or name == "WAITING_FOR_NODES"
        assert record.kstatus is not Kstatus.CURRENT
    assert not (record.loud and record.passing), "an Event would warn of a temporary problem"
    assert not record.on_its_way or record.pods, "it is counted with the pods"


def test_every_reason_is_recorded_once() -> None:
    found = [record for family in FAMILIES.values() for record in vars(family).values() if isinstance(record, ReasonRecord)]
    assert len(found) == len(REASONS) == len(RECORDS)
    assert [*REASONS] == [str(record) for record in found]


def test_reason_behaves_like_its_string() -> None:
    """A reason behaves like its word when conditions are compared with stored ones, sorted, copied, recorded, and written as
    JSON and YAML.
    """
    paused = Reason.PAUSED
    assert paused == "Paused" and {paused: 1}["Paused"] == 1 and hash(paused) == hash("Paused")
    assert json.dumps({"reason": paused}) == '{"reason": "Paused"}'
    assert type(str(paused)) is type(copy.deepcopy(paused)) is type(pickle.loads(pickle.dumps(paused))) is str
    assert not is_dataclass(paused) and type(fact_json(paused)) is str
    assert f"{paused}" == str(paused) == copy.deepcopy(paused) == "Paused" and repr(paused) == "'Paused'"


def test_unknown_kubernetes_reason_counts_as_broken() -> None:
    unknown = record_of("OutOfcpu")
    assert unknown == "OutOfcpu" and unknown.state is State.BROKEN and unknown.gravity == ORDINARY
    assert not (unknown.passing or unknown.loud or unknown.passes or unknown.is_in_progress or unknown.stage)


def test_reasons_are_sorted_by_severity() -> None:
    gravest = sorted((record for record in REASONS.values() if record.gravity < ORDINARY), key=lambda each: each.gravity)
    assert gravest == [
        "CrashLoopBackOff", "ImagePullBackOff", "ErrImagePull", "FailedMount", "Unschedulable", "SystemicFault",
        "RecycleLimit", "StuckTerminating", "PreflightFailed",
    ]  # fmt: skip
    numbers = [record.gravity for record in REASONS.values() if record.gravity != ORDINARY]
    assert len(numbers) == len(set(numbers))


def test_every_rollout_stage_except_the_first_has_its_own_reasons() -> None:
    """Every stage of a rollout except the first has reasons with which a rollout stops there. Any other reason of the
    condition RolledOut means that the inputs are not valid.
    """
    assert {record.stage for record in REASONS.values()} - {None} == set(RolloutStage) - {RolloutStage.VALID}
    assert [stage.number for stage in RolloutStage] == [*range(len(RolloutStage))] and State.BROKEN.sort_position == 0
    moves = {str(record) for record in REASONS.values() if record.is_in_progress}
    assert moves == {"Checking", "Progressing", "PullingImages", "RollingOut", "RetiringOldSlice"}


def carried() -> set[tuple[str, str]]:
    """Return (condition, name of the reason) for each call in core with both, such as `Problem(MODEL_READY, Reason.X)`."""
    found: set[tuple[str, str]] = set()
    for file in (PACKAGE / "core").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if not isinstance(node, ast.Call) or not node.args or not isinstance(node.args[0], ast.Name):
                continue
            condition = getattr(conditions, node.args[0].id, None)
            if isinstance(condition, str):
                named = (below for argument in node.args[1:3] for below in ast.walk(argument))
                found |= {
                    (condition, below.attr)
                    for below in named
                    if isinstance(below, ast.Attribute) and isinstance(below.value, ast.Name) and below.value.id == "Reason"
                }
    return found


def test_reason_records_list_the_conditions_used_in_the_code() -> None:
    pairs = carried()
    assert len(pairs) > 50 and ("ModelReady", "WRONG_BASE_MODEL") in pairs
    assert sorted((condition, name) for condition, name in pairs if condition not in getattr(Reason, name).of) == []
