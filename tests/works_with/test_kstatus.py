"""Tests that kstatus itself reads the statuses that the operator writes, and that the other tests use the same rules as
kstatus.
"""

import pytest

from ome_operator.api.kinds import KINDS
from ome_operator.describe.argo_cd import body as example
from tests.support import works_with
from tests.support.every_reason import bodies, expected
from tests.support.kstatus import kstatus

pytestmark = [works_with.MINUTES, pytest.mark.timeout(3600)]


def test_kstatus_reads_every_reason_as_the_table_says() -> None:
    tried = [*bodies()]
    answers = works_with.program_answers(works_with.path(works_with.KSTATUS), (found for _, _, found in tried))
    assert len(answers) == len(tried) > 150
    for (record, type_, found), answer in zip(tried, answers, strict=True):
        assert answer["sigs"] == answer["flux"] == kstatus(found), (record, type_, answer)
        ready = {one["type"]: one["status"] for one in found["status"]["conditions"]}.get("Ready")
        if record == "NodesUnknown" and ready == "False":
            continue
        assert answer["sigs"] == expected(record, type_), (record, type_, answer)


def test_unprocessed_object_is_in_progress() -> None:
    kinds = [kind for kind in KINDS if kind.kind not in ("NodeModels", "NodeFaults")]
    fresh = [example(kind, kind.unseen) for kind in kinds]
    answers = works_with.program_answers(works_with.path(works_with.KSTATUS), fresh)
    assert [(answer["sigs"], answer["flux"]) for answer in answers] == [("InProgress", "InProgress")] * len(kinds)
    for kind, answer in zip(kinds, answers, strict=True):
        words = "observed generation is -1" if kind.kind == "BenchmarkJob" else "no operator has processed this object yet"
        assert words in answer["message"], kind.crd


def test_terminating_or_just_edited_object_is_in_progress() -> None:
    (kind,) = [kind for kind in KINDS if kind.kind == "InferenceService"]
    edited = example(kind, {"observedGeneration": 1, "conditions": [{"type": "Ready", "status": "True"}]})
    deleted = {**edited, "metadata": {**edited["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}}
    found = works_with.program_answers(works_with.path(works_with.KSTATUS), [edited, deleted])
    assert [answer["sigs"] for answer in found] == [kstatus(edited), kstatus(deleted)] == ["InProgress", "Terminating"]
