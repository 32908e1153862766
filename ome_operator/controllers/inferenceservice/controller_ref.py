"""Whether an object that already has a name we want is ours, will be free soon, or is somebody else's (decisions 19, 24).

Ours means two things at once: its controller is this very service (by UID), and our field manager applied it. OME's own
objects have the former without the latter; a restored backup has the latter without the former.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ome_operator import keys
from ome_operator.core.observed.from_api import controller
from ome_operator.core.observed.managed_fields import applied_fields
from ome_operator.core.observed.objects import Refusal
from ome_operator.core.reasons import Reason
from ome_operator.core.render.router import RULES


@dataclass(frozen=True)
class Ownership:
    """Either `uid`, the object that may be applied over, or `refusal`, why not."""

    uid: str = ""
    refusal: Refusal | None = None


def claim_object(live: Mapping[str, Any], service: str, service_uid: str) -> Ownership:
    """What a live object under a wanted name is to the service of this name and UID."""
    metadata = live.get("metadata") or {}
    what = f"{live.get('kind')} {metadata.get('name')}"
    owner = controller(metadata)
    applied = applied_fields(live) is not None
    if owner is None:
        labels = metadata.get("labels") or {}
        if applied and labels.get(keys.MANAGED_BY) == keys.MANAGER and labels.get(keys.SERVICE) == service:
            return Ownership(uid=metadata.get("uid") or "")
        return _taken(f"{what} exists and is not ours (last written by {_writer(metadata)})", service)
    if owner.get("uid") == service_uid:
        if applied:
            return Ownership(uid=metadata.get("uid") or "")
        where = f"{metadata.get('namespace')}/{service}"
        why = f"{what} belongs to this service but was made by {_writer(metadata)}"
        return Ownership(refusal=Refusal(Reason.NAME_TAKEN, f"{why}: run `ome adopt service {where}`, or delete it"))
    if owner.get("kind") == "InferenceService" and owner.get("name") == service:
        return Ownership(refusal=Refusal(Reason.WAITING, f"{what} of the former {service} is still being deleted"))
    return _taken(f"{what} belongs to {owner.get('kind')} {owner.get('name')}", service)


def _taken(why: str, service: str) -> Ownership:
    return Ownership(refusal=Refusal(Reason.NAME_TAKEN, f"{why}: delete or rename it, or give {service} another name"))


def _writer(metadata: Mapping[str, Any]) -> str:
    """The field manager that wrote last."""
    entries = [entry for entry in metadata.get("managedFields") or () if not entry.get("subresource")]
    entries.sort(key=lambda entry: entry.get("time") or "")
    return str(entries[-1].get("manager")) if entries else "somebody else"


def may_be_bound(role: Mapping[str, Any], service_uid: str) -> bool:
    """Whether a live Role belongs to this service and holds what routers need and no more: of somebody else's Role a
    binding would hand out rights that nobody meant to give.
    """
    owner = controller(role.get("metadata") or {}) or {}
    return owner.get("uid") == service_uid and role.get("rules") == RULES


def scale(live: Mapping[str, Any], service: str, service_uid: str) -> Ownership:
    """What a RoleScale under a wanted name is. We create it once and never apply it, so its owner tells, or our labels."""
    metadata = live.get("metadata") or {}
    owner = controller(metadata)
    labels = metadata.get("labels") or {}
    ours = labels.get(keys.MANAGED_BY) == keys.MANAGER and labels.get(keys.SERVICE) == service
    if (owner is None and ours) or (owner is not None and owner.get("uid") == service_uid):
        return Ownership(uid=metadata.get("uid") or "")
    return claim_object(live, service, service_uid)
