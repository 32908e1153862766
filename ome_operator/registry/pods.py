"""Read a list of pods as the API server answers it.

Anything that is no complete list of pods raises `UnexpectedAnswer`; it never reads as an empty list.

Labels make no worker: whoever may create a pod may write them. A rank is a pod of the StatefulSet that the operator made for
its group, by its controller and by its own name, which only that StatefulSet's pod can have while it is there.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from ome_operator import keys, names
from ome_operator.errors import OmeError
from ome_operator.registry.reconcile import Pod
from ome_operator.util.unread import UNREAD


class UnexpectedAnswer(OmeError):
    """An answer that is not what was asked for."""


def read(body: Any, stems: Mapping[str, str]) -> tuple[Pod, ...]:
    """The ranks in a PodList; pods that are no rank of a group are left out. Raises UnexpectedAnswer.

    `stems`: component -> what the names of its StatefulSets begin with.
    """
    if not isinstance(body, dict) or body.get("kind") != "PodList":
        raise UnexpectedAnswer("the API server's answer is no list of pods")
    items = body.get("items")
    try:
        if (body.get("metadata") or {}).get("continue"):
            raise UnexpectedAnswer("the API server's list of pods is not whole")
        # `items: null` is how some servers spell an empty list; a list without the field is none.
        return tuple(pod for one in body["items"] or () if (pod := _pod(one, stems)) is not None)
    except UNREAD as error:
        said = f"the API server lists something that is no pod: {error!r} in {type(items).__name__}"
        raise UnexpectedAnswer(said) from error


def _pod(body: Mapping[str, Any], stems: Mapping[str, str]) -> Pod | None:
    metadata, status = body["metadata"], body.get("status") or {}
    labels, notes = metadata.get("labels") or {}, metadata.get("annotations") or {}
    leader, group, rank = labels.get(keys.WORKER_INDEX) == "0", labels.get(keys.GROUP_INDEX), labels.get(keys.POD_INDEX)
    if group is None or rank is None or not rank.isdecimal() or leader != (rank == "0"):
        return None  # a second pod of a leader's StatefulSet, which somebody scaled by hand, is no rank
    if not _made(metadata, stems.get(str(labels.get(keys.COMPONENT)), ""), str(group), str(rank), leader):
        return None
    running, started = _running(body.get("spec") or {}, status)
    ready: Mapping[str, Any] = next((one for one in status.get("conditions") or () if one["type"] == "Ready"), {})
    port = str(notes.get(keys.BOOTSTRAP_PORT, ""))
    return Pod(
        name=str(metadata["name"]),
        uid=str(metadata["uid"]),
        ip=str(status.get("podIP") or ""),
        component=str(labels.get(keys.COMPONENT, "")),
        group=str(group),
        rank=int(rank),
        running=running,
        started=started,
        ready=ready.get("status") == "True",
        ready_since=_seconds(ready.get("lastTransitionTime")),
        deleting=bool(metadata.get("deletionTimestamp")),
        draining=bool(notes.get(keys.DRAINING)),
        bootstrap_port=int(port) if port.isdigit() else None,
    )


def _made(metadata: Mapping[str, Any], stem: str, group: str, rank: str, leader: bool) -> bool:
    """Whether the StatefulSet of this group made the pod."""
    wanted = names.leader(stem, group) if leader else names.worker(stem, group)
    owner: Mapping[str, Any] = next((one for one in metadata.get("ownerReferences") or () if one.get("controller")), {})
    kind = str(owner.get("apiVersion", "")).partition("/")[0], owner.get("kind")
    return kind == ("apps", "StatefulSet") and owner.get("name") == wanted and metadata["name"] == f"{wanted}-{rank}"


def _running(spec: Mapping[str, Any], status: Mapping[str, Any]) -> tuple[bool, float]:
    """Whether the main container (the first one) runs, and since when. Ready says nothing about ranks above 0."""
    if status.get("phase") != "Running":
        return False, 0.0
    boxes = spec.get("containers") or ()
    main = boxes[0]["name"] if boxes else ""
    for one in status.get("containerStatuses") or ():
        if one["name"] == main:
            state = (one.get("state") or {}).get("running")
            return state is not None, _seconds((state or {}).get("startedAt"))
    return True, 0.0


def _seconds(stamp: Any) -> float:
    """Seconds since the epoch, 0 when there is no stamp."""
    return datetime.fromisoformat(stamp).timestamp() if isinstance(stamp, str) and stamp else 0.0
