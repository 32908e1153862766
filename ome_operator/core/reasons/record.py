"""What is known about a reason: the record behind each word that a condition carries."""

from enum import StrEnum
from typing import Self

ORDINARY = 100
"""Gravity of a reason that has no place among the gravest."""
POD = "Pod"
"""Stands among the conditions of a reason that is shown for a pod (`ome explain`)."""


class State(StrEnum):
    """How a service, a group or a rank is: the states that `ome status` sorts by, the worst first."""

    BROKEN = "broken"
    """A person has to act."""
    WAITING = "waiting"
    """It waits for something that others provide: capacity, nodes, weights, its wave."""
    STARTING = "starting"
    """It becomes ready by itself."""
    ROLLING = "rolling"
    """Another revision replaces the one that serves."""
    HELD = "held"
    """Somebody paused or froze it, or it is only observed."""
    OFF = "off"
    """It is not supposed to run."""
    READY = "ready"
    """Nothing is wrong."""

    @property
    def order(self) -> int:
        """Its position among all states; the worst is 0."""
        return list(State).index(self)


class RolloutStage(StrEnum):
    """The stages of a rollout in the order in which the operator goes through them (`core/rollout/intent.py`)."""

    VALID = "Its spec, model and runtime are valid"
    RELEASED = "It is not paused, frozen or only observed"
    WEIGHTS = "Its weights are on enough nodes"
    CAPACITY = "Nodes have capacity for it"
    ACCEPTED = "The API server accepts it"
    WAVE = "Its wave has begun"
    READY = "Its groups are ready"
    ALONE = "The old revision is gone"

    @property
    def number(self) -> int:
        """Its position among all stages, from 0."""
        return list(RolloutStage).index(self)


class Kstatus(StrEnum):
    """How kstatus, and with it Helm, Flux and Argo CD, should read an object with a condition for this reason.

    Nothing writes the conditions Reconciling and Stalled yet; these values are the basis for them. A fault of pods is
    InProgress until ProgressDeadlineExceeded, as kstatus reads a Deployment: the kubelet tries again by itself.
    """

    CURRENT = "Current"
    """Neither condition: the object is as its spec asks for."""
    IN_PROGRESS = "InProgress"
    """Reconciling: it goes on by itself, or when whatever it waits for is there."""
    FAILED = "Failed"
    """Stalled: it goes on only after an edit, or when a person has acted."""


class ReasonRecord(str):
    """A reason: the word as a string, which conditions store and JSON contains, with all that is known about it.

    It compares, hashes and serializes as its word. A copy or a pickle of it is the plain word. It is no dataclass, because
    whoever writes a dataclass field by field, as the flight recorder does, has to write the word.
    """

    word: str
    """The word as a plain string."""
    of: tuple[str, ...]
    """Types of the conditions that carry it. The condition Ready repeats the reasons of the other conditions."""
    kstatus: Kstatus
    meaning: str
    """What has happened, in Markdown, for docs/troubleshooting.md."""
    remedy: str
    """What to do. Markdown, or where it is `printed`, plain text with `{service}`, `{which}`, `{columns}`, `{holders}`."""
    printed: bool
    """Whether `ome explain` and `ome ui` print the remedy. The messages of other conditions name the fix themselves."""
    router_remedy: str
    """The remedy for a router's pod, where it differs from that for engines."""
    see: str
    """A sentence or link in Markdown that follows the remedy on the page."""
    state: State
    stage: RolloutStage | None
    """The stage of a rollout that is not done while RolledOut carries the reason."""
    passing: bool
    """Whether it goes away by itself, so that no Event warns of it."""
    loud: bool
    """Whether an Event warns when RolledOut carries it. Other conditions warn for every reason that is not `passing`."""
    gravity: int
    """Its position where several reasons are reported together, the gravest first. From ORDINARY on pods' reasons are sorted
    by name."""
    pods: str
    """How it reads after a number of pods, such as "2 pods unschedulable"; "" for the word itself."""
    on_its_way: bool
    """Whether a pod has it while nothing is wrong, so that the condition of its component is Progressing."""

    def __new__(cls, word: str, **_: object) -> Self:
        """Make the string; the other arguments are fields of the record."""
        return str.__new__(cls, word)

    def __init__(
        self, word: str, *, of: tuple[str, ...], kstatus: Kstatus, meaning: str, remedy: str = "", printed: bool = False,
        router_remedy: str = "", see: str = "", state: State = State.BROKEN, stage: RolloutStage | None = None,
        passing: bool = False, loud: bool = False, gravity: int = ORDINARY, pods: str = "", on_its_way: bool = False,
    ) -> None:  # fmt: skip
        """Keep what is known about the reason."""
        self.word, self.of, self.kstatus = word, of, kstatus
        self.meaning, self.remedy, self.printed, self.router_remedy, self.see = meaning, remedy, printed, router_remedy, see
        self.state, self.stage, self.passing, self.loud, self.gravity = state, stage, passing, loud, gravity
        self.pods, self.on_its_way = pods, on_its_way

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        """Reduce the record to its word."""
        return str, (self.word,)

    @property
    def good(self) -> bool:
        """Whether a condition with it is as it should be, so that nobody has to act."""
        return self.state is State.READY

    @property
    def passes(self) -> bool:
        """Whether a rollout that stops at its stage goes on by itself."""
        return self.stage is not None and self.kstatus is Kstatus.IN_PROGRESS and self.state is not State.HELD

    @property
    def moves(self) -> bool:
        """Whether a rollout with it is under way: it waits for nothing that others provide."""
        return self.stage is not None and self.state is State.STARTING
