"""Tests of dry runs: what the API server answers about the pods of a new revision, and about the same pods of the serving
revision.
"""

from collections.abc import Callable
from typing import Any

import pytest

from ome_operator import keys
from ome_operator.cache.scope import EVERYWHERE
from ome_operator.controllers.inferenceservice import dry_run
from ome_operator.controllers.inferenceservice.dry_run import UNANSWERED
from ome_operator.controllers.inferenceservice.execution import Execution
from ome_operator.controllers.inferenceservice.memory import PASS_KEPT
from ome_operator.controllers.pod_dry_runs import PROBE, PodDryRuns
from ome_operator.core.placement.quotas import QuotaChange, of_pod
from ome_operator.core.reconcile.plan import Check, PodQuestion
from ome_operator.kube.errors import AlreadyExists, Conflict, Forbidden, Invalid, KubeError, NotFound, ServerError, TooMany
from tests.support.fake_api import Call, FakeApi
from tests.unit.controllers import makers
from tests.unit.controllers.test_pod_dry_runs import DENIED, NO_RIGHT, READ

KEY = "r2.abc"
SET = {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "w", "namespace": "ns"}}
NO = Forbidden('pods "new" is forbidden: images of other.example.com are not allowed', 403)
FULL = Forbidden('pods "new" is forbidden: exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1', 403)
SIDE_EFFECTS = Invalid('admission webhook "a.example.com" does not support dry run', 400)
DOWN = ServerError('failed calling webhook "a.example.com"', 500)
NO_LIST = Forbidden('resourcequotas is forbidden: User "x" cannot list resource "resourcequotas"', 403)


def pod(name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "ns"}, "spec": {"containers": []}}


QUESTION = PodQuestion("decode leader", pod("new"), pod("old"))
ROOM = QuotaChange(((of_pod({"containers": []}), 1),), ())
Answers = dict[str, KubeError | None]


class Bench:
    """An API server with an answer for each pod name, and a service whose pods are created in dry runs."""

    def __init__(self, answers: Answers, **more: Any) -> None:
        self.answers, self.now = answers, 0.0
        given = {"create Pod": self._answer, "list_objects ResourceQuota": [], **READ, **more}
        self.api = FakeApi(given)
        self.pods = PodDryRuns(self.api, EVERYWHERE, keys.MANAGER, lambda: self.now)
        self.execution: Execution = makers.execution(clock=lambda: self.now)

    def _answer(self, call: Call) -> KubeError | None:
        assert call.dry_run, "no request creates a pod"
        return self.answers.get(call.name, DENIED if call.name == PROBE else None)

    async def ask(self, *questions: PodQuestion, quotas: QuotaChange | None = None) -> tuple[str | None, str]:
        """Run the dry runs. Return the result as the next pass sees it ("" if the pods were accepted, None if it is
        unknown), and the text about the dry runs for the condition Advice.
        """
        check = Check(KEY, (SET,), questions or (QUESTION,), quotas)
        try:
            await dry_run.ask(self.api, self.pods, self.execution, check)
        except KubeError as error:
            self.execution.result.error = error
        memory = self.execution.memory
        return memory.valid_checks(self.now).get(KEY), memory.remarks().get("r2", "")

    @property
    def asked(self) -> list[str]:
        """Return the names of the pods in the dry runs."""
        return [call.name for call in self.api.calls if call.verb == "create" and call.name != PROBE]


TOO = "decode leader pod: the API server refuses this pod of the serving revision, too: "


@pytest.mark.parametrize(
    ("answers", "why", "remark", "asked"),
    [
        ({}, "", "", ["new"]),
        ({"new": NO}, f"decode leader pod: {NO}", "", ["new", "old"]),
        ({"new": Invalid("no such policy", 422)}, "decode leader pod: no such policy", "", ["new", "old"]),
        ({"new": NO, "old": NO}, "", f"{TOO}{NO}", ["new", "old"]),
        ({"new": AlreadyExists("taken", 409)}, "", "", ["new"]),
        ({"new": FULL}, "", "", ["new"]),
        ({"new": NO, "old": FULL}, f"decode leader pod: {NO}", "", ["new", "old"]),
        ({"new": NO, "old": AlreadyExists("taken", 409)}, f"decode leader pod: {NO}", "", ["new", "old"]),
        ({"new": SIDE_EFFECTS}, "", str(SIDE_EFFECTS), ["new"]),
        ({"new": NO_RIGHT}, "", str(NO_RIGHT), ["new"]),
    ],
)
async def test_dry_run_refusal_counts_only_if_the_serving_pod_is_accepted(
    answers: Answers, why: str, remark: str, asked: list[str]
) -> None:
    bench = Bench(answers)
    assert await bench.ask() == (why, remark)
    assert bench.asked == asked


def by_policy(name: str, said: str) -> Forbidden:
    return Forbidden(f"pods is forbidden: ValidatingAdmissionPolicy '{name}' with binding 'b' denied request: {said}")


def by_level(said: str) -> Forbidden:
    return Forbidden(f'pods "x" is forbidden: violates PodSecurity "baseline:latest": {said}', 403)


@pytest.mark.parametrize(
    ("new", "old", "counts"),
    [
        (by_policy("repos", "image b"), by_policy("repos", "image a"), False),
        (by_policy("repos", "image b"), by_policy("owners", "no owner"), True),
        (by_level("hostPath volumes"), by_level("hostPath volumes"), False),
        (by_level("host namespaces, hostPath volumes"), by_level("hostPath volumes"), True),
        (by_policy("repos", "image b"), by_level("hostPath volumes"), True),
        (Forbidden("maximum cpu is 2, but limit is 4"), Forbidden("maximum cpu is 2, but limit is 3"), False),
        (Forbidden('admission webhook "a" denied the request: b'), Forbidden('admission webhook "a" denied: c'), False),
        (Forbidden('admission webhook "a" denied the request: b'), Forbidden('admission webhook "c" denied: b'), True),
    ],
)
async def test_dry_run_refusal_counts_if_the_serving_pod_has_another_cause(
    new: KubeError, old: KubeError, counts: bool
) -> None:
    why, remark = await Bench({"new": new, "old": old}).ask()
    assert (why, remark) == ((f"decode leader pod: {new}", "") if counts else ("", f"{TOO}{new}"))


async def test_new_pod_without_counterpart_is_refused_on_its_own() -> None:
    assert (await Bench({"new": NO}).ask(QUESTION._replace(serving=None)))[0] == f"decode leader pod: {NO}"


async def test_router_dry_run_is_compared_with_the_serving_pod() -> None:
    live = {"metadata": {"name": "live-x", "generateName": "live-", "namespace": "ns"}, "spec": {"containers": []}}
    asks = QUESTION._replace(title="router", serving=None, live="live-x")
    for answer, why in ((None, f"router pod: {NO}"), (NO, "")):
        refused: Callable[[Call], Any] = lambda call, answer=answer: {  # noqa: E731
            "new": NO, PROBE: DENIED
        }.get(call.name, answer)  # fmt: skip
        bench = Bench({}, **{"get Pod": live, "create Pod": refused})
        assert (await bench.ask(asks))[0] == why
    bench = Bench({"new": NO}, **{"get Pod": NotFound("gone", 404)})
    assert (await bench.ask(asks))[0] == f"router pod: {NO}"


async def test_dry_run_asks_about_all_pods_and_first_relevant_refusal_is_returned() -> None:
    second = PodQuestion("decode worker", pod("worker"), pod("old-worker"))
    bench = Bench({"new": NO, "old": NO, "worker": Invalid("no", 422)})
    assert await bench.ask(QUESTION, second) == ("decode worker pod: no", "")
    assert bench.asked == ["new", "old", "worker", "old-worker"]


async def test_dry_run_remark_names_one_pod_per_cause() -> None:
    level, other = by_level("hostPath volumes"), by_policy("repos", "image")
    names = ("a", "b", "c")
    bench = Bench({"a": level, "old-a": level, "b": level, "old-b": level, "c": other, "old-c": other})
    why, remark = await bench.ask(*(PodQuestion(name, pod(name), pod(f"old-{name}")) for name in names))
    assert why == "" and remark.count("refuses this pod") == 2 and remark.startswith("a pod: ") and "; c pod: " in remark


# --- no answer ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [DOWN, TooMany("slow down", 429, 1.0), Conflict("an odd webhook", 409)])
@pytest.mark.parametrize("name", ["new", "old", PROBE])
async def test_unanswered_dry_run_waits_for_a_limited_time(error: KubeError, name: str) -> None:
    if name == PROBE and isinstance(error, Conflict):
        return  # no answer about the pods, because the policy cannot be tested
    bench = Bench({"new": NO, name: error})
    assert await bench.ask() == (None, str(error))
    assert bench.execution.result.error is error and bench.execution.result.status_changed
    assert bench.execution.result.requeue_after == UNANSWERED
    bench.now, bench.execution.result.status_changed = UNANSWERED - 1.0, False
    assert await bench.ask() == (None, str(error))
    assert not bench.execution.result.status_changed, "the same message is not written again"
    bench.now = UNANSWERED
    assert await bench.ask() == ("", f"there was no answer for 300 s: {error}")


async def test_late_dry_run_result_is_used() -> None:
    bench = Bench({"new": DOWN})
    await bench.ask()
    bench.now, bench.answers["new"] = 60.0, NO
    assert await bench.ask() == (f"decode leader pod: {NO}", "")


async def test_dry_run_refusal_is_kept_until_there_is_another_result() -> None:
    bench = Bench({"new": NO})
    refused = (await bench.ask())[0]
    assert await bench.ask() == (refused, "") and bench.asked == ["new", "old"], "not asked again at once"
    bench.now, bench.answers["new"] = 6.0, DOWN
    assert (await bench.ask())[0] == f"{refused} (a repeated dry run gave no result: {DOWN})"
    bench.now, bench.answers["new"] = 30.0, None
    assert await bench.ask() == ("", "")


async def test_successful_dry_run_is_repeated_after_it_expired() -> None:
    bench = Bench({})
    memory = bench.execution.memory
    await bench.ask()
    bench.now = PASS_KEPT
    assert memory.valid_checks(bench.now) == {KEY: ""} and memory.valid_checks(bench.now, waits=True) == {}
    bench.answers["new"] = DOWN
    assert await bench.ask() == (None, str(DOWN)), "a result from minutes ago no longer counts"
    bench.answers["new"] = NO
    assert (await bench.ask())[0] == f"decode leader pod: {NO}"


async def test_dry_run_is_repeated_if_a_revision_becomes_the_target_again() -> None:
    """If a revision becomes the target again, its dry run is repeated. A rollback a day later must not rely on what was
    accepted the day before.
    """
    bench = Bench({})
    await bench.ask()
    await dry_run.ask(bench.api, bench.pods, bench.execution, Check("r3.abc", (SET,), (QUESTION,)))
    assert bench.execution.memory.valid_checks(bench.now) == {"r3.abc": ""}
    bench.answers["new"] = NO
    assert (await bench.ask())[0] == f"decode leader pod: {NO}"


async def test_unanswered_time_restarts_if_no_dry_run_was_made_meanwhile() -> None:
    bench = Bench({"new": DOWN})
    await bench.ask()
    bench.now = UNANSWERED + 1.0
    assert await bench.ask() == (None, str(DOWN))
    bench.now += UNANSWERED - 1.0
    assert await bench.ask() == (None, str(DOWN))
    bench.now += 1.0
    assert (await bench.ask())[0] == ""


async def test_changed_dry_run_of_the_same_revision_replaces_the_first() -> None:
    bench = Bench({"new": NO, "old": NO})
    await bench.ask()
    check = Check("r2.def", (SET,), (QUESTION._replace(pod=pod("mended")),))
    await dry_run.ask(bench.api, bench.pods, bench.execution, check)
    assert bench.execution.memory.valid_checks(0.0) == {"r2.def": ""} and bench.execution.memory.remarks() == {}


# --- rights and quotas --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("probe", "words"), [(NO_RIGHT, "has no right to create pods"), (None, "does not apply to this operator")]
)
async def test_no_pod_dry_run_is_made_without_permission_or_policy(probe: KubeError | None, words: str) -> None:
    bench = Bench({"new": NO, PROBE: probe})
    why, remark = await bench.ask()
    assert why == "" and words in remark and bench.asked == []


async def test_a_check_without_pods_tests_no_policy() -> None:
    bench = Bench({})
    await dry_run.ask(bench.api, bench.pods, bench.execution, Check(KEY, (SET,)))
    assert bench.api.kinds("create") == [] and bench.api.kinds("list_objects") == []


@pytest.mark.parametrize("refused", ["apply StatefulSet", "create Pod"])
async def test_quota_check_computes_the_result_without_a_dry_run(refused: str) -> None:
    """Whether a quota permits the new pods is computed. A dry run would be refused, because it does not know which pods the
    rollout removes.
    """
    bench = Bench({"new": FULL} if refused == "create Pod" else {})
    if refused == "apply StatefulSet":
        bench.api.answers[refused] = FULL
    assert await bench.ask(quotas=ROOM) == ("", "")
    small = {"metadata": {"name": "q"}, "status": {"hard": {"pods": "1"}, "used": {"pods": "1"}}}
    bench = Bench({}, **{"list_objects ResourceQuota": [small]})
    why, _ = await bench.ask(quotas=ROOM)
    assert why is not None and why.startswith(
        "ResourceQuota q has too little left: the new revision needs 1 pods, but only 0 would be available"
    )
    assert bench.asked == [], "the quota alone decides"


async def test_unreadable_quotas_are_left_to_the_dry_run() -> None:
    bench = Bench({}, **{"list_objects ResourceQuota": NO_LIST})
    assert await bench.ask(quotas=ROOM) == ("", f"the quotas of the namespace were not compared: {NO_LIST}")
    bench = Bench({}, **{"list_objects ResourceQuota": NO_LIST, "apply StatefulSet": FULL})
    assert (await bench.ask(quotas=ROOM))[0] == str(FULL)


async def test_webhook_with_side_effects_does_not_refuse_the_dry_run() -> None:
    assert await Bench({}, **{"apply StatefulSet": SIDE_EFFECTS}).ask() == ("", "")
