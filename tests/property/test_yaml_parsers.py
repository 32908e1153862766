"""The two YAML parsers that can read a text give the same result: the same documents, or the same error."""

from collections.abc import Iterator
from itertools import product

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from ome_operator.util import kubeyaml
from tests.support.odd_json import VALUES
from tests.support.parts import ROOT

pytestmark = pytest.mark.skipif(not yaml.__with_libyaml__, reason="this PyYAML has no libyaml")

MARKS = "[]{}:,-&*!|>\n \"'#a1~?%@<=."
SHIPPED = [file.read_text() for file in sorted(ROOT.glob("config/**/*.yaml"))]
TAGS = ("!!str", "!!int", "!!float", "!!bool", "!!null", "!!map", "!!seq", "!!set", "!!a", "!a", "!", "!<tag:a,b:c>", "")


@st.composite
def edited(draw: st.DrawFn) -> str:
    """Generate a part of a shipped file with some places removed and others replaced."""
    lines = draw(st.sampled_from(SHIPPED)).splitlines(keepends=True)
    begin = draw(st.integers(0, len(lines)))
    text = "".join(lines[begin : begin + draw(st.integers(1, 20))])
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(text)))
        put = draw(st.text(alphabet=MARKS, max_size=3) | st.text(max_size=2))
        text = text[:at] + put + text[at + draw(st.integers(0, 4)) :]
    return text


def both(text: str) -> tuple[str, str]:
    """Return the result of the loader in Python, and of the loader of libyaml if it is available."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(kubeyaml, "_QUICK", None)
        slow = "\n".join(_said(text))
    return slow, "\n".join(_said(text))


def _said(text: str) -> Iterator[str]:
    try:
        for found in kubeyaml.documents(text):
            yield repr(found)
    except yaml.YAMLError as error:
        yield str(error)


@given(st.text(max_size=80) | st.text(alphabet=MARKS, max_size=60) | VALUES.map(yaml.safe_dump) | edited())
@example("a:\tb")
@example("- \tb")
@example("\ufeffa: 1\n")
@example("a: \ufeff1\n")
@example("a: 1\n---\nb: [\n")
@example("a: 1\r\nb: 2\rc: 3\x85d: \u2028")
@example("x" * 2000 + ": 1")
@example("%YAML 1.2\n---\na: 1")
@example("a: \x00")
@example("a: \ud800")
@example('a: "\\ud800\\x00"')
@example("&a [*a, &b {<<: *a}]")
def test_both_yaml_parsers_return_the_same_result(text: str) -> None:
    slow, quick = both(text)
    assert slow == quick


@pytest.mark.parametrize(("tag", "value"), [*product(TAGS, ("a", "1", "''", "'1'", "[1]", "{a: 1}", "|\n  1", "", "&a b"))])
def test_both_yaml_parsers_treat_tags_alike(tag: str, value: str) -> None:
    slow, quick = both(f"a: {tag} {value}\n")
    assert slow == quick
