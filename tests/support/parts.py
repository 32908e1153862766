"""Returns parsed models, runtimes and services, and the objects to which services refer, for tests of pure code."""

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from ome_operator.api import AcceleratorClass, FineTunedWeight, InferenceService, Invalid, Model, Runtime
from ome_operator.core.observed.objects import NO_POLICY, Deps, Ref
from ome_operator.core.weights.mount import weights
from ome_operator.settings import Policy
from tests.support import yamls

ROOT = Path(__file__).parents[2]
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""YAML loader for trusted files. Each test process reads all of config/."""
NAMESPACE, NAME, UID = "team", "svc", "uid-of-svc"


def container(name: str = "ome-container", **more: Any) -> dict[str, Any]:
    """Return a main container with an image."""
    return {"name": name, "image": "engine:1", **more}


def service(spec: dict[str, Any] | None = None, name: str = NAME, **more: Any) -> InferenceService:
    """Return a service. `more` are components and other fields of its spec; `spec` replaces the complete spec."""
    body: dict[str, Any] = {"model": {"name": "tiny"}, "runtime": {"name": "rt"}, **more} if spec is None else spec
    annotations = body.pop("annotations", {})
    metadata = {"name": name, "namespace": NAMESPACE, "uid": UID, "generation": 1, "annotations": annotations}
    return ensure_valid(InferenceService.parse({"kind": "InferenceService", "metadata": metadata, "spec": body}))


def runtime(name: str = "rt", **spec: Any) -> Runtime:
    """Return a ClusterServingRuntime with exactly this spec."""
    return ensure_valid(Runtime.parse({"kind": "ClusterServingRuntime", "metadata": {"name": name}, "spec": spec}))


def model(uri: str = "hf://test/tiny", name: str = "tiny", **spec: Any) -> Model:
    """Return a ClusterBaseModel."""
    body = yamls.model(name, uri)
    body["spec"] |= spec
    return ensure_valid(Model.parse(body))


def digest(body: dict[str, Any]) -> str:
    """Return the name of the directory in which agents store a model, or weights that were trained on the model."""
    kind = FineTunedWeight if body["kind"] == "FineTunedWeight" else Model
    return weights(ensure_valid(kind.parse(body))).digest


def accelerator(name: str, **spec: Any) -> AcceleratorClass:
    """Return an AcceleratorClass."""
    whole = {"capabilities": {"memoryGB": "141"}, "discovery": {}, **spec}
    return ensure_valid(AcceleratorClass.parse({"kind": "AcceleratorClass", "metadata": {"name": name}, "spec": whole}))


def deps(*objects: Model | Runtime | AcceleratorClass, nodes: int = 64) -> Deps:
    """Return the objects to which services may refer. `nodes` nodes hold every model."""
    models = {Ref(one.kind, one.namespace, one.name): one for one in objects if isinstance(one, Model)}
    return Deps(
        models=dict(models),
        runtimes={Ref(one.kind, one.namespace, one.name): one for one in objects if isinstance(one, Runtime)},
        accelerators={one.name: one for one in objects if isinstance(one, AcceleratorClass)},
        policy=replace(NO_POLICY, registry_image="registry:1", router_keys=True),
        holders={
            f"models.ome.io/clusterbasemodel.{one.name}": frozenset(f"node-{number}" for number in range(nodes))
            for one in models.values()
        },
    )


def change_deps(deps: Deps, **fields: Any) -> Deps:
    """Return `deps` with other values in these fields, each a field of Deps or of its policy."""
    policy = {name: value for name, value in fields.items() if name in Policy.__dataclass_fields__}
    others = {name: value for name, value in fields.items() if name not in policy}
    return replace(deps, policy=replace(deps.policy, **policy), **others)


def simple(size: int = 1, decoder: bool = False, router: bool = True, image: str = "engine:1", **engine: Any) -> Runtime:
    """Return a runtime whose groups have `size` pods with one GPU each."""
    box = container(image=image, args=["--port=30000"], resources={"limits": {"nvidia.com/gpu": 1}})
    part: dict[str, Any] = {"runner": box, **({"worker": {"size": size - 1}} if size > 1 else {}), **engine}
    spec: dict[str, Any] = {"engineConfig": part}
    if decoder:
        spec["decoderConfig"] = part
    if router:
        select = "component=engine ome.io/inferenceservice=$(INFERENCESERVICE_NAME)"
        args = ["--port=8080", "--selector", select]
        spec["routerConfig"] = {"runner": container("router", image="router:1", args=args)}
    return runtime(**spec)


def apply_bodies(bodies: list[dict[str, Any]], nodes: int = 64) -> tuple[InferenceService, Deps]:
    """Return the only service among these bodies as an API server returns it, and its dependencies."""
    (body,) = [one for one in bodies if one["kind"] == "InferenceService"]
    service = {**body, "metadata": {**body["metadata"], "uid": UID, "generation": 1}}
    found = [ensure_valid(kind.parse(one)) for one in bodies for kind in (Model, Runtime) if one["kind"] in kind.KINDS]
    return ensure_valid(InferenceService.parse(service)), deps(*found, nodes=nodes)


def kimi(file: str = "kimi-k2-pd-rt") -> tuple[InferenceService, Deps]:
    """Return the shipped Kimi K2 sample on one of the shipped runtimes, and its dependencies."""
    config = ROOT / "config"
    body = read_documents(config / "samples/isvc/moonshotai/kimi-k2-pd.yaml")[1]
    body["spec"]["runtime"]["name"] = file
    files = (config / "models/moonshotai/Kimi-K2-Instruct.yaml", config / f"runtimes/srt/{file}.yaml")
    return apply_bodies([body, *(read_documents(one)[0] for one in files)], nodes=16)


def shipped_service(sample: str) -> tuple[InferenceService, Deps]:
    """Return the service of a file in config/samples/isvc, and the objects to which it refers. Enough nodes
    hold its model.
    """
    (body,) = [one for one in read_documents(ROOT / "config/samples/isvc" / sample) if one["kind"] == "InferenceService"]
    named = ((Model, body["spec"]["model"]), (Runtime, body["spec"]["runtime"]))
    found = [in_config(reference["name"], *kind.KINDS) for kind, reference in named]
    return apply_bodies([body, *(one for one in found if one)])


def in_config(name: str, *kinds: str) -> dict[str, Any] | None:
    """Return the object in `config` with this name and one of these kinds; None if there is none."""
    found = [body for body in catalog() if body["kind"] in kinds and body["metadata"]["name"] == name]
    assert len(found) <= 1, f"{name} exists more than once"
    return found[0] if found else None


@cache
def catalog() -> list[dict[str, Any]]:
    """Return every object of `config`."""
    return [one for path in sorted((ROOT / "config").rglob("*.yaml")) for one in read_documents(path) if one]


def read_documents(path: Path) -> list[dict[str, Any]]:
    """Return the documents of a YAML file."""
    return list(yaml.load_all(path.read_text(), LOADER))


def ensure_valid(parsed: Any) -> Any:
    """Return the object after a check that its parsing did not return Invalid."""
    assert not isinstance(parsed, Invalid), parsed.why
    return parsed


def invalid_runtime() -> Invalid:
    """Return the Invalid that the parsing of a wrong runtime returns."""
    found = Runtime.parse({"kind": "ClusterServingRuntime", "metadata": {"name": "rt"}, "spec": {"disabled": "yes"}})
    assert isinstance(found, Invalid)
    return found
