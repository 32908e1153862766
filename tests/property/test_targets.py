"""After any history of edits, pins, failures and restarts, the target is a stored revision and does not change any more."""

from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from ome_operator import keys
from ome_operator.core.rollout.target import TargetRevision, target
from tests.conftest import STORY
from tests.support.shapes import STRATEGIES, Shape, lags, seeds, shapes
from tests.support.simulator import World

NOW = datetime(2026, 1, 1)
IMAGES = "abcdef"


@dataclass
class History:
    """A service that consists of its stored state only."""

    numbers: dict[str, int] = field(default_factory=dict)
    status: dict[str, Any] = field(default_factory=lambda: {"whole": "", "rejected": ()})
    pin: str = ""
    retry: str = ""
    broken: frozenset[str] = frozenset()
    """Revisions that never become ready."""

    @property
    def aim(self) -> TargetRevision:
        """Return the revision that the operator chooses as the target."""
        return target(self.pin, self.numbers, [self.status["whole"]], self.status["rejected"], self.retry)

    def step(self) -> TargetRevision:
        """Let the target become ready or fail, and update the status: a target that is ready is complete; a target that
        fails is rejected if there is a revision to return to. Return the target before this step.
        """
        aim = self.aim
        rejected = aim.rejected
        if aim.revision in self.broken and aim.revision != self.status["whole"]:
            rejected += (aim.reject("ProgressDeadlineExceeded", "", NOW),) if aim.back else ()
            self.status = {**self.status, "rejected": rejected}
        elif aim.rejection is None:
            self.status = {"whole": aim.revision, "rejected": rejected}
        self.collect(aim)
        return aim

    def collect(self, aim: TargetRevision) -> None:
        """Apply the history limit in the worst case, by removing every revision that is not needed."""
        self.numbers = {name: number for name, number in self.numbers.items() if name in aim.used_revisions}

    def edit(self, name: str) -> None:
        """Set the user's last edit."""
        newest = max(self.numbers, key=self.numbers.__getitem__, default="")
        if name != newest:
            self.numbers[name] = max(self.numbers.values(), default=0) + 1


events = st.one_of(
    st.tuples(st.just("edit"), st.sampled_from(IMAGES)),
    st.tuples(st.just("pin"), st.sampled_from(["", "", *IMAGES, "unknown"])),
    st.tuples(st.just("break"), st.frozensets(st.sampled_from(IMAGES))),
    st.tuples(st.just("retry"), st.sampled_from(["", "1", "2"])),
    st.tuples(st.just("forget"), st.just("")),
)


def happen(one: History, kind: str, value: Any) -> None:
    """Let an event happen to the service: an edit, a pin, revisions that fail, a retry, or the loss of the status."""
    if kind == "edit":
        one.edit(value)
    elif kind == "pin":
        one.pin = value
    elif kind == "break":
        one.broken = value
    elif kind == "retry":
        one.retry = value
    else:
        one.status = {"whole": "", "rejected": ()}  # the status is lost, as in a restored backup


@given(st.lists(st.tuples(events, st.integers(0, 4)), max_size=30))
def test_target_is_a_stored_revision_and_becomes_stable(history: list[tuple[tuple[str, Any], int]]) -> None:
    one = History()
    one.edit("a")
    for (kind, value), steps in history:
        happen(one, kind, value)
        for _ in range(steps):
            one.step()
    seen = [one.step().revision for _ in range(6)]
    assert set(seen) <= one.numbers.keys()
    assert seen[1:] == [seen[1]] * 5, "at most one step back, and none forward"
    final = one.aim
    assert final.wish == (one.pin if one.pin in one.numbers else max(one.numbers, key=one.numbers.__getitem__))
    assert final.revision == final.wish or final.wish in one.broken or final.rejection is not None


@given(st.lists(st.tuples(events, st.integers(0, 4)), max_size=20))
def test_rejected_revision_is_retried_only_after_a_user_action(history: list[Any]) -> None:
    """A revision that was rejected, and so replaced as the target, becomes the target again only after an action of the
    user.
    """
    one = History()
    one.edit("a")
    for (kind, value), steps in history:
        happen(one, kind, value)
        goes = [one.step().revision for _ in range(steps)]
        runs = [name for number, name in enumerate(goes) if number == 0 or goes[number - 1] != name]
        assert len(runs) == len(set(runs)) <= 2


@STORY
@given(
    st.lists(st.tuples(st.sampled_from("abcd"), st.booleans()), min_size=1, max_size=5),
    st.frozensets(st.sampled_from("abcd"), max_size=3),
    shapes(engines=st.integers(1, 3), scaled=False, rollback=True, strategy=st.sampled_from(["", *STRATEGIES])),
    seeds,
    lags,
)
def test_last_working_revision_serves_after_a_failed_edit(
    edits: list[tuple[str, bool]], broken: frozenset[str], shape: Shape, seed: int, lag: int
) -> None:
    """After a failed edit, the service serves with the revision that worked last. The stories use complete
    reconciliations with `sync`, and restarts of the operator.
    """
    world = World(shape.service(), replace(shape, image=edits[0][0]).deps(), seed)
    world.lag = lag
    world.healthy = lambda pod: image_of(world, pod.labels[keys.REVISION]) not in broken
    works = ""
    for image, restart in edits:
        world.edit(deps=replace(shape, image=image).deps())
        world.run(3 * restart)
        if restart:
            world.restart()
        world.settle()
        works = image if image not in broken else works
        runs = {image_of(world, pod.labels[keys.REVISION]) for pod in world.pods.values()}
        assert runs == {works} if works else image in runs
        assert (world.condition("Ready")["status"] == "True") == bool(works)
        reason = "Complete" if works == image else "RolledBack" if works else "ProgressDeadlineExceeded"
        assert world.condition("RolledOut")["reason"] == reason


def image_of(world: World, revision: str) -> str:
    """Return the image of a revision."""
    data = world.children["ControllerRevision", f"svc-{revision}"].manifest["data"]
    return str(data["inputs"]["runtime"]["engineConfig"]["runner"]["image"])
