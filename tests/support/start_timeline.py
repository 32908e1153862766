"""Records when each step of a start happens. It uses the clock of this machine, because the API reports only whole seconds.
The states of pods and endpoints come from watches, and the list of workers from the router.
"""

import base64
import contextlib
import json
import subprocess
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any, NamedTuple

from ome_operator.errors import UserError
from tests.support.rig import Rig, is_ready

MAIN = "ome-container"
LOOK_S = 0.1
"""Seconds between two requests for the list of a router."""
HEALTHY = ("End of disaggregation warmup", "The server is fired up")
"""Log lines that SGLang writes once it is healthy: the first with disaggregation, and the second without."""
DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class Moments(NamedTuple):
    """The moments of the start of a leader, in seconds since the epoch; NaN if one was not seen."""

    created: float
    """The pod was created. For a container that was started again: the previous one has ended."""
    container: float
    """The container runs, with its image and its volumes."""
    healthy: float
    """The engine's warm-up has ended."""
    started: float
    """The startup probe has succeeded."""
    ready: float
    sent: float
    """The registry has sent the leader to the router."""
    listed: float
    """The router lists the leader."""


NAN = float("nan")


class Timeline:
    """What was recorded about the pods, the endpoints and the routers of a namespace, in the order of time."""

    def __init__(self, rig: Rig, namespace: str) -> None:
        self._rig, self._namespace = rig, namespace
        self.pods: list[tuple[float, dict[str, Any]]] = []
        self.slices: list[tuple[float, dict[str, Any]]] = []
        self.lists: list[tuple[float, frozenset[str]]] = []
        """Addresses of the workers that any router of the namespace lists."""

    def of_leader(self, name: str, since: float) -> Moments:
        """Return the moments of the last start of the leader `name` after the time `since`."""
        seen = [(at, pod) for at, pod in self.pods if pod["metadata"]["name"] == name and at >= since]
        last = seen[-1][1]
        seen = [(at, pod) for at, pod in seen if pod["metadata"]["uid"] == last["metadata"]["uid"]]
        runs, address = _container(last).get("restartCount", 0), last["status"].get("podIP")
        container = _first(seen, lambda pod: _running(pod) and _container(pod).get("restartCount") == runs)
        ended = _first(seen, lambda pod: not _running(pod))
        own = [(at, pod) for at, pod in seen if at >= container]
        ready = _first(own, is_ready)
        healthy = self._logged(name, MAIN, HEALTHY, container - 1)
        later = [(at, each) for at, each in self.lists if at >= healthy]  # a killed engine is listed for some seconds more
        return Moments(
            ended if runs else seen[0][0],
            container,
            healthy,
            _first(own, lambda pod: bool(_container(pod).get("started"))),
            ready,
            self._sent(address, container),
            _first(later, lambda listed: address in listed),
        )

    def router_ready(self, since: float) -> float:
        """Return the first time after `since` at which a router was ready, or `since` if one was ready all the time."""
        before = [pod for at, pod in self.pods if at <= since and _component(pod) == "router"]
        if before and is_ready(before[-1]):
            return since
        return _first([(at, pod) for at, pod in self.pods if at > since and _component(pod) == "router"], is_ready)

    def endpoints_ready(self, service: str, since: float) -> float:
        """Return the first time after `since` at which a Service had a ready endpoint, or `since` if it had one then."""
        seen = [(at, each) for at, each in self.slices if _service(each) == service]
        before = [each for at, each in seen if at <= since]
        if before and _serves(before[-1]):
            return since
        return _first([(at, each) for at, each in seen if at > since], _serves)

    def _sent(self, address: str, since: float) -> float:
        routers = {pod["metadata"]["name"] for _, pod in self.pods if _component(pod) == "router"}
        found = [self._logged(name, "ome-registry", (f"added http://{address}:",), since) for name in sorted(routers)]
        return min((at for at in found if at == at), default=NAN)

    def _logged(self, pod: str, container: str, texts: tuple[str, ...], since: float) -> float:
        """Return the time of the first line after `since` in the log of a container that contains one of these texts."""
        words = ("logs", "-n", self._namespace, pod, "-c", container, "--timestamps")
        try:
            lines = self._rig.cluster.kubectl(*words).splitlines()
        except UserError:  # the pod is gone
            return NAN
        times = (_moment(line) for line in lines if any(text in line for text in texts))
        return next((at for at in times if at >= since), NAN)


@contextmanager
def recording(rig: Rig, namespace: str) -> Iterator[Timeline]:
    """Record what happens in a namespace inside the `with` block."""
    made, over = Timeline(rig, namespace), threading.Event()
    paths = {
        f"/api/v1/namespaces/{namespace}/pods": made.pods,
        f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices": made.slices,
    }
    words = [str(rig.cluster.program("kubectl")), "get", "--raw"]
    watches = {
        path: subprocess.Popen([*words, f"{path}?watch=1"], stdout=subprocess.PIPE, env=rig.cluster.environment())
        for path in paths
    }
    threads = [threading.Thread(target=_follow, args=(watches[path], into)) for path, into in paths.items()]
    threads.append(threading.Thread(target=_look, args=(made, rig, namespace, over)))
    for thread in threads:
        thread.start()
    try:
        yield made
    finally:
        over.set()
        for watch in watches.values():
            watch.terminate()
            watch.wait()
        for thread in threads:
            thread.join()


def _follow(watch: subprocess.Popen[bytes], into: list[tuple[float, dict[str, Any]]]) -> None:
    assert watch.stdout is not None
    for line in watch.stdout:
        at = time.time()
        with contextlib.suppress(ValueError):  # interrupted by the end of the recording
            into.append((at, json.loads(line)["object"]))


def _look(timeline: Timeline, rig: Rig, namespace: str, over: threading.Event) -> None:
    api, key = rig.cluster.api(), ""
    while not over.wait(LOOK_S):
        pods = {pod["metadata"]["uid"]: pod for _, pod in timeline.pods if _component(pod) == "router"}
        addresses = {pod["status"].get("podIP") for pod in pods.values()} - {None}
        listed: set[str] = set()
        for address in addresses:
            key = key or _key(api.get(f"/api/v1/namespaces/{namespace}/secrets")["items"])
            with contextlib.suppress(OSError, ValueError):  # the router starts or ends
                request = urllib.request.Request(f"http://{address}:8080/workers")
                request.add_header("Authorization", f"Bearer {key}")
                told = json.loads(DIRECT.open(request, timeout=1).read())
                listed |= {each["url"].split("/")[2].partition(":")[0] for each in told["workers"]}
        timeline.lists.append((time.time(), frozenset(listed)))


def _key(secrets: list[dict[str, Any]]) -> str:
    """Return the API key of the routers in a namespace; "" if they have none."""
    found = (each["data"]["key"] for each in secrets if each["metadata"]["name"].endswith("-router-key"))
    return base64.b64decode(next(found, "")).decode()


def _first(seen: list[tuple[float, Any]], holds: Callable[[Any], bool]) -> float:
    """Return the first time at which a condition held; NaN if it never did."""
    return next((at for at, each in seen if holds(each)), NAN)


def _container(pod: dict[str, Any]) -> dict[str, Any]:
    found = (each for each in pod["status"].get("containerStatuses", ()) if each["name"] == MAIN)
    return next(found, {})


def _running(pod: dict[str, Any]) -> bool:
    return "running" in _container(pod).get("state", {})


def _component(pod: dict[str, Any]) -> str:
    return str(pod["metadata"].get("labels", {}).get("component", ""))


def _service(endpoints: dict[str, Any]) -> str:
    return str(endpoints["metadata"].get("labels", {}).get("kubernetes.io/service-name", ""))


def _serves(endpoints: dict[str, Any]) -> bool:
    return any(each.get("conditions", {}).get("ready") for each in endpoints.get("endpoints") or ())


def _moment(line: str) -> float:
    """Return the time at which a line of `kubectl logs --timestamps` was written, in seconds since the epoch."""
    try:
        return datetime.fromisoformat(line.split(" ", 1)[0]).timestamp()
    except ValueError:
        return NAN
