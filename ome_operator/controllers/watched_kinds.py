"""Determine which kinds the leader watches, with which watcher (kopf or an informer), and with which label selector."""

from collections.abc import Iterable

from ome_operator import keys
from ome_operator.cache.cluster_cache import KINDS, LABELLED, RECORD
from ome_operator.cache.resources import BENCHMARK, CATALOG, SERVICE, SHORT
from ome_operator.core.observed import decoders
from ome_operator.kube.resources import RESOURCES
from ome_operator.util import json_limits
from ome_operator.util.json_limits import FULL_DECODERS
from ome_operator.watch.sink import WatchedKind

SELECTOR = f"{keys.MANAGED_BY}={keys.MANAGER}"
SELECTORS = dict.fromkeys(LABELLED, SELECTOR) | {"ControllerRevision": f"{SELECTOR},!{keys.COMPONENT}"}
"""Label selectors by kind. The selector of ControllerRevisions excludes those that Kubernetes creates for StatefulSets,
which have the labels of their pods."""
WRITTEN = frozenset((SERVICE, *CATALOG, BENCHMARK, *SHORT))
"""Kinds that people write: kopf watches these kinds, and informers watch all other kinds."""
DECODERS = {
    "Pod": decoders.POD,
    "Node": decoders.NODE,
    "StatefulSet": json_limits.PARTIAL_DECODERS,
    RECORD: json_limits.build_decoders(),
}
"""Maps a kind to its decoder, if only some fields of the kind are read, or if most of its fields are read seldom."""


def watches_of(kinds: Iterable[str] = KINDS, namespace: str = "") -> list[WatchedKind]:
    """Return the watches that these kinds need, in the namespace `namespace` or in all namespaces (""). Of some kinds, only
    objects with the operator's label are watched.
    """
    found = []
    for kind in kinds:
        of = RESOURCES[kind]
        selector, read = SELECTORS.get(kind, ""), DECODERS.get(kind, FULL_DECODERS)
        found.append(WatchedKind(kind, of.group, of.version, of.plural, selector, namespace, read))
    return found
