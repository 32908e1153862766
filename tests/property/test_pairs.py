"""Stories of pairs of prefill and decode leaders: leaders and links break and are repaired, leaders are busy, and the
registry may have no network.
"""

import os
import random
from itertools import product

import pytest

from ome_operator.registry.pairs import PairResult, Pairs, failing_pairs, faulty_leaders, next_pair, with_probe_result

STORIES = 10_000 if "OME_SOAK" in os.environ else 300
LATE = 12.0
NOISE = 0.01
"""Probability with which a probe fails although the pair works. Three such failures in a row happen in some of 10,000
stories.
"""


class Story:
    """The leaders of a slice and its registry, from the first failed transfer between a prefill and a decode leader on."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.prefill = [f"p{number}" for number in range(self.random.randint(1, 4))]
        self.decode = [f"d{number}" for number in range(self.random.randint(1, 4))]
        self.bad_links: set[tuple[str, str]] = set()
        self.bad: set[str] = set()
        self.busy: set[str] = set()
        self.quiet: set[str] = set()
        """Leaders that are busy and report it too late."""
        self.cut = False
        self.pairs: Pairs = {}
        self.running: dict[tuple[str, str], tuple[float, float, PairResult, frozenset[str]]] = {}
        self.now = 0.0
        self.broken_at: dict[str, float] = {}
        """Leader -> time until which the registry may keep the leader out of the router's list, because of a fault of the
        leader or of one of its links."""

    def change(self) -> None:
        """Let a random leader or link break, recover, become busy, or become idle."""
        rng, leaders = self.random, [*self.prefill, *self.decode]
        what = rng.choice(("link", "leader", "repair", "busy", "idle", "cut", "restart", "nothing"))
        if what == "link":
            self.bad_links.add((rng.choice(self.prefill), rng.choice(self.decode)))
        elif what == "leader":
            self.bad.add(rng.choice(leaders))
        elif what == "repair":
            self.bad, self.bad_links = set(), set()
        elif what == "busy":
            self.busy.add(rng.choice(leaders))
        elif what == "idle":
            self.busy = set()
        elif what == "cut":
            self.cut = not self.cut
        elif what == "restart":
            role = rng.choice((self.prefill, self.decode))
            old = role.pop(rng.randrange(len(role)))
            role.append(f"{old[0]}{int(self.now)}x")
            self.bad.discard(old)
            self.busy.discard(old)

    def probe(self, pair: tuple[str, str]) -> None:
        """Send a request through a pair."""
        rng = self.random
        busy = frozenset(uid for uid in pair if uid in self.busy)
        if self.cut:
            took, result = LATE, rng.choice((PairResult.LATE, PairResult.UNCLEAR))
        elif pair in self.bad_links or not self.bad.isdisjoint(pair):
            took, result = rng.choice(((LATE, PairResult.LATE), (1.0, PairResult.FAILED)))
        elif busy:
            took, result = rng.choice(((LATE, PairResult.LATE), (4.0, PairResult.WORKED), (0.2, PairResult.UNCLEAR)))
        elif rng.random() < NOISE:
            took, result = rng.choice(((LATE, PairResult.LATE), (1.0, PairResult.FAILED)))
        else:
            took, result = rng.uniform(0.1, 2.0), PairResult.WORKED
        self.running[pair] = self.now, self.now + took, result, busy

    def step(self) -> frozenset[str]:
        """Advance by one second, and return the leaders that the registry keeps out of the router's list."""
        self.now += 1.0
        for pair, (began, ends, result, busy) in [*self.running.items()]:
            if ends <= self.now:
                del self.running[pair]
                self.pairs = with_probe_result(self.pairs, pair, result, busy, began)
        suspects = frozenset(uid for uid in (*self.prefill, *self.decode) if uid in self.bad)
        if len(self.running) < 4:
            pair = next_pair(self.pairs, self.prefill, self.decode, suspects, self.running, self.now)
            if pair is not None:
                self.probe(pair)
        for uid in (*self.prefill, *self.decode):
            if uid in self.bad or any(uid in pair for pair in self.bad_links):
                self.broken_at[uid] = self.now
        return faulty_leaders(self.pairs, self.prefill, self.decode, self.now)


MEMORY = 180.0
"""Seconds after a repair during which a leader may still be missing in the router's list. The more pairs a leader has, the
more rarely each pair is probed.
"""


@pytest.mark.parametrize("part", range(10))
def test_no_leader_is_blamed_without_a_fault_of_its_own_or_its_links(part: int) -> None:
    out = 0
    for seed in range(part * STORIES // 10, (part + 1) * STORIES // 10):
        story = Story(seed)
        for second in range(240):
            if second % 30 == 0:
                story.change()
            blamed = story.step()
            out += len(blamed)
            for uid in blamed:
                assert story.now - story.broken_at.get(uid, -1e9) <= MEMORY, (seed, second, uid)
            assert {*story.prefill} - blamed and {*story.decode} - blamed, "the last leader of a role is never removed"
    assert out, "no leader was removed in any story"


@pytest.mark.parametrize("part", range(10))
def test_leader_that_cannot_transfer_is_removed_and_returns(part: int) -> None:
    for seed in range(part * STORIES // 10, (part + 1) * STORIES // 10):
        story = Story(seed)
        role = max((story.prefill, story.decode), key=len)
        if len(role) < 2:
            continue
        story.bad = {broken := story.random.choice(role)}
        took = next((second for second in range(150) if broken in story.step()), None)
        assert took is not None, seed
        assert story.step() <= {broken}, seed
        story.bad = set()
        assert any(not story.step() for _ in range(120)), seed


@pytest.mark.parametrize(("failures", "blamed"), [(3, set()), (4, {"d0"})])
def test_leader_is_blamed_only_after_more_than_three_consecutive_failures(failures: int, blamed: set[str]) -> None:
    pairs: Pairs = {}
    for at in range(10):
        pairs = with_probe_result(pairs, ("p", "d1"), PairResult.WORKED, (), 10.0 * at)
    for at in range(10, 10 + failures):
        pairs = with_probe_result(pairs, ("p", "d0"), PairResult.FAILED, (), 10.0 * at)
        pairs = with_probe_result(pairs, ("p", "d1"), PairResult.WORKED, (), 10.0 * at + 5)
    assert faulty_leaders(pairs, ["p"], ["d0", "d1"], 10.0 * at + 6) == blamed
    assert bool(failing_pairs(pairs, ["p", "d0", "d1"], 10.0 * at + 6)) == bool(blamed)


def test_single_failing_pair_is_named_and_no_leader_removed() -> None:
    story = Story(0)
    story.prefill, story.decode, story.bad = ["p"], ["d"], {"d"}
    assert not any(story.step() for _ in range(120))
    assert [*failing_pairs(story.pairs, ["p", "d"], story.now)] == [("p", "d")]


@pytest.mark.parametrize(("prefill", "decode"), [*product((1, 2, 3, 4), repeat=2)])
def test_broken_link_removes_the_leader_with_fewer_other_partners(prefill: int, decode: int) -> None:
    story = Story(1)
    story.prefill, story.decode = [f"p{each}" for each in range(prefill)], [f"d{each}" for each in range(decode)]
    story.bad_links = {("p0", "d0")}
    for _ in range(120):
        blamed = story.step()
    if prefill == decode == 1:
        assert not blamed
    elif prefill < decode:
        assert blamed == {"d0"}, "with fewer partners, a larger share of probes fails"
    elif prefill > decode:
        assert blamed == {"p0"}
    else:
        assert blamed == {"p0"}
    assert [*failing_pairs(story.pairs, [*story.prefill, *story.decode], story.now)] == [("p0", "d0")]
