"""Rules about disaggregation of SGLang: settings that must be the same for prefill and decode, and the transfer of KV
caches between them.
"""

from collections.abc import Iterator

from ome_operator import keys
from ome_operator.engines.routers import BOOTSTRAP_PORT
from ome_operator.lint import locations
from ome_operator.lint.division import locate_flag
from ome_operator.lint.finding import Rule, RuleHit, Severity, rule
from ome_operator.lint.launch import ROUTERS, Launch, number
from ome_operator.lint.sglang import sizes
from ome_operator.lint.subject import Role, Subject

_WAITING = "SGLANG_DISAGGREGATION_WAITING_TIMEOUT"
_PLAIN = frozenset({"", "auto", "bf16", "bfloat16"})
"""Values of --kv-cache-dtype that usually stand for the same data type. `auto` stands for the data type of the model,
unless the model's files name another type."""
_CONN = "SGLang 0.5.23, disaggregation/common/conn.py: decode compares its own value with the value that prefill registered"


def _differ(subject: Subject, flag: str) -> tuple[Role, Launch, str, str] | None:
    """Return (decode role, its launch, value of prefill, value of decode) if the values of a flag differ between prefill
    and decode; otherwise None.
    """
    if subject.apart is None:
        return None
    (_, first), (role, second) = subject.apart
    here, there = first.text(flag), second.text(flag)
    return (role, second, here, there) if here != there and "$" not in here + there else None


@rule(
    "cache-types",
    Severity.ERROR,
    "Prefill and decode have KV caches of different data types",
    ignored="Every request fails at its first transfer, although both roles look healthy.",
    evidence=f"{_CONN} (kv_cache_dtype).",
)
def cache_types(subject: Subject) -> Iterator[RuleHit]:
    if found := _differ(subject, "--kv-cache-dtype"):
        role, start, here, there = found
        if {here, there} <= _PLAIN:
            return
        message = f"prefill has --kv-cache-dtype {here or 'auto'}, and decode has {there or 'auto'}"
        yield RuleHit(
            locate_flag(role, start, "--kv-cache-dtype"), message, "write the same value of --kv-cache-dtype for both"
        )


@rule(
    "page-sizes",
    Severity.ERROR,
    "Prefill and decode have different page sizes of the KV cache",
    ignored="Every request fails at its first transfer, although both roles look healthy.",
    evidence=f"{_CONN} (page_size).",
)
def page_sizes(subject: Subject) -> Iterator[RuleHit]:
    if (found := _differ(subject, "--page-size")) and found[2] and found[3]:
        role, start, here, there = found
        message = f"prefill has --page-size {here}, and decode has {there}"
        yield RuleHit(locate_flag(role, start, "--page-size"), message, "write the same value of --page-size for both")


@rule(
    "page-size-alone",
    Severity.WARNING,
    "Only one of prefill and decode sets the page size of the KV cache",
    ignored="If the default of the other role differs, every request fails at its first transfer.",
    evidence=f"{_CONN} (page_size); the default depends on the attention backend.",
)
def page_size_alone(subject: Subject) -> Iterator[RuleHit]:
    if (found := _differ(subject, "--page-size")) and bool(found[2]) != bool(found[3]):
        role, start, here, there = found
        message = f"{'prefill' if here else 'decode'} has --page-size {here or there}, but the other role does not set it"
        yield RuleHit(locate_flag(role, start, "--page-size"), message, "write the same value of --page-size for both")


@rule(
    "transfer-differs",
    Severity.ERROR,
    "Prefill and decode use different protocols to transfer KV caches",
    ignored="Decode receives no KV cache, so every request fails after its time-out.",
    evidence="SGLang: a transfer backend communicates only with the same backend (disaggregation/mooncake, nixl, …).",
)
def transfer_differs(subject: Subject) -> Iterator[RuleHit]:
    if found := _differ(subject, "--disaggregation-transfer-backend"):
        role, start, here, there = found
        message = f"prefill has --disaggregation-transfer-backend {here}, and decode has {there}"
        yield RuleHit(
            locate_flag(role, start, "--disaggregation-transfer-backend"),
            message,
            "write the same value of --disaggregation-transfer-backend for both",
        )


@rule(
    "attention-tp-differs",
    Severity.WARNING,
    (
        "Prefill and decode divide attention over different numbers of GPUs, although the model has a KV cache per "
        "attention head"
    ),
    ignored=(
        "SGLang divides the KV caches and sends them head by head, which is slower. Failures of both roles under "
        "load have been reported."
    ),
    evidence="https://github.com/sgl-project/sglang/issues/15674; models with latent attention (DeepSeek, Kimi K2) "
    "are not affected.",
)
def attention_tp_differs(subject: Subject) -> Iterator[RuleHit]:
    attention = subject.model.facts.attention if subject.model is not None else None
    if subject.apart is None or attention is None or attention.kv_lora_rank:
        return
    (_, first), (role, second) = subject.apart
    here, there = sizes(first).attention_tp, sizes(second).attention_tp
    if here and there and here != there:
        message = f"attention is divided over {here} GPUs in prefill and over {there} in decode"
        yield RuleHit(locate_flag(role, second, "--tp-size"), message, "write the same ratio of TP to DP for both")


@rule(
    "drafts-apart",
    Severity.WARNING,
    "Only one of prefill and decode uses speculative decoding",
    ignored="If the model has a KV cache per attention head, SGLang versions from 0.5.2 to the end of 2025 give wrong "
    "answers. Other versions accept fewer draft tokens than configured.",
    evidence="https://github.com/sgl-project/sglang/pull/17212",
)
def drafts_apart(subject: Subject) -> Iterator[RuleHit]:
    if found := _differ(subject, "--speculative-algorithm"):
        role, start, here, there = found
        if bool(here) != bool(there):
            message = (
                f"{'prefill' if here else 'decode'} has --speculative-algorithm {here or there}, but the other role has none"
            )
            yield RuleHit(
                locate_flag(role, start, "--speculative-algorithm"),
                message,
                "write the flag for both roles with the same draft model, or remove it from both",
            )


@rule(
    "drafts-differ",
    Severity.WARNING,
    "Prefill and decode use different speculative decoding",
    ignored="The draft data that prefill sends does not fit decode: drafts are rejected, or answers are wrong.",
    evidence="SGLang sends the draft model's hidden states and cache with the transfer (disaggregation/common/conn.py); "
    "https://github.com/sgl-project/sglang/pull/23918.",
)
def drafts_differ(subject: Subject) -> Iterator[RuleHit]:
    for flag in ("--speculative-algorithm", "--speculative-draft-model-path", "--speculative-num-draft-tokens"):
        if (found := _differ(subject, flag)) and found[2] and found[3]:
            role, start, here, there = found
            yield RuleHit(
                locate_flag(role, start, flag),
                f"prefill has {flag} {here}, and decode has {there}",
                f"write the same value of {flag} for both",
            )


@rule(
    "prefill-pipeline",
    Severity.WARNING,
    "Prefill uses pipeline parallelism, and Mooncake transfers the KV caches",
    ignored="Each pipeline stage sends the cache of its own layers. If decode assigns these parts to the wrong layers, "
    "answers are wrong although nothing fails. Measure the accuracy of the answers.",
    evidence="https://github.com/sgl-project/sglang/issues/8424, https://github.com/sgl-project/sglang/pull/37175 "
    "(layers paired wrongly)",
)
def prefill_pipeline(subject: Subject) -> Iterator[RuleHit]:
    for role, start in subject.launched("sglang"):
        mode, stages = start.text("--disaggregation-mode"), sizes(start).pp
        backend = start.text("--disaggregation-transfer-backend")
        if mode == "prefill" and stages is not None and stages > 1 and backend.startswith("mooncake"):
            message = f"prefill has --pp-size {stages}, and {backend} transfers the caches"
            yield RuleHit(
                locate_flag(role, start, "--pp-size"),
                message,
                "remove --pp-size, or compare the answers with those of a single server",
            )


@rule(
    "contexts-differ",
    Severity.WARNING,
    "The context length of prefill is shorter than the context length of decode",
    ignored="Prefill rejects long requests that decode would accept.",
    evidence="SGLang rejects requests longer than --context-length, and each request passes through both roles.",
)
def contexts_differ(subject: Subject) -> Iterator[RuleHit]:
    if subject.apart is None:
        return
    (role, first), (_, second) = subject.apart
    here, there = number(first.text("--context-length")), number(second.text("--context-length"))
    whole = subject.model.facts.context_length if subject.model is not None else None
    if here and (longest := there or whole) and here < longest:
        message = f"prefill accepts {here} tokens, and decode accepts {longest}"
        yield RuleHit(
            locate_flag(role, first, "--context-length"),
            message,
            "write the same value of --context-length for both, or a larger value for prefill",
        )


@rule(
    "mode-wrong",
    Severity.ERROR,
    "The disaggregation mode does not match the component",
    ignored="The router sends prompts to pods that only decode, or no pod decodes, so no request is answered.",
    evidence="With a `decoder`, the `engine` does prefill only (docs/architecture.md); the flag --disaggregation-mode sets "
    "the mode of each SGLang engine.",
)
def mode_wrong(subject: Subject) -> Iterator[RuleHit]:
    for role, start in subject.launched("sglang"):
        mode = start.text("--disaggregation-mode") or "null"
        if "$" not in mode and role.title in ("prefill", "decode") and mode != role.title:
            message = f"{role.component} is the {role.title} role, but has --disaggregation-mode {mode}"
            yield RuleHit(
                locate_flag(role, start, "--disaggregation-mode"), message, f"write --disaggregation-mode={role.title}"
            )


@rule(
    "bootstrap-port",
    Severity.ERROR,
    "The bootstrap port of prefill differs from its annotation, which the router reads",
    ignored="Decode connects to a port on which nothing listens, so every request fails after its time-out.",
    evidence="sglang-router reads the annotation sglang.ai/bootstrap-port of prefill pods, and uses 8998 without it.",
)
def bootstrap_port(subject: Subject) -> Iterator[RuleHit]:
    for role, start in subject.launched("sglang"):
        if start.text("--disaggregation-mode") != "prefill":
            continue
        port, annotated = number(start.text("--disaggregation-bootstrap-port")), role.annotations.get(keys.BOOTSTRAP_PORT)
        if port is not None and (number(annotated) if annotated else BOOTSTRAP_PORT) != port:
            message = (
                f"prefill uses bootstrap port {port}, but the annotation {keys.BOOTSTRAP_PORT} is "
                f"{annotated or 'missing, so that the router uses 8998'}"
            )
            yield RuleHit(
                locate_flag(role, start, "--disaggregation-bootstrap-port"),
                message,
                f'add {keys.BOOTSTRAP_PORT}: "{port}" to the annotations',
            )


@rule(
    "waiting-longer",
    Severity.WARNING,
    "Decode waits longer for a KV cache than the router waits for the answer",
    ignored=(
        "The client gets an error when the router gives up, but GPUs continue to process the request until decode's "
        "own time-out."
    ),
    evidence="SGLang 0.5.23, environ.py: decode waits for 300 s by default; sglang-router: --request-timeout-secs.",
)
def waiting_longer(subject: Subject) -> Iterator[RuleHit]:
    routers = [
        number(start.text("--request-timeout-secs"))
        for _, start in subject.launched(*ROUTERS)
        if not start.is_on("--mini-lb")
    ]
    limit = min((seconds for seconds in routers if seconds), default=None)
    for role, start in subject.launched("sglang"):
        waits = number(start.variable(_WAITING))
        if start.text("--disaggregation-mode") == "decode" and limit and waits and waits > limit:
            message = f"{_WAITING} is {waits} s, but the router gives up after {limit} s"
            yield RuleHit(
                locations.variable(role, _WAITING),
                message,
                f"set {_WAITING} to at most {limit}, or raise --request-timeout-secs of the router",
            )


RULES: tuple[Rule, ...] = (
    mode_wrong,
    cache_types,
    page_sizes,
    page_size_alone,
    transfer_differs,
    bootstrap_port,
    attention_tp_differs,
    drafts_apart,
    drafts_differ,
    prefill_pipeline,
    contexts_differ,
    waiting_longer,
)
