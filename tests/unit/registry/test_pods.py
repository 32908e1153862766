"""Tests of the API server's responses about pods, and of responses that are invalid."""

from typing import Any

import pytest
import yaml

from ome_operator.core.render.pod_template import port as port_of
from ome_operator.core.render.probes import with_probes
from ome_operator.engines.servers import Server, known_servers
from ome_operator.registry.pods import HEALTH_PAGES, UnexpectedAnswer, parse_pods
from ome_operator.registry.reconcile import reconcile
from ome_operator.registry.records import RegistrySettings, RoleSpec, Worker, WorkerMemory
from tests.support.rig import ROOT

STEMS = {"engine": "p"}


def made_by(name: str, kind: str = "StatefulSet") -> list[dict[str, Any]]:
    """Return two owner references of a pod: one of another owner, and one of its controller with this kind and name."""
    other = {"apiVersion": "v1", "kind": "ConfigMap", "name": "notes"}
    return [other, {"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": "s", "controller": True}]


def leader(group: int = 3, **more: Any) -> dict[str, Any]:
    """Return a leader as the API server shows it."""
    labels = {
        "component": "engine",
        "leaderworkerset.sigs.k8s.io/worker-index": "0",
        "ome.io/group": str(group),
        "apps.kubernetes.io/pod-index": "0",
    }
    return {
        "metadata": {
            "name": f"p-{group}-0",
            "uid": f"u{group}",
            "labels": labels,
            "ownerReferences": made_by(f"p-{group}"),
            **more.pop("metadata", {}),
        },
        "spec": {"containers": [{"name": "main"}, {"name": "other"}]},
        "status": {
            "phase": "Running",
            "podIP": f"10.0.0.{group}",
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "1970-01-01T00:03:20Z"}],
            "containerStatuses": [
                {"name": "other", "state": {"waiting": {}}},
                {"name": "main", "state": {"running": {"startedAt": "1970-01-01T00:01:40Z"}}},
            ],
            **more,
        },
    }


def worker(group: int = 3, rank: int = 2, phase: str = "Pending") -> dict[str, Any]:
    """Return a worker, a pod whose rank is above 0."""
    labels = {"component": "engine", "ome.io/group": str(group), "apps.kubernetes.io/pod-index": str(rank)}
    metadata = {"name": f"p-{group}-w-{rank}", "uid": f"w{group}-{rank}", "labels": labels}
    metadata["ownerReferences"] = made_by(f"p-{group}-w")
    return {"metadata": metadata, "status": {"phase": phase}}


def labelled(body: dict[str, Any], **labels: str | None) -> dict[str, Any]:
    """Return the pod with changed or removed labels (`group`, `index`, `leads`)."""
    of = {
        "group": "ome.io/group",
        "index": "apps.kubernetes.io/pod-index",
        "leads": "leaderworkerset.sigs.k8s.io/worker-index",
    }
    found = {**body["metadata"]["labels"], **{of[name]: value for name, value in labels.items()}}
    kept = {name: value for name, value in found.items() if value is not None}
    return {**body, "metadata": {**body["metadata"], "labels": kept}}


def pods(*items: Any) -> dict[str, Any]:
    """Return a PodList with these pods."""
    return {"kind": "PodList", "metadata": {"resourceVersion": "1"}, "items": list(items)}


def test_leader_pod_is_parsed() -> None:
    (pod,) = parse_pods(pods(leader()), STEMS)
    assert pod == ("p-3-0", "u3", "10.0.0.3", "engine", "3", 0, True, 100.0, True, 200.0, False, False, None, None)


def test_draining_and_deleted_pod_is_parsed() -> None:
    notes = {"ome.io/draining": "true", "sglang.ai/bootstrap-port": "9000"}
    labels = leader()["metadata"]["labels"]
    more = {"annotations": notes, "labels": labels, "deletionTimestamp": "2026-01-01T00:00:00Z"}
    (pod,) = parse_pods(pods(leader(metadata=more)), STEMS)
    assert pod.deleting and pod.draining and pod.bootstrap_port == 9000


def test_rank_that_has_not_started_is_parsed() -> None:
    (pod,) = parse_pods(pods(worker()), STEMS)
    assert (pod.group, pod.rank, pod.running, pod.ready) == ("3", 2, False, False)


@pytest.mark.parametrize("state", [{"terminated": {"exitCode": 0}}, {"waiting": {"reason": "CrashLoopBackOff"}}, {}, None])
def test_main_container_that_does_not_run_is_parsed(state: Any) -> None:
    (pod,) = parse_pods(pods(leader(containerStatuses=[{"name": "main", "state": state}])), STEMS)
    assert not pod.running


def test_pods_that_are_not_ranks_are_left_out() -> None:
    router = {"metadata": {"name": "r", "uid": "r", "labels": {"component": "router"}}}
    assert parse_pods(pods(router, {"metadata": {"name": "x", "uid": "x"}}), STEMS) == ()


@pytest.mark.parametrize(
    "body",
    [
        labelled(leader(), index="1"),
        labelled(leader(), leads="1"),
        labelled(leader(), leads=None),
        labelled(leader(), group=None),
        labelled(worker(), group=None),
        labelled(worker(), index="0"),
        labelled(worker(), leads="0"),
        labelled(worker(), index=None),
        labelled(worker(), index="many"),
    ],
    ids=[
        "a leader's set was scaled by hand",
        "a leader with another rank",
        "the leader's mark was taken off",
        "a leader without a group",
        "a worker without a group",
        "a worker as rank 0",
        "a worker with the leader's mark",
        "a worker without a rank",
        "a worker with a word for a rank",
    ],
)
def test_pod_with_contradictory_labels_is_not_a_rank(body: Any) -> None:
    """A pod whose labels contradict each other is no rank. The registry still accepts the other pods: a single invalid pod
    must not hide all others from the router.
    """
    assert [pod.name for pod in parse_pods(pods(body, leader(4)), STEMS)] == ["p-4-0"]


def renamed(body: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    """Return the pod with other metadata."""
    return {**body, "metadata": {**body["metadata"], **metadata}}


IMPOSTORS = {
    "a bare pod": renamed(leader(), name="impostor", ownerReferences=[]),
    "a bare pod of the leader's name": renamed(leader(), ownerReferences=[]),
    "one whose owner is no controller": renamed(leader(), ownerReferences=[{**made_by("p-3")[1], "controller": False}]),
    "a Deployment's": renamed(leader(), ownerReferences=made_by("p-3", "ReplicaSet")),
    "another group's": renamed(leader(), ownerReferences=made_by("p-4")),
    "another StatefulSet's": renamed(leader(), name="x-3-0", ownerReferences=made_by("x-3")),
    "one that only claims to be the leader set's": renamed(leader(), name="impostor", ownerReferences=made_by("p-3")),
    "a worker as a leader": renamed(leader(), name="p-3-w-0", ownerReferences=made_by("p-3-w")),
    "a worker of another name": renamed(worker(), name="p-3-w-1"),
    "a component that is none of the slice": renamed(
        leader(), labels={**leader()["metadata"]["labels"], "component": "decoder"}
    ),
}


@pytest.mark.parametrize("case", IMPOSTORS)
def test_pod_with_only_labels_of_worker_is_ignored(case: str) -> None:
    """A pod that has the labels of a worker, but not its owner, is ignored. Anyone who may create a pod may give it these
    labels. As a worker, the pod would receive prompts and the key that the router sends to its workers.
    """
    assert [pod.name for pod in parse_pods(pods(IMPOSTORS[case], leader(4)), STEMS)] == ["p-4-0"]


def test_only_the_leader_of_the_broken_group_is_removed_from_the_router() -> None:
    """If one of three groups has lost its worker, only the leader of this group is removed from the router. Every leader has
    the pod index 0, so only the group label tells the groups apart.
    """
    settings = RegistrySettings((RoleSpec("engine", "regular", 30000, 2, "p"),))
    everything = [made for group in range(1, 4) for made in (leader(group), worker(group, 1, "Running"))]
    listed = [Worker(str(group), f"http://10.0.0.{group}:30000", "regular", None, 0) for group in range(1, 4)]
    assert reconcile(parse_pods(pods(*everything), STEMS), listed, WorkerMemory(), settings, 1000.0).remove == ()
    for group in range(1, 4):
        others = [one for one in everything if one["metadata"]["name"] != f"p-{group}-w-1"]
        ending = worker(group, 1, "Running")
        ending["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        for broken, why in ((others, "is missing"), ([*others, ending], "is being deleted")):
            step = reconcile(parse_pods(pods(*broken), STEMS), listed, WorkerMemory(), settings, 1000.0)
            assert [(one.worker.id, one.why) for one in step.remove] == [(str(group), f"rank 1 {why}")]
            assert step.add == ()


def test_empty_pod_list_is_a_valid_response() -> None:
    assert parse_pods(pods(), STEMS) == () == parse_pods({"kind": "PodList", "metadata": {}, "items": None}, STEMS)


@pytest.mark.parametrize(
    "body",
    [
        None,
        [],
        "no",
        {},
        {"kind": "Status", "status": "Failure"},
        {"kind": "PodList", "metadata": {}},
        {"kind": "PodList", "metadata": {}, "items": [None]},
        {"kind": "PodList", "metadata": {}, "items": [{}]},
        {"kind": "PodList", "metadata": {}, "items": "many"},
        {"kind": "PodList", "metadata": {"continue": "more"}, "items": []},
    ],
)
def test_invalid_pod_list_is_refused(body: Any) -> None:
    with pytest.raises(UnexpectedAnswer):
        parse_pods(body, STEMS)


PAGE = {"path": "/health?full=1", "port": "http"}
PORTS = [{"name": "metrics", "containerPort": 9090}, {"name": "http", "containerPort": 30000}]


def main(page: dict[str, Any] | None = None, startup: dict[str, Any] | None = None, **readiness: Any) -> dict[str, Any]:
    """Return the main container with these probes. `page` and `readiness` change the page and the fields of the readiness
    probe.
    """
    probes = {"readinessProbe": {"httpGet": PAGE | (page or {}), **readiness}}
    return {"name": "main", "ports": PORTS, **probes} | ({} if startup is None else {"startupProbe": startup})


MAIN = main()
OTHER: dict[str, Any] = {"name": "other"}
MESH: dict[str, Any] = {"name": "mesh", "restartPolicy": "Always"}
AWAITED: dict[str, tuple[dict[str, Any], int | None]] = {
    "the engine alone": ({"containers": [MAIN]}, 30000),
    "a container that is ready": ({"containers": [MAIN, {"name": "done"}]}, 30000),
    "a container that is not ready": ({"containers": [MAIN, OTHER]}, None),
    "a sidecar that is not ready": ({"containers": [MAIN], "initContainers": [MESH]}, None),
    "an init container that has ended": ({"containers": [MAIN], "initContainers": [{"name": "wait"}]}, 30000),
    "a readiness gate": ({"containers": [MAIN], "readinessGates": [{"conditionType": "example.com/lb"}]}, None),
    "a probe of another page": ({"containers": [main({"path": "/v1/models"})]}, None),
    "a page that also tells whether it is paused": ({"containers": [main({"path": "/ready"})]}, None),
    "a command as the probe": ({"containers": [{"name": "main", "readinessProbe": {"exec": {"command": ["x"]}}}]}, None),
    "no readiness probe": ({"containers": [{"name": "main"}]}, None),
    "only a startup probe": ({"containers": [{"name": "main", "ports": PORTS, "startupProbe": {"httpGet": PAGE}}]}, None),
    "a startup probe of a page for health": ({"containers": [main(startup={"httpGet": PAGE})]}, 30000),
    "a startup probe of another page": ({"containers": [main(startup={"httpGet": PAGE | {"path": "/v1/models"}})]}, None),
    "a startup probe of another port": ({"containers": [main(startup={"httpGet": PAGE | {"port": "metrics"}})]}, None),
    "a command as the startup probe": ({"containers": [main(startup={"exec": {"command": ["x"]}})]}, None),
    "a connection as the startup probe": ({"containers": [main(startup={"tcpSocket": {"port": 30000}})]}, None),
    "a slow startup probe": ({"containers": [main(startup={"httpGet": PAGE, "periodSeconds": 30})]}, None),
    "another port": ({"containers": [main({"port": "metrics"})]}, 9090),
    "a port by its number": ({"containers": [main({"port": 8080})]}, 8080),
    "a number as a text": ({"containers": [main({"port": "8080"})]}, 8080),
    "a port without a name": ({"containers": [main({"port": "absent"})]}, None),
    "another host": ({"containers": [main({"host": "10.0.0.9"})]}, None),
    "the fields as the API server shows them": (
        {"containers": [main(initialDelaySeconds=5, periodSeconds=10, successThreshold=1, timeoutSeconds=5)]},
        30000,
    ),
    "a long initial delay": ({"containers": [main(initialDelaySeconds=6)]}, None),
    "a long period": ({"containers": [main(periodSeconds=11)]}, None),
    "two successes": ({"containers": [main(successThreshold=2)]}, None),
    "no container": ({}, None),
}


@pytest.mark.parametrize("case", AWAITED)
def test_health_port_is_found_from_the_probes(case: str) -> None:
    spec, port = AWAITED[case]
    assert health_port(spec) == port


def health_port(spec: dict[str, Any]) -> int | None:
    """Return the port of the health page of a leader with this pod spec, if only probes of that page keep the pod from
    being ready. Otherwise return None.
    """
    body = leader()
    body["spec"] = spec
    body["status"]["containerStatuses"] += [{"name": "done", "state": {"running": {}}, "ready": True}]
    body["status"]["initContainerStatuses"] = [{"name": "mesh", "ready": False}]
    (pod,) = parse_pods(pods(body), STEMS)
    return pod.health_port


@pytest.mark.parametrize("engine", known_servers(), ids=lambda engine: engine.name)
def test_default_probes_wait_only_for_the_engine(engine: Server) -> None:
    command = list(engine.starts[0])
    spec = with_probes({"containers": [{"name": "main", "command": command}]}, 31000)
    assert {"startupProbe", "readinessProbe"} <= spec["containers"][0].keys()
    assert health_port(spec) == (31000 if engine.health in HEALTH_PAGES else None)
    assert engine.health in HEALTH_PAGES or engine.name == "ktransformers", "its page is no page for health"


def probed(body: Any) -> list[dict[str, Any]]:
    """Return the containers in an object whose readiness probe requests a page for health."""
    if isinstance(body, list):
        return [found for each in body for found in probed(each)]
    if not isinstance(body, dict):
        return []
    path = ((body.get("readinessProbe") or {}).get("httpGet") or {}).get("path")
    return [body] if path in HEALTH_PAGES else [found for each in body.values() for found in probed(each)]


def test_probes_of_shipped_runtimes_wait_only_for_the_engine() -> None:
    files = sorted((ROOT / "config" / "runtimes").rglob("*.yaml"))
    containers = [(file.name, found) for file in files for found in probed(list(yaml.safe_load_all(file.read_text())))]
    assert {name for name, _ in containers} >= {"kimi-k2-pd-rt.yaml", "kimi-k2-tiny-pd-cpu-rt.yaml"}
    for name, container in containers:
        assert health_port({"containers": [container]}) == port_of(container), name


@pytest.mark.parametrize("stamp", ["yesterday", "0000-12-31T00:01:00Z", "0001-01-01T00:00:00+23:59", 7, None])
def test_invalid_pod_time_does_not_hide_other_pods(stamp: Any) -> None:
    body = pods(leader(conditions=[{"type": "Ready", "status": "True", "lastTransitionTime": stamp}]), leader(group=4))
    first, _ = parse_pods(body, STEMS)
    assert first.ready_since == 0.0


@pytest.mark.parametrize("port", ["²", "٣", "9" * 5000, "99999", "-1", "0", "", "8998 "])
def test_invalid_bootstrap_port_does_not_hide_other_pods(port: str) -> None:
    odd = leader(metadata={"annotations": {"sglang.ai/bootstrap-port": port}})
    odd["metadata"]["labels"] = leader()["metadata"]["labels"]
    assert [pod.bootstrap_port for pod in parse_pods(pods(leader(group=4), odd), STEMS)][1] is None
