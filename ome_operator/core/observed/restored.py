"""Recognize revisions and pods that were restored from a backup of another namespace.

The stored templates of a revision contain the DNS names of the ranks, and a DNS name contains the namespace. Pods that are
made from a copy of the revision in another namespace contact the ranks of the original service (decisions 41).
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ome_operator import keys, names
from ome_operator.core.observed.slices import Revision
from ome_operator.util.memoize import memoize_by_identity

LEADER_ADDRESS = "LWS_LEADER_ADDRESS"
"""Name of the environment variable with the DNS name of the leader of the pod's group."""
OWN_NAME, OWN_GROUP = "$(POD_NAME)", "$(LWS_GROUP_INDEX)"
"""References in the value of `LEADER_ADDRESS`: in the template of a leader to the name of its own pod, and in the template
of a worker to the number of its group."""


def original_namespace(revision: Revision, service: str, namespace: str) -> str:
    """Return the namespace for which a restored revision of the service `service` was rendered. A revision counts as
    restored if no service owns it, and if it was rendered for another namespace than `namespace`. Return "" for every other
    revision.

    A backup is restored without owner references. The service may be serving with a revision that it owns, so the result is
    "" for such a revision, whatever its addresses are.
    """
    return "" if revision.child.owner else other_namespace(revision, service, namespace)


def contacted_namespace(boxes: Iterable[Mapping[str, Any]], labels: Mapping[str, str], namespace: str) -> str:
    """Return the namespace of the leader that a pod contacts, if it is another namespace than `namespace`, the namespace of
    the pod. Otherwise return "". `boxes` are the containers of the pod, and `labels` its labels.
    """
    service, revision = labels.get(keys.SERVICE) or "", labels.get(keys.REVISION) or ""
    found = (_namespace(value, service, revision) for value in _values(boxes))
    return next((name for name in found if name not in ("", namespace)), "")


def other_namespace(revision: Revision, service: str, namespace: str) -> str:
    """Return the namespace in the addresses of the stored revision `revision` of the service `service`, if it is not
    `namespace`. Otherwise return "".
    """
    return _other_namespace(revision.data, revision.name, service, namespace)


@memoize_by_identity(1024)
def _other_namespace(data: Mapping[str, Any], revision: str, service: str, namespace: str) -> str:
    found = (_namespace(value, service, revision) for value in _addresses(data))
    return next((name for name in found if name not in ("", namespace)), "")


def _addresses(data: Mapping[str, Any]) -> Iterator[str]:
    """Yield the addresses of the leader in the stored templates of all pods of a revision."""
    for role in (data.get("workloads") or {}).values():
        for workload in (role.get("leader"), role.get("worker")):
            yield from _values(workload["spec"]["template"]["spec"]["containers"] if workload else ())


def _values(boxes: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    for box in boxes:
        for entry in box.get("env") or ():
            if entry.get("name") == LEADER_ADDRESS:
                yield str(entry.get("value") or "")


def _namespace(address: str, service: str, revision: str) -> str:
    """Return the namespace of an address that the operator has written; "" for an address that a user has written."""
    stems = (names.object_prefix(service, component, revision) for component in (keys.ENGINE, keys.DECODER))
    for pod in (OWN_NAME, *(names.leader_pod(stem, OWN_GROUP) for stem in stems)):
        prefix = names.address(pod, service, "")
        if address.startswith(prefix):
            return address.removeprefix(prefix)
    return ""
