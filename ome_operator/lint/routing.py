"""Rules about routers: whether a router finds the engines of its service, and pairs prefill with decode."""

import re
from collections.abc import Iterator, Mapping

from ome_operator import keys
from ome_operator.lint import locations
from ome_operator.lint.division import locate_flag
from ome_operator.lint.finding import Rule, RuleHit, Severity, rule
from ome_operator.lint.launch import ROUTERS, Launch, number
from ome_operator.lint.subject import Role, Subject, map_at

_ASKS = {"--prefill-selector": ("prefill",), "--decode-selector": ("decode",), "--selector": ("engine", "prefill", "decode")}
"""Maps each selector flag to the titles of the roles whose leaders the selector has to match."""
_OURS = frozenset({keys.COMPONENT, keys.SERVICE, keys.WORKER_INDEX})


@rule(
    "mode-alone",
    Severity.WARNING,
    "An engine runs only prefill or only decode, but the service has no engine for the other role",
    ignored="No engine of the other role sends KV caches to this engine or receives its KV caches, so no request is "
    "answered.",
    evidence="SGLang's --disaggregation-mode; `engine` without `decoder` does both prefill and decode "
    "(docs/architecture.md).",
)
def mode_alone(subject: Subject) -> Iterator[RuleHit]:
    for role, start in subject.launched("sglang"):
        mode = start.text("--disaggregation-mode")
        if role.title == "engine" and mode in ("prefill", "decode") and subject.service:
            message = f"the engine has --disaggregation-mode {mode}, but the service has no decoder"
            remedy = "add decoder: {} and router: {}, or remove the argument"
            yield RuleHit(locate_flag(role, start, "--disaggregation-mode"), message, remedy)


@rule(
    "selector-misses",
    Severity.ERROR,
    "The router selects engines by labels that the engines do not have",
    ignored="The router finds no worker, and answers every request with 503.",
    evidence="Labels of pods: docs/architecture.md. The operator adds the revision to selectors, so pods of another "
    "service never match; https://github.com/vllm-project/aibrix/issues/1350 shows a router without workers.",
)
def selector_misses(subject: Subject) -> Iterator[RuleHit]:
    for role, start in subject.launched(*ROUTERS):
        for flag, titles in _ASKS.items():
            given = start.last_argument(flag)
            wanted = _wanted(start, flag)
            engines = [engine for title in titles if (engine := subject.role(title)) is not None]
            if given is None or not engines or not wanted.keys() & _OURS or not start.is_on("--service-discovery"):
                continue
            misses = [_missing(wanted, engine) for engine in engines]
            if all(misses):
                key, value = misses[0][0]
                has = map_at(engines[0].leader, "metadata", "labels").get(key, "none")
                message = f"{flag} selects {key}={value}, but the leaders of {engines[0].title} have {has}"
                remedy = f"write {key}={has}" if has != "none" else "remove this selector"
                yield RuleHit(locations.argument(role, given), message, remedy)


def _wanted(start: Launch, flag: str) -> Mapping[str, str]:
    """Return the labels in the selector that the flag sets, with their values. Words that contain a variable, and the
    label of the revision, are left out.
    """
    given = start.last_argument(flag)
    words = " ".join(given.values).split() if given is not None else []
    pairs = (word.partition("=") for word in words if "=" in word and "$" not in word)
    return {key: value for key, _, value in pairs if key != keys.REVISION}


def _missing(wanted: Mapping[str, str], engine: Role) -> list[tuple[str, str]]:
    labels = map_at(engine.leader, "metadata", "labels")
    return [(key, value) for key, value in wanted.items() if labels.get(key) != value]


@rule(
    "router-everywhere",
    Severity.WARNING,
    "The router searches for engines in all namespaces",
    ignored="The ServiceAccount of the router may read only pods of its own namespace, so the router gets `pods is "
    "forbidden` and finds no worker.",
    evidence="The help of sglang-router 0.3.2 (--service-discovery-namespace); "
    "https://github.com/vllm-project/aibrix/issues/1350",
)
def router_everywhere(subject: Subject) -> Iterator[RuleHit]:
    for role, start in subject.launched(*ROUTERS):
        if start.is_on("--service-discovery") and start.last_argument("--service-discovery-namespace") is None:
            remedy = "add --service-discovery-namespace=$(NAMESPACE)"
            yield RuleHit(
                locate_flag(role, start, "--service-discovery"), "--service-discovery-namespace is not given", remedy
            )


@rule(
    "router-whole",
    Severity.ERROR,
    "The router is not in prefill-decode mode",
    ignored="The router ignores the selectors of prefill and decode: it finds no worker, or sends prompts to pods "
    "that only decode.",
    evidence="The help of sglang-router 0.3.2: --prefill-selector and --decode-selector belong to the PD mode.",
)
def router_whole(subject: Subject) -> Iterator[RuleHit]:
    for role, start in subject.launched(*ROUTERS):
        pairs = any(start.is_on(flag) for flag in ("--pd-disaggregation", "--enable-igw", "--mini-lb"))
        if subject.apart is not None and not pairs and start.line is not None:
            yield RuleHit(locations.arguments(role), "--pd-disaggregation is not given", "add --pd-disaggregation")


@rule(
    "router-hurried",
    Severity.WARNING,
    "The router waits for a worker for a shorter time than the worker may take to start",
    ignored="The router gives up on a worker that is still loading weights. It adds the worker only after the worker's "
    "pod changes again.",
    evidence="The help of sglang-router 0.3.2 (--worker-startup-timeout-secs); "
    "https://github.com/sgl-project/sglang/issues/2778",
)
def router_hurried(subject: Subject) -> Iterator[RuleHit]:
    starts = [seconds for engine, _ in subject.launched("sglang", "vllm") if (seconds := _start(engine))]
    for role, start in subject.launched(*ROUTERS):
        given = start.last_argument("--worker-startup-timeout-secs")
        waits = number(given.values[0]) if given is not None and given.values else None
        if given is not None and waits and starts and waits < max(starts):
            message = f"the router waits {waits} s for a worker, but the startupProbe allows {max(starts)} s"
            yield RuleHit(locations.argument(role, given), message, f"write --worker-startup-timeout-secs={max(starts)}")


def _start(engine: Role) -> int:
    """Return the seconds that the startup probe of rank 0 allows for a start; 0 if there is no startup probe."""
    probe = map_at(engine.container, "startupProbe")
    parts = [probe.get("periodSeconds", 10), probe.get("failureThreshold", 3)]
    whole = [int(part) for part in parts if re.fullmatch(r"\d{1,9}", str(part))]
    return whole[0] * whole[1] if probe and len(whole) == 2 else 0


_OPEN_AT_MOST_S = 10
"""Maximum seconds for which a circuit breaker may stay open. For a longer time, the rule `circuits-open` warns."""


@rule(
    "circuits-open",
    Severity.WARNING,
    "After ten failed requests in a row, the router sends no requests to an engine for a long time",
    ignored="If the requests of all engines fail for a second, the router answers every request with 503 for a minute. "
    "If prefill and decode are separate, a failed request counts against both of its engines.",
    evidence="Our own measurement with sglang-router 0.3.2 and smg 1.13.0, and with simulated engines (docs/engines.md); "
    "https://github.com/sgl-project/sglang/issues/12355 and https://github.com/sgl-project/sglang/issues/13894.",
)
def circuits_open(subject: Subject) -> Iterator[RuleHit]:
    flag = "--cb-timeout-duration-secs"
    for role, start in subject.launched(*ROUTERS):
        seconds = number(start.text(flag))
        off = any(start.is_on(word) for word in ("--disable-circuit-breaker", "--mini-lb"))
        if start.line is not None and seconds and seconds > _OPEN_AT_MOST_S and not off:
            message = f"{flag} is {seconds}, so if all engines fail for a second, all requests fail for {seconds} s"
            yield RuleHit(locate_flag(role, start, flag), message, f"write {flag}=1 and --cb-success-threshold=1")


RULES: tuple[Rule, ...] = (
    mode_alone,
    selector_misses,
    router_everywhere,
    router_whole,
    router_hurried,
    circuits_open,
)
