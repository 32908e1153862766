"""Measures what the life of services costs the operator, in this process and without a cluster: `python -m bench.life`.

Services are created, and their pods become Ready. The operator's own manager, informer and client do the work. A simulated
API server answers their requests, and delivers events encoded as a real server does. Only the CPU time of this thread is
measured, without the CPU time of the simulated server. kopf and HTTP are not part of the measurement.
"""

import asyncio
import itertools
import json
import resource
import sys
import time
from collections import Counter, deque
from datetime import UTC, datetime
from typing import Any

import uvloop

from bench.crowd import encoded
from bench.fleet import Answer
from bench.pods import LAST, at_stage, fields_of, pod_of
from bench.scenarios import HOLDS, SINGLE, Manifest, catalog
from bench.stalls import Stopwatch
from ome_operator import keys
from ome_operator.controllers.base import CORE
from ome_operator.controllers.manager import Manager
from ome_operator.controllers.watched_kinds import watches_of
from ome_operator.kube.client import Client
from ome_operator.kube.resources import RESOURCES
from ome_operator.machinery import garbage_collection
from ome_operator.machinery.metrics import Metrics
from ome_operator.settings import Settings
from ome_operator.watch.informer import Informer

NODES, STEP_S, EVENTS_A_STEP = 20, 0.05, 12
"""Three constants: the number of nodes, the interval in seconds between two steps of pods and workloads, and the number of
pods and workloads that change in a step. A ramp of 100 services on a real control plane delivers 100 to 250 events per
second.
"""
QUIET_STEPS = 20
"""Number of consecutive steps without a request or an event that end the measurement, once all services are Ready."""
LIMIT_S, LIMIT_PER_SERVICE_S = 60.0, 10.0
"""Seconds after which the measurement fails: a fixed part, and a part for each service. The pods of all services start
interleaved, so that all services become Ready near the end. A service takes less than a second on an idle machine."""


class NotReady(Exception):
    """Error: not all services became Ready, or the requests of the operator did not end, within the limit."""


class ApiServer(Client):
    """The operator's own client, with a simulated API server in the place of its network connection."""

    def __init__(self, watch: Stopwatch) -> None:
        self._manager, self._only_statuses, self._count, self._may_write = keys.MANAGER, False, None, None
        self.watch, self.requests, self.events = watch, Counter[str](), Counter[str]()
        self.objects: dict[tuple[str, str, str], Manifest] = {}
        self.lines: dict[str, asyncio.Queue[bytes]] = {}
        self.todo: deque[Manifest] = deque()
        """Pods and workloads whose next step is due."""
        self._versions = itertools.count(1000)
        self._kinds = {(each.api_version, each.plural): kind for kind, each in RESOURCES.items()}

    # --- requests -----------------------------------------------------------------------------------------------------

    async def _exchange(  # type: ignore[override]
        self, verb: str, kind: str, where: str, query: Any, data: bytes | None, headers: Any, longest: int | None = None
    ) -> tuple[int, bytes, Any]:
        self.requests[f"{verb} {kind}"] += 1
        await asyncio.sleep(0.002)
        with self.watch.besides():
            code, body = self._answered(verb, kind, where, json.loads(data or b"{}"), "dryRun" in (query or {}))
            return code, encoded(body), _NoHeaders()

    def _answered(self, verb: str, kind: str, where: str, sent: Manifest, dry_run: bool) -> tuple[int, Manifest]:
        if verb == "list":
            return 200, {"metadata": {}, "items": []}
        of, at = RESOURCES[kind], where.split(f"/{RESOURCES[kind].plural}")[0]
        namespace = at.rpartition("/namespaces/")[2] if "/namespaces/" in at else ""
        name, _, subresource = where.partition(f"/{of.plural}/")[2].partition("/")
        name = name or sent["metadata"].get("name") or sent["metadata"]["generateName"] + str(next(self._versions))
        known = self.objects.get((kind, namespace, name))
        if verb == "get":
            return (200, known) if known else (404, {"kind": "Status", "reason": "NotFound", "message": f"{name} not found"})
        if verb == "delete":
            return 404, {"kind": "Status", "reason": "NotFound", "message": name}
        stored = self._stored(kind, sent, known, subresource)
        if not dry_run:
            self.objects[kind, namespace, name] = stored
            self.tell(kind, "MODIFIED" if known else "ADDED", stored)
            if kind in ("StatefulSet", "Deployment") and not known:
                self.todo.append({"kind": kind, "of": stored})
        return 200, stored

    def _stored(self, kind: str, sent: Manifest, known: Manifest | None, subresource: str) -> Manifest:
        sent_metadata = {name: value for name, value in sent["metadata"].items() if name not in ("uid", "resourceVersion")}
        owned = {name: value for name, value in sent_metadata.items() if name not in ("name", "namespace")}
        parts = {name: value for name, value in sent.items() if name not in ("apiVersion", "kind", "metadata")}
        entry = {
            "manager": keys.MANAGER, "operation": "Apply", "apiVersion": sent.get("apiVersion", "v1"),
            "time": "2026-01-01T00:00:00Z", "fieldsType": "FieldsV1",
            "fieldsV1": {f"f:{name}": fields_of(value) for name, value in {"metadata": owned, **parts}.items() if value},
        } | ({"subresource": subresource} if subresource else {})  # fmt: skip
        before = known or {"metadata": {"uid": f"00000000-0000-4000-8000-{next(self._versions):012}", "generation": 1}}
        metadata = before["metadata"] | sent_metadata | {"resourceVersion": str(next(self._versions))}
        others = [each for each in metadata.get("managedFields", ()) if each.get("subresource", "") != subresource]
        metadata |= {"creationTimestamp": "2026-01-01T00:00:00Z", "managedFields": [*others, entry]}
        if known and not subresource:
            metadata["generation"] = before["metadata"]["generation"] + 1
        api = {"apiVersion": RESOURCES[kind].api_version, "kind": kind}
        return {**before, **api, **parts, "metadata": metadata}

    # --- watches ------------------------------------------------------------------------------------------------------

    def get(self, url: str, params: dict[str, str], timeout: object) -> Any:  # type: ignore[override]
        """Answer a GET request of the informer, and the client's `get` of an object."""
        if not isinstance(params, dict):
            return super().get(url, params, str(timeout))
        kind = next(kind for (api, plural), kind in self._kinds.items() if url.endswith(f"/{api}/{plural}"))
        if "watch" in params:
            return _soon(Answer(lines=self.lines.setdefault(kind, asyncio.Queue())))
        with self.watch.besides():
            items = [body for (each, _, _), body in self.objects.items() if each == kind]
            return _soon(Answer(encoded({"metadata": {"resourceVersion": "1"}, "items": items})))

    def tell(self, kind: str, what: str, body: Manifest) -> None:
        """Deliver an event of the type `what`, such as ADDED."""
        self.events[kind] += 1
        if kind in self.lines:
            self.lines[kind].put_nowait(encoded({"type": what, "object": body}) + b"\n")

    def create_object(self, body: Manifest) -> None:
        """Store an object of a user, which has no managed fields of the operator."""
        metadata = {"uid": f"uid-{body['metadata']['name']}", "generation": 1, "resourceVersion": str(next(self._versions))}
        body = {**body, "metadata": body["metadata"] | metadata}
        self.objects[body["kind"], body["metadata"].get("namespace", ""), body["metadata"]["name"]] = body
        self.tell(body["kind"], "ADDED", body)

    def unready_services(self) -> dict[str, str]:
        """Return the name of each service whose condition Ready is not True, with the message of this condition."""
        found = {}
        for (kind, _, name), body in self.objects.items():
            conditions = {each["type"]: each for each in (body.get("status") or {}).get("conditions") or ()}
            ready = conditions.get("Ready", {})
            if kind == "InferenceService" and ready.get("status") != "True":
                found[name] = ready.get("message", "it has no condition Ready")
        return found

    # --- controllers and kubelets ---------------------------------------------------------------------------------------

    def step(self) -> None:
        """Change the next pods and workloads by one step of their start, as controllers and kubelets do."""
        for _ in range(min(EVENTS_A_STEP, len(self.todo))):
            item = self.todo.popleft()
            (self._advance if item["kind"] == "Pod" else self._count_pods)(item)

    def _count_pods(self, item: Manifest) -> None:
        """Write the status of a workload with the number of its ready pods. If none is ready yet, create its pods."""
        body = item["of"]
        wanted, done = body["spec"].get("replicas", 1), item.get("ready", 0)
        status = {
            "observedGeneration": body["metadata"]["generation"], "replicas": wanted, "readyReplicas": done,
            "availableReplicas": done, "updatedReplicas": wanted, "currentRevision": f"{body['metadata']['name']}-5d4f8c7b9",
            "updateRevision": f"{body['metadata']['name']}-5d4f8c7b9", "collisionCount": 0,
        }  # fmt: skip
        key = item["kind"], body["metadata"]["namespace"], body["metadata"]["name"]
        other = {
            "manager": "kube-controller-manager", "operation": "Update", "apiVersion": "apps/v1", "subresource": "status",
            "time": "2026-01-01T00:00:00Z", "fieldsType": "FieldsV1", "fieldsV1": {"f:status": fields_of(status)},
        }  # fmt: skip
        now = self.objects[key]
        metadata = now["metadata"] | {"resourceVersion": str(next(self._versions))}
        metadata["managedFields"] = [*(each for each in metadata["managedFields"] if each["manager"] == keys.MANAGER), other]
        self.objects[key] = now = {**now, "metadata": metadata, "status": status}
        self.tell(item["kind"], "MODIFIED", now)
        if not done:
            first = body["spec"].get("ordinals", {}).get("start", 0)
            self.todo.extend({"kind": "Pod", "of": pod_of(now, first + each), "owner": item} for each in range(wanted))

    def _advance(self, item: Manifest) -> None:
        stage = item["stage"] = item.get("stage", -1) + 1
        body = item["of"] = at_stage(item["of"], stage, next(self._versions))
        self.tell("Pod", "MODIFIED" if stage else "ADDED", body)
        if stage < LAST:
            self.todo.append(item)
        else:
            owner = item["owner"]
            owner["ready"] = owner.get("ready", 0) + 1
            self.todo.append(owner)


class _NoHeaders(dict[str, str]):
    """The headers of an answer without warnings."""

    def getall(self, name: str, default: Any = ()) -> Any:
        return default


async def _soon(answer: Answer) -> Answer:
    return answer


def furnish(server: ApiServer) -> None:
    """Create nodes that hold the model, and the catalog."""
    labels = {HOLDS: "Ready"}
    allocatable = {"nvidia.com/gpu": "800", "cpu": "19200", "memory": "200Ti"}
    status = {"conditions": [{"type": "Ready", "status": "True"}], "allocatable": allocatable}
    for number in range(NODES):
        metadata = {"name": f"node-{number}", "labels": labels}
        server.create_object({"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": status})
    for body in catalog():
        server.create_object(body)


async def live(server: ApiServer, services: int) -> float:
    """Create services, and make their pods Ready step by step. Return the CPU seconds that the operator used until all
    services were Ready and nothing changed any more.

    Raises NotReady if this takes longer than the limit.
    """
    began, limit = server.watch.now(), LIMIT_S + services * LIMIT_PER_SERVICE_S
    ends = time.monotonic() + limit
    with server.watch.besides():
        for number in range(services):
            server.create_object(SINGLE[100].service(number))
    quiet, seen = 0, 0
    while quiet < QUIET_STEPS:
        await asyncio.sleep(STEP_S)
        with server.watch.besides():
            server.step()
            before, seen = seen, server.requests.total() + server.events.total()
            unready = server.unready_services()
            quiet = 0 if unready or server.todo or seen != before else quiet + 1
            if time.monotonic() > ends:
                raise NotReady(_why(unready, services, limit))
    return server.watch.now() - began


def _why(unready: dict[str, str], services: int, limit: float) -> str:
    if not unready:
        return f"all {services} services are Ready, but the operator still sent requests after {limit:g} s"
    name, message = next(iter(unready.items()))
    return f"{len(unready)} of {services} services are not Ready after {limit:g} s. {name}: {message}"


async def run(services: int) -> dict[str, Any]:
    """Run the life of this number of services, and return its cost."""
    server = ApiServer(Stopwatch())
    furnish(server)
    manager = Manager(Settings(), CORE, server, Metrics(), lambda: datetime.now(UTC))
    informer = Informer(watches_of(), manager, session=server, server="", server_timeout=600)  # type: ignore[arg-type]
    garbage_collection.collect_rarely()
    tasks = [asyncio.create_task(informer.run())]
    await informer.complete.wait()
    garbage_collection.freeze_existing()
    tasks.append(asyncio.create_task(manager.run()))
    await asyncio.sleep(1)
    server.requests.clear()
    server.events.clear()
    spent = await live(server, services)
    for task in tasks:
        task.cancel()
    await manager.stop(1)
    await asyncio.gather(*tasks, return_exceptions=True)
    return {
        "services": services, "ms_per_service": round(spent / services * 1e3, 1),
        "requests": server.requests.total(), "events": server.events.total(),
        "peak_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
    }  # fmt: skip


if __name__ == "__main__":
    try:
        print(json.dumps(uvloop.run(run(int(sys.argv[1]) if sys.argv[1:] else 20))))
    except NotReady as error:
        sys.exit(str(error))
