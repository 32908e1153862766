"""Makes a recording of one reconciliation pass over a service of a live cluster, with the rights of the user."""

from datetime import UTC, datetime

from ome_operator.api import InferenceService, Invalid
from ome_operator.cache.cluster_cache import RECORD
from ome_operator.cache.resources import CATALOG, SERVICE, SHORT
from ome_operator.cli.live.cluster_from_manifests import build_cluster
from ome_operator.cli.live.trees import selector
from ome_operator.core.observed.objects import Deps, Observed, Ref
from ome_operator.core.reconcile.plan import Plan
from ome_operator.core.reconcile.sync import sync
from ome_operator.errors import UserError
from ome_operator.kube.client import Client
from ome_operator.kube.listing import list_all
from ome_operator.kube.resources import CHILDREN
from ome_operator.recorder.passes import Pass, PassRecorder, SharedNodes
from ome_operator.recorder.replay import as_applied


async def live(client: Client, namespace: str, name: str) -> Pass:
    """Return what the operator would observe and decide now. Raises KubeError if a request fails, NotFound if the service
    does not exist, and UserError if the service cannot be parsed.

    The settings and the memory of a running operator are not available here. So an object that nobody has edited is treated
    as if the operator had applied its present manifest.
    """
    body = await client.get(SERVICE, namespace, name)
    referred = await list_all(client, (*CATALOG, *SHORT, "Node", RECORD), optional=("Node", RECORD))
    parts = await list_all(client, (*CHILDREN, "Pod"), namespace, selector(name))
    agent = any(found["kind"] == RECORD for found in referred)
    there = build_cluster(
        [*referred, *parts, {**body, "apiVersion": InferenceService.API_VERSION, "kind": SERVICE}], model_agent=agent
    )
    resource = there.find_resource(Ref(SERVICE, namespace, name))
    if resource is None or isinstance(resource.parsed, Invalid):
        why = "the object is not an InferenceService" if resource is None else resource.parsed.why
        raise UserError(f"the InferenceService {name} in namespace {namespace} cannot be read: {why}.")
    seen = Observed(there.children_of(namespace, name), there.pods_of(namespace, name))
    return record_pass(resource.parsed, there.deps(), seen, datetime.now(UTC))


def record_pass(service: InferenceService, deps: Deps, observed: Observed, now: datetime) -> Pass:
    """Run a reconciliation pass of the service, and return its recording."""
    outcome = _outcome(service, deps, observed, now)
    if isinstance(outcome, Plan):
        observed = as_applied(outcome, observed)
    recorder = PassRecorder(service, deps, observed)
    return recorder.finish_pass(now, _outcome(service, recorder.deps, recorder.observed, now), SharedNodes())


def _outcome(service: InferenceService, deps: Deps, observed: Observed, now: datetime) -> Plan | Exception:
    try:
        return sync(service, deps, observed, now)
    except Exception as error:  # the operator would report InternalError, so the error itself has to be recorded
        return error
