"""Rules about prefill and decode: what they have to agree on, and how caches go between them. All of SGLang."""

from collections.abc import Iterator

from ome_operator import keys
from ome_operator.engines.routers import BOOTSTRAP_PORT
from ome_operator.lint import places
from ome_operator.lint.division import of
from ome_operator.lint.finding import Hit, Rule, Severity, rule
from ome_operator.lint.launch import ROUTER, Launch, number
from ome_operator.lint.sglang import sizes
from ome_operator.lint.subject import Role, Subject

_WAITING = "SGLANG_DISAGGREGATION_WAITING_TIMEOUT"
_PLAIN = frozenset({"", "auto", "bf16", "bfloat16"})
"""Types of cache that are mostly the same: `auto` is the type of the model where its files say no other."""
_CONN = "SGLang 0.5.23, disaggregation/common/conn.py: decode compares it with what prefill registered"


def _differ(subject: Subject, flag: str) -> tuple[Role, Launch, str, str] | None:
    """(decode, its launch, what prefill says, what decode says) where both say something else for a flag."""
    if subject.apart is None:
        return None
    (_, first), (role, second) = subject.apart
    here, there = first.text(flag), second.text(flag)
    return (role, second, here, there) if here != there and "$" not in here + there else None


@rule(
    "cache-types",
    Severity.ERROR,
    "Prefill and decode have caches of different types",
    ignored="Every request fails at its first transfer; both roles look healthy.",
    evidence=f"{_CONN} (kv_cache_dtype).",
)
def cache_types(subject: Subject) -> Iterator[Hit]:
    if found := _differ(subject, "--kv-cache-dtype"):
        role, start, here, there = found
        if {here, there} <= _PLAIN:
            return
        said = f"prefill has --kv-cache-dtype {here or 'auto'}, and decode {there or 'auto'}"
        yield Hit(of(role, start, "--kv-cache-dtype"), said, "write the same for both")


@rule(
    "page-sizes",
    Severity.ERROR,
    "Prefill and decode have pages of cache of different sizes",
    ignored="Every request fails at its first transfer; both roles look healthy.",
    evidence=f"{_CONN} (page_size).",
)
def page_sizes(subject: Subject) -> Iterator[Hit]:
    if (found := _differ(subject, "--page-size")) and found[2] and found[3]:
        role, start, here, there = found
        said = f"prefill has --page-size {here}, and decode {there}"
        yield Hit(of(role, start, "--page-size"), said, "write the same for both")


@rule(
    "page-size-alone",
    Severity.WARNING,
    "Only prefill or only decode says how large a page of cache is",
    ignored="Where the other's default is another size, every request fails at its first transfer.",
    evidence=f"{_CONN} (page_size); the default depends on the attention back end.",
)
def page_size_alone(subject: Subject) -> Iterator[Hit]:
    if (found := _differ(subject, "--page-size")) and bool(found[2]) != bool(found[3]):
        role, start, here, there = found
        said = f"{'prefill' if here else 'decode'} has --page-size {here or there}, and the other role does not say it"
        yield Hit(of(role, start, "--page-size"), said, "write the same for both")


@rule(
    "transfer-differs",
    Severity.ERROR,
    "Prefill and decode speak different protocols for caches",
    ignored="No cache arrives: every request waits for its time-out and fails.",
    evidence="SGLang: a transfer back end talks to its own kind alone (disaggregation/mooncake, nixl, …).",
)
def transfer_differs(subject: Subject) -> Iterator[Hit]:
    if found := _differ(subject, "--disaggregation-transfer-backend"):
        role, start, here, there = found
        said = f"prefill has --disaggregation-transfer-backend {here}, and decode {there}"
        yield Hit(of(role, start, "--disaggregation-transfer-backend"), said, "write the same for both")


@rule(
    "attention-tp-differs",
    Severity.WARNING,
    "Prefill and decode share attention over different numbers of GPUs, and the model has a cache for each head",
    ignored="Caches are cut and sent head by head: slower at first, and under load both roles were seen to break.",
    evidence="https://github.com/sgl-project/sglang/issues/15674; models with latent attention (DeepSeek, Kimi K2) "
    "are not concerned.",
)
def attention_tp_differs(subject: Subject) -> Iterator[Hit]:
    attention = subject.model.facts.attention if subject.model is not None else None
    if subject.apart is None or attention is None or attention.kv_lora_rank:
        return
    (_, first), (role, second) = subject.apart
    here, there = sizes(first).attention_tp, sizes(second).attention_tp
    if here and there and here != there:
        said = f"attention is shared by {here} GPUs in prefill and by {there} in decode"
        yield Hit(of(role, second, "--tp-size"), said, "take the same TP / DP for both")


@rule(
    "drafts-apart",
    Severity.WARNING,
    "Only prefill or only decode drafts tokens",
    ignored="With a cache for each head, versions from 0.5.2 to the end of 2025 answer wrongly; with others drafts "
    "are accepted less often.",
    evidence="https://github.com/sgl-project/sglang/pull/17212",
)
def drafts_apart(subject: Subject) -> Iterator[Hit]:
    if found := _differ(subject, "--speculative-algorithm"):
        role, start, here, there = found
        if bool(here) != bool(there):
            said = f"{'prefill' if here else 'decode'} has --speculative-algorithm {here or there}, and the other role none"
            yield Hit(
                of(role, start, "--speculative-algorithm"), said, "write it for both, with the same draft, or for none"
            )


@rule(
    "drafts-differ",
    Severity.WARNING,
    "Prefill and decode draft tokens in different ways",
    ignored="What prefill sends of its draft does not fit: drafts are refused, or answers go wrong.",
    evidence="SGLang sends the draft's hidden states and cache with the transfer (disaggregation/common/conn.py); "
    "https://github.com/sgl-project/sglang/pull/23918",
)
def drafts_differ(subject: Subject) -> Iterator[Hit]:
    for flag in ("--speculative-algorithm", "--speculative-draft-model-path", "--speculative-num-draft-tokens"):
        if (found := _differ(subject, flag)) and found[2] and found[3]:
            role, start, here, there = found
            yield Hit(of(role, start, flag), f"prefill has {flag} {here}, and decode {there}", "write the same for both")


@rule(
    "prefill-pipeline",
    Severity.WARNING,
    "Prefill is a pipeline, and caches go by Mooncake",
    ignored="Stages send parts of the cache. Where layers and parts do not meet, answers are wrong and nothing "
    "fails: measure accuracy.",
    evidence="https://github.com/sgl-project/sglang/issues/8424, https://github.com/sgl-project/sglang/pull/37175 "
    "(layers paired wrongly)",
)
def prefill_pipeline(subject: Subject) -> Iterator[Hit]:
    for role, start in subject.launched("sglang"):
        mode, stages = start.text("--disaggregation-mode"), sizes(start).pp
        backend = start.text("--disaggregation-transfer-backend")
        if mode == "prefill" and stages is not None and stages > 1 and backend.startswith("mooncake"):
            said = f"prefill has --pp-size {stages}, and caches go by {backend}"
            yield Hit(
                of(role, start, "--pp-size"), said, "take --pp-size out, or compare answers with those of a single server"
            )


@rule(
    "contexts-differ",
    Severity.WARNING,
    "The longest request of prefill is shorter than decode's",
    ignored="Requests that decode would take are refused by prefill.",
    evidence="SGLang refuses what is longer than --context-length; a request goes to both roles.",
)
def contexts_differ(subject: Subject) -> Iterator[Hit]:
    if subject.apart is None:
        return
    (role, first), (_, second) = subject.apart
    here, there = number(first.text("--context-length")), number(second.text("--context-length"))
    whole = subject.model.facts.context_length if subject.model is not None else None
    if here and (longest := there or whole) and here < longest:
        said = f"prefill takes {here} tokens, and decode {longest}"
        yield Hit(of(role, first, "--context-length"), said, "write the same for both, or more for prefill")


@rule(
    "mode-wrong",
    Severity.ERROR,
    "A component does not do what its place says",
    ignored="The router sends prompts to what only decodes, or nobody decodes: no request is answered.",
    evidence="`engine` beside `decoder` is prefill (docs/architecture.md); SGLang's --disaggregation-mode says it "
    "to the engine.",
)
def mode_wrong(subject: Subject) -> Iterator[Hit]:
    for role, start in subject.launched("sglang"):
        mode = start.text("--disaggregation-mode") or "null"
        if "$" not in mode and role.title in ("prefill", "decode") and mode != role.title:
            said = f"{role.component} is {role.title} here, and has --disaggregation-mode {mode}"
            yield Hit(of(role, start, "--disaggregation-mode"), said, f"write --disaggregation-mode={role.title}")


@rule(
    "bootstrap-port",
    Severity.ERROR,
    "The port at which decode meets prefill is another than the router is told",
    ignored="The router sends decode to a port where nobody listens: every request waits for its time-out and fails.",
    evidence="sglang-router reads the annotation sglang.ai/bootstrap-port of prefill pods, and takes 8998 without it.",
)
def bootstrap_port(subject: Subject) -> Iterator[Hit]:
    for role, start in subject.launched("sglang"):
        if start.text("--disaggregation-mode") != "prefill":
            continue
        port, told = number(start.text("--disaggregation-bootstrap-port")), role.annotations.get(keys.BOOTSTRAP_PORT)
        if port is not None and (number(told) if told else BOOTSTRAP_PORT) != port:
            said = (
                f"prefill meets decode at port {port}, and the annotation {keys.BOOTSTRAP_PORT} says "
                f"{told or 'nothing, so 8998'}"
            )
            yield Hit(
                of(role, start, "--disaggregation-bootstrap-port"),
                said,
                f'add {keys.BOOTSTRAP_PORT}: "{port}" to the annotations',
            )


@rule(
    "waiting-longer",
    Severity.WARNING,
    "Decode waits longer for a cache than the router waits for the answer",
    ignored="The client is told of a failure while GPUs go on with its request, for as long as the difference.",
    evidence="SGLang 0.5.23, environ.py: 300 s when unset; sglang-router: --request-timeout-secs.",
)
def waiting_longer(subject: Subject) -> Iterator[Hit]:
    routers = [
        number(start.text("--request-timeout-secs")) for _, start in subject.launched(ROUTER) if not start.on("--mini-lb")
    ]
    limit = min((seconds for seconds in routers if seconds), default=None)
    for role, start in subject.launched("sglang"):
        waits = number(start.variable(_WAITING))
        if start.text("--disaggregation-mode") == "decode" and limit and waits and waits > limit:
            said = f"{_WAITING} is {waits} s, and the router gives up after {limit} s"
            yield Hit(
                places.variable(role, _WAITING), said, f"set {_WAITING} to at most {limit}, or raise --request-timeout-secs"
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
