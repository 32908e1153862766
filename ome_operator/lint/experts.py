"""Rules about experts that are spread over GPUs, and the all-to-all between them. All of SGLang."""

from collections.abc import Iterator

from ome_operator.lint import places
from ome_operator.lint.division import engines, of
from ome_operator.lint.finding import Hit, Rule, Severity, rule
from ome_operator.lint.launch import number
from ome_operator.lint.sglang import graph_batch, requests
from ome_operator.lint.subject import Subject

TOKENS = "SGLANG_DEEPEP_NUM_MAX_DISPATCH_TOKENS_PER_RANK"
UNSET = 128
"""Its value where nobody sets it: SGLang 0.4.9 to 0.5.23."""
MOST = 1024
"""That SGLang takes."""
FLASHINFER_MOST = 450
"""Requests of a graph on a rank that are known to work with FlashInfer's all-to-all."""


def _tokens(value: str) -> int | None:
    return number(value) if value else UNSET


@rule(
    "dispatch-tokens",
    Severity.ERROR,
    "A decode step has more tokens than a rank of DeepEP may send",
    ignored="The first step that is full ends the engine: `x.size(0) <= num_max_dispatch_tokens_per_rank` fails in DeepEP.",
    evidence="https://github.com/deepseek-ai/DeepEP/issues/165; SGLang 0.5.23, environ.py (128 when unset) and "
    "layers/moe/token_dispatcher/deepep.py.",
)
def dispatch_tokens(subject: Subject) -> Iterator[Hit]:
    for role, start, found in engines(subject):
        mode = start.text("--disaggregation-mode")
        if found.backend != "deepep" or found.deepep_mode == "normal" or mode == "prefill":
            continue
        limit, batch, most = _tokens(start.variable(TOKENS)), graph_batch(start), requests(start, found)
        drafts = number(start.text("--speculative-num-draft-tokens")) or 1
        asked = {"the largest graph": batch, "the requests that a rank may run": most}
        told = [f"{what} ({size})" for what, size in asked.items() if size and limit and size * drafts > limit]
        if told and limit:
            each = f" with {drafts} draft tokens each" if drafts > 1 else ""
            wanted = max(size for size in asked.values() if size) * drafts
            said = f"{' and '.join(told)}{each} {'are' if len(told) > 1 else 'is'} above {TOKENS}={limit}"
            remedy = f"set {TOKENS}={wanted}" if wanted <= MOST else f"take batches of at most {MOST // drafts} a rank"
            yield Hit(places.variable(role, TOKENS), said, remedy)


@rule(
    "dispatch-most",
    Severity.ERROR,
    "A rank of DeepEP may send more tokens than SGLang takes",
    ignored="The engine ends with an AssertionError when it makes its dispatcher.",
    evidence="SGLang 0.5.23, layers/moe/token_dispatcher/deepep.py: `num_max_dispatch_tokens_per_rank <= 1024`.",
)
def dispatch_most(subject: Subject) -> Iterator[Hit]:
    for role, start, found in engines(subject):
        limit = number(start.env.get(TOKENS, ""))
        if found.backend == "deepep" and limit is not None and limit > MOST:
            yield Hit(
                places.variable(role, TOKENS), f"{TOKENS} is {limit}, and {MOST} is the most", f"set it to {MOST} or less"
            )


@rule(
    "prefill-low-latency",
    Severity.ERROR,
    "Prefill sends its tokens by DeepEP's low-latency kernels",
    ignored="A chunk of a prompt has thousands of tokens, and a rank may send a few hundred: the first prompt ends "
    "the engine.",
    evidence="https://github.com/deepseek-ai/DeepEP/issues/165; SGLang's --deepep-mode: normal for prefill, "
    "low_latency for decode.",
)
def prefill_low_latency(subject: Subject) -> Iterator[Hit]:
    for role, start, found in engines(subject):
        if found.deepep_mode == "low_latency" and start.text("--disaggregation-mode") != "decode":
            what = "prefill" if start.text("--disaggregation-mode") == "prefill" else "a server that does prefill, too,"
            remedy = f"write --deepep-mode={'normal' if what == 'prefill' else 'auto'}"
            yield Hit(of(role, start, "--deepep-mode"), f"{what} has --deepep-mode low_latency", remedy)


@rule(
    "decode-normal",
    Severity.WARNING,
    "Decode sends its tokens by DeepEP's kernels for prompts",
    ignored="CUDA graphs are off, so every step waits for the CPU.",
    evidence="SGLang 0.5.23, arg_groups/moe_hook.py, handle_a2a_moe: deepep_mode normal disables CUDA graphs.",
)
def decode_normal(subject: Subject) -> Iterator[Hit]:
    for role, start, found in engines(subject):
        if found.deepep_mode == "normal" and start.text("--disaggregation-mode") == "decode":
            yield Hit(of(role, start, "--deepep-mode"), "decode has --deepep-mode normal", "write --deepep-mode=low_latency")


@rule(
    "eplb-alone",
    Severity.ERROR,
    "Experts are to be balanced, and there is a single group of them",
    ignored="The engine ends with an AssertionError while it starts.",
    evidence="SGLang 0.5.23, arg_groups/parallel_hook.py, handle_eplb_and_dispatch: EPLB wants EP above 1.",
)
def eplb_alone(subject: Subject) -> Iterator[Hit]:
    for role, start, found in engines(subject):
        if start.on("--enable-eplb") and found.ep == 1:
            remedy = "add --moe-a2a-backend=deepep or --ep-size, or take --enable-eplb out"
            yield Hit(of(role, start, "--enable-eplb"), "--enable-eplb is given, and EP is 1", remedy)


@rule(
    "redundant-alone",
    Severity.WARNING,
    "Experts are copied, and there is a single group of them",
    ignored="Copies lie beside their originals on every GPU: memory without any use.",
    evidence="SGLang spreads copies over EP groups; with EP 1 each GPU holds a part of every expert.",
)
def redundant_alone(subject: Subject) -> Iterator[Hit]:
    for role, start, found in engines(subject):
        if found.redundant and found.ep == 1:
            said = f"--ep-num-redundant-experts is {found.redundant}, and EP is 1"
            remedy = "add --moe-a2a-backend=deepep or --ep-size, or take it out"
            yield Hit(of(role, start, "--ep-num-redundant-experts"), said, remedy)


@rule(
    "eplb-without-exchange",
    Severity.WARNING,
    "Experts are balanced or copied without an all-to-all between them",
    ignored="Every rank computes over all tokens, so a balance of experts gains little for the memory that it costs.",
    evidence="SGLang 0.5.23, arg_groups/parallel_hook.py, handle_eplb_and_dispatch: without an all-to-all, only a "
    "pick that all ranks agree on is right.",
)
def eplb_without_exchange(subject: Subject) -> Iterator[Hit]:
    for role, start, found in engines(subject):
        asked = [name for name in ("--enable-eplb", "--ep-num-redundant-experts") if start.given(name)]
        if asked and not found.backend and found.ep and found.ep > 1:
            said = f"{asked[0]} is given without an all-to-all back end"
            yield Hit(of(role, start, asked[0]), said, "add --moe-a2a-backend=deepep, or take it out")


@rule(
    "ep-ignored",
    Severity.WARNING,
    "The all-to-all decides about EP, and --ep-size says something else",
    ignored="Experts lie otherwise than the argument says; who computes memory by it is wrong.",
    evidence="SGLang 0.5.23, arg_groups/overrides.py, `_a2a_ep_size`: EP becomes TP.",
)
def ep_ignored(subject: Subject) -> Iterator[Hit]:
    for role, start, found in engines(subject):
        given = number(start.text("--ep-size")) if start.given("--ep-size") else None
        if found.backend and given is not None and found.ep is not None and given != found.ep:
            said = f"--ep-size is {given}, and {found.backend} makes EP {found.ep}"
            yield Hit(of(role, start, "--ep-size"), said, "take --ep-size out")


@rule(
    "overlap-alone",
    Severity.ERROR,
    "Two batches are to overlap, and there is nothing to overlap with",
    ignored="The engine refuses its arguments and ends.",
    evidence="SGLang 0.5.23, arg_groups/validation_hook.py, check_two_batch_overlap.",
)
def overlap_alone(subject: Subject) -> Iterator[Hit]:
    for role, start, found in engines(subject):
        if start.on("--enable-two-batch-overlap") and not found.backend and found.attention_dp == 1:
            said = "--enable-two-batch-overlap is given without an all-to-all back end and without attention groups"
            yield Hit(of(role, start, "--enable-two-batch-overlap"), said, "add --moe-a2a-backend=deepep, or take it out")


@rule(
    "flashinfer-batch",
    Severity.WARNING,
    "Decode captures large batches as graphs, and tokens go by FlashInfer's all-to-all",
    ignored="Batches above 450 a rank were seen to end the engine with an illegal access.",
    evidence="Reports of users; below 450 no such report is known.",
)
def flashinfer_batch(subject: Subject) -> Iterator[Hit]:
    for role, start, found in engines(subject):
        batch = graph_batch(start) or 0
        if found.backend == "flashinfer" and batch > FLASHINFER_MOST and start.text("--disaggregation-mode") != "prefill":
            place = of(role, start, "--cuda-graph-bs-decode", "--cuda-graph-max-bs-decode", "--cuda-graph-max-bs")
            yield Hit(place, f"the largest graph has {batch} requests a rank", f"write at most {FLASHINFER_MOST}")


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
)
