"""Tests of the output of `ome diff` about an edit, given the responses of a cluster."""

import sys
from typing import Any

import pytest

from ome_operator.api import Runtime
from ome_operator.cli.live.preview import preview
from ome_operator.core.observed.objects import Observed
from ome_operator.core.reconcile.sync import sync
from ome_operator.kube.errors import Forbidden
from tests.support import parts, yamls
from tests.support.fake_api import Call, FakeApi
from tests.support.simulator import START
from tests.unit.core.rollout import judged

MODEL, RUNTIME = yamls.model("tiny", "hf://test/tiny"), yamls.runtime("rt", size=2, gpus=8)
HOLDS = {"models.ome.io/clusterbasemodel.tiny": "Ready", "gpu": "H100"}
NODES = [
    {
        "metadata": {"name": f"n{at}", "uid": f"n{at}", "resourceVersion": "1", "labels": HOLDS},
        "status": {"conditions": [{"type": "Ready", "status": "True"}], "allocatable": {"nvidia.com/gpu": "8", "pods": "9"}},
    }
    for at in range(4)
]


def service(**engine: Any) -> dict[str, Any]:
    """Return a service as a user wrote it."""
    metadata = {"name": "svc", "namespace": "team"}
    spec = {"model": {"name": "tiny"}, "runtime": {"name": "rt"}, "engine": engine}
    return {"apiVersion": "ome.io/v1beta1", "kind": "InferenceService", "metadata": metadata, "spec": spec}


READY = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}


def placed(workloads: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return one pod of each StatefulSet. Every pod is on a node of its own."""
    made = []
    for at, body in enumerate(workloads):
        template, name = body["spec"]["template"], f"{body['metadata']['name']}-0"
        owner = {"kind": "StatefulSet", "name": body["metadata"]["name"], "uid": body["metadata"]["uid"], "controller": True}
        rank = str(body["spec"].get("ordinals", {}).get("start", 0))
        labels = {**template["metadata"]["labels"], "apps.kubernetes.io/pod-index": rank}
        known = {"namespace": "team", "name": name, "uid": name, "resourceVersion": "7", "labels": labels}
        known["ownerReferences"] = [owner]
        made.append({"metadata": known, "spec": {**template["spec"], "nodeName": f"n{at}"}, "status": READY})
    return made


def live(nodes: Any, strangers: Any = (), quotas: Any = (), **spec: Any) -> FakeApi:
    """Return a cluster in which the service exists, and in which pods of other services are on some nodes."""
    stored = service()
    stored["spec"] |= spec
    stored["metadata"] |= {"uid": parts.UID, "resourceVersion": "5", "generation": 1}
    plan = sync(*parts.apply_bodies([stored, MODEL, RUNTIME]), Observed(), START)
    made = [item.manifest for item in (*plan.first, *plan.apply)]
    there: dict[str, list[Any]] = {
        "InferenceService": [stored],
        "ClusterBaseModel": [MODEL],
        "ClusterServingRuntime": [RUNTIME],
    }
    for number, body in enumerate(made):
        known = {**body["metadata"], "uid": f"uid-{number}", "resourceVersion": "6"}
        there.setdefault(body["kind"], []).append({**body, "metadata": known})

    there["Pod"] = placed(there["StatefulSet"])

    def listed(call: Call) -> Any:
        if call.selector.startswith("spec.nodeName="):
            if isinstance(strangers, Exception):
                return strangers
            found = [pod for pod in there["Pod"] if pod["spec"]["nodeName"] == call.selector.partition("=")[2]]
            return found + [{"spec": BOX}] * (call.selector.partition("=")[2] in strangers)
        if call.kind == "ResourceQuota":
            return quotas
        return nodes if call.kind == "Node" else there.get(call.kind, [])

    return FakeApi({"list_objects": listed})


BOX = {"containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": "8"}}}]}
SENTENCE = (
    "does not fit on the nodes, and the serving revision stays: engine needs 2 nodes with gpu=H300: no node has this label"
)


async def said(nodes: Any, strangers: Any = (), **engine: Any) -> str:
    """Return the lines of the preview about the service."""
    found = await preview(live(nodes, strangers), [service(**engine)])
    assert found.problems == ()
    (forecast,) = found.services
    return forecast.sentence


async def test_diff_reports_missing_nodes_before_an_edit() -> None:
    assert SENTENCE in await said(NODES, nodeSelector={"gpu": "H300"})
    assert "does not fit" not in await said(NODES, nodeSelector={"gpu": "H100"})


@pytest.mark.parametrize("nodes", [[], Forbidden("nodes is forbidden", 403)])
async def test_diff_without_node_permission_reports_nothing_about_nodes(nodes: Any) -> None:
    assert "does not fit" not in await said(nodes, nodeSelector={"gpu": "H300"})


async def test_diff_reports_nodes_held_by_other_services() -> None:
    """`ome diff` reports before an edit that other services hold the nodes that the edit needs. Nodes are read with the
    user's own rights. A user without the right to read the pods on nodes gets no lines about nodes.
    """
    others = [{**node, "metadata": {**node["metadata"], "labels": {**HOLDS, "gpu": "H300"}}} for node in NODES[2:]]
    nodes, asked = [*NODES[:2], *others], {"nodeSelector": {"gpu": "H300"}}
    waits = "waits, and the serving revision stays: engine needs 2 nodes with 8 free GPUs: 1 is free, 1 is held by others"
    assert waits in await said(nodes, ["n3"], **asked)
    for strangers in ([], Forbidden("no")):
        assert "restart" in (told := await said(nodes, strangers, **asked)) and "waits" not in told


FREE = (
    "nodes have free capacity: with spec.rollout.blueGreen the old pods serve until the new pods are ready, and nothing is "
    "interrupted"
)


async def edit(api: FakeApi, **spec: Any) -> str:
    """Return the lines about an edit of the engine's environment."""
    edited = service(runner={"env": [{"name": "A", "value": "b"}]})
    edited["spec"] |= spec
    found = await preview(api, [edited])
    assert found.problems == ()
    (forecast,) = found.services
    return forecast.sentence


async def test_diff_of_an_interrupting_edit_names_an_uninterrupted_strategy() -> None:
    """For an edit that interrupts the service, `ome diff` names the strategy that would not. The service has two of the four
    nodes, and the other two are free, so a second copy fits.
    """
    told = await edit(live(NODES))
    assert "restarts, so the service answers no requests meanwhile" in told
    assert told.endswith(f". 2 {FREE}")
    recreate = {"rollout": {"recreate": {}}}
    assert (await edit(live(NODES, **recreate), **recreate)).endswith(f". 2 {FREE}")


QUOTA = {"metadata": {"name": "gpus"}, "status": {"hard": {"requests.nvidia.com/gpu": "24"}}}


@pytest.mark.parametrize(
    "api",
    [
        live(NODES[:3]),
        live(NODES, ["n3"]),
        live(NODES, Forbidden("no")),
        live([]),
        live(NODES, quotas=[{**QUOTA, "status": {**QUOTA["status"], "used": {"requests.nvidia.com/gpu": "16"}}}]),
        live(NODES, quotas=Forbidden("no")),
    ],
    ids=["too-few", "held-by-others", "pods-unread", "nodes-unread", "quota", "quotas-unread"],
)
async def test_diff_names_no_strategy_without_capacity_for_a_second_copy(api: FakeApi) -> None:
    told = await edit(api)
    assert "answers no requests meanwhile" in told and "blueGreen" not in told


@pytest.mark.parametrize("rollout", [{"blueGreen": {}}, {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}])
async def test_diff_names_no_strategy_if_nothing_is_interrupted(rollout: dict[str, Any]) -> None:
    told = await edit(live(NODES, rollout=rollout), rollout=rollout)
    assert "restart" in told and FREE not in told


async def test_diff_names_no_strategy_for_queued_pods() -> None:
    labels = {"labels": {"kueue.x-k8s.io/queue-name": "q"}}
    told = await edit(live(NODES, engine=labels), engine={**labels, "runner": {"env": [{"name": "A", "value": "b"}]}})
    assert "answers no requests meanwhile" in told and FREE not in told


REFUSED = Forbidden('pods "svc-engine-0" is forbidden: violates PodSecurity "restricted:latest": hostPath volumes')
BARE = [{**node, "metadata": {**node["metadata"], "labels": {"gpu": "H100"}}} for node in NODES]
FULL = [{**QUOTA, "spec": QUOTA["status"], "status": {"hard": {"requests.nvidia.com/gpu": "8"}}}]


def empty(nodes: Any, strangers: Any = (), quotas: Any = (), pods: Any = None) -> FakeApi:
    """Return a cluster in which the service does not exist yet. `pods` is the answer to the creation of a pod."""
    there = {"ClusterBaseModel": [MODEL], "ClusterServingRuntime": [RUNTIME], "Node": nodes, "ResourceQuota": quotas}

    def asked(call: Call) -> Any:
        if call.selector.startswith("spec.nodeName="):
            if isinstance(strangers, Exception):
                return strangers
            return [{"spec": BOX}] * (call.selector.partition("=")[2] in strangers)
        return there.get(call.kind, [])

    return FakeApi({"list_objects": asked, **({"create Pod": pods} if pods is not None else {})})


@pytest.mark.parametrize(
    ("api", "engine", "why"),
    [
        (empty(BARE), {}, "model tiny on 0 nodes, 2 needed: pods wait until more nodes hold it"),
        (empty(NODES), {"minReplicas": 40}, "; engine needs 80 nodes: there are 4 nodes"),
        (empty(NODES), {"nodeSelector": {"gpu": "H300"}}, "engine needs 2 nodes with gpu=H300: no node has this label"),
        (empty(NODES, ["n1", "n2", "n3"]), {}, "engine needs 2 nodes with 8 free GPUs: 1 is free, 3 are held by others"),
        (
            empty(NODES, quotas=FULL),
            {},
            "ResourceQuota gpus has too little left: the new revision needs 16 requests.nvidia.com/gpu, but only 8 would ",
        ),
        (empty(NODES, pods=REFUSED), {}, 'violates PodSecurity "restricted:latest"'),
    ],
    ids=["weights", "too-many", "selector", "held-by-others", "quota", "pod-security"],
)
async def test_diff_reports_what_a_new_service_waits_for(api: FakeApi, engine: dict[str, Any], why: str) -> None:
    found = await preview(api, [service(**engine)])
    before, but, after = found.services[0].sentence.partition(". But ")
    assert before.startswith("new: revision ") and but and why in after


@pytest.mark.parametrize(
    "api",
    [
        empty(NODES),
        empty([]),
        empty(Forbidden("nodes is forbidden", 403)),
        empty(NODES, Forbidden("no"), Forbidden("no"), Forbidden('User "a" cannot create resource "pods" in API group ""')),
    ],
    ids=["nothing-lacks", "no-nodes", "nodes-unread", "without-rights"],
)
async def test_diff_of_a_startable_new_service_reports_only_added_objects(api: FakeApi) -> None:
    (forecast,) = (await preview(api, [service()])).services
    assert forecast.sentence.endswith("6 objects added")
    assert all(call.dry_run for call in api.calls if call.verb == "create")


async def test_diff_does_not_query_a_namespace_from_the_same_files() -> None:
    (forecast,) = (await preview(empty(NODES, quotas=FULL, pods=REFUSED), [service()], ["team"])).services
    assert forecast.sentence.endswith("6 objects added")


async def test_diff_reports_missing_nodes_for_added_groups() -> None:
    assert (await said(NODES, minReplicas=3)).endswith("engine needs 6 nodes: there are 4 nodes")
    assert (await said(NODES, ["n3"], minReplicas=2)).endswith(
        "engine needs 4 nodes with 8 free GPUs: 3 are free, 1 is held by others"
    )
    assert "But" not in await said(NODES, minReplicas=2)


def held(**engine: Any) -> FakeApi:
    """Return a cluster in which revision A has groups, and in which an edit made revision B, which has none. `engine` is the
    engine of the edit.
    """
    api = live(NODES)
    answers, wanted = api.answers["list_objects"], live(NODES, engine=engine)

    def listed(call: Call) -> Any:
        found = answers(call)
        if call.kind == "InferenceService":
            return wanted.answers["list_objects"](call)
        if call.kind == "ControllerRevision":
            (second,) = wanted.answers["list_objects"](call)
            return [*found, {**second, "revision": 2, "metadata": {**second["metadata"], "uid": "second"}}]
        return found

    return FakeApi({"list_objects": listed})


HELD = {"nodeSelector": {"gpu": "H300"}}


async def test_diff_of_a_return_to_the_running_revision_restarts_nothing() -> None:
    """`ome diff` compares an edit with the revision that has groups. It does not compare it with the revision of an edit
    that was never rolled out.
    """
    (found,) = (await preview(held(**HELD), [service()])).services
    assert found.before == found.after and not found.restarts and not found.changes
    assert found.sentence.startswith(
        f"revision {found.after} is running already, so no GPU pod restarts; the rollout of revision "
    )
    assert found.sentence.endswith(", which has not begun, is dropped")


async def test_diff_compares_with_the_running_revision() -> None:
    (back,) = (await preview(held(**HELD), [service()])).services
    (found,) = (await preview(held(**HELD), [service(nodeSelector={"gpu": "H100"})])).services
    assert found.before == back.after and found.restarts and "H300 →" not in found.sentence
    assert f"revision {found.before} → {found.after}: engine (1 group" in found.sentence


def sglang(*args: str) -> dict[str, Any]:
    """Return the runtime with an engine whose version is known exactly, and with these arguments."""
    (found,) = (item.dump() for item in judged.deps(*args).runtimes.values() if isinstance(item, Runtime))
    return {**RUNTIME, "spec": {**RUNTIME["spec"], "engineConfig": found["spec"]["engineConfig"]}}


async def test_diff_of_a_refused_edit_restarts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """`ome diff` validates the arguments of an edit as the operator does. It reports that nothing restarts if the operator
    would not roll the edit out.
    """
    monkeypatch.setattr(sys.modules[__name__], "RUNTIME", sglang())
    (found,) = (await preview(live(NODES), [sglang("--tp-sized=2")])).services
    assert found.before == found.after and not found.restarts and "answers no requests meanwhile" not in found.sentence
    start = f"the operator would refuse this edit, so nothing is rolled out and revision {found.after} stays: "
    assert found.sentence.startswith(start) and "--tp-sized" in found.sentence and "blueGreen" not in found.sentence
    (accepted,) = (await preview(live(NODES), [sglang(judged.GOOD)])).services
    assert accepted.restarts and "refuse" not in accepted.sentence
