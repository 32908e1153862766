"""The request to `ome plan`: a model on GPUs, the load, and upper bounds for TTFT and TPOT."""

import math
from dataclasses import dataclass, replace

from ome_operator.sizing.errors import PlanRefused
from ome_operator.sizing.gpus import Gpu, Price
from ome_operator.sizing.queueing import NO_DRAFTS, Drafts, Load, expected_drafts
from ome_operator.sizing.steps import ServingStack
from ome_operator.sizing.workloads import seconds
from ome_operator.util.wording import count

_MOST = 1e9


@dataclass(frozen=True)
class PlanRequest:
    """A request to `ome plan`: a model on GPUs, the load, the upper bounds for TTFT and TPOT, and the number of nodes."""

    place: ServingStack
    loads: tuple[Load, ...]
    nodes: int
    rate: float | None = None
    """Number of requests per second, which arrive at random. None if `concurrency` is set, or if the plan should reach
    the largest possible rate."""
    concurrency: float | None = None
    """Number of requests that are in progress at all times. None if requests arrive at random, or if the plan should
    reach the largest possible rate."""
    ttft: float = math.inf
    """Upper bound of the mean time to first token, in seconds."""
    tpot: float = math.inf
    """Upper bound of the mean time per output token, in seconds."""
    drafts: Drafts = NO_DRAFTS
    """The speculative decoding of the engines."""

    @property
    def per_node(self) -> int:
        """The number of GPUs in a node."""
        return self.place.gpu.node

    @property
    def title(self) -> str:
        """The title of a plan, which names the model, the GPUs and the engine."""
        place = self.place
        return (
            f"{place.shape.name} ({place.shape.precision}) on {count(self.nodes, 'node')} of {place.gpu.node} "
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
    drafts: Drafts = NO_DRAFTS,
) -> PlanRequest:
    """Return the request for the values of the options of `ome plan`. Raises PlanRefused for an invalid value.

    `rate` is in requests per second. `ttft` and `tpot` are texts such as 2, 2s or 500ms. A number without a unit is in
    seconds for `ttft`, and in milliseconds for `tpot`.
    """
    _check_positive("--requests-per-second", rate)
    _check_positive("--concurrency", concurrency)
    if rate is not None and concurrency is not None:
        raise PlanRefused("--requests-per-second and --concurrency both describe the load: pass only one of them.")
    return PlanRequest(
        place,
        loads,
        nodes,
        rate,
        concurrency,
        seconds(ttft, "s", "--ttft") if ttft is not None else math.inf,
        seconds(tpot, "ms", "--tpot") if tpot is not None else math.inf,
        drafts,
    )


def drafts(tokens: int, accepted: float | None) -> Drafts:
    """Return the speculative decoding for --mtp and --accepted. Raises PlanRefused if they contradict each other."""
    if accepted is None:
        return expected_drafts(tokens)
    if not tokens:
        raise PlanRefused("--accepted needs --mtp, the number of draft tokens of a step.")
    if not 0 <= accepted <= tokens:
        raise PlanRefused(f"--accepted is {accepted:g}: pass 0 to {tokens}, the draft tokens of a step that are accepted.")
    return Drafts(tokens, accepted)


def part_of_node(gpu: Gpu, gpus: int) -> tuple[Gpu, int]:
    """Return the GPU and the number of nodes for --gpus. If --gpus is a part of a node, a node of the result has only this
    number of GPUs.

    Raises PlanRefused if the number is neither a part of a node nor complete nodes.
    """
    if gpus % gpu.node == 0:
        return gpu, gpus // gpu.node
    if gpus in (1, 2, 4) and gpus < gpu.node:
        return replace(gpu, node=gpus), 1
    raise PlanRefused(
        f"--gpus is {gpus}: pass 1, 2 or 4 GPUs of a node, or a multiple of the {gpu.node} GPUs of a node of "
        f"{gpu.name.upper()}."
    )


def gpu_price(place: ServingStack, usd: float | None) -> Price | None:
    """Return the price of a GPU for an hour: `usd` if it is given, otherwise the published price; None if there is no
    published price. Raises PlanRefused for a price that is not above 0.
    """
    _check_positive("--price", usd)
    return place.gpu.price if usd is None else Price(usd, "as given", "--price")


def _check_positive(option: str, value: float | None) -> None:
    if value is not None and not (math.isfinite(value) and 0 < value < _MOST):
        raise PlanRefused(f"{option} is {value:g}: pass a number above 0 and below a billion.")
