"""Tests of the key for the control plane of a service's routers: it is in a Secret and in no pod spec, and exists before a
router needs it.
"""

from typing import Any

import pytest

from ome_operator import keys
from ome_operator.core.reconcile.plan import Plan
from ome_operator.core.reconcile.sync import sync
from ome_operator.core.render import meta, router_key
from tests.support import parts
from tests.support.parts import change_deps
from tests.support.simulator import World

OWNER = meta.Owner("svc", "team", "u")
ARGS = ["--service-discovery", "--selector=component=engine", "--port=8080"]


def world(note: str = "", on_router: str = "", **box: Any) -> World:
    """Return a service with a router whose image supports the key."""
    runner = parts.container("router", **{"image": "sglang-router:0.3.2", "args": ARGS, **box})
    engine = parts.container(args=["--port=30000"])
    noted = {"annotations": {keys.ROUTER_KEY: on_router}} if on_router else {}
    runtime = parts.runtime(engineConfig={"runner": engine}, routerConfig={"runner": runner, **noted})
    notes = {"annotations": {keys.ROUTER_KEY: note}} if note else {}
    return World(parts.service(engine={}, router={}, **notes), parts.deps(runtime, parts.model()), 1)


def pod(plan: Plan) -> dict[str, Any]:
    """Return the pod spec of the router."""
    (found,) = [item.manifest for item in plan.apply if item.kind == "Deployment"]
    spec: dict[str, Any] = found["spec"]["template"]["spec"]
    return spec


def secrets(plan: Plan) -> list[str]:
    """Return the names of the Secrets that must exist."""
    return [item.manifest["metadata"]["name"] for item in plan.ensure_secret]


def test_router_and_registry_get_the_key_by_variable_and_not_by_argument() -> None:
    plan = world().sync()
    (main,), (beside,) = pod(plan)["containers"], pod(plan)["initContainers"]
    source = {"name": "OME_ROUTER_KEY", "valueFrom": {"secretKeyRef": {"name": "svc-router-key", "key": "key"}}}
    assert source in main["env"] and beside["env"] == [source]
    assert main["args"][-2] == "--control-plane-api-keys=ome:registry:admin:$(OME_ROUTER_KEY)"
    assert not [word for word in beside["args"] if "key" in word], "other processes can read its arguments"


def test_key_secret_is_owned_by_the_service_and_created_first() -> None:
    (wanted,) = world().sync().ensure_secret
    made = wanted.manifest
    assert made["metadata"]["name"] == "svc-router-key" and made["type"] == "ome.io/router-key"
    assert made["metadata"]["ownerReferences"][0]["uid"] == parts.UID and not {"data", "stringData"} & made.keys()


@pytest.mark.parametrize(
    "made",
    [
        world("false"),
        world(on_router="false"),
        world(image="lmsysorg/sglang:v0.5.23"),
        world(args=[*ARGS, "--api-key=$(MINE)"]),
        world(args=[*ARGS, "--control-plane-api-keys", "a:b:admin:$(MINE)"]),
    ],
    ids=[
        "the service says so",
        "the router says so",
        "an image that may not take it",
        "a key of the user's",
        "keys of the user's",
    ],
)
def test_router_without_support_gets_no_control_key(made: World) -> None:
    plan = made.sync()
    assert secrets(plan) == [] and "OME_ROUTER_KEY" not in str(pod(plan))


def test_annotation_enables_the_control_key_for_a_custom_image() -> None:
    assert secrets(world("true", image="own/router:7").sync()) == ["svc-router-key"]
    assert secrets(world("true", on_router="false").sync()) == ["svc-router-key"], "the service takes precedence"


def test_no_control_key_if_the_operator_cannot_create_secrets() -> None:
    """An operator that may not create Secrets gives routers no key. A router that needs a Secret which does not exist would
    never start.
    """
    here = world()
    plan = sync(here.service, change_deps(here.deps, router_keys=False), here.observed(), here.now)
    assert secrets(plan) == [] and "OME_ROUTER_KEY" not in str(pod(plan))


def test_user_defined_key_variable_is_used_as_the_control_key() -> None:
    mine = {"name": "OME_ROUTER_KEY", "valueFrom": {"secretKeyRef": {"name": "mine", "key": "k"}}}
    plan = world(env=[mine]).sync()
    assert secrets(plan) == [] and pod(plan)["initContainers"][0]["env"] == [mine]
    assert [item for item in pod(plan)["containers"][0]["env"] if item["name"] == "OME_ROUTER_KEY"] == [mine]


def test_secret_is_not_requested_if_all_routers_are_ready() -> None:
    """If all routers are ready, the operator does not try to create the Secret. Each attempt is a request, so a restart of
    the operator would cause one for every service.
    """
    here = world()
    here.settle()
    assert secrets(here.sync()) == []


def test_secret_is_created_before_a_router_is_replaced() -> None:
    """Before a router is replaced, its Secret exists. Services of earlier versions have ready routers and no Secret, so it
    must be created before the first new pod needs it.
    """
    here = world()
    keyed, here.deps = here.deps, change_deps(here.deps, router_keys=False)
    here.settle()
    here.deps = keyed
    plan = here.sync()
    assert secrets(plan) == ["svc-router-key"]
    assert {item.kind for item in plan.apply} == {"Deployment"}, "no engine is changed"


def test_secret_is_created_if_a_router_is_not_ready() -> None:
    here = world()
    here.settle()
    for item in here.pods.values():
        if item.labels[keys.COMPONENT] == keys.ROUTER:
            item.ready = False
    assert secrets(here.sync()) == ["svc-router-key"]


def test_deployment_without_the_key_variable_gets_no_secret() -> None:
    assert router_key.secret(OWNER, {"spec": {"template": {"spec": {"containers": [{"args": ["--x"]}]}}}}) is None
