"""Returns as text what each part of the operator that reads objects computes from them. If no text changes when a field
changes, the field has no effect.
"""

import asyncio
import json
import re
import tempfile
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from datetime import timedelta
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import pytest

from ome_operator import keys
from ome_operator.agent import work
from ome_operator.agent.locations import AgentRoots
from ome_operator.api import (
    AcceleratorClass,
    BenchmarkJob,
    FineTunedWeight,
    InferenceService,
    Model,
    Runtime,
    Serving,
    SglangModel,
)
from ome_operator.cookbook.library import library
from ome_operator.core.benchmarkjob import job
from ome_operator.core.benchmarkjob.status import benchmark_status
from ome_operator.core.catalog.status import accelerator_status, model_status, runtime_status
from ome_operator.core.observed import from_api
from ome_operator.core.observed.arrivals import Arrivals
from ome_operator.core.observed.objects import Deps, Observed, Ref
from ome_operator.core.reasons import NOTHING
from ome_operator.core.reconcile.plan import Plan
from ome_operator.core.reconcile.sync import sync
from ome_operator.core.recovery.policy import policy
from ome_operator.core.resolve.ignored_fields import ignored_field_messages
from ome_operator.core.sglang import convert
from ome_operator.core.weights.node_selection import selects_node
from ome_operator.storage.grants import SecretGrant, Trust
from ome_operator.storage.listing import RequestRefused, Source
from ome_operator.storage.sources import Access
from tests.support import parts
from tests.support.fields import merged
from tests.support.parts import change_deps
from tests.support.simulator import START, World
from tests.support.stages import NODES, Bodies

IMAGES = job.Images("sglang:1", "tools:1")


def parse_bodies(bodies: Bodies) -> tuple[InferenceService, Deps]:
    """Return the service and the objects that it refers to. Raises AssertionError for an invalid object."""
    found = [parts.ensure_valid(kind.parse(bodies[name])) for name, kind in _KINDS.items() if name in bodies]
    deps = parts.deps(*[item for item in found if isinstance(item, Model | Runtime | AcceleratorClass)])
    weights = {item.name: item for item in found if isinstance(item, FineTunedWeight)}
    deps = change_deps(deps, nodes=NODES, weights=weights, holders=_Everywhere(), model_agent=True, keda=True)
    return parts.ensure_valid(InferenceService.parse(bodies["service"])), deps


_KINDS: dict[str, Any] = {
    "runtime": Runtime, "second": Runtime, "model": Model, "gpu": AcceleratorClass, "rival": AcceleratorClass,
    "lora": FineTunedWeight,
}  # fmt: skip


PARSED: Mapping[str, Any] = {
    **_KINDS, "service": InferenceService, "benchmark": BenchmarkJob, "short": SglangModel, "serving": Serving,
}  # fmt: skip


class _Everywhere(dict[str, frozenset[str]]):
    """A catalog of nodes in which every node holds every model."""

    def get(self, key: str, default: Any = None) -> frozenset[str]:  # type: ignore[override]
        return frozenset(NODES)

    def __missing__(self, key: str) -> frozenset[str]:
        return frozenset(NODES)


def first_plan(bodies: Bodies) -> str:
    """Return the first plan for the service, and the recovery policy of its groups."""
    service, deps, plan = _first(json.dumps(bodies))
    runtime = deps.runtimes[Ref("ClusterServingRuntime", "", "rt")]
    assert isinstance(runtime, Runtime)
    failing = [policy(service, runtime, component) for component in (keys.ENGINE, keys.DECODER)]
    return f"{plan_without_inputs(plan)}{failing}"


@lru_cache(maxsize=4)
def _first(bodies: str) -> tuple[InferenceService, Deps, Plan]:
    """Run the first reconciliation of a service. The result is cached, because several readings use it one after another."""
    service, deps = parse_bodies(json.loads(bodies))
    return service, deps, sync(service, deps, Observed(), START)


def later(before: Bodies, bodies: Bodies, *, ready: bool = True, edit: Bodies | None = None) -> str:
    """Return the plan for a service that was complete with the bodies `before` and is then edited. If `ready` is true, the
    plan is made immediately after the edit. Otherwise it is made after the new pods have not become ready for three hours.
    `edit` replaces the default edit, which changes the engine's image.
    """
    key = json.dumps(before, sort_keys=True)
    world = _whole(key) if ready else _stuck(key)
    service, deps = parse_bodies({name: merged(bodies[name], (edit or EDIT).get(name, {})) for name in bodies})
    service = replace(service, status=world.service.status, uid=world.service.uid, generation=2)
    observed, now = world.observed(), world.now + timedelta(hours=0 if ready else 3)
    first = sync(service, deps, observed, now)
    passed = replace(observed, checks={item.revision: "" for item in first.check})
    return plan_without_inputs(first) + plan_without_inputs(sync(service, deps, passed, now))


def arriving(bodies: Bodies) -> str:
    """Return the plan for a service that is scaled to zero, when a request arrives."""
    service, deps = parse_bodies(bodies)
    since = START - timedelta(seconds=60)
    owner = [{"kind": "InferenceService", "name": service.name, "uid": service.uid, "controller": True}]
    scales = {
        name: from_api.child(
            "RoleScale", {"metadata": {"name": name, "uid": name, "ownerReferences": owner}, "spec": {"replicas": 0}}
        )
        for name in (f"{service.name}-{role}" for role in (keys.ENGINE, keys.DECODER))
    }
    seen = Observed(
        children={("RoleScale", name): child for name, child in scales.items()}, arrivals=Arrivals(START.timestamp() - 1)
    )
    service = replace(service, status={"zero": {"since": since.isoformat()}})
    return plan_without_inputs(sync(service, deps, seen, START))


EDIT: Bodies = {"service": {"spec": {"engine": {"runner": {"image": "engine:2"}}}}}


@cache
def _whole(bodies: str) -> World:
    service, deps = parse_bodies(json.loads(bodies))
    world = World(service, deps, 1)
    world.settle()
    return world


@cache
def _stuck(bodies: str) -> World:
    before = json.loads(bodies)
    service, deps = parse_bodies(before)
    world = World(service, deps, 1)
    world.settle()
    world.healthy = lambda _: False
    edited, _ = parse_bodies({**before, "service": merged(before["service"], EDIT["service"])})
    world.edit(edited)
    world.run(40)
    return world


def generated(bodies: Bodies) -> str:
    """Return the hardware that `ome generate` derives from accelerator classes."""
    classes = [parts.ensure_valid(AcceleratorClass.parse(bodies[name])) for name in ("gpu", "rival")]
    known = library((), classes, {}).hardware.values()
    return repr([[value for value in vars(item).values() if not isinstance(value, AcceleratorClass)] for item in known])


def downloads_of_agent(bodies: Bodies) -> str:
    """Return what an agent downloads for every model and all fine-tuned weights."""
    asked: list[Any] = []

    def source(uri: str, access: Access) -> Source:
        asked.append((uri, access))
        raise RequestRefused("that was all")

    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(work, "open_source", source)
        patch.setattr(AgentRoots, "disk_message", lambda *_: "")  # this machine has no such directories
        secret = Path(folder) / "elsewhere/token"
        secret.parent.mkdir()
        secret.write_text("secret")
        trust = Trust(secrets={"elsewhere": SecretGrant(name="elsewhere", hosts=("huggingface.co",))})
        settings = work.AgentSettings(secrets=Path(folder), trust=trust, roots=("/models", "/mnt/models"))
        for name in sorted({"model", "lora"} & bodies.keys()):
            asyncio.run(work.Work(parts.ensure_valid(_KINDS[name].parse(bodies[name])), settings).run())
    return repr(asked)


def catalog(bodies: Bodies) -> str:
    """Return the statuses of models, runtimes and accelerator classes, and which nodes have to hold the weights."""
    out: list[Any] = []
    for name in bodies.keys() & _KINDS.keys():
        item = parts.ensure_valid(_KINDS[name].parse(bodies[name]))
        if isinstance(item, Runtime):
            out.append(unadvised(runtime_status(item, (), START)))
        elif isinstance(item, AcceleratorClass):
            out.append(unadvised(accelerator_status(item, NODES.values(), START)))
        else:
            out.append(unadvised(model_status(item, (), frozenset(), START)))
            out.append([selects_node(item, node.name, node.labels) for node in NODES.values()])
    return json.dumps(out, sort_keys=True, default=str)


def unadvised(status: Mapping[str, Any]) -> dict[str, Any]:
    """Return a status without the messages that say that a field has no effect."""
    kept = []
    for item in status.get("conditions") or ():
        said = [sentence for sentence in item["message"].split("; ") if " has no effect" not in sentence]
        if said or item["type"] != "Advice":
            kept.append({**item, "message": "; ".join(said)})
    return {**status, "conditions": kept}


def benchmark(bodies: Bodies) -> str:
    """Return the Job of a BenchmarkJob, and its status."""
    item = parts.ensure_valid(BenchmarkJob.parse(bodies["benchmark"]))
    service, deps = parse_bodies(bodies)
    url = {"url": "http://svc", "conditions": [{"type": "Ready", "status": "True"}]}
    named = item.spec.endpoint.inference_service
    there = named is not None and (named.namespace, named.name) == (service.namespace, service.name)
    manifest, why = job.desired_job(IMAGES, item, replace(service, status=url) if there else None, deps)
    status = benchmark_status(item, None, [], why, START)
    return json.dumps([manifest, unadvised(status)], sort_keys=True, default=str)


def status(part: str, bodies: Bodies) -> Mapping[str, Any]:
    """Return the status that the operator writes for one of the bodies, which `part` names."""
    item = parts.ensure_valid(PARSED[part].parse(bodies[part]))
    if isinstance(item, InferenceService):
        return _first(json.dumps(bodies))[2].status
    if isinstance(item, Runtime):
        return runtime_status(item, (), START)
    if isinstance(item, AcceleratorClass):
        return accelerator_status(item, (), START)
    if isinstance(item, BenchmarkJob):
        return benchmark_status(item, None, [], NOTHING, START)
    return model_status(item, (), frozenset(), START)


def without_effect(body: dict[str, Any]) -> tuple[str, ...]:
    """Return the paths of a shipped object that `ome lint` or a status reports as without effect."""
    kinds = (InferenceService, Runtime, Model, AcceleratorClass, FineTunedWeight, BenchmarkJob)
    found = [kind for kind in kinds if body["kind"] in kind.KINDS]
    return ignored_field_messages(parts.ensure_valid(found[0].parse(body))) if found else ()


def sglang_objects(bodies: Bodies) -> str:
    """Return the objects that the operator creates from the kinds of the group sglang.ai."""
    _, deps = parse_bodies(bodies)
    found = [SglangModel.parse(bodies["short"]), Serving.parse(bodies["serving"])]
    made = [convert.desired_object(parts.ensure_valid(item), deps) for item in found]
    return re.sub(r'"ome.io/source": "\w+"', "", json.dumps(made, sort_keys=True))


def plan_without_inputs(plan: Plan) -> str:
    """Return a plan without the parts that follow from any change of a revision's inputs: its name, its digests, and the
    inputs themselves.

    Two more parts are removed: messages that a field has no effect, and the state of the service with regard to shared
    objects.
    """
    said = _fields(replace(plan, status=unadvised(plan.status), stands={}))
    named = {item.manifest["metadata"]["labels"].get(keys.REVISION) for item in (*plan.first, *plan.apply)} - {None}
    named |= {check.revision.partition(".")[0] for check in plan.check}
    for part in ("first", "apply"):
        said[part] = [{**_fields(item), "manifest": _unnumbered(item.manifest)} for item in said[part]]
    said["check"] = [replace(check, revision="") for check in plan.check]
    text = json.dumps(said, sort_keys=True, default=_json)
    for name in named:
        text = text.replace(name, "REVISION")
    return text


def _unnumbered(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Return a manifest without digests and inputs."""
    metadata = dict(manifest["metadata"])
    if "annotations" in metadata:
        metadata["annotations"] = {key: value for key, value in metadata["annotations"].items() if key != keys.HASH}
    out = {**manifest, "metadata": metadata}
    if manifest["kind"] == "ControllerRevision":
        out["data"] = {key: value for key, value in manifest["data"].items() if key != "inputs"}
    return out


def _fields(item: Any) -> dict[str, Any]:
    """Return the fields of a dataclass. `asdict` would copy nested values, which takes longer than creating them."""
    return {field.name: getattr(item, field.name) for field in fields(item)}


def _json(value: Any) -> Any:
    return _fields(value) if is_dataclass(value) else str(value)
