"""Render the router's Deployment of a revision from the present inputs of the service, and decide whether the registry
sidecars of the routers answer requests instead of the routers.
"""

from collections.abc import Mapping

from ome_operator import keys
from ome_operator.core.observed.objects import Manifest
from ome_operator.core.podspec.compose import ComposedPods
from ome_operator.core.reconcile.snapshot import Snapshot
from ome_operator.core.render import registry_sidecar, router
from ome_operator.core.render.statefulsets import StoredRole
from ome_operator.core.resolve.ome_labels import labels_of_template
from ome_operator.core.rollout import zero
from ome_operator.core.rollout.intent import Intent

Leaders = tuple[tuple[str, tuple[str, ...]], ...]
"""(component, addresses of its leaders) for each component."""


def deployment(
    snapshot: Snapshot, intent: Intent, composed: ComposedPods, revision: str, replicas: int, leaders: Leaders
) -> Manifest:
    """Return the Deployment of the router of a revision. `composed` is the router in `intent`; `leaders` are the addresses
    for a router that does not discover leaders itself.
    """
    switched_off = snapshot.service.annotations.get(keys.REGISTRY) == registry_sidecar.OFF
    image = "" if switched_off else snapshot.deps.policy.registry_image
    sidecar = registry_sidecar.sidecar(image, intent.roles(revision), snapshot.deps.policy.pull_secrets)
    runtime = intent.resolved.runtime
    replaced = router.replacement(snapshot.service.spec.router, runtime.spec.router_config if runtime else None)
    annotated = snapshot.service.annotations.get(keys.ROUTER_KEY) or composed.annotations.get(keys.ROUTER_KEY) or ""
    key = annotated if snapshot.deps.policy.router_keys else "false"
    labels = _besides(intent.roles(revision))
    settings = router.RouterSettings(leaders, replaced, labels, key, intent.collector(revision))
    return router.deployment(intent.owner, revision, composed, replicas, sidecar, settings)


def sidecars_answer(snapshot: Snapshot, intent: Intent, revision: str, *, serves: bool) -> bool:
    """Return whether the registry sidecars of a revision's routers answer requests instead of the routers. `serves` states
    whether any engine behind a router gets requests.

    The registries begin to answer when a role has no desired group and no request can be served any more, so leaders are
    drained first. They stop answering when a router has an engine for each role again. A label on the Service of the
    InferenceService states that the registries answer requests.
    """
    if intent.router is None or serves:
        return False
    address = snapshot.controlled("Service", snapshot.service.name)
    begun = address is not None and address.labels.get(keys.ANSWERED_BY) == keys.REGISTRY_ANSWERS
    if not (begun or zero.is_zero(intent.groups)):
        return False
    pod = deployment(snapshot, intent, intent.router, revision, 1, ())["spec"]["template"]["spec"]
    return any(box["name"] == registry_sidecar.NAME for box in pod.get("initContainers") or ())


def _besides(roles: Mapping[str, StoredRole]) -> tuple[tuple[str, str], ...]:
    """Return the OME labels in the stored template of the engine of a revision."""
    engine = roles.get(keys.ENGINE)
    return labels_of_template(engine.leader["spec"]["template"]["metadata"]["labels"]) if engine is not None else ()
