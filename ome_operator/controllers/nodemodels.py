"""Reconcile NodeModels records. Write the labels of nodes, which agents cannot write, and tell agents which directories of
weights they may delete, and which directories starting pods read.
"""

import logging

from ome_operator import keys
from ome_operator.cache.event_handler import EventHandler
from ome_operator.cache.facts import NodeResource
from ome_operator.cache.resources import HELD
from ome_operator.cache.scope import EVERYWHERE, Scope
from ome_operator.controllers.prefetching import starting_directories
from ome_operator.controllers.weights_gc import WeightsGC
from ome_operator.core.catalog import agreement, node_models
from ome_operator.core.observed.objects import NodeRecord, Ref
from ome_operator.kube.client import Client
from ome_operator.kube.errors import KubeError, NotFound
from ome_operator.machinery.workqueue import WorkQueue

logger = logging.getLogger(__name__)

OFFERED_AGAIN = 10.0
"""Seconds until the next check of whether anything still refers to the directories that an agent offers to delete."""
CROWDED_AGAIN = 60.0
"""Seconds until the next check of which models are in use, if not all desired labels fit on the node."""


class NodeModelsReconciler:
    """Reconciles nodes that have a NodeModels record."""

    def __init__(
        self,
        handler: EventHandler,
        client: Client,
        queue: WorkQueue[Ref],
        resync: float,
        scope: Scope = EVERYWHERE,
        roots: tuple[str, ...] = (),
    ) -> None:
        """Initialize the reconciler. `roots` are the directories below which agents store weights."""
        self._handler, self._cluster = handler, handler.cache
        self._client, self._queue, self._resync, self._scope = client, queue, resync, scope
        self._removals, self._roots = WeightsGC(handler.cache, client), roots

    async def reconcile(self, ref: Ref) -> bool:
        """Reconcile a node. Always return True; unexpected errors are raised. A node whose record has disappeared keeps its
        labels, because the files are still on the node.
        """
        record, resource = self._cluster.record(ref.name), self._cluster.node(ref.name)
        if record is None or resource is None or not self._scope.labels_nodes:
            self._queue.forget(ref)
            return True
        held = self._cluster.global_hold()
        if held is not None and held.is_observe_mode:  # observe mode ends only with a new process, which reads all records
            self._queue.forget(ref)
            return True
        wanted = labels_to_apply(
            resource, node_models.labels(record.holdings, self._pins(record), record.unused, self._handler.is_referenced)
        )
        try:
            if labels_differ(resource, wanted):
                metadata = {"name": ref.name, "labels": wanted}
                await self._client.apply({"apiVersion": "v1", "kind": "Node", "metadata": metadata}, resource.uid)
            if self._scope.removes_weights:
                await self._removals.answer(record, self._starting(record, held is not None), frozen=held is not None)
        except NotFound:
            pass  # the node or its record was deleted, and events will follow
        except KubeError as error:
            delay = self._queue.retry(ref, at_least=error.retry_after)
            logger.info("cannot act on the record of node %s, and tries again in %.0f s: %s", ref.name, delay, error)
            return True
        self._queue.reset_backoff(ref)
        delay = CROWDED_AGAIN if len(wanted) >= node_models.LABEL_LIMIT else self._resync
        self._queue.add(ref, OFFERED_AGAIN if any(unused.offer for unused in record.unused) else delay)
        return True

    def _starting(self, record: NodeRecord, frozen: bool) -> tuple[str, ...]:
        """Return the directories that the agent should read into the page cache. If `frozen` is true, return the directories
        of the last such request to the agent.
        """
        if record.prefetch is None or frozen:
            return record.prefetch or ()
        return starting_directories(self._cluster, record.node, self._roots)

    def _pins(self, record: NodeRecord) -> dict[Ref, agreement.Pin]:
        """Return the URI and the revision to which the operator has pinned the weights of each model in the record."""
        found = {}
        for ref in (holding.ref for holding in record.holdings if holding.ref.kind in HELD):
            resource = self._cluster.find_resource(ref)
            if resource is not None and (weights := resource.status.get("weights")):
                found[ref] = agreement.Pin(weights.get("uri") or "", weights.get("revision") or "")
        return found


def labels_to_apply(resource: NodeResource, wanted: dict[str, str]) -> dict[str, str]:
    """Return the model labels to apply to a node. A label that a person has set to `Ready` is left out, and so stays
    unchanged, until the agent reports the same state.

    Pods that were created before agents were installed need such a label on their node, while the agent has not checked the
    files yet.
    """
    have, ours = resource.node.labels, resource.node.ours
    theirs = {key for key, value in have.items() if value == keys.MODEL_READY and key not in ours}
    return {key: value for key, value in wanted.items() if value == keys.MODEL_READY or key not in theirs}


def labels_differ(resource: NodeResource, wanted: dict[str, str]) -> bool:
    """Return whether the model labels of a node have to be written: a desired label is missing, differs or is not owned by
    the operator yet, or the operator owns a label that is no longer desired.
    """
    have = resource.node.labels
    ours = {key for key in resource.node.ours if key.startswith(keys.MODEL_LABEL_PREFIX)}
    return ours != wanted.keys() or any(have.get(key) != value for key, value in wanted.items())
