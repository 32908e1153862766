"""Edits that services share reach them one after another."""

from ome_operator.core.rollout.shared_edits import shared, whole_before

DATA = {
    "a": {"inputs": {"runtime": {"image": "1"}, "model": {"uri": "m"}, "engine": {"x": 1}}},
    "own": {"inputs": {"runtime": {"image": "1"}, "model": {"uri": "m"}, "engine": {"x": 2}}},
    "runtime": {"inputs": {"runtime": {"image": "2"}, "model": {"uri": "m"}, "engine": {"x": 1}}},
    "model": {"inputs": {"runtime": {"image": "1"}, "model": {"uri": "n"}, "engine": {"x": 1}}},
}


def test_only_an_edit_that_others_have_too_waits_for_its_turn() -> None:
    assert not shared("own", ["a"], DATA), "the service was edited"
    assert shared("runtime", ["a"], DATA) and shared("model", ["a"], DATA)
    assert not shared("a", ["a"], DATA), "nothing changed"
    assert not shared("a", [], DATA), "a first slice"
    assert shared("a", ["forgotten"], DATA), "nobody knows what it was"


def test_what_was_whole_last_is_read_from_the_status() -> None:
    assert whole_before({"components": {"engine": {"latestReadyRevision": "a"}, "router": {}}}) == {"a"}
    assert whole_before({}) == frozenset()
