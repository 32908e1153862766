"""Tests that a lost rank is tolerated only for engines that continue without it and let it join again."""

import pytest

from ome_operator.core.recovery.policy import RecoveryPolicy, without_spare
from ome_operator.engines.rejoin import why_not

START = ["python3", "-m", "sglang.launch_server"]
ELASTIC = "--elastic-ep-backend=mooncake"


@pytest.mark.parametrize(
    ("image", "args", "said"),
    [
        ("lmsysorg/sglang:v0.5.23", ["--moe-a2a-backend=deepep", ELASTIC], "DeepEP waits for the lost rank"),
        ("lmsysorg/sglang:v0.5.23", ["--moe-a2a-backend", "deepep"], "DeepEP waits for the lost rank"),
        ("lmsysorg/sglang:v0.4.9.post2", ["--enable-deepep-moe"], "DeepEP waits for the lost rank"),
        ("lmsysorg/sglang:v0.5.23", [], "without --elastic-ep-backend"),
        ("lmsysorg/sglang:v0.6.0", ["--elastic-ep-backend=none"], "without --elastic-ep-backend"),
        ("lmsysorg/sglang:v0.5.23", ["--moe-a2a-backend=mooncake", ELASTIC], "cannot join its group again"),
        ("lmsysorg/sglang:v0.6.0", ["--moe-a2a-backend=mooncake", ELASTIC], ""),
        ("team/own", ["--moe-a2a-backend=mooncake", ELASTIC], ""),
    ],
)
def test_engine_that_exits_with_a_lost_rank_tolerates_none(image: str, args: list[str], said: str) -> None:
    box = {"image": image, "command": START, "args": args}
    found = why_not(box, {})
    assert found.startswith(said) if said.startswith(("DeepEP", "without")) else found.endswith(said)
    assert bool(found) is bool(said)
    kept = without_spare(RecoveryPolicy(spare=2), {"spec": {"containers": [box]}})
    assert kept.spare == (0 if said else 2)


def test_lost_ranks_of_other_engines_are_not_restricted() -> None:
    assert why_not({"image": "engine:1", "args": ["--port=1"]}, {}) == ""
    assert without_spare(RecoveryPolicy(spare=2), None).spare == 2
