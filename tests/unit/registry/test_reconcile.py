"""Tests of which workers are in a router's list, why a worker is removed, and what an old list of pods must not cause."""

from typing import Any

import pytest

from ome_operator.registry.reconcile import LeaderSigns, reconcile
from ome_operator.registry.records import Pod, RegistrySettings, RoleSpec, WantedWorker, Worker, WorkerChanges, WorkerMemory

TERMS = RegistrySettings((RoleSpec("engine", "prefill", 30000, 2, "p"), RoleSpec("decoder", "decode", 30000, 1, "d")))
NOW = 1000.0
P0, P1 = "http://10.0.0.1:30000", "http://10.0.0.2:30000"
D0 = "http://10.0.0.9:30000"


def rank(number: int = 0, group: str = "0", ip: str = "10.0.0.1", **more: Any) -> Pod:
    """Return a healthy rank of a prefill group."""
    name = f"p-{group}-{number}"
    base = Pod(name, f"u-{name}", ip, "engine", group, number, True, 100.0, number == 0, 200.0)
    return base._replace(**more)


def decode(**more: Any) -> Pod:
    """Return a healthy decode leader."""
    return Pod("d-0", "u-d", "10.0.0.9", "decoder", "0", 0, True, 100.0, True, 200.0)._replace(**more)


GROUP = (rank(), rank(1, ip="10.1.0.1"))


def worker(url: str = P0, kind: str = "prefill", port: int | None = 8998, running: int = 0) -> Worker:
    """Return an entry of the router's list."""
    return Worker(f"id-{url}", url, kind, port, running)


def step(
    pods: Any = (), workers: Any = (), memory: WorkerMemory | None = None, now: float = NOW, **more: Any
) -> WorkerChanges:
    """Return the changes that one reconciliation makes. `more` contains its other arguments, and the fields of the signs."""
    signs = LeaderSigns(**{name: more.pop(name) for name in LeaderSigns._fields if name in more})
    return reconcile(pods, workers, memory or WorkerMemory(), TERMS, now, signs=signs, **more)


def removed(one: WorkerChanges) -> list[tuple[str, str]]:
    """Return the URL of each removed worker, and the reason."""
    return [(each.worker.url, each.why) for each in one.remove]


def test_complete_group_is_added_with_its_role_and_port() -> None:
    done = step([*GROUP, decode()])
    assert done.add == (
        WantedWorker(D0, "decode", None, "d-0", "u-d"),
        WantedWorker(P0, "prefill", 8998, "p-0-0", "u-p-0-0"),
    )
    assert not done.remove


def test_bootstrap_port_comes_from_the_pod_annotation() -> None:
    (added,) = step([rank(bootstrap_port=9000), GROUP[1]]).add
    assert added.bootstrap_port == 9000


def test_ipv6_address_is_put_in_brackets() -> None:
    (added,) = step([decode(ip="fd00::1")]).add
    assert added.url == "http://[fd00::1]:30000"


BROKEN: dict[str, tuple[tuple[Pod, ...], str]] = {
    "leader deleted": ((rank(deleting=True), GROUP[1]), "the leader is being deleted"),
    "leader draining": ((rank(draining=True), GROUP[1]), "the group is being drained"),
    "leader dead": ((rank(running=False, ready=False), GROUP[1]), "the leader is not running"),
    "rank missing": (GROUP[:1], "rank 1 is missing"),
    "rank deleted": ((GROUP[0], rank(1, deleting=True)), "rank 1 is being deleted"),
    "rank dead": ((GROUP[0], rank(1, running=False)), "rank 1 is not running"),
    "rank of another group": ((GROUP[0], rank(1, group="1")), "rank 1 is missing"),
    "rank restarted": ((GROUP[0], rank(1, started=NOW - 5)), "rank 1 started after the leader was ready"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_incomplete_group_is_neither_added_nor_kept(case: str) -> None:
    pods, why = BROKEN[case]
    assert not step(pods).add
    assert removed(step(pods, [worker()])) == [(P0, why)]


def test_rank_restarted_long_ago_counts_as_part_of_the_group() -> None:
    pods = (GROUP[0], rank(1, started=NOW - 61))
    assert step(pods).add and not step(pods, [worker()]).remove


def test_not_ready_leader_is_kept_for_a_while_but_not_added() -> None:
    pods = (rank(ready=False), GROUP[1])
    first = step(pods, [worker()])
    assert not first.remove and not step(pods).add
    later = step(pods, [worker()], first.memory, NOW + 19)
    assert not later.remove
    assert removed(step(pods, [worker()], later.memory, NOW + 20)) == [(P0, "the leader is not ready")]
    back = step(GROUP, [worker()], later.memory, NOW + 19)
    assert not step(pods, [worker()], back.memory, NOW + 21).remove


def test_worker_without_a_pod_of_this_revision_is_removed() -> None:
    assert removed(step(GROUP, [worker(), worker(P1)])) == [(P1, "no pod of this router's revision has this address")]


def test_empty_pod_list_removes_all_workers() -> None:
    assert [url for url, _ in removed(step([], [worker(), worker(D0, "decode", None)]))] == [P0, D0]


def test_new_pod_with_a_former_address_is_added_again() -> None:
    known = step(GROUP, [worker()]).memory
    heir = (rank(uid="other"), GROUP[1])
    first = step(heir, [worker()], known)
    assert removed(first) == [(P0, "another pod now has this address")] and not first.add
    again = step(heir, [worker()], first.memory)
    assert removed(again) == removed(first), "the router may have refused it"
    (added,) = step(heir, [], first.memory).add
    assert added.uid == "other"


@pytest.mark.parametrize(
    ("listed", "why"),
    [
        (worker(kind="decode", port=None), "the router lists the worker as decode, but its type is prefill"),
        (worker(port=9000), "the router lists the worker with bootstrap port 9000, but its port is 8998"),
    ],
)
def test_worker_listed_with_wrong_properties_is_removed(listed: Worker, why: str) -> None:
    assert removed(step(GROUP, [listed])) == [(P0, why)]


def test_worker_listed_without_port_by_router_discovery_is_kept() -> None:
    assert not step(GROUP, [worker(port=None)]).remove


def test_data_parallel_ranks_of_a_worker_are_one_worker() -> None:
    both = [worker(f"{P0}@0", running=1), worker(f"{P0}@1", running=2)]
    done = step(GROUP, both)
    assert not done.add and not done.remove
    assert done.leaders[0].running == 3
    assert len(step((rank(deleting=True), GROUP[1]), both).remove) == 2


def test_sent_worker_is_not_sent_again_before_the_retry_time() -> None:
    first = step(GROUP)
    second = step(GROUP, [], first.memory, NOW + 14)
    assert first.add and not second.add
    assert step(GROUP, [], second.memory, NOW + 15).add


def test_empty_router_is_filled_again_immediately() -> None:
    seen = step(GROUP, [worker()], step(GROUP).memory, NOW + 1)
    assert step(GROUP, [], seen.memory, NOW + 2).add


def test_outdated_pod_list_removes_no_worker_and_fills_only_an_empty_router() -> None:
    known = step(GROUP, [worker()]).memory
    pods = (*GROUP, decode())
    kept = step(pods, [worker(), worker(P1)], known, fresh=False)
    assert not kept.remove and not kept.add and kept.memory.pods == known.pods
    filled = step(pods, [], known, fresh=False)
    assert len(filled.add) == 2
    again = step(pods, [worker()], filled.memory, NOW + 15, fresh=False)
    assert [one.url for one in again.add] == [D0], "the worker may be added again to an empty router"
    assert not step(pods, [worker()], step(pods, [worker()], filled.memory).memory, NOW + 60, fresh=False).add


def test_leader_states_are_reported_with_reason() -> None:
    drained = (rank(draining=True), GROUP[1])
    waiting = rank(group="1", ip="10.0.0.2")
    said = step([*drained, waiting, decode()], [worker(running=3), worker(D0, "decode", None)]).leaders
    assert [(one.pod, one.state, one.listed, one.running) for one in said] == [
        ("d-0", "serving", True, 0),
        ("p-0-0", "draining", True, 3),
        ("p-1-0", "waiting", False, None),
    ]
    assert said[2].why == "rank 1 is missing"


def test_clock_that_was_set_back_does_not_extend_delays() -> None:
    hour = 3600.0
    sent = step(GROUP).memory
    back = step(GROUP, [], sent, NOW - hour)
    assert not back.add
    assert step(GROUP, [], back.memory, NOW - hour + TERMS.retry).add
    pods = (rank(ready=False), GROUP[1])
    back = step(pods, [worker()], step(pods, [worker()]).memory, NOW - hour)
    assert removed(step(pods, [worker()], back.memory, NOW - hour + TERMS.unready))
    assert step((GROUP[0], rank(1, started=NOW + hour))).add, "a start time in the future counts as past"


def strangers(one: WorkerChanges) -> list[str]:
    """Return the URLs of foreign workers."""
    return [each.worker.url for each in one.remove if each.is_foreign]


THIEF = "http://thief:32000"


def test_worker_that_was_never_an_own_pod_is_foreign_and_removed() -> None:
    known = step([*GROUP, decode()], [worker(), worker(D0, "decode", None)]).memory
    done = step([*GROUP, decode()], [worker(), worker(D0, "decode", None), worker(THIEF, "decode", None)], known)
    assert strangers(done) == [THIEF] == [one.worker.url for one in done.remove]


def test_worker_at_another_port_of_an_own_pod_is_foreign() -> None:
    """A worker at another port of one of the operator's pods counts as added by another user. On the host network, pods of
    other services on the node have the same address.
    """
    done = step(GROUP, [worker("http://10.0.0.1:30001")], step(GROUP).memory)
    assert strangers(done) == ["http://10.0.0.1:30001"]


def test_formerly_added_worker_is_not_foreign() -> None:
    """A worker that the registry has added once does not count as added by another user. The router may lose deletions: it
    then keeps workers that are gone, and may refuse to remove them for a while.
    """
    known = step([*GROUP, decode()], [worker(), worker(D0, "decode", None)]).memory
    gone = step(GROUP, [worker(), worker(D0, "decode", None)], known)
    assert removed(gone) == [(D0, "no pod of this router's revision has this address")] and not strangers(gone)
    again = step(GROUP, [worker(), worker(D0, "decode", None)], gone.memory, NOW + 60)
    assert removed(again) and not strangers(again)
    late = step(GROUP, [worker(), worker(D0, "decode", None)], gone.memory, NOW + 2 * TERMS.remember)
    assert strangers(late) == [D0], "another pod may have this address by now"


@pytest.mark.parametrize("case", BROKEN)
def test_own_pod_that_cannot_serve_is_not_foreign(case: str) -> None:
    assert not strangers(step(BROKEN[case][0], [worker()], step(GROUP).memory))


def test_no_worker_is_foreign_at_the_first_reconciliation() -> None:
    """At the first look, no worker counts as added by another user. The registry may have restarted after it had added the
    workers.
    """
    first = step(GROUP, [worker(THIEF)])
    assert removed(first) and not strangers(first)


def test_outdated_pod_list_makes_no_worker_foreign() -> None:
    assert step(GROUP, [worker(THIEF)], fresh=False).memory.ours is None
    known = step(GROUP, [worker()]).memory
    assert step(GROUP, [worker(), worker(THIEF)], known, fresh=False).remove == ()


# --- silent leaders -----------------------------------------------------------------------------------------------------

SECOND = (rank(group="1", ip="10.0.0.2"), rank(1, group="1", ip="10.1.0.2"))
SILENT = frozenset({"u-p-0-0"})
BOTH = (worker(P0), worker(P1))
REASON = "the leader answers no probe and completes no request"


def test_silent_leader_is_removed_if_another_of_its_role_serves() -> None:
    done = step([*GROUP, *SECOND], BOTH, silent=SILENT)
    assert removed(done) == [(P0, REASON)] and not done.add
    assert [(each.state, each.why) for each in done.leaders] == [("silent", REASON), ("serving", "")]
    after = step([*GROUP, *SECOND], BOTH[1:], done.memory, silent=SILENT)
    assert not after.remove and not after.add and after.leaders[0].state == "silent"
    back = step([*GROUP, *SECOND], BOTH[1:], after.memory)
    assert [each.url for each in back.add] == [P0], "it answers again"


LAST: dict[str, tuple[tuple[Pod, ...], tuple[Worker, ...], frozenset[str]]] = {
    "the only leader": (GROUP, BOTH[:1], SILENT),
    "the other is silent": ((*GROUP, *SECOND), BOTH, SILENT | {"u-p-1-0"}),
    "the other is not listed yet": ((*GROUP, *SECOND), BOTH[:1], SILENT),
    "the other is not ready": ((*GROUP, SECOND[0]._replace(ready=False), SECOND[1]), BOTH, SILENT),
    "the other drains": ((*GROUP, SECOND[0]._replace(draining=True), SECOND[1]), BOTH, SILENT),
    "the other has another role": ((*GROUP, decode()), (BOTH[0], worker(D0, "decode", None)), SILENT),
}


@pytest.mark.parametrize("case", LAST)
def test_silent_leader_is_kept_if_no_other_of_its_role_serves(case: str) -> None:
    pods, workers, silent = LAST[case]
    done = step(pods, workers, silent=silent)
    assert (
        P0 not in [url for url, _ in removed(done)] and done.leaders[-1 if case.endswith("role") else 0].state == "serving"
    )


def test_leader_with_failing_transfers_is_removed_if_another_of_its_role_serves() -> None:
    done = step([*GROUP, *SECOND], BOTH, blamed=SILENT)
    assert (done.leaders[0].state, done.leaders[0].why) == ("silent", "transfers of this leader fail")
    assert removed(done) == [(P0, "transfers of this leader fail")]
    assert not step([*GROUP, *SECOND], BOTH, blamed=SILENT | {"u-p-1-0"}).remove, "the other one is responsible, too"
    assert not step([*GROUP, *SECOND], BOTH, silent=SILENT, blamed=frozenset({"u-p-1-0"})).remove


def test_all_leaders_are_listed_again_if_all_are_silent() -> None:
    """If all leaders seem not to answer, they are listed again, because the network of the registry itself may
    have failed.
    """
    done = step([*GROUP, *SECOND], BOTH[1:], silent=SILENT | {"u-p-1-0"})
    assert [each.url for each in done.add] == [P0] and not done.remove


def test_silent_leader_that_is_not_ready_is_removed_immediately() -> None:
    pods = (GROUP[0]._replace(ready=False), GROUP[1], *SECOND)
    assert not step(pods, BOTH).remove
    assert removed(step(pods, BOTH, silent=SILENT)) == [(P0, REASON)]


OTHER_REASONS: dict[str, dict[str, Any]] = {
    "draining": {"draining": True},
    "waiting": {"running": False, "ready": False},
}


@pytest.mark.parametrize("state", OTHER_REASONS)
def test_silence_does_not_override_another_removal_reason(state: str) -> None:
    pods = (GROUP[0]._replace(**OTHER_REASONS[state]), GROUP[1], *SECOND)
    assert step(pods, BOTH, silent=SILENT).leaders[0].state == state


def test_outdated_pod_list_removes_no_silent_leader() -> None:
    assert not step([*GROUP, *SECOND], BOTH, fresh=False, silent=SILENT).remove
