"""Rules about the policies with which routers choose engines: whether a policy does what its name says."""

from collections.abc import Iterator

from ome_operator.engines.routers import SGLANG_ROUTER, SMG
from ome_operator.lint import locations
from ome_operator.lint.division import locate_flag
from ome_operator.lint.finding import Rule, RuleHit, Severity, rule
from ome_operator.lint.launch import ROUTERS, Launch
from ome_operator.lint.subject import Role, Subject
from ome_operator.util.versions import numbers

_RANDOM_UNTIL = (0, 3, 2)
"""Newest version of sglang-router in which the policy cache_aware keeps no prefix tree for prefill and decode workers."""
_KEYED = frozenset({"manual", "consistent_hashing"})
"""Policies that send all requests of a conversation to the same engine. They recognize a conversation by a header of its
requests."""
_KEY = "X-SMG-Routing-Key"


def _policy(start: Launch, role: str) -> str:
    """Return the policy for `prefill` or `decode`: the role's own policy, or else the policy for all engines."""
    return start.text(f"--{role}-policy") or start.text("--policy")


def _has_choice(role: Role, start: Launch) -> bool:
    """Return whether the router has a choice that matters between the groups of this role: the groups cache prefixes, and
    there may be several groups.
    """
    several = [max(part.min_replicas or 0, part.max_replicas or 0) for _, _, part in role.written]
    groups = next((number for number in several if number), 0)
    return groups != 1 and not start.is_on("--disable-radix-cache")


@rule(
    "cache-aware-random",
    Severity.WARNING,
    "The router chooses prefill at random, although its policy is cache_aware",
    ignored="The next turn of a conversation often reaches another prefill group, which computes the whole prompt again.",
    evidence="Our own measurement with sglang-router 0.3.2 and SGLang on CPUs (docs/engines.md), and with simulated "
    "engines behind the versions 0.1.9, 0.2.2, 0.2.4, 0.3.0 and 0.3.1: these routers keep no prefix tree for the "
    "policies of prefill and decode, and report this only in the debug log.",
)
def cache_aware_random(subject: Subject) -> Iterator[RuleHit]:
    for role, start in subject.launched(SGLANG_ROUTER):
        known = start.version and numbers(start.version)[:3] <= _RANDOM_UNTIL
        choice = subject.apart is not None and _has_choice(*subject.apart[0])
        if known and choice and start.is_on("--pd-disaggregation") and _policy(start, "prefill") == "cache_aware":
            chosen = start.last_argument("--prefill-policy") or start.last_argument("--policy")
            default = "" if chosen is not None else ", its default"
            message = f"{start.engine} {start.version} with --pd-disaggregation ignores the policy cache_aware{default}"
            remedy = (
                "use the image docker.io/lightseekorg/smg:1.13.0 with the command smg launch, or write "
                f"--prefill-policy=manual and send the header {_KEY} with the ID of the conversation"
            )
            yield RuleHit(locate_flag(role, start, "--prefill-policy", "--policy"), message, remedy)


@rule(
    "routing-key-unchecked",
    Severity.NOTE,
    "The router's policy needs a header that clients have to send",
    ignored="Requests without the header are distributed at random, so the turns of a conversation reach different engines.",
    evidence=f"Measured by this project with sglang-router 0.3.2 and smg 1.13.0: both read the header {_KEY} "
    "(docs/engines.md).",
)
def routing_key_unchecked(subject: Subject) -> Iterator[RuleHit]:
    for role, start in subject.launched(*ROUTERS):
        for flag in ("--prefill-policy", "--policy"):
            given = start.last_argument(flag)
            if given is not None and given.values and given.values[0] in _KEYED:
                message = f"{flag} is {given.values[0]}, which needs the header {_KEY} to keep a conversation on an engine"
                yield RuleHit(
                    locations.argument(role, given), message, f"send {_KEY} with the ID of the conversation in each request"
                )


@rule(
    "adapters-unroutable",
    Severity.WARNING,
    "The engines have LoRA adapters, but the router refuses the names of adapters",
    ignored="A request with the model `<model>:<adapter>` gets 404 (with --service-discovery) or 503.",
    evidence="Measured by this project with smg 1.13.0: the router compares the field `model` with the model's own name "
    "only.",
)
def adapters_unroutable(subject: Subject) -> Iterator[RuleHit]:
    with_adapters = [
        engine
        for engine, server in subject.launched("sglang")
        if server.is_on("--enable-lora") or server.last_argument("--lora-paths") is not None
    ]
    for role, _ in subject.launched(SMG):
        if with_adapters:
            message = f"{with_adapters[0].title} serves LoRA adapters, but smg accepts only the model's own name"
            remedy = "use sglang-router 0.3.2, or select the adapter with lora_path in requests to /generate"
            yield RuleHit(locations.arguments(role), message, remedy)


RULES: tuple[Rule, ...] = (cache_aware_random, routing_key_unchecked, adapters_unroutable)
