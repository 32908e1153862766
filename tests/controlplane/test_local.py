"""Tests of `ome local` with a real cluster beside that of the session: every operation on which other tests rely."""

import json
import os
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path

import pytest

from ome_local import layout, ports, processes, prometheus, servers, stages, targets
from ome_local.cluster import Cluster
from ome_local.kind import config
from ome_local.kubeapi import ApiError, ApiUnreachable, KubeApi
from ome_local.servers import SECOND
from ome_operator.errors import UserError
from tests.support.local import asked, eventually, listens, pod, ready, statefulset, trusting
from tests.support.prometheus import Prometheus


def test_cluster_starts_restarts_api_server_and_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cluster starts, a StatefulSet becomes ready, the API server is killed and restarted, and `down` leaves no
    process and no file.
    """
    monkeypatch.setenv("OME_LOCAL_HOME", str(tmp_path / "clusters"))
    cluster = Cluster.up("life", nodes=2)
    pids = {row.name: row.pid for row in cluster.status()}
    assert all(pids.values())
    assert {row.name: row.pid for row in Cluster.up("life", nodes=2).status()} == pids, "up again changes nothing"

    cluster.apply(statefulset("a", 3))
    eventually("3 pods ready", lambda: ready(cluster, "a") == 3)
    cluster.stop("apiserver", signal.SIGKILL)
    assert not cluster.is_ready()
    cluster.start("apiserver")
    assert cluster.process("apiserver") is not None
    assert cluster.process("controller-manager") == processes.Process(
        pids["controller-manager"] or 0, processes.started_at(pids["controller-manager"] or 0) or ""
    ), "the other components keep running"
    cluster.kubectl("scale", "statefulset", "a", "--replicas=5")
    eventually("5 pods ready after the restart", lambda: ready(cluster, "a") == 5, 60)

    cluster.spawn("extra", ["sleep", "1000"])
    began = time.monotonic()
    cluster.down()
    assert time.monotonic() - began < 5
    assert processes.processes_of_cluster(cluster.at) == []
    assert list((tmp_path / "clusters").iterdir()) == []
    cluster.down()
    with pytest.raises(UserError, match="There is no cluster 'life'"):
        Cluster.open("life")


def test_new_cluster_avoids_ports_reserved_by_another(own: Cluster) -> None:
    """A new cluster also avoids the ports that another cluster has reserved, even if no process listens on them now."""
    mine = set(own.kept.ports.values())
    taken = ports.of_clusters(own.at.root.parent)
    assert not [one for _ in range(10) for one in ports.choose(1000, taken) if one in mine]


def test_two_clusters_run_side_by_side(own: Cluster, cluster: Cluster) -> None:
    """Two clusters run at the same time, and do not affect each other."""
    assert own.is_ready()
    assert cluster.is_ready()


def test_idle_simulated_nodes_send_no_writes(own: Cluster) -> None:
    """Simulated nodes send no request while nothing changes, so that the number of writes can be counted.

    This test runs before there are pods, because kwok deletes a deleted pod a second time after 5 s.
    """
    mark = own.audit_mark()
    time.sleep(3.0)
    assert [r for r in own.audit(mark) if r.is_write and r.user == "kwok"] == []


def test_nodes_can_be_added_but_not_lost(own: Cluster) -> None:
    """`up` with more nodes adds nodes; `up` with fewer nodes removes none."""
    assert Cluster.up("own", nodes=3).kept.spec.nodes == 3
    assert Cluster.up("own", nodes=1).kept.spec.nodes == 3
    names = own.kubectl("get", "nodes", "-o", "name").split()
    assert names == ["node/h200-00", "node/h200-01", "node/h200-02"]


def test_second_api_server_serves_the_same_objects(own: Cluster) -> None:
    """A second API server serves the same objects with the same identities, and can be stopped separately."""
    second = own.extra_apiserver()
    assert KubeApi.of(second).get("/api/v1/namespaces/default")["metadata"]["name"] == "default"
    own.stop(SECOND, signal.SIGKILL)
    with pytest.raises(ApiUnreachable):
        KubeApi.of(second, timeout=2.0).get("/readyz")
    assert own.is_ready()


def test_up_waits_for_an_api_server_started_by_an_interrupted_up(own: Cluster) -> None:
    """An `up` that was killed left an API server that does not serve yet; the next `up` waits for it."""
    own.stop("apiserver", signal.SIGKILL)
    eventually("its port is free", lambda: ports.is_free(own.kept.ports["apiserver"]))
    processes.spawn(own.at, "apiserver", servers.command(own.at, own.kept, "apiserver"))
    assert not own.is_ready()
    assert Cluster.up("own").is_ready()


def test_writes_fail_while_etcd_is_paused(own: Cluster) -> None:
    """While etcd is frozen, writes fail; after it continues, everything works again."""
    own.pause("etcd")
    try:
        with pytest.raises(ApiUnreachable):
            own.api(timeout=1.0).create("/api/v1/namespaces", {"metadata": {"name": "frozen"}})
    finally:
        own.resume("etcd")
    eventually("writes work again", lambda: _writes(own))


def _writes(cluster: Cluster) -> bool:
    try:
        cluster.api(timeout=2.0).create("/api/v1/namespaces", {"metadata": {"name": "thawed"}})
    except (ApiError, ApiUnreachable):
        return False
    return True


READ, WRITE = "/v3/kv/range", "/v3/kv/put"
EVERYTHING = json.dumps({"key": "AA==", "range_end": "AA=="}).encode()
PUT = json.dumps({"key": "L3g=", "value": "AA=="}).encode()


def test_other_users_of_the_machine_cannot_access_etcd(own: Cluster) -> None:
    """Write access to etcd gives administrator rights. Only a client with the API server's certificate has access, and no
    other user of the machine can read that certificate.
    """
    process = own.process("etcd")
    assert process is not None
    opened = listens(process.pid)
    assert {own.kept.ports["etcd"], own.kept.ports["etcd-peer"]} < {*opened} and len(opened) == 3, "a third for HTTP"
    for port in opened:
        place = f"127.0.0.1:{port}"
        for path in (READ, WRITE, "/members", "/version", "/metrics", "/health", "/debug/vars"):
            body = PUT if path == WRITE else EVERYTHING
            assert asked(f"http://{place}{path}", body) == "", f"{port}{path} in the clear"
            assert asked(f"https://{place}{path}", body, trusting()) == "", f"{port}{path} without a certificate"
            of_cluster = trusting(own.at.pki / "admin")
            assert asked(f"https://{place}{path}", body, of_cluster) == "", (
                f"{port}{path} with the administrator's certificate"
            )
    of_server = trusting(own.at.etcd_pki / "apiserver")
    assert any("revision" in asked(f"https://127.0.0.1:{port}{READ}", EVERYTHING, of_server) for port in opened)
    if os.geteuid() == 0:
        for file in (own.at.etcd_pki / "apiserver.key", own.at.pki / "ca.key", own.at.kubeconfig):
            assert subprocess.run(["cat", file], user=65534, capture_output=True, check=False).stdout == b""


def test_pod_labels_select_simulated_pod_behaviour(own: Cluster) -> None:
    """The labels for slow starts, pods that are never ready, crashes and slow ends each apply only to the pods that have the
    label.
    """
    own.set_stages(
        stages.ready_stage(2.0, {"life": "slow"}),
        stages.never_ready({"life": "stuck"}, reason="ImagePullBackOff", message="no such image"),
        stages.crash({"life": "short"}, exit_code=137, reason="OOMKilled", after_s=0.5),
        stages.terminate(2.0, {"life": "slow"}, name="slow-end"),
    )
    names = ("plain", "slow", "stuck", "short")
    own.apply(*(statefulset(name, life=name) for name in names))
    eventually("plain is ready", lambda: ready(own, "plain") == 1)
    assert ready(own, "slow") == 0
    eventually("slow is ready", lambda: ready(own, "slow") == 1)
    stuck = (pod(own, "stuck-0") or {})["status"]
    assert stuck["containerStatuses"][0]["state"]["waiting"] == {
        "reason": "ImagePullBackOff",
        "message": "no such image",
    }
    eventually("short crashed", lambda: _last_exit(own, "short-0") == 137)
    assert ready(own, "short") == 0

    own.kubectl("delete", "statefulset", *names, "--wait=false")
    eventually("plain is gone", lambda: pod(own, "plain-0") is None)
    assert pod(own, "slow-0") is not None, "the pod takes as long to terminate as the stage says"
    eventually("slow is gone", lambda: pod(own, "slow-0") is None)
    own.set_stages()
    own.apply(statefulset("stuck", life="stuck"))
    eventually("the defaults are back", lambda: ready(own, "stuck") == 1)
    own.kubectl("delete", "statefulset", "stuck")
    eventually("stuck is gone", lambda: pod(own, "stuck-0") is None)


def _last_exit(cluster: Cluster, name: str) -> int | None:
    statuses = (pod(cluster, name) or {}).get("status", {}).get("containerStatuses", [{}])
    code = statuses[0].get("lastState", {}).get("terminated", {}).get("exitCode")
    return None if code is None else int(code)


def test_deleted_pod_is_deleted_only_once_by_the_simulated_kubelet(own: Cluster) -> None:
    """A deleted pod is deleted only once by the simulated kubelet. A second deletion by the same name could delete the pod
    that replaced the first.
    """
    names = [f"again-{number}" for number in range(3)]

    def uids() -> set[str]:
        return {found["metadata"]["uid"] for name in names if (found := pod(own, name))}

    own.apply(statefulset("again", len(names)))
    eventually("ready", lambda: ready(own, "again") == len(names))
    mark, old = own.audit_mark(), uids()
    own.kubectl("delete", "pod", *names, "--wait=false")
    eventually("all are new", lambda: len(uids() - old) == len(names))
    eventually("all are ready", lambda: ready(own, "again") == len(names))
    own.kubectl("delete", "statefulset", "again")
    eventually("gone", lambda: not uids())
    deleted = [one for one in own.audit(mark) if (one.user, one.verb) == ("kwok", "delete") and one.name in names]
    confirmed = Counter((one.name, one.code) for one in deleted)
    assert confirmed == {(name, 200): 2 for name in names}


def test_old_token_is_replaced_automatically(own: Cluster) -> None:
    """The kubeconfig has the rights of the account and no others, and an old token is replaced automatically."""
    config = own.keep_token("default", "default")
    reader = own.environment(config)
    assert _forbidden(own, reader)
    token = own.at.tokens / "default.default.token"
    old, past = token.read_text(), time.time() - 1801
    os.utime(token, (past, past))  # The token is set to half of its lifetime.
    eventually("renewed", lambda: token.read_text() != old)
    assert _forbidden(own, reader), "the new token has the same rights"
    with pytest.raises(UserError, match=r"No token for ServiceAccount default/nobody: .*not found"):
        own.keep_token("default", "nobody")


def _forbidden(cluster: Cluster, environment: dict[str, str]) -> bool:
    """Return whether the API server recognizes the account and denies the request. An invalid token would lead to
    Unauthorized.
    """
    done = subprocess.run(
        [str(cluster.program("kubectl")), "get", "nodes"], env=environment, capture_output=True, text=True, check=False
    )
    return 'User "system:serviceaccount:default:default" cannot list resource "nodes"' in done.stderr


def test_audit_log_distinguishes_components(own: Cluster) -> None:
    """The audit log shows which component sent a request, because each has its own user. Requests after a mark can be
    counted exactly.
    """
    mark = own.audit_mark()
    own.apply(statefulset("counted", 2))
    eventually("ready", lambda: ready(own, "counted") == 2)
    own.kubectl("delete", "statefulset", "counted")
    eventually("gone", lambda: pod(own, "counted-0") is None and pod(own, "counted-1") is None)
    found = Counter((r.user, r.verb, r.resource, r.subresource) for r in own.audit(mark) if r.is_write and r.code < 300)
    assert found["admin", "create", "statefulsets", ""] == 1
    assert found["system:kube-controller-manager", "create", "pods", ""] == 2
    assert found["system:kube-scheduler", "create", "pods", "binding"] == 2
    assert found["kwok", "patch", "pods", "status"] == 2


def test_spawned_process_may_not_use_name_of_component(own: Cluster) -> None:
    """A process that is started with `spawn` must not have the name of a component, and is found by its own name."""
    with pytest.raises(UserError, match="is a component"):
        own.spawn("etcd", ["sleep", "1"])
    process = own.spawn("helper", ["sleep", "1000"])
    assert own.process("helper") == process
    assert [row.pid for row in own.status() if row.name == "helper"] == [process.pid]
    own.stop("helper", signal.SIGKILL)
    assert own.process("helper") is None


def test_cluster_directory_is_private(own: Cluster) -> None:
    """The directory of a cluster contains keys and tokens, so other users must not be able to read it."""
    assert own.at.root.stat().st_mode & 0o077 == 0
    assert own.kubeconfig.stat().st_mode & 0o077 == 0
    assert json.loads(own.kubeconfig.read_text())["clusters"][0]["cluster"]["server"] == own.server
    assert layout.known_clusters() == ["own"]


def test_kind_code_works_with_a_local_api_server(own: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The code for kind clusters works with a local API server. A stand-in for docker and kind starts this API server, and
    all of the project's own code runs unchanged.
    """
    programs, calls = tmp_path / "bin", tmp_path / "calls"
    programs.mkdir()
    script = f"""#!/bin/sh
echo "$(basename $0) $*" >> {calls}
[ "$1 $2" != "create cluster" ] || cat > {tmp_path}/config
case "$1 $2" in "create cluster") while [ "$1" != --kubeconfig ]; do shift; done; cp {own.kubeconfig} "$2";; esac
"""
    for name in ("docker", "kind"):
        (programs / name).write_text(script)
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    own.stop("kwok", signal.SIGKILL)
    name = config.name(layout.layout("kind"))
    labels = {"ome.io/real": "true"}
    own.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"{name}-control-plane", "labels": labels}})
    image = tmp_path / "image.tar"
    image.touch()
    try:
        cluster = Cluster.up("kind", nodes=4, kind=True)
        cluster.load_image(image)
        (real,) = cluster.real_nodes
        taints = json.loads(own.kubectl("get", "node", real, "-o", "json"))["spec"]["taints"]
        assert {"key": "ome.io/real", "value": "true", "effect": "PreferNoSchedule"} in taints
        (node,) = json.loads((tmp_path / "config").read_text())["nodes"]
        assert node["labels"] == labels
        assert node["extraMounts"][0]["hostPath"] == str(cluster.models)
        kinds = own.kubectl("get", "node", "h200-03", "-o", "jsonpath={.status.addresses[*].type}")
        assert kinds == "Hostname", "kind's network daemon must not route to any of these addresses"
        assert [row.name for row in cluster.status() if row.pid] == ["kwok", "tokens"]
        assert cluster.server == own.server
        assert cluster.keep_token("default", "default").exists()
        with pytest.raises(UserError, match="etcd is not a component of cluster kind"):
            cluster.start("etcd")
        cluster.down()
    finally:
        own.start("kwok")
        own.kubectl("delete", "node", "h200-03", f"{name}-control-plane", "--ignore-not-found")
    said = [line for line in calls.read_text().splitlines() if not line.startswith("docker")]
    folder = own.at.root.parent / "kind"
    assert said == [
        "kind get clusters",
        f"kind create cluster --name {name} --kubeconfig {folder}/kubeconfig.new --config - --wait 120s",
        f"kind load image-archive {image} --name {name} --nodes {name}-control-plane",
        f"kind delete cluster --name {name} --kubeconfig {folder}/kubeconfig",
    ]
    assert layout.known_clusters() == ["own"]


def test_prometheus_starts_with_alerts_and_restricted_permissions(own: Cluster) -> None:
    """Prometheus has the alerts of the chart, `status` shows it, and its account may only read pods and nodes."""
    assert own.prometheus == ""
    with_it = Cluster.up("own", prometheus=True)
    asked = Prometheus(with_it.prometheus)
    assert "OmeNobodyLeads" in asked.rules()
    assert {row.name for row in with_it.status() if row.pid} >= set(prometheus.PROCESSES)
    may = {what: allowed(own, "prometheus", what) for what in ("pods", "nodes", "secrets")}
    assert may == {"pods": True, "nodes": True, "secrets": False}
    for name in prometheus.PROCESSES:
        with_it.stop(name, signal.SIGKILL)
    again = Cluster.up("own")
    assert all(row.pid for row in again.status()), "Prometheus starts again without the option"
    told = targets.folder(own.at) / "pods.json"
    eventually("no pod of a simulated node is asked", lambda: told.exists() and json.loads(told.read_text()) == [])


def allowed(cluster: Cluster, user: str, resource: str) -> bool:
    """Return whether this user may list this resource in all namespaces."""
    group, asked = "authorization.k8s.io/v1", {"verb": "list", "resource": resource}
    review = {"apiVersion": group, "kind": "SubjectAccessReview", "spec": {"user": user, "resourceAttributes": asked}}
    answer = cluster.api().request("POST", f"/apis/{group}/subjectaccessreviews", review)
    return bool(answer["status"]["allowed"])
