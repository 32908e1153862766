"""Whether a model fits: what divides evenly, and what memory is left for the cache."""

from dataclasses import dataclass

from ome_operator.cookbook.library import Engine, Hardware, Served

GIB = 2**30
FEWEST_TOKENS = 8192
"""Tokens of cache below which an engine is of no use: one chunk of a prompt."""


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

    def layers(self, whole: int) -> int:
        """Of the model's layers, those of the largest stage."""
        return -(-whole // self.pp)


@dataclass(frozen=True)
class GpuMemory:
    """Memory of one GPU, in bytes."""

    weights: int
    cache: int
    """What is left of the share; negative where the weights alone exceed it."""
    tokens: int
    """That the cache of one rank of attention holds."""


def room(served: Served, hardware: Hardware, role: RoleFit, kv_cache_dtype: str | None) -> GpuMemory:
    """What weights leave for the cache.

    All but routed experts is divided only by the GPUs that share attention, and by no stages: an upper bound.
    """
    routed, layers = served.facts.experts.routed if served.facts.experts else 1, served.facts.layers or 1
    share = served.weights.routed * (routed + role.redundant) * role.layers(layers) // (routed * role.tp * layers)
    experts = 0 if role.experts_on_cpus else share
    each = experts + served.weights.rest // role.attention_tp
    cache = int(hardware.memory * role.share) - each
    return GpuMemory(each, cache, max(0, cache) // _token(served, role, kv_cache_dtype))


def _token(served: Served, role: RoleFit, kv_cache_dtype: str | None) -> int:
    """Bytes of cache for one token on one GPU."""
    kinds, seen = served.facts.kv_bytes_per_token or {}, served.facts.attention
    layers = served.facts.layers or 1
    whole = kinds["fp8" if (kv_cache_dtype or "").startswith("fp8") else "bfloat16"] * role.layers(layers) // layers
    if seen is None or seen.kv_lora_rank:  # latent attention has one cache for all heads, so every GPU keeps all of it
        return whole
    return whole // min(role.attention_tp, seen.kv_heads)


def uneven(served: Served, role: RoleFit) -> str:
    """What does not divide, as a clause; "" when all does."""
    if role.dp < 1 or role.tp < 1 or role.ep < 1:
        return "sizes must be at least 1"
    if served.facts.layers and role.pp > served.facts.layers:
        return f"{served.facts.layers} layers make no pipeline of {role.pp} stages"
    if role.attention_dp and role.tp % role.dp:
        return f"TP {role.tp} is no multiple of DP {role.dp}, which divides its GPUs into ranks of attention"
    heads = served.facts.attention.heads if served.facts.attention else role.attention_tp
    if heads % role.attention_tp:
        return f"{heads} attention heads cannot be divided by {role.attention_tp} GPUs"
    if role.tp % role.ep:
        return f"TP {role.tp} is no multiple of EP {role.ep}, which divides the same GPUs"
    experts = (served.facts.experts.routed if served.facts.experts else 0) + role.redundant
    if role.ep > 1 and experts % role.ep:
        return f"{experts} experts cannot be divided by EP {role.ep}"
    return _cut_block(served, role)


def _cut_block(served: Served, role: RoleFit) -> str:
    """A block has one scale, so it cannot lie on two GPUs."""
    found = served.facts.quantization
    if not found or not found.block or role.cut == 1:
        return ""
    for width in served.widths:
        if width % role.cut or width // role.cut % found.block[1]:
            blocks = f"{found.name} blocks of {found.block[1]} columns"
            return f"matrices {width} wide cannot be cut into {role.cut} pieces of whole {blocks}"
    return ""


def crowded(served: Served, hardware: Hardware, role: RoleFit, kv_cache_dtype: str | None) -> str:
    """Why the memory does not suffice, as a clause; "" when it does."""
    found = room(served, hardware, role, kv_cache_dtype)
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
