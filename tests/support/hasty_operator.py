"""The operator as a program whose autoscaler of the class Demand removes a group sooner, and stores a hold sooner.

A group is removed only if no numbers have been missing for ten minutes and fewer groups have been enough for 90 s, and a new
reason to hold is stored after a minute, which is too long for a test. Nothing else differs.
"""

from ome_operator.__main__ import main
from ome_operator.controllers import demand
from ome_operator.core.demand import brakes

SPAN = 40.0
"""Seconds for which the numbers must be known."""

if __name__ == "__main__":
    brakes.KEPT, brakes.LOWER_FOR, demand.PAUSE = SPAN, 20.0, 5.0
    main()
