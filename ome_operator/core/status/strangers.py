"""What the status says of workers that somebody else put into the list of a service's routers."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from ome_operator.core.observed.objects import Strangers
from ome_operator.core.reasons import ROUTER_INTACT, Reason
from ome_operator.core.status.conditions import Condition

TOLD = timedelta(hours=1)
"""A stranger is told of for so long after it was seen last."""


def condition(found: Iterable[Strangers], secret: str, now: datetime) -> Condition | None:
    """RouterIntact; None while no stranger was seen lately. `secret`: the Secret with the routers' key, "" for none."""
    seen = [item for item in found if item.found and abs(now.timestamp() - item.at) < TOLD.total_seconds()]
    if not seen:
        return None
    last = datetime.fromtimestamp(max(item.at for item in seen), UTC).strftime("%H:%M:%S UTC")
    remedy = (
        f"somebody else has their key: delete the Secret {secret} and the routers' pods, and see who may read Secrets here"
        if secret
        else "these routers have no key by the operator: forward only /v1/ to them, or keep others away from their port "
        "(docs/security.md, Routers)"
    )
    said = (
        f"{sum(item.found for item in seen)} workers that are no pods of this service were in the list of its routers, the "
        f"last at {last}. They were taken out within seconds, and may have got prompts until then: {remedy}"
    )
    return Condition(ROUTER_INTACT, False, Reason.STRANGER_IN_ROUTER, said)
