"""The operator of a local cluster: a process on this machine, or the chart's Deployment on the cluster's real node.

In both cases the operator has exactly the permissions of the chart's ServiceAccount.
"""

import json
import time
from collections.abc import Mapping
from typing import Any

from ome_local import ports
from ome_local.cluster import Cluster
from ome_local.images.build import REFERENCES
from ome_local.processes import PYTHON, end_of_log
from ome_local.progress import step
from ome_local.realnode.spec import PLACED
from ome_operator.errors import UserError
from ome_operator.util.checkout import shipped_folder

NAME = "operator"
NAMESPACE = "ome"
ACCOUNT = "ome-operator"
_READY_WITHIN_S = 60.0


def install(cluster: Cluster, inside: bool = False) -> None:
    """Install the two charts with the CRDs, the ServiceAccount and its permissions. If `inside` is true, the operator's
    Deployment is installed too. The function can be repeated.

    The Deployment needs a real node with the operator's image. Its namespace admits only pods that satisfy the Pod Security
    Standard `restricted`.
    """
    charts = shipped_folder("charts")
    cluster.apply(_namespace())
    for release, chart, more in (
        ("ome-crd", "ome-crd", []),
        ("ome", "ome-resources", _deployed() if inside else ["--set", "operator.external=true"]),
    ):
        with step(f"helm upgrade --install {release} charts/{chart}", quiet_below=0.0):
            cluster.helm("upgrade", "--install", release, str(charts / chart), "-n", NAMESPACE, *more)
    cluster.await_crds()


def _namespace() -> dict[str, Any]:
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": labels}}


def _deployed() -> list[str]:
    """Return the chart values of a Deployment on the real node. It uses the image that `ome local images operator` has
    built.
    """
    repository, _, tag = REFERENCES["operator"].rpartition(":")
    values: dict[str, Mapping[str, Any]] = {
        "image": {"repository": repository, "tag": tag},
        "operator": PLACED,
        "benchmark": {"image": REFERENCES["engine-cpu"], "toolsImage": REFERENCES["agent"]},
    }
    sets = [f"{part}.{name}={json.dumps(value)}" for part, more in values.items() for name, value in more.items()]
    return [word for item in sets for word in ("--set-json", item)] + ["--wait", "--timeout=120s"]


def start(cluster: Cluster, *words: str) -> None:
    """Start the operator with the arguments `words` unless it is running, and wait until it is ready."""
    config = cluster.keep_token(NAMESPACE, ACCOUNT)
    if cluster.process(NAME) is None:
        mine = cluster.kept.ports
        cluster.spawn(
            NAME,
            [
                *(PYTHON, "-m", "ome_operator", "operator", f"--kubeconfig={config}", "--address=127.0.0.1"),
                *(f"--health-port={mine['operator']}", f"--metrics-port={mine['operator-metrics']}"),
                # a fixed name for every start, so that the Lease of a killed operator can be taken over at once
                *(f"--identity=ome-local-{cluster.name}", *words),
            ],
        )
    until = time.monotonic() + _READY_WITHIN_S
    while not is_ready(cluster):
        if cluster.process(NAME) is None:
            raise UserError(f"The operator ended. {end_of_log(cluster.at, NAME)}")
        if time.monotonic() > until:
            raise UserError(f"The operator is not ready after {_READY_WITHIN_S:.0f} s. {end_of_log(cluster.at, NAME)}")
        time.sleep(0.05)


def is_ready(cluster: Cluster) -> bool:
    """Return whether the operator's /readyz answers 200."""
    return ports.answers_with_200("127.0.0.1", cluster.kept.ports["operator"], "/readyz")
