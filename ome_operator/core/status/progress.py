"""How far a role is, and why not farther: counts and one sentence from the facts of its pods."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ome_operator.core.observed.objects import Pod
from ome_operator.core.reasons import ORDINARY, Reason, Why, record_of


class RoleProgressSpec(NamedTuple):
    """What a component should be: `groups` of `size` pods (a router's groups have one pod)."""

    component: str
    title: str
    """What people call it: prefill, decode, engine or router."""
    groups: int
    size: int
    workloads: tuple[tuple[str, str], ...]
    """(kind, name) of its workloads."""


class RoleProgress(NamedTuple):
    """How far a role is."""

    role: RoleProgressSpec
    ready_pods: int
    ready_groups: int
    reason: str
    message: str
    missing: int
    """Pods that do not exist, though they should."""

    @property
    def wanted(self) -> int:
        """Pods that the role should have."""
        return self.role.groups * self.role.size

    @property
    def complete(self) -> bool:
        """Whether every pod of every wanted group is ready."""
        return self.ready_groups >= self.role.groups

    @property
    def counts(self) -> str:
        """`ready/wanted` in pods."""
        return f"{min(self.ready_pods, self.wanted)}/{self.wanted}"


def progress(role: RoleProgressSpec, pods: Iterable[Pod], failures: Mapping[tuple[str, str], str]) -> RoleProgress:
    """How far a role is, over all slices."""
    mine = [pod for pod in pods if pod.component == role.component]
    present = [pod for pod in mine if not pod.deleting]
    ready = [pod for pod in present if pod.ready]
    whole = Counter((pod.revision, pod.workload if role.size == 1 else "", pod.group) for pod in ready)
    groups = len(ready) if role.size == 1 else sum(1 for count in whole.values() if count >= role.size)
    missing = max(0, role.groups * role.size - len(present))
    reason, sentence = _explain(role, mine, missing, failures)
    head = f"{role.title} {min(len(ready), role.groups * role.size)}/{role.groups * role.size}"
    if groups >= role.groups:
        return RoleProgress(role, len(ready), groups, Reason.READY, f"{head} pods ready", missing)
    return RoleProgress(role, len(ready), groups, reason, f"{head}: {sentence}" if sentence else head, missing)


def _explain(role: RoleProgressSpec, pods: list[Pod], missing: int, failures: Mapping[tuple[str, str], str]) -> Why:
    """The gravest reason first, with the words of whoever knows it."""
    failed = next((failures[key] for key in role.workloads if failures.get(key)), "")
    if failed:
        return Why(Reason.PODS_REFUSED, f"{missing} pods cannot be created: {failed}")
    reasons = Counter(_reason(pod) for pod in pods if not pod.ready)
    order = sorted(reasons, key=lambda name: (min(record_of(name).gravity, ORDINARY), name))
    said: list[str] = []
    for name in order:
        words = next((pod.message for pod in pods if pod.reason == name and pod.message), "")
        number = f"{reasons[name]} pod{'s' if reasons[name] > 1 else ''}"
        said.append(f"{number} {record_of(name).pods or name}" + (f", {words}" if words else ""))
    if missing:
        said.append(f"{missing} not created yet")
    first = order[0] if order else Reason.CREATING
    return Why(Reason.PROGRESSING if record_of(first).on_its_way else first, "; ".join(said))


def _reason(pod: Pod) -> str:
    """Why a pod is not ready, as a CamelCase word."""
    return Reason.TERMINATING if pod.deleting else pod.reason or Reason.NOT_READY
