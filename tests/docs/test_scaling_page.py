"""Tests that the examples in docs/scaling.md and docs/demand.md do what the pages say."""

import re
import textwrap
from pathlib import Path
from typing import Any

import yaml

from ome_operator.api.scaling import DemandPolicy
from ome_operator.core.render import meta, scaled_object, scaling
from ome_operator.core.resolve.scaling import ReplicaPolicy, replica_policy
from ome_operator.core.rollout import demand_fields
from tests.support import parts

PAGES = [Path(__file__).parents[2] / "docs" / name for name in ("scaling.md", "demand.md")]


def blocks() -> list[dict[str, Any]]:
    """Return the YAML documents of both pages."""
    found = [match for page in PAGES for match in re.findall(r"^( *)```yaml\n(.*?)^ *```", page.read_text(), re.M | re.S)]
    return [yaml.safe_load(textwrap.dedent(text)) for _, text in found]


def services() -> list[ReplicaPolicy]:
    """Return the replica policies of the example services, in the order of the pages: manual, zero, HPA, node autoscalers,
    KEDA, Demand.
    """
    specs = [block["spec"] for block in blocks() if set(block) == {"spec"}]
    return [replica_policy(parts.service(**{"engine": {}, **spec}), None, "decoder") for spec in specs]


def test_scaling_examples_have_the_documented_effect() -> None:
    hand, woken, hpa, kept, keda, followed = services()
    assert (followed.demand, followed.low, followed.high, followed.autoscaled) == (True, 1, 4, False)
    assert (woken.low, woken.high, woken.is_scaled, woken.autoscaled) == (0, 4, True, False)
    assert [one.node_scale_down for one in (hand, hpa, kept, keda)] == ["", "", "Forbid", ""]
    assert [(one.low, one.high, one.is_scaled, one.autoscaled) for one in (hand, hpa, keda)] == [
        (1, 4, True, False), (1, 4, True, True), (1, 4, True, False),
    ]  # fmt: skip
    owner = meta.Owner("kimi-k2", "team", "u")
    spec = scaling.autoscaler(owner, "decoder", hpa)["spec"]
    assert spec["metrics"][0]["pods"]["metric"]["name"] == next(
        rule["name"]["as"] for block in blocks() if "rules" in block for rule in block["rules"]
    )
    assert scaling.advice(owner, "decoder", hpa, 1) == scaling.advice(owner, "decoder", keda, 1) == []


def test_every_field_of_the_demand_example_has_an_effect() -> None:
    (spec,) = (block["spec"] for block in blocks() if "demand" in block.get("spec", {}).get("scalingPolicy", {}))
    service = parts.service(**spec)
    policies = {name: replica_policy(service, None, name) for name in ("engine", "decoder", "router")}
    gpus = {"engine": 8, "decoder": 8}
    assert not demand_fields.problem(service, policies, gpus)
    assert [*demand_fields.advice(service, policies, gpus)] == []
    assert set(service.spec.scaling_policy.demand.dump()) == {  # type: ignore[union-attr]
        field.alias or name for name, field in DemandPolicy.model_fields.items()
    }


def test_keda_example_gets_the_documented_scaled_object() -> None:
    (shown,) = (block for block in blocks() if block.get("kind") == "ScaledObject")
    made = scaled_object.scaled_object(meta.Owner("kimi-k2", "NAMESPACE", "u"), "decoder", services()[4])
    assert {**shown, "metadata": made["metadata"]} == made
    assert shown["metadata"] == {name: made["metadata"][name] for name in ("name", "namespace")}


def test_documented_pod_monitor_selects_leaders() -> None:
    (made,) = (block for block in blocks() if block.get("kind") == "PodMonitor")
    wanted = made["spec"]["selector"]["matchLabels"]
    assert wanted.items() <= {**meta.labels("kimi-k2", "decoder", "r1"), **meta.leaders("kimi-k2", "decoder")}.items()
