"""Rules about routers: whether they find the engines of their service, and pair prefill with decode."""

import re
from collections.abc import Iterator, Mapping

from ome_operator import keys
from ome_operator.lint import places
from ome_operator.lint.division import of
from ome_operator.lint.finding import Hit, Rule, Severity, rule
from ome_operator.lint.launch import ROUTER, Launch, number
from ome_operator.lint.subject import Role, Subject, below

_ASKS = {"--prefill-selector": ("prefill",), "--decode-selector": ("decode",), "--selector": ("engine", "prefill", "decode")}
"""Selector -> titles of the roles of which it has to find a leader."""
_OURS = frozenset({keys.COMPONENT, keys.SERVICE, keys.WORKER_INDEX})


@rule(
    "mode-alone",
    Severity.WARNING,
    "An engine without a partner does half of the work",
    ignored="It waits for caches that nobody sends, or sends caches to nobody: no request is answered.",
    evidence="SGLang's --disaggregation-mode; `engine` without `decoder` is a whole engine (docs/architecture.md).",
)
def mode_alone(subject: Subject) -> Iterator[Hit]:
    for role, start in subject.launched("sglang"):
        mode = start.text("--disaggregation-mode")
        if role.title == "engine" and mode in ("prefill", "decode") and subject.service:
            said = f"the engine has --disaggregation-mode {mode}, and the service has no decoder"
            remedy = "add decoder: {} and router: {}, or take the argument out"
            yield Hit(of(role, start, "--disaggregation-mode"), said, remedy)


@rule(
    "selector-misses",
    Severity.ERROR,
    "The router looks for engines by labels that they do not have",
    ignored="It never finds a worker, and answers every request with 503.",
    evidence="Labels of pods: docs/architecture.md. The operator adds the revision to selectors, so pods of another "
    "service never match; https://github.com/vllm-project/aibrix/issues/1350 shows a router without workers.",
)
def selector_misses(subject: Subject) -> Iterator[Hit]:
    for role, start in subject.launched(ROUTER):
        for flag, titles in _ASKS.items():
            given = start.given(flag)
            wanted = _wanted(start, flag)
            engines = [engine for title in titles if (engine := subject.role(title)) is not None]
            if given is None or not engines or not wanted.keys() & _OURS or not start.on("--service-discovery"):
                continue
            misses = [_missing(wanted, engine) for engine in engines]
            if all(misses):
                key, value = misses[0][0]
                has = below(engines[0].leader, "metadata", "labels").get(key, "none")
                said = f"{flag} asks for {key}={value}, and leaders of {engines[0].title} have {has}"
                yield Hit(places.argument(role, given), said, f"write {key}={has}" if has != "none" else "take it out")


def _wanted(start: Launch, flag: str) -> Mapping[str, str]:
    """Label -> value; what holds a variable that nobody knows is left out."""
    given = start.given(flag)
    words = " ".join(given.values).split() if given is not None else []
    pairs = (word.partition("=") for word in words if "=" in word and "$" not in word)
    return {key: value for key, _, value in pairs if key != keys.REVISION}


def _missing(wanted: Mapping[str, str], engine: Role) -> list[tuple[str, str]]:
    labels = below(engine.leader, "metadata", "labels")
    return [(key, value) for key, value in wanted.items() if labels.get(key) != value]


@rule(
    "router-everywhere",
    Severity.WARNING,
    "The router looks for engines in all namespaces",
    ignored="Its account may read the pods of its own namespace alone: `pods is forbidden`, and it finds no worker.",
    evidence="The help of sglang-router 0.3.2 (--service-discovery-namespace); "
    "https://github.com/vllm-project/aibrix/issues/1350",
)
def router_everywhere(subject: Subject) -> Iterator[Hit]:
    for role, start in subject.launched(ROUTER):
        if start.on("--service-discovery") and start.given("--service-discovery-namespace") is None:
            remedy = "add --service-discovery-namespace=$(NAMESPACE)"
            yield Hit(of(role, start, "--service-discovery"), "--service-discovery-namespace is not given", remedy)


@rule(
    "router-whole",
    Severity.ERROR,
    "The router takes prefill and decode for whole engines",
    ignored="Selectors of prefill and decode are not read: it finds no worker, or sends prompts to what only decodes.",
    evidence="The help of sglang-router 0.3.2: --prefill-selector and --decode-selector are of the PD mode.",
)
def router_whole(subject: Subject) -> Iterator[Hit]:
    for role, start in subject.launched(ROUTER):
        pairs = any(start.on(flag) for flag in ("--pd-disaggregation", "--enable-igw", "--mini-lb"))
        if subject.apart is not None and not pairs and start.line is not None:
            yield Hit(places.arguments(role), "--pd-disaggregation is not given", "add --pd-disaggregation")


@rule(
    "router-hurried",
    Severity.WARNING,
    "The router waits for a worker less than its start may take",
    ignored="It gives a worker up that still reads its weights, and learns of it again only by a change.",
    evidence="The help of sglang-router 0.3.2 (--worker-startup-timeout-secs); "
    "https://github.com/sgl-project/sglang/issues/2778",
)
def router_hurried(subject: Subject) -> Iterator[Hit]:
    starts = [seconds for engine, _ in subject.launched("sglang", "vllm") if (seconds := _start(engine))]
    for role, start in subject.launched(ROUTER):
        given = start.given("--worker-startup-timeout-secs")
        waits = number(given.values[0]) if given is not None and given.values else None
        if given is not None and waits and starts and waits < max(starts):
            said = f"the router waits {waits} s for a worker, and a start may take {max(starts)} s by its startupProbe"
            yield Hit(places.argument(role, given), said, f"write --worker-startup-timeout-secs={max(starts)}")


def _start(engine: Role) -> int:
    """Seconds that the startup probe of rank 0 allows; 0 without."""
    probe = below(engine.container, "startupProbe")
    parts = [probe.get("periodSeconds", 10), probe.get("failureThreshold", 3)]
    whole = [int(part) for part in parts if re.fullmatch(r"\d{1,9}", str(part))]
    return whole[0] * whole[1] if probe and len(whole) == 2 else 0


RULES: tuple[Rule, ...] = (
    mode_alone,
    selector_misses,
    router_everywhere,
    router_whole,
    router_hurried,
)
