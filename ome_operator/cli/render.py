"""`ome render`: prints the objects that the operator would create, from files and without a cluster."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ome_operator.cli.manifests import Files as Content
from ome_operator.cli.manifests import (
    catalog_name,
    catalog_or_default,
    read_files,
    read_referenced,
    report_borrowed,
    report_skipped,
)
from ome_operator.cli.options import Files, parse_roots, preflight_mode
from ome_operator.cli.output import Format, emit_objects, print_error
from ome_operator.errors import InvalidOption, QuestionUnanswered
from ome_operator.settings import Policy

if TYPE_CHECKING:
    from ome_operator.cache.cluster_cache import ClusterCache
    from ome_operator.cache.resources import Resource
    from ome_operator.core.observed.objects import Manifest

app = typer.Typer(add_completion=False, rich_markup_mode=None)
_DEFAULTS = Policy()

Sidecar = Annotated[
    str, typer.Option(help="Image of the registry sidecar of routers, as the operator's option; empty: no sidecar.")
]
Agent = Annotated[
    bool, typer.Option(help="Agents download the weights and pods mount their directories, as with the operator's option.")
]
Roots = Annotated[list[str] | None, typer.Option(help="Directory in which agents store models, as the operator's option.")]

Catalog = Annotated[
    list[Path] | None,
    typer.Option(
        "--catalog",
        help="Another file or folder with models, runtimes and accelerator classes; by default the folder config/ that "
        "is shipped with ome.",
    ),
]
Namespace = Annotated[str, typer.Option("--namespace", "-n", help="Namespace of objects whose YAML names none.")]
Output = Annotated[Format, typer.Option("--output", "-o", help="YAML documents, or one List as JSON.")]
Preflight = Annotated[
    str, typer.Option(help="Default mode of preflight checks, as the operator's option: Off, Warn or Require.")
]
CompileCaches = Annotated[
    bool,
    typer.Option(
        help="Agents keep the compile caches of engines that request it, as with the operator's option; needs --model-agent."
    ),
]


@app.command(epilog="Example: ome render -f service.yaml --catalog config/")
def render(
    files: Files,
    catalog: Catalog = None,
    namespace: Namespace = "default",
    output: Output = Format.YAML,
    sidecar_image: Sidecar = _DEFAULTS.registry_image,
    model_agent: Agent = _DEFAULTS.model_agent,
    agent_root: Roots = None,
    preflight: Preflight = _DEFAULTS.preflight,
    compile_caches: CompileCaches = _DEFAULTS.compile_caches,
) -> None:
    """Print every object that the operator would create for the services in these files.

    Exit code 1: something that a service needs is missing, or the operator would refuse the service; stderr names the
    field and the fix, and nothing of this service is printed. The objects are for reading and checking, not
    for applying, because the operator creates its own.
    """
    from ome_operator.cli.live.cluster_from_manifests import build_cluster

    found = read_files(files, namespace)
    report_skipped(found)
    beside = read_referenced(catalog_or_default(catalog), files, namespace, found.objects)
    cluster = build_cluster(
        [*beside, *found.objects],
        sidecar_image,
        model_agent=model_agent,
        agent_roots=_roots(agent_root),
        preflight=preflight_mode(preflight),
        compile_caches=compile_caches,
    )
    objects, problems = _objects(cluster, found, catalog_name(catalog))
    if not objects and not problems:
        raise QuestionUnanswered(
            f"there is no InferenceService in {', '.join(map(str, files))}, so there is nothing to render: "
            "name a file that contains a service."
        )
    emit_objects(output, objects)
    _print_findings(cluster, found, catalog_name(catalog), problems)
    raise typer.Exit(1 if problems else 0)


def _roots(given: list[str] | None) -> tuple[str, ...]:
    """Return the directories of --agent-root. Raises InvalidOption for a relative path."""
    try:
        return parse_roots(given)
    except ValueError as error:
        raise InvalidOption(f"--agent-root: {error}") from error


def _objects(cluster: "ClusterCache", files: "Content", catalog: str) -> tuple[list["Manifest"], list[str]]:
    """Return the objects that the operator would create, and a sentence for each problem that prevents it from creating
    objects. `catalog` names the source of objects that are not in the files.
    """
    from ome_operator.api import Invalid
    from ome_operator.cache.resources import SERVING, SHORT
    from ome_operator.cli.live.cluster_from_manifests import derived_objects, full_name
    from ome_operator.cli.live.file_problems import without_cluster

    problems = [str(each) for each in files.refused]
    for item in (item for item in derived_objects(cluster, SERVING) if item.why):
        problems += [f"{full_name(item.of)}: {without_cluster([item.why], catalog)[0]}"]
    objects = [item.manifest for kind in SHORT for item in derived_objects(cluster, kind) if item.manifest is not None]
    refused = {each.object for each in files.refused}
    for kept in cluster.services():
        name = full_name(kept.ref)
        if isinstance(kept.parsed, Invalid) and name in refused:
            continue  # the refusal says why
        rendered, of_service, used = _service(kept, cluster, catalog, files)
        report_borrowed(used, files, catalog)
        if stops := [each for each in sorted(refused) if each == name or _without_namespace(each) in used]:
            print_error(
                f"{kept.ref.namespace}/{kept.ref.name}: nothing is rendered, because a cluster would refuse {stops[0]}"
            )
        else:
            objects += rendered
        problems += of_service
    return objects, problems


def _print_findings(cluster: "ClusterCache", files: "Content", catalog: str, problems: list[str]) -> None:
    """Print the problems, and the findings of `ome lint` that they do not contain."""
    from ome_operator.cli.live.linted import lines
    from ome_operator.cli.live.references import offline_sentences

    services = [kept.ref for kept in cluster.services()]
    for sentence in (
        *problems,
        *offline_sentences(cluster, files.objects, catalog),
        *lines(cluster, services, "`ome lint -f` with the same files", problems),
    ):
        print_error(sentence)


def _without_namespace(name: str) -> str:
    """Return "KIND NAME" for "KIND NAMESPACE/NAME". A name without a namespace stays unchanged."""
    kind, _, rest = name.partition(" ")
    return f"{kind} {rest.rpartition('/')[2]}"


def _service(
    kept: "Resource", cluster: "ClusterCache", catalog: str, files: "Content"
) -> tuple[list["Manifest"], list[str], list[str]]:
    """Return the objects that the operator would create for a service, a sentence for each problem that prevents it from
    creating them, and the model and runtime of the service. `catalog` names the source of objects that are not in the files,
    and `files` is the content of the files.
    """
    from ome_operator.api import Invalid
    from ome_operator.cli.live.cluster_from_manifests import ref_of_body
    from ome_operator.cli.live.file_problems import without_cluster, without_repeats
    from ome_operator.cli.live.linted import with_validator
    from ome_operator.core.resolve.identity import CHOSEN
    from ome_operator.describe.outcome import compute_outcome

    name = f"{kept.ref.namespace}/{kept.ref.name}"
    if isinstance(kept.parsed, Invalid):
        return [], [f"{name}: {kept.parsed.why}"], []
    found = compute_outcome(kept.parsed, with_validator(cluster.deps()))
    if found.advice:
        print_error(f"{name}: note: {found.advice}")
    used = [f"{each['kind']} {each['name']}" for part in (CHOSEN, "model") if (each := found.inputs.get(part))]
    named = [ref_of_body(body) for body in files.objects]
    problems = without_cluster(without_repeats(found.problems, files.refused, name), catalog, named)
    return list(found.manifests), [f"{name}: {problem}" for problem in problems], used
