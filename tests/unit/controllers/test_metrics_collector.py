"""Tests of the sums that a scrape of the operator's metrics reads. Each reconciliation changes them by a difference, and
they always equal the sums over all services.
"""

import random
from typing import Any

import pytest

from ome_operator.cache.cluster_cache import RECORD
from ome_operator.cache.resources import SERVICE
from tests.support.metrics import BEGAN, Rig, again, condition, group, holding, node, pod, record, revision, service

READY = condition("Ready")
STARTING = condition("Ready", "False", "Starting")


def rig(**settings: Any) -> Rig:
    made = Rig(**settings)
    made.watch()
    return made


def test_services_without_a_reconciliation_are_counted_as_unknown() -> None:
    made = rig()
    made.manager.handle_object(SERVICE, service())
    assert made.samples()['ome_services{ready="Unknown",reason="Other"}'] == 1
    made.passed(SERVICE, "svc", "team")
    assert sum(value for name, value in made.samples().items() if name.startswith("ome_services{")) == 1


def test_metrics_of_a_deleted_service_disappear() -> None:
    made = rig()
    made.see(SERVICE, body := service("svc", "team", READY, groups=[group()]))
    assert made.samples()['ome_groups{phase="Ready",role="engine"}'] == 1
    made.gone(SERVICE, body)
    assert not [
        name
        for name in made.samples()
        if name.startswith(("ome_groups{", "ome_service")) and "start" not in name and "summed" not in name
    ]


def test_per_service_series_are_limited_and_the_rest_is_summed() -> None:
    made = rig(metrics_per_service=2)
    bodies = [service(f"s{number}", "team", READY, groups=[group()]) for number in range(5)]
    made.see(SERVICE, *bodies)
    found = made.samples()
    own = [name for name in found if name.startswith("ome_service_ready{")]
    assert len(own) == 3 and found['ome_service_ready{namespace="",service=""}'] == 3
    assert found["ome_services_summed"] == 3
    made.gone(SERVICE, bodies[0])
    found = made.samples()
    assert found['ome_service_ready{namespace="team",service="s2"}'] == 1, "it waited longest"
    assert found['ome_service_ready{namespace="",service=""}'] == found["ome_services_summed"] == 2
    assert found['ome_groups{phase="Ready",role="engine"}'] == 4


def test_series_limit_is_shared_fairly_between_namespaces() -> None:
    """A tenant with many services does not use up the series of others. Previously, services of other tenants had none
    beside a tenant with a hundred small services.
    """
    made = rig(metrics_per_service=3)
    made.see(SERVICE, *[service(f"s{number}", "many", READY, groups=[group()]) for number in range(9)])
    made.see(SERVICE, service("one", "few", READY, groups=[group()]))
    found = made.samples()
    own = {name for name in found if name.startswith("ome_service_ready{") and 'service=""' not in name}
    assert own == {
        f'ome_service_ready{{namespace="{namespace}",service="{name}"}}'
        for namespace, name in (("many", "s0"), ("many", "s1"), ("few", "one"))
    }
    assert found['ome_service_ready{namespace="",service=""}'] == found["ome_services_summed"] == 7


def test_no_per_service_series_if_limit_is_zero() -> None:
    made = rig(metrics_per_service=0)
    made.see(SERVICE, service("secret", "tenant", READY, groups=[group()]))
    assert "secret" not in made.text() and "tenant" not in made.text()


def test_unready_service_has_ready_series_zero() -> None:
    made = rig()
    made.see(SERVICE, service("svc", "team", STARTING))
    assert made.samples()['ome_service_ready{namespace="team",service="svc"}'] == 0


def start(made: Rig, *later: dict[str, Any], whole: bool = False) -> dict[str, float]:
    components = {"engine": {"latestReadyRevision": "r1"}} if whole else {}
    made.see("Pod", pod())
    body = service("svc", "team", STARTING, components=components)
    made.see(SERVICE, body)
    for change in later or ({"conditions": [condition("Ready", since="2026-01-01T11:10:00Z")]},):
        body = again(body, **change)
        made.see(SERVICE, body)
    return made.samples()


def test_service_start_is_counted_once_with_its_parts() -> None:
    ready = {
        "conditions": [condition("Ready", since="2026-01-01T11:10:00Z")],
        "components": {"engine": {"latestReadyRevision": "r"}},
    }
    found = start(rig(), ready, {"conditions": [STARTING]}, ready)
    assert (found["ome_service_start_seconds_count"], found["ome_service_start_seconds_sum"]) == (1, 600)
    parts = {name: value for name, value in found.items() if name.startswith("ome_service_start_part_seconds_sum")}
    assert sum(parts.values()) == 600 and len(parts) == 5
    assert parts['ome_service_start_part_seconds_sum{part="start"}'] == 240


def test_service_that_was_complete_before_has_no_new_start() -> None:
    assert start(rig(), whole=True)["ome_service_start_seconds_count"] == 0


def test_service_ready_at_operator_start_counts_as_no_start() -> None:
    made = rig()
    made.see("Pod", pod())
    made.see(SERVICE, service("svc", "team", READY))
    assert made.samples()["ome_service_start_seconds_count"] == 0


def recycled(times: int, node: str = "n1") -> list[dict[str, Any]]:
    return [group(recycles=times, node=node, lastFailure={"reason": "OOMKilled"})]


def test_recycles_are_counted_from_operator_start() -> None:
    made = rig()
    made.see("Node", node())
    made.see(SERVICE, body := service("svc", "team", READY, groups=recycled(3)))
    series = 'ome_group_recycles_total{node="n1",reason="OOMKilled"}'
    assert series not in made.samples()
    made.see(SERVICE, body := again(body, groups=recycled(5)))
    made.see(SERVICE, again(body, groups=recycled(5)))
    assert made.samples()[series] == 2


def test_group_start_and_its_parts_are_counted_once() -> None:
    made = rig()
    imports, listed = {"name": "imports", "seconds": 20}, {"name": "listed", "seconds": 2}
    first_token = {"name": "firstToken", "seconds": 7}
    first = {"time": "2026-11-28T12:00:00Z", "seconds": 50, "parts": [imports]}
    made.see(SERVICE, body := service("svc", "team", READY, groups=[group()]))
    for start in (first, first, first | {"parts": [imports, listed, first_token]}, first | {"time": "2026-11-28T13:00:00Z"}):
        made.see(SERVICE, body := again(body, groups=[group(start=start, incarnation=1)]))
    never_ready = group(name="svc-engine-new-0-0", start=first)
    made.see(SERVICE, again(body, groups=[group(start=start, incarnation=1), never_ready]))
    samples = made.samples()
    assert (samples["ome_group_start_seconds_count"], samples["ome_group_start_seconds_sum"]) == (2, 100)
    assert samples['ome_group_start_part_seconds_sum{part="imports"}'] == 40
    assert samples['ome_group_start_part_seconds_count{part="listed"}'] == 1
    assert samples['ome_group_start_part_seconds_sum{part="firstToken"}'] == 7


def test_recycle_series_of_deleted_nodes_disappear() -> None:
    made = rig()
    made.see("Node", body := node())
    made.see(SERVICE, known := service("svc", "team", READY, groups=[group()]))
    made.see(SERVICE, again(known, groups=recycled(1)))
    made.gone("Node", body)
    assert not [name for name in made.samples() if name.startswith("ome_group_recycles_total{")]


def test_gpu_metrics_count_nodes_and_services() -> None:
    made = rig()
    made.see("Node", node("n1", 8), node("n2", 8), node("n3", 8, ready=False))
    made.see("Pod", pod(gpus=6))
    made.see("ControllerRevision", revision(size=2, gpus=6))
    components = {"engine": {"replicas": 2, "updateRevision": "r1"}}
    made.see(SERVICE, service("svc", "team", READY, components=components, groups=[group(phase="NotReady")]))
    found = made.samples()
    kinds = ("allocatable", "wanted", "held", "idle", "wasted")
    assert [found[f"ome_gpus_{kind}"] for kind in kinds] == [16, 24, 6, 10, 6]
    assert found['ome_nodes{state="unready"}'] == 1
    assert found['ome_service_gpus_held{namespace="team",service="svc"}'] == 6


def test_age_metrics_are_those_of_the_oldest() -> None:
    made = rig()
    for name, since in (("new", "2026-01-01T11:59:00Z"), ("old", BEGAN)):
        waits = {"placement": {"waiting": {"engine": 1}, "first": since}}
        made.see(SERVICE, service(name, "team", condition("RolledOut", "False", "RollingOut", since), **waits))
    found = made.samples()
    assert found['ome_rollout_oldest_seconds{step="RollingOut"}'] == found["ome_gang_oldest_seconds"] == 3600
    assert found['ome_rollouts{step="RollingOut"}'] == 2


def test_weight_metrics_of_removed_node_disappear() -> None:
    made = rig()
    made.see(
        RECORD, body := record("n1", holding("Ready", 5, 5, 0), holding("Updating", 1, 4, 9), holding("Strange", 0, 0, 0))
    )
    found = made.samples()
    assert found['ome_node_weights_bytes{node="n1"}'] == 6
    assert found['ome_node_weights_missing_bytes{node="n1"}'] == 3
    assert found['ome_node_weights_bytes_per_second{node="n1"}'] == 9
    assert {name for name in found if name.startswith("ome_weights{")} == {
        f'ome_weights{{state="{state}"}}' for state in ("Ready", "Updating", "Other")
    }
    made.gone(RECORD, body)
    assert not [name for name in made.samples() if "n1" in name]


def test_number_of_nodes_in_metrics_is_limited() -> None:
    made = rig()
    made.manager._metrics_collector._nodes._most = 1
    bodies = [record(f"n{number}", holding()) for number in range(3)]
    made.see(RECORD, *bodies)
    assert made.samples()['ome_node_weights_bytes{node=""}'] == 6
    made.gone(RECORD, bodies[0])
    found = made.samples()
    assert (found['ome_node_weights_bytes{node="n1"}'], found['ome_node_weights_bytes{node=""}']) == (3, 3)


def test_unreadable_service_status_affects_only_its_metrics(caplog: pytest.LogCaptureFixture) -> None:
    made = rig()
    made.see(
        SERVICE, service("svc", "team", READY, groups=[{"name": 3, "index": "x", "phase": []}], components={"engine": None})
    )
    made.see(SERVICE, service("good", "team", READY))
    assert made.samples()['ome_services{ready="True",reason="Serving"}'] >= 1
    assert caplog.text.count("cannot compute metrics of") <= 1


def test_incremental_metrics_equal_those_of_a_new_process() -> None:
    """Services are created, changed and deleted in any order, and the gauges equal those of a new process. Only histograms
    and counters depend on the past.
    """
    chance, bodies, made = random.Random(7), {}, rig(metrics_per_service=3)
    for _ in range(300):
        name = f"s{chance.randrange(8)}"
        if name in bodies and chance.random() < 0.3:
            made.gone(SERVICE, bodies.pop(name))
            continue
        phase, step = chance.choice(("Ready", "Failed", "Starting")), chance.choice(("RollingOut", "Paused"))
        told = {"conditions": [chance.choice((READY, STARTING)), condition("RolledOut", "False", step)]}
        told |= {"groups": [group(number, phase) for number in range(chance.randrange(4))]}
        known = bodies.get(name)
        bodies[name] = again(known, **told) if known else service(name, "team") | {"status": told}
        if known is None:
            bodies[name]["metadata"] |= {"uid": str(chance.random())}
        made.see(SERVICE, bodies[name])
    anew = rig(metrics_per_service=3)
    anew.see(SERVICE, *bodies.values())
    sums = ("ome_services", "ome_groups", "ome_rollouts", "ome_rollout_oldest")
    kept, fresh = ({key: value for key, value in each.samples().items() if key.startswith(sums)} for each in (made, anew))
    assert kept == fresh and len(kept) > 5
