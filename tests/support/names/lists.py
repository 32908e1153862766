"""The lists of public names: every name that a user, a stored object or a running pod depends on.

`python -m tests.support.names --write` writes them to tests/data/names; tests/unit/test_public_names.py compares them.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache

from tests.support.names import formats, people

DATA = people.ROOT / "tests/data/names"

KINDS: Mapping[str, Callable[[], Iterable[str]]] = {
    "chart-values": people.chart_values,
    "commands": people.commands,
    "conditions-and-reasons": people.conditions,
    "crds": people.crds,
    "disks-of-nodes": formats.disks,
    "environment": people.variables,
    "labels-and-annotations": people.labels,
    "lint-rules": formats.rules,
    "metrics": people.metrics,
    "outputs": formats.outputs,
    "pods": people.pods,
    "ports": people.ports,
    "protocols": formats.protocols,
    "recordings": formats.recordings,
    "stored-revisions": formats.revision_keys,
}
"""Name of a list -> the function that enumerates it."""


@cache
def current(kind: str) -> frozenset[str]:
    """Return the names of a kind as the code has them now."""
    return frozenset(name.strip() for name in KINDS[kind]()) - {""}


def listed_names(kind: str) -> frozenset[str]:
    """Return the names of a kind as its list in tests/data/names has them."""
    file = DATA / f"{kind}.txt"
    return frozenset(file.read_text(encoding="utf-8").splitlines()) if file.exists() else frozenset()


def differences() -> Iterator[str]:
    """Yield a line for each name that is new (+) or gone (-)."""
    for kind in KINDS:
        for name in sorted(current(kind) ^ listed_names(kind)):
            yield f"{kind}: {'+' if name in current(kind) else '-'} {name}"


def write() -> None:
    """Write all lists."""
    DATA.mkdir(exist_ok=True)
    for kind in KINDS:
        (DATA / f"{kind}.txt").write_text("".join(f"{name}\n" for name in sorted(current(kind))), encoding="utf-8")
