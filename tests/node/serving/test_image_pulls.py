"""Measures what a rollout gains if the node pulls the new image before the old group ends: the seconds without a ready
group, with and without `rollout.imagePulls`, alternately. Each image is new to the node and comes from a registry that takes
`PULL_S` seconds to send it; the engine is a web server that starts at once.
"""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import pytest

from ome_local.realnode.spec import PLACED
from tests.conftest import Tables
from tests.node.serving.conftest import ON_OUR_NODE, READY_WITHIN_S
from tests.node.test_pods import SERVE
from tests.support import slow_registry, yamls
from tests.support.rig import ROOT, Manifest, Rig
from tests.support.slow_registry import SlowRegistry

pytestmark = [ON_OUR_NODE, pytest.mark.timeout(1500, func_only=True)]
SPACE = NAME = "pulls-first"
ROLLOUTS = 3
"""Number of rollouts of each kind."""
SIZE = 192 * 2**20
PULL_S = 12.0


@pytest.fixture(scope="module")
def registry(serving: Rig, busybox_archive: Path) -> Iterator[SlowRegistry]:
    """Yield the registry. Image names contain the address 127.0.0.1, and the configuration of the node's containerd
    redirects this address to the registry on this machine.
    """
    node = serving.cluster.node
    with slow_registry.running(busybox_archive, SIZE / PULL_S, (node.host,)) as made:
        for number in range(2 * ROLLOUTS + 1):
            made.add(str(number), SIZE)
        there = f"http://{node.host}:{made.port}"
        hosts = node.registries / f"127.0.0.1:{made.port}" / "hosts.toml"
        hosts.parent.mkdir(parents=True)
        hosts.write_text(f'server = "{there}"\n[host."{there}"]\ncapabilities = ["pull", "resolve"]\n')
        yield made


@pytest.fixture
def service(serving: Rig, registry: SlowRegistry) -> Iterator[Rig]:
    """Yield the cluster with a service of one engine, which runs the registry's first image."""
    serving.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SPACE}})
    serving.create(runtime(registry, 0))
    serving.create(yamls.service(SPACE, NAME, NAME, "engine", model="kimi-k2-tiny"))
    serving.ready(SPACE, NAME, READY_WITHIN_S)
    yield serving
    set_pulls(serving, 0)
    serving.delete("InferenceService", SPACE, NAME)
    serving.wait("no pods", lambda: not serving.all("Pod", SPACE), 120)
    serving.delete("ClusterServingRuntime", "", NAME)


def runtime(registry: SlowRegistry, number: int) -> Manifest:
    """Return the runtime with one of the registry's images."""
    probe = {"httpGet": {"path": "/", "port": 8080}, "periodSeconds": 1}
    box = {
        "name": "ome-container",
        "image": f"127.0.0.1:{registry.port}/engine:{number}",
        "command": ["/bin/sh", "-c", SERVE],
        "ports": [{"containerPort": 8080}],
        "readinessProbe": probe,
    }
    made = yamls.runtime(NAME, router=False)
    made["spec"]["engineConfig"] = {"runner": box, "terminationGracePeriodSeconds": 1, **PLACED}
    return made


def set_pulls(rig: Rig, number: int) -> None:
    """Set the chart's value, and wait until the operator with this value leads."""
    chart = str(ROOT / "charts/ome-resources")
    value = f"rollout.imagePulls={number}"
    rig.cluster.helm("upgrade", "ome", chart, "-n", "ome", "--reuse-values", "--set", value, "--wait", "--timeout=180s")
    selector = "app.kubernetes.io/name=ome-operator"
    rig.wait("a single operator", lambda: len(rig.all("Pod", "ome", selector)) == 1, 60)


def rolled_out(rig: Rig, registry: SlowRegistry, number: int) -> tuple[float, float, bool]:
    """Roll out an image. Return the seconds without a ready pod, the seconds until the rollout was complete, and whether
    the status has said that images are pulled.
    """
    image, began, without, told = f"127.0.0.1:{registry.port}/engine:{number}", time.monotonic(), 0.0, False
    last = began
    rig.patch("ClusterServingRuntime", "", NAME, {"spec": runtime(registry, number)["spec"]})
    while time.monotonic() - began < READY_WITHIN_S:
        pods, now = rig.all("Pod", SPACE, "component=engine"), time.monotonic()
        ready = [pod for pod in pods if "deletionTimestamp" not in pod["metadata"] and _is_ready(pod)]
        without, last = without + (0.0 if ready else now - last), now
        condition = rig.condition(SPACE, NAME, "RolledOut")
        told = told or condition.get("reason") == "PullingImages"
        if condition.get("status") == "True" and any(pod["spec"]["containers"][0]["image"] == image for pod in ready):
            return without, now - began, told
        time.sleep(0.1)
    pytest.fail(f"not rolled out: {json.dumps(rig.condition(SPACE, NAME, 'RolledOut'))}")


def _is_ready(pod: Manifest) -> bool:
    return any(one["type"] == "Ready" and one["status"] == "True" for one in pod["status"].get("conditions", ()))


def test_the_node_has_the_image_before_the_old_group_ends(service: Rig, registry: SlowRegistry, tables: Tables) -> None:
    found: dict[bool, list[tuple[float, float]]] = {False: [], True: []}
    for number in range(1, 2 * ROLLOUTS + 1):
        first = number % 2 == 0
        set_pulls(service, 4 if first else 0)
        without, seconds, told = rolled_out(service, registry, number)
        assert told is first
        found[first].append((without, seconds))
    tables["a rollout of one group onto a node without the image, in seconds"] = [
        f"{'without a ready group':<40}{'until complete':>16}",
        *(
            f"{'pulled first' if first else 'pulled when the old group has ended':<40}"
            f"{median(one[0] for one in rows):>8.1f}{median(one[1] for one in rows):>16.1f}"
            for first, rows in found.items()
        ),
    ]
    gained = median(one[0] for one in found[False]) - median(one[0] for one in found[True])
    assert gained > PULL_S / 2
