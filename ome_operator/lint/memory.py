"""Rules about the memory of an SGLang rank: whether weights, KV cache and buffers fit into a GPU."""

import math
from collections.abc import Iterator
from typing import NamedTuple

from ome_operator import quantity
from ome_operator.capacity.memory import DEFAULT_SHARE, GIB, SHARES, Memory, in_gib, memory
from ome_operator.capacity.model import ModelFacts
from ome_operator.engines.requirements import VERSION
from ome_operator.lint import locations
from ome_operator.lint.division import engines, locate_flag
from ome_operator.lint.finding import Rule, RuleHit, Severity, rule
from ome_operator.lint.launch import Launch, number
from ome_operator.lint.sglang import Sizes, options
from ome_operator.lint.subject import Manifest, Role, Subject, map_at


def needed_memory(model: ModelFacts, start: Launch, sizes: Sizes) -> Memory | None:
    """Return the memory that a rank of a server needs. Return None if a size or the model is not known well enough."""
    shape = sizes.shape
    return memory(model, shape, options(start, sizes)) if shape is not None else None


def share(start: Launch) -> float | None:
    """Return the fraction of a GPU's memory for weights and KV cache. Return None if the fraction depends on a variable, or
    if its value is not between 0 and 1.
    """
    text = start.text("--mem-fraction-static")
    try:
        part = float(text) if text else DEFAULT_SHARE
    except ValueError:
        return None
    return part if 0 < part < 1 else None


def _most(subject: Subject, role: Role) -> tuple[str, int] | None:
    """Return the accelerator class and the memory in bytes of the largest GPU on which a role may run; None if no GPU is
    known. The role's accelerator class and the node selector of its pods restrict the GPUs.
    """
    selected = map_at(role.leader, "spec", "nodeSelector")
    fitting = (
        (name, size)
        for name, size in subject.memory.items()
        if all(selected.get(label, value) == value for label, value in subject.labels.get(name, {}).items())
    )
    return max(fitting, key=lambda item: item[1], default=None)


class _Rank(NamedTuple):
    """A server whose memory is known, and the GPU with which its memory is compared."""

    role: Role
    start: Launch
    sizes: Sizes
    memory: Memory
    share: float
    """Fraction of the GPU's memory for weights and KV cache."""
    gpu: str
    """Name of the GPU's accelerator class."""
    bytes: int
    """Memory of the GPU, in bytes."""


def _ranks(subject: Subject) -> Iterator[_Rank]:
    """Yield every server whose memory is known. Servers that keep weights or KV cache outside of GPUs are left out."""
    for role, start, found in engines(subject):
        part, most = share(start), _most(subject, role)
        if most is None or part is None or subject.model is None or start.text("--device") == "cpu":
            continue
        if any(
            start.last_argument(flag) for flag in ("--cpu-offload-gb", "--enable-hierarchical-cache", "--offload-group-size")
        ):
            continue
        needed = needed_memory(subject.model, start, found)
        if needed is not None:
            yield _Rank(role, start, found, needed, part, *most)


@rule(
    "memory-short",
    Severity.ERROR,
    "Weights and the smallest useful cache do not fit into their share of a GPU",
    ignored="The engine exits with an out-of-memory error after it has loaded its weights, and its group is recycled "
    "repeatedly.",
    evidence="The weights are computed from the model's config.json (ome_operator/modelinfo), and divided as SGLang "
    "divides them; "
    "--mem-fraction-static is the share of weights and cache.",
)
def memory_short(subject: Subject) -> Iterator[RuleHit]:
    for rank in _ranks(subject):
        needed, available = rank.memory, rank.bytes * rank.share
        missing = needed.reserved_share_bytes - available
        if missing > 0 and subject.model is not None:
            message = (
                f"a rank needs {needed.reserved_share_bytes / GIB:.1f} GiB ({in_gib(needed.needed_parts)}), but "
                f"{rank.share} of "
                f"{rank.gpu}'s {rank.bytes / GIB:.0f} GiB is only {available / GIB:.1f}: {missing / GIB:.1f} GiB are missing"
            )
            yield RuleHit(
                locate_flag(rank.role, rank.start, "--tp-size", "--mem-fraction-static"),
                message,
                _change(subject.model, rank),
            )


def _change(model: ModelFacts, rank: _Rank) -> str:
    """Return the smallest change with which the rank fits: a larger fraction of memory, more GPUs, or other GPUs."""
    needed, sizes = rank.memory, rank.sizes
    for more in SHARES:
        if (
            more > rank.share
            and needed.reserved_share_bytes <= rank.bytes * more
            and needed.unreserved_share_bytes <= rank.bytes * (1 - more)
        ):
            return f"write --mem-fraction-static={more}"
    for times in (2, 4, 8, 16):
        wider = sizes._replace(
            tp=(sizes.tp or 1) * times,
            ep=(sizes.ep or 1) * times if (sizes.ep or 1) > 1 else 1,
            attention_dp=(sizes.attention_dp or 1) * times if (sizes.attention_dp or 1) > 1 else 1,
        )
        wide = needed_memory(model, rank.start, wider)
        if wide is not None and wide.reserved_share_bytes <= rank.bytes * rank.share:
            return f"write --tp-size={wider.tp} over {times} times as many GPUs"
    return "use GPUs with more memory, or a model with fewer or smaller weights"


@rule(
    "memory-beside",
    Severity.WARNING,
    "Buffers and CUDA graphs do not fit into the memory that weights and cache leave",
    ignored="The engine runs out of memory when it captures CUDA graphs, or under load.",
    evidence="SGLang 0.5.23, arg_groups/memory_hook.py: the formulas by which it computes the default share. DeepEP's "
    "buffers are assumed to need 2 GiB.",
)
def memory_beside(subject: Subject) -> Iterator[RuleHit]:
    for rank in _ranks(subject):
        beside, left = rank.memory.unreserved_share_bytes, rank.bytes * (1 - rank.share)
        if rank.start.last_argument("--mem-fraction-static") and beside > left:
            message = (
                f"a share of {rank.share} of {rank.gpu}'s {rank.bytes / GIB:.0f} GiB leaves {left / GIB:.1f} GiB, but "
                f"{in_gib(rank.memory.beside_parts)} need {beside / GIB:.1f}"
            )
            less = int((1 - beside / rank.bytes) * 100) / 100
            remedy = f"write --mem-fraction-static={less}, or use smaller batches"
            yield RuleHit(locate_flag(rank.role, rank.start, "--mem-fraction-static"), message, remedy)


_RESERVE = 10 * GIB
"""Host memory that SGLang's HiCache leaves free in the memory limit of its container."""
_HOST_POOL = ("--enable-hierarchical-cache", "--disaggregation-decode-retraction-backup")


def _pool(start: Launch) -> str:
    """Return the flag with which a server keeps KV cache in host memory; "" if it keeps no KV cache in host memory."""
    first, second = _HOST_POOL
    if start.is_on(first):
        return first
    return second if start.text(second) == "host_pool" else ""


@rule(
    "host-memory-short",
    Severity.ERROR,
    "The memory limit of the container leaves no host memory for the KV cache",
    ignored="The engine exits with `No host memory is left for HiCache` or `Not enough host memory` after it has loaded its "
    "weights, and its group is recycled repeatedly.",
    evidence="SGLang 0.5.23, mem_cache/pool_host/base.py: the pools of all ranks of a container share its memory limit "
    "less 10 GiB; seen with a limit of 4 GiB. The rule applies only with --enable-hierarchical-cache or "
    "--disaggregation-decode-retraction-backup=host_pool. Without these flags, the type of the model's cache "
    "decides whether SGLang keeps a backup in host memory.",
)
def host_memory_short(subject: Subject) -> Iterator[RuleHit]:
    for role, start, _ in engines(subject):
        limit = int(quantity.parse(map_at(role.container, "resources", "limits").get("memory") or 0))
        flag = _pool(start) if start.version in ("", VERSION) else ""
        if not flag or not limit:
            continue
        size, left = number(start.text("--hicache-size")) or 0, limit - _RESERVE
        asked = size * 10**9 * max(role.per_pod, 1)
        if (not size and not start.last_argument("--hicache-ratio") and left <= 0) or asked > max(left, 0):
            each = f"{size} GB for each of {role.per_pod} ranks" if size else "a cache in host memory"
            message = f"{flag} keeps {each}, but the limit of {limit / GIB:.0f} GiB less a reserve of 10 GiB is not enough"
            lower = ", or lower --hicache-size" if size else f", or remove {flag}"
            needed = math.ceil((max(asked, GIB) + _RESERVE) / GIB)
            yield RuleHit(
                locations.field(role, "resources"), message, f"write a memory limit of more than {needed}Gi{lower}"
            )


_BOUNDS = ("--max-total-tokens", "--mem-fraction-static")


@rule(
    "cpu-memory-unbounded",
    Severity.WARNING,
    "Nothing bounds the memory that an engine on CPUs takes",
    ignored="The engine reserves nearly all free memory of the node for its KV cache, so other programs on the node, "
    "including the kubelet, run out of memory or respond too late.",
    evidence="SGLang 0.5.23, utils/common.py (get_free_cpu_memory) and arg_groups/memory_hook.py: on CPUs, SGLang "
    "computes the default share from the memory of the node. It uses the container's limit only if "
    "/sys/fs/cgroup/memory.max shows it. Seen: an engine grew to 18.4 GB, and the operator on the same machine "
    "lost its Lease.",
)
def cpu_memory_unbounded(subject: Subject) -> Iterator[RuleHit]:
    for role, start in subject.launched("sglang"):
        if start.text("--device") != "cpu" or any(start.last_argument(flag) for flag in _BOUNDS):
            continue
        if not all(_limited(pod) for pod in role.pods):
            message = f"{role.title} runs with --device=cpu, but has neither a memory limit nor --max-total-tokens"
            remedy = (
                "add --max-total-tokens with the number of tokens that the KV cache may hold, such as "
                "--max-total-tokens=4096, and resources.limits.memory with enough memory for weights, cache and Python, "
                "such as 4Gi for a tiny model"
            )
            yield RuleHit(locations.field(role, "resources"), message, remedy)


def _limited(pod: Manifest) -> bool:
    """Return whether the main container of a pod, or the pod as a whole, has a memory limit."""
    spec = pod["spec"]
    return any("memory" in map_at(part, "resources", "limits") for part in (spec["containers"][0], spec))


RULES: tuple[Rule, ...] = (memory_short, memory_beside, host_memory_short, cpu_memory_unbounded)
