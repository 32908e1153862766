"""The request to the cookbook, and the error for a request that no recipe can satisfy."""

from dataclasses import dataclass
from typing import Annotated

from ome_operator.errors import OmeError
from ome_operator.settings.option import Form, Option

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
"""The strategies that place complete experts on all GPUs. `WIDE` is disaggregation (prefill and decode on different GPUs),
and `SPREAD` is a single engine."""
PIPELINE = "tp+pp"
MOST_NODES = 10_000
"""Upper limit of numbers of nodes and of parallel sizes. The limit exceeds any real cluster, and is low enough for code
that loops over each node."""
_NODES = "With --strategy pd: number of nodes of this role."
_GROUPS = "With --strategy pd: number of groups into which the nodes of this role are divided."


def _count(flag: str, help: str) -> Option:
    """Return the option of a number of nodes or groups, or of a parallel size."""
    return Option(flag=flag, help=help, ge=1, le=MOST_NODES)


class RecipeRefused(OmeError):
    """The error for a request that cannot work. Its message is a sentence with the reason, and names an alternative that
    works if one is known.
    """


@dataclass(frozen=True, kw_only=True)
class RecipeRequest:
    """The options of `ome generate` that describe the wanted recipe, in the order of its flags. For an option that is None,
    the cookbook chooses the value.
    """

    hardware: str
    model: str
    strategy: Annotated[str, Option(flag="--strategy", help=f"Deployment strategy: {', '.join(STRATEGIES)}.")] = "tp"
    reasoning_parser: Annotated[
        bool | str,
        Option(
            flag="--reasoning-parser",
            help="Parser that separates reasoning from the answer. Without a value, the model's own parser is used.",
            form=Form.TEXT,
            computed=True,
        ),
    ] = False
    tool_call_parser: Annotated[
        bool | str,
        Option(
            flag="--tool-call-parser",
            help="Parser that extracts structured tool calls. Without a value, the model's own parser is used.",
            form=Form.TEXT,
            computed=True,
        ),
    ] = False
    """True selects the model's own parser, a string the parser of this name, and False no parser."""
    nodes: Annotated[
        int | None, _count("--nodes", "Number of nodes that you have; by default, the smallest number that fits.")
    ] = None
    prefill_nodes: Annotated[int | None, _count("--prefill-nodes", _NODES)] = None
    decode_nodes: Annotated[int | None, _count("--decode-nodes", _NODES)] = None
    prefill_groups: Annotated[int, _count("--prefill-groups", _GROUPS)] = 1
    decode_groups: Annotated[int, _count("--decode-groups", _GROUPS)] = 1
    """Each group has all experts."""
    decode_batch: Annotated[
        int | None,
        Option(
            flag="--decode-batch",
            help="Concurrent requests per decode rank, with --strategy pd; by default the published value.",
            ge=1,
            le=4096,
        ),
    ] = None
    """CUDA graphs are captured for batches of at most this size."""
    prefix_cache: Annotated[
        bool,
        Option(
            flag="--prefix-cache",
            help="With --strategy pd: let prefill cache prompts for later requests with the same prefix, "
            "as agents send them.",
            negatable=False,
        ),
    ] = False
    gpus_per_node: Annotated[int, Option(flag="--gpus-per-node", help="Number of GPUs per node.", ge=1, le=128)] = 8
    context_length: Annotated[
        int | None,
        Option(
            flag="--context-length", help="Longest request in tokens; a smaller value saves memory.", ge=1, le=1_000_000_000
        ),
    ] = None
    kv_cache_dtype: Annotated[
        str | None, Option(flag="--kv-cache-dtype", help="Data type of the KV cache; fp8_e4m3 halves its memory.")
    ] = None
    tp: Annotated[
        int | None,
        _count(
            "--tp",
            "Tensor parallel size: GPUs per replica or pipeline stage; with --strategy pd, GPUs that share attention.",
        ),
    ] = None
    pp: Annotated[int | None, _count("--pp", "Pipeline parallel size: number of stages.")] = None
    dp: Annotated[
        int | None, _count("--dp", "Data parallel size: ranks of DP attention, or complete replicas without DP attention.")
    ] = None
    ep: Annotated[
        int | None, _count("--ep", "Expert parallel size: groups of GPUs among which complete experts are divided.")
    ] = None
    engine: Annotated[str, Option(flag="--engine", help="Inference engine: {engines}.")] = "sglang"
    """The command inserts the names of the known engines, which are data, into the help."""
    version: Annotated[
        str | None, Option(flag="--engine-version", help="Version of the engine; by default the newest known version.")
    ] = None
    model_type: Annotated[
        str | None,
        Option(
            flag="--model-type", help="Model type for engines that do not support the model's own type, such as deepseek_v3."
        ),
    ] = None
    host_network: Annotated[
        bool,
        Option(
            flag="--host-network",
            help="Run pods in the network of their node, for fabrics that require it.",
            negatable=False,
        ),
    ] = False
    model_path: Annotated[
        str | None, Option(flag="--model-path", help="Model path in the command; by default the model's repository.")
    ] = None
    """Pods use the directory of the model instead of this path."""
    host: Annotated[
        str | None,
        Option(
            flag="--host",
            help="Value of --host in the command.",
            pattern=r"\S+",
            fix="write an address on which the engine listens, such as 0.0.0.0.",
        ),
    ] = None
    port: Annotated[int | None, Option(flag="--port", help="Value of --port in the command.", ge=1, le=65535)] = None
    name: Annotated[str | None, Option(flag="--name", help="Name of the service and of its namespace.")] = None
    """It is also the base of the name of the runtime."""

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
