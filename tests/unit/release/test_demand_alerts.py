"""Tests that each reason of the class Demand has an alert, or is listed here with the reason why nobody has to act."""

import re

import pytest

from ome_operator.core import service_metrics
from ome_operator.core.demand.holds import HOLDS, SURPLUS, HoldReason
from ome_operator.core.demand.task import APPLY, RECOMMEND
from ome_operator.core.reasons import Reason, ReasonRecord
from ome_operator.core.reasons.demand import DemandReasons
from ome_operator.core.reconcile.demand import NOT_FOLLOWED
from release import alerts

ALERTS = {alert["alert"]: alert for alert in alerts.alerts()}
CONDITIONS = {str(one): one for one in vars(DemandReasons).values() if isinstance(one, ReasonRecord)}

QUIET = {
    Reason.FOLLOWED: "the service has at least the groups that its demand needs",
    Reason.RECOMMENDED: "in the mode Recommend, people read `ome scale`; late requests fire OmeFirstTokenSlow",
    Reason.DEMAND_UNMEASURED: "the first load at which requests wait ends it; a long queue fires OmeEngineQueue",
    Reason.DEMAND_FIRST_STEP: "the added groups end it; if they do not become ready, OmeServiceIncomplete fires",
}
"""Reason of the condition FollowsDemand -> why no alert fires for it."""

KEPT = {
    HoldReason.STARTING: "the group becomes ready, or OmeServiceIncomplete or OmeGangWaits fires",
    HoldReason.BUSY: "it ends with the rollout, recycle or move, or OmeRolloutOld, OmeGroupsFailed or OmeMoveWaits fires",
    HoldReason.ERRORS: "a share of failed requests rises for ten minutes at most; OmeRouterErrors fires if it stays high",
    HoldReason.COOL_DOWN: "it ends by itself after the cool-down",
    HoldReason.PLANNED: "groups stay until they are measured, and only a load measures them",
}
"""Reason why a service keeps groups that it does not need -> why no alert fires for it."""


def labels(metric: str, label: str) -> dict[str, list[str]]:
    """Return the values of a label that the alerts on a metric name, each with the alerts that name it."""
    found = dict[str, list[str]]()
    for name, alert in ALERTS.items():
        for words in re.findall(rf'{metric}{{{label}=~?"([^"]+)"', alert["expr"]):
            for word in words.split("|"):
                found.setdefault(word, []).append(name)
    return found


def test_every_reason_of_follows_demand_has_one_alert_or_an_exemption() -> None:
    alarmed = labels("ome_demand_services", "reason")
    assert alarmed.keys() | {*map(str, QUIET)} == CONDITIONS.keys()
    assert not alarmed.keys() & {*map(str, QUIET)}
    assert {len(names) for names in alarmed.values()} == {1}
    assert all(not CONDITIONS[reason].is_good for reason in alarmed)


def test_every_hold_reason_leads_to_an_alert_or_an_exemption() -> None:
    alarmed = labels("ome_demand_surplus_services", "hold")
    assert alarmed.keys() | {*map(str, KEPT)} == {*map(str, SURPLUS)} and not alarmed.keys() & {*map(str, KEPT)}
    short = {*NOT_FOLLOWED, HoldReason.INVALID, HoldReason.SCHEDULED_ZERO}
    assert short | {*SURPLUS} == {*HOLDS} == {*HoldReason} and not short & {*SURPLUS}
    known = {*labels("ome_demand_services", "reason"), *map(str, QUIET)}
    assert {str(reason) for reason, _ in NOT_FOLLOWED.values()} <= known


@pytest.mark.parametrize("why", [*QUIET.values(), *KEPT.values()])
def test_an_exemption_names_existing_alerts(why: str) -> None:
    assert {*re.findall(r"Ome\w+", why)} <= ALERTS.keys() and len(why) > 30


@pytest.mark.parametrize("hold", [*map(str, HoldReason), "", "Elsewhere"])
def test_held_groups_are_counted_by_reason_in_apply_mode(hold: str) -> None:
    def surplus(mode: str) -> str:
        return service_metrics.service_figures({"scaling": {"mode": mode, "hold": hold}}, (), {}).surplus_reason

    assert surplus(APPLY) == (hold if hold in SURPLUS else "")
    assert surplus(RECOMMEND) == ""
