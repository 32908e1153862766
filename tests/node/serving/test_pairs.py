"""Tests in which a prefill engine cannot reach one of two decode engines, under traffic. The tests measure the seconds until
that decode engine is removed from the router, and until it is back after the repair. All engines work, and none is recycled.

If all packets are lost, the decode engine also stops for 5 s for each waiting request. It may then be removed because it is
not ready, before its pair is known to fail.
"""

import asyncio
import time
from collections.abc import Callable, Iterator

import pytest

from ome_operator.names import public_digest
from tests.conftest import SOAK, Tables
from tests.node.conftest import Steps
from tests.node.serving import decoders
from tests.node.serving.decoders import Decoders, Pod, after, name_of, two_groups
from tests.node.serving.test_recovery import first_good
from tests.support.rig import Rig
from tests.support.traffic import stream_of

NAME = "kimi-k2-tiny"
PER_SECOND = 2.0
CALM_S = 10.0
OUT_WITHIN_S, BACK_WITHIN_S = 120.0, 400.0
TIMES = 3 if SOAK else 1
HEADING = "a prefill that cannot reach one decode of two"


def drop(prefill: Pod, decode: Pod) -> None:
    """Drop the packets of KV caches."""
    decoders.cut_transfers(prefill, decode, "DROP")


def reject(prefill: Pod, decode: Pod) -> None:
    """Refuse the connections of KV caches."""
    decoders.cut_transfers(prefill, decode, "REJECT", "--reject-with", "tcp-reset")


def number_of(leader: Pod) -> str:
    """Return the number of a leader's group, which is in the name of the pod before its rank."""
    return name_of(leader).split("-")[-2]


@pytest.fixture(scope="module")
def pair(serving: Rig, tiny: str, ours: None, steps: Steps) -> Iterator[Decoders]:
    """Yield the service with two decode groups."""
    with two_groups(serving, NAME, tiny, steps) as found:
        yield found


@pytest.mark.timeout(700, func_only=True)
@pytest.mark.parametrize("turn", range(TIMES))
@pytest.mark.parametrize(
    ("what", "happens"),
    [("transfers refused", reject), ("transfers dropped", drop), ("all packets lost", decoders.cut)],
)
async def test_unreachable_decode_is_removed_from_the_router_until_repaired(
    pair: Decoders, tables: Tables, what: str, happens: Callable[[Pod, Pod], None], turn: int
) -> None:
    (prefill,), (good, bad) = pair.leaders("engine"), pair.leaders()
    before = pair.recycles()
    async with stream_of(pair.url, PER_SECOND) as report:
        await asyncio.sleep(CALM_S)
        began = time.monotonic()
        await asyncio.to_thread(happens, prefill, bad)
        try:
            out = await after(began, "out of the router", OUT_WITHIN_S, lambda: not pair.lists(bad))
            pairs = pair.summary().get("pairs", [])
            await asyncio.sleep(CALM_S)
            told = pair.rig.condition(NAME, NAME, "TransfersWork")
        except AssertionError:
            print(pair.summary())
            raise
        finally:
            mended = time.monotonic()
            await asyncio.to_thread(decoders.mend, prefill)
        back = await after(mended, "back", BACK_WITHIN_S, lambda: pair.lists(bad))
        await asyncio.sleep(CALM_S)
    lost = f"{len(report.failed_answers)} of {len(report.answers)} requests failed"
    said = f"out {out:5.1f} s   good tokens {first_good(report, began):5.1f} s   listed again {back:5.1f} s   {lost}"
    tables.setdefault(HEADING, []).append(f"{what:<24}{said}")
    if pairs or happens is not decoders.cut:
        (found,) = pairs
        assert found["prefill"] == public_digest(prefill["metadata"]["uid"]) and found["decode"] == public_digest(
            bad["metadata"]["uid"]
        )
        assert found["prefillWorksWith"] == public_digest(good["metadata"]["uid"])
        words = f"prefill-0 -> decode-{number_of(bad)}: ", f"; prefill-0 works with decode-{number_of(good)}"
        assert all(each in told["message"] for each in words), told
    assert pair.recycles() == before, "a leader was recycled for its pairs"
    assert [name_of(one) for one in pair.leaders()] == [name_of(good), name_of(bad)]
