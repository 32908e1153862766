"""What a person asks for, and what they are told when it cannot work."""

from dataclasses import dataclass

from ome_operator.errors import OmeError

STRATEGIES = {
    "tp": "tensor parallel, every layer is split over the GPUs of one copy",
    "tp+dp": "TP + DP attention, ranks of attention have requests of their own",
    "tp+pp": "TP + pipeline parallel, stages of layers one behind the other, each over the GPUs of TP",
    "tp+ep": "TP + EP, experts lie whole on groups of GPUs",
    "tp+dp+ep": "TP + DP attention + EP",
    "dp+ep": "DP + EP, attention runs on each GPU for requests of its own, experts are spread over all",
    "cpu": "experts on the CPUs of one node, attention on one GPU",
    "cpu+amx": "the same, with kernels for CPUs that have AMX",
    "pd": "prefill and decode apart, experts spread over all GPUs of each",
}
"""Name → what it means."""
WIDE, SPREAD = "pd", "dp+ep"
"""Those that spread experts over all GPUs: prefill and decode apart, or a single engine."""
PIPELINE = "tp+pp"


class RecipeRefused(OmeError):
    """What was asked for cannot work: one sentence that says why, and what would."""


@dataclass(frozen=True, kw_only=True)
class RecipeRequest:
    """A question to the cookbook; None means that the cookbook chooses."""

    hardware: str
    model: str
    strategy: str = "tp"
    engine: str = "sglang"
    version: str | None = None
    """Of the engine."""
    reasoning_parser: bool | str = False
    tool_call_parser: bool | str = False
    """True: the parser that understands what the model writes. A text: the parser of this name."""
    nodes: int | None = None
    prefill_nodes: int | None = None
    decode_nodes: int | None = None
    prefill_groups: int = 1
    decode_groups: int = 1
    """Groups that the nodes of a role are divided into, each with all experts; with `pd`."""
    decode_batch: int | None = None
    """Requests of a rank of decode that a step is captured for; with `pd`."""
    prefix_cache: bool = False
    """Whether prefill keeps the prompts that it has read, for others that begin alike; with `pd`."""
    gpus_per_node: int = 8
    tp: int | None = None
    """GPUs of a copy, or of a stage of its pipeline; with `pd`, GPUs that share attention."""
    pp: int | None = None
    """Stages of the pipeline."""
    dp: int | None = None
    """Data-parallel ranks: of attention where the strategy has it, else whole copies."""
    ep: int | None = None
    context_length: int | None = None
    kv_cache_dtype: str | None = None
    model_type: str | None = None
    """What the engine takes the model for, in place of what config.json says."""
    host_network: bool = False
    """Whether pods are in the network of their node."""
    model_path: str | None = None
    """In the launch command; in pods it is the model's directory."""
    host: str | None = None
    port: int | None = None
    name: str | None = None
    """Of the service, its runtime and its namespace."""

    @property
    def only_apart(self) -> dict[str, bool]:
        """Option of the strategy with prefill and decode apart -> whether it was given."""
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
        """Whether attention runs data-parallel."""
        return self.strategy == WIDE or "dp" in self.strategy.split("+")

    @property
    def experts_apart(self) -> bool:
        """Whether experts are spread whole."""
        return self.strategy == WIDE or "ep" in self.strategy.split("+")
