"""Reads from the Lease of the operator whether an operator works on services."""

import asyncio
from collections.abc import Iterable
from datetime import datetime

from ome_operator.describe.readiness import missing_operator, operator_class
from ome_operator.kube.client import Client, Manifest
from ome_operator.kube.errors import KubeError
from ome_operator.settings import Settings


async def find_late_operators(client: Client, bodies: Iterable[Manifest], now: datetime) -> dict[str, str]:
    """Return a mapping from each operator class of the services `bodies` to a sentence which states that no operator of this
    class works. The sentence is "" if an operator works, or if the user may not read Leases. One request is sent for each
    class.
    """

    async def of(name: str) -> str:
        lease = Settings(operator_class=name).own_name
        try:
            return missing_operator(await client.list_objects("Lease", field_selector=f"metadata.name={lease}"), now)
        except KubeError:
            return ""

    classes = sorted({operator_class(body) for body in bodies})
    return dict(zip(classes, await asyncio.gather(*map(of, classes)), strict=True))
