"""Rules about sizes of SGLang that must divide evenly: GPUs, nodes, attention groups, heads, experts and quantization
blocks.
"""

from collections.abc import Iterator

from ome_operator import keys
from ome_operator.capacity import division
from ome_operator.lint import locations
from ome_operator.lint.devices import misspelt_device, requests_device
from ome_operator.lint.finding import Location, Rule, RuleHit, Severity, rule
from ome_operator.lint.launch import Launch
from ome_operator.lint.sglang import Sizes, sizes, unknown_sizes
from ome_operator.lint.subject import Role, Subject, map_at
from ome_operator.util.wording import count

STARTS_NOT = "The engine exits with an AssertionError while it starts, and its group is recycled repeatedly."
_PROGRAM = "sglang"
_CHUNKS = (2048, 4096, 8192, 16384)
"""Defaults of --chunked-prefill-size; the GPU's memory decides (SGLang 0.5.23, memory_hook.py)."""


def engines(subject: Subject) -> Iterator[tuple[Role, Launch, Sizes]]:
    """Yield every SGLang server with its parallel sizes."""
    for role, start in subject.launched(_PROGRAM):
        start.doubted.update(unknown_sizes(start))  # `sizes` is cached, and notes nothing when its result is known
        yield role, start, sizes(start)


def locate_flag(role: Role, start: Launch, *names: str) -> Location:
    """Return the location of the first flag among `names` that is given. If none is given, return the location where
    arguments can be added.
    """
    given = next((given for name in names if (given := start.last_argument(name)) is not None), None)
    return locations.argument(role, given) if given is not None else locations.arguments(role)


@rule(
    "nnodes-missing",
    Severity.ERROR,
    "A group has several pods, but the engine is started for one node",
    ignored=(
        "Each pod starts a separate server, which exits because it needs more GPUs than the pod has, or serves without "
        "the other pods."
    ),
    evidence="SGLang: without --nnodes, --node-rank and --dist-init-addr a server uses a single node.",
)
def nnodes_missing(subject: Subject) -> Iterator[RuleHit]:
    for role, start, _ in engines(subject):
        if role.size > 1 and start.last_argument("--nnodes") is None and not start.is_on("--use-ray"):
            message = f"a group has {role.size} pods, but --nnodes is not given"
            more = "--nnodes=$(LWS_GROUP_SIZE) --node-rank=$(LWS_WORKER_INDEX) --dist-init-addr=$(LWS_LEADER_ADDRESS):5757"
            yield RuleHit(locations.arguments(role), message, f"add {more}, or set worker.size to 0")


@rule(
    "nnodes-differ",
    Severity.ERROR,
    "--nnodes differs from the number of pods of a group",
    ignored="Ranks wait for missing ranks until a time-out ends them, or surplus ranks exit.",
    evidence="SGLang starts only if exactly --nnodes nodes connect to --dist-init-addr.",
)
def nnodes_differ(subject: Subject) -> Iterator[RuleHit]:
    for role, start, found in engines(subject):
        if start.last_argument("--nnodes") is not None and found.nnodes is not None and found.nnodes != role.size:
            message = f"--nnodes is {found.nnodes}, but a group has {count(role.size, 'pod')}"
            remedy = f"write --nnodes=$(LWS_GROUP_SIZE), or set worker.size to {found.nnodes - 1}"
            yield RuleHit(locate_flag(role, start, "--nnodes"), message, remedy)


@rule(
    "ranks-differ",
    Severity.ERROR,
    "Ranks of a group have different parallel sizes",
    ignored="Ranks wait in different communication groups until a time-out, or all exit because tensor shapes do not match.",
    evidence="SGLang: all ranks of a server need the same arguments except --node-rank.",
)
def ranks_differ(subject: Subject) -> Iterator[RuleHit]:
    for role, start, found in engines(subject):
        if role.others is None or role.others.engine != start.engine:
            continue
        if (theirs := sizes(role.others)) != found:
            parts = [name for name in found._fields if getattr(found, name) != getattr(theirs, name)]
            message = ", ".join(f"{name} {getattr(found, name)} and {getattr(theirs, name)}" for name in parts)
            yield RuleHit(
                locations.arguments(role),
                f"rank 0 and the others have different sizes: {message}",
                "give all ranks the same sizes",
            )


@rule(
    "ranks-limits-differ",
    Severity.WARNING,
    "Ranks of a group have different limits",
    ignored="All ranks use the size of the smallest cache, or one rank rejects a request that another rank accepts.",
    evidence="SGLang: all ranks of a server need the same arguments except --node-rank.",
)
def ranks_limits_differ(subject: Subject) -> Iterator[RuleHit]:
    for role, start, _ in engines(subject):
        if role.others is None or role.others.engine != start.engine:
            continue
        for name in (
            "--mem-fraction-static",
            "--context-length",
            "--kv-cache-dtype",
            "--page-size",
            "--chunked-prefill-size",
        ):
            here, there = start.text(name), role.others.text(name)
            if here != there:
                message = f"rank 0 has {name} {here or 'unset'}, but the others have {there or 'unset'}"
                yield RuleHit(locate_flag(role, start, name), message, "give all ranks the same limits")


@rule(
    "tp-divides-nodes",
    Severity.ERROR,
    "TP times PP is not a multiple of the number of nodes",
    ignored=STARTS_NOT,
    evidence="SGLang 0.5.23, arg_groups/validation_hook.py, check_server_args: `(tp_size * pp_size) % nnodes == 0`.",
)
def tp_divides_nodes(subject: Subject) -> Iterator[RuleHit]:
    for role, start, found in engines(subject):
        if found.tp and found.pp and found.nnodes and (found.tp * found.pp) % found.nnodes:
            message = f"TP {found.tp} times PP {found.pp} cannot be divided by {found.nnodes} nodes"
            yield RuleHit(locate_flag(role, start, "--tp-size"), message, f"write --tp-size={role.gpus or found.nnodes * 8}")


@rule(
    "gpus-too-few",
    Severity.ERROR,
    "The engine needs more GPUs than its group has",
    ignored="The engine exits with `invalid device ordinal`, or waits for ranks that no pod starts.",
    evidence=(
        "SGLang starts TP × PP / nnodes ranks in each pod, each on its own GPU. Each further data-parallel copy needs the "
        "same number of GPUs."
    ),
)
def gpus_too_few(subject: Subject) -> Iterator[RuleHit]:
    for role, start, found in engines(subject):
        if found.gpus is not None and found.gpus > role.gpus > 0 and start.text("--device") != "cpu":
            message = f"{_layout(found)} needs {_gpus(found.gpus)}, but a group has {role.gpus} ({role.sum_of_gpus})"
            yield RuleHit(
                locate_flag(role, start, "--tp-size", "--pp-size"),
                message,
                f"write sizes whose product is {role.gpus}, or add pods",
            )


@rule(
    "gpus-idle",
    Severity.WARNING,
    "A group has more GPUs than its engine uses",
    ignored="The additional GPUs are allocated to the pods, but stay idle.",
    evidence="SGLang starts TP × PP ranks for each copy, each on its own GPU.",
)
def gpus_idle(subject: Subject) -> Iterator[RuleHit]:
    for role, start, found in engines(subject):
        if found.gpus is not None and role.gpus > found.gpus and start.text("--device") != "cpu":
            message = f"{_layout(found)} uses {_gpus(found.gpus)}, but a group has {role.gpus} ({role.sum_of_gpus})"
            yield RuleHit(
                locate_flag(role, start, "--tp-size", "--pp-size"),
                message,
                f"request {_gpus(found.gpus)}, or write sizes whose product is {role.gpus}",
            )


def _gpus(number: int) -> str:
    return "1 GPU" if number == 1 else f"{number} GPUs"


def _layout(found: Sizes) -> str:
    parts = [
        f"TP {found.tp}",
        *([f"PP {found.pp}"] if found.pp != 1 else []),
        *([f"{found.copies} copies"] if found.copies != 1 else []),
    ]
    return " × ".join(parts)


@rule(
    "gpus-none",
    Severity.WARNING,
    "An engine for GPUs requests no GPU",
    ignored="The pod is scheduled to any node and exits there, or it sees all GPUs of a node, which other pods use.",
    evidence="Kubernetes assigns devices only to containers that request them in their limits.",
)
def gpus_none(subject: Subject) -> Iterator[RuleHit]:
    for role, start in subject.launched():
        if role.component == keys.ROUTER or start.engine not in ("sglang", "vllm", "tensorrt-llm"):
            continue
        claims = map_at(role.container, "resources").get("claims")
        asked = requests_device(map(str, map_at(role.container, "resources", "limits")))
        if not role.per_pod and not asked and not claims and start.text("--device") != "cpu":
            bounds = " with --max-total-tokens and resources.limits.memory" if start.engine == _PROGRAM else ""
            remedy = f"add resources.limits with nvidia.com/gpu, or --device=cpu{bounds}"
            if misspelt := misspelt_device(map(str, map_at(role.container, "resources", "limits"))):
                remedy = f"write {misspelt[1]} in place of {misspelt[0]}"
            yield RuleHit(locations.field(role, "resources"), f"{role.title} requests no GPU", remedy)


@rule(
    "dp-divides-tp",
    Severity.ERROR,
    "TP is not a multiple of the number of attention groups",
    ignored=STARTS_NOT,
    evidence="SGLang 0.5.23, arg_groups/parallel_hook.py, handle_data_parallelism: `tp_size % attn_dp_size == 0`.",
)
def dp_divides_tp(subject: Subject) -> Iterator[RuleHit]:
    for role, start, found in engines(subject):
        if not found.tp or not found.attention_dp:
            continue
        shared = found.attention_dp * (found.attention_cp or 1)
        if shared != found.attention_dp and found.tp % shared:
            product = f"attention DP {found.attention_dp} times attention CP {found.attention_cp}"
            message = f"TP {found.tp} cannot be divided by {product}"
            remedy = f"write sizes whose product divides {found.tp}"
            yield RuleHit(locate_flag(role, start, "--attn-cp-size", "--attn-dp-size"), message, remedy)
        elif uneven := division.attention_groups(found.tp, found.attention_dp):
            divisors = [size for size in range(1, found.tp + 1) if found.tp % size == 0]
            close = min(divisors, key=lambda size: abs(size - (found.attention_dp or 1)))
            remedy = f"write {close}, which divides {found.tp}"
            yield RuleHit(locate_flag(role, start, "--attn-dp-size", "--dp-size"), uneven.sentence, remedy)


@rule(
    "dp-both",
    Severity.ERROR,
    "Data parallel copies are combined with attention groups, or span several nodes",
    ignored="The engine rejects its arguments and exits.",
    evidence="SGLang 0.5.23: parallel_hook.py, handle_data_parallelism, and validation_hook.py, check_server_args "
    "(dp_size with nnodes).",
)
def dp_both(subject: Subject) -> Iterator[RuleHit]:
    for role, start, found in engines(subject):
        if (found.copies or 1) > 1 and (found.attention_dp or 1) > 1:
            message = (
                f"--dp-size {found.copies} runs complete copies of the model, but --attn-dp-size "
                f"{found.attention_dp} divides the attention of a single copy"
            )
            yield RuleHit(locate_flag(role, start, "--dp-size"), message, "remove one of the two flags")
        elif (found.copies or 1) > 1 and (found.nnodes or 1) > 1:
            message = f"--dp-size {found.copies} runs complete copies of the model, which cannot span {found.nnodes} nodes"
            yield RuleHit(
                locate_flag(role, start, "--dp-size"),
                message,
                f"write --attn-dp-size={found.copies} to divide attention instead",
            )


@rule(
    "heads-divide",
    Severity.ERROR,
    "Attention heads or key-value heads cannot be divided evenly among the GPUs that share attention",
    ignored=STARTS_NOT,
    evidence="SGLang 0.5.23, models/deepseek_v2.py and models/qwen3_moe.py: `num_heads % attn_tp_size == 0`; "
    "layers/linear.py, QKVParallelLinear: the number of key-value heads divides the number of GPUs, or the reverse.",
)
def heads_divide(subject: Subject) -> Iterator[RuleHit]:
    attention = subject.model.facts.attention if subject.model is not None else None
    for role, start, found in engines(subject):
        if subject.model is None or attention is None or not found.attention_tp:
            continue
        if uneven := division.find_uneven_heads(subject.model, found.attention_tp):
            also = "" if attention.kv_lora_rank else f", and divides {attention.kv_heads} or is a multiple of it"
            remedy = f"add --attn-dp-size, so that TP / DP divides {attention.heads}{also}"
            yield RuleHit(locate_flag(role, start, "--attn-dp-size", "--tp-size"), uneven.sentence, remedy)


@rule(
    "ep-divides-tp",
    Severity.ERROR,
    "TP is not a multiple of EP",
    ignored=STARTS_NOT,
    evidence="SGLang 0.5.23, distributed/parallel_state.py: TP is divided into groups of EP × MoE-TP ranks, and remaining "
    "ranks belong to no group.",
)
def ep_divides_tp(subject: Subject) -> Iterator[RuleHit]:
    for role, start, found in engines(subject):
        if found.tp and found.ep and (uneven := division.expert_groups(found.tp, found.ep)):
            remedy = f"write --ep-size={found.tp}, or use another divisor of {found.tp}"
            yield RuleHit(locate_flag(role, start, "--ep-size"), uneven.sentence, remedy)


@rule(
    "experts-divide",
    Severity.ERROR,
    "Experts with their copies cannot be divided evenly among the EP ranks",
    ignored=STARTS_NOT,
    evidence="SGLang 0.5.23, eplb/expert_location.py: `num_physical_experts % ep_size == 0`; "
    "layers/moe/token_dispatcher/deepep.py has the same check.",
)
def experts_divide(subject: Subject) -> Iterator[RuleHit]:
    for role, start, found in engines(subject):
        if subject.model is None or not found.ep or found.redundant is None:
            continue
        if uneven := division.experts(subject.model, found.ep, found.redundant):
            missing = found.redundant + -(subject.model.experts + found.redundant) % found.ep
            place = locate_flag(role, start, "--ep-num-redundant-experts", "--ep-size", "--tp-size")
            yield RuleHit(place, uneven.sentence, f"write --ep-num-redundant-experts={missing}")


@rule(
    "dense-tp",
    Severity.ERROR,
    "Dense layers have a parallel size that the engine does not accept",
    ignored="The engine rejects its arguments and exits.",
    evidence="SGLang 0.5.23, arg_groups/validation_hook.py, check_server_args: moe_dense_tp_size must be 1 or equal to TP.",
)
def dense_tp(subject: Subject) -> Iterator[RuleHit]:
    for role, start, found in engines(subject):
        dense = start.whole_number("--moe-dense-tp-size")
        if dense is not None and found.tp is not None and dense not in (1, found.tp):
            message = f"--moe-dense-tp-size is {dense}, but only 1 and TP ({found.tp}) are accepted"
            yield RuleHit(locate_flag(role, start, "--moe-dense-tp-size"), message, "write --moe-dense-tp-size=1")


@rule(
    "chunk-pages",
    Severity.ERROR,
    "The prefill chunk size is not a multiple of the page size of the KV cache",
    ignored="The engine rejects its arguments and exits.",
    evidence="SGLang 0.5.23, arg_groups/validation_hook.py, check_server_args: `chunked_prefill_size % page_size == "
    "0`, after the chunk size was divided by DP.",
)
def chunk_pages(subject: Subject) -> Iterator[RuleHit]:
    for role, start, found in engines(subject):
        chunk, page, ranks = (
            start.whole_number("--chunked-prefill-size"),
            start.whole_number("--page-size"),
            found.attention_dp,
        )
        if start.text("--disaggregation-mode") == "decode" or not page or not ranks:
            continue
        place = locate_flag(role, start, "--chunked-prefill-size", "--page-size")
        remedy = f"write --chunked-prefill-size as a multiple of {page * ranks}"
        if chunk and chunk > 0 and (chunk // ranks) % page:
            message = f"a chunk of {chunk // ranks} tokens on each rank is not a multiple of the page size {page}"
            yield RuleHit(place, message, remedy)
        elif not start.text("--chunked-prefill-size") and all((each // ranks) % page for each in _CHUNKS):
            known = ", ".join(map(str, _CHUNKS))
            message = f"no default of --chunked-prefill-size ({known}) is a multiple of the page size {page} on each rank"
            yield RuleHit(place, message, remedy)


RULES: tuple[Rule, ...] = (
    nnodes_missing, nnodes_differ, ranks_differ, ranks_limits_differ, tp_divides_nodes, gpus_too_few, gpus_idle, gpus_none,
    dp_divides_tp, dp_both, heads_divide, ep_divides_tp, experts_divide, dense_tp, chunk_pages,
)  # fmt: skip
