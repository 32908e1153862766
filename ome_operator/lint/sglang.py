"""Computes how SGLang divides a model from the arguments of the server. SGLang uses the same formulas."""

from typing import NamedTuple

from ome_operator.capacity.memory import BOTH, EngineOptions
from ome_operator.capacity.model import cache_type
from ome_operator.capacity.shape import ParallelShape
from ome_operator.lint.launch import Launch, number
from ome_operator.util.memoize import memoize_by_identity

SPANNING = frozenset(
    {
        "megamoe", "deepep", "deepep_v2", "mooncake", "nixl", "ascend_fuseep", "flashinfer", "flashinfer_megamoe", "mori",
        "pplx",
    }
)  # fmt: skip
"""All-to-all backends that distribute experts over all GPUs of TP (SGLang 0.5.23, arg_groups/overrides.py:
`_a2a_ep_size`)."""


SIZE_FLAGS = (
    "--tp-size", "--pp-size", "--dp-size", "--attn-dp-size", "--attn-cp-size", "--ep-size", "--nnodes",
    "--ep-num-redundant-experts", "--moe-a2a-backend", "--deepep-mode",
)  # fmt: skip
"""The flags on which `Sizes` depend."""


class Sizes(NamedTuple):
    """The parallel sizes of a server. A size is None if it depends on a variable with an unknown value."""

    tp: int | None
    pp: int | None
    attention_dp: int | None
    """Number of attention groups inside TP; 1 without DP attention."""
    attention_cp: int | None
    """Number of GPUs that share the tokens of a prompt (context parallelism); 1 if a single GPU has all tokens."""
    copies: int | None
    """Number of complete copies of the model (data parallelism without DP attention)."""
    ep: int | None
    nnodes: int | None
    redundant: int | None
    backend: str
    """All-to-all backend of the experts; "" if there is none."""
    deepep_mode: str
    """Mode of DeepEP: normal, low_latency or auto; "" if the backend is not DeepEP."""

    @property
    def attention_tp(self) -> int | None:
        """Number of GPUs that share the attention of a token: TP / (attention DP x attention CP). None if it is unknown
        or not a whole number.
        """
        groups = (self.attention_dp or 0) * (self.attention_cp or 0)
        return self.tp // groups if self.tp and groups and self.tp % groups == 0 else None

    @property
    def shape(self) -> ParallelShape | None:
        """The parallel shape for the functions of `capacity`. None if a size is unknown or 0, or does not divide evenly."""
        if not (self.tp and self.pp and self.attention_dp and self.attention_cp and self.ep and self.attention_tp):
            return None
        if self.redundant is None:
            return None
        return ParallelShape(
            tp=self.tp,
            pp=self.pp,
            attention_dp=self.attention_dp,
            attention_cp=self.attention_cp,
            copies=self.copies or 1,
            ep=self.ep,
            redundant=self.redundant,
        )

    @property
    def gpus(self) -> int | None:
        """Number of GPUs that the server needs: TP x PP x copies. None if a size is unknown."""
        if self.tp is None or self.pp is None or self.copies is None:
            return None
        return self.tp * self.pp * self.copies


@memoize_by_identity(64, grows=False)
def sizes(start: Launch) -> Sizes:
    """Return the parallel sizes of a server. The result is cached, because a dozen rules need it."""
    tp, pp, dp = (_size(start, name) for name in ("--tp-size", "--pp-size", "--dp-size"))
    attention, copies = _size(start, "--attn-dp-size"), dp
    if start.is_on("--enable-dp-attention") and attention in (None, 1):
        attention, copies = dp, 1
    backend = start.text("--moe-a2a-backend")
    backend = "deepep" if start.is_on("--enable-deepep-moe") else "" if backend == "none" else backend
    return Sizes(
        tp=tp,
        pp=pp,
        attention_dp=attention,
        attention_cp=_size(start, "--attn-cp-size"),
        copies=copies,
        ep=tp if backend in SPANNING else _size(start, "--ep-size"),
        nnodes=_size(start, "--nnodes"),
        redundant=number(start.text("--ep-num-redundant-experts") or "0"),
        backend=backend,
        deepep_mode=start.text("--deepep-mode") if backend == "deepep" else "",
    )


@memoize_by_identity(64, grows=False)
def unknown_sizes(start: Launch) -> frozenset[str]:
    """Return the flags in `SIZE_FLAGS` with an unknown value or in a wrong spelling (see `Launch.doubted`)."""
    before = frozenset(start.doubted)
    start.doubted.clear()
    for name in SIZE_FLAGS:
        start.text(name)
    found = frozenset(start.doubted)
    start.doubted.update(before)
    return found


def _size(start: Launch, name: str) -> int | None:
    """Return the number of ranks that the flag `name` sets; 1 if this SGLang version lacks the flag. Return None if the
    value is not a number, for example because it depends on a variable.
    """
    text = start.text(name)
    return number(text) if text else 1


def requests(start: Launch, found: Sizes) -> int | None:
    """Return the maximum number of concurrent requests of an attention group; None if there is no limit."""
    most = number(start.text("--max-running-requests"))
    return None if most is None or not found.attention_dp else most // found.attention_dp


def graph_batch(start: Launch) -> int | None:
    """Return the largest batch for which decode captures CUDA graphs, in requests. Return None if no argument sets it,
    and 0 if CUDA graphs are disabled.
    """
    disabled = start.is_on("--disable-cuda-graph") or start.text("--cuda-graph-backend-decode") == "disabled"
    if disabled:
        return 0
    for name in ("--cuda-graph-bs-decode", "--cuda-graph-bs"):
        given = start.last_argument(name)
        if given is not None:
            batches = [number(word) for word in given.values]
            return None if None in batches or not batches else max(batch for batch in batches if batch is not None)
    return number(start.text("--cuda-graph-max-bs-decode")) or number(start.text("--cuda-graph-max-bs"))


def options(start: Launch, found: Sizes) -> EngineOptions:
    """Return the arguments of a server that change its memory. Arguments that are not given have SGLang's defaults."""
    return EngineOptions(
        cache_type=cache_type(start.text("--kv-cache-dtype")),
        stage=start.text("--disaggregation-mode") or BOTH,
        chunk=number(start.text("--chunked-prefill-size")) or EngineOptions().chunk,
        graph_batch=graph_batch(start) or 0,
        all_to_all=found.backend,
        deepep_mode=found.deepep_mode,
    )
