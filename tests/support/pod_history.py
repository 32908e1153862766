"""Records every state of the pods of a namespace from a watch, because a check at the end misses intermediate states."""

import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from tests.support.rig import Rig

RANK_0 = "leaderworkerset.sigs.k8s.io/worker-index"


class Shot(NamedTuple):
    """The state of a pod at one moment."""

    uid: str
    service: str
    component: str
    revision: str
    group: int
    ready: bool
    """Whether the pod is ready and not being deleted."""
    draining: bool
    image: str


Frame = dict[str, Shot]
"""State of each pod by name."""


class Film:
    """The recorded states. They are complete after the end of the recording."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []

    def frames(self, service: str) -> Iterator[Frame]:
        """Yield the pods of a service as they were after every event."""
        now: Frame = {}
        for event in self.events:
            shot = _shot(event["object"])
            if shot.service != service:
                continue
            name = event["object"]["metadata"]["name"]
            now = {key: one for key, one in now.items() if key != name}
            if event["type"] != "DELETED":
                now[name] = shot
            yield now

    def capacity(self, service: str, wanted: dict[str, int], size: int = 1) -> list[float]:
        """Return, for every event, the share of the desired groups that served after it. A group counts only if a router of
        its revision is ready.
        """
        return [_capacity(frame, wanted, size) for frame in self.frames(service)]

    def most_groups(self, service: str, component: str) -> int:
        """Return the maximum number of groups of a component that existed at the same time."""
        return max(
            len({(one.revision, one.group) for one in frame.values() if one.component == component})
            for frame in self.frames(service)
        )


@contextmanager
def recording(rig: Rig, namespace: str) -> Iterator[Film]:
    """Record the pods of a namespace inside the `with` block."""
    film = Film()
    path = rig.cluster.at.root / f"film-{namespace}.json"
    words = ["get", "pods", "-n", namespace, "--watch", "--output-watch-events", "-o", "json"]
    with path.open("wb") as file:
        watch = subprocess.Popen(
            [rig.cluster.program("kubectl"), *words], stdout=file, env=rig.cluster.environment(), stderr=subprocess.DEVNULL
        )
        try:
            yield film
            time.sleep(1)  # the last events are still being delivered
        finally:
            watch.terminate()
            watch.wait()
    text, decoder = path.read_text(), json.JSONDecoder()
    while text := text.lstrip():
        try:
            event, end = decoder.raw_decode(text)
        except ValueError:  # interrupted by the end of the recording
            break
        film.events.append(event)
        text = text[end:]
    path.unlink()


def _shot(pod: dict[str, Any]) -> Shot:
    metadata = pod["metadata"]
    labels = metadata.get("labels", {})
    conditions = {one["type"]: one["status"] for one in pod.get("status", {}).get("conditions", ())}
    number = labels.get("ome.io/group") or "0"
    return Shot(
        uid=metadata["uid"],
        service=labels.get("ome.io/inferenceservice", ""),
        component=labels.get("component", ""),
        revision=labels.get("ome.io/revision", ""),
        group=int(number),
        ready=conditions.get("Ready") == "True" and "deletionTimestamp" not in metadata,
        draining="ome.io/draining" in metadata.get("annotations", {}),
        image=pod["spec"]["containers"][0]["image"],
    )


def _capacity(frame: Frame, wanted: dict[str, int], size: int) -> float:
    serving = [one for one in frame.values() if one.ready]
    drained = {(one.revision, one.component, one.group) for one in frame.values() if one.draining}
    total = 0.0
    for revision in {one.revision for one in serving if one.component == "router"}:
        total += min(
            sum(
                [one.group for one in serving if (one.revision, one.component) == (revision, role)].count(group) >= size
                for group in range(16)
                if (revision, role, group) not in drained
            )
            / count
            for role, count in wanted.items()
        )
    return total
