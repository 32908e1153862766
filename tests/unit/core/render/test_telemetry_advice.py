"""Tests of the advice about services whose requests are unknown to the operator, and of its remedies."""

from typing import Any

import pytest

from ome_operator import keys
from ome_operator.core.render.telemetry_advice import advice
from tests.support import parts

SGLANG = parts.container(command=["python3", "-m", "sglang.launch_server"])
METERED = {**SGLANG, "args": ["--enable-metrics"]}
VLLM = parts.container(command=["vllm", "serve"])
TENSORRT = parts.container(command=["trtllm-serve"])
OTHER = parts.container(command=["/bin/engine"])


ROUTER = parts.container("router", command=["python3", "-m", "sglang_router.launch_router"])


def router(registry: bool = True, program: Any = ROUTER, **annotations: str) -> dict[str, Any]:
    """Return the Deployment of a router."""
    boxes = [{"name": "ome-registry"}] if registry else []
    metadata = {"annotations": annotations} if annotations else {}
    return {"spec": {"template": {"metadata": metadata, "spec": {"containers": [program], "initContainers": boxes}}}}


def said(engine: Any, made: Any, hears: bool = True, scrapes: bool = False, **annotations: str) -> str:
    return "; ".join(advice({"engine": engine}, made, annotations, hears=hears, scrapes=scrapes))


@pytest.mark.parametrize("engine", [METERED, VLLM, OTHER])
def test_no_advice_if_the_engine_is_observed_or_unknown(engine: Any) -> None:
    assert said(engine, router()) == ""


def test_telemetry_advice_names_missing_flag() -> None:
    found = said(SGLANG, router())
    assert "engine: the engine serves no metrics without --enable-metrics" in found and "`ome top`" in found
    assert "add the flag to the args" in found and "podMonitor" not in found
    both = said(SGLANG, router(), scrapes=True)
    assert "`ome top`" in both and "podMonitor" in both and both.count("--enable-metrics") == 1
    only = said(SGLANG, None, scrapes=True)
    assert "podMonitor" in only and "`ome top`" not in only


def test_advice_names_an_engine_that_no_registry_supports() -> None:
    assert "the requests of tensorrt-llm engines" in said(TENSORRT, router())


@pytest.mark.parametrize("engine", [SGLANG, TENSORRT])
def test_a_service_without_a_router_gets_no_advice(engine: Any) -> None:
    """A service without a router gets no advice, because no registry could report about it, whatever its engine is."""
    assert said(engine, None) == ""


@pytest.mark.parametrize("made", [None, router(False)])
def test_an_operator_without_registries_gives_no_advice(made: Any) -> None:
    assert said(SGLANG, made, hears=False) == ""


def test_advice_names_a_router_without_registry_but_not_its_engines() -> None:
    found = said(SGLANG, router(False))
    assert "the router has no registry" in found and "--worker-urls" in found and "--enable-metrics" not in found


def test_router_is_recognized_by_its_image() -> None:
    assert "the router has no registry" in said(SGLANG, router(False, {"image": "lmsysorg/sglang-router:v0.3.2"}))


def test_router_of_another_program_gets_no_advice() -> None:
    assert said(SGLANG, router(False, parts.container("router", command=["nginx"]))) == ""


def test_telemetry_advice_names_annotation() -> None:
    off = {keys.REGISTRY: "false"}
    found = said(SGLANG, router(False), **off)
    assert said(SGLANG, router(False, **off)) == found
    assert found.startswith('the annotation ome.io/registry: "false"') and found.endswith("remove the annotation")
