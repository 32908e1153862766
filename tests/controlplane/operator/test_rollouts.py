"""Tests of every strategy on a real control plane, with pods that take some time to start, and an operator that is killed
during the rollouts.

A watch records every state of the pods, from which the bounds are checked. All services roll out at the same time, so the
test takes as long as the slowest of them.
"""

import os
import signal
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import pytest

from ome_local import stages
from ome_local.kubeapi import ApiError
from tests.support import future_operator, yamls
from tests.support.pod_history import Film, recording
from tests.support.rig import Manifest, Rig

FULL = bool(os.environ.get("OME_SOAK"))
"""With OME_SOAK, all cases run, including those with a pause and with a third revision. Otherwise, only the cases run in
which groups are drained at most once.
"""
SLOW = {"annotations": {stages.START_DELAY: "2s"}}
PATIENCE_S = 90.0


class Case(NamedTuple):
    """A service with a strategy, and what the strategy guarantees."""

    prefill: int
    decode: int
    rollout: dict[str, Any]
    least: float
    """Share of the capacity that is available at every moment."""
    most: tuple[int, int]
    """Maximum numbers of prefill and of decode groups at any moment."""
    runtime: str = "r-one"
    size: int = 1


CASES = {
    "even": Case(2, 2, {}, 0.5, (2, 2)),
    "full": Case(4, 4, {"rollingUpdate": {"maxUnavailable": "50%"}}, 0.5, (4, 4), "r-gpus", 2),
    "surge": Case(2, 1, {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}, 1.0, (3, 2)),
    "blue": Case(1, 2, {"blueGreen": {}}, 1.0, (2, 4), "r-pairs", 2),
    "anew": Case(2, 1, {"recreate": {}}, 0.0, (2, 1), "r-pairs", 2),
}
PAUSED = {"paused": Case(3, 3, {}, 2 / 3, (3, 3))}
AGAIN = {"again": Case(3, 3, {}, 2 / 3, (3, 3))}
if FULL:
    CASES |= PAUSED | AGAIN
else:
    del CASES["even"]


@pytest.fixture(scope="module", autouse=True)
def runtimes(installed: Rig) -> Iterator[None]:
    bodies = [
        yamls.runtime("r-one", decoder=True),
        yamls.runtime("r-pairs", size=2, decoder=True),
        yamls.runtime("r-gpus", size=2, gpus=8, decoder=True),
    ]
    for body in bodies:
        installed.create(body)
    yield
    for body in bodies:
        installed.delete("ClusterServingRuntime", "", body["metadata"]["name"])


def made(namespace: str, name: str, case: Case) -> Manifest:
    """Return the service of a case."""
    engine, decoder = ({"minReplicas": count, **SLOW} for count in (case.prefill, case.decode))
    more = {"rollout": case.rollout} if case.rollout else {}
    parts = ("engine", "decoder", "router")
    return yamls.service(namespace, name, case.runtime, *parts, **{"engine": engine, "decoder": decoder, **more})


def edit(rig: Rig, namespace: str, name: str, image: str) -> None:
    """Change the image of prefill, which creates a new revision of the complete service."""
    rig.patch("InferenceService", namespace, name, {"spec": {"engine": {"runner": {"image": image}}}})


def status(rig: Rig, namespace: str, name: str) -> Mapping[str, Any]:
    """Return the stored status of a service."""
    return (rig.get("InferenceService", namespace, name) or {}).get("status", {})


def begun(rig: Rig, namespace: str, name: str, old: str) -> bool:
    """Return whether a prefill group and a decode group of the new revision are ready."""
    ready = {
        pod["metadata"]["labels"]["component"]
        for pod in rig.all("Pod", namespace, f"ome.io/inferenceservice={name},ome.io/revision!={old}")
        if any(one["type"] == "Ready" and one["status"] == "True" for one in pod["status"].get("conditions", ()))
    }
    return {"engine", "decoder"} <= ready


def out(rig: Rig, namespace: str, name: str, old: str) -> bool:
    """Return whether the rollout to another revision is complete, and no other revision is left."""
    found = status(rig, namespace, name).get("revision", "")
    return found != old and "→" not in found and rig.condition(namespace, name, "RolledOut").get("status") == "True"


def resume(rig: Rig, namespace: str, name: str) -> None:
    """Check that the paused rollout has not proceeded and both slices serve, then resume it."""
    rig.wait_for_condition(namespace, name, "RolledOut", "Paused", "prefill 1/3 new, decode 1/3 new")
    assert rig.condition(namespace, name, "Ready")["status"] == "True"
    (gate,) = {one["rolloutHold"]["gate"] for one in status(rig, namespace, name)["components"].values()}
    assert gate == "Paused"
    rig.patch("InferenceService", namespace, name, {"spec": {"rollout": {"paused": None}}})


def recorded(rig: Rig, namespace: str, name: str) -> int:
    """Return the number of stored revisions of a service, without the ControllerRevisions of its StatefulSets."""
    found = rig.all("ControllerRevision", namespace, f"ome.io/inferenceservice={name}")
    return sum(one["metadata"]["ownerReferences"][0]["kind"] == "InferenceService" for one in found)


def images(film: Film, service: str, component: str) -> list[set[str]]:
    """Return the images of a component's pods after each event that was recorded in `film`."""
    return [{one.image for one in frame.values() if one.component == component} for frame in film.frames(service)]


@pytest.mark.timeout(240)
def test_every_strategy_keeps_its_bounds_although_the_operator_is_killed(rig: Rig, namespace: str) -> None:
    rig.create(yamls.service(namespace, "calm", "r-pairs", "engine", "decoder", "router"))
    for name, case in CASES.items():
        rig.create(made(namespace, name, case))
    for name in ("calm", *CASES):
        rig.ready(namespace, name, PATIENCE_S)
    old = {name: status(rig, namespace, name)["revision"] for name in CASES}
    calm = {pod["metadata"]["uid"] for pod in rig.all("Pod", namespace, "ome.io/inferenceservice=calm")}
    with recording(rig, namespace) as film:
        for name in CASES:
            edit(rig, namespace, name, "engine:2")
        first = "paused" if FULL else "surge"
        rig.wait("begun", lambda: begun(rig, namespace, first, old[first]), PATIENCE_S)
        for name in CASES.keys() & PAUSED:
            rig.patch("InferenceService", namespace, name, {"spec": {"rollout": {"paused": True}}})
        for name in CASES.keys() & AGAIN:
            edit(rig, namespace, name, "engine:3")
            rig.wait("a third revision", lambda name=name: recorded(rig, namespace, name) == 3)
        rig.restart(signal.SIGKILL, program="tests.support.future_operator")
        for name in CASES.keys() - PAUSED.keys():
            rig.wait(f"{name} rolled out", lambda name=name: out(rig, namespace, name, old[name]), PATIENCE_S)
        for name in CASES.keys() & PAUSED:
            resume(rig, namespace, name)
            rig.wait(f"{name} rolled out", lambda name=name: out(rig, namespace, name, old[name]), PATIENCE_S)
        rig.restart(signal.SIGTERM)
        rig.wait_until_quiet()
    for name, case in CASES.items():
        wanted = {"engine": case.prefill, "decoder": case.decode}
        lowest = min(film.capacity(name, wanted, case.size)[-1:] + whole(film, name, wanted, case.size))
        print(f"{name}: at least {lowest:.2f} of the capacity ({case.least:.2f} promised), at most", end=" ")
        most = film.most_groups(name, "engine"), film.most_groups(name, "decoder")
        print(f"{most[0]} prefill and {most[1]} decode groups")
        assert lowest >= case.least - 1e-9 and most <= case.most, name
        assert images(film, name, "engine")[-1] == {"engine:3" if name == "again" else "engine:2"}
    assert {pod["metadata"]["uid"] for pod in rig.all("Pod", namespace, "ome.io/inferenceservice=calm")} == calm
    marked = [pod["metadata"]["name"] for pod in rig.all("Pod", namespace) if future_operator.MARK in str(pod)]
    assert marked == [], "a newer operator created pods of a stored revision with its own rendering"


def whole(film: Film, service: str, wanted: Mapping[str, int], size: int) -> list[float]:
    """Return, for each event of `film`, the share of the capacity `wanted` that was available after it. The list begins when
    all initial pods were known.
    """
    every = film.capacity(service, dict(wanted), size)
    return every[next(number for number, one in enumerate(every) if one >= 1.0) :]


MESSAGES = {
    "are mutually exclusive": {"blueGreen": {}, "recreate": {}},
    'write a count such as 1, or a share such as "25%"': {"rollingUpdate": {"maxSurge": "many"}},
    "should be greater than or equal to 0": {"groups": [{"components": ["engine"], "maintainRatio": {"tolerance": -1}}]},
}


@pytest.mark.parametrize("words", MESSAGES)
def test_api_server_reports_invalid_rollout_fields(rig: Rig, namespace: str, words: str) -> None:
    body = yamls.service(namespace, "wrong", "r-one", rollout=MESSAGES[words])
    with pytest.raises(ApiError, match=words):
        rig.create(body)
