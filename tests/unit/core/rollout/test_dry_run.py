"""Tests of the dry runs of a revision before the serving slice is removed, and of the effects of their results."""

from dataclasses import replace

import pytest

from ome_operator import keys
from ome_operator.core.observed.objects import Observed
from ome_operator.core.placement.quotas import QuotaChange
from ome_operator.core.reconcile.plan import Check, Plan
from ome_operator.core.reconcile.sync import sync
from tests.support.shapes import Shape
from tests.support.simulator import World

SHAPE = Shape(size=2, engines=1, decoders=2)


def serving(shape: Shape = SHAPE) -> World:
    """Return a service that serves."""
    world = World(shape.service(), shape.deps(), 1)
    world.settle()
    return world


def edited(world: World, shape: Shape) -> World:
    """Edit the service, and return it."""
    world.edit(shape.service(), shape.deps())
    return world


def passed(world: World, **more: object) -> Plan:
    """Return the plan of a reconciliation that observes these facts in addition."""
    return sync(world.service, world.deps, replace(world.observed(), **more), world.now)


def condition(plan: Plan, type_: str) -> tuple[str, str]:
    found = next((one for one in plan.status["conditions"] if one["type"] == type_), {"reason": "", "message": ""})
    return found["reason"], found["message"]


def check(world: World) -> Check:
    (found,) = world.sync().check
    return found


def test_dry_run_contains_one_pod_per_template_with_its_serving_counterpart() -> None:
    asked = check(edited(serving(), replace(SHAPE, image="b"))).pods
    assert [each.title for each in asked] == ["prefill leader", "prefill worker", "decode leader", "decode worker", "router"]
    for each in asked[:-1]:
        assert each.serving is not None and each.pod["kind"] == each.serving["kind"] == "Pod"
        new, old = ({box["image"] for box in pod["spec"]["containers"]} for pod in (each.pod, each.serving))
        assert new != old and each.pod["metadata"]["labels"].keys() == each.serving["metadata"]["labels"].keys()
    workers = [each.pod["metadata"]["name"] for each in asked if each.title.endswith("worker")]
    assert all(name.endswith("-0-w-1") for name in workers), "rank 1 of group 0"
    assert asked[-1].serving is None, "the template of a router is not stored"


def test_dry_run_names_the_serving_router() -> None:
    world = edited(serving(), replace(SHAPE, image="b"))
    live = check(world).pods[-1].live
    assert world.pods[live].labels[keys.COMPONENT] == keys.ROUTER and world.pods[live].ready


@pytest.mark.parametrize(
    ("before", "after", "without"),
    [
        (replace(SHAPE, decoders=0, router=False), SHAPE, {"decode leader", "decode worker"}),
        (replace(SHAPE, size=1), SHAPE, set()),
    ],
)
def test_new_worker_is_compared_with_the_old_leader_if_there_was_no_worker(
    before: Shape, after: Shape, without: set[str]
) -> None:
    """A new pod is compared with a pod of the old revision. If the old revision has no worker in a role, a new worker is
    compared with the leader of that role.
    """
    asked = check(edited(serving(before), replace(after, image="b"))).pods
    assert {each.title for each in asked if each.serving is None} == without | {"router"}


def test_dry_run_of_a_new_router_omits_its_service_account() -> None:
    """A new router's pod is sent in a dry run without its ServiceAccount. The operator creates the ServiceAccount together
    with the router, and until then admission would refuse a pod that names it.
    """
    before = replace(SHAPE, decoders=0, router=False)
    (router,) = (each for each in check(edited(serving(before), SHAPE)).pods if each.title == "router")
    assert "serviceAccountName" not in router.pod["spec"] and router.live == ""
    (router,) = (each for each in check(edited(serving(), replace(SHAPE, image="b"))).pods if each.title == "router")
    assert router.pod["spec"]["serviceAccountName"] == "svc-router"


def test_refused_dry_run_keeps_serving_pods_and_router_edit_repeats_it() -> None:
    world = serving()
    pods = world.living_pods()
    world.verdict = lambda _: "router pod: no"
    edited(world, replace(SHAPE, image="b"))
    key = check(world).revision
    world.settle()
    assert world.living_pods() == pods
    assert condition(world.sync(), "RolledOut")[0] == "DryRunRefused"
    spec = {**world.service.spec.model_dump(by_alias=True, exclude_none=True), "router": {"labels": {"a": "b"}}}
    world.edit(replace(world.service, spec=type(world.service.spec).model_validate(spec)))
    again = check(world).revision
    assert again != key and again.partition(".")[0] == key.partition(".")[0], "the revision is the same"


def test_service_without_an_old_slice_makes_no_dry_run() -> None:
    world = World(SHAPE.service(), SHAPE.deps(), 1)
    asked: list[Check] = []
    world.watcher = lambda plan: asked.extend(plan.check)
    world.settle()
    assert asked == [], "a new service has nothing to lose"
    world.settle()
    assert asked == [], "neither has a service without an edit"


def test_rollout_requests_one_dry_run() -> None:
    world, asked = serving(), list[Check]()
    world.watcher = lambda plan: asked.extend(plan.check)
    edited(world, replace(SHAPE, image="b"))
    world.settle()
    assert (
        len({each.revision for each in asked}) == len(asked) == 1 and condition(world.sync(), "RolledOut")[0] == "Complete"
    )


def test_condition_states_why_the_dry_run_has_no_result() -> None:
    world = edited(serving(), replace(SHAPE, image="b"))
    target = check(world).revision.partition(".")[0]
    plan = passed(world, remarks={target: "failed calling webhook"})
    assert condition(plan, "RolledOut") == (
        "Checking",
        f"revision {target}: the API server checks its workloads and pods in a dry run (no answer yet: failed calling "
        "webhook)",
    )  # fmt: skip
    assert not plan.delete and not plan.patch


def test_unchecked_pods_give_advice_until_the_rollout_is_complete() -> None:
    world = edited(serving(), replace(SHAPE, image="b"))
    asked = check(world)
    target = asked.revision.partition(".")[0]
    said = f"the dry run did not check every pod of revision {target}, and the revision is rolled out nevertheless: no right"
    facts = {"remarks": {target: "no right"}, "checks": {asked.revision: ""}}
    plan = passed(world, **facts)
    assert condition(plan, "Advice") == ("ClusterWarnings", said) and plan.delete, "the rollout continues"
    world.carry_out(plan)
    for _ in range(6):
        world.carry_out(world.sync())
        world.step()
    assert world.sync().rolls and condition(passed(world, **facts), "Advice")[1] == said
    world.settle()
    assert condition(passed(world, **facts), "Advice") == ("", "")


# --- quotas -------------------------------------------------------------------------------------------------------------


def amounts(change: QuotaChange | None) -> tuple[dict[str, int], dict[str, int]]:
    """Return the numbers of pods and workloads that a rollout adds, and those that it removes."""
    assert change is not None
    out = []
    for side in change:
        total: dict[str, int] = {}
        for usage, number in side:
            for name, amount in usage.amounts:
                if name == "pods" or name.startswith("count/"):
                    total[name] = total.get(name, 0) + amount * number
        out.append(total)
    return out[0], out[1]


def test_quota_change_of_an_image_edit_is_balanced() -> None:
    comes, goes = amounts(check(edited(serving(), replace(SHAPE, image="b"))).quotas)
    assert comes == goes == {
        "pods": 7, "count/pods": 7, "count/statefulsets.apps": 6, "count/deployments.apps": 1
    }  # fmt: skip


def test_quota_check_does_not_require_additional_groups() -> None:
    comes, goes = amounts(check(edited(serving(), replace(SHAPE, image="b", decoders=5))).quotas)
    assert comes["pods"] == goes["pods"] == 7
    comes, goes = amounts(check(edited(serving(), replace(SHAPE, image="b", decoders=1))).quotas)
    assert (comes["pods"], goes["pods"]) == (5, 7)


def test_quota_check_counts_pods_of_larger_groups() -> None:
    comes, goes = amounts(check(edited(serving(), replace(SHAPE, size=3))).quotas)
    assert (comes["pods"], goes["pods"]) == (10, 7)


def test_quotas_are_not_checked_while_pods_terminate_or_if_disabled() -> None:
    world = edited(serving(), replace(SHAPE, image="b"))
    seen: Observed = world.observed()
    ending = replace(seen, pods=(seen.pods[0]._replace(deleting=True), *seen.pods[1:]))
    (asked,) = sync(world.service, world.deps, ending, world.now).check
    assert asked.quotas is None and asked.pods
    world.edit(replace(world.service, annotations={keys.IGNORE_FIT: "true"}))
    assert check(world).quotas is None
