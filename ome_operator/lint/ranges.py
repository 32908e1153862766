"""Rules about values of arguments that no engine can use, and about ports that two listeners would share."""

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from ome_operator.lint import locations
from ome_operator.lint.arguments import all_launches
from ome_operator.lint.finding import Hit, Rule, Severity, rule
from ome_operator.lint.launch import ROUTERS, Launch, number
from ome_operator.lint.subject import Manifest, Role, Subject, items


class Range(NamedTuple):
    """The values that a flag may have. Bounds that are None do not apply."""

    least: float | None = None
    most: float | None = None
    above: float | None = None
    below: float | None = None

    def holds(self, value: float) -> bool:
        """Return whether a value is in the range."""
        return (
            (self.least is None or value >= self.least)
            and (self.most is None or value <= self.most)
            and (self.above is None or value > self.above)
            and (self.below is None or value < self.below)
        )

    def __str__(self) -> str:
        messages = [
            f"{word} {bound:g}"
            for word, bound in (
                ("above", self.above), ("at least", self.least), ("below", self.below), ("at most", self.most),
            )
            if bound is not None
        ]  # fmt: skip
        return " and ".join(messages)


_SHARE, _POSITIVE, _PORT = Range(above=0, below=1), Range(least=1), Range(least=1, most=65535)
RANGES: Mapping[str, Mapping[str, Range]] = {
    "sglang": {
        "--mem-fraction-static": _SHARE,
        **dict.fromkeys(
            (
                "--tp-size", "--dp-size", "--pp-size", "--ep-size", "--nnodes", "--page-size", "--max-running-requests",
                "--context-length", "--max-total-tokens",
            ),
            _POSITIVE,
        ),
        **dict.fromkeys(("--port", "--nccl-port", "--disaggregation-bootstrap-port"), _PORT),
        "--node-rank": Range(least=0),
    },
    "vllm": {
        "--gpu-memory-utilization": Range(above=0, most=1),
        **dict.fromkeys(
            ("--tensor-parallel-size", "--pipeline-parallel-size", "--data-parallel-size", "--max-num-seqs"), _POSITIVE
        ),
        "--port": _PORT,
    },
    **{name: {"--port": _PORT, "--prometheus-port": _PORT} for name in ROUTERS},
}  # fmt: skip
"""Maps each program to a map from its flags to the values with which the program can work."""


@rule(
    "flag-range",
    Severity.ERROR,
    "The value of a flag is outside of the range with which the engine can work",
    ignored="The engine exits while it starts, or cannot allocate its cache or bind its port, and its group is recycled.",
    evidence="A share of memory is between 0 and 1, a size is at least 1, a port is between 1 and 65535.",
)
def flag_range(subject: Subject) -> Iterator[Hit]:
    for role, start in all_launches(subject):
        for name, allowed in RANGES.get(start.engine, {}).items():
            given = start.given(name)
            value = _number(start.text(name)) if given is not None else None
            if given is not None and value is not None and not allowed.holds(value):
                message = f"{given.word} is {start.text(name)}, which is not {allowed}"
                yield Hit(locations.argument(role, given), message, f"write a value {allowed}")


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
    evidence="SGLang 0.5.23, arg_groups/validation_hook.py, validate_buckets_rule: an AssertionError.",
)
def buckets_invalid(subject: Subject) -> Iterator[Hit]:
    for role, start in subject.launched("sglang"):
        for name in _BUCKETS:
            given = start.given(name)
            if given is not None and given.values and not any("$" in word for word in given.values):
                wrong = _bad_buckets(given.values[0], given.values[1:])
                if wrong:
                    message = f"{name} is {' '.join(given.values)}: {wrong}"
                    yield Hit(
                        locations.argument(role, given),
                        message,
                        "write default, tse with three numbers, or custom with numbers",
                    )


_BUCKETS = ("--prompt-tokens-buckets", "--generation-tokens-buckets")


def _bad_buckets(kind: str, rest: tuple[str, ...]) -> str:
    """Return what is wrong with the values of a flag for buckets; "" if nothing is."""
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


_PORTS = ("--port", "--nccl-port", "--disaggregation-bootstrap-port")


@rule(
    "port-twice",
    Severity.ERROR,
    "Two listeners of a pod use the same port",
    ignored="The second listener exits with `address already in use`, and the group is recycled.",
    evidence="A port can be bound once in a pod, because its containers share a network; rank 0 of SGLang listens on "
    "--port, on --nccl-port or the port of --dist-init-addr, and in prefill on --disaggregation-bootstrap-port.",
)
def port_twice(subject: Subject) -> Iterator[Hit]:
    for role, start in subject.launched():
        ports: dict[int, str] = {}
        for name, port in _listening(role, start):
            other = ports.setdefault(port, name)
            if other != name:
                given = start.given(name)
                place = locations.argument(role, given) if given is not None else locations.arguments(role)
                yield Hit(place, f"{other} and {name} are both port {port}", "use another port for one of them")
        for box in _others(role.leader):
            for declared in items(box, "ports"):
                taken = ports.get(declared.get("containerPort") or 0)
                if taken is not None and str(declared.get("protocol", "TCP")) == "TCP":
                    port = declared["containerPort"]
                    message = f"container {box.get('name')} declares port {port}, which is {taken} of {start.engine}"
                    yield Hit(locations.whole(role), message, "use another port for one of the two")


def _listening(role: Role, start: Launch) -> Iterator[tuple[str, int]]:
    """Yield each flag with a port on which rank 0 listens, and the port."""
    prefill = start.text("--disaggregation-mode") == "prefill"
    for name in _PORTS:
        if name == "--port" or (start.engine == "sglang" and start.given(name) is not None):
            port = number(start.text(name)) if name != "--disaggregation-bootstrap-port" or prefill else None
            if port:
                yield name, port
    if start.engine == "sglang" and role.size > 1 and start.given("--dist-init-addr") is not None:
        port = number(start.text("--dist-init-addr").rpartition(":")[2])
        if port:
            yield "--dist-init-addr", port


def _others(pod: Manifest) -> Iterator[Manifest]:
    """Yield the containers of a pod that run beside the main container."""
    yield from items(pod["spec"], "containers")[1:]
    yield from (box for box in items(pod["spec"], "initContainers") if box.get("restartPolicy") == "Always")


RULES: tuple[Rule, ...] = (flag_range, buckets_invalid, port_twice)
