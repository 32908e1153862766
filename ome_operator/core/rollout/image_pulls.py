"""Pull the images of a new revision onto the nodes of the serving groups before the rollout replaces groups
(decisions 45; docs/rollouts.md).

The computation is stateless. The Jobs that pull images show which images were pulled, and since when the rollout waits.
Nothing is pulled, and nothing waits, unless the serving revision is complete and unchanged: a service that has lost a group,
and a rollout that has begun to remove groups, are never held up. The wait ends when no Job of the service runs, at the
latest after `Policy.image_pull_timeout`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from enum import Enum
from typing import Any, NamedTuple

from ome_operator import keys, names, quantity
from ome_operator.core.observed.objects import Child, Manifest
from ome_operator.core.observed.slices import Slice
from ome_operator.core.placement.demand import demand
from ome_operator.core.placement.need import node_accepts
from ome_operator.core.reasons import Reason
from ome_operator.core.reconcile.snapshot import Snapshot
from ome_operator.core.render import image_pull
from ome_operator.core.render.statefulsets import StoredRole
from ome_operator.core.rollout.intent import ImagePulls, Intent
from ome_operator.core.rollout.planner import ReplicaCounts
from ome_operator.core.rollout.step import RolloutGate, stored_hold
from ome_operator.util.wording import count

PODLESS_S = 30.0
"""A Job that has no pod for this many seconds is considered failed, because a quota or an admission policy refuses its pod.
"""
SHOWN = 3
"""Largest number of failed Jobs that a message names."""


class PullOutcome(Enum):
    """The result of a Job that pulls an image onto a node: it still runs, the image was pulled, or the Job failed."""

    ACTIVE = "active"
    PULLED = "pulled"
    FAILED = "failed"


class NodePull(NamedTuple):
    """An image that has to be pulled onto a node: the image of the main container of `template`."""

    node: str
    template: Manifest

    @property
    def image(self) -> str:
        """The image that has to be pulled."""
        return str(_main(self.template)["image"])


def pulled_first(snapshot: Snapshot, intent: Intent, counts: ReplicaCounts, *, begins: bool) -> Intent:
    """Return the intent, extended by the Jobs to create and by advice about images that could not be pulled. While the
    images of the target are pulled, the gate of the intent is closed. `begins` states whether the rollout would begin in
    this pass: the service waits for no wave, and has not waited for free capacity.
    """
    jobs, now = _jobs(snapshot), snapshot.now
    failures = tuple(_failures(snapshot, jobs, intent.target))
    if jobs or failures:  # seldom true
        intent = replace(intent, pulls=ImagePulls(active=_active(jobs, now)), advice=(*intent.advice, *failures))
    serving = _replaced(snapshot, intent, counts) if begins and snapshot.deps.policy.image_pulls else None
    if serving is None:
        return intent
    wanted = {_name(intent, pull): pull for pull in _pulls(snapshot, intent, serving)}
    outcomes = {name: pull_outcome(jobs[name], now) for name in wanted if name in jobs}
    left = _left(snapshot, jobs, intent.target)
    missing = [name for name in wanted if name not in jobs and ("Job", name) not in snapshot.observed.refusals]
    free = max(0, snapshot.deps.policy.image_pulls - snapshot.observed.pulls - intent.pulls.active)
    new = missing[:free] if left > 0 else []
    waits = PullOutcome.ACTIVE in outcomes.values() or bool(new)
    if left <= 0 or not waits:
        return intent
    seconds = snapshot.deps.policy.image_pull_timeout
    create = tuple(image_pull.job(intent.owner, intent.target, *wanted[name], seconds) for name in new)
    pulls = ImagePulls(create, intent.pulls.active + len(new), min(left, PODLESS_S))
    pulled = sum(found is PullOutcome.PULLED for found in outcomes.values())
    failed = sum(found is PullOutcome.FAILED for found in outcomes.values()) + len(wanted.keys() - jobs.keys() - {*missing})
    return replace(intent, pulls=pulls, gate=_gate(intent.target, pulled, failed, len(wanted), seconds))


def active_pulls(snapshot: Snapshot) -> int:
    """Return the number of the service's Jobs that pull images now, for any revision."""
    return _active(_jobs(snapshot), snapshot.now)


def _active(jobs: Mapping[str, Child], now: datetime) -> int:
    return sum(pull_outcome(job, now) is PullOutcome.ACTIVE for job in jobs.values())


def pull_outcome(job: Child, now: datetime) -> PullOutcome:
    """Return the result of a Job that pulls an image. If a container of its pod has exited, with whatever code, the image
    was pulled (`core/render/image_pull.py`).
    """
    status = _status(job)
    for condition in status.get("conditions") or ():
        if condition.get("status") != "True" or condition.get("type") not in ("Complete", "Failed"):
            continue
        pulled = condition["type"] == "Complete" or condition.get("reason") == "PodFailurePolicy"
        return PullOutcome.PULLED if pulled else PullOutcome.FAILED
    began = quantity.moment(status.get("startTime") or "", now)
    pods = any(status.get(kind) for kind in ("active", "succeeded", "failed", "terminating", "uncountedTerminatedPods"))
    podless = began is not None and not pods and (now - began).total_seconds() >= PODLESS_S
    return PullOutcome.FAILED if podless or job.deleting else PullOutcome.ACTIVE


def _gate(target: str, pulled: int, failed: int, wanted: int, seconds: float) -> RolloutGate:
    done = f"{pulled} of {count(wanted, 'image')} {'is' if wanted == 1 else 'are'} on the nodes of the serving groups"
    but = f", {failed} could not be pulled" if failed else ""
    ends = f"the rollout begins when the other images are there, at the latest after {seconds:.0f} s"
    return RolloutGate(Reason.PULLING_IMAGES, f"revision {target} waits for its images: {done}{but}; {ends}")


def _replaced(snapshot: Snapshot, intent: Intent, counts: ReplicaCounts) -> Slice | None:
    """Return the slice whose groups the rollout would begin to remove now, before new groups serve. Return None if there is
    no such slice, or if it is incomplete or already being changed.

    Also return None for a rollback or a pinned revision. Such a revision may be a repair, so its rollout does not wait for
    images.
    """
    bounds, others = counts.bounds, [found for name, found in snapshot.slices.items() if name != intent.target]
    ends = bounds.alone or any(bounds.unavailable.values())
    if not intent.target or intent.gate.reason or intent.aim.is_named or snapshot.has_engines(intent.target):
        return None
    if counts.paused or not ends or len(others) != 1 or not counts.is_complete(others[0].revision):
        return None
    (serving,) = others
    routed = any(child.kind == "Deployment" and not child.deleting for child in serving.workloads)
    if any(pod.draining or pod.deleting for pod in serving.pods) or (keys.ROUTER in intent.groups and not routed):
        return None  # groups are removed already, or somebody deletes pods
    return serving


def _pulls(snapshot: Snapshot, intent: Intent, serving: Slice) -> list[NodePull]:
    """Return the images that have to be pulled, and onto which nodes: for each node of a serving group that accepts the pods
    of the target, the images that the service does not use on this node yet.

    A node is left out if the service has a container there that is always pulled: a restart of this container would wait
    for the new image if the kubelet pulls one image at a time.
    """
    new, old = intent.roles(intent.target), intent.roles(serving.revision)
    known: dict[str, set[str]] = {}
    wanted: dict[str, dict[str, Manifest]] = {}
    busy = set[str]()
    for pod in serving.pods:
        if not pod.node or pod.component not in new or pod.component not in old:
            continue
        before, after = (_template(roles[pod.component], pod.rank) for roles in (old, new))
        known.setdefault(pod.node, set()).add(str(_main(before).get("image")))
        if any(image_pull.policy(box) == image_pull.ALWAYS for box in _containers(before)):
            busy.add(pod.node)
        if image_pull.policy(_main(after)) != image_pull.NEVER and _accepts(snapshot, intent, pod.node, after):
            wanted.setdefault(pod.node, {}).setdefault(str(_main(after)["image"]), after)
    return [
        NodePull(node, template)
        for node, images in sorted(wanted.items())
        for image, template in sorted(images.items())
        if node not in busy and image not in known[node]
    ]


def _accepts(snapshot: Snapshot, intent: Intent, node: str, template: Manifest) -> bool:
    """Return whether a node accepts pods of a template. If the operator reads no nodes, the result is True."""
    deps = snapshot.deps
    if not deps.policy.sees_cluster:
        return True
    found = deps.nodes.get(node)
    return found is not None and node_accepts(demand(template, True).without(intent.fit.excluded), found, False)


def _left(snapshot: Snapshot, jobs: Mapping[str, Child], target: str) -> float:
    """Return the seconds for which the rollout may still wait for images; 0 or less if it may not wait longer. The wait
    began when the first Job of the target started, or when the status of the service first reported the wait, whichever was
    earlier.
    """
    hold, now = stored_hold(snapshot.service.status), snapshot.now
    dates = [_status(job).get("startTime") or "" for job in jobs.values() if _of(job, target)]
    if (hold.get("gate"), hold.get("target")) == (Reason.PULLING_IMAGES, target):
        dates.append(str(hold.get("since") or ""))
    since = min((when for date in dates if (when := quantity.moment(date, now)) is not None), default=now)
    return snapshot.deps.policy.image_pull_timeout - (now - since).total_seconds()


def _failures(snapshot: Snapshot, jobs: Mapping[str, Child], target: str) -> Iterator[str]:
    """Yield a sentence about images of the target that could not be pulled, until the rollout is complete."""
    if not target or not snapshot.slices.keys() - {target}:
        return
    prefix = names.image_pull(snapshot.service.name, target)
    refused = {name: why for (kind, name), why in snapshot.observed.refusals.items() if kind == "Job"}
    why = {name: f"refused: {refusal.message}" for name, refusal in sorted(refused.items()) if name.startswith(prefix)}
    for name, job in sorted(jobs.items()):
        if _of(job, target) and pull_outcome(job, snapshot.now) is PullOutcome.FAILED:
            why[name] = f"kubectl describe job {name} -n {job.namespace}"
    if why:
        said = "; ".join([f"{name} ({text})" for name, text in why.items()][:SHOWN])
        more = f" and {len(why) - SHOWN} more" if len(why) > SHOWN else ""
        what = "a Job" if len(why) == 1 else f"{len(why)} Jobs"
        yield (
            f"{what} could not pull an image of revision {target}, and the rollout does not wait for the image: {said}{more}"
        )


def _jobs(snapshot: Snapshot) -> dict[str, Child]:
    """Return the service's Jobs that pull images, by name."""
    children = snapshot.observed.children.values()
    return {child.name: child for child in children if child.kind == "Job" and child.owner == snapshot.service.uid}


def _of(job: Child, revision: str) -> bool:
    return job.labels.get(keys.REVISION) == revision


def _status(job: Child) -> Mapping[str, Any]:
    return (job.content or {}).get("status") or {}


def _name(intent: Intent, pull: NodePull) -> str:
    return image_pull.name(intent.owner, intent.target, pull.node, pull.image)


def _template(role: StoredRole, rank: int) -> Manifest:
    found: Manifest = (role.worker if rank and role.worker is not None else role.leader)["spec"]["template"]
    return found


def _containers(template: Manifest) -> list[Manifest]:
    spec = template["spec"]
    return [*(spec.get("initContainers") or ()), *spec["containers"]]


def _main(template: Manifest) -> Manifest:
    found: Manifest = template["spec"]["containers"][0]
    return found
