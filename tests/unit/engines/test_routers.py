"""Tests of which routers get an API key for their control plane. A router exits if it does not know a flag, so the operator
must know which images support the flag.
"""

from typing import Any

import pytest

from ome_operator.engines.flags import packaged_versions
from ome_operator.engines.routers import SGLANG_ROUTER, SMG, accepts_control_key, is_program, sglang_router
from ome_operator.lint.launch import launch

START = ["python3", "-m", "sglang_router.launch_router"]


def box(
    image: str = "docker.io/lmsysorg/sgl-model-gateway:v0.3.2", args: list[str] | None = None, **more: Any
) -> dict[str, Any]:
    """Return a router's container."""
    return {"image": image, "command": START, "args": args or ["--pd-disaggregation"], **more}


TAKE = {
    "the first version that has it": box("sgl-router:v0.3.1"),
    "a mirror": box("registry.example.com:5000/a/sglang-router:0.3.2@sha256:00"),
    "a suffix": box("sglang-router:v0.4.0-cu126"),
    "the newer gateway": box("lightseekorg/smg:1.13.0", command=["smg", "launch"]),
    "the newer gateway's module": box("lightseekorg/smg:1.13.0", command=["python3", "-m", "smg.launch_router"]),
    "the newer gateway's package": box("lightseekorg/smg:1.13.0", command=["python3", "-m", "smg", "launch"]),
    "the newer gateway's image": box("lightseekorg/smg:1.13.0", command=[]),
    "an image that starts it": box(command=[]),
    "workers by name": box(args=["--worker-urls", "http://a"]),
}
NONE = {
    "before the flag": box("sglang-router:0.3.0"),
    "no version": box("sglang-router:latest"),
    "no tag": box("sglang-router"),
    "SGLang's image, whose router may be any": box("lmsysorg/sglang:v0.5.23"),
    "another program": box(command=["nginx"]),
    "a shell": box(command=["sh", "-c"], args=["python3 -m sglang_router.launch_router"]),
    "the load balancer in Python": box(args=["--mini-lb"]),
    "with engines": box(command=["python3", "-m", "sglang_router.launch_server"]),
    "with engines, in a word": box(command=["smg", "server"]),
    "the newer gateway with engines": box("smg:1.13.0", command=["python3", "-m", "smg.serve"]),
    "a file with its name": box("smg:1.13.0", command=["cat", "smg.yaml"]),
    "a key by the user": box(args=["--api-key", "$(MINE)"]),
    "a key by the user with an equals sign": box(args=["--api-key=$(MINE)"]),
    "keys of the control plane by the user": box(args=["--control-plane-api-keys", "a:b:admin:c"]),
    "tokens by the user": box(args=["--jwt-issuer=https://login.example.com"]),
}


@pytest.mark.parametrize("case", TAKE)
def test_routers_that_accept_a_control_key_are_recognized(case: str) -> None:
    assert accepts_control_key(TAKE[case]) and not accepts_control_key(TAKE[case], "false")


@pytest.mark.parametrize("case", NONE)
def test_router_version_without_control_key_is_recognized(case: str) -> None:
    assert not accepts_control_key(NONE[case])


def test_user_may_enable_the_key_for_an_image_but_never_sets_it_twice() -> None:
    known = {case for case in NONE if accepts_control_key(NONE[case], "true")}
    assert known == {"before the flag", "no version", "no tag", "SGLang's image, whose router may be any"}
    assert accepts_control_key({"image": "own/router:7", "args": ["--pd-disaggregation"]}, "true")


STARTS = {
    ("lightseekorg/smg:1.13.0", "python3 -m smg.launch_router"): SMG,
    ("lightseekorg/smg:1.13.0", "python3 -m smg launch"): SMG,
    ("lightseekorg/smg:1.13.0", "smg launch"): SMG,
    ("lightseekorg/smg:1.13.0", "/opt/venv/bin/smg"): SMG,
    ("lightseekorg/smg:1.13.0", ""): SMG,
    ("own/gateway:7", "python3 -m smg.cli launch"): SMG,
    ("lmsysorg/sgl-model-gateway:v0.3.2", "smg launch"): SGLANG_ROUTER,
    ("lmsysorg/sgl-model-gateway:v0.3.2", "python3 -m sglang_router.launch_router"): SGLANG_ROUTER,
    ("lmsysorg/sglang:v0.5.23", "python -m sglang_router.launch_router"): SGLANG_ROUTER,
}
"""Image and command → the program: every form in which the two packages can be started."""


@pytest.mark.parametrize(("image", "command"), STARTS)
def test_every_router_launch_form_gets_the_registry_and_its_flags(image: str, command: str) -> None:
    container = {"image": image, "command": command.split(), "args": ["--pd-disaggregation", "--service-discovery"]}
    assert sglang_router(container) is not None
    start = launch(container, {}, packaged_versions())
    assert start is not None and start.engine == STARTS[image, command]
    known = (image.startswith(("lightseekorg", "lmsysorg/sgl-")), start.line is not None)
    assert known[0] == known[1]


def test_program_with_a_longer_name_is_not_a_router() -> None:
    assert [
        word for word in ("smg.yaml", "smg.router_args", "smgx", "my-smg", "sglang_router_x.y") if is_program(word)
    ] == []
