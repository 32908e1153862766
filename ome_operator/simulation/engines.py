"""The service times of the simulated engines.

The times come from published runs of DeepSeek-V3 in FP8 with SGLang 0.5.8.post1 on B200, prefill and decode on different
nodes of 8 GPUs (`ome_operator/sizing/data/calibration.csv`; the ids of the rows begin with
`dsr1_b200_sglang_fp8_disagg_8192x1024`). A test compares the numbers here with the rows.
"""

from bisect import bisect_left

from ome_operator.core.demand.facts import LearnedProperties, PlannedSpeeds, PrefillWork

GPUS = 8
"""GPUs of a group of either role."""
START = 103.0
"""Seconds from the creation of a group until it serves."""
OVERHEAD = 0.2
"""Seconds of the time to the first token that are not prefill: the transfer of the KV cache, and the router. From the row
`c4_cfg455`: 564 ms, less the prefill of its prompt."""
PREFILL = ((100.0, 0.0629), (1000.0, 0.0943), (7373.0, 0.3395), (8000.0, 0.3658), (50000.0, 3.0100))
"""(prompt tokens, seconds) of a prefill group `1x(tp8 dp1 etp1 ep8)`, which computes one prompt after the other. Measured:
2,714 tokens per second and GPU with prompts of 7,373 tokens (row `c64_cfg453`, in which prefill was saturated). No row
has the other lengths: this time is scaled to them with the planner's fit that docs/demand.md names
(`sizing/steps.py:prefill`)."""
DECODE = ((71.2, 0.02635), (135.6, 0.02927), (170.9, 0.03091), (398.2, 0.03850), (834.1, 0.05358))
"""(requests in a decode group `1x(tp1 dp8 etp1 ep8)`, seconds between two tokens of a request). The requests follow from the
rows `c288_cfg649`, `c160_cfg641`, `c288_cfg641`, `c512_cfg654` and `c1024_cfg655` by Little's law. Between the points, and
beyond them, the curve is linear."""
SLOTS = 1024
"""Largest number of requests in a decode group (row `c1024_cfg655`)."""
_WORK = PrefillWork(0.0663, 4.141e-05)
PLANNED = PlannedSpeeds(_WORK, ((71.2, 0.03152), (834.1, 0.05711)))
"""The prediction of `ome plan` for these engines, with times that are increased by its error bar (`sizing/speeds.py`). The
prediction uses the fit that docs/demand.md names. The time of prefill is a line through the times for 100 and 7,373
tokens."""


MEASURED = LearnedProperties(
    _WORK, PREFILL[2][1] / _WORK.seconds(1.0, PREFILL[2][0]), measured=1, curve=(DECODE[1], DECODE[3]), starts=(START,)
)
"""Measurements of a service whose prefill was saturated once, with prompts of 7,373 tokens, and whose decode was measured
under two loads."""


def interpolate(points: tuple[tuple[float, float], ...], x: float) -> float:
    """Return the value of a piecewise linear curve, whose first and last piece continue beyond the points."""
    place = min(max(bisect_left(points, (x,)), 1), len(points) - 1)
    (x0, y0), (x1, y1) = points[place - 1], points[place]
    return y0 + (y1 - y0) * (x - x0) / (x1 - x0)


def prefill_seconds(tokens: float) -> float:
    """Return the seconds for which a prompt occupies a prefill group."""
    return interpolate(PREFILL, tokens)


_STEPS = tuple(interpolate(DECODE, number) for number in range(SLOTS + 1))


def step_seconds(batch: int) -> float:
    """Return the seconds between two tokens of a request if `batch` requests are in the decode group."""
    return _STEPS[min(batch, SLOTS)]
