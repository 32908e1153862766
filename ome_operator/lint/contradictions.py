"""Rules about combinations of arguments that SGLang rejects although it accepts each argument alone."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from ome_operator.lint.division import engines, locate_flag
from ome_operator.lint.finding import Rule, RuleHit, Severity, rule
from ome_operator.lint.launch import Launch, number
from ome_operator.lint.sglang import Sizes
from ome_operator.lint.subject import Subject

_EAGLE = frozenset({"EAGLE", "EAGLE3", "NEXTN"})


class Contradiction(NamedTuple):
    """A combination of arguments that SGLang rejects."""

    flag: str
    """The flag whose location a finding reports."""
    holds: Callable[[Launch, Sizes], bool]
    says: str
    remedy: str


def _lora(start: Launch) -> bool:
    return start.is_on("--enable-lora") or start.last_argument("--lora-paths") is not None


def _rank_unknown(start: Launch, _: Sizes) -> bool:
    known = start.last_argument("--max-lora-rank") is not None and start.last_argument("--lora-target-modules") is not None
    return start.is_on("--enable-lora") and start.last_argument("--lora-paths") is None and not known


def _few_loaded(start: Launch, _: Sizes) -> bool:
    loaded, batch = start.whole_number("--max-loaded-loras"), start.whole_number("--max-loras-per-batch")
    return _lora(start) and loaded is not None and batch is not None and loaded < batch


def _priorities(start: Launch, _: Sizes) -> bool:
    policy = start.text("--schedule-policy")
    return start.is_on("--enable-priority-scheduling") and "$" not in policy and policy not in ("", "fcfs", "lof")


def _staged_drafts(start: Launch, sizes: Sizes) -> bool:
    drafts = start.text("--speculative-algorithm")
    on_prefill = start.text("--disaggregation-mode") == "prefill" and drafts in ("EAGLE", "NEXTN", "DSPARK")
    return bool(drafts) and (sizes.pp or 1) > 1 and not on_prefill and not start.may_be_on("SGLANG_ENABLE_PP_SPEC")


def _no_steps(start: Launch, _: Sizes) -> bool:
    rest = start.last_argument("--speculative-eagle-topk") or start.last_argument("--speculative-num-draft-tokens")
    has_steps = start.last_argument("--speculative-num-steps") is not None or start.is_on("--speculative-adaptive")
    return start.text("--speculative-algorithm") in _EAGLE and rest is not None and not has_steps


_PAIRS = (
    Contradiction(
        "--enable-hierarchical-cache",
        lambda start, _: start.is_on("--enable-hierarchical-cache") and start.is_on("--disable-radix-cache"),
        "--enable-hierarchical-cache and --disable-radix-cache exclude each other",
        "remove one of the two flags",
    ),
    Contradiction(
        "--schedule-policy",
        _priorities,
        "--enable-priority-scheduling requires the policy fcfs or lof",
        "write --schedule-policy=fcfs, or remove --enable-priority-scheduling",
    ),
    Contradiction(
        "--enable-lora",
        _rank_unknown,
        "--enable-lora is given without --lora-paths, and without both --max-lora-rank and --lora-target-modules",
        "add --max-lora-rank and --lora-target-modules, or name the adapters with --lora-paths",
    ),
    Contradiction(
        "--max-loaded-loras",
        _few_loaded,
        "--max-loaded-loras is smaller than --max-loras-per-batch",
        "raise --max-loaded-loras to --max-loras-per-batch (8 when unset), or lower --max-loras-per-batch",
    ),
    Contradiction(
        "--speculative-algorithm",
        _staged_drafts,
        "--pp-size and --speculative-algorithm work together only on prefill, with EAGLE",
        "remove one of the two flags",
    ),
    Contradiction(
        "--speculative-algorithm",
        _no_steps,
        "--speculative-eagle-topk or --speculative-num-draft-tokens is given without --speculative-num-steps",
        "write all three flags, or none of the three",
    ),
)


@rule(
    "flags-contradict",
    Severity.ERROR,
    "The engine rejects a combination of arguments",
    ignored="The engine rejects its arguments and exits, so the group is recycled repeatedly.",
    evidence="SGLang 0.5.23, arg_groups: functions in kv_cache_hook.py, validation_hook.py, lora_hook.py, "
    "parallel_hook.py and speculative_hook.py reject these combinations.",
)
def flags_contradict(subject: Subject) -> Iterator[RuleHit]:
    for role, start, found in engines(subject):
        for pair in _PAIRS:
            if pair.holds(start, found):
                yield RuleHit(locate_flag(role, start, pair.flag), pair.says, pair.remedy)


@rule(
    "served-name",
    Severity.ERROR,
    "The name under which the model is served contains a colon",
    ignored="The engine rejects its arguments and exits.",
    evidence="SGLang 0.5.23, arg_groups/validation_hook.py, check_server_args: the text after a colon is the name of an "
    "adapter.",
)
def served_name(subject: Subject) -> Iterator[RuleHit]:
    for role, start, _ in engines(subject):
        name = start.text("--served-model-name")
        if ":" in name and "://" not in name and not start.shell:
            message = f"--served-model-name is {name}"
            yield RuleHit(
                locate_flag(role, start, "--served-model-name"),
                message,
                f"write --served-model-name={name.replace(':', '-')}",
            )


@rule(
    "requests-few",
    Severity.WARNING,
    "The limit of running requests is lower than the number of attention groups",
    ignored=(
        "Each attention group runs at most one request at a time; older versions exit with `max_running_request is zero`."
    ),
    evidence="SGLang 0.5.23, mem_cache/kv_cache_configurator.py divides --max-running-requests by DP; "
    "https://github.com/sgl-project/sglang/issues/10868",
)
def requests_few(subject: Subject) -> Iterator[RuleHit]:
    for role, start, found in engines(subject):
        most = number(start.text("--max-running-requests"))
        if most is not None and found.attention_dp and 0 < most < found.attention_dp:
            message = f"--max-running-requests is {most}, which is divided among {found.attention_dp} attention groups"
            remedy = f"write the number for all groups together, at least {found.attention_dp}"
            yield RuleHit(locate_flag(role, start, "--max-running-requests"), message, remedy)


RULES: tuple[Rule, ...] = (flags_contradict, served_name, requests_few)
