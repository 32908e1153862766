"""Builds the alert rules for Prometheus, their documentation page, and their unit tests for promtool, all from
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
"""Placeholder in the rules for the chart value metrics.alerts.runbooks."""
_HEAD = """# Alerts

<!-- Written by `make charts` from release/alerts.yaml; edit that. -->

`metrics.alerts.enabled` of the chart makes a PrometheusRule of these, for the Prometheus Operator;
`metrics.alerts.disabled` names those that are left out, and `metrics.alerts.runbooks` is where this page is for those who
are called. Without that operator, `charts/ome-resources/files/alerts.yaml` is a file of rules as Prometheus reads it; a
cluster of `ome local up --with prometheus` loads that file. Each alert has a unit test of promtool, in which the series of
its fault fire it and no other, and in which it ends.

Faults that are real fire them in a real Prometheus, with times divided, mostly by ten ([which, and how soon](#faults)).

The metrics are in [metrics](metrics.md), but for those of engines (`sglang:`, `vllm:`) and routers (`smg_`): these need
`metrics.engines.podMonitor` and `metrics.routers.podMonitor`, and SGLang's `--enable-metrics`. Without them the alerts of
that part never fire.
"""

_FAULTS = """## Faults

Each ran (2026-11-25) on two cores beside other tests, in a Prometheus that asks every second, and every five seconds where
engines are real. No other alert fired from the beginning of the fault until all was well, but OmeRolloutFailed with
OmeWaveStopped. Seconds are from the fault until the alert fires, and from the fault's end until it has cleared, with times
divided as said.
`tests/controlplane/alerts/faults/` has the faults (`make soak`), and says of each other alert where its fault is. Two are
bugs that the tests put into the operator, for none is known that would do the same.

| alert | fault | divided by | fires | clears |
|---|---|---|---|---|
| OmeNobodyLeads | the operator is killed | 4 | 31 s | 1 s |
| OmeNamespaceNotWatched | the operator is to watch a namespace that is not there | 10 | 30 s | 0 s |
| OmeRival | another operator of the same class runs | 10 | 91 s | 30 s |
| OmePoliciesAbsent | the operator runs as an administrator, whom no policy binds | 10 | 91 s | 0 s |
| OmePassesFail | the test's own bug: passes over a service raise | 10 | 62 s | 45 s |
| OmeLoopStalls | the test's own bug: a pass computes for 1.5 s | 10 | 31 s | 18 s |
| OmePassesSlow | each request comes 12 s late while models are edited | 10 | 73 s | 71 s |
| OmeQueueGrows | each request comes 8 s late, and 150 models are new | 10 | 60 s | 5 s |
| OmeRequestsFail | the API server answers each write with 500, and 100 models are new | 10 | 61 s | 29 s |
| OmeWatchSilent | watches are answered and tell nothing, however often they are opened | 2 | 300 s | 42 s |
| OmeObjectsUnread | the record of an agent of another version, where the CRD lets it be | 10 | 0 s | 180 s |
| OmeServiceNotReady | nobody has the model of a service | 50 | 91 s | 1 s |
| OmeRolloutFailed | the API server refuses an edit | 10 | 31 s | 0 s |
| OmeRolloutOld | an edit asks for nodes that there are not | 100 | 151 s | 1 s |
| OmeWaveStopped | the API server refuses an edit of a runtime for every service | 10 | 31 s | 1 s |
| OmeGroupsFailed | a leader hangs, and its group may not be recycled | 10 | 9 s | 0 s |
| OmeSystemicFault | both leaders are silent at once | 10 | 13 s | 2 s |
| OmeGroupsRecycle | a rank is lost three times, beside a leader on the same node | 20 | 0 s | 159 s |
| OmeGpusWasted | a leader with GPUs hangs, and nothing is recycled | 60 | 31 s | 1 s |
| OmeGangWaits | two services want 12 of 16 nodes each | 360 | 17 s | 0 s |
| OmeBrakeForgotten | a person freezes a service | 2880 | 21 s | 1 s |
| OmeNodesUnready | a node is cordoned | 60 | 32 s | 1 s |
| OmeWeightsFailed | an agent is to fetch a revision that the hub has not | 10 | 62 s | 1 s |
| OmeWeightsStall | an agent is killed in the middle of a model | 10 | 121 s | 1 s |
| OmeRouterStranger | somebody adds a worker to a real router (`tests/router/test_stranger_alert.py`) | 60 | 3 s | 29 s |
| OmeEngineQueue | 110 clients ask a real engine that runs two requests at a time | 10 | 68 s | 5 s |
| OmeFirstTokenSlow | 90 clients want 400 tokens each of it | 10 | 115 s | 65 s |
| OmeCacheFull | four clients share a prompt of 1,010 tokens, the cache has 1,024 | 10 | 99 s | 5 s |
| OmeRouterErrors | engines answer 500 to a real router (`tests/router/test_alert.py`) | 10 | 32 s | 28 s |
"""


@cache
def data() -> Mapping[str, Any]:
    """Return the content of alerts.yaml."""
    loaded: Mapping[str, Any] = yaml.load(DATA.read_text(encoding="utf-8"), yaml.CSafeLoader)
    return loaded


def alerts() -> list[Mapping[str, Any]]:
    """Return all alerts in their order."""
    return [each for group in data()["groups"].values() for each in group]


def files() -> Mapping[Path, str]:
    """Return every generated file by its path in the repository."""
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
    """Return unit tests for `promtool test rules`: each fault fires only its own alert, the alert ends with the fault, and a
    healthy cluster fires none.
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
