"""Predict how fast the groups of a service are, until their speed has been measured (docs/demand.md).

The prediction is computed as by `ome plan` from the layout, the GPUs and the lengths of requests of the service. The
predicted times are increased by the error bar of the prediction: nine of ten calibration rows that are similar to the
service are not slower than the increased times.
"""

from collections.abc import Mapping, Set
from typing import Any, NamedTuple

from ome_operator.api import Model
from ome_operator.capacity.memory import DECODE
from ome_operator.core.demand.facts import DECODE as DECODE_ROLE
from ome_operator.core.demand.facts import FULL, Curve, PlannedSpeeds, PrefillWork
from ome_operator.core.demand.facts import PREFILL as PREFILL_ROLE
from ome_operator.engines.flags import packaged_versions
from ome_operator.lint.launch import Launch, launch
from ome_operator.lint.memory import share
from ome_operator.lint.model import config_of
from ome_operator.lint.sglang import requests, sizes
from ome_operator.sizing import gpus, shapes, steps
from ome_operator.sizing.constants import shipped_constants
from ome_operator.sizing.error_bars import GPU, Bar, left_out, trust
from ome_operator.sizing.errors import PlanRefused
from ome_operator.sizing.layouts import MOST_BATCH
from ome_operator.sizing.memory import compute_fit
from ome_operator.sizing.predict import check_known
from ome_operator.sizing.queueing import Load, Role
from ome_operator.sizing.steps import ServingStack
from ome_operator.sizing.workers import Worker

SHORT = 8.0
"""The predicted time of prefill is a linear function of the length of the prompt. Two predictions determine the function:
for the mean length of the prompts, and for this length divided by `SHORT`."""
APART = 1.4
"""Ratio of the numbers of requests at neighboring points of the predicted curve."""
NEVER = 0.9
"""Largest relative error that is assumed for the time between tokens. The limit ensures that a predicted time is
multiplied by at most 10."""


class DescribedGroup(NamedTuple):
    """The engine of a group: its container of rank 0, and the annotations of that pod."""

    container: Mapping[str, Any]
    annotations: Mapping[str, str]


def predict_speeds(
    groups: Mapping[str, DescribedGroup], model: Model | None, hardware: Set[str], prompt: float, answer: float
) -> PlannedSpeeds:
    """Return the predicted speeds of prefill and decode groups, or the reason why there are none. `model` is None if the
    model of the service is not available.

    `groups` has the roles `prefill` and `decode`. `hardware` are the models of the GPUs on which the service may run, as
    AcceleratorClasses name them. `prompt` and `answer` are the mean lengths of requests in tokens.
    """
    try:
        return _predicted(groups, model, hardware, Load(prompt, answer))
    except PlanRefused as error:
        return PlannedSpeeds(missing=f"`ome plan` has no prediction: {str(error).rstrip('.')}")


def _predicted(groups: Mapping[str, DescribedGroup], model: Model | None, hardware: Set[str], load: Load) -> PlannedSpeeds:
    config = config_of(model) if model is not None else None
    if model is None or config is None:
        raise PlanRefused("`ome plan` does not know the config.json of the model")
    if len(hardware) != 1:
        raise PlanRefused(f"the service may run on {len(hardware)} models of GPUs, but a prediction needs a single one")
    starts = {role: _launch(role, group) for role, group in groups.items()}
    gpu = gpus.gpu(next(iter(hardware)))
    place = ServingStack(shapes.from_config(model.name, config), gpu, "sglang", starts[DECODE_ROLE].version)
    check_known(place, shipped_constants())
    workers = {role: _worker(role, start) for role, start in starts.items()}
    found = trust(place, Role(1, workers[PREFILL_ROLE]), Role(1, workers[DECODE_ROLE]), load)
    if place.shape.estimated:
        raise PlanRefused(found.extrapolated)
    bars: Mapping[str, Bar] = found.error_bars if {"tokens", "tpot"} <= found.error_bars.keys() else left_out(GPU, False)
    slower, paced = 1 + bars["tokens"].ninth, 1 / (1 - min(NEVER, bars["tpot"].ninth))
    return PlannedSpeeds(
        _prefill(place, workers[PREFILL_ROLE], load.prompt, slower),
        _decode(place, workers[DECODE_ROLE], starts[DECODE_ROLE], load, paced),
    )


def _launch(role: str, group: DescribedGroup) -> Launch:
    start = launch(group.container, group.annotations, packaged_versions())
    if start is None or start.engine != "sglang":
        raise PlanRefused(
            f"`ome plan` can read only the arguments of SGLang, but {role} starts "
            f"{(start.engine if start else 'another program')}"
        )
    if start.text("--device") == "cpu":
        raise PlanRefused(f"{role} runs on CPUs")
    if start.text("--speculative-algorithm"):
        raise PlanRefused(f"{role} uses speculative decoding, and its rate of accepted tokens is not known")
    return start


def _worker(role: str, start: Launch) -> Worker:
    """Return the worker of a group. Raises PlanRefused for a layout that the prediction does not cover, such as pipeline
    stages or several copies of the model.
    """
    found = sizes(start)
    tp, dp = found.attention_tp, found.attention_dp
    if not tp or not dp or not found.ep or found.gpus is None:
        raise PlanRefused(f"`ome plan` does not know the parallel sizes of {role}")
    if found.gpus != tp * dp or found.ep not in (1, tp * dp):
        raise PlanRefused(
            f"{role} has pipeline stages, context parallelism, copies of the model or groups of experts, which the "
            "prediction does not cover"
        )
    return Worker(tp, dp, found.ep)


def _prefill(place: ServingStack, worker: Worker, prompt: float, slower: float) -> PrefillWork:
    short = prompt / SHORT
    first, last = (slower * steps.prefill(place, worker, length, length, shipped_constants()) for length in (short, prompt))
    token = min((last - first) / (prompt - short), last / prompt)
    return PrefillWork(max(0.0, last - token * prompt), token)


def _decode(place: ServingStack, worker: Worker, start: Launch, load: Load, slower: float) -> Curve:
    """Return the predicted curve of a decode group: points (number of requests, seconds between tokens), up to the number of
    requests that the group can hold. Predicted times are multiplied by `slower`. The last point states that the group is
    full.
    """
    context = load.prompt + load.answer / 2
    room = compute_fit(place.shape, place.gpu, worker, DECODE, share(start) or 0.0)
    if room.missing > 0:
        raise PlanRefused("a decode group of these sizes does not fit into the memory of its GPUs")
    slots = min(MOST_BATCH, room.requests(place.shape, worker, context), requests(start, sizes(start)) or MOST_BATCH)
    most = slots * worker.dp
    if most < 1:
        raise PlanRefused("the KV cache of a decode group cannot hold a request of the mean length")
    step = steps.decoder(place, worker, context, shipped_constants())
    batches, batch = list[float](), 1.0
    while batch < most:
        batches.append(batch)
        batch *= APART
    return (*((each, slower * step(each)) for each in (*batches, most)), (most + 1, FULL))
