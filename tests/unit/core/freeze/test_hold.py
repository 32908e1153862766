"""Tests of what freezes a service, of the reason that is reported, and of how the freeze ends."""

from dataclasses import replace

import pytest

from ome_operator import keys
from ome_operator.core.freeze.hold import Hold, active_hold, freeze_text
from ome_operator.core.observed.objects import Deps
from tests.support.parts import change_deps

WHEN = "2026-11-24T15:40:00Z by alice: driver"


def held(deps: Deps = Deps(), **notes: str) -> Hold | None:  # noqa: B008 (nobody changes it)
    return active_hold(deps, "team", "svc", {f"{keys.GROUP}/{name}": value for name, value in notes.items()})


@pytest.mark.parametrize("value", ["", " ", "false", "False"])
def test_empty_or_false_freeze_annotation_does_not_freeze(value: str) -> None:
    assert held(freeze=value, observe=value) is None
    assert freeze_text({keys.FREEZE: value}) == ""


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ("true", "frozen"),
        (WHEN, f"frozen since {WHEN}"),
        ("new\n driver", "frozen (new driver)"),
        ("yes", "frozen (yes)"),
        ("x" * 9999, f"frozen ({'x' * 200})"),
    ],
)
def test_any_other_annotation_value_freezes(value: str, sentence: str) -> None:
    assert held(freeze=value) == Hold(False, sentence, "`ome thaw svc -n team` ends the freeze of this service")
    assert freeze_text({keys.FREEZE: value}) == value


def test_freeze_of_lease_holds_all_services() -> None:
    assert held(Deps(frozen=WHEN)) == Hold(
        False, f"frozen with all services since {WHEN}", "`ome thaw --all` ends the freeze of all services"
    )


@pytest.mark.parametrize(
    ("deps", "notes", "word"),
    [
        (change_deps(Deps(), observe=True), {}, "operator.observe "),
        (change_deps(Deps(), observe_namespaces=frozenset({"team"})), {}, "operator.observeNamespaces"),
        (Deps(), {"observe": "true"}, "annotation ome.io/observe"),
    ],
)
def test_observe_setting_holds_service(deps: Deps, notes: dict[str, str], word: str) -> None:
    item = held(deps, **notes)
    assert item is not None and item.is_observe_mode and word in item.sentence and item.reason == "Observed"


def test_observe_mode_of_another_namespace_has_no_effect() -> None:
    assert held(change_deps(Deps(), observe_namespaces=frozenset({"other"}))) is None


def test_observe_mode_overrides_freeze_and_both_are_reported() -> None:
    item = held(replace(Deps(), frozen=WHEN), freeze="true", observe="true")
    assert item is not None and item.reason == "Observed"
    assert (
        item.sentence == f"only observed (annotation ome.io/observe), and frozen with all services since {WHEN}, and frozen"
    )
    assert (
        item.ends
        == "remove the annotation to let the operator act, and `ome thaw --all` ends the freeze of all services, and "
        "`ome thaw svc -n team` ends the freeze of this service"
    )
