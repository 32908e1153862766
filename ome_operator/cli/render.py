"""`ome render`: what the operator would create, from files and without a cluster."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ome_operator.cli.manifests import catalogue, read, read_beside
from ome_operator.cli.options import preflight_mode, roots
from ome_operator.cli.output import Format, complain, emit_objects
from ome_operator.errors import Unanswered
from ome_operator.settings import Policy

if TYPE_CHECKING:
    from ome_operator.cache.event_handler import EventHandler
    from ome_operator.cache.resources import Resource
    from ome_operator.core.observed.objects import Manifest

app = typer.Typer(add_completion=False, rich_markup_mode=None)
_DEFAULTS = Policy()

Files = Annotated[
    list[Path], typer.Option("--filename", "-f", help="YAML file, folder, or - for standard input; may be repeated.")
]
Sidecar = Annotated[str, typer.Option(help="As the operator's flag: image of the registry beside routers; empty: none.")]
Agent = Annotated[bool, typer.Option(help="As the operator's flag: agents fetch weights, pods mount their directories.")]
Roots = Annotated[list[str] | None, typer.Option(help="As the operator's flag: directory that agents write below.")]

Preflight = Annotated[str, typer.Option(help="As the operator's flag: Off, Warn or Require, where nobody says it.")]


@app.command(epilog="Example: ome render -f service.yaml --catalog config/")
def render(
    files: Files,
    catalog: Annotated[
        list[Path] | None,
        typer.Option("--catalog", help="Where models, runtimes and accelerator classes are, too; config/ comes with ome."),
    ] = None,
    namespace: Annotated[str, typer.Option("--namespace", "-n", help="Of objects that name none.")] = "default",
    output: Annotated[Format, typer.Option("--output", "-o", help="Documents, or one List.")] = Format.YAML,
    sidecar_image: Sidecar = _DEFAULTS.registry_image,
    model_agent: Agent = _DEFAULTS.model_agent,
    agent_root: Roots = None,
    preflight: Preflight = _DEFAULTS.preflight,
) -> None:
    """Every object that the operator would create for the services in these files.

    Exit code 1: something that a service needs is missing, which is said on stderr. The objects are for looking at and
    checking, not for applying: the operator writes its own.
    """
    from ome_operator.cache.resources import SERVING, SHORT
    from ome_operator.cli.live.cluster_from_manifests import gather, made
    from ome_operator.cli.live.linted import lines

    given = read(files, namespace)
    beside = read_beside(catalogue(catalog), files, namespace)
    looked = preflight_mode(preflight)
    cluster = gather(
        [*beside, *given], sidecar_image, model_agent=model_agent, agent_roots=roots(agent_root), preflight=looked
    )
    problems = [f"{SERVING} {one.of.namespace}/{one.of.name}: {one.why}" for one in made(cluster, SERVING) if one.why]
    objects = [one.manifest for kind in SHORT for one in made(cluster, kind) if one.manifest is not None]
    for kept in cluster.services():
        rendered, said = _service(kept, cluster)
        objects += rendered
        problems += said
    if not objects and not problems:
        raise Unanswered(f"no InferenceService in {', '.join(map(str, files))}: nothing to render.")
    emit_objects(output, objects)
    for sentence in (
        *problems,
        *lines(cluster, [kept.ref for kept in cluster.services()], "`ome lint -f` with the same files"),
    ):
        complain(sentence)
    raise typer.Exit(1 if problems else 0)


def _service(kept: "Resource", cluster: "EventHandler") -> tuple[list["Manifest"], list[str]]:
    """The objects of a service, and what is missing for them."""
    from ome_operator.api import Invalid
    from ome_operator.describe.outcome import outcome

    name = f"{kept.ref.namespace}/{kept.ref.name}"
    if isinstance(kept.parsed, Invalid):
        return [], [f"{name}: {kept.parsed.why}"]
    found = outcome(kept.parsed, cluster.deps())
    if found.advice:
        complain(f"{name}: to know: {found.advice}")
    return list(found.manifests), [f"{name}: {problem}" for problem in found.problems]
