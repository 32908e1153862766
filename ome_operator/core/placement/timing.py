"""Every duration that decides how long a gang tries, waits, or keeps nodes (docs/placement.md).

`--gang-timeout`, the only duration that users set, is in `ome_operator/settings.py`. Plain numbers are seconds.
"""

from datetime import timedelta

TRY_ON_DEMAND = 1200.0
"""How long a try lasts when an autoscaler makes the nodes for it: a cloud needs minutes for a machine with GPUs."""
PAUSES = (timedelta(0), timedelta(minutes=1), timedelta(minutes=2), timedelta(minutes=5))
"""How long a gang pauses after this many failed tries in a row, although it seems to fit: the known capacity was wrong."""
RECHECK = 30.0
"""How long until a gang that waits is reconciled again if no event wakes it."""
FIRST_ANSWER = 1.0
"""How long until a gang that has just asked a question about other services is reconciled for the answer."""
RETRY_REGARDLESS = timedelta(minutes=5)
"""How long a gang waits before it tries whatever is known of the nodes: an autoscaler has to see its pods now and then."""

RESERVE_AFTER = timedelta(minutes=30)
"""How long a gang has to be overtaken by smaller gangs before nodes may be kept free for it."""
RESERVATION = timedelta(minutes=10)
"""How long nodes are kept free for such a gang, in one of four consecutive periods of this length."""

REDECIDE = 5
"""How long an admission decision holds while nothing but the time has changed."""
REDECIDE_AFTER_RELEASE = 15
"""How long after a release of nodes the next one may be decided: pods have to end, and others have to come to the nodes."""
ROTATION = 60.0
"""How long the same subset of services is compared, where there are too many to compare all."""
RECOVERY_EXPECTED = 1200.0
"""How long after a group lost a rank free capacity counts as its own; after that something else keeps the rank away."""
