"""Tests of the health checks in `ome_operator/describe/argo_cd.py` with Argo CD's own Lua."""

from typing import Any

import pytest
import yaml

from ome_operator.core.reasons import COMPLETE, READY, Kstatus, ReasonRecord
from ome_operator.describe import argo_cd
from tests.support import works_with
from tests.support.every_reason import bodies

pytestmark = [works_with.MINUTES, pytest.mark.timeout(3600)]
LUA = (argo_cd.ROOT / argo_cd.LUA).read_text()


def health(objects: list[dict[str, Any]], script: str = LUA) -> list[tuple[str, str]]:
    """Return the health and the message of each object."""
    lines = [{"script": script, "object": one} for one in objects]
    found = works_with.program_answers(works_with.argo_cd(), lines)
    return [(one["status"], one.get("message", "")) for one in found]


def test_argo_cd_health_agrees_with_every_reason() -> None:
    """For every reason, Argo CD's health of an object agrees with the condition: an object that is broken, refused or
    waiting is never Healthy, and one that serves is never Degraded.
    """
    tried = [*bodies()]
    found = health([each for _, _, each in tried])
    assert len(found) == len(tried) > 150
    for (record, type_, each), (status, message) in zip(tried, found, strict=True):
        assert status in allowed(record, type_, each), (record, type_, status)
        assert message, (record, type_)
    assert {status for status, _ in found} == {"Healthy", "Progressing", "Degraded", "Suspended"}


def allowed(record: ReasonRecord, type_: str, found: dict[str, Any]) -> set[str]:
    """Return the health states that an object with this reason may have."""
    conditions = {one["type"]: one["status"] for one in found["status"]["conditions"]}
    serves = "True" in (conditions.get(READY), conditions.get(COMPLETE))
    missing = record.kstatus is not Kstatus.CURRENT and bool(conditions.keys() & {"Stalled", "Reconciling"})
    if serves:
        return {"Progressing", "Suspended"} if missing else {"Healthy"}
    return {"Degraded"} if record.kstatus is Kstatus.FAILED else {"Progressing", "Suspended", "Degraded"}


def test_health_checks_in_argo_cd_repository_format_give_the_expected_results() -> None:
    """The health checks in the form of Argo CD's own repository give the results in their health_test.yaml, as Argo CD's own
    test of its folder resource_customizations would check.
    """
    folder = argo_cd.ROOT / argo_cd.FOLDER
    tests = sorted(folder.rglob("health_test.yaml"))
    assert [path.parent.relative_to(folder).parts for path in tests] == sorted(
        (kind.group, kind.kind) for kind in argo_cd.kinds_with_health_check()
    )
    for path in tests:
        wanted = yaml.safe_load(path.read_text())["tests"]
        objects = [yaml.safe_load((path.parent / one["inputPath"]).read_text()) for one in wanted]
        script = (path.parent / "health.lua").read_text()
        assert health(objects, script) == [tuple(one["healthStatus"].values()) for one in wanted], path
