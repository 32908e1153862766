"""Tests of why pods must leave a node, and of the annotations with which users request a move."""

import time
from datetime import UTC, datetime

import pytest

from ome_operator.core.moves.causes import (
    REQUESTS,
    LeavingCause,
    group_requests,
    of_node,
    until_requests,
)
from ome_operator.core.observed.move_requests import MoveRequest, node_request
from ome_operator.core.observed.objects import Node, Taint

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
EARLIER = datetime(2026, 1, 1, 11, tzinfo=UTC)
NODE = Node("n0", 1, {}, True, 8)


def tainted(key: str, effect: str = "NoSchedule") -> Node:
    """Return a node with a taint."""
    return NODE._replace(taints=(Taint(key, "1", effect),))


NODES = {
    "nothing": (NODE, "", ""),
    "Karpenter": (
        tainted("karpenter.sh/disrupted"),
        "taint karpenter.sh/disrupted",
        "",
    ),
    "cluster-autoscaler": (
        tainted("ToBeDeletedByClusterAutoscaler"),
        "taint ToBeDeletedByClusterAutoscaler",
        "",
    ),
    "somebody's taint that evicts": (
        tainted("maintenance", "NoExecute"),
        "taint maintenance",
        "",
    ),
    "tolerated": (tainted("nvidia.com/gpu"), "", ""),
    "memory": (tainted("node.kubernetes.io/memory-pressure"), "", ""),
    "cordoned": (NODE._replace(ready=False), "", "cordoned"),
    "silent": (NODE._replace(ready=False, alive=False), "", ""),
    "drained": (
        tainted("node.kubernetes.io/unschedulable")._replace(ready=False),
        "",
        "cordoned",
    ),
}


@pytest.mark.parametrize("case", NODES)
def test_leaving_cause_of_a_node(case: str) -> None:
    node, always, on_cordon = NODES[case]
    for asked, text in ((False, always), (True, always or on_cordon)):
        found = of_node(node, lambda taint: taint.key == "nvidia.com/gpu", on_cordon=asked)
        assert found == (LeavingCause("n0", text) if text else None)


@pytest.mark.parametrize(
    ("text", "request_"),
    [
        ("2026-01-01T11:00:00Z", MoveRequest(EARLIER)),
        ("2026-01-01T11:00:00+00:00 now", MoveRequest(EARLIER, now=True)),
        ("2026-01-01T13:00:00Z", None),
        ("2026-01-01T11:00:00", None),
        ("2026-01-01T11:00:00Z soon", None),
        ("yes", None),
        ("", None),
    ],
)
def test_move_request_of_a_node_is_parsed(text: str, request_: MoveRequest | None) -> None:
    assert node_request(text, NOW) == request_


@pytest.mark.parametrize(
    ("text", "requests"),
    [
        ("engine/0 2026-01-01T11:00:00Z", {("engine", "0"): EARLIER}),
        (
            " engine/00 2026-01-01T11:00:00Z ,decoder/12 2026-01-01T11:00:00Z",
            {("engine", "0"): EARLIER, ("decoder", "12"): EARLIER},
        ),
        ("engine/0 2026-01-01T13:00:00Z", {}),
        ("engine/-1 2026-01-01T11:00:00Z, engine 2026-01-01T11:00:00Z, engine/x 2026-01-01T11:00:00Z, engine/0", {}),
        (f"engine/{'9' * 4400} 2026-01-01T11:00:00Z, engine/1 2026-01-01T11:00:00Z", {("engine", "1"): EARLIER}),
        ("engine/٢ 2026-01-01T11:00:00Z, engine/² 2026-01-01T11:00:00Z, engine/+1 2026-01-01T11:00:00Z", {}),
        ("", {}),
    ],
)
def test_move_requests_of_groups_are_parsed(text: str, requests: dict[tuple[str, str], datetime]) -> None:
    assert group_requests(text, NOW) == requests


@pytest.mark.parametrize(
    ("texts", "seconds"),
    [
        (["2026-01-01T12:00:07Z now"], 7),
        (["engine/0 2026-01-01T12:01:00Z, decoder/1 2026-01-01T12:00:30Z", "2026-01-01T11:00:00Z"], 30),
        (["2026-01-01T11:00:00Z", "engine/0 yesterday", ""], None),
        (["2099-01-01T00:00:00Z"], None),
        ([], None),
    ],
)
def test_request_with_future_timestamp_takes_effect_at_that_time(texts: list[str], seconds: float | None) -> None:
    assert until_requests(texts, NOW) == seconds


def test_annotation_of_maximum_length_is_parsed_quickly() -> None:
    """An annotation of any length is parsed quickly. Anyone who may edit a service may write 256 KiB, which are 128,000
    entries.
    """
    text = "decoder/7 2026-01-01T11:00:00Z" + ",x" * 128_000
    began = time.process_time()
    assert group_requests(text, NOW) == {("decoder", "7"): EARLIER}
    assert time.process_time() - began < 0.1
    assert len(group_requests(",".join(f"engine/{at} 2026-01-01T11:00:00Z" for at in range(3000)), NOW)) == REQUESTS
