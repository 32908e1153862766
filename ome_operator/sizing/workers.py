"""Groups of GPUs that hold the model together, and how they divide it."""

import re
from dataclasses import dataclass

from ome_operator.sizing.refused import PlanRefused

_WRITTEN = re.compile(r"(\d+)x\(tp(\d+) dp(\d+) etp(\d+) ep(\d+)\)(?: b(\d+))?")
_SHORT = re.compile(r"(\d+)x(DEP|TEP|TP|DTP)(\d+)")
_MOST = 10_000
NODE_OF_EXPERTS = 8
"""GPUs up to which experts are cut: a wider label is a mistake for whole experts, as the calibration file notes."""


@dataclass(frozen=True)
class Worker:
    """An engine over some GPUs, of which a role has several alike."""

    tp: int
    """GPUs that share the attention of a token."""
    dp: int
    """Ranks of attention with requests of their own."""
    ep: int
    """GPUs that share the experts whole; 1: every expert is cut over all GPUs."""

    @property
    def gpus(self) -> int:
        """Of a worker."""
        return self.tp * self.dp

    @property
    def kind(self) -> str:
        """How GPUs meet: tp (all share a token), dtp (ranks, experts cut), dep (ranks, whole experts), alone."""
        if self.gpus == 1:
            return "alone"
        if self.dp == 1:
            return "tp"
        return "dep" if self.ep > 1 else "dtp"

    def __str__(self) -> str:
        return f"TP {self.tp} DP {self.dp} EP {self.ep}"


def workers(text: str) -> tuple[int, Worker]:
    """`4x(tp8 dp1 etp1 ep8) b1` or `1xDEP32` of a calibration file: how many workers, and of what kind."""
    if found := _WRITTEN.fullmatch(text.strip()):
        copies, tp, dp, etp, ep = (int(found[at]) for at in range(1, 6))
        if min(copies, tp, dp, etp, ep) < 1 or max(copies, tp * dp, etp * ep) > _MOST:
            raise PlanRefused(f"The layout {text!r} has a size of 0, or of more than {_MOST:,}.")
        if dp > 1 and etp * ep == tp and tp % dp == 0:  # ranks inside TP, as SGLang spells its DP attention
            return copies, Worker(tp // dp, dp, ep)
        if etp * ep != tp * dp and etp * ep != 1:
            raise PlanRefused(f"The layout {text!r} spreads experts over {etp * ep} GPUs and attention over {tp * dp}.")
        return copies, Worker(tp, dp, etp * ep if mislabelled(text) else ep)
    if found := _SHORT.fullmatch(text.strip()):
        copies, gpus = int(found[1]), int(found[3])
        if not 1 <= copies <= _MOST or not 1 <= gpus <= _MOST:
            raise PlanRefused(f"The layout {text!r} has a size of 0, or of more than {_MOST:,}.")
        apart = {
            "DEP": Worker(1, gpus, gpus),
            "TEP": Worker(gpus, 1, gpus),
            "TP": Worker(gpus, 1, 1),
            "DTP": Worker(1, gpus, 1),
        }
        return copies, apart[found[2]]
    raise PlanRefused(f"The layout {text!r} is not understood: 4x(tp8 dp1 etp1 ep8) b16 and 1xDEP32 are.")


def mislabelled(text: str) -> bool:
    """Whether a layout calls experts cut over more GPUs than anybody cuts them over."""
    found = _WRITTEN.fullmatch(text.strip())
    return found is not None and int(found[4]) > NODE_OF_EXPERTS and int(found[3]) > 1
