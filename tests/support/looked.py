"""A stand-in for an API server with minimal kubelets, for tests of `ome preflight`: created objects exist until they are
deleted, and their pods get statuses.
"""

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from ome_operator import keys
from ome_operator.kube.errors import NotFound
from tests.support.fake_api import Call, FakeApi

Manifest = dict[str, Any]
Play = Callable[[Manifest, int], Manifest]
"""(body of a pod, number of lists of pods since the first creation) -> fields of the pod with its node and its status."""
FULL = "0/24 nodes are available: 20 Insufficient nvidia.com/gpu."
RUNS = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}


def status(node: str = "", state: Manifest | None = None, **more: Any) -> Manifest:
    """Return the fields `spec.nodeName` and `status` of a pod."""
    boxes = [{"name": keys.RUNNER, "state": state}] if state is not None else []
    return {"node": node, "status": {"phase": "Pending", "containerStatuses": boxes, **more}}


def ended(node: str, *findings: Any, message: str | None = None, code: int = 0) -> Manifest:
    """Return the status of a pod whose preflight check has ended with these findings and this exit code. `message` replaces
    the termination message that contains the findings.
    """
    said = json.dumps({"preflight": 1, "findings": findings, "more": 0}) if message is None else message
    return status(node, {"terminated": {"exitCode": code, "message": said}}, phase="Succeeded")


def unplaced() -> Manifest:
    """Return the status of a pod for which the scheduler finds no node."""
    said = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": FULL}
    return status(conditions=[said])


def healthy(pod: Manifest, looks: int) -> Manifest:
    """A `Play` of a check without findings: the pod has a node at once, runs from the second list of pods on, and has ended
    at the third.
    """
    node = f"gpu-{pod['metadata']['name'].rpartition('-')[2]}"
    return status(node) if looks < 2 else status(node, RUNS) if looks < 3 else ended(node)


class Looked(FakeApi):
    """A fake API. `catalog` maps a kind to the objects that exist initially. `play` decides at each list of pods which
    status a pod has. `answers` are answers of FakeApi, which take precedence.
    """

    def __init__(self, play: Play = healthy, catalog: dict[str, list[Manifest]] | None = None, **answers: Any) -> None:
        super().__init__({verb.replace("_to_", " "): answer for verb, answer in answers.items()})
        self.play, self.catalog, self.looks = play, catalog or {}, 0
        self.made: dict[tuple[str, str], Manifest] = {}
        self.ever: list[Manifest] = []
        self.connection = SimpleNamespace(namespace="team")  # type: ignore[assignment]

    async def _answer(self, call: Call) -> Any:
        try:
            return await super()._answer(call)
        except AssertionError:
            pass  # no answer was configured for anything else
        return self._own(call)

    def _own(self, call: Call) -> Any:
        if call.verb == "delete":
            if self.made.get((call.kind, call.name), {}).get("metadata", {}).get("uid") != call.uid:
                raise NotFound(f"{call.kind} {call.name}")
            return self.made.pop((call.kind, call.name))
        if call.verb == "get":
            found = [body for body in self.catalog.get(call.kind, ()) if body["metadata"]["name"] == call.name]
            if not found:
                raise NotFound(f"{call.kind} {call.name}")
            return found[0]
        if call.kind not in ("Pod", "Service"):
            return self.catalog.get(call.kind, [])
        there = [body for (kind, _), body in self.made.items() if kind == call.kind]
        if call.kind == "Pod" and there:
            self.looks += 1
            return [self._played(body) for body in there]
        return there

    def _played(self, pod: Manifest) -> Manifest:
        fares = self.play(pod, self.looks)
        spec = {**pod["spec"], **({"nodeName": fares["node"]} if fares["node"] else {})}
        return {**pod, "spec": spec, "status": fares["status"]}

    async def create(self, manifest: Manifest, manager: str = "") -> Manifest:
        made = await super().create(manifest, manager)
        made["metadata"]["uid"] = f"uid-{len(self.ever)}"
        self.made[made["kind"], made["metadata"]["name"]] = made
        self.ever.append(made)
        return made
