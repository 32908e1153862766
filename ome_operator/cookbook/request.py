"""The request to the cookbook, and the error for a request that no recipe can satisfy."""

from dataclasses import dataclass

from ome_operator.errors import OmeError

STRATEGIES = {
    "tp": "tensor parallelism: every layer is divided among the GPUs of one copy",
    "tp+dp": "TP + DP attention: each attention rank processes its own requests",
    "tp+pp": "TP + pipeline parallelism: the layers are divided into consecutive stages, each on its own TP GPUs",
    "tp+ep": "TP + EP: each group of GPUs holds complete experts",
    "tp+dp+ep": "TP + DP attention + EP",
    "dp+ep": "DP + EP: each GPU computes attention for its own requests, and the experts are distributed over all GPUs",
    "cpu": "experts on the CPUs of one node, attention on one GPU",
    "cpu+amx": "the same, with kernels for CPUs that have AMX",
    "pd": "prefill and decode run on different GPUs, and each distributes the experts over all of its GPUs",
}
"""The known strategies, each with its description."""
WIDE, SPREAD = "pd", "dp+ep"
"""The strategies that place complete experts on all GPUs: disaggregation (prefill and decode on different GPUs), and a
single engine."""
PIPELINE = "tp+pp"


class RecipeRefused(OmeError):
    """The error for a request that cannot work. Its message is a sentence with the reason, and names an alternative that
    works if one is known.
    """


@dataclass(frozen=True, kw_only=True)
class RecipeRequest:
    """The options of `ome generate`. For an option that is None, the cookbook chooses the value."""

    hardware: str
    model: str
    strategy: str = "tp"
    engine: str = "sglang"
    version: str | None = None
    """Version of the engine."""
    reasoning_parser: bool | str = False
    tool_call_parser: bool | str = False
    """True selects the model's own parser, a string the parser of this name, and False no parser."""
    nodes: int | None = None
    prefill_nodes: int | None = None
    decode_nodes: int | None = None
    prefill_groups: int = 1
    decode_groups: int = 1
    """Number of groups into which the decode nodes are divided, each of which has all experts; only with `pd`."""
    decode_batch: int | None = None
    """Largest batch of a decode rank for which CUDA graphs are captured, in requests; only with `pd`."""
    prefix_cache: bool = False
    """Whether prefill caches prompts for later requests with the same prefix; only with `pd`."""
    gpus_per_node: int = 8
    tp: int | None = None
    """Number of GPUs in a copy of the model or in a pipeline stage. With `pd`, the number of GPUs that share the
    attention of a token."""
    pp: int | None = None
    """Number of pipeline stages."""
    dp: int | None = None
    """Number of data-parallel ranks. They are ranks of attention if the strategy has DP attention, otherwise complete
    copies of the model."""
    ep: int | None = None
    context_length: int | None = None
    kv_cache_dtype: str | None = None
    model_type: str | None = None
    """Model type that the engine uses instead of the type in config.json."""
    host_network: bool = False
    """Whether pods use the network of their node (hostNetwork)."""
    model_path: str | None = None
    """Path of the model in the launch command. Pods use the directory of the model instead of this path."""
    host: str | None = None
    port: int | None = None
    name: str | None = None
    """Name of the service, which is also the base of the name of its runtime and the name of its namespace."""

    @property
    def only_disaggregated(self) -> dict[str, bool]:
        """The options that only `--strategy pd` accepts, each with whether the request sets it."""
        return {
            "--prefill-nodes": self.prefill_nodes is not None,
            "--decode-nodes": self.decode_nodes is not None,
            "--prefill-groups": self.prefill_groups != 1,
            "--decode-groups": self.decode_groups != 1,
            "--decode-batch": self.decode_batch is not None,
            "--prefix-cache": self.prefix_cache,
        }

    @property
    def attention_dp(self) -> bool:
        """Whether the strategy has data-parallel attention."""
        return self.strategy == WIDE or "dp" in self.strategy.split("+")

    @property
    def spreads_experts(self) -> bool:
        """Whether each expert is on one GPU. If false, each expert is divided among all GPUs."""
        return self.strategy == WIDE or "ep" in self.strategy.split("+")
