"""Tests that the declarations of options are complete and consistent, and are read from nested classes of settings."""

import re
from dataclasses import dataclass
from typing import Annotated, NamedTuple

import pytest

from ome_operator.settings import Exposure, Policy, Settings
from ome_operator.settings.agent import AgentOptions
from ome_operator.settings.option import Declared, Form, Option, build_settings_object, options

OPTIONS = tuple(options(Settings))
OF_AGENT = tuple(options(AgentOptions))


class Inner(NamedTuple):
    text: Annotated[str | None, Option(flag="--a-text", help="Text.")] = None


INNER = Inner()


@dataclass(frozen=True, kw_only=True)
class Outer:
    inner: Inner = INNER
    constant: int = 3
    size: Annotated[int, Option(flag="--size", help="Size.", ge=1)] = 5
    names: Annotated[frozenset[str], Option(flag="--name", help="Names.")] = frozenset()
    mode: Annotated[str, Option(flag="--mode", help="Mode.", choices=("On", "Off"))] = "On"
    share: Annotated[float, Option(flag="--share", help="Share.", ge=0, le=1)] = 0.5


FOUND = {declared.key: declared for declared in options(Outer)}


def test_options_are_found_in_nested_classes_in_the_order_of_their_fields() -> None:
    assert [(declared.path, declared.form, declared.default) for declared in FOUND.values()] == [
        (("inner", "text"), Form.TEXT, None),
        (("size",), Form.WHOLE, 5),
        (("names",), Form.LIST, frozenset()),
        (("mode",), Form.TEXT, "On"),
        (("share",), Form.NUMBER, 0.5),
    ]
    assert FOUND["a-text"].parameter == "a_text"


def test_settings_are_assembled_from_the_paths_of_their_fields() -> None:
    assert build_settings_object(Outer, {("inner", "text"): "x", ("size",): 9}) == Outer(inner=Inner("x"), size=9)
    exposed = build_settings_object(Settings, {("policy", "exposure", "kind"): "Ingress", ("workers",): 2})
    assert exposed == Settings(policy=Policy(exposure=Exposure("Ingress")), workers=2)


def test_option_remedy_states_the_allowed_values() -> None:
    assert [FOUND[key].fix for key in ("size", "share", "mode", "name")] == [
        "write a whole number of at least 1.",
        "write a number from 0 to 1.",
        "write On or Off.",
        "write a list of strings, such as [a, b].",
    ]
    assert (FOUND["mode"].chosen(" off"), FOUND["mode"].chosen("none")) == ("Off", None)


def test_option_defaults_are_written_in_their_cli_form() -> None:
    written = {declared.key: declared.written for declared in OPTIONS}
    assert (written["waves"], written["bake"], written["network-policies"]) == ("1,5%,25%,100%", "5m", False)
    assert written["identity"] is written["watch-namespace"] is None


def test_option_flags_and_chart_values_are_unique() -> None:
    values = [one.option.value for one in (*OPTIONS, *OF_AGENT) if one.option.value]
    for names in ([one.key for one in OPTIONS], [one.key for one in OF_AGENT], values):
        assert len(set(names)) == len(names) > 15


def test_an_option_without_a_default_must_be_set() -> None:
    assert [declared.key for declared in OF_AGENT if declared.required] == ["node", "root"]
    assert not any(declared.required for declared in OPTIONS)
    assert {declared.key: declared.collection for declared in OF_AGENT if declared.form is Form.LIST} == {
        "root": tuple,
        "secret": tuple,
        "identity-host": frozenset,
        "identity-namespace": frozenset,
        "private-host": frozenset,
        "refused-address": tuple,
        "endpoint-host": frozenset,
    }


@pytest.mark.parametrize("declared", (*OPTIONS, *OF_AGENT), ids=lambda declared: declared.key)
def test_option_declaration_has_flag_help_and_bounds(declared: Declared) -> None:
    option = declared.option
    assert re.fullmatch(r"--[a-z]+(-[a-z]+)*", option.flag) and option.help.endswith(".")
    assert not (option.value and option.part_of), "a chart value either is the option or has other effects"
    if option.choices:
        assert declared.default in option.choices
    if option.pattern:
        assert option.fix and all(
            re.fullmatch(option.pattern, text) for text in ([] if declared.form is Form.LIST else [""])
        )
    if option.ge is not None:
        assert option.ge <= declared.default <= (declared.default if option.le is None else option.le)
