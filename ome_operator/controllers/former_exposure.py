"""Delete Ingresses or HTTPRoutes that the operator created under another value of `exposure.kind` (docs/exposure.md).

An operator watches only the kind that it creates. When it becomes the leader, it therefore lists the objects of the other
kinds once, which an operator with another setting may have left behind.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence

from ome_operator import keys
from ome_operator.core.observed.from_api import controller
from ome_operator.core.observed.objects import Manifest
from ome_operator.kube.client import Client
from ome_operator.kube.errors import Conflict, Forbidden, KubeError, NotFound, Transient
from ome_operator.kube.resources import EXPOSED, RESOURCES

logger = logging.getLogger(__name__)

AFTER_S = 60.0
"""Seconds until objects of the previous kind are deleted, if the operator now creates another kind. The new objects have
to exist first."""
AGAIN_S = 10.0
"""Seconds between two attempts while the API server does not answer."""
_SELECTOR = f"{keys.MANAGED_BY}={keys.MANAGER}"


async def remove(
    client: Client,
    made: str,
    *,
    owns: Callable[[str], bool],
    places: Sequence[str] = ("",),
    held: Callable[[], bool] = lambda: False,
    after: float = AFTER_S,
    again: float = AGAIN_S,
) -> None:
    """Delete the operator's objects of all kinds that expose services, except the kind `made` ("": no exception). Objects
    that the operator has no right to delete are kept, and this is logged.

    `owns` returns whether the service with this UID belongs to this operator, and not to an operator of another class.
    `places` are the namespaces, or "" for all. `held` returns whether everything is frozen or observed
    (docs/observe-freeze.md); nothing is deleted while it returns True. `after` and `again` are the seconds described for
    `AFTER_S` and `AGAIN_S`.
    """
    if made:
        await asyncio.sleep(after)
    for kind in EXPOSED:
        while kind != made:
            if not held() and await _remove_kind(client, kind, places, owns):
                break
            await asyncio.sleep(again)


async def _remove_kind(client: Client, kind: str, places: Sequence[str], owns: Callable[[str], bool]) -> bool:
    """Delete the operator's objects of a kind in all `places`, and return whether this is finished. If it is not finished,
    the API server did not answer. Objects that cannot be deleted for another reason are kept.
    """
    try:
        for place in places:
            await _remove(client, kind, place, owns)
    except Transient as error:
        logger.info("cannot read or delete objects of the previous kind %s, and tries again: %s", kind, error)
        return False
    except Forbidden as error:
        logger.info(
            "objects of the previous kind %s are kept, because the operator may not delete them (the chart value "
            "exposure.removeFormer grants the right): %s",
            kind,
            error,
        )
    except KubeError as error:
        logger.warning("objects of the previous kind %s are kept: %s", kind, error)
    return True


async def _remove(client: Client, kind: str, place: str, owns: Callable[[str], bool]) -> None:
    resource = RESOURCES[kind]
    if resource.plural not in await client.served_plurals(resource.api_version):
        return
    for found in await client.list_metadata(kind, place, label_selector=_SELECTOR):
        if not owns(_service(found)):
            continue
        try:
            await client.delete(kind, found["namespace"], found["name"], found["uid"])
        except (Conflict, NotFound):
            continue  # somebody else deleted it first
        logger.info("deleted %s %s/%s, because exposure.kind was changed", kind, found["namespace"], found["name"])


def _service(metadata: Manifest) -> str:
    """Return the UID of the service that controls the object with this metadata; "" if no service controls it. The object's
    label proves nothing, because a copy of the object has the same label.
    """
    owner = controller(metadata) or {}
    ours = owner.get("kind") == "InferenceService" and str(owner.get("apiVersion")).startswith(f"{keys.GROUP}/")
    return str(owner.get("uid") or "") if ours else ""
