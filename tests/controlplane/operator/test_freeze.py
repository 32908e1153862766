"""Tests of freezing and of observe mode on a real API server. Its audit log shows which objects are written during a
freeze. During each kind of operation, everything is frozen and the operator is killed. After the freeze has ended, the
operation completes correctly.
"""

from collections.abc import Iterator
from typing import Any

import pytest
from typer.testing import CliRunner

from ome_local import stages
from ome_local.audit_log import Request
from ome_operator import keys
from ome_operator.cli.app import app
from tests.controlplane.operator.test_recovery import QUICK, back, forbid, groups, pods, settled, uids
from tests.support import yamls
from tests.support.rig import Manifest, Rig

NAME = "fall"
SLOW = {"annotations": {stages.START_DELAY: "2s"}}
TOLD = {"events", "inferenceservices/status", "rolescales/status"}
"""Resources that the operator may write for a frozen service."""


@pytest.fixture(scope="module", autouse=True)
def runtimes(installed: Rig) -> Iterator[None]:
    bodies = [yamls.runtime("f-solo", decoder=True), yamls.runtime("f-pairs", size=2), yamls.runtime("f-four", size=4)]
    for body in bodies:
        installed.create(body)
    yield
    for body in bodies:
        installed.delete("ClusterServingRuntime", "", body["metadata"]["name"])


@pytest.fixture(autouse=True)
def thawed(rig: Rig) -> Iterator[None]:
    """Unfreeze everything after the test."""
    yield
    ome(rig, "thaw", "--all")


def ome(rig: Rig, *words: str) -> str:
    """Run a command against the cluster, and return its output; it must succeed."""
    done = CliRunner().invoke(app, [*words, "--kubeconfig", str(rig.cluster.kubeconfig)])
    assert done.exit_code == 0, (done.output, done.exception)
    return done.output


def written(rig: Rig, mark: int, namespace: str) -> list[tuple[str, str, str]]:
    """Return what the operator wrote in a namespace since the position `mark` of the audit log, without dry runs: verb,
    resource, name.
    """
    found = [
        item for item in rig.requests(mark) if item.is_write and item.namespace == namespace and "dryRun" not in item.uri
    ]
    return [(item.verb, what(item), item.name) for item in found]


def what(item: Request) -> str:
    return item.resource + (f"/{item.subresource}" if item.subresource else "")


def frozen(rig: Rig, namespace: str, name: str = NAME) -> Manifest:
    """Return the condition Frozen; an empty mapping if the service is not frozen."""
    return rig.condition(namespace, name, "Frozen")


def says(rig: Rig, namespace: str, *words: str, name: str = NAME) -> None:
    """Wait until the message of the condition Frozen contains these words."""
    rig.wait(f"Frozen says {words}", lambda: all(word in frozen(rig, namespace, name).get("message", "") for word in words))


def alive(rig: Rig, namespace: str) -> dict[str, str]:
    """Return name -> UID of the pods that are not terminating."""
    found = [item["metadata"] for item in rig.all("Pod", namespace) if "deletionTimestamp" not in item["metadata"]]
    return {item["name"]: item["uid"] for item in found}


def test_frozen_rollout_changes_no_pod_and_continues_to_the_last_edit(rig: Rig, namespace: str) -> None:
    """A rollout is frozen while pods of two revisions serve. An edit, a scaling and a restart of the operator change no pod
    during the freeze. Afterwards the rollout continues to the last edit.
    """
    part = {"minReplicas": 3, **SLOW}
    scaled = {**part, "maxReplicas": 5, "scaleMetric": "cpu"}
    rig.create(yamls.service(namespace, NAME, "f-solo", "engine", "decoder", "router", engine=scaled, decoder=part))
    old = rig.ready(namespace, NAME, 60)["status"]["revision"]
    image(rig, namespace, "engine:2")
    rig.wait("the new slice has begun", lambda: ready_of_another(rig, namespace, old), 60)
    said = ome(rig, "freeze", f"{namespace}/{NAME}", "--why", "driver")
    assert "is frozen" in said and "has confirmed the freeze" in said
    settle_pods(rig, namespace)
    mark, before = rig.cluster.audit_mark(), alive(rig, namespace)
    assert len({item["metadata"]["labels"]["ome.io/revision"] for item in rig.all("Pod", namespace)}) == 2

    rig.restart()
    rig.wait_for_leader()
    image(rig, namespace, "engine:3")
    rig.patch("RoleScale", namespace, f"{NAME}-engine", {"spec": {"replicas": 4}})
    says(
        rig,
        namespace,
        "frozen since 20",
        "driver",
        "would ",
        "store revision ",
        f"`ome thaw {NAME} -n {namespace}` ends the",
    )
    rig.wait_until_quiet()
    assert alive(rig, namespace) == before
    assert {resource for _, resource, _ in written(rig, mark, namespace)} <= TOLD
    assert (rig.get("RoleScale", namespace, f"{NAME}-engine") or {})["spec"]["replicas"] == 4
    assert rig.condition(namespace, NAME, "RolledOut")["reason"] == "Frozen"
    assert "Frozen: frozen since 20" in ome_shows(rig, namespace)
    columns = rig.cluster.kubectl("get", "isvc", NAME, "-n", namespace).split()
    assert "FROZEN" in columns and "Frozen" in columns

    assert f"{NAME} is no longer frozen" in ome(rig, "thaw", f"{namespace}/{NAME}")
    rig.wait("whole and alone", lambda: rig.condition(namespace, NAME, "RolledOut").get("status") == "True", 120)
    rig.ready(namespace, NAME, 60)
    assert not frozen(rig, namespace)
    engines = rig.all("Pod", namespace, "component=engine")
    assert {item["spec"]["containers"][0]["image"] for item in engines} == {"engine:3"} and len(engines) == 4
    rig.wait_until_quiet()


def image(rig: Rig, namespace: str, name: str) -> None:
    rig.patch("InferenceService", namespace, NAME, {"spec": {"engine": {"runner": {"image": name}}}})


def ome_shows(rig: Rig, namespace: str) -> str:
    """Return the output of `ome status` and `ome explain`, which exit with 1 if an object is not ready."""
    words = ((name, NAME, "-n", namespace, "--kubeconfig", str(rig.cluster.kubeconfig)) for name in ("status", "explain"))
    status, explained = (" ".join(CliRunner().invoke(app, list(item)).output.split()) for item in words)
    assert "frozen since 20" in explained
    return status


def ready_of_another(rig: Rig, namespace: str, old: str) -> bool:
    """Return whether an engine pod of a revision other than `old` is ready."""
    found = rig.all("Pod", namespace, f"component=engine,ome.io/revision!={old}".replace("!=", "%21="))
    return any(
        item["type"] == "Ready" and item["status"] == "True" for pod in found for item in pod["status"].get("conditions", ())
    )


def settle_pods(rig: Rig, namespace: str) -> None:
    """Wait until no pod is terminating, so that pods deleted before the freeze are gone."""
    rig.wait("no pod ends", lambda: len(alive(rig, namespace)) == len(rig.all("Pod", namespace)), 60)
    rig.wait_until_quiet()


def test_frozen_recycle_is_completed_after_the_thaw(rig: Rig, namespace: str) -> None:
    """A recycle is frozen after the operator has replaced three of a group's four pods and the deletion of the last one was
    denied. That pod stays during the freeze, and is deleted once afterwards.
    """
    rig.create(yamls.service(namespace, NAME, "f-four", engine={"lifecycle": QUICK}))
    settled(rig, namespace)
    old = uids(pods(rig, namespace)["engine", 0])
    shield = forbid(rig, pods(rig, namespace)["engine", 0][3]["metadata"]["name"])
    try:
        lost = pods(rig, namespace)["engine", 0][1]["metadata"]["name"]
        rig.delete("Pod", namespace, lost)

        def halfway() -> dict[int, str] | None:
            now = uids(pods(rig, namespace)["engine", 0])
            return now if len(now) == 4 and [rank for rank in now if now[rank] == old[rank]] == [3] else None

        new = rig.wait("all but rank 3 are new", halfway)
        assert new
        ome(rig, "freeze", "--all", "--why", "driver")
    finally:
        shield()
    told = groups(rig, namespace)
    assert told["engine", 0]["phase"] == "Recycling"
    mark = rig.cluster.audit_mark()
    rig.restart()
    rig.wait_for_leader()
    rig.wait_until_quiet(4.0)
    assert uids(pods(rig, namespace)["engine", 0]) == new and groups(rig, namespace) == told
    assert {resource for _, resource, _ in written(rig, mark, namespace)} <= TOLD
    says(
        rig,
        namespace,
        "frozen with all services since 20",
        "to recycle their group",
        "`ome thaw --all` ends the freeze of all services",
    )

    assert ome(rig, "thaw", "--all").startswith("Thawed.")
    back(rig, namespace, 0)
    now = uids(pods(rig, namespace)["engine", 0])
    assert {rank: now[rank] for rank in (0, 1, 2)} == {rank: new[rank] for rank in (0, 1, 2)} and now[3] != old[3]
    assert groups(rig, namespace)["engine", 0]["recycles"] == 1
    assert not frozen(rig, namespace)


def test_a_group_that_fails_while_frozen_is_recycled_after_the_thaw(rig: Rig, namespace: str) -> None:
    rig.create(yamls.service(namespace, NAME, "f-pairs", engine={"minReplicas": 2, "lifecycle": QUICK}))
    settled(rig, namespace)
    before = alive(rig, namespace)
    ome(rig, "freeze", NAME, "-n", namespace)
    lost = pods(rig, namespace)["engine", 1][1]["metadata"]["name"]
    rig.delete("Pod", namespace, lost)
    says(rig, namespace, "would recycle engine group 1 of revision")
    rig.wait_until_quiet(4.0)
    now = alive(rig, namespace)
    assert now.keys() == before.keys() and [name for name in now if now[name] != before[name]] == [lost]
    assert "GroupRecycled" not in {item["reason"] for item in rig.all("Event", namespace)}
    ome(rig, "thaw", NAME, "-n", namespace)
    back(rig, namespace, 1)
    assert groups(rig, namespace)["engine", 1]["recycles"] == 1


def test_nothing_is_created_while_everything_is_frozen(rig: Rig, namespace: str) -> None:
    """While everything is frozen, an operator that has just started creates nothing, even if its Lease was deleted."""
    ome(rig, "freeze", "--all")
    rig.stop()
    mark = rig.cluster.audit_mark()
    rig.create(yamls.service(namespace, NAME, "f-pairs", "engine", "router"))
    rig.start()
    says(rig, namespace, "would store revision ", "2 StatefulSets")
    assert rig.condition(namespace, NAME, "Ready")["reason"] == "Frozen"
    rig.cluster.kubectl("delete", "lease", "ome-operator", "-n", "ome")
    rig.wait("a new Lease", lambda: keys.FREEZE in rig.cluster.kubectl("get", "leases", "-n", "ome", "-o", "yaml"))
    rig.wait_until_quiet(3.0)
    assert {resource for _, resource, _ in written(rig, mark, namespace)} == {"inferenceservices/status", "events"}
    assert not rig.all("StatefulSet", namespace) and not rig.all("Pod", namespace)
    # Users may delete their services at any time.
    rig.delete("InferenceService", namespace, NAME)
    rig.wait("gone", lambda: rig.get("InferenceService", namespace, NAME) is None)
    rig.create(yamls.service(namespace, NAME, "f-pairs", "engine", "router"))
    ome(rig, "thaw", "--all")
    rig.ready(namespace, NAME)


def test_service_selector_is_repaired_while_frozen(rig: Rig, namespace: str) -> None:
    rig.create(yamls.service(namespace, NAME, "f-pairs", "engine", "router"))
    rig.ready(namespace, NAME)
    ome(rig, "freeze", NAME, "-n", namespace)
    before = alive(rig, namespace)
    wanted = (rig.get("Service", namespace, NAME) or {})["spec"]["selector"]
    rig.patch("Service", namespace, NAME, {"spec": {"selector": {"component": "nobody"}}})
    rig.wait("its selector is back", lambda: (rig.get("Service", namespace, NAME) or {})["spec"]["selector"] == wanted)
    rig.delete("Service", namespace, NAME)
    rig.wait("it is back", lambda: rig.get("Service", namespace, NAME))
    rig.delete("PodDisruptionBudget", namespace, rig.all("PodDisruptionBudget", namespace)[0]["metadata"]["name"])
    says(rig, namespace, "would create PodDisruptionBudget")
    assert alive(rig, namespace) == before


@pytest.mark.parametrize("how", ["annotation", "namespace", "all"])
def test_observe_mode_writes_only_statuses(rig: Rig, namespace: str, how: str) -> None:
    """An operator in observe mode writes only statuses, which show what it would do. The test takes the operator's writes
    from the audit log, so none is missed.
    """
    words = {"annotation": (), "namespace": ("--observe-namespace", namespace), "all": ("--observe",)}[how]
    rig.stop()
    mark = rig.cluster.audit_mark()
    body: Manifest = yamls.service(namespace, NAME, "f-pairs", "engine", "router")
    if how == "annotation":
        body["metadata"]["annotations"] = {"ome.io/observe": "true"}
    rig.create(body)
    rig.start("operator", *words)
    try:
        says(rig, namespace, "observed (", "would store revision ", "4 Services", "2 StatefulSets", "Deployment", "Role")
        rig.wait_until_quiet(3.0)
        here = [item for item in rig.requests(mark) if item.is_write and item.namespace in ("", namespace)]
        assert {(item.verb, what(item)) for item in here if item.namespace} == {("patch", "inferenceservices/status")}
        assert how != "all" or all(item.subresource == "status" for item in rig.requests(mark) if item.is_write)
        for kind in ("StatefulSet", "Deployment", "Service", "Pod", "ControllerRevision", "Role", "Event", "RoleScale"):
            assert rig.all(kind, namespace) == [], kind
        assert frozen(rig, namespace)["reason"] == "Observed"
    finally:
        rig.stop()
        rig.start()
    if how == "annotation":
        rig.patch("InferenceService", namespace, NAME, {"metadata": {"annotations": {"ome.io/observe": None}}})
    rig.ready(namespace, NAME)
    assert not frozen(rig, namespace)


def test_a_benchmark_starts_after_the_thaw(rig: Rig, namespace: str) -> None:
    ome(rig, "freeze", "--all")
    rig.create(yamls.benchmark(namespace, "speed"))

    def reason() -> Any:
        conditions = (rig.get("BenchmarkJob", namespace, "speed") or {}).get("status", {}).get("conditions", ())
        return next((item["reason"] for item in conditions if item["type"] == "Complete"), "")

    rig.wait("it says so", lambda: reason() == "Frozen")
    assert rig.all("Job", namespace) == []
    ome(rig, "thaw", "--all")
    rig.wait("its Job", lambda: rig.all("Job", namespace))
    for kind in ("BenchmarkJob", "Job"):
        for item in rig.all(kind, namespace):
            rig.delete(kind, namespace, item["metadata"]["name"])
