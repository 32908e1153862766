"""What a person asks `ome plan` for: a model on GPUs, the load, and bounds of time."""

import math
from dataclasses import dataclass

from ome_operator.sizing.gpus import Price
from ome_operator.sizing.loop import Load
from ome_operator.sizing.refused import PlanRefused
from ome_operator.sizing.steps import ServingStack
from ome_operator.sizing.workloads import seconds

_MOST = 1e9


@dataclass(frozen=True)
class PlanRequest:
    """What a service has to do, on how many nodes."""

    place: ServingStack
    loads: tuple[Load, ...]
    nodes: int
    rate: float | None = None
    """Requests a second that come by chance; None if their number is fixed, or as many come as can be answered."""
    concurrency: float | None = None
    """Requests that are always there; None if they come by chance."""
    ttft: float = math.inf
    """Longest mean time in seconds."""
    tpot: float = math.inf
    """Longest mean time in seconds."""

    @property
    def per_node(self) -> int:
        """GPUs of a node."""
        return self.place.gpu.node

    @property
    def title(self) -> str:
        """Model, GPUs and engine in words, for the head of an answer."""
        place = self.place
        return (
            f"{place.shape.name} ({place.shape.precision}) on {counted(self.nodes)} of {place.gpu.node} "
            f"{place.gpu.name.upper()} with {place.engine}"
        )


def plan_request(
    place: ServingStack,
    loads: tuple[Load, ...],
    nodes: int,
    rate: float | None,
    concurrency: float | None,
    ttft: str | None,
    tpot: str | None,
) -> PlanRequest:
    """Return the request for these options of `ome plan`; raise PlanRefused for values that mean nothing.

    `rate` is in requests a second. `ttft` and `tpot` are written as 2, 2s, 500ms: a bare number is in seconds for `ttft`, in
    milliseconds for `tpot`.
    """
    _check_positive("--requests-per-second", rate)
    _check_positive("--concurrency", concurrency)
    if rate is not None and concurrency is not None:
        raise PlanRefused(
            "--requests-per-second and --concurrency are two ways to say how much comes: give only a single way."
        )
    return PlanRequest(
        place,
        loads,
        nodes,
        rate,
        concurrency,
        seconds(ttft, "s", "--ttft") if ttft is not None else math.inf,
        seconds(tpot, "ms", "--tpot") if tpot is not None else math.inf,
    )


def price_paid(place: ServingStack, usd: float | None) -> Price | None:
    """Return the given price of a GPU and an hour, or, without it, the published price; None if there is none."""
    _check_positive("--price", usd)
    return place.gpu.price if usd is None else Price(usd, "as given", "--price")


def _check_positive(option: str, value: float | None) -> None:
    if value is not None and not (math.isfinite(value) and 0 < value < _MOST):
        raise PlanRefused(f"{option} {value:g} is not above 0 and below a billion.")


def counted(nodes: int) -> str:
    """Return a number of nodes as a text: 1 node, 2 nodes."""
    return f"{nodes} node{'' if nodes == 1 else 's'}"
