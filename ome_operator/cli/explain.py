"""`ome explain`: what the operator would choose, and why nothing else."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
import yaml

from ome_operator.cli.connect import Context, Kubeconfig, on_cluster
from ome_operator.local.errors import LocalError

if TYPE_CHECKING:
    from ome_operator.kube.client import Client

app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False)
KINDS = ("ClusterBaseModel", "BaseModel", "ClusterServingRuntime", "ServingRuntime", "AcceleratorClass", "FineTunedWeight")


@app.callback()
def explain() -> None:
    """What the operator would choose for a service, and why nothing else."""


@app.command()
def runtime(
    file: Annotated[Path, typer.Option("--filename", "-f", help="YAML with an InferenceService.")],
    files: Annotated[
        list[Path] | None, typer.Option("--files", help="YAML files or folders instead of a cluster; may be repeated.")
    ] = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    namespace: Annotated[str, typer.Option("--namespace", "-n", help="Of a service that names none.")] = "default",
) -> None:
    """The runtime that a service would get, and for every other one each rule that excludes it. Exit code 1: none fits."""
    from ome_operator.api import InferenceService, Invalid
    from ome_operator.resolve.explain import explain as lines

    beside = list(_read([file]))
    bodies = [one for one in beside if one.get("kind") == "InferenceService"]
    if not bodies:
        raise LocalError(f"{file} has no InferenceService.")
    known = [*beside, *(_read(files) if files else _listed(kubeconfig, context))]
    failed = False
    for body in bodies:
        body.setdefault("metadata", {}).setdefault("namespace", namespace)
        service = InferenceService.parse(body)
        if isinstance(service, Invalid):
            raise LocalError(f"{file}: {service.why}")
        said = list(lines(service, _deps(known)))
        typer.echo("\n".join(said))
        failed |= any(line.startswith(("nothing fits", "there is no", "problem")) for line in said)
    raise typer.Exit(1 if failed else 0)


def _read(paths: Iterable[Path]) -> Iterable[dict[str, Any]]:
    """The objects of YAML files, and of all of a folder."""
    for path in paths:
        found = sorted([*path.rglob("*.yaml"), *path.rglob("*.yml")]) if path.is_dir() else [path]
        for one in found:
            try:
                documents = list(yaml.safe_load_all(one.read_text()))
            except (OSError, yaml.YAMLError) as error:
                raise LocalError(f"{one} cannot be read: {error}") from error
            yield from (document for document in documents if isinstance(document, dict))


def _listed(kubeconfig: Path | None, context: str | None) -> list[dict[str, Any]]:
    """Everything on a cluster that services may refer to."""

    async def read(client: "Client") -> list[dict[str, Any]]:
        return [{**one, "kind": kind} for kind in (*KINDS, "Node") for one in await client.list_objects(kind)]

    said = "--files reads YAML instead."
    return on_cluster(kubeconfig, context, read, elsewhere=said, stopped=said)


def _deps(bodies: Iterable[dict[str, Any]]) -> Any:
    from ome_operator import keys, observe
    from ome_operator.api import AcceleratorClass, FineTunedWeight, Invalid, Model, Runtime
    from ome_operator.facts import Deps, Ref

    models: dict[Ref, Model | Invalid] = {}
    runtimes: dict[Ref, Runtime | Invalid] = {}
    accelerators, nodes = {}, {}
    weights: dict[str, FineTunedWeight | Invalid] = {}
    for body in bodies:
        kind, metadata = body.get("kind"), body.get("metadata") or {}
        ref = Ref(str(kind), metadata.get("namespace") or "", str(metadata.get("name")))
        if kind == "Node":
            nodes[ref.name] = observe.node(body)
        elif body.get("apiVersion", keys.API_VERSION) != keys.API_VERSION:
            continue
        elif kind in KINDS[:2]:
            models[ref] = Model.parse(body)
        elif kind in KINDS[2:4]:
            runtimes[ref] = Runtime.parse(body)
        elif kind == KINDS[5]:
            weights[ref.name] = FineTunedWeight.parse(body)
        elif kind == KINDS[4] and not isinstance(one := AcceleratorClass.parse(body), Invalid):
            accelerators[ref.name] = one
    return Deps(models, runtimes, accelerators, weights, nodes)
