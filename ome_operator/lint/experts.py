"""Rules about expert parallelism of SGLang and its all-to-all communication."""

from collections.abc import Iterator

from ome_operator import keys
from ome_operator.engines.rejoin import why_not
from ome_operator.engines.servers import server
from ome_operator.lint import locations
from ome_operator.lint.division import engines, locate_flag
from ome_operator.lint.finding import Location, Rule, RuleHit, Severity, rule
from ome_operator.lint.launch import number
from ome_operator.lint.sglang import graph_batch, requests
from ome_operator.lint.subject import Role, Subject

TOKENS = "SGLANG_DEEPEP_NUM_MAX_DISPATCH_TOKENS_PER_RANK"
UNSET = 128
"""Default of the environment variable that the constant `TOKENS` names, in SGLang 0.4.9 to 0.5.23."""
MOST = 1024
"""Maximum value that SGLang accepts for the environment variable that the constant `TOKENS` names."""
FLASHINFER_MOST = 450
"""Largest number of requests per CUDA graph and rank for which FlashInfer's all-to-all is known to work."""


def _tokens(value: str) -> int | None:
    return number(value) if value else UNSET


@rule(
    "dispatch-tokens",
    Severity.ERROR,
    "A decode step has more tokens than a DeepEP rank may send",
    ignored=(
        "The engine exits at the first full step, because the assertion `x.size(0) <= "
        "num_max_dispatch_tokens_per_rank` fails in DeepEP."
    ),
    evidence="https://github.com/deepseek-ai/DeepEP/issues/165; SGLang 0.5.23, environ.py (the limit is 128 by default) "
    "and layers/moe/token_dispatcher/deepep.py.",
)
def dispatch_tokens(subject: Subject) -> Iterator[RuleHit]:
    for role, start, found in engines(subject):
        mode = start.text("--disaggregation-mode")
        if found.backend != "deepep" or found.deepep_mode == "normal" or mode == "prefill":
            continue
        limit, batch, most = _tokens(start.variable(TOKENS)), graph_batch(start), requests(start, found)
        drafts = number(start.text("--speculative-num-draft-tokens")) or 1
        asked = {"the largest CUDA graph": batch, "the number of requests that a rank may run": most}
        messages = [f"{what} ({size})" for what, size in asked.items() if size and limit and size * drafts > limit]
        if messages and limit:
            each = f" with {drafts} draft tokens each" if drafts > 1 else ""
            wanted = max(size for size in asked.values() if size) * drafts
            message = f"{' and '.join(messages)}{each} {'are' if len(messages) > 1 else 'is'} above {TOKENS}={limit}"
            remedy = f"set {TOKENS}={wanted}" if wanted <= MOST else f"limit batches to {MOST // drafts} requests per rank"
            yield RuleHit(locations.variable(role, TOKENS), message, remedy)


@rule(
    "dispatch-most",
    Severity.ERROR,
    "The token limit of DeepEP is higher than SGLang accepts",
    ignored="The engine exits with an AssertionError when it creates its dispatcher.",
    evidence="SGLang 0.5.23, layers/moe/token_dispatcher/deepep.py: `num_max_dispatch_tokens_per_rank <= 1024`.",
)
def dispatch_most(subject: Subject) -> Iterator[RuleHit]:
    for role, start, found in engines(subject):
        limit = number(start.env.get(TOKENS, ""))
        if found.backend == "deepep" and limit is not None and limit > MOST:
            yield RuleHit(
                locations.variable(role, TOKENS),
                f"{TOKENS} is {limit}, and the maximum is {MOST}",
                f"set at most {MOST}",
            )


@rule(
    "prefill-low-latency",
    Severity.ERROR,
    "Prefill uses DeepEP's low-latency kernels",
    ignored="The engine exits at the first prompt: a chunk of a prompt has thousands of tokens, but a rank may send only "
    "a few hundred tokens.",
    evidence="https://github.com/deepseek-ai/DeepEP/issues/165. SGLang's --deepep-mode has the value normal for prefill, "
    "and low_latency for decode.",
)
def prefill_low_latency(subject: Subject) -> Iterator[RuleHit]:
    for role, start, found in engines(subject):
        if found.deepep_mode == "low_latency" and start.text("--disaggregation-mode") != "decode":
            what = "prefill" if start.text("--disaggregation-mode") == "prefill" else "a server that also does prefill"
            remedy = f"write --deepep-mode={'normal' if what == 'prefill' else 'auto'}"
            yield RuleHit(locate_flag(role, start, "--deepep-mode"), f"{what} has --deepep-mode low_latency", remedy)


@rule(
    "decode-normal",
    Severity.WARNING,
    "Decode uses DeepEP's kernels for prefill",
    ignored="CUDA graphs are disabled, so every step waits for the CPU.",
    evidence="SGLang 0.5.23, arg_groups/moe_hook.py, handle_a2a_moe: deepep_mode normal disables CUDA graphs.",
)
def decode_normal(subject: Subject) -> Iterator[RuleHit]:
    for role, start, found in engines(subject):
        if found.deepep_mode == "normal" and start.text("--disaggregation-mode") == "decode":
            yield RuleHit(
                locate_flag(role, start, "--deepep-mode"),
                "decode has --deepep-mode normal",
                "write --deepep-mode=low_latency",
            )


@rule(
    "eplb-alone",
    Severity.ERROR,
    "Expert load balancing is enabled with an expert parallel size of 1",
    ignored="The engine exits with an AssertionError while it starts.",
    evidence="SGLang 0.5.23, arg_groups/parallel_hook.py, handle_eplb_and_dispatch: EPLB requires EP above 1.",
)
def eplb_alone(subject: Subject) -> Iterator[RuleHit]:
    for role, start, found in engines(subject):
        if start.is_on("--enable-eplb") and found.ep == 1:
            remedy = "add --moe-a2a-backend=deepep or --ep-size, or remove --enable-eplb"
            yield RuleHit(locate_flag(role, start, "--enable-eplb"), "--enable-eplb is given, but EP is 1", remedy)


@rule(
    "redundant-alone",
    Severity.WARNING,
    "Redundant experts are configured with an expert parallel size of 1",
    ignored="Every GPU holds the copies next to their originals, which wastes memory.",
    evidence="SGLang distributes the copies of experts over the EP ranks; with EP 1 each GPU holds a part of every expert.",
)
def redundant_alone(subject: Subject) -> Iterator[RuleHit]:
    for role, start, found in engines(subject):
        if found.redundant and found.ep == 1:
            message = f"--ep-num-redundant-experts is {found.redundant}, but EP is 1"
            remedy = "add --moe-a2a-backend=deepep or --ep-size, or remove --ep-num-redundant-experts"
            yield RuleHit(locate_flag(role, start, "--ep-num-redundant-experts"), message, remedy)


@rule(
    "eplb-without-exchange",
    Severity.WARNING,
    "Experts are balanced or copied without an all-to-all backend",
    ignored="Every rank computes all tokens, so balancing the experts gains little for the memory that their copies cost.",
    evidence="SGLang 0.5.23, arg_groups/parallel_hook.py, handle_eplb_and_dispatch: without an all-to-all backend, "
    "all ranks must select the same copies of the experts.",
)
def eplb_without_exchange(subject: Subject) -> Iterator[RuleHit]:
    for role, start, found in engines(subject):
        asked = [name for name in ("--enable-eplb", "--ep-num-redundant-experts") if start.last_argument(name)]
        if asked and not found.backend and found.ep and found.ep > 1:
            message = f"{asked[0]} is given without an all-to-all backend"
            yield RuleHit(locate_flag(role, start, asked[0]), message, f"add --moe-a2a-backend=deepep, or remove {asked[0]}")


@rule(
    "ep-ignored",
    Severity.WARNING,
    "--ep-size is overridden by the all-to-all backend",
    ignored="The engine ignores --ep-size, so memory estimates that are based on this argument are wrong.",
    evidence="SGLang 0.5.23, arg_groups/overrides.py, `_a2a_ep_size`: EP becomes TP.",
)
def ep_ignored(subject: Subject) -> Iterator[RuleHit]:
    for role, start, found in engines(subject):
        given = number(start.text("--ep-size")) if start.last_argument("--ep-size") else None
        if found.backend and given is not None and found.ep is not None and given != found.ep:
            message = f"--ep-size is {given}, but {found.backend} sets EP to {found.ep}"
            yield RuleHit(locate_flag(role, start, "--ep-size"), message, "remove --ep-size")


@rule(
    "overlap-alone",
    Severity.ERROR,
    "Two-batch overlap is enabled, but there is no communication to hide behind computation",
    ignored="The engine rejects its arguments and exits.",
    evidence="SGLang 0.5.23, arg_groups/validation_hook.py, check_two_batch_overlap.",
)
def overlap_alone(subject: Subject) -> Iterator[RuleHit]:
    for role, start, found in engines(subject):
        if start.is_on("--enable-two-batch-overlap") and not found.backend and found.attention_dp == 1:
            message = "--enable-two-batch-overlap is given without an all-to-all backend and without attention groups"
            yield RuleHit(
                locate_flag(role, start, "--enable-two-batch-overlap"),
                message,
                "add --moe-a2a-backend=deepep, or remove --enable-two-batch-overlap",
            )


@rule(
    "flashinfer-batch",
    Severity.WARNING,
    "Decode captures large batches as CUDA graphs with FlashInfer's all-to-all",
    ignored="Users have reported that engines crash with an illegal memory access at batches above 450 requests per rank.",
    evidence="Reports of users with large batches; no such report is known for smaller batches.",
)
def flashinfer_batch(subject: Subject) -> Iterator[RuleHit]:
    for role, start, found in engines(subject):
        batch = graph_batch(start) or 0
        if found.backend == "flashinfer" and batch > FLASHINFER_MOST and start.text("--disaggregation-mode") != "prefill":
            place = locate_flag(role, start, "--cuda-graph-bs-decode", "--cuda-graph-max-bs-decode", "--cuda-graph-max-bs")
            yield RuleHit(
                place,
                f"the largest CUDA graph has {batch} requests per rank",
                (f"set the largest batch size of CUDA graphs to at most {FLASHINFER_MOST}"),
            )


@rule(
    "lost-ranks-fatal",
    Severity.ERROR,
    "toleratedLostRanks is set, but the engine does not survive the loss of a rank",
    ignored="The operator uses 0 instead of the value of the field: if a rank is lost, it recycles the whole group.",
    evidence="SGLang 0.5.23: DeepEP has no time-out for a lost rank, --elastic-ep-backend selects "
    "collectives that survive the loss, and a process joins again only with --elastic-ep-join-mode.",
)
def lost_ranks_fatal(subject: Subject) -> Iterator[RuleHit]:
    for role in subject.roles:
        place, path, spare = _tolerated(role)
        if spare and (why := why_not(role.container, role.annotations)):
            message = f"toleratedLostRanks of {role.title} is {spare}, but {why}"
            yield RuleHit(Location(place, f"{path}.lifecycle.toleratedLostRanks"), message, "remove toleratedLostRanks")


@rule(
    "lost-ranks-unknown",
    Severity.WARNING,
    "toleratedLostRanks is set for an engine that is not known to survive the loss of a rank",
    ignored="If the engine does not survive the loss, the group waits for the lost rank instead of being recycled, and its "
    "requests fail meanwhile.",
    evidence="It is known only for SGLang under which conditions an engine keeps serving without a rank (docs/recovery.md).",
)
def lost_ranks_unknown(subject: Subject) -> Iterator[RuleHit]:
    for role in subject.roles:
        place, path, spare = _tolerated(role)
        engine = server(role.container)
        if spare and role.component != keys.ROUTER and (engine is None or engine.name != "sglang"):
            name = engine.name if engine is not None else "its engine"
            message = f"toleratedLostRanks of {role.title} is {spare}, but {name} is not known to survive the loss of a rank"
            yield RuleHit(Location(place, f"{path}.lifecycle.toleratedLostRanks"), message, "remove toleratedLostRanks")


def _tolerated(role: Role) -> tuple[str, str, int]:
    """Return (object, field, value) of toleratedLostRanks in the topmost layer of a role that sets it; ("", "", 0) if no
    layer does.
    """
    spares = ((place, path, part.lifecycle.tolerated_lost_ranks) for place, path, part in role.written if part.lifecycle)
    return next(((place, path, spare) for place, path, spare in spares if spare is not None), ("", "", 0))


RULES: tuple[Rule, ...] = (
    dispatch_tokens,
    dispatch_most,
    prefill_low_latency,
    decode_normal,
    eplb_alone,
    redundant_alone,
    eplb_without_exchange,
    ep_ignored,
    overlap_alone,
    flashinfer_batch,
    lost_ranks_fatal,
    lost_ranks_unknown,
)
