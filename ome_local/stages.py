"""Simulate the life of pods and nodes with kwok Stages.

The default Stages are kwok's own fast Stages with four differences: a start delay; a pod annotation that overrides the delay
for one pod; node heartbeats every ten minutes instead of leases; and a single confirmation of each deletion. If several
Stages match a pod, a Stage with a weight takes precedence over the default Stages, which have no weight. A test can
therefore add a Stage for its own pods without changing other pods.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any

Stage = dict[str, Any]
START_DELAY = "pod-ready.stage.kwok.x-k8s.io/delay"
"""Pod annotation with the start delay of one pod, such as `5s`."""

_IS = {True: "Exists", False: "DoesNotExist"}
_RUNNING: Stage = {"key": ".status.phase", "operator": "In", "values": ["Running"]}
_STARTING = """\
hostIP: {{ NodeIPWith .spec.nodeName | Quote }}
podIP: {{ PodIPWith .spec.nodeName ( or .spec.hostNetwork false ) ( or .metadata.uid "" ) ( or .metadata.name "" ) \
( or .metadata.namespace "" ) | Quote }}
startTime: {{ $now | Quote }}
"""
_INIT_DONE = """\
initContainerStatuses:
{{ range .spec.initContainers }}
- image: {{ .image | Quote }}
  name: {{ .name | Quote }}
  ready: true
  restartCount: 0
  {{ if eq .restartPolicy "Always" }}
  started: true
  state: {running: {startedAt: {{ $now | Quote }}}}
  {{ else }}
  state: {terminated: {exitCode: 0, finishedAt: {{ $now | Quote }}, reason: Completed, startedAt: {{ $now | Quote }}}}
  {{ end }}
{{ end }}
"""
_READY = (
    """\
{{ $now := Now }}
conditions:
- {type: Initialized, status: "True", lastTransitionTime: {{ $now | Quote }}}
- {type: Ready, status: "True", lastTransitionTime: {{ $now | Quote }}}
- {type: ContainersReady, status: "True", lastTransitionTime: {{ $now | Quote }}}
{{ range .spec.readinessGates }}
- {type: {{ .conditionType | Quote }}, status: "True", lastTransitionTime: {{ $now | Quote }}}
{{ end }}
containerStatuses:
{{ range .spec.containers }}
- image: {{ .image | Quote }}
  name: {{ .name | Quote }}
  ready: true
  started: true
  restartCount: 0
  state: {running: {startedAt: {{ $now | Quote }}}}
{{ end }}
phase: Running
"""
    + _INIT_DONE
    + _STARTING
)
_COMPLETE = """\
{{ $now := Now }}
containerStatuses:
{{ range .spec.containers }}
- image: {{ .image | Quote }}
  name: {{ .name | Quote }}
  ready: false
  started: false
  restartCount: 0
  state: {terminated: {exitCode: 0, finishedAt: {{ $now | Quote }}, reason: Completed, startedAt: {{ $now | Quote }}}}
{{ end }}
phase: Succeeded
"""
_NOT_READY = """\
{{ $now := Now }}
conditions:
- {type: Ready, status: "False", reason: ContainersNotReady, lastTransitionTime: {{ $now | Quote }}}
- {type: ContainersReady, status: "False", reason: ContainersNotReady, lastTransitionTime: {{ $now | Quote }}}
"""
_FAILED = _NOT_READY + "phase: Failed\n"
_NODE_BEAT = """\
{{ $now := Now }}
{{ $since := or .metadata.creationTimestamp $now }}
conditions:
{{ range NodeConditions }}
- lastHeartbeatTime: {{ $now | Quote }}
  lastTransitionTime: {{ $since | Quote }}
  message: {{ .message | Quote }}
  reason: {{ .reason | Quote }}
  status: {{ .status | Quote }}
  type: {{ .type | Quote }}
{{ end }}
phase: Running
"""
_GONE: Stage = {"finalizers": {"empty": True}, "delete": True}


def defaults(start_delay_s: float = 0.0, *, keeps_finalizers: bool = False) -> list[Stage]:
    """Return the default Stages: nodes become and stay Ready, pods become Ready, pods of Jobs complete, and deleted pods
    disappear at once. Pods become Ready after `start_delay_s` seconds.

    kwok's own Stage removes all finalizers of a deleted pod, which no kubelet does. If `keeps_finalizers` is true, a deleted
    pod fails and keeps its finalizers, as on a real node, until their owner removes them.
    """
    job = {"key": ".metadata.ownerReferences.[].kind", "operator": "In", "values": ["Job"]}
    return [
        _node("node-initialize", "NotIn", 0),
        _node("node-heartbeat", "In", 600_000),
        ready_stage(start_delay_s, name="pod-ready", weight=0),
        _pod("pod-complete", [_deleted(False), _RUNNING, job], {"statusTemplate": _COMPLETE}, 0, None, 0),
        *(_with_finalizers() if keeps_finalizers else [terminate(0.0, name="pod-delete", weight=0)]),
        _pod("pod-delete-again", [_confirmed(True)], {"delete": True} if keeps_finalizers else _GONE, 5.0, None, 0),
    ]


def _with_finalizers() -> list[Stage]:
    over = {"key": ".status.phase", "operator": "In", "values": ["Failed", "Succeeded"]}
    pending = {"key": ".status.podIP", "operator": "DoesNotExist"}
    return [
        _pod("pod-fail", [_deleted(True), _confirmed(False), _RUNNING], {"statusTemplate": _FAILED}, 0, None, 0),
        _pod("pod-delete", [_deleted(True), _confirmed(False), over], {"delete": True}, 0, None, 0),
        _pod("pod-delete-pending", [_deleted(True), _confirmed(False), pending], {"delete": True}, 0, None, 0),
    ]


def ready_stage(
    delay_s: float, labels: Mapping[str, str] | None = None, *, name: str = "slow-start", weight: int = 1
) -> Stage:
    """Return a Stage by which pods with these labels become Ready after `delay_s` seconds, or after the value of their
    annotation START_DELAY. Of the Stages that match a pod, those with a `weight` above 0 take precedence.
    """
    stage = _pod(name, [_deleted(False), _started(False)], {"statusTemplate": _READY}, delay_s, labels, weight)
    stage["spec"]["delay"]["durationFrom"] = {"expressionFrom": f'.metadata.annotations["{START_DELAY}"]'}
    return stage


def terminate(delay_s: float, labels: Mapping[str, str] | None = None, *, name: str = "slow-end", weight: int = 1) -> Stage:
    """Return a Stage by which deleted pods with these labels disappear after `delay_s` seconds."""
    return _pod(name, [_deleted(True), _confirmed(False)], _GONE, delay_s, labels, weight)


def never_ready(
    labels: Mapping[str, str], *, reason: str = "ImagePullBackOff", message: str = "", name: str = "never-ready"
) -> Stage:
    """Return a Stage by which pods with the labels `labels` are bound to a node and then wait forever. `reason` and
    `message` are the reason and the message of their containers' waiting state.
    """
    waiting = _containers({"waiting": {"reason": reason, "message": message}}, restarts=0)
    next_ = {"statusTemplate": _NOT_READY + waiting + "phase: Pending\n" + _STARTING}
    return _pod(name, [_deleted(False), _started(False)], next_, 0, labels, 1)


def crash(
    labels: Mapping[str, str],
    *,
    exit_code: int = 1,
    reason: str = "Error",
    message: str = "",
    after_s: float = 0.0,
    name: str = "crash",
) -> Stage:
    """Return a Stage by which Ready pods with these labels exit once with this code and stay down until they are deleted.
    The containers terminate after `after_s` seconds, with this reason and termination message.
    """
    ended = {"terminated": {"exitCode": exit_code, "reason": reason, "message": message}}
    down = {"waiting": {"reason": "CrashLoopBackOff"}}
    next_ = {"statusTemplate": _NOT_READY + _containers(down, restarts=1, last=ended)}
    is_ready = {
        "key": '.status.conditions.[] | select( .type == "Ready" ) | .status',
        "operator": "In",
        "values": ["True"],
    }
    return _pod(name, [_deleted(False), is_ready], next_, after_s, labels, 1)


def finish_stage(labels: Mapping[str, str], *, exit_code: int = 0, message: str = "", name: str = "finish") -> Stage:
    """Return a Stage by which running pods with these labels terminate with this exit code and termination message."""
    said = {"exitCode": exit_code, "reason": "Error" if exit_code else "Completed", "message": message}
    phase = f"phase: {'Failed' if exit_code else 'Succeeded'}\n"
    next_ = {"statusTemplate": _NOT_READY + _containers({"terminated": said}, restarts=0) + phase}
    return _pod(name, [_deleted(False), _RUNNING], next_, 0, labels, 1)


def config(stages: Iterable[Stage]) -> str:
    """Return kwok's configuration file: YAML documents, each written as JSON. Selectors need a value even for the
    operator `Exists`.
    """
    return "".join(f"---\n{json.dumps(stage)}\n" for stage in stages)


def _containers(state: Stage, *, restarts: int, last: Stage | None = None) -> str:
    more = f"  lastState: {json.dumps(last)}\n" if last else ""
    return f"""\
containerStatuses:
{{{{ range .spec.containers }}}}
- image: {{{{ .image | Quote }}}}
  name: {{{{ .name | Quote }}}}
  ready: false
  started: false
  restartCount: {restarts}
  state: {json.dumps(state)}
{more}{{{{ end }}}}
"""


def _deleted(is_so: bool) -> Stage:
    return {"key": ".metadata.deletionTimestamp", "operator": _IS[is_so]}


def _confirmed(is_so: bool) -> Stage:
    """Return a match expression of a Stage that matches if the kubelet has confirmed a deletion (`is_so` true) or has not
    confirmed it (false). A kubelet confirms a deletion by deleting the pod with a grace period of 0 s.

    The confirmation changes the pod, so kwok would immediately delete the pod again by name, when the name may already
    belong to a new pod. A second deletion is needed only if an API server was killed between the change and the removal.
    """
    key = ".metadata.deletionGracePeriodSeconds | tostring"
    return {"key": key, "operator": "In" if is_so else "NotIn", "values": ["0"]}


def _started(is_so: bool) -> Stage:
    return {"key": ".status.podIP", "operator": _IS[is_so]}


def _pod(
    name: str, expressions: list[Stage], next_: Stage, delay_s: float, labels: Mapping[str, str] | None, weight: int
) -> Stage:
    selector: Stage = {"matchExpressions": expressions}
    if labels:
        selector["matchLabels"] = dict(labels)
    delay = {"durationMilliseconds": round(delay_s * 1000)}
    return _stage(name, "Pod", {"selector": selector, "weight": weight, "delay": delay, "next": next_})


def _node(name: str, operator: str, delay_ms: int) -> Stage:
    is_ready = {
        "key": '.status.conditions.[] | select( .type == "Ready" ) | .status',
        "operator": operator,
        "values": ["True"],
    }
    spec = {"selector": {"matchExpressions": [is_ready]}, "next": {"statusTemplate": _NODE_BEAT}}
    return _stage(name, "Node", {**spec, "delay": {"durationMilliseconds": delay_ms}})


def _stage(name: str, kind: str, spec: Stage) -> Stage:
    return {
        "apiVersion": "kwok.x-k8s.io/v1alpha1",
        "kind": "Stage",
        "metadata": {"name": name},
        "spec": {"resourceRef": {"apiGroup": "v1", "kind": kind}, **spec},
    }
