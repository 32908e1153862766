"""Build compact representations of watched objects from their JSON. These functions are pure and never raise, because
objects of other clients must not stop the operator.

Fields may be absent, null, or have an unexpected value (a label that is not a number), but their JSON types are valid,
because the API server has validated them.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from sys import intern
from typing import Any

from ome_operator import keys, quantity
from ome_operator.core.observed import managed_fields, route
from ome_operator.core.observed.exclusions import exclusion
from ome_operator.core.observed.failures import failure
from ome_operator.core.observed.field_managers import entries
from ome_operator.core.observed.objects import YIELDS, Child, Pod, Termination
from ome_operator.core.observed.restored import contacted_namespace
from ome_operator.core.observed.times import Times
from ome_operator.core.preflight import results as preflight_results
from ome_operator.core.reasons import Reason
from ome_operator.core.termination import last_lines, most_informative_line
from ome_operator.quantity import gpus

Body = Mapping[str, Any]

NO_NUMBER = -1
"""Value for the group or the rank of a pod whose labels contain no number. Such a pod belongs to no group of the
operator."""

_LABELS = (
    keys.ANSWERED_BY, keys.COMPONENT, keys.GROUP_INDEX, keys.MANAGED_BY, keys.REVISION, keys.SERVICE, keys.WORKER_INDEX,
)  # fmt: skip
"""The labels of children that the operator stores. Other labels are dropped, because anybody may add 1 MB of labels to such
an object."""
_ANNOTATION = 1000
"""Maximum number of characters that are kept of an annotation. An annotation may have 256 KiB."""
_STARTING = frozenset({"ContainerCreating", "PodInitializing", ""})


def version(body: Body) -> int:
    """Return the resourceVersion of an object as a number; 0 if it is not a number."""
    return _number((body.get("metadata") or {}).get("resourceVersion"), 0)


def uid(body: Body) -> str:
    """Return the UID of an object; "" if it has none."""
    return (body.get("metadata") or {}).get("uid") or ""


def child(kind: str, body: Body, owned: str | None = None) -> Child:
    """Return the compact representation of an object that has the operator's label. `owned` is the result of
    `managed_fields.owned_digest`, if the caller has computed it already.
    """
    metadata = body.get("metadata") or {}
    spec, labels = body.get("spec") or {}, metadata.get("labels") or {}
    content = None
    if kind == "ControllerRevision":
        content = {"revision": body.get("revision") or 0, "data": body.get("data") or {}}
    elif kind == "RoleScale":
        content = body.get("status") or {}
    elif kind == "Job":
        generation = _number((metadata.get("annotations") or {}).get(keys.GENERATION), 0)
        content = {"status": body.get("status") or {}, "generation": generation}
    elif kind == "HTTPRoute":
        content = route.content(body)
    return Child(
        kind=kind,
        namespace=_shared(metadata, "namespace"),
        name=metadata.get("name") or "",
        uid=metadata.get("uid") or "",
        version=version(body),
        owner=_shared(controller(metadata) or {}, "uid"),
        labels={key: intern(str(labels[key])) for key in _LABELS if key in labels},
        hash=_annotation(metadata.get("annotations") or {}, keys.HASH),
        owned=managed_fields.owned_digest(body) if owned is None else owned,
        deleting=bool(metadata.get("deletionTimestamp")),
        replicas=_number(spec.get("replicas"), 0),
        message=failure(kind, body),
        content=content,
        template=_template(body) if kind == "StatefulSet" else "",
        generation=_number(metadata.get("generation"), 0) if kind == "RoleScale" else 0,
        woken=_woken(metadata) if kind == "RoleScale" else 0,
        excluded=exclusion((metadata.get("annotations") or {}).get(keys.EXCLUDED_NODES)) if kind == "StatefulSet" else (),
    )


def _shared(texts: Body, key: str) -> str:
    """Return the text under `key` in `texts`; "" if there is none. Equal texts are returned as the same string object."""
    return intern(str(texts.get(key) or ""))


def _annotation(notes: Body, key: str) -> str:
    return (notes.get(key) or "")[:_ANNOTATION]


def _woken(metadata: Body) -> int:
    return _number((metadata.get("annotations") or {}).get(keys.WAKE_GENERATION), 0)


def _template(body: Body) -> str:
    metadata, status = body.get("metadata") or {}, body.get("status") or {}
    current = status.get("observedGeneration") == metadata.get("generation")
    return (status.get("updateRevision") or "") if current else ""


def controller(metadata: Body) -> Body | None:
    """Return the owner reference to the controller of an object; None if the object has no controller."""
    for reference in metadata.get("ownerReferences") or ():
        if reference.get("controller"):
            owner: Body = reference
            return owner
    return None


def pod(body: Body) -> Pod:
    """Return the compact representation of a pod that has the operator's label."""
    metadata, status = body.get("metadata") or {}, body.get("status") or {}
    labels, notes = metadata.get("labels") or {}, metadata.get("annotations") or {}
    component = _shared(labels, keys.COMPONENT)
    group, rank = _place(labels, component)
    owner = controller(metadata) or {}
    conditions = {condition.get("type"): condition for condition in status.get("conditions") or ()}
    ready = (conditions.get("Ready") or {}).get("status") == "True"
    deleting = bool(metadata.get("deletionTimestamp"))
    checked = preflight_results.parse_result(status)
    reason, message = ("", "") if ready and not deleting else why_not_ready(body, conditions, checked)
    boxes = (body.get("spec") or {}).get("containers") or ()
    main = _main(boxes, status)
    return Pod(
        namespace=_shared(metadata, "namespace"),
        name=metadata.get("name") or "",
        uid=metadata.get("uid") or "",
        version=version(body),
        service=_shared(labels, keys.SERVICE),
        component=component,
        revision=_shared(labels, keys.REVISION),
        group=group,
        rank=rank,
        workload=owner.get("name") or "",
        workload_uid=owner.get("uid") or "",
        node=(body.get("spec") or {}).get("nodeName") or "",
        ready=ready,
        deleting=deleting,
        grace=_number(metadata.get("deletionGracePeriodSeconds"), 0) if deleting else 0,
        restarts=_number(main.get("restartCount"), 0),
        reason=reason,
        message=message,
        draining=_annotation(notes, keys.DRAINING),
        running=bool((main.get("state") or {}).get("running")) if main else ready,
        probed=bool(boxes and (boxes[0].get("readinessProbe") or boxes[0].get("startupProbe"))),
        over=status.get("phase") in ("Failed", "Succeeded"),
        ends=metadata.get("deletionTimestamp") or "",
        template=labels.get(keys.TEMPLATE) or "",
        ip=(status.get("podIP") or "") if component == keys.ROUTER else "",
        ending=_ending(status, main, conditions),
        priority=_number((body.get("spec") or {}).get("priority"), 0),
        preflight=checked,
        gpus=sum(map(gpus, boxes)),
        times=_times(body, main, conditions),
        scale_down=tuple(key for key in (keys.KARPENTER_KEEP, keys.AUTOSCALER_EVICT) if key in notes),
        scale_down_mark=_annotation(notes, keys.SCALE_DOWN_MARK),
        yields=notes.get(keys.DELETION_COST) == YIELDS,
        contacts=contacted_namespace(boxes, labels, metadata.get("namespace") or ""),
    )


def _times(body: Body, main: Body, conditions: Mapping[str, Body]) -> Times:
    def since(type_: str) -> str:
        condition = conditions.get(type_) or {}
        return (condition.get("lastTransitionTime") or "") if condition.get("status") == "True" else ""

    started = ((main.get("state") or {}).get("running") or {}).get("startedAt") or ""
    created = (body.get("metadata") or {}).get("creationTimestamp") or ""
    initialized = since("Initialized") if (body.get("spec") or {}).get("initContainers") else ""
    network = since("PodReadyToStartContainers")
    ready = conditions.get("Ready") or {}
    unready = "" if ready.get("status") == "True" else ready.get("lastTransitionTime") or ""
    return Times(created, since("PodScheduled"), started, since("Ready"), network, initialized, unready)


def _main(boxes: Sequence[Body], status: Body) -> Body:
    """Return the status of the main container, which is the first container of the spec (`boxes`)."""
    name = boxes[0].get("name") if boxes else None
    statuses = status.get("containerStatuses") or ()
    return next(
        (container for container in statuses if container.get("name") == name),
        statuses[0] if statuses and name is None else {},
    )


def _ending(status: Body, main: Body, conditions: Mapping[str, Body]) -> Termination | None:
    """Return how the main container terminated last. If it never terminated, return how the pod was disrupted or failed;
    None if neither happened.
    """
    for state in ("state", "lastState"):
        if ended := (main.get(state) or {}).get("terminated"):
            log_tail = last_lines(ended.get("message") or "")
            reason, code = ended.get("reason") or "Error", _number(ended.get("exitCode"), 0)
            return Termination(main.get("name") or "", reason, code, log_tail, ended.get("finishedAt") or "")
    if (taken := conditions.get("DisruptionTarget") or {}).get("status") == "True":
        return Termination(
            "", taken.get("reason") or "Disrupted", None, taken.get("message") or "", taken.get("lastTransitionTime") or ""
        )
    if status.get("phase") == "Failed":
        return Termination("", status.get("reason") or "Failed", None, status.get("message") or "", "")
    return None


def _place(labels: Mapping[str, str], component: str) -> tuple[int, int]:
    """Return the group and the rank of a pod. The group is the value of a label, and the rank is the pod index.

    Pods of a leader's StatefulSet also have a label with the worker index 0. If someone scales this StatefulSet by hand,
    the additional pods have this label but another pod index than 0, so they have no valid rank.
    """
    if component == keys.ROUTER:
        return 0, 0
    rank = _number(labels.get(keys.POD_INDEX), NO_NUMBER)
    if (labels.get(keys.WORKER_INDEX) == "0") != (rank == 0):
        rank = NO_NUMBER
    return _number(labels.get(keys.GROUP_INDEX), NO_NUMBER), rank


def why_not_ready(
    body: Body, conditions: Mapping[str, Body], checked: preflight_results.CheckResult | None = None
) -> tuple[str, str]:
    """Return the reason and message of a pod that is not ready, taken from the part of its status that states the cause most
    precisely. `checked` is its preflight result.
    """
    metadata, status = body.get("metadata") or {}, body.get("status") or {}
    phase = status.get("phase") or ""
    containers = [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]
    if metadata.get("deletionTimestamp"):
        return Reason.TERMINATING, ""
    if phase in ("Failed", "Succeeded"):
        reason, message = _ended(containers)
        return status.get("reason") or reason or phase, status.get("message") or message
    scheduled = conditions.get("PodScheduled") or {}
    if not (body.get("spec") or {}).get("nodeName"):
        return scheduled.get("reason") or Reason.PENDING, _shortened(scheduled.get("message") or "")
    if checked is not None and checked.held:
        return Reason.PREFLIGHT_FAILED, checked.sentence
    for container in containers:
        if stuck := _stuck(container):
            return stuck
    return _running(body, conditions)


def _shortened(message: str) -> str:
    """Return the scheduler's message without the part about preemption: "0/16 nodes are available: 16 Insufficient …"."""
    for part in (" no new claims to deallocate", " preemption:"):
        message = message.partition(part)[0]
    return message.rstrip(" ,")


def _stuck(container: Body) -> tuple[str, str] | None:
    """Return the reason and message of a container that waits or has terminated. Return None for other states, and for a
    state that is part of a normal start.
    """
    state = container.get("state") or {}
    waiting, terminated = state.get("waiting"), state.get("terminated")
    if waiting and waiting.get("reason") not in _STARTING:
        reason = waiting.get("reason") or "Waiting"
        last = (container.get("lastState") or {}).get("terminated")
        if reason == Reason.CRASH_LOOP_BACK_OFF and last:
            return reason, _last_words(container, last)
        return reason, f"container {container.get('name')}: {waiting.get('message') or reason}"
    # An init container with exit code 0 is complete; a main container with exit code 0 has failed (docs/recovery.md).
    if terminated and (terminated.get("exitCode") or not container.get("ready", False)):
        return terminated.get("reason") or "Error", _last_words(container, terminated)
    return None


def _running(body: Body, conditions: Mapping[str, Body]) -> tuple[str, str]:
    """Return the reason and message of a pod whose containers run or are about to run: the pod is starting, or is no
    longer ready.
    """
    status = body.get("status") or {}
    ready = conditions.get("Ready") or {}
    lost_at = ready.get("lastTransitionTime") or ""
    starts = [
        ((container.get("state") or {}).get("running") or {}).get("startedAt") or ""
        for container in status.get("containerStatuses") or ()
    ]
    if ready.get("reason") in ("NodeLost", "NodeStatusUnknown") or ready.get("status") == "Unknown":
        return Reason.NODE_LOST, ready.get("message") or "the node of the pod does not report"
    # The pod became unready after its containers started, so it was ready before. RFC 3339 times compare as strings.
    if starts and all(starts) and lost_at > max(starts):
        return Reason.NOT_READY, ready.get("message") or ""
    unready = [box for box in status.get("containerStatuses") or () if not box.get("ready")]
    for box in unready:
        if ended := (box.get("lastState") or {}).get("terminated"):
            return ended.get("reason") or "Error", f"{_last_words(box, ended)}; {_again(box)}"
    message = f"waiting for container {', '.join(str(box.get('name')) for box in unready)}" if unready else ""
    boxes = (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ()))
    return (Reason.STARTING if any(map(_ran, boxes)) else Reason.CONTAINER_CREATING), message


def _again(container: Body) -> str:
    """Return a clause about the last termination of a container that was restarted. The clause is a part of the message
    about the pod until the container is ready.
    """
    times = _number(container.get("restartCount"), 1)
    return "it was restarted" if times <= 1 else f"it was restarted, so far {times} times"


def _ran(container: Body) -> bool:
    """Return whether a container has ever run. If a container has run, the pod has its volumes and its network."""
    state, before = container.get("state") or {}, container.get("lastState") or {}
    return bool(state.get("running") or state.get("terminated") or before.get("terminated"))


def _ended(containers: Iterable[Body]) -> tuple[str, str]:
    """Return the reason and message of the first container in `containers` that failed; ("", "") if none did."""
    for container in containers:
        terminated = (container.get("state") or {}).get("terminated")
        if terminated and terminated.get("exitCode"):
            return terminated.get("reason") or "Error", _last_words(container, terminated)
    return "", ""


def _last_words(container: Body, terminated: Body) -> str:
    words = most_informative_line(terminated.get("message") or "")
    how = f"container {container.get('name')} exited with code {terminated.get('exitCode', 0)}"
    if terminated.get("reason") not in (None, "", "Error", "Completed"):
        how += f" ({terminated['reason']})"
    return f"{how}: {words}" if words else how


def status_writers(body: Body) -> tuple[tuple[str, datetime], ...]:
    """Return the field managers other than this operator and kubectl that wrote the object's status, with the time
    (decisions 24).
    """
    writers = []
    for entry in entries(body.get("metadata") or {}, "status"):
        manager = entry.get("manager") or ""
        if manager == keys.MANAGER or manager.startswith("kubectl"):
            continue
        if (when := quantity.parse_instant(entry.get("time"))) is not None:
            writers.append((manager, when))
    return tuple(writers)


def _number(value: Any, default: int) -> int:
    try:
        return int(value)
    except (TypeError, ValueError, OverflowError):
        return default
