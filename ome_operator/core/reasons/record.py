"""The record of a reason: the word that conditions contain, with its meaning, remedy and severity."""

from enum import StrEnum
from typing import Self

from ome_operator.core.reasons.conditions import READY

ORDINARY = 100
"""Default of `ReasonRecord.gravity`."""
POD = "Pod"
"""Value in `ReasonRecord.of` for a reason that is displayed for a pod (`ome explain`)."""


class State(StrEnum):
    """The state of a service, a group or a rank. `ome status` sorts by the state, worst first."""

    BROKEN = "broken"
    """Action is required."""
    WAITING = "waiting"
    """The object waits for something external: capacity, nodes, weights, or the wave of an edit."""
    STARTING = "starting"
    """The object will become ready without action."""
    ROLLING = "rolling"
    """Another revision is replacing the serving revision."""
    HELD = "held"
    """The service is paused or frozen, or the operator only observes the service."""
    OFF = "off"
    """The object is not supposed to run."""
    READY = "ready"
    """Nothing is wrong."""

    @property
    def sort_position(self) -> int:
        """The position of the state among all states. The worst state has the position 0."""
        return list(State).index(self)


class RolloutStage(StrEnum):
    """The stages of a rollout of a revision, in the order in which the operator checks them (`core/rollout/intent.py`). Each
    value is the statement that is true when the stage is passed.
    """

    VALID = "The spec, the model and the runtime are valid"
    RELEASED = "No pause, freeze or observe mode holds the revision back"
    WEIGHTS = "Enough nodes have the weights"
    CAPACITY = "Nodes have capacity for the revision"
    ACCEPTED = "The API server accepts the revision"
    WAVE = "The wave of the service has begun"
    READY = "The groups of the revision are ready"
    ALONE = "The old revision is gone"

    @property
    def number(self) -> int:
        """The position of the stage among all stages, from 0."""
        return list(RolloutStage).index(self)


class Kstatus(StrEnum):
    """Which of the conditions Reconciling and Stalled an object has because of a reason (`core/status/conditions.py`). The
    values are the words of kstatus, which Helm and Flux use to interpret the object.

    Helm and Flux regard an object that is Stalled as failed, and may roll back. So a reason that other objects, nodes,
    agents, quotas or time can remove is InProgress, even if somebody has to act: a release may create the model or the
    runtime a second after the service.
    """

    CURRENT = "Current"
    """Neither Reconciling nor Stalled: the object is as its spec requires."""
    IN_PROGRESS = "InProgress"
    """Reconciling: the object makes progress without action, or as soon as something outside of the object changes."""
    FAILED = "Failed"
    """Stalled: the object makes progress only after an edit of this object. A BenchmarkJob that has failed makes no
    progress.
    """


class ReasonRecord(str):
    """A reason: a string with the word that conditions and JSON contain, and attributes that describe it.

    The record compares, hashes and serializes like the word, and a copy or pickle of the record is the plain word. It is
    not a dataclass, because code that serializes dataclasses field by field, such as the flight recorder, has to write the
    word.
    """

    word: str
    """The word of the reason as a plain string."""
    of: tuple[str, ...]
    """Types of the conditions that can have the reason. The conditions Ready and Scaled also repeat the
    reasons of the other conditions."""
    kstatus: Kstatus
    meaning: str
    """Description of what has happened, in Markdown, for docs/troubleshooting.md."""
    remedy: str
    """Description of what to do. If `printed` is True, it is plain text with the placeholders `{service}`, `{which}`,
    `{columns}` and `{holders}`; otherwise Markdown."""
    printed: bool
    """Whether `ome explain` and `ome ui` print the remedy. For other reasons the message of the condition states what to
    do."""
    router_remedy: str
    """The remedy for a router's pod; "" if it is the same as for engines."""
    see: str
    """A sentence or link in Markdown that follows the remedy in docs/troubleshooting.md."""
    state: State
    stage: RolloutStage | None
    """The stage that a rollout has not passed while the condition RolledOut has this reason; None for other reasons."""
    passing: bool
    """Whether the state ends without action. The operator writes no Warning Event about such a state."""
    loud: bool
    """Whether an Event of type Warning is written if the condition RolledOut has the reason. For other conditions, such an
    Event is written for every reason that is not `passing`."""
    gravity: int
    """Rank of the reason among several reasons that are reported together. The lowest value is reported first. From
    ORDINARY on, reasons of pods are sorted by name."""
    pods: str
    """The text that follows a number of pods, such as "unschedulable" in "2 pods unschedulable"; "" to use the name of
    the reason."""
    stops: bool
    """Whether a rollout with the reason waits for a change that a person has to make, although the state of the reason is
    WAITING."""
    on_its_way: bool
    """Whether a pod has the reason during a normal start, so that the condition of its component gets the reason
    Progressing."""

    def __new__(cls, word: str, **_: object) -> Self:
        """Create the string that is the word. The other arguments are set as attributes by `__init__`."""
        return str.__new__(cls, word)

    def __init__(
        self, word: str, *, of: tuple[str, ...], kstatus: Kstatus, meaning: str, remedy: str = "", printed: bool = False,
        router_remedy: str = "", see: str = "", state: State = State.BROKEN, stage: RolloutStage | None = None,
        passing: bool = False, loud: bool = False, gravity: int = ORDINARY, pods: str = "", stops: bool = False,
        on_its_way: bool = False,
    ) -> None:  # fmt: skip
        """Set the attributes of the record."""
        self.word, self.of, self.kstatus = word, of, kstatus
        self.meaning, self.remedy, self.printed, self.router_remedy, self.see = meaning, remedy, printed, router_remedy, see
        self.state, self.stage, self.passing, self.loud, self.gravity = state, stage, passing, loud, gravity
        self.pods, self.stops, self.on_its_way = pods, stops, on_its_way

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        """Return the serialized form of the record, which is its word."""
        return str, (self.word,)

    @property
    def is_good(self) -> bool:
        """Whether a condition with the reason is in a good state and requires no action."""
        return self.state is State.READY

    @property
    def passes(self) -> bool:
        """Whether a rollout that stops at the reason's stage continues without action."""
        return self.stage is not None and self.state in (State.WAITING, State.STARTING) and not self.stops

    @property
    def read_as(self) -> Kstatus:
        """How kstatus interprets an object that has a condition with this reason. kstatus also reads the condition Ready,
        and an object that is not Ready is never Current.
        """
        unready = self.kstatus is Kstatus.CURRENT and not self.is_good and READY in self.of
        return Kstatus.IN_PROGRESS if unready else self.kstatus

    @property
    def is_in_progress(self) -> bool:
        """Whether a rollout with the reason is in progress and waits for nothing external."""
        return self.stage is not None and self.state is State.STARTING
