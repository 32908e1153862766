"""Write statuses by server-side apply of the status subresource, only if the fields that are stored under the operator's
field manager differ.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

from ome_operator.cache.event_handler import EventHandler
from ome_operator.cache.resources import Resource
from ome_operator.core.observed import managed_fields
from ome_operator.kube.client import Client
from ome_operator.kube.errors import NotFound
from ome_operator.kube.resources import RESOURCES, kind_of_resource
from ome_operator.util.memoize import memoize_by_identity

Written = tuple[str, str]
"""Two digests: of the status that the operator wrote, and of the fields that the server stored for this status."""


def status_differs(resource: Resource, status: Mapping[str, Any], last: Written) -> bool:
    """Return whether the status has to be written. `last` is the result of the last write. If the server stored the last
    write with a changed value, the same status is not written again. Otherwise the operator would write the status
    without end.
    """
    wanted = _digest(status)
    return resource.status_owned != wanted and (wanted, resource.status_owned) != last


def bug_message(error: Exception) -> str:
    """Return the message of a condition for an unexpected error of the operator."""
    return f"the operator failed ({type(error).__name__}: {error}): please report this with its log"


async def write(client: Client, handler: EventHandler, resource: Resource, status: Mapping[str, Any]) -> Written | None:
    """Write the status of an object. Return the digests to compare before the next write; None if the object is gone."""
    manifest = {
        "apiVersion": RESOURCES[resource.ref.kind].api_version,
        "kind": kind_of_resource(resource.ref.kind),
        "metadata": {"name": resource.ref.name, **({"namespace": resource.ref.namespace} if resource.ref.namespace else {})},
        "status": status,
    }
    try:
        applied = await client.apply(manifest, resource.uid, subresource="status")
    except NotFound:
        return None
    written = handler.handle_written(resource.ref.kind, applied.body)
    assert isinstance(written, Resource)  # the cache stores all kinds whose statuses the operator writes
    return _digest(status), written.status_owned


@memoize_by_identity(64, grows=False)
def _digest(status: Mapping[str, Any]) -> str:
    """Return the digest of a status. The result is cached, because the same status is digested before
    and after its write.
    """
    return managed_fields.digest({"status": status})


def co_writer(writers: Iterable[tuple[str, datetime]], now: datetime, lately: timedelta) -> str:
    """Return the name of another field manager that has written the status less than `lately` ago; "" if no other manager
    has. A write that lies at least `lately` in the future, because the clock was set back, is ignored.
    """
    return next((name for name, when in writers if abs(now - when) < lately), "")
