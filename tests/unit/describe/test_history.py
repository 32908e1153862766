"""Tests of the list of revisions for users, and of the revision to which an undo returns."""

from typing import Any

import pytest

from ome_operator.core.observed import slices
from ome_operator.core.rollout.target import TargetRevision, target
from ome_operator.describe.history import history_entries, summarize_changes, undo_target
from tests.unit.core.observed.test_revisions import stored

BASE: dict[str, Any] = {
    "runtime": {"engineConfig": {"runner": {"image": "e:1", "args": ["--tp=8"]}}},
    "model": {"uri": "hf://a/b"},
    "chosen": {"kind": "ClusterServingRuntime", "namespace": "", "name": "rt"},
    "engine": {"runner": {"env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]}},
}


@pytest.mark.parametrize(
    ("part", "said"),
    [
        ({}, ""),
        ({"restartedAt": "today"}, "restarted: spec.rollout.restartedAt added"),
        ({"model": {"uri": "hf://a/c"}}, "model uri hf://a/b → hf://a/c"),
        ({"chosen": {**BASE["chosen"], "name": "other"}}, "runtime rt → other"),
        ({"engine": {}}, 'spec.engine.runner removed, was {"env": [{"name": "A", "value": "1"}, {"name": "B", "value"…'),
        (
            {"engine": {"runner": {"env": [{"name": "A", "value": "9"}]}}},
            'spec.engine.runner.env[A].value 1 → 9, spec.engine.runner.env[B] removed, was {"name": "B", "value": "2"}',
        ),
        (
            {"runtime": {"engineConfig": {"runner": {"image": "e:1", "args": ["x"]}}}},
            "runtime rt engineConfig.runner.args --tp 8 → x",
        ),
        (
            {"model": {"uri": "hf://a/b", "a": 1, "b": "x" * 99, "c": "2", "d": 1}},
            f"model a added: 1, model b added: {'x' * 59}…, model c added: 2, and 1 more",
        ),
    ],
)
def test_changes_between_revisions_are_summarized(part: dict[str, Any], said: str) -> None:
    assert summarize_changes(BASE, {**BASE, **part}) == said


KNOWN = slices.stored_revisions([stored(name, number) for number, name in enumerate("abcd")], "u")
NUMBERS = {one.name: one.number for one in KNOWN}
REJECTED = {"revision": "d", "edit": 3}


def test_history_lists_every_revision_with_its_state() -> None:
    aim = target("b", NUMBERS, "a", [REJECTED], "")
    slices = [{"revision": "b", "prefill": "1/2", "decode": "0/4"}, {"revision": "a", "prefill": "1/1"}]
    found = {one.revision: (one.state, one.changed) for one in history_entries(KNOWN, aim, slices)}
    assert found == {
        "a": ("runs (prefill 1/1 pods ready)", "the oldest stored revision"),
        "b": ("runs (prefill 1/2, decode 0/4 pods ready), pinned", "n a → b"),
        "c": ("", "n b → c"),
        "d": ("rejected", "n c → d"),
    }


@pytest.mark.parametrize(
    ("aim", "goes"),
    [
        (target("", NUMBERS, "b", (), ""), "b"),  # the last revision that worked
        (target("", NUMBERS, "d", (), ""), "c"),
        (target("c", NUMBERS, "c", (), ""), "b"),
        (target("c", NUMBERS, "c", ({"revision": "b", "edit": 3},), ""), "a"),
        (target("", NUMBERS, "a", (REJECTED,), ""), "a"),  # the service uses it already, and is then pinned to it
        (target("a", NUMBERS, "a", (), ""), ""),
    ],
)
def test_undo_target_is_the_last_working_or_previous_revision(aim: TargetRevision, goes: str) -> None:
    assert undo_target(KNOWN, aim) == goes
