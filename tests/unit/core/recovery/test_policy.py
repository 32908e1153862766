"""Tests of the recovery settings of a service and of its runtime."""

from ome_operator.core.recovery.policy import FIRST, HANG, LAST, RecoveryPolicy, policy, recycle_pause
from tests.support import parts


def test_recovery_policy_has_defaults() -> None:
    assert policy(parts.service(engine={}), None, "engine") == RecoveryPolicy()


def test_lifecycle_of_the_service_overrides_the_runtime_per_field() -> None:
    runtime = parts.simple(lifecycle={"restartPolicy": "None", "hangTimeout": "90s", "maxRecycles": 0})
    service = parts.service(engine={"lifecycle": {"restartPolicy": "RecreateInstanceOnPodRestart", "selfHealTimeout": "0s"}})
    found = policy(service, runtime, "engine")
    assert (found.recycles, found.self_heal, found.hang, found.limit) == (True, 0.0, 90.0, 0)
    assert not policy(parts.service(engine={}), runtime, "engine").recycles
    assert policy(parts.service(engine={}, decoder={}), runtime, "decoder").hang == HANG


def test_recovery_policy_reads_lifecycle_fields() -> None:
    lifecycle = {"instanceReadyTimeout": "1h30m", "toleratedLostRanks": 2, "forceDeleteAfter": "5m", "silence": "Observe"}
    found = policy(parts.service(engine={"lifecycle": lifecycle}), None, "engine")
    assert (found.start, found.spare, found.force, found.silence) == (5400.0, 2, 300.0, False)


def test_recycle_delays_double_up_to_a_limit() -> None:
    assert [recycle_pause(number) for number in (0, 1, 2, 3)] == [0.0, FIRST, 2 * FIRST, 4 * FIRST]
    assert recycle_pause(99) == LAST
