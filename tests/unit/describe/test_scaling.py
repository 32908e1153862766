"""Tests of the output of `ome scale SERVICE`."""

from typing import Any

import pytest

from ome_operator.core.demand.holds import HOLDS
from ome_operator.describe.scaling import DAYS, lines, view

DECISION = {"time": "2026-11-28T10:00:00Z", "prefill": 2, "decode": 3, "routers": 1, "why": "9 requests/s arrive"}


def service(**scaling: Any) -> dict[str, Any]:
    """Return a service that wants another decode group."""
    known = {
        "mode": "Recommend", "wanted": {"prefill": 2, "decode": 3, "routers": 1}, "hold": "NoRoom",
        "why": "9 requests/s arrive", "decisions": [DECISION],
        "days": [
            {"day": "2026-11-27", "gpuHours": 384, "gpuHoursWanted": 1234.5, "requests": 200, "met": 150, "metWanted": 200}
        ],
    }  # fmt: skip
    traffic = {
        "time": "2026-11-28T10:01:00Z", "requestsPerSecond": 9, "timeToFirstToken": {"p95": {"above": 4, "upTo": 6}},
        "roles": [{"name": "prefill", "running": 2, "waiting": 40}],
    }  # fmt: skip
    components = {"engine": {"replicas": 2, "readyReplicas": 1}, "decoder": {"replicas": 2, "readyReplicas": 2}}
    components["router"] = {"replicas": 1, "readyReplicas": 1}
    status = {"scaling": {**known, **scaling}, "traffic": traffic, "components": components}
    return {"metadata": {"name": "svc", "namespace": "team"}, "status": status}


def scale(generation: int, component: str = "decoder") -> dict[str, Any]:
    """Return a RoleScale."""
    return {"metadata": {"name": f"svc-{component}", "generation": generation, "labels": {"component": component}}}


def test_scale_output_shows_demand_sizes_reasons_and_holds() -> None:
    said = "\n".join(lines(view(service(), {"svc-decoder": scale(1)})))
    assert said.startswith("team/svc: mode Recommend\nROLE")
    assert [line.split()[:4] for line in said.splitlines()[1:4]] == [
        ["ROLE", "SIZE", "READY", "WANTS"], ["prefill", "2", "1", "2"], ["decode", "2", "2", "3"],
    ]  # fmt: skip
    assert len(set(DAYS)) == len(DAYS)
    assert (
        "9 requests/s arrive, prefill has 2 running and 40 waiting, 95% of the first tokens come after at most 6 s" in said
    )
    assert "Held (NoRoom): The cluster has no nodes" in said
    assert "2026-11-28T10:00:00Z  2        3" in said
    assert "2026-11-27 384.0 1,234.5 75.0% 100.0%" in " ".join(said.split())
    assert "RoleScale" not in said


def test_written_role_scale_is_shown_only_if_the_demand_decides() -> None:
    body = service(mode="Apply", applied={"decoder": 2})
    scales = {"svc-decoder": scale(3), "svc-engine": scale(7, "engine")}
    found = view(body, scales)
    assert found.by_hand == ("svc-decoder",)
    text = "\n".join(lines(found))
    assert "RoleScale svc-decoder was set by hand, and its number applies instead of the demand. " in text
    assert " `ome scale svc -n team --resume`" in text
    assert view(service(), scales).by_hand == ()


def test_service_without_class_demand_is_reported_as_such() -> None:
    body: dict[str, Any] = {"metadata": {"name": "svc", "namespace": "team"}, "spec": {"engine": {}}}
    told = "team/svc is not scaled with its demand: no component has the autoscaler class Demand (docs/demand.md)."
    assert [*lines(view(body, {}))] == [told]
    body["spec"]["engine"] = {"autoscaler": {"class": "HPA"}}
    assert [*lines(view(body, {}))] == [told]


def test_service_without_a_decision_is_reported_as_such() -> None:
    spec = {"engine": {}, "decoder": {"autoscaler": {"class": "Demand"}}}
    body: dict[str, Any] = {"metadata": {"name": "svc", "namespace": "team"}, "spec": spec}
    assert [*lines(view(body, {}))] == [
        "team/svc has the autoscaler class Demand, but the autoscaler has decided nothing yet: `ome explain svc -n team` "
        "shows what it waits for."
    ]


@pytest.mark.parametrize("hold", HOLDS)
def test_hold_sentence_is_printed_once(hold: str) -> None:
    said = [*lines(view(service(hold=hold, why=HOLDS[hold]), {}))]
    assert [line for line in said if HOLDS[hold] in line] == [f"Held ({hold}): {HOLDS[hold]}"]


def test_unknown_numbers_are_omitted() -> None:
    body = service(hold="", why="", decisions=[], days=[{"day": "2026-11-27"}], wanted={})
    body["status"]["traffic"] = {"time": "2026-11-28T10:01:00Z"}
    said = "\n".join(lines(view(body, {})))
    assert "no numbers" in said and "Held" not in said and "DECISION" not in said
    assert said.splitlines()[-1].split() == ["2026-11-27", "0.0", "0.0", "-", "-"]
