"""Every duration that decides how long a gang is being placed, waits, or keeps nodes (docs/placement.md).

`--gang-timeout`, the only duration that users set, is in `ome_operator/settings/`. Plain numbers are seconds.
"""

from datetime import timedelta

TRY_ON_DEMAND = 1200.0
"""Time limit in seconds of a placement attempt if an autoscaler creates the nodes for its pods: a cloud needs minutes to
provide a machine with GPUs."""
IN_QUEUE = 10
"""Factor by which a placement attempt in a queue of Kueue is longer than other attempts, because pods that Kueue preempts
for the gang may use their whole grace period. A shorter attempt would end before these pods, and the next attempt would
preempt pods again.
"""
PAUSES = (timedelta(0), timedelta(minutes=1), timedelta(minutes=2), timedelta(minutes=5))
"""How long a gang that seems to fit waits after failed placement attempts. The index is the number of such attempts in a
row. Only attempts of gangs that seemed to fit are counted, because their failure shows that the known capacity was wrong."""
QUEUE_JITTER = 60.0
"""Largest number of seconds that is added to the pause of a service in a queue of Kueue. Each service gets another
number, so that two services that have released their nodes at the same time try again at different times."""
RECHECK = 30.0
"""Seconds until a service whose gang waits is reconciled again if no event triggers a pass before."""
FIRST_ANSWER = 1.0
"""Seconds until a service whose claim has just offered nodes for release is reconciled again to read the decision about
these nodes."""
RETRY_REGARDLESS = timedelta(minutes=5)
"""How long a gang waits before it is admitted regardless of the known capacity. The admission is necessary because an
autoscaler has to see the pods of the gang from time to time."""
NARROWED = timedelta(minutes=5)
"""How long a pod of a group waits for a node before the operator replaces the group. The operator does so only if the
group excludes a node that a new group would not exclude."""
SPECULATION = timedelta(seconds=45)
"""Length of the part of each period in which gangs are admitted although they probably do not fit. It is longer than the
interval between two passes over a waiting gang (`RECHECK`), so that each gang has a pass in this part.
"""
MEMORY = timedelta(minutes=5)
"""Half-life of the time for which capacity was promised and not used. The effect of a single failed attempt on the
standing of a gang is gone after three half-lives."""

RESERVE_AFTER = timedelta(minutes=30)
"""How long a gang has to wait, while smaller gangs overtake it, before nodes may be kept free for it."""
RESERVATION = timedelta(minutes=8)
"""How long nodes are kept free for a gang that smaller gangs overtake. Nodes are kept free in one of four consecutive
periods of this length."""

REDECIDE = 5
"""Seconds for which an admission decision stays valid if no claim and no node changes."""
REDECIDE_AFTER_RELEASE = 15
"""Smallest number of seconds between a release of nodes and the decision about the next release. In this time the
released pods end, and other pods are bound to the nodes."""
ROTATION = 60.0
"""Seconds for which decisions compare the same subset of services, if there are too many services to compare all of them in
one decision."""
RECOVERY_EXPECTED = 1200.0
"""Seconds after the loss of a rank for which the operator expects the rank to take free capacity. Later, the operator
assumes that something other than missing capacity keeps the rank from being placed."""
