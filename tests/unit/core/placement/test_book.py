"""Tests of the record of promised capacity: which promises count as wasted, and the consequences for the gang and its
namespace.
"""

from datetime import UTC, datetime, timedelta

from ome_operator.core.observed.objects import Node, Ref
from ome_operator.core.placement import timing
from ome_operator.core.placement.admission import admit, may_speculate
from ome_operator.core.placement.book import ClaimBook
from ome_operator.core.placement.claims import GOOD, Claim, keeps_promise, waiting_order
from ome_operator.core.placement.fit import Nodes
from tests.unit.core.placement.test_admission import needs, nodes

NOW = datetime(2026, 1, 1, 12, 0, tzinfo=UTC).timestamp()
TIMEOUT = 60.0
A, B = Ref("InferenceService", "team-a", "a"), Ref("InferenceService", "team-b", "b")


class Cluster:
    """Free nodes that a test can change."""

    def __init__(self, free: int) -> None:
        self.have(free)
        self.book = ClaimBook(lambda: self.free, lambda: TIMEOUT)

    def have(self, free: int) -> None:
        self.free: Nodes = nodes(a=free)


def tries(pods: int, since: float = NOW, ref: Ref = A) -> Claim:
    """Return the claim of a gang that is being placed now."""
    return Claim(f"{ref.namespace}/{ref.name}", needs(pods), trying=True, since=since)


def waits(before: Claim, since: float, *, failed: bool = True) -> Claim:
    """Return the claim of a gang that waits after a failed attempt."""
    return before._replace(trying=False, since=since, first=since, failed=failed)


def test_failed_attempt_beside_free_nodes_counts_once_as_wasted() -> None:
    cluster = Cluster(4)
    cluster.book.store_claim(A, tries(4), NOW)
    for _ in range(3):  # the pass is repeated until the status is written
        cluster.book.store_claim(A, waits(tries(4), NOW + 60), NOW + 60)
        cluster.book.store_claim(A, tries(4), NOW + 60)
    assert cluster.book.standing_of(A, NOW + 60) == (4, 4)
    assert cluster.book.standing_of(Ref("InferenceService", "team-a", "other"), NOW + 60) == (4, 0)
    assert cluster.book.standing_of(B, NOW + 60) == GOOD
    assert cluster.book.standing_of(A, NOW + 60 + 4 * timing.MEMORY.total_seconds()) == GOOD


def test_failed_attempt_with_too_few_nodes_is_not_wasted() -> None:
    cluster = Cluster(3)
    cluster.book.store_claim(A, tries(4), NOW)
    cluster.book.store_claim(A, waits(tries(4), NOW + 60), NOW + 60)
    assert cluster.book.standing_of(A, NOW + 60) == GOOD


def test_unplaced_pods_are_compared_with_free_nodes() -> None:
    """An attempt to place a gang ends with two of four pods on nodes. Two more nodes are free, and would be enough for the
    other two pods, so the promise of nodes counts as wasted.
    """
    cluster = Cluster(2)
    half = tries(4)._replace(missing=needs(2))
    cluster.book.store_claim(A, half, NOW)
    cluster.book.store_claim(A, waits(half, NOW + 60), NOW + 60)
    assert cluster.book.standing_of(A, NOW + 60) > GOOD


def test_attempt_with_refused_pods_is_wasted_even_without_free_nodes() -> None:
    cluster = Cluster(0)
    cluster.book.store_claim(A, tries(4)._replace(refused=True), NOW)
    assert not keeps_promise(cluster.book.claims[A], NOW + 1, TIMEOUT), "and none from then on"
    cluster.book.store_claim(A, waits(tries(4), NOW + 60), NOW + 60)
    assert cluster.book.standing_of(A, NOW + 60) > GOOD


def test_attempt_of_twenty_minutes_is_judged_after_the_default_timeout() -> None:
    cluster = Cluster(4)
    for second in range(0, 1200, 30):
        cluster.book.store_claim(A, tries(4), NOW + second)
        assert (cluster.book.standing_of(A, NOW + second) > GOOD) == (60 <= second < 940)


def test_deletion_of_a_service_before_its_attempt_ends_counts_as_wasted() -> None:
    """A tenant that deletes a service before its attempt to be placed ends gains nothing: the promise counts as wasted. The
    service is deleted and created again, or edited, every 50 seconds.
    """
    cluster = Cluster(4)
    for at in range(2):
        ref = Ref("InferenceService", "team-a", f"a{at}")
        cluster.book.store_claim(ref, tries(4, NOW + 50 * at, ref), NOW + 50 * at)
        cluster.book.store_claim(ref, None, NOW + 50 * at + 50, gone=True)
    assert cluster.book.standing_of(A, NOW + 100)[0] >= 5
    edited = Cluster(4)
    edited.book.store_claim(A, tries(4), NOW)
    edited.book.store_claim(A, tries(4, NOW + 50), NOW + 50)
    assert edited.book.standing_of(A, NOW + 50) > GOOD
    placed = Cluster(4)
    placed.book.store_claim(A, tries(4), NOW)
    placed.book.store_claim(A, None, NOW + 50)
    assert placed.book.standing_of(A, NOW + 50) == GOOD


def test_promise_of_nodes_released_by_a_rollout_ends_if_they_are_unused() -> None:
    """If a rollout does not use the nodes that it has released for itself, the nodes are no longer promised to it. In this
    test, a tenant makes the new pods of its service unschedulable, for example by deleting a volume claim.
    """
    cluster = Cluster(4)
    serves = tries(2)._replace(serves=True, since=0.0)
    for second in (0, 30, 59):
        cluster.book.store_claim(A, serves, NOW + second)
        cluster.book.review(NOW + second)
        assert keeps_promise(cluster.book.claims[A], NOW + second, TIMEOUT)
    cluster.book.review(NOW + 60)
    cluster.book.store_claim(A, serves, NOW + 61)
    assert not keeps_promise(cluster.book.claims[A], NOW + 61, TIMEOUT)
    assert cluster.book.standing_of(Ref("InferenceService", "team-a", "other"), NOW + 61) == GOOD, "others may start"
    cluster.book.store_claim(A, serves._replace(needs=needs(1)), NOW + 62)
    assert keeps_promise(cluster.book.claims[A], NOW + 62, TIMEOUT), "a group was placed"


def test_promise_of_missing_nodes_is_kept_for_a_serving_service() -> None:
    cluster = Cluster(0)
    serves = tries(2)._replace(serves=True, since=0.0)
    cluster.book.store_claim(A, serves, NOW)
    for second in range(0, 3600, 60):
        cluster.book.review(NOW + second)
    cluster.have(2)
    cluster.book.review(NOW + 3600)
    assert keeps_promise(cluster.book.claims[A], NOW + 3600, TIMEOUT)


def granted(*claims: Claim, free: int, second: float = 0.0) -> set[str]:
    """Return which gangs are admitted if this number of the four nodes is free."""
    all_nodes = nodes(a=4)
    left: dict[str, Node] = {name: all_nodes[name] for name in list(all_nodes)[:free]}
    return {*admit(claims, all_nodes, left, datetime.fromtimestamp(NOW + second, UTC), TIMEOUT).admitted}


def wait(key: str, pods: int, first: float = NOW, **facts: object) -> Claim:
    return Claim(key, needs(pods), trying=False, first=first, since=NOW)._replace(**facts)  # type: ignore[arg-type]


def test_promise_of_poor_standing_only_blocks_gangs_of_poor_standing() -> None:
    poor = tries(4)._replace(standing=(4, 8))
    assert granted(poor, wait("team-b/b", 1), free=4) == {"team-b/b"}
    assert granted(poor, wait("team-b/b", 1, standing=(9, 9)), free=4) == set()


def test_promise_ends_after_default_timeout_although_attempt_continues() -> None:
    late = tries(4, NOW - 60)
    assert granted(late, wait("team-b/b", 1), free=4) == {"team-b/b"}
    assert granted(tries(4, NOW - 59), wait("team-b/b", 1), free=4) == set()


def test_earlier_gang_is_not_delayed_by_a_gang_started_without_admission() -> None:
    """A gang that came first is not delayed by a gang that began without admission because of its PriorityClass, if the
    pods of that gang turn out to have no higher priority.
    """
    new = tries(4, NOW - 5)
    assert granted(new, wait("team-b/b", 1, first=NOW - 9), free=4) == {"team-b/b"}
    assert granted(new, wait("team-b/b", 1, first=NOW - 1), free=4) == set()
    assert granted(new._replace(priority=5), wait("team-b/b", 1, first=NOW - 9), free=4) == set()


def test_gang_that_fits_after_attempts_ended_is_admitted_next() -> None:
    """Attempts of two small gangs delay a gang of three nodes. When they have ended, the large gang fits, and another small
    gang must not delay it again.
    """
    attempts = [tries(1, NOW - at, Ref("InferenceService", "t", f"t{at}")) for at in (10, 40)]
    large, small = wait("team-b/large", 3), wait("team-b/small", 2, first=NOW + 1)
    assert granted(*attempts, large, small, free=4) == set()
    assert granted(*attempts, large, small._replace(needs=needs(1)), free=4) == {"team-b/small"}, "it fits next to all"
    assert granted(large, small, free=4) == {"team-b/large"}


def test_fitting_gangs_are_admitted_before_speculative_attempts() -> None:
    blind = wait("team-a/blind", 9, first=1.0, since=NOW - 3600)
    assert granted(blind, wait("team-b/b", 1), free=4) == {"team-b/b"}
    assert granted(blind, free=4) == {"team-a/blind"}
    assert may_speculate(datetime.fromtimestamp(NOW, UTC), TIMEOUT) and not may_speculate(
        datetime.fromtimestamp(NOW, UTC) + timing.SPECULATION, TIMEOUT
    )
    assert granted(blind, free=4, second=timing.SPECULATION.total_seconds()) == set()
    poor, large = wait("team-a/a", 1, standing=(4, 4)), wait("team-b/large", 4)
    assert granted(poor, large, free=3) == {"team-a/a"}
    assert granted(poor, large, free=3, second=timing.SPECULATION.total_seconds()) == set(), "all nodes will be free soon"


def test_claims_are_ordered_by_standing_then_priority_then_time() -> None:
    found = [wait("a", 1, priority=9, standing=(1, 1)), wait("b", 1, first=1.0), wait("c", 1, first=2.0, priority=1)]
    assert [claim.key for claim in sorted(found, key=waiting_order)] == ["c", "b", "a"]


def test_nodes_are_reserved_for_gangs_that_could_use_them() -> None:
    window = timing.RESERVATION.total_seconds()
    at = next(second for second in range(0, 36000, 60) if int((NOW + second) // window) % 4 == 3)
    old = wait("team-a/old", 4, first=NOW - 3600)._replace(since=NOW + at)
    small = wait("team-b/b", 1)._replace(since=NOW + at)
    assert granted(old, small, free=3, second=at) == set()
    assert granted(old._replace(refused=True), small, free=3, second=at) == {"team-b/b"}
    assert granted(old._replace(standing=(0, 1)), small, free=3, second=at) == {"team-b/b"}


def test_reservation_bounds_the_wait_of_a_fitting_gang() -> None:
    assert timedelta(minutes=8) >= timing.RESERVATION, "a gang that fits waits for at most ten minutes"
