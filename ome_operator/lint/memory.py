"""Whether a rank of SGLang fits into a GPU, line by line."""

from collections.abc import Iterator
from typing import NamedTuple

from ome_operator.lint.division import engines, of
from ome_operator.lint.finding import Hit, Rule, Severity, rule
from ome_operator.lint.launch import Launch, number
from ome_operator.lint.sglang import Sizes, graph_batch
from ome_operator.lint.subject import ModelFacts, Role, Subject, below

GIB = 2**30
FEWEST_TOKENS = 8192
"""Of cache: a chunk of a prompt. With fewer an engine is of no use."""
DEFAULT_SHARE = 0.9
"""Of a GPU's memory, where no argument says it: SGLang computes about that for GPUs of 80 GB and more."""


class Allocation(NamedTuple):
    """A part of a GPU's memory."""

    what: str
    bytes: float


class MemoryDemand(NamedTuple):
    """What a rank needs."""

    static: tuple[Allocation, ...]
    """What has to fit into the share: weights and the smallest cache."""
    beside: tuple[Allocation, ...]
    """What has to fit beside the share."""

    @property
    def needed(self) -> float:
        """Bytes within the share."""
        return sum(line.bytes for line in self.static)


def room(model: ModelFacts, start: Launch, found: Sizes) -> MemoryDemand | None:
    """What a rank of a server needs; None where a size or the model is not known well enough."""
    facts, weights = model.facts, model.weights
    if weights is None or not (found.tp and found.pp and found.ep and found.attention_tp) or found.redundant is None:
        return None
    layers = facts.layers or 1
    stage = -(-layers // found.pp) / layers
    experts = facts.experts.routed if facts.experts else 0
    routed = weights.routed * stage / found.tp
    copied = routed * found.redundant / experts if experts else 0.0
    dense = found.tp if not found.attention_dp or found.attention_dp == 1 else found.attention_tp
    static = [
        Allocation("routed experts", routed),
        Allocation("their copies", copied),
        Allocation("everything else", weights.rest * stage / dense),
    ]
    if each := _cache(model, start, found):
        static.append(Allocation(f"cache of {FEWEST_TOKENS:,} tokens", each * FEWEST_TOKENS * stage))
    return MemoryDemand(tuple(line for line in static if line.bytes), tuple(_beside(start, found)))


def _cache(model: ModelFacts, start: Launch, found: Sizes) -> int:
    """Bytes of cache for a token on a rank, over all layers."""
    kinds, attention = model.facts.kv_bytes_per_token or {}, model.facts.attention
    whole = kinds.get("fp8" if start.text("--kv-cache-dtype").startswith("fp8") else "bfloat16", 0)
    if attention is None or attention.kv_lora_rank:  # latent attention: all heads have a cache together, on every GPU
        return whole
    return whole // min(found.attention_tp or 1, attention.kv_heads)


def _beside(start: Launch, found: Sizes) -> Iterator[Allocation]:
    """By the sums with which SGLang 0.5.23 computes its own share (arg_groups/memory_hook.py)."""
    chunk = number(start.text("--chunked-prefill-size")) or 8192
    batch = graph_batch(start)
    decode = start.text("--disaggregation-mode") == "decode"
    tokens = max(2048, (batch or 0) if decode else chunk // (found.attention_dp or 1))
    yield Allocation("activations", tokens * 1.5 * 2**20)
    if batch and found.deepep_mode != "normal" and start.text("--disaggregation-mode") != "prefill":
        yield Allocation("CUDA graphs", batch * 2 * 2**20)
        if found.backend == "deepep":
            yield Allocation("DeepEP's buffers", 2.0 * GIB)


def share(start: Launch) -> float | None:
    """Of a GPU's memory, for weights and cache; None where it depends on a variable."""
    text = start.text("--mem-fraction-static")
    try:
        return float(text) if text else DEFAULT_SHARE
    except ValueError:
        return None


def _most(subject: Subject, role: Role) -> tuple[str, int] | None:
    """The largest GPU on which a role may run, by the class that is named and by the nodes that its pods select."""
    selected = below(role.leader, "spec", "nodeSelector")
    fitting = (
        (name, size)
        for name, size in subject.memory.items()
        if all(selected.get(label, value) == value for label, value in subject.labels.get(name, {}).items())
    )
    return max(fitting, key=lambda item: item[1], default=None)


def _told(lines: tuple[Allocation, ...]) -> str:
    return ", ".join(f"{line.what} {line.bytes / GIB:.1f}" for line in lines)


def _weighed(subject: Subject) -> Iterator[tuple[Role, Launch, Sizes, MemoryDemand, float, str, int]]:
    """Every server whose memory is known: with what it needs, its share, and the name and bytes of a GPU."""
    for role, start, found in engines(subject):
        part, most = share(start), _most(subject, role)
        if most is None or part is None or subject.model is None or start.text("--device") == "cpu":
            continue
        if any(start.given(flag) for flag in ("--cpu-offload-gb", "--enable-hierarchical-cache", "--offload-group-size")):
            continue
        needed = room(subject.model, start, found)
        if needed is not None:
            yield role, start, found, needed, part, *most


@rule(
    "memory-short",
    Severity.ERROR,
    "Weights and the smallest useful cache do not fit into their share of a GPU",
    ignored="The engine ends with an out-of-memory error after it has read its weights; the group is recycled, and again.",
    evidence="Weights by the model's config.json (ome_operator/modelinfo), divided as SGLang divides them; "
    "--mem-fraction-static is their share with the cache.",
)
def memory_short(subject: Subject) -> Iterator[Hit]:
    for role, start, found, needed, part, name, memory in _weighed(subject):
        missing = needed.needed - memory * part
        if missing > 0:
            said = (
                f"a rank needs {needed.needed / GIB:.1f} GiB ({_told(needed.static)}), and {part} of {name}'s "
                f"{memory / GIB:.0f} GiB are {memory * part / GIB:.1f}: {missing / GIB:.1f} GiB are missing"
            )
            yield Hit(
                of(role, start, "--tp-size", "--mem-fraction-static"), said, _change(subject, start, found, part, memory)
            )


def _change(subject: Subject, start: Launch, found: Sizes, part: float, memory: int) -> str:
    """The smallest change that fits."""
    assert subject.model is not None and found.tp is not None
    for more in (0.85, 0.88, 0.9, 0.93):
        needed = room(subject.model, start, found)
        beside = sum(line.bytes for line in needed.beside) if needed is not None else 0
        if needed is not None and more > part and needed.needed <= memory * more and memory * (1 - more) >= beside:
            return f"write --mem-fraction-static={more}"
    times = 2
    while times <= 16:
        dp = (found.attention_dp or 1) * times if (found.attention_dp or 1) > 1 else 1
        wider = found._replace(
            tp=found.tp * times, ep=(found.ep or 1) * times if (found.ep or 1) > 1 else 1, attention_dp=dp
        )
        needed = room(subject.model, start, wider)
        if needed is not None and needed.needed <= memory * part:
            return f"write --tp-size={wider.tp} over {times} times as many GPUs"
        times *= 2
    return "take GPUs with more memory, or a model with smaller weights"


@rule(
    "memory-beside",
    Severity.WARNING,
    "What lies beside weights and cache does not fit into what their share leaves",
    ignored="The engine ends out of memory when graphs are captured, or under load.",
    evidence="SGLang 0.5.23, arg_groups/memory_hook.py: the sums by which it computes a share itself; docs/gpu.md "
    "for DeepEP's buffers.",
)
def memory_beside(subject: Subject) -> Iterator[Hit]:
    for role, start, _, needed, part, name, memory in _weighed(subject):
        beside, left = sum(line.bytes for line in needed.beside), memory * (1 - part)
        if start.given("--mem-fraction-static") and beside > left:
            said = (
                f"beside {part} of {name}'s {memory / GIB:.0f} GiB {left / GIB:.1f} GiB are left, and "
                f"{_told(needed.beside)} take {beside / GIB:.1f}"
            )
            less = int((1 - beside / memory) * 100) / 100
            yield Hit(
                of(role, start, "--mem-fraction-static"), said, f"write --mem-fraction-static={less}, or smaller batches"
            )


RULES: tuple[Rule, ...] = (memory_short, memory_beside)
