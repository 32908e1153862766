"""The operator of a local cluster: a process beside it, or the chart's Deployment on its real node.

Both have the rights of the chart's ServiceAccount and no others.
"""

import json
import time
from collections.abc import Mapping
from typing import Any

from ome_local import ports
from ome_local.cluster import Cluster
from ome_local.images.build import REFERENCES
from ome_local.processes import PYTHON, last_words
from ome_local.progress import step
from ome_local.realnode.spec import PLACED
from ome_operator.errors import UserError
from ome_operator.util.checkout import shipped

NAME = "operator"
NAMESPACE = "ome"
ACCOUNT = "ome-operator"
_READY_WITHIN_S = 60.0


def install(cluster: Cluster, inside: bool = False) -> None:
    """The two charts: kinds, ServiceAccount, rights; with the Deployment when it is to run `inside`. Safe to repeat.

    The Deployment needs a real node that has the operator's image. Its namespace takes only `restricted` pods.
    """
    charts = shipped("charts")
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
    """Values of a Deployment that runs on the real node, from the image that `ome local images operator` made."""
    repository, _, tag = REFERENCES["operator"].rpartition(":")
    values: dict[str, Mapping[str, Any]] = {
        "image": {"repository": repository, "tag": tag},
        "operator": PLACED,
        "benchmark": {"image": REFERENCES["engine-cpu"], "toolsImage": REFERENCES["agent"]},
    }
    sets = [f"{part}.{name}={json.dumps(value)}" for part, more in values.items() for name, value in more.items()]
    return [word for one in sets for word in ("--set-json", one)] + ["--wait", "--timeout=120s"]


def start(cluster: Cluster, *words: str) -> None:
    """Run it unless it runs, and wait until it says that it is ready."""
    config = cluster.keep_token(NAMESPACE, ACCOUNT)
    if cluster.process(NAME) is None:
        mine = cluster.kept.ports
        cluster.spawn(
            NAME,
            [
                *(PYTHON, "-m", "ome_operator", "operator", f"--kubeconfig={config}", "--address=127.0.0.1"),
                *(f"--health-port={mine['operator']}", f"--metrics-port={mine['operator-metrics']}"),
                # One name for every start: the Lease of one that was killed is its own.
                *(f"--identity=ome-local-{cluster.name}", *words),
            ],
        )
    until = time.monotonic() + _READY_WITHIN_S
    while not ready(cluster):
        if cluster.process(NAME) is None:
            raise UserError(f"The operator ended. {_log(cluster)}")
        if time.monotonic() > until:
            raise UserError(f"The operator is not ready after {_READY_WITHIN_S:.0f} s. {_log(cluster)}")
        time.sleep(0.05)


def ready(cluster: Cluster) -> bool:
    """True when /readyz answers 200."""
    return ports.answers("127.0.0.1", cluster.kept.ports["operator"], "/readyz")


def _log(cluster: Cluster) -> str:
    return f"Its log {cluster.log(NAME)} ends with:\n{last_words(cluster.at, NAME)}"
