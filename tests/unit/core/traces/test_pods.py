"""Tests of the attributes of spans that identify the pod."""

from typing import Any

from ome_operator.core.traces.pods import SpanOrigin, add_trace_arguments

PLACE = SpanOrigin("svc", "team", "r1", "decode")
OURS = "ome.service=svc,ome.revision=r1,ome.role=decode,ome.group=$(LWS_GROUP_INDEX),ome.rank=$(LWS_WORKER_INDEX)"
POD = "k8s.namespace.name=team,k8s.pod.name=$(POD_NAME)"
SGLANG = {"image": "sglang:0.5.23", "command": ["sglang", "serve"]}


def env(place: SpanOrigin = PLACE, *theirs: dict[str, Any]) -> dict[str, Any]:
    found = add_trace_arguments({**SGLANG, "env": list(theirs)}, "c:4317", place)["env"]
    return {each["name"]: each.get("value", each.get("valueFrom")) for each in found}


def test_engine_spans_identify_service_revision_role_group_rank_and_pod() -> None:
    assert env() == {"OTEL_RESOURCE_ATTRIBUTES": f"{OURS},{POD}", "OTEL_SERVICE_NAME": "svc-decode"}


def test_router_spans_have_no_group() -> None:
    assert env(PLACE._replace(title="router")) == {
        "OTEL_RESOURCE_ATTRIBUTES": f"ome.service=svc,ome.revision=r1,ome.role=router,{POD}",
        "OTEL_SERVICE_NAME": "svc-router",
    }


def test_user_trace_variables_take_precedence_and_order_is_kept() -> None:
    theirs = {"name": "OTEL_RESOURCE_ATTRIBUTES", "value": "a=$(A)"}, {"name": "A", "value": "1"}
    found = env(PLACE, *theirs, {"name": "OTEL_SERVICE_NAME", "value": "mine"})
    assert [*found] == ["A", "OTEL_SERVICE_NAME", "OTEL_RESOURCE_ATTRIBUTES"]
    assert found["OTEL_RESOURCE_ATTRIBUTES"] == f"{OURS},{POD},a=$(A)" and found["OTEL_SERVICE_NAME"] == "mine"
    whole = {"configMapKeyRef": {"name": "m", "key": "k"}}
    assert env(PLACE, {"name": "OTEL_RESOURCE_ATTRIBUTES", "valueFrom": whole})["OTEL_RESOURCE_ATTRIBUTES"] == whole
