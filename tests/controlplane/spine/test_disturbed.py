"""Lives that are disturbed in every way that a control plane knows, and come out as if nothing had happened.

Within 30 s after the last fault there are the same objects as in an undisturbed life, with statuses that say the same; no
pod of a group that was not concerned has started again; what belongs to strangers is as it was; and the operator writes no
more.
"""

import random
from collections.abc import Iterator

import pytest

from tests.conftest import SOAK
from tests.support import disturb
from tests.support.field import Account, Field
from tests.support.life import RUNTIMES
from tests.support.rig import Rig

SEED = 6
LIVES = 10 if SOAK else 1
"""Of each kind; the operator is killed 200 times."""
KILLS = 200 if SOAK else 5


@pytest.fixture(scope="module")
def field(installed: Rig, account: Account) -> Iterator[Field]:
    """An operator behind a proxy that has served an undisturbed life; afterwards there is none."""
    made = Field(installed, account)
    for body in RUNTIMES:
        installed.create(body)
    made.start()
    try:
        made.live("undisturbed")
        yield made
    finally:
        made.stop()
        for body in RUNTIMES:
            installed.delete("ClusterServingRuntime", "", body["metadata"]["name"])


@pytest.fixture
def chance() -> random.Random:
    """The same every time."""
    return random.Random(SEED)


@pytest.mark.timeout(0 if SOAK else 300)
class TestDisturbed:
    def test_the_operator_is_killed(self, field: Field, chance: random.Random) -> None:
        tried = field.account.tried
        while tried["operator killed"] < KILLS:
            field.live("operator killed", disturb.kills(field, chance, of_a_step=4))

    def test_requests_fail(self, field: Field, chance: random.Random) -> None:
        for _ in range(LIVES):
            field.live("requests fail", disturb.errors(field, chance, of_a_step=12))

    def test_watches_break(self, field: Field, chance: random.Random) -> None:
        for _ in range(LIVES):
            field.live("watches break", disturb.watches(field, chance, of_a_step=3))

    def test_the_api_server_is_killed_and_etcd_stands_still(self, field: Field, chance: random.Random) -> None:
        for _ in range(LIVES):
            field.live("API server killed, etcd paused", disturb.servers(field, chance))

    def test_the_clock_jumps(self, field: Field, chance: random.Random) -> None:
        for _ in range(LIVES):
            field.live("clock jumps", disturb.clocks(field, chance))

    def test_two_operators_lead_at_once(self, field: Field) -> None:
        with field.second("--no-leader-election"):
            for _ in range(LIVES):
                field.live("two operators at once", disturb.nothing(field))

    def test_an_operator_that_has_lost_its_lease_writes_nothing(self, field: Field, chance: random.Random) -> None:
        for _ in range(LIVES):
            with field.second() as second:
                field.live("frozen past its Lease", disturb.freezes(field, chance, second))

    def test_strangers_edit_and_delete(self, field: Field, chance: random.Random) -> None:
        for _ in range(LIVES):
            field.live("strangers edit and delete", disturb.strangers(field, chance, of_a_step=4))
