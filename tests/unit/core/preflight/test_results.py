"""Tests of the results that a preflight check leaves in the status of a pod: every result is reported, and none causes an
error.
"""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ome_operator import keys
from ome_operator.core.observed import from_api
from ome_operator.core.preflight.results import (
    MANY,
    MESSAGE_LENGTH,
    OWN,
    CheckResult,
    PreflightFinding,
    has_begun,
    parse_only_container,
    parse_result,
)
from tests.unit.core.observed.test_from_api_pod import body, container

SHM = {"check": "shm", "rank": 3, "said": "/dev/shm has 16 MiB, but 128 MiB are needed", "fix": "mount more"}
FOUND = PreflightFinding("shm", 3, SHM["said"], "mount more")  # type: ignore[arg-type]


def ended(message: str, code: int = 0) -> dict[str, Any]:
    return {"terminated": {"exitCode": code, "message": message, "reason": "Error" if code else "Completed"}}


def status(state: dict[str, Any], **more: Any) -> dict[str, Any]:
    first = {"name": "fetch", "state": ended("x"), "ready": True}
    return {"phase": "Pending", "initContainerStatuses": [first, {"name": keys.PREFLIGHT_CONTAINER, "state": state, **more}]}


def said(*findings: Any, **more: Any) -> str:
    return json.dumps({"preflight": 1, "rank": 3, "findings": findings, "more": 0, **more})


def test_check_without_findings_gives_none() -> None:
    for state in ({}, {"waiting": {"reason": "PodInitializing"}}, {"running": {}}, ended(said())):
        assert parse_result(status(state)) is None
    assert parse_result({}) is None and parse_result({"initContainerStatuses": None}) is None


def test_findings_of_a_started_and_of_a_held_engine_are_parsed() -> None:
    assert parse_result(status(ended(said(SHM)))) == CheckResult((FOUND,), held=False)
    assert parse_result(status(ended(said(SHM), 1))) == CheckResult((FOUND,), held=True)
    again = {"waiting": {"reason": "CrashLoopBackOff"}}, {"running": {"startedAt": "x"}}
    for state in again:
        assert parse_result(status(state, lastState=ended(said(SHM), 1))) == CheckResult((FOUND,), held=True), (
            "it stays the same"
        )
    assert parse_result(status(ended(said()), lastState=ended(said(SHM), 1))) is None, "the last run passed"


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ("", "the check ended with code 0 and the message: nothing"),
        ("Traceback (most recent call last):\n  File\nValueError: x\x1b[2J", "the message: ValueError: x\ufffd[2J"),
        ("[" * 5000, "the check ended with code 0"),
        ("null", "the message: null"),
        ('{"other": 1}', "the check ended with code 0"),
        ('{"preflight":1,"failed":"the image has no python3"}', "the check could not run: the image has no python3"),
        ('{"preflight": 1, "findings": [' + '{"check": ' * 2000, "the message of the check was truncated"),
        ('{"preflight": 1, "findings": [{"check": "a', "the message of the check was truncated"),
    ],
)
def test_invalid_check_message_becomes_a_finding(message: str, words: str) -> None:
    checked = parse_result(status(ended(message)))
    assert checked is not None and not checked.held
    assert [each.check for each in checked.findings] == ["preflight"] and words in checked.sentence


def test_findings_before_the_truncation_are_kept() -> None:
    whole = said(SHM, {**SHM, "rank": 4}, {**SHM, "rank": 5})
    checked = parse_result(status(ended(whole[: whole.index('"rank": 5')], 1)))
    assert checked is not None and [each.rank for each in checked.findings] == [3, 4, OWN]
    assert "the message of the check was truncated" in checked.sentence


def test_malicious_findings_are_truncated_and_sanitized() -> None:
    odd = [{"check": "a\x1b[31m\n", "rank": rank, "said": "x" * 400, "fix": ["y"]} for rank in (True, -5, "3", 10**30, None)]
    checked = parse_result(status(ended(said(*odd, 1, None, [], {}))))
    assert checked is not None and {each.rank for each in checked.findings} == {OWN}
    assert all(len(each.said) <= MESSAGE_LENGTH and each.fix == "" and each.check.isprintable() for each in checked.findings)
    many = parse_result(status(ended(said(*({**SHM, "rank": rank} for rank in range(30))))))
    assert many is not None and len(many.findings) == MANY + 1 and "and 18 more findings" in many.sentence
    left = parse_result(status(ended(said(*({**SHM, "rank": rank} for rank in range(20)), more=5))))
    assert left is not None and "and 13 more findings" in left.sentence, "it counts left-out findings"
    for odd_more in (True, -3, "7", None, [1]):
        found = parse_result(status(ended(said(SHM, more=odd_more))))
        assert found is not None and found.findings == (FOUND,)
    huge = parse_result(status(ended(said(SHM, more=10**400))))
    assert huge is not None and len(huge.sentence) < 1000
    assert parse_result(status(ended(json.dumps({"preflight": 1, "findings": {"a": 1}})))) is None


@given(
    st.text() | st.builds(lambda text: '{"preflight": 1, "findings": [' + text, st.text()),
    st.sampled_from([0, 1, 137, None]),
)
def test_any_termination_message_gives_printable_sentence(message: str, code: int | None) -> None:
    checked = parse_result(status({"terminated": {"exitCode": code, "message": message}}))
    assert checked is None or checked.sentence.isprintable()


def test_held_preflight_is_the_first_reason_of_a_pod() -> None:
    state = status({"waiting": {"reason": "CrashLoopBackOff"}}, lastState=ended(said(SHM), 1))
    state["containerStatuses"] = [container({"waiting": {"reason": "PodInitializing"}})]
    pod = from_api.pod(body(status=state))
    assert (pod.reason, pod.message) == ("PreflightFailed", f"rank 3: shm: {SHM['said']} (mount more)")
    assert pod.preflight is not None and pod.preflight.held and not pod.running
    ready = from_api.pod(body(status={**status(ended(said(SHM))), "conditions": [{"type": "Ready", "status": "True"}]}))
    assert ready.ready and ready.reason == "" and ready.preflight == CheckResult((FOUND,), False)


def only(state: dict[str, Any], name: str = keys.RUNNER) -> dict[str, Any]:
    """Return the status of a pod whose only container is the check, next to an injected container."""
    return {"containerStatuses": [{"name": "proxy", "state": {"running": {}}}, {"name": name, "state": state}]}


def test_result_of_a_check_pod_with_one_container_is_parsed() -> None:
    for state in ({}, {"waiting": {"reason": "ContainerCreating"}}, {"running": {"startedAt": "x"}}):
        assert parse_only_container(only(state), keys.RUNNER) is None and has_begun(only(state), keys.RUNNER) == (
            "running" in state
        )
    assert parse_only_container(only(ended(said())), keys.RUNNER) == CheckResult((), held=False), (
        "a check without findings is a result"
    )
    assert parse_only_container(only(ended(said(SHM))), keys.RUNNER) == CheckResult((FOUND,), held=False) and has_begun(
        only(ended("")), keys.RUNNER
    )
    assert (
        parse_only_container({}, keys.RUNNER) is None
        and parse_only_container(only(ended(said()), "other"), keys.RUNNER) is None
    )
    assert not has_begun({"containerStatuses": None}, keys.RUNNER)


def test_killed_check_is_reported_although_it_had_no_findings() -> None:
    checked = parse_only_container(only(ended(said(), 137)), keys.RUNNER)
    assert checked is not None and "the check ended with code 137 after it had reported no findings" in checked.sentence
    refused = 'exec: "/bin/sh": stat /bin/sh: no such file or directory'
    checked = parse_only_container(only(ended(refused, 128)), keys.RUNNER)
    assert checked is not None and checked.sentence.startswith(
        f"preflight: the check ended with code 128 and the message: {refused}"
    )
