"""Faults of the operator's own code. No such bug is known, so tests/support/operator_with_bugs.py adds bugs to the
operator.
"""

from collections.abc import Iterator

from tests.controlplane.alerts.conftest import Bed
from tests.controlplane.alerts.faults.known import fault
from tests.controlplane.alerts.faults.served import served
from tests.support.operator_with_bugs import RAISES, STANDS_STILL

PROGRAM = "tests.support.operator_with_bugs"


@fault("OmePassesFail")
def _(bed: Bed) -> Iterator[None]:
    """The operator has a bug: reconciliations of a service raise an unexpected exception."""
    namespace = served(bed, name=RAISES)
    bed.operate(program=PROGRAM)
    bed.rig.wait_for_condition(namespace, RAISES, "Ready", "InternalError")
    yield
    bed.operate()
    bed.rig.ready(namespace, RAISES, 60)


@fault("OmeLoopStalls")
def _(bed: Bed) -> Iterator[None]:
    """The operator has a bug: a reconciliation of a service computes for 1.5 s, during which the event loop is blocked."""
    served(bed, name=STANDS_STILL)
    bed.operate(program=PROGRAM)
    yield
    bed.operate()
