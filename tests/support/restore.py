"""Restores the objects of a namespace as Velero does (`pkg/restore` of its source): kinds in Velero's order, with
reset metadata. Pods and ReplicaSets come before all other kinds, then Services, and the rest in alphabetical order. Owner
references, UIDs, versions and statuses are removed; managed fields are kept. Objects that exist are skipped.
"""

import copy
import json
from collections.abc import Callable, Collection, Iterator
from typing import Any

from ome_operator.errors import UserError
from tests.support.rig import KINDS, Manifest, Rig

FIRST = ("ServiceAccount", "Secret", "Pod", "ReplicaSet", "Service")
REST = (
    "ControllerRevision", "Deployment", "HorizontalPodAutoscaler", "InferenceService", "PodDisruptionBudget", "Role",
    "RoleBinding", "RoleScale", "StatefulSet",
)  # fmt: skip
ORDER = (*FIRST, *sorted(REST, key=lambda kind: KINDS[kind][1]))
RESET = ("uid", "resourceVersion", "generation", "creationTimestamp", "ownerReferences", "selfLink", "generateName")
BY_OTHERS = ("default", "kube-root-ca.crt")
"""Objects that Kubernetes creates in each namespace."""

Backup = dict[str, list[Manifest]]
"""The objects of a namespace, by kind."""


def backup(rig: Rig, namespace: str) -> Backup:
    """Return all objects of a namespace that a service consists of."""
    return {kind: list(_stored(rig, kind, namespace)) for kind in ORDER}


def restore(
    rig: Rig,
    saved: Backup,
    namespace: str,
    *,
    without: Collection[str] = (),
    after: Callable[[str], Any] = lambda _: None,
) -> None:
    """Restore a backup into a namespace, except for the kinds in `without`. `after` is called with a kind after the objects
    of this kind are restored.
    """
    for kind in ORDER:
        if kind not in without and saved[kind]:
            _create(rig, [_reset(body, namespace) for body in saved[kind]])
        after(kind)


def _create(rig: Rig, bodies: list[Manifest]) -> None:
    """Create objects with kubectl, which writes JSON as Velero does: in compact form, with sorted keys. The API server
    compares the data of a ControllerRevision byte by byte.
    """
    whole = {"apiVersion": "v1", "kind": "List", "items": bodies}
    try:
        rig.cluster.kubectl("create", "-f", "-", stdin=json.dumps(whole))
    except UserError as error:
        if "already exists" not in str(error):
            raise


def _stored(rig: Rig, kind: str, namespace: str) -> Iterator[Manifest]:
    api = KINDS[kind][0].removeprefix("apis/").removeprefix("api/")
    for body in rig.all(kind, namespace):
        if body["metadata"]["name"] not in BY_OTHERS:
            yield {"apiVersion": api, "kind": kind, **body}


def _reset(body: Manifest, namespace: str) -> Manifest:
    """Return an object as it is restored into a namespace."""
    out = copy.deepcopy(body)
    before, metadata = out["metadata"]["namespace"], out["metadata"]
    out["metadata"] = {key: value for key, value in metadata.items() if key not in RESET} | {"namespace": namespace}
    out["metadata"]["labels"] = {
        **(metadata.get("labels") or {}),
        "velero.io/backup-name": "daily",
        "velero.io/restore-name": "r1",
    }
    out.pop("status", None)
    if body["kind"] == "Pod":
        for field in ("nodeName", "priority"):
            out["spec"].pop(field, None)
    if body["kind"] == "Service" and out["spec"].get("clusterIP") != "None":
        for field in ("clusterIP", "clusterIPs"):
            out["spec"].pop(field, None)
    for subject in out.get("subjects") or ():
        if subject.get("namespace") == before:
            subject["namespace"] = namespace
    return out
