"""Fixtures: a control plane with the operator and a Prometheus that has the chart's alert rules with shortened durations."""

import itertools
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest
import yaml

from ome_local import ports, prometheus
from ome_local.cluster import Cluster
from release import alerts
from tests.support import clusters, yamls
from tests.support.prometheus import BY, Prometheus, divide_durations, poll_until
from tests.support.rig import Rig

OTHERS: Mapping[str, float] = {
    "OmeNobodyLeads": 4,  # 30 s, because a restart took 16 s on a busy machine
    "OmeServiceNotReady": 50,  # 90 s, longer than other faults keep a service from serving
    "OmeServiceIncomplete": 50,  # 90 s, longer than other faults keep a group from serving
    "OmeRolloutOld": 100,  # 144 s, longer than other faults keep a group from serving
    "OmeGangWaits": 360,
    "OmeGroupsRecycle": 20,
    "OmeGpusWasted": 60,
    "OmeDemandUnknown": 60,
    "OmeDemandUnmet": 30,
    "OmeDemandIgnored": 30,
    "OmeDemandStopped": 2880,
    "OmeDemandSurplus": 360,  # 60 s, and 2.5 s in which a Prometheus that scrapes every second has two values
    "OmeNodesUnready": 60,
    "OmeMoveWaits": 60,
    "OmeNodesAvoided": 60,
    "OmeBrakeForgotten": 2880,
    "OmeWatchSilent": 2,  # Watches of quiet kinds were silent for 130 s: without changes, there are no bookmarks either.
}
"""Alert -> divisor of the duration in its rule, for alerts whose duration cannot be divided by ten as usual. Durations of
hours need a larger divisor. A duration must also stay so long that the faults of other alerts do not fire this alert."""


class Bed:
    """The environment in which a test causes a fault: a cluster, a Prometheus that scrapes it, and the functions that clean
    up after the test.
    """

    def __init__(self, rig: Rig, asked: Prometheus, folder: Path) -> None:
        self.rig, self.asked, self.folder = rig, asked, folder
        self.tidy = ExitStack()
        """Cleanup steps for the time after a fault has ended and its alert has cleared."""
        self._number = itertools.count()

    def later(self, do: Callable[..., object], *words: object, **more: object) -> None:
        """Call `do` during the cleanup, after the alert has cleared. The function that was registered last is
        called first.
        """
        self.tidy.callback(do, *words, **more)

    def operate(self, *more: str, program: str = "ome_operator", kubeconfig: Path | None = None) -> None:
        """Replace the running operator by one with these options, and wait until it leads. `program` is its Python
        module.
        """
        self.rig.stop()
        metrics = str(self.rig.cluster.kept.ports["operator-metrics"])
        options = ("--gang-timeout", "5", *more, "--metrics-port", metrics)
        env = {"TMPDIR": str(self.folder)}  # the directory in which the flight recorder writes bugs
        self.rig.start("operator", *options, program=program, kubeconfig=kubeconfig, env=env)
        self.rig.wait_for_leader()
        self.rig.wait("Prometheus has asked it", lambda: self.asked.ask("ome_leader == 1"))

    def namespace(self) -> str:
        """Return a new namespace, which exists until the cleanup."""
        name = f"fault-{next(self._number)}"
        self.rig.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        self.later(self.rig.delete, "Namespace", "", name)
        self.later(self.rig.wait, f"{name} is empty", lambda: not self.rig.all("Pod", name), 60)
        return name


@pytest.fixture(scope="package")
def bed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    with clusters.fresh("alerts") as cluster:
        rig, folder = Rig(cluster), tmp_path_factory.mktemp("alerts")
        rig.install()
        for node in rig.all("Node", ""):
            rig.patch("Node", "", node["metadata"]["name"], {"metadata": {"labels": yamls.READY}})
        rig.create(yamls.model())
        made = Bed(rig, Prometheus(begun(cluster, folder)), folder)
        made.operate()
        yield made


def begun(cluster: Cluster, folder: Path) -> str:
    """Start another Prometheus, which uses these rules instead of the cluster's own and scrapes every second. Return its
    URL.
    """
    at, kept, rules = cluster.at, cluster.kept.with_spec(prometheus=True), folder / "rules.yaml"
    rules.write_text(yaml.safe_dump(divide_durations(alerts.rules(), BY, OTHERS)))
    prometheus.write(at, kept, rules, "1s")
    cluster.spawn("prometheus-of-tests", prometheus.command(at, kept))
    url = prometheus.url(kept)
    poll_until("Prometheus is ready", lambda: ports.answers_with_200("127.0.0.1", kept.ports[prometheus.NAME], "/-/ready"))
    return url
