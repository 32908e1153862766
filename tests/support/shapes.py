"""Random shapes of services, for property tests."""

from dataclasses import dataclass, replace
from typing import Any, Protocol

from hypothesis import strategies as st

from ome_operator.api import InferenceService
from ome_operator.core.observed.objects import Deps
from ome_operator.settings import Exposure
from tests.support import parts
from tests.support.parts import change_deps

STRATEGIES: dict[str, dict[str, Any]] = {
    "recreate": {"recreate": {}},
    "blueGreen": {"blueGreen": {}},
    "surge": {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
    "faster": {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 2}},
}
GATEWAY = Exposure("HTTPRoute", "models.example.com", "", "infra/edge")


@dataclass(frozen=True)
class Shape:
    """The shape of a service as a user configures it, in a few numbers."""

    size: int = 2
    """Number of pods of a group."""
    engines: int = 1
    decoders: int = 0
    """Number of decoder groups; 0 for no decoder."""
    router: bool = True
    scaled: bool = False
    """Whether an autoscaler may add a group."""
    image: str = "a"
    paused: bool = False
    pin: str = ""
    rollback: bool = False
    """Whether a failing slice is rolled back to the previous one."""

    strategy: str = ""
    """Name of a strategy in STRATEGIES; "" for the default."""
    gateway: bool = False
    """Whether an HTTPRoute exposes the service."""

    def service(self) -> InferenceService:
        """Return the service."""
        extra = {"maxReplicas": self.engines + 1, "scaleMetric": "cpu"} if self.scaled else {}
        spec: dict[str, Any] = {"engine": {"minReplicas": self.engines, **extra}}
        if self.decoders:
            spec["decoder"] = {"minReplicas": self.decoders}
        if self.router:
            spec["router"] = {}
        rollout = {
            **({"paused": True} if self.paused else {}),
            **({"revision": self.pin} if self.pin else {}),
            **STRATEGIES.get(self.strategy, {}),
            **({"onFailure": "Rollback", "readyTimeout": "5m"} if self.rollback else {}),
        }
        return parts.service(**spec, **({"rollout": rollout} if rollout else {}))

    def deps(self, model: bool = True, runtime: bool = True) -> Deps:
        """Return the objects to which the service refers. Without `model` or `runtime`, that object does not exist."""
        found = [parts.model()] if model else []
        if runtime:
            found.append(parts.simple(self.size, decoder=True, image=self.image))
        return change_deps(parts.deps(*found), exposure=GATEWAY if self.gateway else Exposure())

    @property
    def pods(self) -> int:
        """Return the number of the service's pods after everything has settled."""
        return (self.engines + self.decoders) * self.size + self.router


def shapes(**fixed: Any) -> st.SearchStrategy[Shape]:
    """Return a strategy for random shapes. `fixed` contains values of some fields, or strategies for them."""
    free: dict[str, st.SearchStrategy[Any]] = {
        "size": st.integers(1, 3),
        "engines": st.integers(0, 3),
        "decoders": st.integers(0, 2),
        "router": st.booleans(),
        "scaled": st.booleans(),
        "strategy": st.sampled_from(["", *STRATEGIES]),
        "gateway": st.booleans(),
    }
    chosen = {name: value if isinstance(value, st.SearchStrategy) else st.just(value) for name, value in fixed.items()}
    return st.builds(Shape, **{**free, **chosen})


seeds = st.integers(0, 10_000)
lags = st.integers(0, 3)


class Shaped(Protocol):
    """A story of a service whose shape is edited. The functions below change only `shape`."""

    shape: Shape


def edit(story: Shaped, value: int) -> None:
    """Change the image, which creates a new revision."""
    story.shape = replace(story.shape, image="abc"[value % 3])


def grow(story: Shaped, value: int) -> None:
    """Change the number of engine groups to 1, 2 or 3."""
    story.shape = replace(story.shape, engines=1 + value % 3)


def reshape(story: Shaped, value: int) -> None:
    """Add or remove a router and a decoder."""
    story.shape = replace(story.shape, router=bool(value & 1), decoders=value >> 1 & 1)
