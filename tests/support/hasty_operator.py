"""The operator as a program whose autoscaler of the class Demand decides sooner, because a test cannot wait for minutes.

It measures for a fifth of the usual time, and decides five times as often. With OME_SOAK=1, these two times are the usual
ones.

Three other times are shorter with and without OME_SOAK: the time before the operator removes groups, the time before it
stores a new reason for keeping the number of groups, and the time before it asks a router again that gave no summary.
Its Lease lasts as long as the Leases of other operators in tests. Nothing else differs.
"""

import os

from ome_operator.__main__ import main
from ome_operator.controllers import demand as scaler
from ome_operator.controllers import telemetry
from ome_operator.core.demand import arrivals, decide, estimate, follow, learn, removal_holds, rest
from ome_operator.core.observed import demand as observed
from tests.support.loaded import use_long_lease

FASTER = 1.0 if os.environ.get("OME_SOAK") else 5.0
"""Factor by which the decisions are faster than usual."""
PERIOD = scaler.PERIOD / FASTER
"""Seconds between two decisions."""
DECISION = 1.2 * PERIOD
"""Seconds in which there is at least one decision."""
SPAN = 25.0
"""Seconds for which the request rates must be known without a gap before a group is removed, and for which no request may
arrive before the schedule brings a service to zero.
"""

if __name__ == "__main__":
    use_long_lease()
    for module in (arrivals, decide, estimate, learn, observed, removal_holds, scaler):
        module.WINDOW /= FASTER
    arrivals.RECENT /= FASTER
    scaler.PERIOD, scaler.FIRST = PERIOD, scaler.FIRST / FASTER
    removal_holds.KEPT = follow.KEPT = rest.KEPT = SPAN
    removal_holds.LOWER_FOR, scaler.PAUSE = 2 * PERIOD, 5.0
    telemetry.SLOW = telemetry.OLD = 5.0  # something may answer 404 at the address of a simulated pod
    main()
