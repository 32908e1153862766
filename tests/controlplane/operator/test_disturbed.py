"""Services that are disturbed by every fault of a control plane end in the same state as undisturbed services.

Within 30 s after the last fault:

* The objects and the statuses equal those of an undisturbed service.
* No pod of an unaffected group has restarted.
* Foreign objects are unchanged.
* The operator writes nothing more.
"""

import random
from collections.abc import Iterator

import pytest

from tests.conftest import SOAK
from tests.support import disturb
from tests.support.fault_bench import Account, Disturb, Field
from tests.support.rig import Rig
from tests.support.scenario import RUNTIMES

pytestmark = pytest.mark.timeout(900)  # Other processes on the machine make each step longer.
SEED = 6
LIVES = 12 if SOAK else 1
"""Number of runs of each test."""
KILLS = 200 if SOAK else 3


@pytest.fixture(scope="module")
def field(installed: Rig, account: Account) -> Iterator[Field]:
    """Yield an operator that runs behind a proxy, and that has already handled a service without any fault. The operator
    is stopped afterwards.
    """
    made = Field(installed, account)
    for body in RUNTIMES:
        installed.create(body)
    try:
        made.start()
        made.live()
        yield made
    finally:
        made.stop()
        for body in RUNTIMES:
            installed.delete("ClusterServingRuntime", "", body["metadata"]["name"])


@pytest.fixture
def chance() -> random.Random:
    """Return a random generator with a fixed seed."""
    return random.Random(SEED)


def live(field: Field, *kinds: tuple[str, Disturb]) -> None:
    """Run the scenario once, or as often as it takes for every step to meet every kind of fault."""
    for number in range(LIVES):
        first = number % len(kinds)
        field.live(*kinds[first:], *kinds[:first])
    for kind, _ in kinds:
        assert field.account.tried[kind], f"{kind}: the steps were over before any fault"


def test_services_converge_although_operator_and_connections_fail(field: Field, chance: random.Random) -> None:
    killed = "operator killed", disturb.kills(field, chance, of_a_step=5)
    requests = disturb.errors(field, chance, of_a_step=12)
    watches = disturb.watches(field, chance, of_a_step=3)
    both = disturb.at_once(requests, watches, disturb.kills(field, chance, of_a_step=2))
    live(field, ("requests fail", requests), killed, ("watches break", watches), ("all of these", both))
    while field.account.tried[killed[0]] < KILLS:
        field.live(killed, killed, killed, killed)
    assert field.account.tried[killed[0]] < KILLS + 4 * 5, "no step has more faults than planned"


def test_services_converge_despite_dying_servers_clock_jumps_and_other_clients(field: Field, chance: random.Random) -> None:
    live(
        field,
        ("API server killed", disturb.killed_server(field, chance)),
        ("other clients edit and delete", disturb.strangers(field, chance, of_a_step=4)),
        ("clock jumps", disturb.clocks(field, chance)),
        ("etcd hangs", disturb.paused_etcd(field, chance)),
    )


def test_services_stay_correct_while_two_operators_act_as_leader(field: Field, chance: random.Random) -> None:
    crowded = "two operators lead at once", disturb.crowded(field)
    live(field, crowded, ("suspended past its Lease", disturb.frozen(field, chance)), crowded)
