"""Determine how many pods of a role are ready, and why the other pods are not ready, from the states of the pods."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ome_operator.core.observed.objects import Pod
from ome_operator.core.reasons import ORDINARY, Reason, ReasonedMessage, record_of
from ome_operator.util.wording import count

REFUSED = " cannot be created: "
"""Text in a message between the number of pods that the API server refuses and the API server's message."""


class RoleProgressSpec(NamedTuple):
    """The desired state of a component: `groups` of `size` pods. Groups of a router have one pod."""

    component: str
    title: str
    """Name of the component in messages: prefill, decode, engine or router."""
    groups: int
    size: int
    workloads: tuple[tuple[str, str], ...]
    """(kind, name) of each workload of the component."""


class RoleProgress(NamedTuple):
    """The numbers of a role's pods by state, and the reason why some pods are not ready."""

    role: RoleProgressSpec
    ready_pods: int
    ready_groups: int
    reason: str
    message: str
    missing: int
    """Number of desired pods that do not exist."""

    @property
    def desired_pods(self) -> int:
        """Number of pods that the role should have."""
        return self.role.groups * self.role.size

    @property
    def is_complete(self) -> bool:
        """Whether every pod of every desired group is ready."""
        return self.ready_groups >= self.role.groups

    @property
    def counts(self) -> str:
        """The number of ready pods and the number of desired pods, as "ready/desired"."""
        return f"{min(self.ready_pods, self.desired_pods)}/{self.desired_pods}"


def progress(role: RoleProgressSpec, pods: Iterable[Pod], failures: Mapping[tuple[str, str], str]) -> RoleProgress:
    """Return the state of a role over all revisions. `failures` maps (kind, name) of a workload to the reason why it cannot
    create pods.
    """
    role_pods = [pod for pod in pods if pod.component == role.component]
    present = [pod for pod in role_pods if not pod.deleting]
    ready = [pod for pod in present if pod.ready]
    ready_by_group = Counter((pod.revision, pod.workload if role.size == 1 else "", pod.group) for pod in ready)
    groups = len(ready) if role.size == 1 else sum(1 for count in ready_by_group.values() if count >= role.size)
    missing = max(0, role.groups * role.size - len(present))
    head = f"{role.title} {min(len(ready), role.groups * role.size)}/{role.groups * role.size}"
    if groups >= role.groups:
        return RoleProgress(role, len(ready), groups, Reason.READY, f"{head} pods ready", missing)
    reason, sentence = _explain(role, role_pods, missing, failures)
    return RoleProgress(role, len(ready), groups, reason, f"{head}: {sentence}" if sentence else head, missing)


def _explain(
    role: RoleProgressSpec, pods: list[Pod], missing: int, failures: Mapping[tuple[str, str], str]
) -> ReasonedMessage:
    """Return the most severe reason, and a sentence that lists all reasons with the number of pods and a message of one
    of them.
    """
    failed = next((failures[key] for key in role.workloads if failures.get(key)), "")
    if failed:
        number = count(missing, "pod") if missing else "new pods"
        return ReasonedMessage(Reason.PODS_REFUSED, f"{number}{REFUSED}{failed}")
    reasons = Counter(_reason(pod) for pod in pods if not pod.ready)
    order = sorted(reasons, key=lambda name: (min(record_of(name).gravity, ORDINARY), name))
    clauses: list[str] = []
    for name in order:
        message = next((pod.message for pod in pods if pod.reason == name and pod.message), "")
        number = count(reasons[name], "pod")
        clauses.append(f"{number} {record_of(name).pods or name}" + (f", {message}" if message else ""))
    if missing:
        clauses.append(f"{missing} not created yet")
    first = order[0] if order else Reason.CREATING
    return ReasonedMessage(Reason.PROGRESSING if record_of(first).on_its_way else first, "; ".join(clauses))


def _reason(pod: Pod) -> str:
    """Return the reason why a pod is not ready, as a CamelCase word."""
    return Reason.TERMINATING if pod.deleting else pod.reason or Reason.NOT_READY
