"""Tests that YAML is read as Kubernetes reads it, by the parser of libyaml and by that in Python."""

import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from ome_operator.util import kubeyaml
from ome_operator.util.kubeyaml import document, documents, plain_scalar
from tests.support.parts import ROOT


@pytest.fixture(autouse=True, params=["libyaml", "python"])
def parser(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Select the parser of PyYAML that `kubeyaml` uses. Every test of this module runs with both parsers."""
    if request.param == "python":
        monkeypatch.setattr(kubeyaml, "_QUICK", None)
    elif not yaml.__with_libyaml__:
        pytest.skip("this PyYAML has no libyaml")
    return str(request.param)


@pytest.mark.parametrize("file", sorted(ROOT.glob("config/**/*.yaml")), ids=str)
def test_shipped_files_are_parsed_by_libyaml_like_by_the_python_parser(parser: str, file: Path) -> None:
    text = file.read_text()
    assert (kubeyaml._quickly(text) is not None) == (parser == "libyaml")
    assert list(documents(text)) == list(yaml.load_all(text, Loader=kubeyaml._Loader))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2024-01-01", "2024-01-01"),
        ("9999-99-99", "9999-99-99"),
        ("2024-01-01T00:00:00Z", "2024-01-01T00:00:00Z"),
        ("12:30", "12:30"),
        ("1:30.5", "1:30.5"),
        ("=", "="),
        ("10", 10),
        ("0x10", 16),
        ("1.5", 1.5),
        ("yes", True),
        ("~", None),
    ],
)
def test_yaml_values_have_kubernetes_types(text: str, value: Any) -> None:
    assert list(documents(f"a: {text}")) == [{"a": value}]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x: 1\na: !!binary aGk=", "support !!binary"),
        ("x: 1\na: !!set {a}", "support !!set"),
        ("x: 1\na: !!timestamp 2024-01-01", "support !!timestamp"),
        ("x: 1\na: " + "9" * 5000, "a number of 5000 characters is too long"),
        ("x: 1\na: .nan", "the number .nan: put quotes"),
        ("x: 1\na: .inf", "the number .inf: put quotes"),
        ("x: 1\n? {a: b}\n: c", "unhashable key"),
        ("x: 1\na: " + "[" * 3000, "line 2 opens more than 200"),
        ("x: 1\na: " + "{" * 3000, "line 2 opens more than 200"),
    ],
)
def test_yaml_refused_by_kubernetes_is_reported_with_its_line(text: str, words: str) -> None:
    with pytest.raises(yaml.YAMLError) as refused:
        list(documents(text))
    assert words in str(refused.value)
    assert "line 2" in str(refused.value)


@pytest.mark.parametrize("text", ["!!bool a", "!!int ''", "!!float ''"])
def test_value_that_does_not_match_its_tag_is_refused(text: str) -> None:
    with pytest.raises(yaml.YAMLError, match="a value is invalid"):
        list(documents(text))


def test_deeply_nested_yaml_is_refused_quickly() -> None:
    before = time.process_time()
    steps = "\n".join(" " * indent + "a:" for indent in range(1500))
    for text in ("- " * 1500 + "a", "- " * 500_000, "? " * 500_000, steps, "{" * 50_000, "{a: " * 50_000):
        with pytest.raises(yaml.YAMLError, match="nested lists or maps: reduce the nesting"):
            list(documents(text))
    assert time.process_time() - before < 5


def test_brackets_in_closed_documents_do_not_count_as_nesting() -> None:
    assert len(list(documents("---\n".join(["a: '['\n"] * 300)))) == 300


@pytest.mark.parametrize("text", ["true", "null", "yes", "on", "off", "y", "n", "123", "1.5", "~", "a: b", "[", "# a", " a"])
def test_ambiguous_scalars_are_quoted(text: str) -> None:
    assert plain_scalar(text) == f'"{text}"'
    assert list(documents(f"a: {plain_scalar(text)}")) == [{"a": text}]


@pytest.mark.parametrize("text", ["kimi-k2", "a", "nan", "truely", "m-9"])
def test_plain_string_is_not_quoted(text: str) -> None:
    assert plain_scalar(text) == text


BOMB = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{','.join([f'*{below}'] * 10)}]\n" for below, name in zip("abcdef", "bcdefg", strict=True)
)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: 1\n---\na: 2\n", "it contains several documents"),
        (BOMB, "more than 500000 values: remove aliases"),
        ("- " * 150 + "a", "more than 100 levels of nested lists or maps"),
        ("&a [*a]", "more than"),
    ],
)  # fmt: skip
def test_yaml_document_limits_are_enforced(text: str, said: str) -> None:
    with pytest.raises(yaml.YAMLError, match=said):
        document(text)
    assert (document(""), document("a: [1]\n")) == (None, {"a": [1]})


def test_merge_keys_cannot_expand_without_limit() -> None:
    """Merge keys cannot enlarge a map without limit. Each line doubles the contents of the previous line. PyYAML before
    6.0.4 would continue for hours; later versions copy each pair once.
    """
    lines = [
        "a0: &a0 {k: 1}",
        *(f"a{number}: &a{number} {{<<: [*a{number - 1}, *a{number - 1}]}}" for number in range(1, 40)),
    ]
    began = time.monotonic()
    try:
        (made,) = documents("\n".join(lines))
    except yaml.YAMLError as error:
        assert "merge keys (<<) copy more than" in str(error)
    else:
        assert made["a39"] == {"k": 1}
    assert time.monotonic() - began < 20
    assert document("a: &a {x: 1, y: 2}\nb: {<<: *a, y: 3}")["b"] == {"x": 1, "y": 3}
