"""Tests of services that `ome preflight` does not check, because their pods could not start: the command says so at once,
and creates nothing. Tests of objects that the API server refuses: the message names the service.
"""

from pathlib import Path
from typing import Any

import pytest
import yaml

from ome_operator import keys
from ome_operator.cli.live import preflight
from ome_operator.kube import errors
from tests.support.looked import Manifest, unplaced
from tests.unit.cli.test_preflight import BOX, NODES, cluster, node, ome, refused, runtime, service


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight, "PAUSE", 0)
    monkeypatch.setattr(preflight, "REMOVAL", 0.2)


def written(folder: Path, *bodies: Manifest) -> Path:
    """Return the path of a file with these objects."""
    path = folder / "service.yaml"
    path.write_text(yaml.safe_dump_all(bodies))
    return path


def large(gpus: int = 16) -> Manifest:
    """Return a runtime whose pods request this many GPUs."""
    spec = {"engineConfig": {"runner": {**BOX, "resources": {"limits": {"nvidia.com/gpu": gpus}}}, "worker": {"size": 1}}}
    return {**runtime(), "metadata": {"name": "large"}, "spec": spec}


LARGE = service(runtime={"name": "large"}, decoder=None)
CASES: dict[str, tuple[list[Manifest], list[Manifest], str]] = {
    "GPUs": (NODES, [large(), LARGE], "engine needs 2 nodes with 16 nvidia.com/gpu: no node has as much; the maximum is 8"),
    "too few": ([node("a")], [large(8), LARGE], "engine needs 2 nodes: there is 1 node"),
    "selector": (
        NODES,
        [service(engine={"nodeSelector": {"zone": "x"}})],
        "needs 2 nodes with zone=x: no node has this label",
    ),
    "cordoned": ([node("a", cordoned=True)], [service()], "that report and are not cordoned: no node does"),
    "no nodes": ([], [service()], "the cluster has no nodes"),
}


@pytest.mark.parametrize("case", CASES)
def test_pods_that_fit_no_node_are_named_at_once(case: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    nodes, bodies, why = CASES[case]
    api = cluster()
    api.catalog["Node"] = nodes
    message = refused(ome(monkeypatch, api, "-f", written(tmp_path, *bodies)))
    assert message.startswith("team/svc: ") and why in message, message
    assert api.ever == [], "nothing was created"
    if nodes:
        assert f'annotate the service with {keys.IGNORE_FIT}: "true"' in message


def test_of_a_service_of_the_cluster_one_group_has_to_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    """For a service in the cluster, the nodes need capacity for one group, because only one group is checked. Two nodes
    cannot hold the three groups of this service, but they can hold the group that is checked.
    """
    api = cluster()
    api.catalog |= {"InferenceService": [{**LARGE, "spec": {**LARGE["spec"], "engine": {"minReplicas": 3}}}]}
    api.catalog["ClusterServingRuntime"] = [large(8)]
    assert ome(monkeypatch, api, "team/svc").exit_code == 0
    api.catalog["Node"] = NODES[:1]
    api.ever.clear()
    assert "engine needs 2 nodes: there is 1 node" in refused(ome(monkeypatch, api, "team/svc")) and api.ever == []


def test_the_capacity_is_not_compared_where_nodes_are_created_or_unknown(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    on_demand = {**LARGE, "metadata": {**LARGE["metadata"], "annotations": {keys.IGNORE_FIT: "true"}}}
    api = cluster()
    assert ome(monkeypatch, api, "-f", written(tmp_path, large(), on_demand)).exit_code == 0 and len(api.ever) == 3
    unknown = cluster(list_objects_to_Node=errors.Forbidden("nodes is forbidden"))
    assert ome(monkeypatch, unknown, "-f", written(tmp_path, large(), LARGE)).exit_code == 0 and len(unknown.ever) == 3


def test_a_service_that_does_not_fit_does_not_hide_the_others(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    other = {**service(), "metadata": {"name": "other", "namespace": "team"}}
    api = cluster()
    result = ome(monkeypatch, api, "-f", written(tmp_path, large(), LARGE, other))
    message = refused(result)
    assert "team/svc: the nodes could not hold its pods even if they were empty" in message
    assert "The other services were checked" in message and result.stdout.startswith("4 ranks on 2 nodes: nothing found")


@pytest.mark.parametrize(
    ("kind", "engine"),
    [
        ("Secret", {"runner": {**BOX, "envFrom": [{"secretRef": {"name": "x"}}]}}),
        ("ConfigMap", {"volumes": [{"name": "v", "configMap": {"name": "x"}}]}),
        ("PersistentVolumeClaim", {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "x"}}]}),
    ],
)
def test_an_object_that_the_pods_need_and_that_is_missing_is_named_at_once(
    kind: str, engine: Manifest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    answer: dict[str, Any] = {f"get_metadata_to_{kind}": errors.NotFound(f"{kind} x not found")}
    api = cluster(**answer)
    message = refused(ome(monkeypatch, api, "-f", written(tmp_path, service(engine=engine))))
    assert message.startswith(f"team/svc: {kind} x does not exist in namespace team") and api.ever == []
    api.answers[f"get_metadata {kind}"] = errors.Forbidden("not permitted")
    assert ome(monkeypatch, api, "-f", written(tmp_path, service(engine=engine))).exit_code == 0


def test_what_the_operator_would_refuse_is_not_checked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    sglang = {
        "command": ["python3", "-m", "sglang.launch_server", "--model-path=/m"],
        "image": "docker.io/lmsysorg/sglang:v0.5.23",
    }
    wrong = service(engine={"runner": {**BOX, **sglang, "args": ["--tp-sise=8"]}})
    api = cluster()
    message = refused(ome(monkeypatch, api, "-f", written(tmp_path, wrong)))
    assert message.startswith("team/svc has no pods: ") and "--tp-sise" in message and api.ever == []


@pytest.mark.parametrize(
    ("kind", "answer", "message"),
    [
        (
            "Pod",
            errors.Forbidden('pods "x" is forbidden: exceeded quota: gpus'),
            "team/svc: the API server refuses an object of the check, whose pods have the fields of the service's: "
            'pods "x" is forbidden: exceeded quota: gpus',
        ),
        (
            "Pod",
            errors.Invalid('Pod "x" is invalid: spec.tolerations[0].operator'),
            "team/svc: the API server refuses an object of the check, whose pods have the fields of the service's: "
            'Pod "x" is invalid: spec.tolerations[0].operator',
        ),
        (
            "Service",
            errors.NotServed('namespaces "team" not found'),
            "team/svc: namespace team does not exist: create it, or name another namespace",
        ),
        (
            "Service",
            errors.Forbidden(f'services "x" is forbidden: unable to create new content in namespace team {preflight.ENDS}'),
            "team/svc: namespace team is being deleted: name another namespace, or create it again when it is gone",
        ),
    ],
)
def test_what_the_api_server_refuses_is_told_with_the_service(
    kind: str, answer: Exception, message: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    creation: dict[str, Any] = {f"create_to_{kind}": answer}
    assert refused(ome(monkeypatch, cluster(**creation), "-f", written(tmp_path, service()))).rstrip(".") == message


@pytest.mark.parametrize(
    ("why", "hint"),
    [
        ("0/2 nodes are available: 2 Insufficient nvidia.com/gpu.", True),
        ("0/2 nodes are available: 2 node(s) didn't match pod anti-affinity rules.", True),
        ("0/2 nodes are available: 2 node(s) had volume node affinity conflict.", False),
    ],
)
def test_nodes_are_called_in_use_only_if_other_pods_may_be_the_reason(
    why: str, hint: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(preflight, "SLACK", -10_000)
    fares = unplaced()
    fares["status"]["conditions"][0]["message"] = why
    result = ome(monkeypatch, cluster(lambda pod, looks: fares), "-f", written(tmp_path, service()), "--timeout", "10")
    assert result.exit_code == 2 and f"have no node: Unschedulable: {why}" in result.stdout
    assert ("Other pods use the nodes" in result.stdout) is hint
