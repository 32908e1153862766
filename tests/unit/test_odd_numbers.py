"""Tests of numbers, times and durations that users, engines and other programs write: none of them raises an exception that
ends a pass, a list or a command with a traceback.
"""

import re
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from ome_operator import quantity
from ome_operator.cli.kubeconfig import parse_lifetime
from ome_operator.cli.rollout import _age
from ome_operator.core.badnodes import record as node_faults
from ome_operator.core.catalog import agreement
from ome_operator.core.demand.stored import from_status, to_status
from ome_operator.core.observed import kube_events, route
from ome_operator.core.recovery import record
from ome_operator.core.rollout import zero
from ome_operator.core.selection.versions import release
from ome_operator.core.service_metrics import seconds_since
from ome_operator.describe.log_selection import parse_seconds
from ome_operator.errors import UserError
from ome_operator.kube.errors import LONGEST_WAIT, from_response
from ome_operator.preflight.ports import port_number
from ome_operator.storage.hashes import SIZE_ONLY, from_etag
from ome_operator.util.versions import numbers

NOW = datetime(2026, 11, 29, tzinfo=UTC)
PACKAGE = Path(quantity.__file__).parent
TIMES = [
    "0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59", "0000-12-31T00:01:00Z", "2026-01-01T00:00:00", "2026", "x", "",
]  # fmt: skip
NUMBERS = ["²", "٣", "1_000", "-1", "9" * 400, "9" * 5000, "1e300", "nan", "inf", ""]


def unready(time: str) -> dict[str, Any]:
    return {"conditions": [{"type": agreement.NODES_AGREE, "status": "Unknown", "lastTransitionTime": time}]}


def faults(time: str) -> Any:
    found = {"faults": [{"kind": "Error", "first": time, "last": time, "namespace": "a"}]}
    return node_faults.status(node_faults.parse_node_memory(found, 0.0), [])


def scaling(time: str) -> Any:
    decision = {"time": time, "prefill": 1, "decode": 1, "routers": 1}
    return to_status(from_status({"changedAt": time, "changes": [time], "decisions": [decision]}))


def woken(time: str) -> Any:
    return zero.seconds_until_change({"wake": {"by": "Request", "time": time, "servedAfterSeconds": 1}}, NOW)


READERS: dict[str, Callable[[str], Any]] = {
    "NodeFaults": faults,
    "status.scaling": scaling,
    "status.groups": lambda time: record.seconds_since(time, NOW),
    "status.zero": woken,
    "conditions of a model": lambda time: agreement.wait_left(unready(time), NOW),
    "Events": lambda time: kube_events.newest_messages([{"lastTimestamp": time, "regarding": {"uid": "u"}}], NOW),
    "managed fields of a route": lambda time: route.seconds_since(time, NOW),
    "creation": lambda time: seconds_since(time, NOW),
    "ome rollout": lambda time: _age(time, NOW),
}  # fmt: skip


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("time", TIMES)
def test_invalid_time_counts_as_unknown(reader: str, time: str) -> None:
    assert READERS[reader](time) == READERS[reader]("no time")


@pytest.mark.parametrize("seconds", [1e300, -1e300, 2**63, "x", None, True, float("nan")])
def test_invalid_wake_duration_is_tolerated(seconds: Any) -> None:
    wake = {"by": "Request", "time": "2026-11-28T12:00:00Z", "servedAfterSeconds": seconds}
    assert zero.kept_until({"wake": wake}, wakes=True, now=NOW) is not None


@pytest.mark.parametrize("text", NUMBERS)
def test_invalid_number_is_rejected_by_every_parser(text: str) -> None:
    assert port_number(text) == 0
    assert from_etag(f"{'a' * 32}-{text}", 2**30) == SIZE_ONLY or not text
    assert release(text) is None or text == "٣"
    assert all(number <= 10**18 for number in numbers(text))
    assert parse_seconds(text) is None and parse_seconds(f"{text}m") is None
    assert 0 <= from_response(429, {}, text).retry_after <= LONGEST_WAIT
    with pytest.raises(UserError, match="write 10m or longer"):
        parse_lifetime(f"{text}h")


def test_long_durations_in_commands_are_accepted() -> None:
    assert parse_lifetime("999999999h").total_seconds() == parse_seconds("999999999h") == quantity.LONGEST
    assert (parse_seconds("90"), parse_seconds("1h30m"), parse_lifetime("24h").days) == (90, 5400, 1)


ALLOWED = {
    "agent/prefetch_plan.py": "a file of the kernel",
    "agent/store.py": "the names and the contents of the agent's own files",
    "benchmark_pod/inside.py": "arguments that the operator made from numbers",
    "cli/move.py": "a separate function reads the number",
    "core/moves/causes.py": "a separate function reads the number",
    "engines/flags.py": "names of the shipped files",
    "engines/servers.py": "the word is replaced, not read",
    "lint/pods.py": "the text is compared, not read",
    "lint/shell.py": "a character is tested, not read",
    "modelinfo/experts.py": "the length is limited",
    "preflight/check.py": "the rank, which the operator wrote",
    "preflight/node.py": "a file of the kernel, and a variable that is part of a path",
    "recorder/secret_texts.py": "the text is classified, not read",
}
"""Files in which a text is tested for digits -> why that is safe."""


def uses(pattern: str, without: str = "$^") -> dict[str, list[str]]:
    """Return the lines of the package that match `pattern` and do not match `without`, by file."""
    found: dict[str, list[str]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
        if hits := [line for line in lines if re.search(pattern, line) and not re.search(without, line)]:
            found[str(path.relative_to(PACKAGE))] = hits
    return found


def test_only_listed_modules_parse_iso_times() -> None:
    """Only the listed modules call `datetime.fromisoformat`, which accepts times that raise OverflowError when they are
    converted. All other code uses `quantity.parse_instant`.
    """
    found = uses(r"\bfromisoformat\(")
    assert found.keys() == {"quantity.py", "cli/kubeconfig.py"}, found  # kubeconfig: a time that the API server has made


def test_isdigit_is_used_only_with_isascii() -> None:
    """No code of the operator checks a number with `str.isdigit` and its like, except at the allowed places. These methods
    accept ² and texts of more than 4,300 digits, for which `int` raises ValueError; `quantity.whole_number` accepts neither.
    """
    found = uses(r"\.is(digit|decimal|numeric)\(", r"\.isascii\(\)")
    assert found.keys() <= ALLOWED.keys(), found
