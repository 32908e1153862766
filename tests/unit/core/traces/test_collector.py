"""Tests of the address of the collector to which pods send spans of traces. The tests cover where the address is
configured, which part of the configuration belongs to a revision, and what the status reports about it (decisions 2 and 5).
"""

from dataclasses import replace
from typing import Any

import pytest

from ome_operator import keys
from ome_operator.api import InferenceService
from ome_operator.core.observed.objects import Manifest
from ome_operator.core.reconcile.plan import Plan
from ome_operator.core.reconcile.sync import sync
from ome_operator.core.traces.collector import endpoint, of_router, parse_endpoint
from tests.support import linting, parts
from tests.support.simulator import World

NOTE = keys.TRACES
C, D = "collector:4317", "other:4317"
ENGINE = parts.container(image="sglang:0.5.23", command=["sglang", "serve"], args=["--port=30000"])
ROUTER = parts.container("router", image="sglang-router:0.3.2", args=["--service-discovery", "--selector", "a=b"])


def service(note: str | None = None, **components: str) -> InferenceService:
    notes = {"annotations": {NOTE: note}} if note is not None else {}
    written: dict[str, Any] = {name: {} for name in ("engine", "decoder", "router")}
    written |= {name: {"annotations": {NOTE: value}} for name, value in components.items()}
    return parts.service(**written, **notes)


def runtime(note: str | None = None, box: Manifest = ENGINE, routes: Manifest = ROUTER, **more: str) -> Any:
    config = {
        name: {"runner": runner, **({"annotations": {NOTE: more[name]}} if name in more else {})}
        for name, runner in (("engine", box), ("decoder", box), ("router", routes))
    }
    spec = {f"{name}Config": part for name, part in config.items()}
    return parts.runtime(**spec, **({"annotations": {NOTE: note}} if note is not None else {}))


def world(asked: InferenceService, of: Any = None) -> World:
    return World(asked, parts.deps(parts.model(), of or runtime()), 1)


def first(asked: InferenceService, of: Any = None) -> Plan:
    """Return the plan of the first pass."""
    made = world(asked, of)
    return sync(made.service, made.deps, made.observed(), made.now)


def boxes(plan: Plan) -> dict[str, Manifest]:
    """Return the main container of each role."""
    (revision,) = [each.manifest for each in plan.first if each.manifest["kind"] == "ControllerRevision"]
    roles = {name: role["leader"]["spec"]["template"] for name, role in revision["data"]["workloads"].items()}
    (router,) = [each.manifest for each in plan.apply if each.manifest["kind"] == "Deployment"]
    roles["router"] = router["spec"]["template"]
    return {name: template["spec"]["containers"][0] for name, template in roles.items()}


def sent(plan: Plan) -> dict[str, str]:
    """Return the address to which each role sends its spans; "" if it sends none."""
    flag = "--otlp-traces-endpoint="
    words = {name: box["args"] for name, box in boxes(plan).items()}
    assert all(("--enable-trace" in args) == any(word.startswith(flag) for word in args) for args in words.values())
    return {name: next((w.removeprefix(flag) for w in args if w.startswith(flag)), "") for name, args in words.items()}


def everywhere(collector: str) -> dict[str, str]:
    return dict.fromkeys(("engine", "decoder", "router"), collector)


def advice(plan: Plan) -> str:
    return next((each["message"] for each in plan.status["conditions"] if each["type"] == "Advice"), "")


def revision(plan: Plan) -> str:
    return next(each.manifest["metadata"]["name"] for each in plan.first)


@pytest.mark.parametrize(
    ("asked", "of", "wanted"),
    [
        (service(), runtime(), everywhere("")),
        (service(C), runtime(), everywhere(C)),
        (service(), runtime(C), everywhere(C)),
        (service(D), runtime(C), everywhere(D)),
        (service("off"), runtime(C), everywhere("")),
        (service(engine="Off"), runtime(C), {**everywhere(C), "engine": ""}),
        (service(C, router=D), runtime(), {**everywhere(C), "router": D}),
        (service(), runtime(C, router="Off", decoder=D), {"engine": C, "decoder": D, "router": ""}),
        (service("no endpoint"), runtime(C), everywhere(C)),
    ],
)
def test_trace_endpoint_of_component_takes_precedence(asked: InferenceService, of: Any, wanted: dict[str, str]) -> None:
    assert sent(first(asked, of)) == wanted


def test_trace_endpoint_is_part_of_the_revision() -> None:
    assert len({revision(first(service(note))) for note in (None, C, D, "Off")}) == 4
    assert len({revision(first(service(), runtime(note))) for note in (None, C, D)}) == 3
    assert revision(first(service(router=C))) == revision(first(service())), "the router is not part of the revision"


def test_pods_without_trace_endpoint_have_no_trace_settings() -> None:
    plan = first(service())
    assert "OTEL" not in str(plan) and "trace" not in str([*plan.first, *plan.apply]) and "trace" not in advice(plan)


def test_running_revision_and_its_router_do_not_get_a_new_trace_endpoint() -> None:
    made = world(service())
    made.settle()
    (before,) = [child.manifest for key, child in made.children.items() if key[0] == "Deployment"]
    made.edit(service=replace(made.service, annotations={NOTE: C}))
    args: dict[str, set[bool]] = {}
    for _ in range(60):
        plan = made.sync()
        for each in plan.apply:
            if each.manifest["kind"] in ("Deployment", "StatefulSet"):
                told = "--enable-trace" in str(each.manifest)
                args.setdefault(each.manifest["metadata"]["labels"][keys.REVISION], set()).add(told)
        made.carry_out(plan)
        made.step()
    old = before["metadata"]["labels"][keys.REVISION]
    assert args.pop(old, {False}) == {False} and [*args.values()] == [{True}]


def test_unsupported_trace_settings_are_reported_as_advice() -> None:
    old = {**ENGINE, "image": "sglang:0.4.9.post2"}
    plan = first(service(C), runtime(box=old, routes={**ROUTER, "image": "sglang-router:0.2.4"}))
    assert sent(plan) == everywhere("")
    assert "is not applied to the prefill: SGLang 0.4.9.post2 does not support --enable-trace" in advice(plan)
    assert "is not applied to the decode: SGLang 0.4.9.post2 does not support --enable-trace" in advice(plan)
    assert "is not applied to the router: it is not known whether sglang-router 0.2.4 supports" in advice(plan)
    plan = first(service("http://c:1", router="c"), runtime("c:0"))
    assert f"annotation {NOTE} of the service is ignored: 'http://c:1' is neither HOST:PORT nor Off" in advice(plan)
    assert "of spec.router is ignored: 'c'" in advice(plan)
    assert "of spec of runtime rt is ignored: 'c:0'" in advice(plan)
    assert sent(plan) == everywhere("")


def test_trace_endpoint_is_parsed() -> None:
    good = ("c:1", "10.0.0.1:4317", "a.b-c.d:65535", "[fd00::1]:4317", "$(HOST_IP):4317", " c:1 ", "OFF")
    assert [parse_endpoint(each) for each in good] == [*(each.strip() for each in good[:-1]), "Off"]
    bad = (
        "",
        "c",
        ":1",
        "c:0",
        "c:65536",
        "c:x",
        "http://c:1",
        "c:1/x",
        "-c:1",
        "a b:1",
        "$(A-B):1",
        "c:1 --x",
        None,
        False,
    )
    assert [parse_endpoint(each) for each in bad] == [""] * len(bad)
    assert endpoint({}, "engine") == of_router({}, {}, {}) == ""


def test_lint_accepts_rendered_trace_arguments() -> None:
    bodies = parts.read_documents(parts.ROOT / "tests/golden/traces/in.yaml")
    (subject,) = [each for each in linting.looked_at(bodies) if each.service]
    said = [launch.words for _, launch in subject.launched()]
    assert len(said) == 3 and all("--enable-trace" in words for words in said)
    assert not [each for each in linting.found(bodies) if "trace" in each.hit.says.lower()]
