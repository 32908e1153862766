"""Tests of the output of `ome status runtime` about the progress of an edit."""

from typing import Any

from ome_operator import keys
from ome_operator.describe.waves import rollout_complete, wave_lines


def runtime(**rollout: Any) -> dict[str, Any]:
    usual = {"generation": 3, "state": "Rolling", "wave": 2, "waves": 4, "size": 10, "services": 200, "done": 4}
    told = {**usual, "rolling": 6, "waiting": 190, "failed": 0, **rollout}
    metadata = {"name": "rt", "generation": 3}
    return {"kind": "ClusterServingRuntime", "metadata": metadata, "status": {"rollout": told} if rollout else {}}


def said(body: dict[str, Any]) -> str:
    return "\n".join(wave_lines(body))


def test_running_wave_is_described() -> None:
    assert said(runtime(wave=2)) == (
        "ClusterServingRuntime rt: wave 2 of 4\n"
        "  4 of 200 services have generation 3, 6 in progress, 190 waiting, 0 failed\n"
        "  this wave covers the first 10 services"
    )
    assert not rollout_complete(runtime(wave=2))


def test_singular_and_plural_are_used_correctly() -> None:
    assert "\n  1 of 1 service has generation 3, " in said(runtime(done=1, services=1))
    assert "\n  1 of 4 services has generation 3, " in said(runtime(done=1, services=4))
    assert "\n  0 of 4 services have generation 3, " in said(runtime(done=0, services=4))


def test_wave_sentence_reports_wait_and_failures() -> None:
    assert "wave 2 of 4 is complete, and its bake time ends at 12:05" in said(runtime(state="Baking", bakesUntil="12:05"))
    stopped = said(runtime(state="Stopped", failed=1, failedServices=[{"namespace": "team", "name": "a"}]))
    assert "stopped in wave 2 of 4, so no further service starts the rollout" in stopped
    assert "failed: team/a: ome explain a -n team" in stopped


def test_wave_sentence_reports_completed_edit() -> None:
    done = runtime(state="Complete", done=200, rolling=0, waiting=0)
    assert "all services have the last edit of this object" in said(done) and rollout_complete(done)
    assert "no service was changed by its last edit" in said(runtime()) and rollout_complete(runtime())
    done["metadata"]["generation"] = 4
    assert "now has generation 4" in said(done) and not rollout_complete(done)


def test_invalid_wave_annotation_is_reported() -> None:
    body = runtime(wave=2)
    body["metadata"] |= {"annotations": {keys.WAVES: "0"}, "namespace": "team"}
    assert said(body).startswith("annotation ome.io/rollout-waves: 0 is not a wave")
    assert "ClusterServingRuntime rt in team: wave 2 of 4" in said(body)
