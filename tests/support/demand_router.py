"""A simulated router of a service with the class Demand, which serves /summary over HTTP, and the service behind it."""

import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from typing import Any, cast

from typer.testing import CliRunner

from ome_operator import keys
from ome_operator.cli.app import app
from ome_operator.core.demand import arrivals
from ome_operator.core.observed import from_api
from tests.support import hasty_operator, heard, yamls
from tests.support.bodies import Cluster as Bodies
from tests.support.kubelet import write_status
from tests.support.rig import Manifest, Rig

ADDRESSES = tuple(f"127.{29 + number}.{os.getpid() // 250 % 250}.{os.getpid() % 250 + 1}" for number in range(3))
"""Loopback addresses of simulated routers. They contain the number of this process, so that two runs of the tests on one
machine do not listen on the same address."""
CAPACITY = 4.0
"""Requests per second that a simulated prefill group completes while requests wait."""
PROMPT, ANSWER = 1000.0, 75.0
"""Tokens of a prompt and of an answer."""
FIRST_REQUEST, MORE_REQUESTS, MOST_REQUESTS = 0.01, 0.002, 40.0
"""Three constants of a decode group: the seconds between two tokens without requests, the seconds that each request adds to
this time, and the largest number of requests of a group.
"""
WINDOW = arrivals.WINDOW / hasty_operator.FASTER
"""Seconds over which rates in the summary are averaged, as the operator of these tests assumes."""
CALM, BURST = 0.5, 8.0
"""Two request rates per second: CALM, for which one group of each role is enough, and BURST, for which more groups are
needed.
"""
SERVICE = "svc"
GRACE = 10
"""Termination grace period of the groups, in seconds. A leader with requests is drained for at most this time."""


class Router(ThreadingHTTPServer):
    """A stand-in for the registry of a router. `page` returns its summary; without `page` it answers 500."""

    def __init__(self, address: str) -> None:
        super().__init__((address, keys.REGISTRY_PORT), _Handler)
        self.address = address
        self.page: Callable[[], str] | None = None


class _Handler(BaseHTTPRequestHandler):
    """A handler of GET /summary."""

    server: Router

    def log_message(self, *_: Any) -> None:
        """Write no log."""

    def do_GET(self) -> None:
        """Answer with the summary."""
        text = self.server.page() if self.server.page is not None else ""
        self.send_response(200 if text else 500)
        self.end_headers()
        self.wfile.write(text.encode())


@contextmanager
def listening(address: str = ADDRESSES[0]) -> Iterator[Router]:
    """Yield a router while it listens."""
    with Router(address) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def restart_hasty(rig: Rig) -> None:
    """Restart the operator with the program `hasty_operator`, which decides sooner. Like an operator inside a cluster
    with the chart's settings, it reads the summaries of routers, but more often.
    """
    rig.stop()
    rig.start("operator", "--router-watch=2", program=hasty_operator.__name__)
    rig.wait_for_leader()


class Load:
    """The requests of a service. Rates are means over the last `WINDOW` seconds, as registries report them."""

    def __init__(self, now: float) -> None:
        self._at, self._waiting = now, 0.0
        self._counted: dict[str, list[tuple[float, float]]] = {}
        """Name of a counter, or UID of a leader -> (time, total number of requests until this time), oldest first."""

    def advance(self, now: float, arrivals: float, prefill: Sequence[str], decode: Sequence[str]) -> None:
        """Count the requests that have arrived, and those that the leaders with these UIDs have completed, since the last
        call. Requests wait while more arrive than the prefill groups complete.
        """
        seconds, self._at = now - self._at, now
        present = self._waiting + arrivals * seconds
        done = min(present, CAPACITY * len(prefill) * seconds)
        self._waiting = present - done
        self._count("arrivals", now, arrivals * seconds)
        for role in (prefill, decode):
            for uid in role:
                self._count(uid, now, done / len(role))

    def give_up(self) -> None:
        """Let the clients of all waiting requests give up."""
        self._waiting = 0.0

    def _count(self, name: str, now: float, requests: float) -> None:
        marks = self._counted.setdefault(name, [(now, 0.0)])
        marks.append((now, marks[-1][1] + requests))
        while len(marks) > 2 and marks[1][0] <= now - WINDOW:
            del marks[0]

    def rate(self, name: str) -> float:
        """Return the requests per second that were counted under this name during the last WINDOW seconds; 0 if nothing was
        counted.
        """
        (begin, first), (end, last) = self._counted[name][0], self._counted[name][-1]
        return (last - first) / (end - begin) if end > begin else 0.0

    def rates(self, prefill: Sequence[str], decode: Sequence[str]) -> dict[str, heard.Rates]:
        """Return what the summary reports about each leader, by the leader's UID: the rates of its requests and tokens, and
        the numbers of its running and waiting requests.
        """
        found = dict[str, heard.Rates]()
        for uid in (*prefill, *decode):
            each = self.rate(uid)
            waiting = round(self._waiting / len(prefill)) if uid in prefill else 0
            running = 0.0 if uid in prefill else _running(each)
            found[uid] = {
                "requests": each, "promptTokens": PROMPT * each, "outputTokens": ANSWER * each, "running": running,
                "waiting": float(waiting),
            }  # fmt: skip
        return found


def _running(each: float) -> float:
    """Return the requests in a decode group that completes `each` requests per second (Little's law)."""
    left = 1 - each * ANSWER * MORE_REQUESTS
    return min(MOST_REQUESTS, each * ANSWER * FIRST_REQUEST / left) if left > 0 else MOST_REQUESTS


class Followed:
    """A service with the class Demand whose router reports the arrivals that a test sets."""

    def __init__(self, rig: Rig, namespace: str, router: Router, /, **spec: Any) -> None:
        self.rig, self.namespace, self.router = rig, namespace, router
        self._seen = Rig(rig.cluster)  # the router reads in threads of its own
        self._one = threading.Lock()
        self.arrivals, self._load = CALM, Load(time.monotonic())
        self.in_flight = 3
        """Requests in flight of each router."""
        rig.create(yamls.service(namespace, SERVICE, namespace, "engine", "decoder", "router", **spec))
        rig.ready(namespace, SERVICE, 60)
        self.connect([router])

    def connect(self, routers: Sequence[Router]) -> None:
        """Give the routers' pods the addresses of these simulated routers, one for each pod, oldest pod first."""
        pods = self.rig.all("Pod", self.namespace, f"{keys.COMPONENT}={keys.ROUTER}")
        pods.sort(key=lambda pod: str(pod["metadata"]["creationTimestamp"]))
        for pod, router in zip(pods, routers, strict=True):
            self._address(pod, router.address)
            router.page = self.summary
        self.pod = from_api.pod(self.rig.get("Pod", self.namespace, pods[0]["metadata"]["name"]) or {})

    def _address(self, pod: Manifest, address: str) -> None:
        write_status(self.rig, pod, lambda status: status.update({"podIP": address, "podIPs": [{"ip": address}]}))

    def summary(self) -> str:
        """Return the summary of the router, about the leaders that exist."""
        with self._one:
            pods = self._seen.all("Pod", self.namespace, f"{keys.MANAGED_BY}={keys.MANAGER}")
            leaders = [one["metadata"] for one in pods if one["metadata"]["labels"].get(keys.WORKER_INDEX) == "0"]
            prefill, decode = (
                [one["uid"] for one in leaders if one["labels"].get(keys.COMPONENT) == component]
                for component in (keys.ENGINE, keys.DECODER)
            )
            self._load.advance(time.monotonic(), self.arrivals, prefill, decode)
            return heard.summary(
                cast(Bodies, SimpleNamespace(objects={"Pod": pods})), self.pod,
                arrivals=self._load.rate("arrivals"), in_flight=self.in_flight,
                leaders_rates=self._load.rates(prefill, decode),
            )  # fmt: skip

    def give_up(self) -> None:
        """Let the clients of all waiting requests give up, so that a test does not wait until a queue is empty."""
        with self._one:
            self._load.give_up()

    def groups(self, component: str) -> int:
        """Return the number of leaders of a component that are not being deleted."""
        pods = self.rig.all("Pod", self.namespace, f"{keys.COMPONENT}={component},{keys.WORKER_INDEX}=0")
        return sum("deletionTimestamp" not in pod["metadata"] for pod in pods)

    def size(self) -> tuple[int, int]:
        """Return the numbers of prefill and decode groups."""
        return self.groups("engine"), self.groups("decoder")

    def sets(self, component: str) -> int:
        """Return the number of StatefulSets of a component. A group of a single pod has one StatefulSet, a
        larger group two.
        """
        found = self.rig.all("StatefulSet", self.namespace, f"{keys.COMPONENT}={component}")
        return sum(one["spec"]["replicas"] > 0 for one in found)

    def scaling(self) -> Manifest:
        """Return `status.scaling`."""
        return dict((self.rig.get("InferenceService", self.namespace, SERVICE) or {}).get("status", {}).get("scaling") or {})

    def wanted(self) -> tuple[int, int]:
        """Return the numbers of prefill and decode groups that the autoscaler wants; zeros before its first decision."""
        found = self.scaling().get("wanted") or {}
        return int(found.get("prefill", 0)), int(found.get("decode", 0))

    def hold(self) -> str:
        """Return the reason in `status.scaling` for which the autoscaler keeps the number of groups."""
        return str(self.scaling().get("hold") or "")

    def edit(self, **spec: Any) -> None:
        """Edit the spec of the service by a merge patch."""
        self.rig.patch("InferenceService", self.namespace, SERVICE, {"spec": spec})

    def policy(self, **demand: Any) -> None:
        """Merge these fields into `spec.scalingPolicy.demand`."""
        self.edit(scalingPolicy={"demand": demand})

    def scale(self, component: str = "decoder") -> Manifest:
        """Return the RoleScale of a component; {} if the component has none."""
        return self.rig.get("RoleScale", self.namespace, f"{SERVICE}-{component}") or {}

    def by_hand(self, number: int, component: str = "decoder") -> None:
        """Set the replicas of a component with `kubectl scale` on its RoleScale, as a person does."""
        words = ("rolescale", f"{SERVICE}-{component}", "-n", self.namespace, f"--replicas={number}")
        self.rig.cluster.kubectl("scale", *words)

    def ome(self, *words: str) -> str:
        """Run an `ome` command against the cluster, and return its output. Fail if the command does not succeed."""
        done = CliRunner().invoke(app, [*words, "--kubeconfig", str(self.rig.cluster.kubeconfig)])
        assert done.exit_code == 0, (done.output, done.exception)
        return done.output

    def shown(self, *words: str) -> str:
        """Run `ome scale` with these arguments for the service, and return its output."""
        return self.ome("scale", SERVICE, *words, "-n", self.namespace)

    def json(self) -> Manifest:
        """Return what `ome scale -o json` prints."""
        return dict(json.loads(self.shown("-o", "json")))
