"""Stories of waves over services that become complete, fail, are created and deleted, while the operator restarts at any
moment.
"""

from datetime import datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from ome_operator.core.observed.objects import Ref
from ome_operator.core.reconcile.plan import EditStand, EditState
from ome_operator.core.waves.terms import WaveTerms
from tests.support.fleet import RUNTIME, Fleet, service

WAVES = st.sampled_from([("1", "5%", "25%", "100%"), ("1",), ("100%",), ("2", "3", "50%"), ("20%", "4")])
ACTS = (
    "hear", "some", "some", "call", "whole", "whole", "fail", "mend", "restart", "bake", "wait", "edit", "new", "equal",
    "delete", "lose",
)  # fmt: skip


def allowed(fleet: Fleet) -> int:
    """Return how many services may have started or completed the edit at this moment. It is computed from the true state of
    each service, independently of the operator.
    """
    total, wave = len(fleet.services), 0
    proofs = {**fleet.whole, **fleet.equal}
    whole = sorted(since for name, since in proofs.items() if name in fleet.services and name not in fleet.lost)
    for size in fleet.terms.waves:
        share = -(-int(size[:-1]) * total // 100) if size.endswith("%") else int(size)
        wave = min(total, max(wave + 1, share))
        baked = len(whole) >= wave and whole[wave - 1] + timedelta(seconds=fleet.terms.bake) <= fleet.now
        if not baked:
            return wave
    return total


class Story(Fleet):
    """A fleet in which every start of an edit is checked."""

    def __init__(self, size: int, terms: WaveTerms) -> None:
        self.lost: set[Ref] = set()
        self.equal: dict[Ref, datetime] = {}
        """Services that became complete with the current object."""
        self.named = size
        super().__init__(size, terms)

    def restart(self) -> None:
        super().restart()
        self.registry._call = self.judge

    def judge(self, name: Ref) -> None:
        """Check that a service that starts the edit may do so. A start of an outdated edit does not count: its
        reconciliation waits for the next edit.
        """
        if self.registry._objects[RUNTIME].epoch != self.epoch:
            return
        assert not self.failed, "no service starts after a failure"
        self.called.append(name)
        on_their_way = self.begun | set(self.called) | self.whole.keys() | self.equal.keys()
        most = self.terms.at_once
        assert len(on_their_way) <= allowed(self), (len(on_their_way), allowed(self))
        assert not most or len(on_their_way - self.whole.keys() - self.equal.keys()) <= most

    def hear(self, name: Ref) -> None:
        if name in self.lost and name in self.whole:
            self.registry.report(name, {RUNTIME: EditStand(self.epoch, EditState.DONE, None)}, asks=False, begun=False)
        elif name in self.equal:
            self.registry.report(
                name, {RUNTIME: EditStand(self.epoch, EditState.EQUAL, self.equal[name])}, asks=False, begun=False
            )
        else:
            super().hear(name)

    def act(self, what: str, number: int) -> None:
        name = self.services[number % len(self.services)] if self.services else service(0)
        if what == "hear" and self.services:
            self.hear(name)
        elif what == "some":
            for other in self.services[number % 7 :: 3]:
                self.hear(other)
        elif what == "call":
            self.work()
        elif what == "whole" and self.begun - self.failed:
            self.become_whole(sorted(self.begun - self.failed)[number % len(self.begun - self.failed)])
        elif what == "fail" and self.begun:
            name = sorted(self.begun)[number % len(self.begun)]
            self.failed.add(name)
            self.hear(name)
        elif what == "mend":
            self.become_whole(*self.failed)
        elif what == "restart":
            self.restart()
        elif what in ("bake", "wait"):
            self.now += timedelta(seconds=self.terms.bake if what == "bake" else 7)
            self.told()
        elif what == "edit":
            # Services in progress take the new edit; those that were called and have not begun wait again.
            self.edit()
            self.equal.clear()
            self.called.clear()
        elif what in ("new", "equal"):
            self.named += 1
            self.services.append(service(self.named))
            if what == "equal":
                self.equal[self.services[-1]] = self.now
            self.hear(self.services[-1])
        elif what == "delete" and self.services:
            self.services.remove(name)
            for known in (self.begun, self.failed, self.lost):
                known.discard(name)
            self.whole.pop(name, None)
            self.equal.pop(name, None)
            self.called = [other for other in self.called if other != name]
            self.registry.forget(name)
        elif what == "lose" and name in self.whole:
            self.lost.symmetric_difference_update({name})
            if name not in self.lost:
                self.whole[name] = self.now  # complete since its group is ready again
            self.hear(name)


@given(
    size=st.integers(1, 60),
    terms=st.builds(WaveTerms, WAVES, st.sampled_from([0.0, 60.0]), st.sampled_from([0, 0, 3])),
    acts=st.lists(st.tuples(st.sampled_from(ACTS), st.integers(0, 1000)), max_size=60),
    waves=st.integers(0, 3),
)
def test_number_of_rollouts_is_within_the_wave_and_all_services_are_updated(
    size: int, terms: WaveTerms, acts: list[tuple[str, int]], waves: int
) -> None:
    story = Story(size, terms)
    for _ in range(waves):  # these waves are complete before the story begins
        story.hear_all()
        story.become_whole(*list(story.begun))
        story.wait(seconds=terms.bake)
    for what, number in acts:
        story.act(what, number)
    # From now on nothing fails, so all services complete the edit.
    story.lost.clear()
    story.become_whole(*story.failed)
    story.hear_all()
    for _ in range(10 * len(story.services) + 10):
        if len(story.whole | story.equal) == len(story.services):
            break
        story.become_whole(*list(story.begun))
        story.wait(seconds=terms.bake)
    assert len(story.whole | story.equal) == len(story.services)
