"""Tests of the comparison of versions."""

from ome_operator.util.versions import numbers


def test_versions_are_compared_numerically() -> None:
    assert numbers("v0.5.23") == (0, 5, 23) > numbers("0.5.9")
    assert numbers("0.5.9.post1") > numbers("0.5.9")
    assert numbers("") == ()
