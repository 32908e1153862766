"""Helpers for tests of `ome local`, of its cluster and of etcd."""

import http.client
import ssl
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ome_local.cluster import Cluster
from ome_local.kubeapi import ApiError, ApiUnreachable

PODS = "/api/v1/namespaces/default/pods"


def eventually(description: str, seen: Callable[[], bool], within_s: float = 30.0) -> None:
    """Poll until `seen` returns True. Fail after `within_s` seconds with a message that contains `description`."""
    until = time.monotonic() + within_s
    while not seen():
        assert time.monotonic() < until, f"not within {within_s} s: {description}"
        time.sleep(0.1)


def statefulset(name: str, replicas: int = 1, **labels: str) -> dict[str, Any]:
    """Return a StatefulSet whose pods have one GPU each."""
    container = {"name": "c", "image": "example.com/none:1", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "replicas": replicas,
            "podManagementPolicy": "Parallel",
            "serviceName": name,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name, **labels}},
                "spec": {"containers": [container], "terminationGracePeriodSeconds": 30},
            },
        },
    }


def ready(cluster: Cluster, name: str) -> int:
    """Return the number of ready pods of a StatefulSet; -1 if the API server does not respond."""
    try:
        found = cluster.api().get(f"/apis/apps/v1/namespaces/default/statefulsets/{name}")
    except (ApiError, ApiUnreachable):
        return -1
    return int(found["status"].get("readyReplicas", 0))


def pod(cluster: Cluster, name: str) -> dict[str, Any] | None:
    """Return the pod of this name; None if it does not exist."""
    try:
        return dict(cluster.api().get(f"{PODS}/{name}"))
    except ApiError as error:
        assert error.code == 404
        return None


def asked(url: str, body: bytes, context: ssl.SSLContext | None = None) -> str:
    """Send a POST request to etcd, and return the body of the response; "" if etcd does not answer or refuses."""
    handlers = [urllib.request.ProxyHandler({}), *([urllib.request.HTTPSHandler(context=context)] if context else [])]
    try:
        with urllib.request.build_opener(*handlers).open(urllib.request.Request(url, body), timeout=5) as answer:
            return str(answer.read().decode())
    except (OSError, http.client.HTTPException):
        return ""


def trusting(file: Path | None = None) -> ssl.SSLContext:
    """Return a TLS context that accepts any server. If `file` is given, the client presents the certificate in `<file>.crt`
    with the key in `<file>.key`; otherwise it presents none.
    """
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if file is not None:
        context.load_cert_chain(f"{file}.crt", f"{file}.key")
    return context


def listens(pid: int) -> list[int]:
    """Return the ports on which a process listens (Linux)."""
    sockets = {str(file.readlink()) for file in Path(f"/proc/{pid}/fd").iterdir() if file.is_symlink()}
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return [int(row[1].partition(":")[2], 16) for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in sockets]
