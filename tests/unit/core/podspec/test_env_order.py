"""Tests that a variable stands after the variables to which it refers, whichever layers they come from."""

import re
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from ome_operator.core.podspec.compose import compose
from ome_operator.core.podspec.env_order import order_variables


def env(**values: str) -> list[dict[str, Any]]:
    return [{"name": name, "value": value} for name, value in values.items()]


def names(found: list[Any]) -> list[str]:
    return [item["name"] for item in found]


def test_override_is_placed_after_the_variables_it_references() -> None:
    runner = {"name": "ome-container", "image": "engine:1", "env": env(STORE_URL="http://default", Z="1")}
    runtime = {"engineConfig": {"runner": runner, "containers": [{"name": "side", "env": env(B="$(A)", A="1")}]}}
    service = {"runner": {"env": env(STORE_HOST="store", STORE_URL="http://$(STORE_HOST):80")}}
    main, side = compose("engine", runtime, service).leader["containers"]
    assert names(main["env"]) == ["STORE_HOST", "STORE_URL", "Z"] and names(side["env"]) == ["A", "B"]


def test_variables_are_ordered_across_parts_of_a_group() -> None:
    runner = {"name": "ome-container", "image": "engine:1", "env": env(URL="http://default")}
    runtime = {"engineConfig": {"runner": runner, "worker": {"size": 1}}}
    service = {"worker": {"runner": {"env": env(HOST="x", URL="http://$(HOST)")}}}
    made = compose("engine", runtime, service)
    assert made.worker is not None and names(made.worker["containers"][0]["env"]) == ["HOST", "URL"]
    assert names(made.leader["containers"][0]["env"]) == ["URL"]


def test_an_order_that_is_right_is_kept() -> None:
    right = env(A="1", C="$(A)", B="2")
    assert order_variables(right) == right
    assert order_variables(env(A="$$(B)", B="1")) == env(A="$$(B)", B="1"), "an escaped reference is text"
    assert sorted(names(order_variables(env(A="$(B)", B="$(A)", C="$(C)")))) == ["A", "B", "C"], "a circular reference ends"


@given(st.permutations(range(7)), st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=12))
def test_every_reference_that_can_be_expanded_is(order: list[int], pairs: list[tuple[int, int]]) -> None:
    refers = {at: [low for high, low in pairs if high == at and low < at] for at in order}
    found = order_variables([{"name": f"V{at}", "value": "".join(f"$(V{low})" for low in refers[at])} for at in order])
    place = {item["name"]: at for at, item in enumerate(found)}
    assert len(place) == 7
    assert all(place[name] < place[item["name"]] for item in found for name in re.findall(r"\\((V\\d)\\)", item["value"]))
