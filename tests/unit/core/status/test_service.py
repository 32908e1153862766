"""Tests of the status of a service: its contents, when it is urgent, and which changes cause an Event."""

from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest

from ome_operator.core.problem import Problem
from ome_operator.core.reasons import ENGINE_READY, MODEL_READY, READY, ROLLED_OUT, RUNTIME_READY, SCALED
from ome_operator.core.status import conditions as cond
from ome_operator.core.status.progress import RoleProgress, RoleProgressSpec
from ome_operator.core.status.service import Report, events, is_urgent, status
from tests.unit.core.rollout.makers import pod

NOW = datetime(2026, 1, 1)
URL = "http://svc.team.svc.cluster.local:8080"


def far(component: str, ready: int, groups: int = 1, reason: str = "Progressing") -> RoleProgress:
    """Return the progress of a role whose groups have one pod."""
    done = ready >= groups
    made = RoleProgressSpec(component, component, groups, 1, ())
    return RoleProgress(made, ready, ready, "Ready" if done else reason, f"{component} {ready}/{groups}", groups - ready)


DONE = (far("engine", 1), far("router", 1))
OUT = cond.Condition(ROLLED_OUT, True, "Complete", "alone")
BASE = Report(
    generation=2,
    before={},
    now=NOW,
    progress=DONE,
    url=URL,
    runtime="rt",
    revision="r1",
    serving=("r1",),
    rollout=OUT,
    serves=True,
)


def said(report: Report) -> dict[str, tuple[str, str]]:
    """Return the status and the reason of each condition, by type."""
    return {one["type"]: (one["status"], one["reason"]) for one in status(report)["conditions"]}


def ready(**changed: Any) -> tuple[str, str, str]:
    """Return the status, the reason and the message of Ready. The service serves if each of its roles has a ready group."""
    return condition(READY, **changed)


def condition(type_: str, **changed: Any) -> tuple[str, str, str]:
    """Return the status, the reason and the message of a condition."""
    progress = changed.get("progress", DONE)
    report = replace(BASE, **{"serves": bool(progress) and all(one.ready_groups for one in progress), **changed})
    (found,) = [one for one in status(report)["conditions"] if one["type"] == type_]
    return found["status"], found["reason"], found["message"]


def test_status_of_serving_service_has_all_conditions() -> None:
    found = status(BASE)
    assert (found["url"], found["revision"], found["runtime"], found["observedGeneration"]) == (URL, "r1", "rt", 2)
    assert found["components"]["engine"] == {
        "ready": "1/1",
        "replicas": 1,
        "readyReplicas": 1,
        "latestCreatedRevision": "r1",
        "updateRevision": "r1",
        "latestReadyRevision": "r1",
        "currentRevision": "r1",
    }
    assert said(BASE) == {
        "RuntimeReady": ("True", "Found"),
        "EngineReady": ("True", "Ready"),
        "RouterReady": ("True", "Ready"),
        "Scaled": ("True", "Complete"),
        "RolledOut": ("True", "Complete"),
        "Ready": ("True", "Serving"),
    }


def test_ready_message_names_every_unready_component() -> None:
    progress = (far("engine", 0, reason="Unschedulable"), far("decoder", 0), far("router", 1))
    assert ready(progress=progress) == ("False", "Unschedulable", "engine 0/1; decoder 0/1")


@pytest.mark.parametrize(
    ("reason", "message", "held"),
    [
        ("Unschedulable", "1 pod unschedulable, 0/2 nodes are available: 2 Insufficient nvidia.com/gpu.", True),
        ("Unschedulable", '1 pod unschedulable, persistentvolumeclaim "weights" not found', False),
        ("Starting", "1 pod starts", False),
    ],
)
def test_message_names_holders_of_the_nodes_if_capacity_is_missing(reason: str, message: str, held: bool) -> None:
    progress = (far("engine", 0, reason=reason)._replace(message=message), far("router", 1))
    who = "of the nodes that its pods could take, 2 are held by ns/b"
    found = condition("EngineReady", progress=progress, held=who)
    assert found == ("False", reason, f"{message}; {who}" if held else message)


def test_missing_groups_affect_scaled_but_not_ready() -> None:
    """If something serves, missing groups are not a reason for Ready to be False; the condition Scaled reports them."""
    progress = (far("engine", 1, 2, reason="WaitingForRoom"), far("decoder", 1), far("router", 1))
    assert ready(progress=progress) == ("True", "Serving", f"{URL} serves"), "the message has no numbers that change"
    assert condition(SCALED, progress=progress) == ("False", "WaitingForRoom", "engine 1/2")
    assert condition(SCALED) == ("True", "Complete", "every desired group is ready")


def test_two_slices_are_scaled_within_the_bounds_of_the_rollout() -> None:
    progress, rolls = (far("engine", 1, 2), far("router", 1)), cond.Condition(ROLLED_OUT, False, "RollingOut", "1/2 new")
    assert condition(SCALED, progress=progress, rollout=rolls, bounded=True)[:2] == ("True", "Complete")
    few: dict[str, Any] = {"progress": progress, "rollout": rolls, "bounded": False, "pods": (pod("a"),)}
    assert condition(SCALED, **few) == ("False", "Progressing", "engine 1/2")
    assert condition(SCALED, rollout=rolls, bounded=False) == ("False", "RollingOut", "1/2 new"), "both are needed"


def test_complete_groups_that_receive_no_requests_are_not_ready() -> None:
    """Groups that are complete but receive no requests do not count for Ready. For example, the only prefill group of the
    slice is being drained.
    """
    assert ready(serves=False)[:2] == ("False", "Creating")
    assert condition(SCALED, serves=False)[0] == "True"


def test_event_is_not_repeated_for_the_scaled_condition() -> None:
    short = status(replace(BASE, progress=(far("engine", 1, 2, reason="CrashLoopBackOff"), far("router", 1))))["conditions"]
    assert [one.reason for one in events(BEFORE["conditions"], short)] == ["CrashLoopBackOff"]


def test_blocking_condition_precedes_the_component_message() -> None:
    model = cond.Condition(MODEL_READY, False, "WaitingForNodes", "model on 0 nodes")
    assert ready(progress=(far("engine", 0),), model=model) == ("False", "WaitingForNodes", "model on 0 nodes; engine 0/1")


def test_missing_model_does_not_make_a_serving_service_unready() -> None:
    problem = Problem("ModelReady", "BaseModelNotFound", "gone")
    assert ready(problems=(problem,))[:2] == ("True", "Serving")
    assert said(replace(BASE, problems=(problem,)))["ModelReady"] == ("False", "BaseModelNotFound")


def test_problem_of_the_whole_service_makes_it_unready() -> None:
    assert ready(problems=(Problem("Ready", "NameTaken", "Service svc is taken"),)) == (
        "False",
        "NameTaken",
        "Service svc is taken",
    )


def test_service_without_any_component_reports_the_problem() -> None:
    problem = Problem("ModelReady", "BaseModelNotFound", "gone")
    bare = {"progress": (), "url": "", "revision": "", "serving": (), "rollout": None}
    assert ready(problems=(problem,), **bare) == ("False", "BaseModelNotFound", "gone")


def test_status_of_service_scaled_to_zero() -> None:
    none = (far("engine", 0, 0), far("router", 1))
    found = ready(progress=none)
    assert found[:2] == ("False", "ScaledToZero") and found[2].startswith("engine scaled to zero")
    assert ready(progress=none, serves=True) == found, "while the last group is still terminating"
    assert ready(progress=(none[0], far("router", 0))) == found, "a router without engines is not ready"
    assert ready(progress=(none[0], far("router", 0, reason="ImagePullBackOff")))[1] == "ImagePullBackOff"
    assert condition(SCALED, progress=none)[:2] == ("True", "Complete"), "it has as many groups as it should"


def test_waiting_rollout_is_the_reason_of_ready_if_there_is_no_other() -> None:
    waiting = cond.Condition(ROLLED_OUT, False, "Paused", "spec.rollout.paused is true")
    assert ready(progress=(), rollout=waiting) == ("False", "Paused", "spec.rollout.paused is true")


def test_missing_pods_message_states_why_the_rollout_may_not_begin() -> None:
    """If a rollout may not begin, the message about missing pods says why, and not that pods are being created."""
    new: dict[str, Any] = {"progress": (far("engine", 0, reason="Creating"),), "pods": ()}
    unknown = Problem(ROLLED_OUT, "RevisionNotFound", "spec.rollout.revision deadbeef is not kept")
    assert ready(problems=(unknown,), **new) == ("False", "RevisionNotFound", unknown.message)
    paused = cond.Condition(ROLLED_OUT, False, "Paused", "spec.rollout.paused is true")
    assert ready(rollout=paused, **new) == ("False", "Paused", "spec.rollout.paused is true")
    comes = cond.Condition(ROLLED_OUT, False, "Progressing", "the groups of revision r1 are starting")
    assert ready(rollout=comes, **new) == ("False", "Creating", "engine 0/1")
    assert ready(problems=(unknown,), progress=(far("engine", 0),), pods=(pod("a", ready=False),))[1] == "Progressing"


def test_unknown_pin_is_reported_although_the_rollout_is_complete() -> None:
    problem = Problem("RolledOut", "RevisionNotFound", "not kept")
    assert said(replace(BASE, problems=(problem,)))["RolledOut"] == ("False", "RevisionNotFound")


def test_problems_of_one_condition_are_joined_into_one_message() -> None:
    problems = (
        Problem("RuntimeReady", "A", "one"),
        Problem("RuntimeReady", "B", "two"),
        Problem("RuntimeReady", "B", "two"),
    )
    (found,) = [one for one in status(replace(BASE, problems=problems))["conditions"] if one["type"] == "RuntimeReady"]
    assert (found["reason"], found["message"]) == ("A", "one; two")


def test_two_slices_are_shown_with_an_arrow() -> None:
    pods = (pod("a"), pod("b", revision="r2", ready=False), pod("c", revision="r2", component="router"))
    found = status(replace(BASE, serving=("r1", "r2"), revision="r2", pods=pods))
    assert found["revision"] == "r1→r2"
    assert found["slices"] == [
        {"revision": "r1", "engine": "1/1", "router": "0/0"},
        {"revision": "r2", "engine": "0/1", "router": "1/1"},
    ]


def test_advice_does_not_make_service_unready() -> None:
    found = said(replace(BASE, advice=("a", "b")))
    assert found["Advice"] == ("True", "NoEffect") and found["Ready"] == ("True", "Serving")


BEFORE = status(BASE)
URGENT: dict[str, tuple[dict[str, Any], bool]] = {
    "nothing": ({}, False),
    "a flip": ({"progress": (far("engine", 0),)}, True),
    "a generation": ({"generation": 3}, True),
    "a revision": ({"revision": "r2"}, True),
    "a URL": ({"url": "http://other"}, True),
    "a count": ({"progress": (far("engine", 2, 2), far("router", 1))}, False),
    "a new condition": ({"advice": ("x",)}, True),
}


@pytest.mark.parametrize("case", URGENT)
def test_condition_flips_are_urgent_and_count_changes_are_not(case: str) -> None:
    changed, expected = URGENT[case]
    assert is_urgent(BEFORE, status(replace(BASE, **changed))) is expected


def test_warning_reason_is_urgent_and_its_end_is_not() -> None:
    reasons = ("Progressing", "PodsRefused")
    comes, refused = (status(replace(BASE, progress=(far("engine", 0, reason=one),))) for one in reasons)
    assert is_urgent(comes, refused) and not is_urgent(refused, comes) and not is_urgent(refused, refused)


def test_changed_runtime_problem_message_is_urgent() -> None:
    none, other = (
        status(replace(BASE, problems=(Problem(RUNTIME_READY, "NoRuntimeFits", words),))) for words in ("of none", "of x")
    )
    assert is_urgent(none, other)


def told(*wanted: cond.Condition) -> list[str]:
    """Return the reasons of the Events about these new conditions."""
    return [one.reason for one in events((), cond.format_conditions(wanted, (), 1, NOW))]


def test_events_are_created_only_for_reasons_that_need_user_action() -> None:
    assert told(cond.Condition(ENGINE_READY, False, "CrashLoopBackOff", "m")) == ["CrashLoopBackOff"]
    assert (
        told(cond.Condition(ENGINE_READY, False, "Progressing", "m"), cond.Condition(ENGINE_READY, True, "Ready", "m")) == []
    )
    assert told(cond.Condition(READY, False, "CrashLoopBackOff", "said already"), OUT) == []


def test_last_complete_revision_is_kept_until_the_next_is_complete() -> None:
    comes = cond.Condition(ROLLED_OUT, False, "Progressing", "the groups of revision r2 are starting")
    found = status(replace(BASE, before=status(BASE), revision="r2", rollout=comes))["components"]["engine"]
    assert (found["latestCreatedRevision"], found["latestReadyRevision"]) == ("r2", "r1")
    assert "latestReadyRevision" not in status(replace(BASE, rollout=comes))["components"]["engine"]
