"""Tests that no regular expression of the package needs long for a long text. Other users write most of the texts that the
operator, the agent and the commands read, and a match holds the interpreter's lock.
"""

import ast
import importlib
import pkgutil
import re
import time
from collections import deque
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from re import _parser as sre  # type: ignore[attr-defined]
from types import ModuleType
from typing import Any, NamedTuple

import pytest

import ome_operator

LENGTH = 200_000
SECONDS = 1.0
CLASSES = "aAzZ059-_.,:;/\\@=?&+*#%$~!<>()[]{}|^\"'` \t\n\x00\x1bé中"
"""A character of each class that a pattern may distinguish."""
IN_POD = "runs in the pod of a tenant, whose own files and arguments it reads"
EXEMPT = {
    "ome_operator.preflight": IN_POD,
    "ome_operator.benchmark_pod.inside": IN_POD,
    "ome_operator.engines.extract": "reads the source of an engine on the machine of a developer",
}
"""Module or package -> why its patterns may need long."""
METHODS = frozenset({"search", "match", "fullmatch", "split", "findall", "finditer", "sub"})
FLAGS = {f"re.{name}": flag for name, flag in vars(re).items() if isinstance(flag, re.RegexFlag)}


def modules() -> Iterator[str]:
    for found in pkgutil.walk_packages(ome_operator.__path__, "ome_operator."):
        if not found.name.endswith("__main__") and not any(f"{found.name}.".startswith(f"{part}.") for part in EXEMPT):
            yield found.name


class Use(NamedTuple):
    """A regular expression, and the methods with which the package applies it to texts."""

    pattern: re.Pattern[Any]
    methods: frozenset[str]


def held(name: str, value: Any) -> Iterator[tuple[str, re.Pattern[Any]]]:
    """Yield the patterns in a value of a module with their names: alone, in maps and lists, and in classes."""
    if isinstance(value, re.Pattern):
        yield name, value
    elif isinstance(value, Mapping | list | tuple):
        for inner in value.values() if isinstance(value, Mapping) else value:
            yield from held(name, inner)


def named(module: ModuleType) -> Iterator[tuple[str, re.Pattern[Any]]]:
    classes = [value for value in vars(module).values() if isinstance(value, type) and value.__module__ == module.__name__]
    for scope in (module, *classes):
        for name, value in list(vars(scope).items()):
            yield from held(name, value)


def written(tree: ast.Module) -> Iterator[Use]:
    """Yield the patterns that a module writes where it uses them, such as `re.match("[a-z]", text)`."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(ast.Attribute(ast.Name("re"), method), [ast.Constant(text), *others]) if method in METHODS:
                flags = [flag for other in others if (flag := FLAGS.get(ast.unparse(other))) is not None]
                yield Use(re.compile(text, flags[0] if flags else 0), frozenset({method}))


def applied(name: str, source: str) -> frozenset[str]:
    """Return the methods of the pattern with this name that its module calls; all of them if no call is found."""
    call = re.compile(rf"\b{name}(?:\[\w+\])?\.({'|'.join(METHODS)})\b")
    return frozenset(call.findall(source)) or METHODS


@cache
def patterns() -> dict[str, list[Use]]:
    """Return the patterns of each module. This takes two seconds, so only the process that runs these tests collects
    them.
    """
    found: dict[str, list[Use]] = {}
    loaded = [importlib.import_module(name) for name in modules()]
    sources = {module.__name__: Path(str(module.__file__)).read_text(encoding="utf-8") for module in loaded}
    for module in loaded:
        mine = [Use(pattern, applied(name, sources[module.__name__])) for name, pattern in named(module)]
        mine += written(ast.parse(sources[module.__name__]))
        if mine:
            found[module.__name__] = mine
    return found


def literals(parsed: Any) -> Iterator[str]:
    """Yield the runs of fixed characters in a parsed pattern, such as `eyJ`."""
    run = ""
    for code, argument in parsed:
        if code is sre.LITERAL:
            run += chr(argument)
            continue
        if run:
            yield run
        run = ""
        stack = [argument]
        while stack:
            inner = stack.pop()
            if isinstance(inner, sre.SubPattern):
                yield from literals(inner)
            elif isinstance(inner, list | tuple):
                stack += inner
    if run:
        yield run


def texts(pattern: re.Pattern[Any]) -> Iterator[tuple[str, str]]:
    """Yield texts for which a pattern may need long, as a beginning and a part that is repeated: each class of characters,
    and the fixed parts of the pattern, alone and before a run.
    """
    yield from (("", item) for item in CLASSES)
    text = pattern.pattern if isinstance(pattern.pattern, str) else pattern.pattern.decode("latin-1")
    parts = dict.fromkeys(literals(sre.parse(text, pattern.flags & ~re.UNICODE)))
    for part in [*parts, "".join(parts)]:
        yield from (("", part), ("", f"{part}a"), ("", f"{part} "), (part, "a"), (part, " "), (part, "0"))


def apply(use: Use, method: str, text: str) -> float:
    """Return the seconds that a method of a pattern takes for a text."""
    subject: Any = text.encode("utf-8", "replace") if isinstance(use.pattern.pattern, bytes) else text
    begin = time.process_time()
    if method == "sub":
        use.pattern.sub(subject[:0], subject)
    elif method == "finditer":
        deque(use.pattern.finditer(subject), 0)
    else:
        getattr(use.pattern, method)(subject)
    return time.process_time() - begin


def seconds(use: Use, method: str, begin: str, part: str) -> float:
    """Return the seconds for a text of LENGTH characters. A shorter text is sufficient if even the square of the time is
    below SECONDS, or if the time is above SECONDS already when it is only proportional to the length.
    """
    for length in (2_000, 20_000, 60_000, LENGTH):
        took = apply(use, method, begin + part * (length // max(1, len(part))))
        if took * (LENGTH / length) ** 2 < SECONDS or took * LENGTH / length > 2 * SECONDS:
            break
    return took * LENGTH / length


def test_every_regular_expression_is_fast_for_long_texts() -> None:
    slow = {}
    for module, uses in patterns().items():
        for use in uses:
            for begin, part in texts(use.pattern):
                took = max(seconds(use, method, begin, part) for method in use.methods)
                if took > SECONDS:
                    slow[module, use.pattern.pattern] = f"{took:.1f} s or more for {begin!r} and {part!r} again and again"
    assert slow == {}


@pytest.mark.parametrize(
    ("text", "method", "part"),
    [("[-\\w]*secret", "search", "a"), ("a*b", "findall", "a"), (r"spec\.(.+?): no", "findall", "spec.")],
)
def test_slow_regular_expression_is_detected(text: str, method: str, part: str) -> None:
    assert seconds(Use(re.compile(text), frozenset({method})), method, "", part) > SECONDS


def test_regular_expressions_of_the_package_are_found() -> None:
    found = patterns()
    assert sum(map(len, found.values())) > 150
    assert "fullmatch" in {method for use in found["ome_operator.names"] for method in use.methods}
