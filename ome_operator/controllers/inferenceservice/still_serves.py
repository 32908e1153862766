"""Determine whether a service still serves although its spec cannot be parsed, or its reconciliation failed."""

import logging

from ome_operator.cache.cluster_cache import ClusterCache
from ome_operator.cache.resources import Resource
from ome_operator.core.observed.objects import Observed
from ome_operator.core.status.serving import observed_serves

logger = logging.getLogger(__name__)


def still_serves(cluster: ClusterCache, resource: Resource) -> bool:
    """Return whether the pods of a service serve. Only the existing objects of the service are considered, not its spec.
    Return False if the result cannot be determined.
    """
    namespace, name = resource.ref.namespace, resource.ref.name
    observed = Observed(cluster.children_of(namespace, name), cluster.pods_of(namespace, name))
    try:
        return observed_serves(observed, name, resource.uid)
    except Exception:
        logger.exception("cannot determine whether %s/%s serves", namespace, name)
        return False
