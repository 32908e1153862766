"""Parse the API server's list of pods. A response that is not a complete list of pods raises `UnexpectedAnswer`; it is
never treated as an empty list.

Labels alone do not identify a rank, because every user who may create pods may set them. A pod is a rank only if the
StatefulSet that the operator created for the group controls the pod, and the pod's name is one that only that StatefulSet
can create.
"""

from collections.abc import Mapping
from typing import Any

from ome_operator import keys, names, quantity
from ome_operator.errors import OmeError
from ome_operator.registry.records import Pod
from ome_operator.util.untrusted_json import PARSE_ERRORS

HEALTH_PAGES = frozenset({"/health", "/health_generate", "/ping"})
"""Paths of pages that report only whether an engine is healthy. SGLang's `/ready` also tells whether it is paused."""
MAX_PORT = 65535
"""The highest number of a port."""
PROMPT_DELAY, PROMPT_PERIOD = 5, 10
"""Maximum `initialDelaySeconds` and `periodSeconds` of a kubelet's probe that detects a healthy engine soon enough."""


class UnexpectedAnswer(OmeError):
    """Error: a server sent a response in an unexpected form."""


def parse_pods(body: Any, stems: Mapping[str, str]) -> tuple[Pod, ...]:
    """Return the ranks in a PodList; pods that are not ranks of a group are left out. Raises UnexpectedAnswer if `body` is
    not a complete and valid PodList.

    `stems` maps each component to the prefix of the names of its StatefulSets.
    """
    if not isinstance(body, dict) or body.get("kind") != "PodList":
        raise UnexpectedAnswer("the API server's response is not a list of pods")
    items = body.get("items")
    try:
        if (body.get("metadata") or {}).get("continue"):
            raise UnexpectedAnswer("the API server's list of pods is incomplete")
        # Some servers send `items: null` for an empty list; a list without the field is invalid.
        return tuple(pod for item in body["items"] or () if (pod := _parse_pod(item, stems)) is not None)
    except PARSE_ERRORS as error:
        raise UnexpectedAnswer(
            f"the API server's list contains an invalid pod: {error!r} in {type(items).__name__}"
        ) from error


def _parse_pod(body: Mapping[str, Any], stems: Mapping[str, str]) -> Pod | None:
    metadata, status = body["metadata"], body.get("status") or {}
    labels, notes = metadata.get("labels") or {}, metadata.get("annotations") or {}
    leader, group, rank = labels.get(keys.WORKER_INDEX) == "0", labels.get(keys.GROUP_INDEX), labels.get(keys.POD_INDEX)
    number = quantity.whole_number(rank)
    if group is None or number is None or leader != (rank == "0"):
        return None  # a second pod of a leader's StatefulSet, which a user scaled manually, is not a rank
    if not _is_created_by_operator(metadata, stems.get(str(labels.get(keys.COMPONENT)), ""), str(group), str(rank), leader):
        return None
    spec = body.get("spec") or {}
    running, started = _is_main_container_running(spec, status)
    ready: Mapping[str, Any] = next((one for one in status.get("conditions") or () if one["type"] == "Ready"), {})
    return Pod(
        name=str(metadata["name"]),
        uid=str(metadata["uid"]),
        ip=str(status.get("podIP") or ""),
        component=str(labels.get(keys.COMPONENT, "")),
        group=str(group),
        rank=number,
        running=running,
        started=started,
        ready=ready.get("status") == "True",
        ready_since=_parse_timestamp(ready.get("lastTransitionTime")),
        deleting=bool(metadata.get("deletionTimestamp")),
        draining=bool(notes.get(keys.DRAINING)),
        bootstrap_port=_parse_port(notes.get(keys.BOOTSTRAP_PORT)),
        health_port=_health_port(spec, status),
    )


def _is_created_by_operator(metadata: Mapping[str, Any], stem: str, group: str, rank: str, leader: bool) -> bool:
    """Return whether the StatefulSet of a group created the pod with the metadata `metadata`. `stem` is the prefix of the
    names of the component's StatefulSets. `group` and `rank` are the numbers that the pod's labels state, and `leader` is
    true for rank 0.
    """
    expected = names.leader(stem, group) if leader else names.worker(stem, group)
    owner: Mapping[str, Any] = next((ref for ref in metadata.get("ownerReferences") or () if ref.get("controller")), {})
    kind = str(owner.get("apiVersion", "")).partition("/")[0], owner.get("kind")
    return kind == ("apps", "StatefulSet") and owner.get("name") == expected and metadata["name"] == f"{expected}-{rank}"


def _is_main_container_running(spec: Mapping[str, Any], status: Mapping[str, Any]) -> tuple[bool, float]:
    """Return whether the main container (the first one) is running, and when it started, in seconds since the epoch. The
    time is 0 if it is unknown. The condition Ready is not used, because it does not describe ranks above 0.
    """
    if status.get("phase") != "Running":
        return False, 0.0
    containers = spec.get("containers") or ()
    main = containers[0]["name"] if containers else ""
    for container in status.get("containerStatuses") or ():
        if container["name"] == main:
            state = (container.get("state") or {}).get("running")
            return state is not None, _parse_timestamp((state or {}).get("startedAt"))
    return True, 0.0


def _health_port(spec: Mapping[str, Any], status: Mapping[str, Any]) -> int | None:
    """Return the port of the engine's health page if only this page can keep the pod from being ready. Return None if
    anything else can keep the pod from being ready, such as a readiness gate.
    """
    containers = spec.get("containers") or ()
    if not containers or spec.get("readinessGates") or not containers[0].get("readinessProbe"):
        return None
    ports = {_probed_port(containers[0], name) for name in ("startupProbe", "readinessProbe") if containers[0].get(name)}
    ready = {one["name"] for one in status.get("containerStatuses") or () if one.get("ready")}
    sidecars = {one["name"] for one in spec.get("initContainers") or () if one.get("restartPolicy") == "Always"}
    ready |= {one["name"] for one in status.get("initContainerStatuses") or () if one.get("ready")}
    if len(ports) > 1 or not {*sidecars, *(one["name"] for one in containers[1:])} <= ready:
        return None
    return ports.pop()


def _probed_port(container: Mapping[str, Any], name: str) -> int | None:
    """Return the port of the health page that a probe of a container requests. `name` is the field of the probe, such as
    `readinessProbe`. Return None if the probe does anything else, or would detect a healthy engine late. All fields of the
    probe are present, because the API server has added the default values.
    """
    probe = container[name]
    page = probe.get("httpGet") or {}
    if page.get("host") or str(page.get("path") or "").partition("?")[0] not in HEALTH_PAGES:
        return None
    delay, period = probe.get("initialDelaySeconds") or 0, probe.get("periodSeconds") or PROMPT_PERIOD
    if delay > PROMPT_DELAY or period > PROMPT_PERIOD or (probe.get("successThreshold") or 1) > 1:
        return None
    port = page.get("port")
    named = (one["containerPort"] for one in container.get("ports") or () if one.get("name") == port)
    return _parse_port(next(named, port))


def _parse_port(value: Any) -> int | None:
    """Return the port number that an annotation or a probe states; None if the value is not a port number."""
    number = quantity.whole_number(value)
    return number if number is not None and 0 < number <= MAX_PORT else None


def _parse_timestamp(stamp: Any) -> float:
    """Return a timestamp in seconds since the epoch, or 0 if it is absent or invalid."""
    when = quantity.parse_instant(stamp)
    return 0.0 if when is None else when.timestamp()
