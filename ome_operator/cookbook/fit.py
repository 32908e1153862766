"""Whether a model fits: what divides evenly, and what memory is left for the cache."""

from dataclasses import dataclass

from ome_operator.capacity.division import divides
from ome_operator.capacity.memory import BOTH, FEWEST_TOKENS, GIB, EngineOptions, memory
from ome_operator.capacity.model import cache_type
from ome_operator.capacity.shape import ParallelShape
from ome_operator.cookbook.library import Engine, Hardware, Served


@dataclass(frozen=True)
class RoleFit:
    """One component: how many nodes a group of it has, and how the model is spread over them."""

    component: str
    """engine or decoder."""
    stage: str
    """prefill, decode, or "" where one engine does both."""
    nodes: int
    gpus: int
    """Of a node that the group uses."""
    tp: int
    """GPUs that hold all experts together; of a stage where there is a pipeline."""
    pp: int = 1
    """Stages of the pipeline."""
    dp: int = 1
    """Ranks of data parallelism."""
    attention_dp: bool = False
    """Whether these are ranks of attention only; else each is a whole copy."""
    ep: int = 1
    redundant: int = 0
    """Copies of busy experts."""
    cut: int = 1
    """GPUs that a dense matrix is cut into."""
    experts_on_cpus: bool = False
    share: float = 0.9
    """Of a GPU's memory for weights and cache."""
    groups: int = 1
    """Alike, in a copy of the service."""

    @property
    def attention_tp(self) -> int:
        """GPUs that share the attention of one token."""
        return self.tp // self.dp if self.attention_dp else self.tp

    @property
    def size(self) -> int:
        """GPUs of a copy."""
        return self.tp * self.pp

    @property
    def shape(self) -> ParallelShape:
        """The same as `capacity` takes it."""
        return ParallelShape(
            tp=self.tp,
            pp=self.pp,
            attention_dp=self.dp if self.attention_dp else 1,
            copies=1 if self.attention_dp else self.dp,
            ep=self.ep,
            redundant=self.redundant,
            cut=self.cut,
        )


@dataclass(frozen=True)
class GpuMemory:
    """Memory of one GPU, in bytes."""

    weights: int
    cache: int
    """What is left of the share; negative where the weights alone exceed it."""
    tokens: int
    """That the cache of one rank of attention holds."""


def gpu_memory(served: Served, hardware: Hardware, role: RoleFit, kv_cache_dtype: str | None) -> GpuMemory:
    """Return what weights leave for the cache on each GPU of a role.

    Weights other than routed experts are not divided by the stages of a pipeline: the first and the last stage have the
    embeddings, so this is an upper bound.
    """
    options = EngineOptions(cache_type=cache_type(kv_cache_dtype), stage=role.stage or BOTH)
    found = memory(served.sizes, role.shape, options)
    unstaged = memory(served.sizes, role.shape._replace(pp=1), options)
    assert found is not None and unstaged is not None, served.name
    found = found._replace(rest=unstaged.rest)
    if role.experts_on_cpus:
        found = found._replace(routed=0.0, copies=0.0)
    available = hardware.memory * role.share
    return GpuMemory(int(found.weights), int(available - found.weights), found.cache_tokens(available))


def uneven(served: Served, role: RoleFit) -> str:
    """Return what does not divide, as a clause; "" if all sizes do."""
    found = divides(served.sizes, role.shape)
    return found.sentence if found is not None else ""


def crowded(served: Served, hardware: Hardware, role: RoleFit, kv_cache_dtype: str | None) -> str:
    """Why the memory does not suffice, as a clause; "" when it does."""
    found = gpu_memory(served, hardware, role, kv_cache_dtype)
    if found.tokens >= FEWEST_TOKENS:
        return ""
    whole, share = hardware.memory / GIB, hardware.memory * role.share / GIB
    have = f"of the {whole:.0f} GiB of one {hardware.title} {share:.0f} GiB are for both"
    if found.cache <= 0:
        weights = f"the weights of {served.name} take {found.weights / GIB:.0f} GiB on each of {role.tp} GPUs"
        return f"{weights}, and {have}, weights and cache"
    return f"beside {found.weights / GIB:.0f} GiB of weights the cache holds {found.tokens:,} tokens, and {have}"


def problem(served: Served, hardware: Hardware, role: RoleFit, kv_cache_dtype: str | None) -> str:
    """Why a role cannot work, as a clause; "" when it can."""
    return uneven(served, role) or crowded(served, hardware, role, kv_cache_dtype)


def wide_problem(served: Served, hardware: Hardware, engine: Engine) -> str:
    """Why wide expert parallelism cannot work, whatever its sizes."""
    needs = engine.wide
    if needs is None:
        return f"{engine.name} has no recipe for it"
    if hardware.vendor != needs.vendor:
        return f"{needs.why}, and {hardware.title} is none"
    stored = served.facts.quantization.name if served.facts.quantization else ""
    if stored != needs.quantization:
        return f"its kernels take {needs.quantization} experts, and those of {served.name} are {stored}"
    return ""
