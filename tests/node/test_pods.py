"""Tests that pods on the real node behave as on any other node: they start, are probed, can be reached by address and by
name, and are restarted.
"""

import json
import socket
import subprocess
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from ome_local.cluster import Cluster
from ome_local.ports import choose, listens
from ome_local.realnode.spec import LABEL, NAME, PLACED
from ome_operator.errors import UserError
from tests.node.conftest import Steps
from tests.support.busybox import REFERENCE
from tests.support.rig import PATIENCE

SERVE = "mkdir /tmp/www; echo hello > /tmp/www/index.html; echo serving; exec httpd -f -p 8080 -h /tmp/www"


def pod(name: str, script: str, *, namespace: str = "default", container: dict[str, Any] | None = None, **spec: Any) -> Any:
    """Return a pod with one busybox container for the real node."""
    one = {"name": "main", "image": REFERENCE, "command": ["/bin/sh", "-c", script], **(container or {})}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": {"app": name}},
        "spec": {"containers": [one], "terminationGracePeriodSeconds": 1, **PLACED, **spec},
    }


def wait_ready(cluster: Cluster, name: str, namespace: str = "default") -> None:
    """Wait until the kubelet reports the pod as ready."""
    cluster.kubectl("wait", "-n", namespace, "--for=condition=Ready", f"pod/{name}", f"--timeout={60 * PATIENCE}s")


def inside(cluster: Cluster, name: str, script: str) -> str:
    """Return the output of a shell script in the pod."""
    return cluster.kubectl("exec", name, "--", "/bin/sh", "-c", script)


def eventually(what: str, seen: Callable[[], bool], within_s: float = 30.0) -> None:
    """Poll until the condition is true."""
    until = time.monotonic() + within_s * PATIENCE
    while not seen():
        assert time.monotonic() < until, f"not within {within_s} s: {what}"
        time.sleep(0.1)


@pytest.fixture(scope="module")
def web(real: Cluster, steps: Steps) -> str:
    """Start a web server in a pod behind a Service, with its own hostname; the pod, the Service and the host are all
    named `web`.
    """
    probe = {"readinessProbe": {"httpGet": {"path": "/", "port": 8080}, "periodSeconds": 1}}
    headless = {"clusterIP": "None", "selector": {"app": "web"}, "ports": [{"port": 8080}]}
    plain = {"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": 8080}]}
    with steps.measure("first pod Ready"):
        real.apply(
            pod("web", SERVE, container=probe, hostname="web-0", subdomain="each"),
            {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}, "spec": plain},
            {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "each"}, "spec": headless},
        )
        wait_ready(real, "web")
    return "web"


def test_only_pods_that_select_the_real_node_run_on_it(real: Cluster, web: str) -> None:
    """A taint keeps other pods off the real node, so the pods of demos stay on simulated nodes. A pod that selects the real
    node is scheduled on it.
    """
    node = json.loads(real.kubectl("get", "node", NAME, "-o", "json"))
    assert node["metadata"]["labels"][LABEL] == "true"
    assert node["status"]["nodeInfo"]["containerRuntimeVersion"].startswith("containerd://")
    anywhere = pod("anywhere", "true")
    anywhere["spec"] = {"containers": anywhere["spec"]["containers"]}
    real.apply(anywhere)
    wait_ready(real, "anywhere")
    placed = real.kubectl("get", "pods", "anywhere", web, "-o", "jsonpath={.items[*].spec.nodeName}").split()
    assert placed[0].startswith("h200-")
    assert placed[1] == NAME


def test_logs_exec_and_port_forward(real: Cluster, web: str) -> None:
    """`kubectl logs`, `exec` and `port-forward` work for pods on the real node. They need a connection from the API server
    to the kubelet.
    """
    assert real.kubectl("logs", web) == "serving\n"
    assert inside(real, web, "cat /tmp/www/index.html") == "hello\n"
    with forwarded(real, f"pod/{web}", 8080) as address, urllib.request.urlopen(address, timeout=5) as reply:
        assert reply.read() == b"hello\n"


@contextmanager
def forwarded(cluster: Cluster, target: str, port: int, namespace: str = "default") -> Iterator[str]:
    """Yield the address on which `kubectl port-forward` listens."""
    own = choose(1)[0]
    command = [str(cluster.program("kubectl")), "port-forward", "-n", namespace, target, f"{own}:{port}"]
    process = subprocess.Popen(command, env=cluster.environment(), stdout=subprocess.DEVNULL)
    try:
        eventually("port-forward listens", lambda: listens("127.0.0.1", own))
        yield f"http://127.0.0.1:{own}/"
    finally:
        process.terminate()
        process.wait()


def test_pod_resolves_services_and_headless_pods(real: Cluster, web: str) -> None:
    """A pod resolves Services, pods behind a headless Service, and the API server; other names do not exist."""
    for name in ("web", "web.default.svc.cluster.local", "web-0.each.default.svc.cluster.local:8080", "each:8080"):
        assert inside(real, web, f"wget -q -O- http://{name}/") == "hello\n"
    version = inside(real, web, "wget -q -O- --no-check-certificate https://kubernetes.default.svc/version")
    assert json.loads(version)["gitVersion"].startswith("v1.")
    assert "NXDOMAIN" in inside(real, web, "nslookup example.com 2>&1 || true")


def test_this_machine_reaches_pods_and_services(real: Cluster, web: str) -> None:
    """The machine of the test reaches pods directly, and pods reach that machine."""
    addresses = [
        real.kubectl("get", "pod", web, "-o", "jsonpath={.status.podIP}") + ":8080",
        real.kubectl("get", "service", "web", "-o", "jsonpath={.spec.clusterIP}"),
    ]
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    for address in addresses:
        with direct.open(f"http://{address}/", timeout=5) as reply:
            assert reply.read() == b"hello\n"
    with socket.create_server((real.node.host, 0)) as server:
        greeter = threading.Thread(target=greet, args=(server,), daemon=True)
        greeter.start()
        assert inside(real, web, f"nc {real.node.host} {server.getsockname()[1]} < /dev/null") == "met\n"


def greet(server: socket.socket) -> None:
    """Accept one connection, and send a text."""
    visitor, _ = server.accept()
    with visitor:
        visitor.sendall(b"met\n")


def test_a_killed_container_is_restarted(real: Cluster) -> None:
    """A killed container is restarted in the same pod. With a shared process namespace, the pause container is process 1
    and reaps orphans.
    """
    script = "echo $$$$ > /tmp/pid; trap 'exit 3' TERM; while true; do sleep 0.1; done"  # Kubernetes turns $$ into $.
    real.apply(pod("killed", script, shareProcessNamespace=True))
    wait_ready(real, "killed")
    assert inside(real, "killed", "cat /proc/1/comm") == "pause\n"
    orphan = inside(real, "killed", "(sleep 0.1 > /dev/null & echo $!)").strip()
    gone = f"test -e /proc/{orphan} || echo gone"  # A child of the loop above is also a zombie for a moment.
    eventually("the orphan is reaped", lambda: inside(real, "killed", gone) == "gone\n")
    inside(real, "killed", "kill $(cat /tmp/pid)")
    status = "jsonpath={.status.containerStatuses[0]['restartCount','lastState.terminated.exitCode']}"
    eventually("it is restarted", lambda: real.kubectl("get", "pod", "killed", "-o", status).split() == ["1", "3"])
    wait_ready(real, "killed")


def test_liveness_probe_restarts_container_and_volumes_work(real: Cluster) -> None:
    """A failing liveness probe restarts the container; memory volumes, limits and service account tokens work."""
    looks = {"periodSeconds": 1, "failureThreshold": 1, "initialDelaySeconds": 2, "timeoutSeconds": 30}
    alive = {"exec": {"command": ["cat", "/memory/alive"]}, **looks}
    container = {
        "livenessProbe": alive,
        "volumeMounts": [{"name": "memory", "mountPath": "/memory"}],
        "resources": {"limits": {"memory": "32Mi", "cpu": "100m"}},
    }
    memory = {"name": "memory", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}}
    real.apply(pod("probed", "touch /memory/alive; exec sleep 1000", container=container, volumes=[memory]))
    wait_ready(real, "probed")
    assert "tmpfs" in inside(real, "probed", "grep /memory /proc/mounts")
    assert inside(real, "probed", "cat /var/run/secrets/kubernetes.io/serviceaccount/namespace") == "default"
    inside(real, "probed", "rm /memory/alive")
    count = "jsonpath={.status.containerStatuses[0].restartCount}"
    eventually("it is restarted", lambda: real.kubectl("get", "pod", "probed", "-o", count) == "1")


def test_non_root_pod_runs_under_restricted_pod_security(real: Cluster) -> None:
    """A pod with a non-root user runs under the strictest pod security standard."""
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    real.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "strict", "labels": labels}})
    eventually("its account", lambda: "default" in real.kubectl("get", "serviceaccounts", "-n", "strict", "-o", "name"))
    secured = {"securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}}
    user = {"runAsNonRoot": True, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"}}
    real.apply(pod("strict", "id -u; exec sleep 1000", namespace="strict", container=secured, securityContext=user))
    wait_ready(real, "strict", "strict")
    eventually("it said who it is", lambda: real.kubectl("logs", "-n", "strict", "strict") == "65532\n")


def test_missing_image_is_reported_in_the_pod_status(real: Cluster) -> None:
    """The status of the pod has the error message of the project's tool, and not the message of ctr."""
    with pytest.raises(UserError, match=r"There is no image archive /nowhere/x\.tar"):
        real.load_image(Path("/nowhere/x.tar"))
