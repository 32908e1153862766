"""Tests that all views of one cluster show the same numbers: `ome status`, `ome top`, `ome nodes`, the pages of `ome ui`,
and the columns of `kubectl get isvc`.
"""

import json
from collections import Counter
from typing import Any

import pytest

from ome_operator import keys
from ome_operator.cli.live.board import ClusterState, node_rows
from ome_operator.cli.ui import views
from ome_operator.core.observed import telemetry
from ome_operator.core.observed.traffic import traffic
from ome_operator.core.render import meta
from ome_operator.core.status.traffic import traffic_status
from ome_operator.describe import cluster as nodes_view
from ome_operator.describe.actions import CommandBuilder
from ome_operator.describe.overview import Row
from ome_operator.describe.top import ServiceWithNumbers, service_rows
from ome_operator.names import role_title
from tests.support import console
from tests.support.answered import answered
from tests.support.bodies import NOW, Cluster
from tests.support.heard import hear

Rows = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def there() -> Cluster:
    """Return a cluster with services that are ready, rolled out, frozen, broken, and waiting for nodes."""
    return hear(console.fleet(hostile=False))


@pytest.fixture(scope="module")
def board(there: Cluster) -> ClusterState:
    return there.seen()


@pytest.fixture(scope="module")
def page(board: ClusterState) -> dict[str, Row]:
    """Return the rows of the first page of `ome ui`, by name of the service."""
    sections = {section.name: section.data for section in views.services(board, CommandBuilder())}
    return {row.name: row for row in sections["services"]["rows"]}


def asked(there: Cluster, words: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    return json.loads(answered(there, f"{words} -o json", monkeypatch))


def test_gpu_counts_are_equal_in_all_views(
    there: Cluster, board: ClusterState, page: dict[str, Row], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All views count the GPUs of all pods of a service. Only `ome nodes` counts the GPUs of pods that are on nodes."""
    requested = {name: row.gpus for name, row in page.items()}
    assert sum(requested.values()) == 160

    top = {row["name"]: row["gpus"] for row in asked(there, "top -A", monkeypatch)}
    groups = Counter[str]()
    for row in asked(there, "top groups -A", monkeypatch):
        groups[row["name"]] += row["gpus"]
    status = Counter[str]()
    placed = Counter[str]()
    for each in asked(there, "status -A", monkeypatch):
        roles = [role for part in each["slices"] for role in part["roles"]]
        status[each["name"]] = sum(role["gpus"] for role in roles)
        ranks = [rank for role in roles for group in role["groups"] for rank in group["ranks"]]
        placed[each["name"]] = sum(rank["gpus"] for rank in ranks if rank["node"])
    assert top == groups == status == requested

    shown = asked(there, "nodes", monkeypatch)
    used = Counter[str]()
    for row in shown["nodes"]:
        for use in row["uses"]:
            used[use["service"]] += use["gpus"]
    assert +used == +placed and placed["minimax-m2"] == 0
    totals = shown["totals"]
    assert totals["serving"] + totals["idleHeld"] == sum(placed.values())
    assert totals["serving"] + totals["idleHeld"] + totals["free"] + totals["away"] == totals["gpus"]

    held = {row["name"]: row["gpus"] for row in asked(there, "top nodes -A", monkeypatch)}
    assert held == {row.name: row.held for row in node_rows(board) if row.name in held}
    assert sum(held.values()) == sum(placed.values())
    assert nodes_view.totals(node_rows(board)).serving == totals["serving"]


def test_group_counts_and_states_are_equal_in_all_views(
    there: Cluster, board: ClusterState, page: dict[str, Row], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All views show the same counts of groups and the same states. The columns of kubectl count pods, as of the last
    status that the operator wrote. The count of a role is the sum over all revisions in `ome status`, unless a rollout is
    under way.
    """
    rolling = 0
    for each in asked(there, "status -A", monkeypatch):
        row = page[each["name"]]
        found = dict[str, tuple[int, int]]()
        pods = dict[tuple[str, str], str]()
        for part in each["slices"]:
            for role in part["roles"]:
                before = found.get(role["role"], (0, 0))
                found[role["role"]] = (before[0] + role["ready"], before[1] + role["wanted"])
                pods[part["revision"], role["role"]] = f"{role['readyPods']}/{role['pods']}"
        assert found == {role.role: (role.ready, role.wanted) for role in row.roles}
        status = board.bodies[each["namespace"], each["name"]]["status"]
        assert pods == {
            (one["revision"], role): text for one in status["slices"] for role, text in one.items() if "/" in str(text)
        }
        ready = next(one for one in status["conditions"] if one["type"] == "Ready")
        assert each["ready"] == (ready["status"] == "True") == (row.state.name not in ("BROKEN", "WAITING"))
        if len(each["slices"]) > 1:
            rolling += 1
            continue
        both = keys.DECODER in status["components"]
        columns = {role_title(name, both): one["ready"] for name, one in status["components"].items()}
        assert columns == {role: text for (_, role), text in pods.items()}
    assert rolling == 1


def test_live_and_stored_traffic_numbers_are_equal(
    there: Cluster, board: ClusterState, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`ome top`, `ome ui` and `kubectl get -o yaml` show the same traffic. `ome top` asks the routers. The others read
    `status.traffic`, which the operator computes from the same summaries.
    """
    live: Rows = {row["name"]: row for row in asked(there, "top -A", monkeypatch)}
    groups = Counter[tuple[str, str]]()
    for row in asked(there, "top groups -A", monkeypatch):
        for name in ("promptTokensPerSecond", "outputTokensPerSecond", "running", "waiting"):
            groups[row["name"], name] += row[name]
    for key, tree in board.trees.items():
        pods = board.observed[key].pods
        heard = {pod: str(there.summaries[pod.name]) for pod in pods if pod.name in there.summaries}
        reports = {
            pod.uid: telemetry.parse_report(text, meta.slice_mark(pod), NOW.timestamp()) for pod, text in heard.items()
        }
        stored = traffic_status(traffic(reports, pods, NOW.timestamp()), NOW)
        body = {**board.bodies[key], "status": {**board.bodies[key]["status"], "traffic": stored}}
        (row,) = service_rows([ServiceWithNumbers(body, tree, (), None)], NOW)
        shown = live[key[1]]
        assert (row.requests_per_second, row.prompt_tokens_per_second, row.output_tokens_per_second) == (
            shown["requestsPerSecond"], shown["promptTokensPerSecond"], shown["outputTokensPerSecond"],
        ), key  # fmt: skip
        assert (row.running, row.waiting, row.gpus) == (shown["running"], shown["waiting"], shown["gpus"])
        if not any(role.component == keys.DECODER for _, role, _ in tree.groups()):
            sums = {name: groups[key[1], name] for name in ("promptTokensPerSecond", "outputTokensPerSecond", "running")}
            assert sums == {name: shown[name] for name in sums}, key
