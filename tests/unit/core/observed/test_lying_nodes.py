"""Tests that impossible amounts in the status of a node cause no error."""

import pytest

from ome_operator.core.observed.nodes import node


@pytest.mark.parametrize("amount", ["-8", "8Zi", "", "many", "1e400", "9" * 400, None])
def test_node_with_impossible_amounts_is_still_parsed(amount: str | None) -> None:
    body = {
        "metadata": {"name": "n", "labels": {f"l{at}": "x" for at in range(10_000)}},
        "status": {
            "allocatable": {"nvidia.com/gpu": amount, "cpu": "4"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }
    found = node(body)
    assert found.ready and len(found.labels) == 10_000 and dict(found.room)["cpu"] == 4000
