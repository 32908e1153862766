"""Long tests of the control-plane suite (`make soak`): real faults make alerts fire in a real Prometheus, and the end of
a fault clears its alert.

The durations of the rules are divided by ten, or by the divisors in tests/controlplane/alerts/conftest.py.
tests/unit/release/test_alerts.py runs promtool's unit tests of the same rules with unchanged durations.
"""

import time

import pytest

from release import alerts
from tests.conftest import SOAK, Tables
from tests.controlplane.alerts.conftest import Bed
from tests.controlplane.alerts.faults import FAULTS, WITHOUT
from tests.support.prometheus import poll_until

WITHIN_S = 400.0
LONG = pytest.mark.skipif(not SOAK, reason="takes minutes for each alert: `make soak` runs it")


def test_every_alert_has_a_fault_or_a_reason_for_none() -> None:
    every = [alert["alert"] for alert in alerts.alerts()]
    assert sorted([*FAULTS, *WITHOUT]) == sorted(every)
    assert sum(fault.alone for fault in FAULTS.values()) >= 12


@LONG
@pytest.mark.timeout(900)
@pytest.mark.parametrize("alert", FAULTS)
def test_fault_fires_its_alert_and_the_alert_clears_afterwards(bed: Bed, alert: str, tables: Tables) -> None:
    """A real fault makes its alert fire, and after the fault the alert clears. No other alert fires from the beginning of
    the fault until everything works again.
    """
    asked = bed.asked
    poll_until("nothing fires before", lambda: not asked.alerts(), WITHIN_S)
    began = time.monotonic()
    with bed.tidy:
        with FAULTS[alert].happens(bed):
            broken = time.monotonic()
            poll_until(f"{alert} fires", lambda: alert in asked.alerts(), WITHIN_S)
            fired = time.monotonic()
        mended = time.monotonic()
        poll_until("nothing fires any more", lambda: not asked.alerts(), WITHIN_S)
        cleared = time.monotonic()
    took = f"{fired - broken:>6.0f} s to fire {cleared - mended:>6.0f} s to clear"
    tables.setdefault("faults and alerts", []).append(f"{alert:<28}{took}")
    seen = asked.ask(f'max_over_time(ALERTS{{alertstate="firing"}}[{int(cleared - began) + 1}s])')
    told = {each["metric"]["alertname"] for each in seen}
    assert told == {alert} if FAULTS[alert].alone else alert in told, told
