"""A client for Prometheus, and alert rules with shortened times."""

import json
import re
import shutil
import signal
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

import pytest
import yaml

from ome_local import ports, prometheus, spec, targets
from ome_local.binaries import debian
from ome_local.binaries.releases import Unavailable
from ome_local.cluster import Cluster
from ome_local.components import PORTS
from ome_local.layout import Layout
from ome_local.spec import ClusterFile, Spec

T = TypeVar("T")
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))
"""URL opener without any proxy of this machine."""


class Prometheus:
    """Client of Prometheus' HTTP API."""

    def __init__(self, url: str) -> None:
        self.url = url

    def get(self, path: str, **query: str) -> Any:
        """Return the data of a response. Raises an error if Prometheus answers with an error."""
        with _DIRECT.open(f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(query)}", timeout=10) as answer:
            return json.loads(answer.read())["data"]

    def ask(self, expression: str) -> list[dict[str, Any]]:
        """Return the current series of an expression."""
        found: list[dict[str, Any]] = self.get("query", query=expression)["result"]
        return found

    def alerts(self, *states: str) -> set[str]:
        """Return the names of alerts in these states, by default of firing alerts."""
        return {
            each["labels"]["alertname"] for each in self.get("alerts")["alerts"] if each["state"] in (states or ("firing",))
        }

    def rules(self) -> set[str]:
        """Return the names of all defined alerts."""
        return {rule["name"] for group in self.get("rules")["groups"] for rule in group["rules"]}

    def targets(self) -> dict[str, list[dict[str, str]]]:
        """Return job -> the labels of the targets that Prometheus can scrape."""
        found: dict[str, list[dict[str, str]]] = {}
        for each in self.get("targets", state="active")["activeTargets"]:
            if each["health"] == "up":
                found.setdefault(each["labels"]["job"], []).append(each["labels"])
        return found


def poll_until(description: str, seen: Callable[[], T], within_s: float = 30.0, every_s: float = 0.2) -> T:
    """Poll until `seen` returns a true value, and return that value. After the time limit, fail with the description
    `description` and with the last value.
    """
    end = time.monotonic() + within_s
    last: T | None = None
    while time.monotonic() < end:
        if last := seen():
            return last
        time.sleep(every_s)
    raise AssertionError(f"{description}: not within {within_s:.0f} s (last: {last!r})")


@contextmanager
def running(folder: Path, rules: Mapping[str, Any] | None = None) -> Iterator[tuple[Prometheus, Layout, ClusterFile]]:
    """Run the real Prometheus without a cluster, with these rules or the chart's. It scrapes each second. Skips the test if
    Prometheus is not available.
    """
    try:
        debian.prometheus()
    except Unavailable as reason:
        pytest.skip(str(reason))
    at = Layout(folder / "cluster")
    kept = ClusterFile(Spec(prometheus=True), dict(zip(PORTS, ports.choose(len(PORTS)), strict=True)))
    own = None
    if rules:
        own = folder / "rules.yaml"
        own.write_text(yaml.safe_dump(rules))
    prometheus.write(at, kept, own, "1s")
    with (folder / "prometheus.log").open("wb") as log:
        child = subprocess.Popen(prometheus.command(at, kept), stdout=log, stderr=log)
    try:
        poll_until("it is ready", lambda: ports.answers_with_200("127.0.0.1", kept.ports[prometheus.NAME], "/-/ready"))
        yield Prometheus(prometheus.url(kept)), at, kept
    finally:
        child.terminate()
        child.wait()


def scrape_operator(at: Layout, port: int) -> None:
    """Let the Prometheus of this cluster scrape a page of metrics on this machine as the operator's."""
    target = {"targets": [f"127.0.0.1:{port}"], "labels": {"job": targets.OPERATOR}}
    (targets.folder(at) / "operator-test.json").write_text(json.dumps([target]))


@contextmanager
def joined(cluster: Cluster, rules: Mapping[str, Any] | None = None) -> Iterator[Prometheus]:
    """Run a Prometheus for a cluster inside the `with` block, with these rules or the chart's."""
    with_it = Cluster.up(cluster.name, **{**vars(cluster.kept.spec), "prometheus": True})
    made = Prometheus(with_it.prometheus)
    try:
        if rules:
            own = with_it.at.prometheus / "rules.yaml"
            own.write_text(yaml.safe_dump(rules))
            prometheus.write(with_it.at, with_it.kept, own)
            process = with_it.process(prometheus.NAME)
            assert process is not None
            process.signal(signal.SIGHUP)  # it reloads its configuration
            poll_until("it knows the rules", lambda: str(own) in made.get("status/config")["yaml"])
        yield made
    finally:
        for name in prometheus.PROCESSES:
            with_it.stop(name)
        spec.save(with_it.at, with_it.kept.with_spec(prometheus=False))
        shutil.rmtree(
            with_it.at.prometheus / "data"
        )  # a test that joins within five minutes would still see the last values


# --- rules with divided times ----------------------------------------------------------------------------------------------
BY = 10
UNITS = {"s": 1, "m": 60, "h": 3600}
_RANGE = re.compile(r"(?:(?<=\[)|(?<=offset ))(\d+)([smh])\b")
"""Matches the duration of a window or of an offset."""
_LIMIT = re.compile(r"> (\d+)\b(?!\.)")


def divide_durations(
    rules: Mapping[str, Any], by: float = BY, others: Mapping[str, float] = MappingProxyType({})
) -> dict[str, Any]:
    """Return alert rules in which `for`, windows and limits of ages are divided by the factor `by`. `others` maps the names
    of some alerts to other factors.
    """

    def rule(each: Mapping[str, Any]) -> dict[str, Any]:
        parts = others.get(each["alert"], by)
        return {**each, "expr": _shorter(each["expr"], parts), "for": _short(*_spelled(each["for"]), parts)}

    return {"groups": [{**group, "rules": [rule(each) for each in group["rules"]]} for group in rules["groups"]]}


def _shorter(expression: str, by: float) -> str:
    """Return an expression in which windows, offsets and each limit of an age are divided by the factor `by`. A limit
    limits an age if the metric with which it is compared is in seconds.
    """
    parts = [_RANGE.sub(lambda found: _short(int(found[1]), found[2], by), part) for part in expression.split(" or ")]
    return " or ".join(
        _LIMIT.sub(lambda found: f"> {int(found[1]) / by:g}", part) if _is_time(part) else part for part in parts
    )


def _is_time(part: str) -> bool:
    """Return whether a part of an expression is an age. The duration of an operation is not an age, because operations take
    as long in a test as anywhere else.
    """
    return "_seconds" in part and "increase(" not in part and "quantile" not in part


def _spelled(text: str) -> tuple[int, str]:
    return int(text[:-1]), text[-1]


def _short(number: int, unit: str, by: float) -> str:
    return f"{round(number * UNITS[unit] * 1000 / by)}ms"
