"""Tests of the router of a service with `router: {}` whose runtime configures no router."""

from typing import Any

import pytest

from ome_operator.core.observed.objects import Observed
from ome_operator.core.podspec.default_router import default_router
from ome_operator.core.reconcile.sync import sync
from tests.support import parts
from tests.support.simulator import START

COMMAND = ["python3", "-m", "sglang.launch_server"]
PAIR: dict[str, Any] = {"engine": {}, "decoder": {}, "router": {}}


def sglang(*args: str) -> dict[str, Any]:
    """Return a component that runs SGLang."""
    return {"runner": parts.container(image="sglang:1", command=COMMAND, args=list(args))}


def made(runtime: dict[str, Any], service: dict[str, Any]) -> Any:
    """Return the routerConfig of the router that a service with `router: {}` gets by default. Return None if it gets none:
    if the runtime configures a router, or if the default router could not reach the engines.
    """
    found = default_router(parts.runtime(**runtime).spec, parts.service(**service).spec)
    return found and found["routerConfig"]


def test_default_router_equals_router_of_the_shipped_runtime() -> None:
    shipped = parts.in_config("kimi-k2-pd-rt", "ClusterServingRuntime")
    assert shipped is not None
    assert made({"engineConfig": sglang(), "decoderConfig": sglang("--port=30000")}, PAIR) == shipped["spec"]["routerConfig"]


def test_engines_without_a_decoder_get_one_selector() -> None:
    args = made({"engineConfig": sglang("--port", "31000")}, {"engine": {}, "router": {}})["runner"]["args"]
    assert "--service-discovery-port=31000" in args and "--policy=cache_aware" in args
    assert args[args.index("--selector") + 1].startswith("component=engine ")
    assert not {"--pd-disaggregation", "--prefill-selector"} & set(args)


@pytest.mark.parametrize(
    ("runtime", "service"),
    [
        ({"engineConfig": sglang(), "routerConfig": {}}, {"engine": {}, "router": {}}),
        ({"engineConfig": sglang()}, {"engine": {}, "router": {"runner": {"image": "mine:1"}}}),
        (
            {"engineConfig": sglang()},
            {"engine": {}, "router": {"runner": {"image": "mine/sgl-model-gateway:v0.3.2", "args": ["--x"]}}},
        ),
        ({"engineConfig": sglang()}, {"engine": {}, "router": {"containers": [parts.container()]}}),
        ({"engineConfig": sglang()}, {"router": {}}),
        ({"engineConfig": sglang()}, PAIR),
        ({"engineConfig": sglang(), "decoderConfig": sglang("--port=31000")}, PAIR),
        ({"engineConfig": sglang("--port=$(PORT)")}, {"engine": {}, "router": {}}),
        ({"engineConfig": sglang("--api-key=k")}, {"engine": {}, "router": {}}),
        ({"engineConfig": {"runner": parts.container(command=["vllm", "serve"])}}, {"engine": {}, "router": {}}),
    ],
)
def test_no_default_router_if_it_could_not_reach_the_engines(runtime: dict[str, Any], service: dict[str, Any]) -> None:
    assert made(runtime, service) is None


def test_router_settings_of_the_service_do_not_change_the_engine_revision() -> None:
    deps = parts.deps(parts.model(), parts.runtime(engineConfig=sglang()))
    alone = sync(parts.service(engine={}), deps, Observed(), START)
    routed = sync(
        parts.service(engine={}, router={"runner": {"env": [{"name": "A", "value": "1"}]}}), deps, Observed(), START
    )
    (deployment,) = [one.manifest for one in routed.apply + routed.create if one.manifest["kind"] == "Deployment"]
    (box,) = deployment["spec"]["template"]["spec"]["containers"]
    assert {"name": "A", "value": "1"} in box["env"] and "sgl-model-gateway" in box["image"]
    assert routed.status["revision"] == alone.status["revision"]


@pytest.mark.parametrize("image", ["mirror.example.com/lmsysorg/sgl-model-gateway:v0.3.2", "local/sglang-router:0.3.2"])
def test_mirrored_router_image_keeps_the_default_router_arguments(image: str) -> None:
    deps = parts.deps(parts.model(), parts.runtime(engineConfig=sglang()))
    routed = sync(parts.service(engine={}, router={"runner": {"name": "router", "image": image}}), deps, Observed(), START)
    (deployment,) = [one.manifest for one in routed.apply + routed.create if one.manifest["kind"] == "Deployment"]
    (box,) = deployment["spec"]["template"]["spec"]["containers"]
    assert box["image"] == image and "--service-discovery" in box["args"]


def test_a_runtime_without_a_router_is_selected() -> None:
    formats = [{"modelFormat": {"name": "safetensors"}, "autoSelect": True}]
    deps = parts.deps(parts.model(), parts.runtime(engineConfig=sglang(), supportedModelFormats=formats))
    spec = {"model": {"name": "tiny"}, "engine": {}, "router": {}}
    assert "revision" in sync(parts.service(spec), deps, Observed(), START).status
