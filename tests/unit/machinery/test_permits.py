"""Permits per place."""

from ome_operator.machinery.permits import Permits


def test_so_many_per_place() -> None:
    p: Permits[str, str] = Permits(1)
    assert not p.ahead("a", "x")
    p.take("a", "x")
    assert not p.ahead("a", "x"), "a holder goes on"
    assert p.ahead("b", "x")
    assert not p.ahead("b", "y")


def test_those_who_wait_are_told_when_it_becomes_free() -> None:
    p: Permits[str, str] = Permits(1)
    p.take("a", "x")
    p.wait("b", "x")
    p.wait("c", "x")
    assert p.leave("b") == (), "giving up frees nothing"
    assert p.leave("a") == ("c",)
    assert p.leave("a") == ()
    assert not p.ahead("c", "x")


def test_what_has_begun_counts_even_above_the_limit() -> None:
    p: Permits[str, str] = Permits(1)
    p.take("a", "x")
    p.take("b", "x")
    p.wait("c", "x")
    assert set(p.leave("a")) == {"c"}
    assert p.ahead("c", "x")
    p.leave("b")
    assert not p.ahead("c", "x")


def test_a_holder_that_moves_frees_its_place() -> None:
    p: Permits[str, str] = Permits(1)
    p.take("a", "x")
    p.take("a", "y")
    assert not p.ahead("b", "x")
    assert p.ahead("b", "y")


def test_those_who_wait_for_a_holder_that_moves_are_told() -> None:
    p: Permits[str, str] = Permits(1)
    p.take("a", "x")
    p.wait("b", "x")
    assert p.take("a", "x") == (), "it has it already"
    assert p.take("a", "y") == ("b",)
