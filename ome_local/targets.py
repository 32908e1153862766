"""Write the targets of a cluster's Prometheus: a small process that lists pods as long as the cluster is running.

The process is necessary because Debian's Prometheus cannot discover targets with the API server. Simulated pods answer no
requests, so only pods of real nodes are targets, at their own addresses. The process uses only the standard library, so that
it needs little memory.
"""

import argparse
import json
import sys
import time
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from ome_local.kubeapi import ApiError, ApiUnreachable, KubeApi
from ome_local.kubeconfig import write_atomically
from ome_local.layout import Layout

NAME = "prometheus-targets"
"""Name of the process."""
REAL = "type!=kwok"
"""Label selector of nodes that are not simulated."""
_LEADERS = "ome.io/managed-by=ome-operator,component in (engine,decoder),leaderworkerset.sigs.k8s.io/worker-index=0"
OPERATOR = "operator"
PODS: Mapping[str, tuple[str, str]] = {
    OPERATOR: ("app.kubernetes.io/name=ome-operator", "metrics"),
    "engines": (_LEADERS, "http"),
    "routers": ("ome.io/managed-by=ome-operator,component=router", "metrics"),
}
"""Maps the name of a job to the label selector of its pods and the name of the port, as in
charts/ome-resources/templates/metrics.yaml."""
_LOOK_EVERY_S = 2.0
Body = Mapping[str, Any]
Target = dict[str, Any]


def folder(at: Layout) -> Path:
    """Return the folder of target files: operator*.json and pods*.json. Tests may add files at any time for their own
    servers.
    """
    return at.prometheus / "targets"


def find_targets(api: KubeApi) -> list[Target]:
    """Return the targets for all running pods on real nodes."""
    names = {node["metadata"]["name"] for node in _listed(api, "nodes", REAL)}
    if not names:
        return []
    running = f"&fieldSelector={quote('status.phase=Running')}"
    return [
        target
        for job, (selector, port) in PODS.items()
        for target in of_pods(_listed(api, "pods", selector, running), names, job, port)
    ]


def _listed(api: KubeApi, plural: str, selector: str, more: str = "") -> list[Body]:
    items: list[Body] = api.get(f"/api/v1/{plural}?resourceVersion=0&labelSelector={quote(selector)}{more}")["items"]
    return items


def of_pods(pods: Collection[Body], nodes: Collection[str], job: str, port: str) -> Iterator[Target]:
    """Yield a target for each port named `port` of the pods that run on the given nodes. The targets have the labels that
    a PodMonitor sets.
    """
    for pod in pods:
        address = pod["status"].get("podIP")
        if not address or pod["spec"].get("nodeName") not in nodes:
            continue
        labels = {"job": job, "namespace": pod["metadata"]["namespace"], "pod": pod["metadata"]["name"]}
        for container in pod["spec"]["containers"]:
            for each in container.get("ports", ()):
                if each.get("name") == port:
                    where = f"[{address}]" if ":" in address else address
                    told = {**labels, "container": container["name"]}
                    yield {"targets": [f"{where}:{each['containerPort']}"], "labels": told}


def run(at: Layout, kubeconfig: Path) -> None:
    """Write the target files when they change, until the cluster's directory is removed. While the API server does not
    respond, the last files stay.
    """
    api: KubeApi | None = None
    while at.spec.exists():
        try:
            api = api or KubeApi.of(kubeconfig)
            every = find_targets(api)
            for name, is_operator in ((OPERATOR, True), ("pods", False)):
                mine = [each for each in every if (each["labels"]["job"] == OPERATOR) is is_operator]
                write(folder(at) / f"{name}.json", mine)
        except (ApiError, ApiUnreachable, OSError, ValueError) as error:
            print(f"{error}; trying again", file=sys.stderr, flush=True)
        time.sleep(_LOOK_EVERY_S)


def write(file: Path, targets: list[Target]) -> None:
    """Write the targets to the file, unless the file already has this content."""
    text = json.dumps(targets, indent=1) + "\n"
    if not file.exists() or file.read_text() != text:
        write_atomically(file, text)


def main() -> None:
    """Run the target writer as a process."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dir", type=Path, required=True)
    parser.add_argument("--kubeconfig", type=Path, required=True)
    words = parser.parse_args()
    run(Layout(words.dir), words.kubeconfig)


if __name__ == "__main__":
    main()
