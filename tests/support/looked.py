"""An API server with a minimal kubelet, for tests of `ome preflight`. It keeps created objects until they are deleted."""

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from ome_operator import keys
from ome_operator.kube.errors import NotFound
from tests.support.fake_api import Call, FakeApi

Manifest = dict[str, Any]
Play = Callable[[Manifest, int], Manifest]
"""Returns node and status of a pod from its body and the number of lists of pods since the first creation."""
FULL = "0/24 nodes are available: 20 Insufficient nvidia.com/gpu."
RUNS = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}


def status(node: str = "", state: Manifest | None = None, **more: Any) -> Manifest:
    """Return the node and status of a pod."""
    boxes = [{"name": keys.RUNNER, "state": state}] if state is not None else []
    return {"node": node, "status": {"phase": "Pending", "containerStatuses": boxes, **more}}


def ended(node: str, *findings: Any, message: str | None = None, code: int = 0) -> Manifest:
    """Return the status of a check that has ended."""
    said = json.dumps({"preflight": 1, "findings": findings, "more": 0}) if message is None else message
    return status(node, {"terminated": {"exitCode": code, "message": said}}, phase="Succeeded")


def unplaced() -> Manifest:
    """Return the status of a pod for which the scheduler finds no node."""
    said = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": FULL}
    return status(conditions=[said])


def healthy(pod: Manifest, looks: int) -> Manifest:
    """Schedule the pod at once, let it run at the second list, and end it without findings."""
    node = f"gpu-{pod['metadata']['name'].rpartition('-')[2]}"
    return status(node) if looks < 2 else status(node, RUNS) if looks < 3 else ended(node)


class Looked(FakeApi):
    """`catalog`: kind → objects that exist initially. `play`: returns how pods proceed. `answers` take precedence, as in
    FakeApi.
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
