"""Build the alert rules for Prometheus, their documentation page, and their unit tests for promtool, all from
alerts.yaml.
"""

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml

DATA = Path(__file__).with_name("alerts.yaml")
RUNBOOKS = "RUNBOOKS"
"""Placeholder in the rules that the chart replaces by the value metrics.alerts.runbooks."""
_HEAD = """# Alerts

<!-- Written by `make charts` from release/alerts.yaml; edit that. -->

The chart value `metrics.alerts.enabled` installs these alerts as a PrometheusRule for the Prometheus Operator.
`metrics.alerts.disabled` lists alerts to leave out, and `metrics.alerts.runbooks` is the URL of this page for the people on
call. Without the Prometheus Operator, use the rule file `charts/ome-resources/files/alerts.yaml` in Prometheus' own format.
A cluster of `ome local up --with prometheus` loads this file.

Each alert was tested in two ways. A promtool unit test shows that the series of a fault fire this alert and no other, and
that the alert clears when the fault ends. Other tests cause the real faults, which fire the alerts in a real Prometheus. For
these tests, the durations in the rules are divided, mostly by ten ([faults and times](#faults)).

[Metrics](metrics.md) describes the metrics of the operator (`ome_`). The alerts of the part "Engines
and routers" use metrics of engines (`sglang:`, `vllm:`) and routers (`smg_`). These alerts never fire without the chart
values `metrics.engines.podMonitor` and `metrics.routers.podMonitor`, and SGLang's `--enable-metrics`.
"""

_FAULTS = """## Faults

Each fault was run on two cores while other tests ran. Prometheus scraped every second, or every five seconds where engines
are real. From the start of a fault until the cluster was healthy again, no other alert fired, except OmeRolloutFailed
together with OmeWaveStopped. The faults were run on these days:

* OmeServiceIncomplete: 2026-11-27
* OmeRoutersSilent, OmeDemandUnknown, OmeDemandIgnored, OmeMoveWaits, OmeNodesAvoided, OmeGroupsSilent and OmeTransfersFail:
  2026-11-28
* All other alerts: 2026-11-25

The column "fires" has the seconds from the start of the fault until the alert fired. The column "clears" has the seconds
from the end of the fault until the alert had cleared. The durations in the rules were shortened for the test; the column
"divided by" has the divisor.

`tests/controlplane/alerts/faults/` contains the faults, which `make soak` runs, and names the location of the faults that
are in other folders. Two of the faults are bugs that the tests put into the operator, because no real fault is known that
would have the same effect.

For OmeGroupsSilent and OmeTransfersFail, the faults in the table use a stand-in for a registry. Real engines have fired both
alerts, too (2026-11-29, `tests/node/serving/test_silent_alerts.py`, divided by 10). OmeGroupsSilent fired 45 s after the
scheduler of a decode engine was stopped (with `silence: Observe`), and cleared 10 s after the scheduler continued.
OmeTransfersFail fired 54 s after the connections for KV caches to one of two decode engines were refused, and cleared 44 s
after the repair.

| alert | fault | divided by | fires | clears |
|---|---|---|---|---|
| OmeNobodyLeads | the operator is killed | 4 | 31 s | 1 s |
| OmeNamespaceNotWatched | the operator is configured to watch a namespace that does not exist | 10 | 30 s | 0 s |
| OmeRival | another operator of the same class runs | 10 | 91 s | 30 s |
| OmePoliciesAbsent | the operator runs as an administrator, whom no policy restricts | 10 | 91 s | 0 s |
| OmePassesFail | the test's own bug: reconciliations of a service raise an exception | 10 | 62 s | 45 s |
| OmeLoopStalls | the test's own bug: a reconciliation computes for 1.5 s | 10 | 31 s | 18 s |
| OmePassesSlow | each request is delayed by 12 s while models are edited | 10 | 73 s | 71 s |
| OmeQueueGrows | each request is delayed by 8 s, and 150 models are created | 10 | 60 s | 5 s |
| OmeRequestsFail | the API server answers each write with 500, and 100 models are created | 10 | 61 s | 29 s |
| OmeWatchSilent | watches are accepted and deliver no events, however often they are reopened | 2 | 300 s | 42 s |
| OmeObjectsUnread | an agent of another version writes an unreadable record, which the CRD accepts | 10 | 0 s | 180 s |
| OmeServiceNotReady | no node has the model of a service | 50 | 91 s | 1 s |
| OmeServiceIncomplete | a quota refuses the pods of a second group | 50 | 92 s | 1 s |
| OmeRolloutFailed | the API server refuses an edit | 10 | 31 s | 0 s |
| OmeRolloutOld | an edit requires nodes that do not exist | 100 | 151 s | 1 s |
| OmeWaveStopped | the API server refuses an edit of a runtime for every service | 10 | 31 s | 1 s |
| OmeGroupsFailed | a leader hangs, and its group may not be recycled (`maxRecycles: 0`) | 10 | 9 s | 0 s |
| OmeSystemicFault | both leaders stop responding at the same time | 10 | 13 s | 2 s |
| OmeGroupsSilent | a stand-in for a registry reports that the only leader is silent | 10 | 35 s | 0 s |
| OmeTransfersFail | a stand-in for a registry reports that the only pair fails | 10 | 31 s | 1 s |
| OmeGroupsRecycle | a rank is lost three times, with the leader on the same node each time | 20 | 0 s | 159 s |
| OmeGpusWasted | a leader with GPUs hangs, and nothing is recycled | 60 | 31 s | 1 s |
| OmeGangWaits | two services require 12 of 16 nodes each | 360 | 17 s | 0 s |
| OmeDemandUnknown | the operator asks no router for numbers (`--router-watch 0`) | 60 | 31 s | 1 s |
| OmeDemandUnmet | more requests arrive than the maximum of groups serves | 30 | 30 s | 1 s |
| OmeDemandIgnored | the GPU budget of a service is smaller than a pair of groups | 30 | 31 s | 1 s |
| OmeDemandStopped | a person writes the RoleScale of a service with the class Demand | 2880 | 31 s | 1 s |
| OmeDemandSurplus | `changesPerHour: 1` keeps a group that is not needed | 360 | 61 s | 0 s |
| OmeMoveWaits | a person moves a group whose service may use only a single node | 60 | 16 s | 0 s |
| OmeBrakeForgotten | a person freezes a service | 2880 | 21 s | 1 s |
| OmeNodesUnready | a node is cordoned | 60 | 32 s | 1 s |
| OmeNodesAvoided | a node reports a deadlock of its kernel, which has to last for five minutes | 60 | 320 s | 10 s |
| OmeWeightsFailed | an agent is configured to download a revision that the hub does not have | 10 | 62 s | 1 s |
| OmeWeightsStall | an agent is killed during the download of a model | 10 | 121 s | 1 s |
| OmeRouterStranger | a real router gets a foreign worker (`tests/router/test_stranger_alert.py`) | 60 | 3 s | 29 s |
| OmeRoutersSilent | a registry stops answering (`tests/router/test_silent_alert.py`) | 60 | 35 s | 5 s |
| OmeEngineQueue | 110 clients send requests to a real engine that runs two requests at a time | 10 | 68 s | 5 s |
| OmeFirstTokenSlow | 90 clients request 400 tokens each from the same engine | 10 | 115 s | 65 s |
| OmeCacheFull | four clients share a prompt of 1,010 tokens, and the cache has space for 1,024 | 10 | 99 s | 5 s |
| OmeRouterErrors | engines answer 500 to a real router (`tests/router/test_alert.py`) | 10 | 32 s | 28 s |
"""


@cache
def data() -> Mapping[str, Any]:
    """Return the content of alerts.yaml."""
    loaded: Mapping[str, Any] = yaml.load(DATA.read_text(encoding="utf-8"), yaml.CSafeLoader)
    return loaded


def alerts() -> list[Mapping[str, Any]]:
    """Return all alerts in the order of the file."""
    return [each for group in data()["groups"].values() for each in group]


def files() -> Mapping[Path, str]:
    """Return path in the repository -> text of every generated file."""
    head = "# Written by `make charts` from release/alerts.yaml.\n"
    text = head + yaml.safe_dump(rules(), sort_keys=False, width=10_000)
    return {Path("charts/ome-resources/files/alerts.yaml"): text, Path("docs/alerts.md"): page()}


def rules() -> dict[str, Any]:
    """Return the rules in Prometheus' format."""
    named = {f"ome-{title.lower().replace(' ', '-')}": group for title, group in data()["groups"].items()}
    return {"groups": [{"name": name, "rules": [_rule(each) for each in group]} for name, group in named.items()]}


def _rule(alert: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "alert": alert["alert"],
        "expr": alert["expr"],
        "for": alert["for"],
        "labels": {"severity": alert["severity"]},
        "annotations": _annotations(alert),
    }


def _annotations(alert: Mapping[str, Any]) -> dict[str, str]:
    return {
        "summary": alert["summary"],
        "description": alert["means"],
        "runbook_url": f"{RUNBOOKS}#{alert['alert'].lower()}",
    }


def page() -> str:
    """Return the text of docs/alerts.md."""
    parts = [_HEAD]
    for title, group in data()["groups"].items():
        rows = [
            f"| [{each['alert']}](#{each['alert'].lower()}) | {each['severity']} | {each['summary']} |" for each in group
        ]
        parts.append("\n".join([f"## {title}", "", "| alert | severity | what |", "|---|---|---|", *rows, ""]))
        parts += [_section(each) for each in group]
    return "\n".join([*parts, _FAULTS])


def _section(alert: Mapping[str, Any]) -> str:
    return (
        f"### {alert['alert']}\n\n```promql\n{alert['expr']}    # for {alert['for']}\n```\n\n"
        f"* **Means**: {alert['means']}\n* **Look at**: {alert['look']}\n"
        f"* **Do**: {alert['do']}\n* **Clears**: {alert['clears']}\n"
    )


def unit_tests(rule_file: str) -> dict[str, Any]:
    """Return unit tests for `promtool test rules`. They test that each fault fires only its own alert, that the alert
    ends with the fault, and that a healthy cluster fires no alert.
    """
    made = [_test("all is well", {}, [("60m", {}), ("240m", {})])]
    for alert in alerts():
        made.append(
            _test(alert["alert"], alert["when"], [(alert["at"], {alert["alert"]: _fired(alert)}), (alert["over"], {})])
        )
    return {"rule_files": [rule_file], "evaluation_interval": "5m", "tests": made}


def _fired(alert: Mapping[str, Any]) -> dict[str, Any]:
    labels = {"severity": alert["severity"], **alert.get("labels", {})}
    return {"exp_labels": labels, "exp_annotations": _annotations(alert)}


def _test(name: str, fault: Mapping[str, str], moments: list[tuple[str, Mapping[str, Any]]]) -> dict[str, Any]:
    told = [int(times) for values in fault.values() for times in re.findall(r"x(\d+)", values)]
    longest = max([300, *told]) + 100
    well = {series: values.replace("x300", f"x{longest}") for series, values in data()["well"].items()}
    series = [{"series": each, "values": values} for each, values in {**well, **fault}.items()]
    checks = [
        {
            "eval_time": at,
            "alertname": alert["alert"],
            "exp_alerts": [fired[alert["alert"]]] if alert["alert"] in fired else [],
        }
        for at, fired in moments
        for alert in alerts()
    ]
    return {"name": name, "interval": "1m", "input_series": series, "alert_rule_test": checks}
