"""Rules about what SGLang requires of combinations of flags, and about values that it replaces without a message."""

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from ome_operator.engines import requirements as data
from ome_operator.engines.flags import is_json
from ome_operator.engines.requirements import Condition, Requirement, requirements
from ome_operator.lint import locations
from ome_operator.lint.division import engines, locate_flag
from ome_operator.lint.finding import Rule, RuleHit, Severity, rule
from ome_operator.lint.launch import Launch, number
from ome_operator.lint.sglang import Sizes
from ome_operator.lint.subject import Subject

_SIZES: Mapping[str, tuple[Callable[[Sizes], int | None], str]] = {
    "TP": (lambda found: found.tp, "--tp-size"),
    "PP": (lambda found: found.pp, "--pp-size"),
    "EP": (lambda found: found.ep, "--ep-size"),
    "attention DP": (lambda found: found.attention_dp, "--attn-dp-size"),
    "attention CP": (lambda found: found.attention_cp, "--attn-cp-size"),
}
"""Maps the name of a size to the function that computes it, and to the flag that sets it."""
_ALL_TO_ALL = "all-to-all"
_BACKEND = "--moe-a2a-backend"
_ALGORITHM = "--speculative-algorithm"
_JSON = ("--json-model-override-args", "--model-loader-extra-config", "--kv-events-config")
"""Flags whose value the parser accepts as any text. SGLang's resolver then reads the text as JSON."""


class _Server(NamedTuple):
    """A server whose flags and sizes are compared with conditions."""

    start: Launch
    found: Sizes
    architecture: str | None
    """The architecture of the model; None if it is not known."""

    def flag(self, name: str) -> str:
        """Return the flag with which a user sets the flag or size that a condition names; "" if there is no such flag."""
        if name in _SIZES:
            return _SIZES[name][1]
        if name in data.ATTENTION:
            own = data.ATTENTION[name]
            return own if self.start.last_argument(own) is not None else "--attention-backend"
        if name == data.LORA:
            return "--lora-paths" if self.start.last_argument("--lora-paths") is not None else "--enable-lora"
        return {_ALL_TO_ALL: _BACKEND, data.ARCHITECTURE: ""}.get(name, name)

    def value(self, name: str) -> str | None:
        """Return the value of a flag or size as text; "" if no flag sets the value and there is no default. Return None if
        the value is unknown, because it depends on a variable.
        """
        if name in _SIZES:
            size = _SIZES[name][0](self.found)
            return None if size is None else str(size)
        if name == data.ARCHITECTURE:
            return self.architecture
        flag = self.flag(name)
        text = (self.found.backend or "none") if flag == _BACKEND else self.start.text(flag)
        return None if "$" in text else text.upper() if name == _ALGORITHM else text  # SGLang ignores the case of this value

    def condition_holds(self, name: str, condition: Condition) -> bool | None:
        """Return whether a condition holds; None if that is unknown."""
        if condition.kind in (data.ON, data.OFF):
            flag = self.flag(name)
            on = self.start.is_on(flag) or (flag == "--lora-paths" and self.start.last_argument(flag) is not None)
            return on == (condition.kind == data.ON)
        if condition.kind in (data.GIVEN, data.ABSENT):
            given = name not in _SIZES and self.start.last_argument(name) is not None
            return given == (condition.kind == data.GIVEN)
        value = self.value(name)
        if value is None:
            return None
        if not value:
            return condition.or_absent if condition.kind == data.ONE_OF else None
        if condition.kind in (data.ONE_OF, data.NONE_OF):
            return (value in condition.words) == (condition.kind == data.ONE_OF)
        return self._compared(value, condition)

    def _compared(self, value: str, condition: Condition) -> bool | None:
        named = condition.kind in (data.EQUALS, data.OTHER_THAN)
        bound = self.value(" ".join(condition.words)) if named else condition.words[0]
        here, there = _amount(value), _amount(bound or "")
        if here is None or there is None:
            return None
        compared = {
            data.EQUALS: here == there,
            data.OTHER_THAN: here != there,
            data.ABOVE: here > there,
            data.AT_LEAST: here >= there,
            data.AT_MOST: here <= there,
        }
        return compared[condition.kind]

    def check_applies(self, row: Requirement) -> bool:
        """Return whether a check of SGLang applies to the server: all conditions of its `when` certainly hold."""
        conditions = row.when or {name: Condition(data.GIVEN) for name in row.needs}
        return all(self.condition_holds(name, wanted) for name, wanted in conditions.items())

    def text_of(self, name: str) -> str:
        """Return the text of a flag as it is set, such as `--flag=value`, or the name of a size with its value."""
        if name in _SIZES:
            return f"{name} {self.value(name)}"
        if name == data.ARCHITECTURE:
            return f"the architecture {self.architecture}"
        value, flag = self.value(name), self.flag(name)
        switch = self.start.is_on(flag) and not self.start.text(flag)
        return flag if switch or not value else f"{flag}={value}"


def _amount(text: str) -> float | None:
    whole = number(text)
    if whole is not None:
        return whole
    try:
        return float(text)
    except ValueError:
        return None


def _wanted(server: _Server, name: str, condition: Condition) -> str:
    """Return the text of what a condition requires. In the message, the text follows the word `requires`."""
    if condition.kind == data.EQUALS:
        return f"{name} equal to {' '.join(condition.words)}"
    if condition.kind in (data.AT_LEAST, data.AT_MOST, data.ABOVE):
        return f"{name} {condition.kind} {condition.words[0]}"
    if name == _ALL_TO_ALL:
        return f"an {name} of {' or '.join(condition.words)}"
    return f"{server.flag(name)}={' or '.join(condition.words)}" if condition.words else server.flag(name)


def _alone(name: str, actual: str | None, condition: Condition) -> tuple[str, str]:
    """Return (what is wrong, remedy) for the value of a flag that SGLang rejects regardless of the other flags. `actual` is
    the value; None if it is unknown.
    """
    if condition.kind == data.NONE_OF:
        return f"{name} is {actual}, which the engine rejects", "write another value, or remove the flag"
    bound = " ".join((condition.kind, *condition.words))
    return f"{name} is {actual}, but has to be {bound}", f"write a value {bound}, or remove the flag"


def _message_and_remedy(server: _Server, row: Requirement, name: str, condition: Condition) -> tuple[str, str]:
    """Return (what is wrong, remedy) for a condition of `needs` that the server does not meet."""
    actual, flag = server.value(name), server.flag(name)
    if not row.when:
        return _alone(name, actual, condition)
    # If a flag is in `when` and in `needs`, only the value that it needs is stated: `--a=x requires --a=y` would be longer
    # and would not say more.
    subjects = [server.text_of(each) for each in row.when if each not in (name, _ALL_TO_ALL)] or [server.text_of(name)]
    subject = " with ".join(dict.fromkeys(subjects))
    named = (server.flag(each) for each in row.when if each != name)
    first = next((each for each in named if each.startswith("--") and each != flag), flag)
    if name == data.ARCHITECTURE:
        known = " or ".join(condition.words)
        return f"{subject} works only with the architecture {known}, and the model's is {actual}", f"remove {first}"
    if condition.kind == data.OTHER_THAN:
        return f"{name} and {condition.words[0]} are both {actual}", f"write another port for {name}"
    if condition.kind in (data.OFF, data.ABSENT, data.NONE_OF):
        if name == _ALL_TO_ALL:
            return f"{subject} works only with an all-to-all backend", f"add {_BACKEND}=deepep, or remove {first}"
        return f"{subject} and {server.text_of(name)} exclude each other", "remove one of the two"
    is_set = f"but it is {actual}" if actual else "which is not given"
    message = f"{subject} requires {_wanted(server, name, condition)}, {is_set}"
    if name in _SIZES:
        return message, f"change {_SIZES[name][1]}, or remove {first}"
    value = f"={condition.words[0]}" if condition.kind == data.ONE_OF else " with a value" if condition.words else ""
    return message, f"write {flag}{value}, or remove {first}"


@rule(
    "requirement-missing",
    Severity.ERROR,
    "A flag requires or excludes another flag",
    ignored="The engine rejects its arguments and exits, so the group is recycled repeatedly.",
    evidence="SGLang 0.5.23, arg_groups: each row of ome_operator/engines/data/requirements.yaml names the function that "
    "rejects the combination.",
)
def requirement_missing(subject: Subject) -> Iterator[RuleHit]:
    for role, start, found in engines(subject):
        if start.version and start.version != data.VERSION:
            continue
        server = _Server(start, found, _architecture(subject, start))
        for row in requirements():
            for name, wanted in row.needs.items() if server.check_applies(row) else ():
                if server.condition_holds(name, wanted) is False or (
                    wanted.kind == data.ONE_OF and _unset(server, name, wanted)
                ):
                    message, remedy = _message_and_remedy(server, row, name, wanted)
                    flags = (server.flag(each) for each in (name, *row.when))
                    yield RuleHit(locate_flag(role, start, *(flag for flag in flags if flag)), message, remedy)


def _unset(server: _Server, name: str, condition: Condition) -> bool:
    return server.value(name) == "" and not condition.or_absent


def _architecture(subject: Subject, start: Launch) -> str | None:
    """Return the architecture of the model, as the engine reads it; None if it is not known, or if an argument changes
    it.
    """
    changed = start.last_argument("--json-model-override-args") is not None
    return None if subject.model is None or changed else subject.model.facts.architecture


@rule(
    "json-invalid",
    Severity.ERROR,
    "The value of a flag is not valid JSON",
    ignored="The engine exits with a JSONDecodeError after its parser has accepted the arguments.",
    evidence="SGLang 0.5.23, configs/model_config.py, and kv_events.py read the text of the flag with json.loads.",
)
def json_invalid(subject: Subject) -> Iterator[RuleHit]:
    for role, start, _ in engines(subject):
        for flag in _JSON:
            given = start.last_argument(flag)
            text = given.values[0] if given is not None and given.values else ""
            if given is not None and text and "$" not in text and not is_json(text):
                yield RuleHit(locations.argument(role, given), f"{flag} is {text}", "write a JSON object, such as {}")


class _Replaced(NamedTuple):
    """A combination of arguments for which SGLang replaces a value without a message."""

    flag: str
    holds: Callable[[Launch, Sizes], bool]
    says: Callable[[Launch, Sizes], str]
    remedy: str


_SMALL = 1024
"""If a rank gets fewer tokens than this in each prefill chunk, prefill leaves the GPU partly idle. SGLang's own defaults are
2,048 to 16,384."""


def _chunk(start: Launch, sizes: Sizes) -> int | None:
    """Return the number of tokens in a prefill chunk of each attention group. Return None if the size of a chunk is not set
    or unknown, if there is only one group, and for a decode engine.
    """
    chunk = start.whole_number("--chunked-prefill-size")
    decode = start.text("--disaggregation-mode") == "decode"
    if decode or chunk is None or chunk <= 0 or not sizes.attention_dp or sizes.attention_dp == 1:
        return None
    return chunk // sizes.attention_dp


def _divided(start: Launch, sizes: Sizes) -> str:
    return (
        f"--chunked-prefill-size is {start.text('--chunked-prefill-size')} for all {sizes.attention_dp} attention groups "
        f"together, so that each reads {_chunk(start, sizes)} tokens of prompts in a step"
    )


_REPLACED = (
    _Replaced(
        "--enable-dp-attention",
        lambda start, found: start.is_on("--enable-dp-attention") and found.attention_dp == 1,
        lambda start, found: "--enable-dp-attention without a size is the same as no DP attention",
        "write --attn-dp-size with the number of attention groups, or remove the flag",
    ),
    _Replaced(
        "--chunked-prefill-size",
        lambda start, found: _chunk(start, found) == 0,
        lambda start, found: f"{_divided(start, found)}: prefill is not divided into chunks at all",
        "write at least 1024 tokens for each attention group",
    ),
    _Replaced(
        "--chunked-prefill-size",
        lambda start, found: 0 < (_chunk(start, found) or 0) < _SMALL,
        _divided,
        "write the number of tokens of a group times the number of groups",
    ),
    _Replaced(
        "--disable-radix-cache",
        lambda start, found: (
            start.is_on("--disable-radix-cache")
            and start.text("--disaggregation-mode") == "decode"
            and start.is_on("--disaggregation-decode-enable-radix-cache")
        ),
        lambda start, found: "--disaggregation-decode-enable-radix-cache turns on what --disable-radix-cache turns off",
        "remove one of the two flags",
    ),
)


@rule(
    "value-replaced",
    Severity.WARNING,
    "The engine replaces a value without a message",
    ignored="The engine runs with another setting than the arguments state, and its log does not say so.",
    evidence="SGLang 0.5.23, arg_groups: parallel_hook.py and pd_disaggregation_hook.py; checked with SGLang's own code "
    "that resolves arguments.",
)
def value_replaced(subject: Subject) -> Iterator[RuleHit]:
    for role, start, found in engines(subject):
        for row in _REPLACED:
            if row.holds(start, found):
                yield RuleHit(locate_flag(role, start, row.flag), row.says(start, found), row.remedy)


RULES: tuple[Rule, ...] = (requirement_missing, json_invalid, value_replaced)
