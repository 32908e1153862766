"""Tests of a service with a hundred groups of two nodes: names, sizes, and the number of writes compared with a service of
fewer groups.
"""

import json
import re
from collections import Counter
from collections.abc import Collection

from ome_operator import keys
from ome_operator.api import InferenceService
from ome_operator.core.reconcile.plan import Plan
from ome_operator.core.termination import last_lines
from tests.support import parts
from tests.support.effects import effects
from tests.support.simulator import World

NAME = "kimi-k2-instruct-0905-prefill-and-decode-in-europe"
"""A name of the greatest length that a service may have."""
GROUPS = 100
DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
STATUS = 64 * 1024
"""Largest size of the status in bytes. Every watch of services sends the whole status again with each change."""
FAILED = 4 * STATUS
"""Largest size of the status in bytes if the last words of a failure are recorded for every group. etcd accepts 1.5 MB."""


def service(groups: int) -> InferenceService:
    """Return a service with groups of two nodes, behind a router."""
    return parts.service(name=NAME, engine={"minReplicas": groups}, router={})


class Fleet(World):
    """A service with many groups, and counts of the effects of its passes."""

    def __init__(self, groups: int) -> None:
        super().__init__(service(groups), parts.deps(parts.model(), parts.simple(2), nodes=256), seed=1)
        self.passes, self.largest = 0, 0
        self.work: Counter[str] = Counter()
        """Verb and kind -> how many effects there were."""
        self.watcher = self._count
        self.settle()

    def _count(self, plan: Plan) -> None:
        self.passes += 1
        self.work.update(said.rpartition(" ")[0] for said in effects(plan))
        self.largest = max(self.largest, len(json.dumps(plan.status).encode()))

    def scale(self, groups: int) -> None:
        """Change the number of groups, and wait until nothing changes any more."""
        self.edit(service(groups))
        self.settle()

    def break_(self, *numbers: int) -> None:
        """Make the leaders of these groups not ready, and the leaders of all other groups ready."""
        broken = {str(number) for number in numbers}
        self.healthy = lambda pod: pod.rank > 0 or pod.labels.get(keys.GROUP_INDEX) not in broken
        for pod in self.pods.values():
            pod.ready = self.healthy(pod)

    @property
    def groups(self) -> dict[int, dict[str, str]]:
        """Return the UIDs of the engine's pods by name, for each group number."""
        found: dict[int, dict[str, str]] = {}
        for name, uid in self.living_pods("engine").items():
            found.setdefault(int(self.pods[name].labels[keys.GROUP_INDEX]), {})[name] = uid
        return found


def missing(numbers: Collection[int]) -> list[int]:
    """Return the group numbers from 0 to GROUPS that are not in use."""
    return sorted({*range(GROUPS + 1)} - {*numbers})


def test_a_hundred_groups_with_a_long_name_start_with_a_bounded_status() -> None:
    fleet = Fleet(GROUPS)
    assert len(NAME) == 50
    assert missing(fleet.groups) == [GROUPS] and {len(pods) for pods in fleet.groups.values()} == {2}
    assert fleet.condition("Ready")["status"] == fleet.condition("RolledOut")["status"] == "True"
    labels = [value for live in (*fleet.children.values(), *fleet.pods.values()) for value in live.labels.values()]
    names = (*fleet.pods, *(name for _, name in fleet.children))
    assert [name for name in names if not DNS_LABEL.fullmatch(name)] == []
    assert max(map(len, labels)) <= 63
    sets = [name for kind, name in fleet.children if kind == "StatefulSet"]
    assert len(sets) == 2 * GROUPS and max(map(len, sets)) <= 52, "Kubernetes makes a label of it with ten more characters"
    assert len(fleet.service.status["groups"]) == GROUPS
    assert fleet.largest < STATUS


def test_last_messages_of_a_hundred_groups_are_limited_in_status() -> None:
    fleet = Fleet(GROUPS)
    words = last_lines(f"RuntimeError: {'x' * 4096}\n" + "INFO\n" * 500)
    for group in fleet.service.status["groups"]:
        failure = {"podName": group["name"], "containerName": "ome-container", "exitCode": 1, "reason": "Error"}
        group["lastFailure"] = {**failure, "message": words, "time": "2026-01-01T00:00:00Z"}
    status = fleet.sync().status
    assert all(group["lastFailure"]["message"] == words for group in status["groups"])
    assert STATUS < len(json.dumps(status).encode()) < FAILED


def test_scale_down_removes_failed_groups_first_and_scale_up_fills_gaps() -> None:
    fleet = Fleet(GROUPS)
    before = fleet.groups
    fleet.break_(41)
    fleet.scale(99)
    assert missing(fleet.groups) == [41, 100], "the group that does not serve is removed"
    fleet.break_()
    fleet.scale(98)
    assert missing(fleet.groups) == [41, 99, 100], "if all serve, the highest number is removed"
    fleet.scale(99)
    assert missing(fleet.groups) == [99, 100], "the free number is used"
    fleet.scale(100)
    assert missing(fleet.groups) == [100]
    now = fleet.groups
    assert {number for number in before if now[number] != before[number]} == {41, 99}


def test_number_of_writes_is_proportional_to_the_number_of_groups() -> None:
    """The number of writes for a service is proportional to its number of groups. The number of reconciliations does not
    grow, because groups start and stop in parallel.
    """
    few, many = Fleet(GROUPS // 4), Fleet(GROUPS)
    more = GROUPS - GROUPS // 4
    assert dict(many.work - few.work) == {"apply StatefulSet": 2 * more}
    assert few.passes < 20 and many.passes < 20
    for fleet in (few, many):
        fleet.work.clear()
        fleet.passes = 0
        fleet.scale(2)
    assert many.work["delete StatefulSet"] - few.work["delete StatefulSet"] == 2 * more
    assert many.work["patch Pod"] - few.work["patch Pod"] == more
    assert many.work["delete Pod"] <= 2 * more + few.work["delete Pod"], "workers ignore SIGTERM"
    assert set(many.work) == {"delete StatefulSet", "patch Pod", "delete Pod"}
    assert few.passes < 40 and many.passes < 40
