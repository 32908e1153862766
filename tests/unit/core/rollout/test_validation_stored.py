"""Tests that stored revisions are not validated again, neither after an upgrade nor when a user returns to one."""

from dataclasses import replace

import pytest

from ome_operator import keys
from ome_operator.core.observed.validation import accept_all
from ome_operator.lint.validator import ADVISED, Validator
from tests.support.simulator import World
from tests.unit.core.rollout.judged import BAD, GOOD, deps, edited, refused, revision_names, revisions, service, world


def before_the_rule(*args: str) -> World:
    """Return a service that an earlier version of the operator without the rule has started, after an upgrade to the present
    version.
    """
    found = world(*args, judge=accept_all)
    assert found.condition("Ready")["status"] == "True"
    found.edit(deps=replace(found.deps, judge=Validator()))
    found.settle()
    return found


def test_rule_added_by_an_upgrade_gives_advice_for_running_revisions() -> None:
    found = before_the_rule(BAD)
    assert not refused(found) and revisions(found) == 1
    assert found.condition("Ready")["status"] == "True"
    assert "flag-removed: sglang 0.5.23 has no flag --enable-deepep-moe" in found.condition("Advice")["message"]


def test_rule_added_by_an_upgrade_does_not_refuse_the_next_edit() -> None:
    found = edited(before_the_rule(BAD), BAD, GOOD)
    assert not refused(found) and revisions(found) == 2
    edited(found, BAD, GOOD, "--enable-ep-moe")
    assert refused(found) and "--enable-ep-moe" in found.condition("RolledOut")["message"]
    assert "--enable-deepep-moe" not in found.condition("RolledOut")["message"], "only new revisions are validated"


def test_restart_of_stored_bad_service_is_not_refused() -> None:
    found = before_the_rule(BAD)
    found.edit(service(rollout={"restartedAt": "2026-01-02T00:00:00Z"}))
    found.settle()
    assert not refused(found) and revisions(found) == 2


@pytest.mark.parametrize("pinned", [True, False])
def test_rollback_to_a_stored_revision_is_never_refused(pinned: bool) -> None:
    found = world(BAD, judge=accept_all)
    old = found.service.status["revision"]
    edited(found, GOOD, judge=Validator())
    assert found.service.status["revision"] != old
    if pinned:
        found.edit(service(rollout={"revision": old}))
        found.settle()
    else:
        edited(found, BAD)
    assert found.service.status["revision"] == old and not refused(found)
    assert found.condition("Ready")["status"] == "True"


def test_a_pin_while_an_edit_is_refused() -> None:
    """While an edit is refused, the user pins an earlier revision, as `ome undo` does. The service returns to this revision,
    and the refused edit waits behind the pin.
    """
    found = edited(edited(world(GOOD), "--mem-fraction-static=0.7"), BAD)
    (first,) = revision_names(found) - {found.service.status["revision"]}
    found.edit(service(rollout={"revision": first}))
    found.settle()
    assert found.service.status["revision"] == first and found.condition("RolledOut")["status"] == "True"
    assert (
        "the edit that waits because of the pin" in found.condition("Advice")["message"]
        and BAD in found.condition("Advice")["message"]
    )
    assert found.condition("Ready")["status"] == "True"


def test_paused_stored_revision_continues_while_a_later_edit_is_refused() -> None:
    found = world(GOOD)
    first = found.service.status["revision"]
    found.edit(service(rollout={"paused": True}), deps("--mem-fraction-static=0.7", judge=found.deps.judge))
    found.settle()
    assert revisions(found) == 2
    edited(found, BAD)
    assert refused(found)
    found.edit(service())
    found.settle()
    assert refused(found) and found.service.status["revision"] != first
    assert {one.labels[keys.REVISION] for one in found.pods.values()} == {found.service.status["revision"]}


def test_validation_advice_is_short_and_names_the_lint_command() -> None:
    found = before_the_rule(*(f"--no-such-flag-{number}={'x' * 900}" for number in range(60)))
    said = found.condition("Advice")["message"]
    assert "`ome lint svc` lists them" in said and len(said) < (ADVISED + 1) * 320
