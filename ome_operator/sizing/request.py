"""The request to `ome plan`: a model on GPUs, the load, and bounds for TTFT and TPOT."""

import math
from dataclasses import dataclass

from ome_operator.sizing.errors import PlanRefused
from ome_operator.sizing.gpus import Price
from ome_operator.sizing.queueing import Load
from ome_operator.sizing.steps import ServingStack
from ome_operator.sizing.workloads import seconds

_MOST = 1e9


@dataclass(frozen=True)
class PlanRequest:
    """The load and the bounds of a service, and the number of nodes that it may use."""

    place: ServingStack
    loads: tuple[Load, ...]
    nodes: int
    rate: float | None = None
    """Requests per second that arrive at random. None if `concurrency` is given, or if the largest possible rate is
    wanted."""
    concurrency: float | None = None
    """Number of requests that are always in progress. None if requests arrive at random."""
    ttft: float = math.inf
    """Upper bound of the mean time to first token, in seconds."""
    tpot: float = math.inf
    """Upper bound of the mean time per output token, in seconds."""

    @property
    def per_node(self) -> int:
        """The number of GPUs in a node."""
        return self.place.gpu.node

    @property
    def title(self) -> str:
        """The model, GPUs and engine as the first line of a plan."""
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
    """Return the request for these options of `ome plan`. Raises PlanRefused for an invalid value.

    `rate` is in requests per second. `ttft` and `tpot` are written as 2, 2s or 500ms: a number without a unit is in seconds
    for `ttft`, in milliseconds for `tpot`.
    """
    _check_positive("--requests-per-second", rate)
    _check_positive("--concurrency", concurrency)
    if rate is not None and concurrency is not None:
        raise PlanRefused("--requests-per-second and --concurrency both describe the load: give only one of them.")
    return PlanRequest(
        place,
        loads,
        nodes,
        rate,
        concurrency,
        seconds(ttft, "s", "--ttft") if ttft is not None else math.inf,
        seconds(tpot, "ms", "--tpot") if tpot is not None else math.inf,
    )


def gpu_price(place: ServingStack, usd: float | None) -> Price | None:
    """Return `usd` as the price of a GPU for an hour; without it, the published price, or None if there is no published
    price.
    """
    _check_positive("--price", usd)
    return place.gpu.price if usd is None else Price(usd, "as given", "--price")


def _check_positive(option: str, value: float | None) -> None:
    if value is not None and not (math.isfinite(value) and 0 < value < _MOST):
        raise PlanRefused(f"{option} {value:g} is not above 0 and below a billion.")


def counted(nodes: int) -> str:
    """Return a number of nodes as text, such as "1 node" or "2 nodes"."""
    return f"{nodes} node{'' if nodes == 1 else 's'}"
