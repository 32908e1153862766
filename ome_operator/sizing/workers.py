"""The worker: a group of GPUs that together hold the model, and the parallelism by which they divide it."""

import re
from dataclasses import dataclass
from functools import cache

from ome_operator.sizing.errors import PlanRefused

_SIZE = r"(\d{1,9})"
_WRITTEN = re.compile(rf"{_SIZE}x\(tp{_SIZE} dp{_SIZE} etp{_SIZE} ep{_SIZE}\)(?: b{_SIZE})?")
_SHORT = re.compile(rf"{_SIZE}x(DEP|TEP|TP|DTP){_SIZE}")
_MOST = 10_000
NODE_OF_EXPERTS = 8
"""Largest number of GPUs among which engines divide an expert. A calibration row with a larger number has a wrong label:
its experts are complete on their GPUs, as a note in the calibration file states."""


@dataclass(frozen=True)
class Worker:
    """A group of GPUs that runs one instance of an engine. A role consists of several identical workers."""

    tp: int
    """Number of GPUs that share the attention of a token (tensor parallelism of attention)."""
    dp: int
    """Number of attention ranks, each of which has its own requests (data parallelism of attention)."""
    ep: int
    """Number of GPUs over which complete experts are distributed (expert parallelism); 1 if every expert is divided among
    all GPUs."""

    @property
    def gpus(self) -> int:
        """The number of GPUs of the worker."""
        return self.tp * self.dp

    @property
    def kind(self) -> str:
        """The kind of communication between the GPUs: `tp` (all GPUs share each token), `dtp` (data-parallel attention, each
        expert divided among the GPUs), `dep` (data-parallel attention, each expert complete on one GPU), or `alone` (a
        single GPU).
        """
        if self.gpus == 1:
            return "alone"
        if self.dp == 1:
            return "tp"
        return "dep" if self.ep > 1 else "dtp"

    def __str__(self) -> str:
        return f"TP {self.tp} DP {self.dp} EP {self.ep}"


@cache
def workers(text: str) -> tuple[int, Worker]:
    """Parse a layout of a calibration file, such as `4x(tp8 dp1 etp1 ep8) b1` or `1xDEP32`, into the number of workers
    and the worker. The result is cached, because the 1,300 shipped rows have a few dozen layouts.

    Raises PlanRefused if the text is not such a layout or its sizes contradict each other.
    """
    if found := _WRITTEN.fullmatch(text.strip()):
        copies, tp, dp, etp, ep = (int(found[at]) for at in range(1, 6))
        if min(copies, tp, dp, etp, ep) < 1 or max(copies, tp * dp, etp * ep) > _MOST:
            raise PlanRefused(
                f"The layout {text!r} has a size that is 0 or more than {_MOST:,}: use sizes from 1 to {_MOST:,}."
            )
        if dp > 1 and etp * ep == tp and tp % dp == 0:  # SGLang counts attention ranks inside the TP size.
            return copies, Worker(tp // dp, dp, ep)
        if etp * ep != tp * dp and etp * ep != 1:
            raise PlanRefused(
                f"The layout {text!r} distributes experts over {etp * ep} GPUs but attention over {tp * dp}: use the "
                "same number for both."
            )
        return copies, Worker(tp, dp, etp * ep if is_mislabelled(text) else ep)
    if found := _SHORT.fullmatch(text.strip()):
        copies, gpus = int(found[1]), int(found[3])
        if not 1 <= copies <= _MOST or not 1 <= gpus <= _MOST:
            raise PlanRefused(
                f"The layout {text!r} has a size that is 0 or more than {_MOST:,}: use sizes from 1 to {_MOST:,}."
            )
        apart = {
            "DEP": Worker(1, gpus, gpus),
            "TEP": Worker(gpus, 1, gpus),
            "TP": Worker(gpus, 1, 1),
            "DTP": Worker(1, gpus, 1),
        }
        return copies, apart[found[2]]
    raise PlanRefused(f"The layout {text[:80]!r} cannot be parsed: write it as 4x(tp8 dp1 etp1 ep8) b16 or 1xDEP32.")


@cache
def is_mislabelled(text: str) -> bool:
    """Return whether the text of a layout states that experts are divided among more GPUs than engines support
    (`NODE_OF_EXPERTS`).
    """
    found = _WRITTEN.fullmatch(text.strip())
    return found is not None and int(found[4]) > NODE_OF_EXPERTS and int(found[3]) > 1
