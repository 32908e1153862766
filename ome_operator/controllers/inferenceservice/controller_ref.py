"""Decide whether an existing object, whose name the operator wants to use, belongs to the service, will be deleted soon, or
belongs to somebody else (decisions 19, 24).

An object belongs to the service if its controller is the service (compared by UID), and if the operator's field manager has
applied the object. Objects that OME created meet only the first condition. Objects from a restored backup meet only the
second.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ome_operator import keys
from ome_operator.core.observed.field_managers import last_writer
from ome_operator.core.observed.from_api import controller
from ome_operator.core.observed.managed_fields import applied_fields
from ome_operator.core.observed.objects import Refusal
from ome_operator.core.reasons import Reason
from ome_operator.core.render.router import RULES


@dataclass(frozen=True)
class Ownership:
    """The result of an ownership check. Either `uid` is the UID of an existing object that the operator may change by an
    apply, or `refusal` is the reason why the operator must not change the object.
    """

    uid: str = ""
    refusal: Refusal | None = None


def claim_object(live: Mapping[str, Any], service: str, service_uid: str) -> Ownership:
    """Return whether the operator may change `live`, an existing object that has a wanted name, for the service with this
    name and UID.
    """
    metadata = live.get("metadata") or {}
    what = f"{live.get('kind')} {metadata.get('name')}"
    owner = controller(metadata)
    applied = applied_fields(live) is not None
    if owner is None:
        labels = metadata.get("labels") or {}
        if applied and labels.get(keys.MANAGED_BY) == keys.MANAGER and labels.get(keys.SERVICE) == service:
            return Ownership(uid=metadata.get("uid") or "")
        return _taken(f"{what} exists and does not belong to this service (last written by {_writer(metadata)})", service)
    if owner.get("uid") == service_uid:
        if applied:
            return Ownership(uid=metadata.get("uid") or "")
        where = f"{metadata.get('namespace')}/{service}"
        why = f"{what} belongs to this service but was created by {_writer(metadata)}"
        return Ownership(
            refusal=Refusal(Reason.NAME_TAKEN, (f"{why}: run `ome adopt service {where}`, or delete this object"))
        )
    if owner.get("kind") == "InferenceService" and owner.get("name") == service:
        return Ownership(
            refusal=Refusal(Reason.WAITING, (f"{what} of the deleted {service} of the same name is still being deleted"))
        )
    return _taken(f"{what} belongs to {owner.get('kind')} {owner.get('name')}", service)


def _taken(reason: str, service: str) -> Ownership:
    return Ownership(
        refusal=Refusal(Reason.NAME_TAKEN, (f"{reason}: delete or rename this object, or give {service} another name"))
    )


def _writer(metadata: Mapping[str, Any]) -> str:
    """Return the field manager that wrote the object last."""
    return last_writer(metadata) or "an unknown client"


def may_be_bound(role: Mapping[str, Any], service_uid: str) -> bool:
    """Return whether a live Role belongs to this service and has exactly the rules that routers need. A binding to
    another Role would grant rights that nobody intended to grant.
    """
    owner = controller(role.get("metadata") or {}) or {}
    return owner.get("uid") == service_uid and role.get("rules") == RULES


def scale(live: Mapping[str, Any], service: str, service_uid: str) -> Ownership:
    """Return whether the operator may change `live`, a RoleScale that has a wanted name. The operator creates a RoleScale
    once and never applies it, so the controller or the labels of the RoleScale determine the ownership.
    """
    metadata = live.get("metadata") or {}
    owner = controller(metadata)
    labels = metadata.get("labels") or {}
    ours = labels.get(keys.MANAGED_BY) == keys.MANAGER and labels.get(keys.SERVICE) == service
    if (owner is None and ours) or (owner is not None and owner.get("uid") == service_uid):
        return Ownership(uid=metadata.get("uid") or "")
    return claim_object(live, service, service_uid)
