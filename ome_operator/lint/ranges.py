"""Rules about values of arguments that no engine can use, and about ports that two listeners would share."""

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from ome_operator.engines.routers import SGLANG_ROUTER
from ome_operator.lint import locations
from ome_operator.lint.arguments import all_launches
from ome_operator.lint.finding import Rule, RuleHit, Severity, rule
from ome_operator.lint.launch import ROUTERS, Launch, number
from ome_operator.lint.subject import Subject


class Range(NamedTuple):
    """The values that a flag may have. Bounds that are None do not apply."""

    minimum: float | None = None
    most: float | None = None
    above: float | None = None
    below: float | None = None
    other: float | None = None
    """A single value that the flag must not have."""

    def contains(self, value: float) -> bool:
        """Return whether a value is in the range."""
        return (
            (self.minimum is None or value >= self.minimum)
            and (self.most is None or value <= self.most)
            and (self.above is None or value > self.above)
            and (self.below is None or value < self.below)
            and value != self.other
        )

    def __str__(self) -> str:
        messages = [
            f"{word} {bound:g}"
            for word, bound in (
                ("above", self.above), ("at least", self.minimum), ("below", self.below), ("at most", self.most),
                ("other than", self.other),
            )
            if bound is not None
        ]  # fmt: skip
        return " and ".join(messages)


_SHARE, _POSITIVE, _PORT = Range(above=0, below=1), Range(minimum=1), Range(minimum=1, most=65535)
_NOT_NEGATIVE = Range(minimum=0)
RANGES: Mapping[str, Mapping[str, Range]] = {
    "sglang": {
        "--mem-fraction-static": _SHARE,
        **dict.fromkeys(
            (
                "--tp-size", "--dp-size", "--pp-size", "--ep-size", "--nnodes", "--page-size", "--max-running-requests",
                "--context-length", "--max-total-tokens", "--attn-dp-size", "--gpu-id-step", "--tokenizer-worker-num",
                "--detokenizer-worker-num", "--max-loras-per-batch", "--pp-max-micro-batch-size",
                "--grpc-response-timeout-secs",
            ),
            _POSITIVE,
        ),
        "--hicache-host-memory-fraction": Range(above=0, most=1),
        "--decode-log-interval": Range(other=0),
        **dict.fromkeys(
            ("--base-gpu-id", "--mm-processor-worker-num", "--mm-io-worker-num", "--schedule-conservativeness"),
            _NOT_NEGATIVE,
        ),
        **dict.fromkeys(("--port", "--nccl-port", "--disaggregation-bootstrap-port", "--grpc-port"), _PORT),
        "--node-rank": _NOT_NEGATIVE,
    },
    "vllm": {
        "--gpu-memory-utilization": Range(above=0, most=1),
        **dict.fromkeys(
            (
                "--tensor-parallel-size", "--pipeline-parallel-size", "--data-parallel-size", "--max-num-seqs",
                "--max-num-batched-tokens", "--stream-interval",
            ),
            _POSITIVE,
        ),
        "--port": _PORT,
    },
    **{name: {"--port": _PORT, "--prometheus-port": _PORT} for name in ROUTERS},
}  # fmt: skip
"""Maps each program to a map from its flags to the values with which the program can work. The map contains a flag only
if the program is known not to work with other values. Sources: SGLang 0.5.23, arg_groups/validation_hook.py,
lora_hook.py, serving_hook.py, hicache_hook.py, and scheduler_components/metrics_reporter.py, which divides by the
interval; vLLM, config/scheduler.py and config/cache.py."""
_UNLESS: Mapping[str, Mapping[str, Range]] = {
    "--disable-retries": {
        "--retry-max-retries": _POSITIVE,
        "--retry-initial-backoff-ms": _POSITIVE,
        "--retry-backoff-multiplier": Range(minimum=1),
        "--retry-jitter-factor": Range(minimum=0, most=1),
    },
    "--disable-circuit-breaker": {
        "--cb-failure-threshold": _POSITIVE,
        "--cb-success-threshold": _POSITIVE,
        "--cb-timeout-duration-secs": _POSITIVE,
        "--cb-window-duration-secs": _POSITIVE,
    },
    "": {"--request-timeout-secs": _POSITIVE, "--max-payload-size": _POSITIVE, "--worker-startup-timeout-secs": _POSITIVE},
}
"""Maps a switch of sglang-router to flags and their permitted values. The configuration check of the router requires these
values while the switch is off. The flags below the key "" are checked in every case
(sgl-router/src/config/validation.rs)."""
_CACHE_AWARE = {
    "--cache-threshold": Range(minimum=0, most=1),
    "--balance-rel-threshold": Range(minimum=1),
    "--eviction-interval-secs": _POSITIVE,
    "--max-tree-size": _POSITIVE,
}
"""The values that sglang-router checks for its policy cache_aware."""


def allowed_ranges(start: Launch) -> Mapping[str, Range]:
    """Return the range of values that a program accepts, by flag."""
    found = dict(RANGES.get(start.engine, {}))
    if start.engine == SGLANG_ROUTER:
        for switch, ranges in _UNLESS.items():
            found |= ranges if not switch or not start.is_on(switch) else {}
        found |= _CACHE_AWARE if start.raw_text("--policy") == "cache_aware" else {}
    return found


@rule(
    "flag-range",
    Severity.ERROR,
    "The value of a flag is outside of the range with which the engine can work",
    ignored="The engine exits while it starts, or cannot allocate its cache or bind its port, and its group is recycled.",
    evidence="A share of memory is between 0 and 1, a size is at least 1, a port is between 1 and 65535.",
)
def flag_range(subject: Subject) -> Iterator[RuleHit]:
    for role, start in all_launches(subject):
        for name, valid in allowed_ranges(start).items():
            given = start.last_argument(name)
            value = _number(start.raw_text(name)) if given is not None else None
            if given is not None and value is not None and not valid.contains(value):
                message = f"{given.word} is {start.raw_text(name)}, which is not {valid}"
                yield RuleHit(locations.argument(role, given), message, f"write a value {valid}")


def _number(text: str) -> float | None:
    whole = number(text)
    if whole is not None:
        return whole
    return float(text) if re.fullmatch(r"\s*[+-]?\d{0,18}\.?\d{1,18}\s*", text) else None


@rule(
    "buckets-invalid",
    Severity.ERROR,
    "The buckets of a metric do not have the form that the engine reads",
    ignored="The engine rejects its arguments and exits, so the group is recycled repeatedly.",
    evidence="SGLang 0.5.23, arg_groups/validation_hook.py: validate_buckets_rule raises an AssertionError.",
)
def buckets_invalid(subject: Subject) -> Iterator[RuleHit]:
    for role, start in subject.launched("sglang"):
        for name in _BUCKETS:
            given = start.last_argument(name)
            if given is not None and given.values and not any("$" in word for word in given.values):
                wrong = _bad_buckets(given.values[0], given.values[1:])
                if wrong:
                    message = f"{name} is {' '.join(given.values)}: {wrong}"
                    yield RuleHit(
                        locations.argument(role, given),
                        message,
                        "write default, tse with three numbers, or custom with numbers",
                    )


_BUCKETS = ("--prompt-tokens-buckets", "--generation-tokens-buckets")


def _bad_buckets(kind: str, rest: tuple[str, ...]) -> str:
    """Return what is wrong with the values of a flag for buckets; "" if the values are valid."""
    numbers = [found for word in rest if (found := _number(word)) is not None]
    if kind not in ("default", "tse", "custom"):
        return f"{kind} is not one of default, tse and custom"
    if kind == "default":
        return "default takes no further values" if rest else ""
    if len(numbers) < len(rest):
        return f"{kind} may be followed only by numbers"
    if kind == "tse":
        if len(numbers) != 3:
            return "tse needs three numbers: the middle of the buckets, the base and the count"
        middle, base, count = numbers
        well = middle > 0 and base > 1 and count > 0 and count == int(count)
        return "" if well else "the middle has to be above 0, the base above 1, and the count a whole number above 0"
    if not numbers:
        return "custom needs at least one number"
    if min(numbers) < 0 or len(set(numbers)) < len(numbers):
        return "the numbers have to be different, and at least 0"
    return ""


RULES: tuple[Rule, ...] = (flag_range, buckets_invalid)
