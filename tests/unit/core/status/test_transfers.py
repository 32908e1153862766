"""Tests of the message about pairs of a prefill and a decode leader between which transfers of KV caches fail."""

from dataclasses import replace

import pytest

from ome_operator.core.observed.objects import Pod
from ome_operator.core.observed.transfers import FailingPair
from ome_operator.core.reconcile.sync import sync
from ome_operator.core.status.transfers import SHOWN, transfers_condition
from ome_operator.names import public_digest
from tests.support import parts
from tests.support.simulator import World


@pytest.fixture(scope="module")
def world() -> World:
    """Return a service with two prefill and three decode groups that serves."""
    shape = {"engine": {"minReplicas": 2, "maxReplicas": 2}, "decoder": {"minReplicas": 3, "maxReplicas": 3}, "router": {}}
    made = World(parts.service(**shape), parts.deps(parts.simple(decoder=True), parts.model()), 1)
    made.settle()
    return made


def leaders(world: World) -> dict[str, Pod]:
    """Return the leaders by the names that the message uses."""
    words = {"engine": "prefill", "decoder": "decode"}
    pods = [pod for pod in world.observed().pods if pod.component in words and pod.rank == 0]
    return {f"{words[pod.component]}-{pod.group}": pod for pod in pods}


def pair(world: World, prefill: str, decode: str, failed: int = 14, **works: str) -> FailingPair:
    """Return the report about a pair."""
    at = {name: public_digest(pod.uid) for name, pod in leaders(world).items()}
    return FailingPair(at[prefill], at[decode], 20, failed, **{name: at[leader] for name, leader in works.items()})


def test_message_names_the_failing_pair_and_a_working_alternative(world: World) -> None:
    found = pair(world, "prefill-0", "decode-2", decode_works_with="prefill-1")
    told = transfers_condition([(found,)], world.observed().pods)
    assert told is not None and (told.type, told.status, told.reason) == ("TransfersWork", False, "TransfersFail")
    assert told.message == "prefill-0 -> decode-2: 14 of 20 probes failed; decode-2 works with prefill-1"


def test_pair_reported_by_two_registries_is_named_once(world: World) -> None:
    few, many = (pair(world, "prefill-1", "decode-0", failed) for failed in (3, 9))
    told = transfers_condition([(many,), (few, few._replace(decode="another"))], world.observed().pods)
    assert told is not None and told.message == "prefill-1 -> decode-0: 9 of 20 probes failed"
    assert transfers_condition([(few._replace(prefill="another"),)], world.observed().pods) is None
    assert transfers_condition([], world.observed().pods) is None


def test_leader_of_another_revision_is_named_with_its_revision(world: World) -> None:
    found = pair(world, "prefill-0", "decode-1")
    pods = [pod._replace(revision="r2") if public_digest(pod.uid) == found.decode else pod for pod in world.observed().pods]
    told = transfers_condition([(found,)], pods)
    assert told is not None and "-> decode-1 of revision r2: 14" in told.message


def test_transfer_message_limits_number_of_pairs(world: World) -> None:
    many = [pair(world, f"prefill-{one}", f"decode-{two}") for one in range(2) for two in range(3)]
    told = transfers_condition([tuple(many)], world.observed().pods)
    assert told is not None and told.message.count("->") == SHOWN and told.message.endswith("2 more pairs fail")


def test_failing_pairs_give_a_condition_and_the_service_stays_ready(world: World) -> None:
    seen = replace(world.observed(), transfers={"router": (pair(world, "prefill-0", "decode-2"),)})
    plan = sync(world.service, world.deps, seen, world.now)
    told = {item["type"]: item["status"] for item in plan.status["conditions"]}
    assert told["TransfersWork"] == "False" and told["Ready"] == "True"
    later = sync(replace(world.service, status=plan.status), world.deps, world.observed(), world.now)
    assert "TransfersWork" not in {item["type"] for item in later.status["conditions"]}
