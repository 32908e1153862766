"""Tests that a service whose spec cannot be read, or whose pass fails, stays Ready while its pods serve."""

from types import SimpleNamespace
from typing import Any

import pytest

from ome_operator.controllers.base import Core
from ome_operator.controllers.inferenceservice import reconciler
from ome_operator.controllers.inferenceservice.still_serves import still_serves
from ome_operator.core.observed.objects import Ref
from tests.support.fake_api import FakeApi
from tests.support.shapes import Shape
from tests.support.simulator import World
from tests.unit.controllers import makers

SERVICE = Ref("InferenceService", "ns", "svc")


def settled() -> World:
    world = World(Shape(decoders=1).service(), Shape().deps(), 1)
    world.settle()
    return world


def asked(world: World, **changed: Any) -> bool:
    """Return whether the operator considers the service of a world as serving, with these objects or pods in place of its
    own.
    """
    seen = world.observed()
    found: dict[str, Any] = {"children_of": lambda *_: seen.children, "pods_of": lambda *_: seen.pods, **changed}
    resource: Any = SimpleNamespace(ref=Ref("InferenceService", "team", "svc"), uid=world.service.uid)
    return still_serves(SimpleNamespace(**found), resource)  # type: ignore[arg-type]


def test_serving_state_is_determined_from_pods_and_not_from_the_spec(caplog: pytest.LogCaptureFixture) -> None:
    assert asked(settled())
    assert not asked(settled(), pods_of=lambda *_: ())
    assert not caplog.records
    assert not asked(settled(), pods_of=lambda *_: ("no pod",)), "pods that cannot be read do not count as serving"
    assert "cannot determine whether team/svc serves" in caplog.text


@pytest.mark.parametrize("serves", [True, False])
async def test_internal_error_keeps_a_serving_service_ready(serves: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> Any:
        raise ValueError("no such thing")

    monkeypatch.setattr(reconciler, "still_serves", lambda *_: serves)
    api = FakeApi()
    handler = makers.cluster({"kind": "InferenceService", **makers.BODY})
    services = makers.services(handler, api, makers.queue(), Core(sync=broken))
    await services.reconcile(SERVICE)
    (written,) = [body["status"]["conditions"] for body in api.bodies("apply") if "status" in body]
    told = {each["type"]: (each["status"], each["reason"]) for each in written}
    where = "RolledOut" if serves else "Ready"
    assert told[where] == ("False", "InternalError")
    assert told["Ready"][0] == str(serves)
