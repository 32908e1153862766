"""Tests of `ome top`: the numbers of services, groups and nodes, from routers that answer, refuse, or send something
else.
"""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from ome_operator.cli import connect, top
from ome_operator.cli.app import app
from ome_operator.cli.live import summaries
from ome_operator.cli.live.summaries import AT_ONCE
from ome_operator.cli.top import TopSubject, TopView, _table, _watch
from ome_operator.describe.top import TopRow
from ome_operator.describe.top_table import COLUMNS, short_number
from ome_operator.kube import podproxy
from ome_operator.kube.errors import Forbidden
from tests.support import console
from tests.support.bodies import Cluster, ago
from tests.support.heard import hear

Run = Callable[..., Any]
STORED = {
    "time": ago(minutes=5),
    "routers": 2,
    "routersHeard": 2,
    "requestsPerSecond": 3,
    "roles": [
        {"name": "prefill", "leaders": 1, "withLoad": 1, "running": 5, "cacheUse": 0.9},
        {"name": "decode", "leaders": 2, "withLoad": 1, "running": 9, "cacheUse": 0.1},
    ],
    "timeToFirstToken": {"p95": {"above": 2}},
}


@pytest.fixture
def cluster() -> Cluster:
    """Return a cluster whose routers answer, unless the simulated fault of a service prevents this."""
    return hear(console.fleet(hostile=False))


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, cluster: Cluster) -> Run:
    """Return a function that runs `ome top` and returns its result."""
    api = cluster.api()
    api.connection = SimpleNamespace(namespace="chat")  # type: ignore[assignment]

    class Pages:
        """A stand-in for `PodPages`, which returns the metrics pages of the simulated pods."""

        def __init__(self, _: Any) -> None:
            self.text = cluster.page

        async def close(self) -> None:
            """Do nothing."""

    @asynccontextmanager
    async def opened(*_: Any) -> AsyncIterator[Any]:
        yield api

    monkeypatch.setattr(connect, "open_client", opened)
    monkeypatch.setattr(podproxy, "PodPages", Pages)
    return lambda *words: CliRunner().invoke(app, ["top", *words])


def rows(result: Any) -> dict[str, dict[str, Any]]:
    """Return the rows of a result in JSON, by name and group."""
    return {f"{row['name']} {row['group']}".strip(): row for row in json.loads(result.stdout)}


def routers(cluster: Cluster, service: str) -> list[str]:
    return [name for name in cluster.summaries if name.startswith(service)]


# --- live ---------------------------------------------------------------------------------------------------------------


def test_service_rows_are_sums_over_leaders(run: Run, cluster: Cluster) -> None:
    result = run("-A", "-o", "json")
    assert result.exit_code == 0 and not result.stderr
    found = rows(result)["gpt-oss-120b"]
    assert (found["requestsPerSecond"], found["promptTokensPerSecond"], found["outputTokensPerSecond"]) == (
        4 * len(routers(cluster, "gpt-oss-120b")),
        2400,
        900,
    )
    assert (found["running"], found["waiting"], found["cacheUse"]) == (21, 3, 0.4)
    assert found["timeToFirstToken"] == {"p50": {"above": 0, "upTo": 0.4}, "p95": {"above": 0.4, "upTo": 0.6}}
    assert found["source"] == "live" and 0 <= found["age"] < 20 and not found["isPart"]


def test_disaggregated_request_is_counted_once(run: Run) -> None:
    found = rows(run("services", "kimi-k2-instruct", "-n", "kimi-k2-instruct", "-o", "json"))["kimi-k2-instruct"]
    groups = rows(run("groups", "kimi-k2-instruct", "-n", "kimi-k2-instruct", "-o", "json"))
    assert found["running"] == groups["kimi-k2-instruct decode 0"]["running"] == 7
    assert groups["kimi-k2-instruct prefill 0"]["outputTokensPerSecond"] == 300


def test_groups_and_nodes_show_the_numbers_of_their_groups(run: Run) -> None:
    groups = rows(run("groups", "-n", "kimi-k2-instruct", "-o", "json"))
    assert {name: row["gpus"] for name, row in groups.items()} == {
        "kimi-k2-instruct prefill 0": 32,
        "kimi-k2-instruct decode 0": 96,
    }
    nodes = rows(run("nodes", "-A", "-o", "json"))
    assert nodes["h200-00"]["running"] == 7 and (nodes["h200-00"]["gpus"], nodes["h200-00"]["allocatable"]) == (8, 8)
    assert nodes["h200-23"]["running"] is None, "a node without groups"
    assert "cpu-00" not in nodes, "only routers run on this node"


def test_the_table_is_plain_in_a_pipe(run: Run) -> None:
    result = run("-A")
    head, *body = result.stdout.splitlines()
    assert head.split() == [
        "NAMESPACE", "SERVICE", "REQ/S", "IN/S", "OUT/S", "RUN", "WAIT", "TTFT", "P95", "TBT", "P95", "CACHE", "GPUS", "AGE",
    ]  # fmt: skip
    assert "\x1b" not in result.stdout and len({len(line) for line in (head, *body)}) == 1
    (line,) = [line for line in body if "gpt-oss-120b" in line]
    assert line.split()[3:10] == ["2400", "900", "21", "3", "0.4-0.6s", "0.4-0.6s", "40%"]


@pytest.mark.parametrize("column", ["name", *COLUMNS])
def test_every_column_sorts_and_unknown_numbers_come_last(run: Run, column: str) -> None:
    result = run("-A", "--sort", column, "-o", "json")
    assert result.exit_code == 0
    found = json.loads(result.stdout)
    fields = {
        "requests": "requestsPerSecond", "in": "promptTokensPerSecond", "out": "outputTokensPerSecond",
        "cache": "cacheUse",
    }  # fmt: skip
    if column == "name":
        assert [(row["namespace"], row["name"]) for row in found] == sorted((row["namespace"], row["name"]) for row in found)
    elif column not in ("ttft", "tbt"):
        values = [row[fields.get(column, column)] for row in found]
        known = [value for value in values if value is not None]
        assert known == sorted(known, reverse=True) and values[: len(known)] == known


def test_an_unknown_column_is_refused(run: Run) -> None:
    result = run("--sort", "speed")
    assert result.exit_code == 2 and "'ttft'" in result.stderr


# --- not live -----------------------------------------------------------------------------------------------------------


def test_stored_numbers_with_age_are_shown_without_router_permission(run: Run, cluster: Cluster) -> None:
    forbidden = Forbidden('pods "r" is forbidden: User "eva" cannot get resource "pods/proxy"', 403)
    cluster.summaries = dict.fromkeys(cluster.summaries, forbidden)
    for body in cluster.objects["InferenceService"]:
        if body["metadata"]["name"] == "gpt-oss-120b":
            body["status"]["traffic"] = STORED
    result = run("-A", "-o", "json")
    found = rows(result)
    assert "`get pods/proxy`" in result.stderr and "status.traffic" in result.stderr
    one = found["gpt-oss-120b"]
    assert (one["source"], one["requestsPerSecond"], one["running"], one["cacheUse"]) == ("status", 3, 9, 0.9)
    assert 299 < one["age"] < 3600 and one["isPart"]
    assert found["embedder"]["running"] is None and found["embedder"]["source"] == ""
    line = next(line for line in run("-A").stdout.splitlines() if "gpt-oss-120b" in line)
    assert "9+" in line and ">2s" in line and line.split()[-1].endswith("m")


def spoil(cluster: Cluster, how: str) -> None:
    """Let the routers of gpt-oss-120b report no numbers."""
    pods = cluster.objects["Pod"]
    mine = [body for body in pods if body["metadata"]["name"] in routers(cluster, "gpt-oss-120b")]
    for body in mine:
        if how == "gone":
            pods.remove(body)
        elif how == "unready":
            body["status"]["conditions"] = [{"type": "Ready", "status": "False"}]
        elif how == "simulated":
            name = body["spec"]["nodeName"]
            (node,) = [each for each in cluster.objects["Node"] if each["metadata"]["name"] == name]
            node["metadata"].setdefault("labels", {})["type"] = "kwok"
        else:
            said = json.loads(str(cluster.summaries[body["metadata"]["name"]]))
            cluster.summaries[body["metadata"]["name"]] = json.dumps({**said, "leaders": [], "router": {}})


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ("gone", "no router runs, and only routers report numbers"),
        ("unready", "no router is ready"),
        ("simulated", "the reports of its ready routers are too old, or the routers run on simulated nodes"),
        ("without-engines", "no engine has reported numbers to its routers yet"),
    ],
)
def test_reason_for_missing_numbers_is_printed(run: Run, cluster: Cluster, how: str, why: str) -> None:
    spoil(cluster, how)
    for what in ("services", "groups", "nodes"):
        result = run(what, "gpt-oss-120b", "-n", "chat")
        assert (result.exit_code, result.stderr) == (0, f"chat/gpt-oss-120b has no numbers: {why}\n")
    assert re.fullmatch(rf"[12] of 2 services (has|have) no numbers: {why} \([12]\)\n", run("-n", "chat").stderr)
    for body in cluster.objects["InferenceService"]:
        body["status"]["traffic"] = STORED
    assert run("services", "gpt-oss-120b", "-n", "chat").stderr == "", "the numbers of the status have an age"


def test_only_one_router_per_namespace_is_read_without_permission(
    run: Run, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = list[str]()
    page = cluster.page

    async def counted(namespace: str, *words: Any) -> str:
        asked.append(namespace)
        await page(namespace, *words)
        raise Forbidden("no", 403)

    monkeypatch.setattr(cluster, "page", counted)
    monkeypatch.setattr(summaries, "AT_ONCE", 1)
    run("-A")
    assert sorted(asked) == sorted(set(asked)) and AT_ONCE > 1


@pytest.mark.parametrize(
    "text", ["", "no JSON", "[" * 100_000, '{"version": 1}', '{"version": 1, "slice": "another"}', '{"version": NaN}']
)
def test_invalid_summary_is_reported_in_one_sentence(run: Run, cluster: Cluster, text: str) -> None:
    for name in routers(cluster, "gpt-oss-120b"):
        cluster.summaries[name] = text
    result = run("-n", "chat", "-o", "json")
    assert result.exit_code == 0 and len(result.stderr.splitlines()) == 1 and "cannot be used" in result.stderr
    assert rows(result)["gpt-oss-120b"]["running"] is None and rows(result)["llama-scout"]["running"] == 14


def test_hanging_router_delays_the_output_only_briefly(run: Run, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    page, hangs = cluster.page, routers(cluster, "gpt-oss-120b")

    async def slow(namespace: str, pod: str, *words: Any) -> str:
        if pod in hangs:
            await asyncio.Event().wait()
        return await page(namespace, pod, *words)

    monkeypatch.setattr(cluster, "page", slow)
    monkeypatch.setattr(summaries, "PATIENCE", 0.2)
    result = run("-n", "chat", "-o", "json")
    assert "did not answer" in result.stderr and rows(result)["llama-scout"]["running"] == 14


@pytest.mark.parametrize(
    "stored",
    [
        "text", 5, [1], {}, {"time": 5}, {"time": "tomorrow"}, {"time": "2999-01-01T00:00:00Z", "requestsPerSecond": 1},
        {**STORED, "requestsPerSecond": "many", "roles": {"name": "x"}, "timeToFirstToken": [1]},
        {**STORED, "requestsPerSecond": None, "roles": [None, 5, {"running": True}], "timeToFirstToken": {"p95": 1}},
    ],
)  # fmt: skip
def test_any_status_content_can_be_shown(run: Run, cluster: Cluster, stored: Any) -> None:
    cluster.summaries = {}
    for body in cluster.objects["InferenceService"]:
        body["status"]["traffic"] = stored
    result = run("-A", "-o", "json")
    assert result.exit_code == 0
    assert {row["requestsPerSecond"] for row in rows(result).values()} == {None}
    assert run("-A").exit_code == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("services", "svc", "-A"), "leave out one of them"),
        (("groups", "nobody", "-n", "chat"), "there is no InferenceService nobody in namespace chat"),
        (("-n", "empty"), "there is no InferenceService in namespace empty"),
    ],
)
def test_top_raises_error_without_answer(run: Run, words: tuple[str, ...], said: str) -> None:
    result = run(*words)
    assert result.exit_code != 0 and said in str(result.exception)


def test_service_name_in_place_of_a_kind_is_refused(run: Run) -> None:
    result = run("gpt-oss-120b")
    assert result.exit_code == 2
    assert "Error: Invalid value for 'what': 'gpt-oss-120b' is not one of 'services', 'groups', 'nodes'." in result.stderr


# --- a terminal ---------------------------------------------------------------------------------------------------------


def test_table_is_limited_to_the_screen_but_complete_in_a_pipe() -> None:
    row = TopRow("team", "", "", "live", 1.0, False, None, None, None, 1, 0, {}, {}, None, 8)
    view = TopView([replace(row, name=f"svc-{number:02}", running=100 - number) for number in range(100)], "")
    screen = _table(view, TopSubject.SERVICES, 24).plain.splitlines()
    assert len(screen) == 22 and "svc-00" in screen[1] and "and 80 more" in screen[-1]
    assert max(map(len, screen)) <= 100
    assert len(_table(view, TopSubject.SERVICES, None).plain.splitlines()) == 101


def test_control_characters_in_user_texts_are_escaped() -> None:
    row = TopRow("team", "a\x1b[31m\u202e", "", "", None, False, None, None, None, None, None, {}, {}, None, 8)
    assert not {"\x1b", "\u202e"} & set(_table(TopView([row], ""), TopSubject.SERVICES, 24).plain)


async def test_watch_prints_only_changes(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(top, "INTERVAL", 0)
    row = TopRow("team", "svc", "", "live", 1.0, False, None, None, None, 1, 0, {}, {}, None, 8)
    views = iter([TopView([row], ""), TopView([row], ""), TopView([replace(row, running=2)], "why")])

    async def look() -> TopView:
        found = next(views, None)
        if found is None:
            raise asyncio.CancelledError  # Ctrl+C
        return found

    with pytest.raises(asyncio.CancelledError):
        await _watch(look, TopSubject.SERVICES, None)
    said = capsys.readouterr()
    assert said.out.count("svc") == 2 and said.err == "why\n"


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (0.421, "0.42"), (2.4, "2.4"), (42.4, "42"), (311, "311"), (9999, "9999"), (12345, "12.3k"), (2.5e6, "2.5M")],
)
def test_short_numbers_have_at_most_four_characters(value: float, text: str) -> None:
    assert short_number(value) == text
