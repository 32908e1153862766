"""Fixtures: the operator as helm installs it, on the real node, with the images and the tiny model that the services
need.
"""

import json
import os
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from ome_local import tinymodel
from ome_local.cluster import Cluster
from ome_local.demo import operator
from ome_local.images import build
from ome_local.images.build import REFERENCES
from tests.node.conftest import Steps
from tests.support import hasty_operator
from tests.support.rig import ROOT, Rig

MODEL, RUNTIME = "config/models/ome/Kimi-K2-Tiny.yaml", "config/runtimes/srt/kimi-k2-tiny-pd-cpu-rt.yaml"
SINGLE, GROUPS = "config/samples/isvc/ome/kimi-k2-tiny-pd.yaml", "config/samples/isvc/ome/kimi-k2-tiny-pd-tp2.yaml"
HOLDS = "models.ome.io/clusterbasemodel.kimi-k2-tiny=Ready"
READY_WITHIN_S = 300.0
FEW = 5
"""Number of attempts, because a model with random weights may generate no text, or only white space."""
DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))
"""Opens URLs directly, without a proxy for which this machine may be configured."""

ON_OUR_NODE = pytest.mark.usefixtures("ours")
"""Mark for tests that use directories and processes of this machine. They are skipped on kind."""

MINUTES = pytest.mark.skipif("OME_E2E" not in os.environ, reason="takes minutes: `make e2e` runs it")


def pytest_itemcollected(item: pytest.Item) -> None:
    """Skip the tests without OME_E2E, because they need images of several gigabytes and run real engines."""
    item.add_marker(MINUTES)


@pytest.fixture(scope="package")
def serving(real: Cluster, steps: Steps) -> Rig:
    """Load the images, install the operator inside the cluster, and create the tiny model and its runtime."""
    with steps.measure("images, built or from the cache"):
        archives = build.build()
    for name, archive in archives.items():
        with steps.measure(f"image {name} into the node", megabytes=archive.stat().st_size / 1e6):
            real.load_image(archive)
    tinymodel.put(real.models / tinymodel.NAME)
    real.kubectl("label", "node", *real.real_nodes, HOLDS)
    with steps.measure("helm install, until the operator runs"):
        operator.install(real, inside=True)
    for file in (MODEL, RUNTIME):
        real.kubectl("apply", "-f", str(ROOT / file))
    return Rig(real)


@pytest.fixture(scope="package")
def tiny(serving: Rig, steps: Steps) -> Iterator[str]:
    """Yield the URL of a service with one prefill group, one decode group and one router."""
    yield come_up(serving, SINGLE, "kimi-k2-tiny", steps, "1 prefill + 1 decode + router, apply to Ready")
    remove(serving, "kimi-k2-tiny")


def come_up(rig: Rig, sample: str, service: str, steps: Steps, what: str) -> str:
    """Apply a sample whose namespace has the name of the service, wait until the service is Ready, and return its URL on
    this machine.
    """
    with steps.measure(what):
        rig.cluster.kubectl("apply", "-f", str(ROOT / sample))
        rig.ready(service, service, READY_WITHIN_S)
    url = address(rig, service, service)
    rig.wait("kube-proxy knows the endpoints", lambda: reached(url), 30)
    return url


def reached(url: str) -> bool:
    """Return whether the node routes requests for the Service to an endpoint. The node learns of endpoints only a moment
    after the router is ready.
    """
    try:
        with DIRECT.open(f"{url}/readiness", timeout=5):
            return True
    except OSError:
        return False


def remove(rig: Rig, service: str) -> None:
    """Delete the service and wait until it has no pod left."""
    rig.delete("InferenceService", service, service)
    rig.wait("no pods", lambda: not rig.all("Pod", service), 120)


def address(rig: Rig, namespace: str, service: str) -> str:
    """Return the URL of a Service by its cluster IP. This machine reaches the cluster IP, because the machine is a node of
    the cluster or has routes to it.
    """
    found = rig.get("Service", namespace, service)
    assert found is not None
    return f"http://{found['spec']['clusterIP']}"


def post(url: str, body: dict[str, Any], **headers: str) -> dict[str, Any]:
    """Send a JSON request, and return the JSON of the answer."""
    sent = {"Content-Type": "application/json", **{name.replace("_", "-"): value for name, value in headers.items()}}
    request = urllib.request.Request(url, json.dumps(body).encode(), sent)
    with DIRECT.open(request, timeout=60) as reply:
        answer: dict[str, Any] = json.loads(reply.read())
        return answer


def tokens(url: str, text: str, count: int = 16) -> list[int]:
    """Return the token IDs that the model generates at temperature 0."""
    answer = post(f"{url}/generate", {"text": text, "sampling_params": {"temperature": 0, "max_new_tokens": count}})
    found: list[int] = answer["output_ids"]
    return found


@pytest.fixture
def hasty(serving: Rig) -> Iterator[Rig]:
    """Replace the operator inside the cluster by one on this machine that removes groups sooner, and yield the
    cluster.
    """
    serving.cluster.kubectl("scale", "-n", "ome", "deployment/ome-operator", "--replicas=0")
    serving.wait("no operator inside", lambda: not serving.all("Pod", "ome"), 60)
    config = serving.cluster.keep_token("ome", "ome-operator")
    words = (f"--sidecar-image={REFERENCES['operator']}", f"--tools-image={REFERENCES['agent']}", "--router-watch=5")
    serving.start("operator", *words, program=hasty_operator.__name__, kubeconfig=config)
    serving.wait_for_leader()
    yield serving
    serving.stop()
    serving.cluster.kubectl("scale", "-n", "ome", "deployment/ome-operator", "--replicas=1")
