"""Determine the Secrets that pods may be waiting for. The operator does not read Secrets, so it does not know whether these
Secrets exist. As long as pods are not ready, it tries to create the Secrets.
"""

from collections import Counter
from collections.abc import Iterable

from ome_operator import keys
from ome_operator.core.observed.managed_fields import digest
from ome_operator.core.observed.objects import Manifest
from ome_operator.core.reconcile.plan import EnsureSecret
from ome_operator.core.reconcile.snapshot import Snapshot
from ome_operator.core.render import router_key, ssh
from ome_operator.core.rollout.drain import Held
from ome_operator.core.rollout.intent import Intent
from ome_operator.core.rollout.step import RolloutStep
from ome_operator.util.memoize import memoize_by_identity

_digest = memoize_by_identity(1024)(digest)


def ssh_keys(snapshot: Snapshot, intent: Intent, step: RolloutStep, held: Held) -> tuple[EnsureSecret, ...]:
    """Return the Secrets with SSH keys, for kept revisions in which pods are not ready."""
    ready = Counter((pod.revision, pod.component) for pod in snapshot.pods if pod.ready and not pod.deleting)
    out = {}
    for revision in step.keep:
        for name, role in intent.roles(revision).items():
            found = ssh.secret(intent.owner, role.leader["spec"]["template"])
            if found is not None and ready[revision, name] < len(held[revision, name].numbers) * role.size:
                out[found["metadata"]["name"]] = EnsureSecret(found)
    return tuple(out.values())


def router_keys(snapshot: Snapshot, intent: Intent, manifests: Iterable[Manifest]) -> tuple[EnsureSecret, ...]:
    """Return the Secret with the key of the routers while a router is starting or being replaced; otherwise ()."""
    waits = any(pod.component == keys.ROUTER and not pod.ready and not pod.deleting for pod in snapshot.pods)
    ready = Counter(pod.revision for pod in snapshot.pods if pod.component == keys.ROUTER and pod.ready and not pod.deleting)
    for item in manifests:
        if item["kind"] != "Deployment" or (found := router_key.secret(intent.owner, item)) is None:
            continue
        short = ready[item["metadata"]["labels"][keys.REVISION]] < item["spec"]["replicas"]
        child = snapshot.controlled("Deployment", item["metadata"]["name"])
        if waits or short or child is None or child.hash != _digest(item):
            return (EnsureSecret(found),)
    return ()
