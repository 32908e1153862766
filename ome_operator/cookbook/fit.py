"""Check whether a model fits: whether its parts divide evenly, and how much GPU memory remains for the KV cache."""

from dataclasses import dataclass

from ome_operator.capacity.division import find_uneven_size
from ome_operator.capacity.memory import BOTH, FEWEST_TOKENS, GIB, EngineOptions, memory
from ome_operator.capacity.model import cache_type
from ome_operator.capacity.shape import ParallelShape
from ome_operator.cookbook.library import Engine, Hardware, ServedModel


@dataclass(frozen=True)
class RoleFit:
    """The sizes of a role: the number of nodes in a group, and how the nodes divide the model."""

    component: str
    """Component of the service that has this role: `engine` or `decoder`."""
    stage: str
    """`prefill` or `decode`; "" if the engine does both."""
    nodes: int
    gpus: int
    """Number of GPUs that the group uses on each of its nodes."""
    tp: int
    """Number of GPUs that together hold all experts of a pipeline stage. An engine without a pipeline is a single stage."""
    pp: int = 1
    """Number of pipeline stages."""
    dp: int = 1
    """Number of data-parallel ranks."""
    attention_dp: bool = False
    """Whether the data-parallel ranks divide attention only. If not, each rank is a complete copy of the model."""
    ep: int = 1
    redundant: int = 0
    """Number of redundant copies of busy experts."""
    cut: int = 1
    """Number of GPUs among which a dense matrix is divided."""
    experts_on_cpus: bool = False
    share: float = 0.9
    """Fraction of a GPU's memory for weights and KV cache."""
    groups: int = 1
    """Number of identical groups in a copy of the service."""

    @property
    def attention_tp(self) -> int:
        """The number of GPUs that share the attention of a token."""
        return self.tp // self.dp if self.attention_dp else self.tp

    @property
    def size(self) -> int:
        """The number of GPUs in a copy of the model."""
        return self.tp * self.pp

    @property
    def shape(self) -> ParallelShape:
        """The parallel shape of the role, for the functions of `capacity`."""
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
    """The parts of a GPU's memory, in bytes, and the capacity of the KV cache."""

    weights: int
    cache: int
    """Bytes that remain for the KV cache; negative if the weights alone exceed the available memory."""
    tokens: int
    """Number of tokens that the KV cache of one attention rank holds."""


def gpu_memory(served: ServedModel, hardware: Hardware, role: RoleFit, kv_cache_dtype: str | None) -> GpuMemory:
    """Return the memory that the weights leave for the KV cache on each GPU of a role. `kv_cache_dtype` is the data type of
    the KV cache; None for the default.

    Weights other than routed experts are not divided by the number of pipeline stages, because the first and the last stage
    have the embeddings. The weights are therefore an upper bound.
    """
    options = EngineOptions(cache_type=cache_type(kv_cache_dtype), stage=role.stage or BOTH)
    found = memory(served.sizes, role.shape, options)
    unstaged = memory(served.sizes, role.shape._replace(pp=1), options)
    assert found is not None and unstaged is not None, served.name
    found = found._replace(other_weights=unstaged.other_weights)
    if role.experts_on_cpus:
        found = found._replace(routed=0.0, copies=0.0)
    available = hardware.memory * role.share
    return GpuMemory(int(found.weights), int(available - found.weights), found.cache_tokens(available))


def uneven_clause(served: ServedModel, role: RoleFit) -> str:
    """Return a clause that names what does not divide evenly; "" if everything divides evenly."""
    found = find_uneven_size(served.sizes, role.shape)
    return found.sentence if found is not None else ""


def lacks_memory(served: ServedModel, hardware: Hardware, role: RoleFit, kv_cache_dtype: str | None) -> str:
    """Return a clause that states why the GPU memory is too small; "" if it is large enough. `kv_cache_dtype` is the data
    type of the KV cache; None for the default.
    """
    found = gpu_memory(served, hardware, role, kv_cache_dtype)
    unknown = not served.sizes.cache_bytes(cache_type(kv_cache_dtype))
    if found.tokens >= FEWEST_TOKENS or (unknown and found.cache > 0):
        return ""
    whole, share = hardware.memory / GIB, hardware.memory * role.share / GIB
    have = f"of the {whole:.0f} GiB of an {hardware.title}, {share:.0f} GiB are available for weights and cache"
    if found.cache <= 0:
        weights = f"the weights of {served.name} take {found.weights / GIB:.0f} GiB on each of {role.tp} GPUs"
        return f"{weights}, but {have}"
    return f"in addition to {found.weights / GIB:.0f} GiB of weights, the cache holds only {found.tokens:,} tokens: {have}"


def problem(served: ServedModel, hardware: Hardware, role: RoleFit, kv_cache_dtype: str | None) -> str:
    """Return a clause that states why a role of this form cannot work: a part of the model does not divide evenly, or the
    memory is too small. Return "" if the role can work. `kv_cache_dtype` is the data type of the KV cache; None for the
    default.
    """
    return uneven_clause(served, role) or lacks_memory(served, hardware, role, kv_cache_dtype)


def wide_problem(served: ServedModel, hardware: Hardware, engine: Engine) -> str:
    """Return a clause that states why wide expert parallelism cannot work with any sizes; "" if it can work with some
    sizes.
    """
    needs = engine.wide
    if needs is None:
        return f"{engine.name} has no recipe for wide expert parallelism"
    if hardware.vendor != needs.vendor:
        return f"{needs.why}, which {hardware.title} is not"
    stored = served.facts.quantization.name if served.facts.quantization else ""
    if stored != needs.quantization:
        return (
            f"its kernels need {needs.quantization} experts, but the quantization of the experts of {served.name} is "
            f"{stored}"
        )
    return ""
