"""Build the condition RouterIntact, which reports foreign workers: workers in the list of a router that are not pods of the
service.
"""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from ome_operator.core.observed.telemetry import ForeignWorkers
from ome_operator.core.reasons import ROUTER_INTACT, Reason
from ome_operator.core.status.conditions import Condition

REPORTED_FOR = timedelta(hours=1)
"""Time for which foreign workers are reported after they were last found."""


def foreign_workers_condition(reports: Iterable[ForeignWorkers], secret: str, now: datetime) -> Condition | None:
    """Return the condition RouterIntact with the status False; None if no foreign worker was found recently.

    `secret` is the name of the Secret with the key of the routers; "" if the routers have no key.
    """
    seen = [item for item in reports if item.found and abs(now.timestamp() - item.at) < REPORTED_FOR.total_seconds()]
    if not seen:
        return None
    found = sum(item.found for item in seen)
    last = datetime.fromtimestamp(max(item.at for item in seen), UTC).strftime("%H:%M:%S UTC")
    remedy = (
        (
            f"another client knows the key of the routers: delete the Secret {secret} and the pods of the routers, and "
            "check who may read the Secret"
        )
        if secret
        else "these routers have no key: forward only /v1/ to them, or restrict access to their port "
        "(docs/security.md, Routers)"
    )
    message = (
        f"workers that are not pods of this service were registered in its routers ({found} so far, the last at {last}). "
        f"The registry removed them within seconds, but they may have received prompts until then: {remedy}"
    )
    return Condition(ROUTER_INTACT, False, Reason.STRANGER_IN_ROUTER, message)
