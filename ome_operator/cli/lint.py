"""`ome lint`: what of a service cannot start, answers wrongly or wastes GPUs, from files and without a cluster."""

from collections.abc import Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ome_operator import __version__, keys
from ome_operator.cli.manifests import STDIN, catalogue, files_in, read
from ome_operator.cli.render import SERVICES
from ome_operator.errors import Unanswered

if TYPE_CHECKING:
    from ome_operator.api import InferenceService, Runtime
    from ome_operator.cache.event_handler import EventHandler
    from ome_operator.core.observed.objects import Deps, Manifest
    from ome_operator.describe.outcome import Outcome
    from ome_operator.engines.flags import Versions
    from ome_operator.lint.subject import Subject

app = typer.Typer(add_completion=False, rich_markup_mode=None)
ERRORS, WARNINGS = 2, 1
MADE_UP = "ome-lint"
"""Name of the model of a service that is made up to look at a runtime by itself."""


class Form(StrEnum):
    """How findings are told."""

    TEXT = "text"
    JSON = "json"
    SARIF = "sarif"


Files = Annotated[
    list[Path], typer.Option("--filename", "-f", help="YAML file, folder, or - for standard input; may be repeated.")
]
Catalog = Annotated[
    list[Path] | None,
    typer.Option(
        "--catalog", help="Where models, runtimes and accelerator classes are, too; without it the config/ of ome."
    ),
]
EngineData = Annotated[
    Path | None, typer.Option(help="Folder with versions of your own, such as sglang-0.5.24.json (docs/engines.md).")
]


@app.command(epilog="Example: ome lint -f service.yaml --strict")
def lint(
    files: Files,
    catalog: Catalog = None,
    namespace: Annotated[str, typer.Option("--namespace", "-n", help="Of objects that name none.")] = "default",
    output: Annotated[
        Form, typer.Option("--output", "-o", help="For people, for programs, or for code scanning.")
    ] = Form.TEXT,
    fix: Annotated[
        bool, typer.Option("--fix", help="Print the diff that mends what a word mends; nothing is written.")
    ] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Warnings count, too.")] = False,
    ignore: Annotated[list[str] | None, typer.Option(help="Id of a rule to leave out; may be repeated.")] = None,
    engine_data: EngineData = None,
) -> None:
    """What of these services cannot start, answers wrongly or wastes GPUs; runtimes without a service are looked at, too.

    Exit code 2: errors, or files that cannot be read; 1: warnings, with --strict; else 0.
    """
    from ome_operator.engines.flags import DataError
    from ome_operator.lint import rules, source, told
    from ome_operator.lint.finding import Severity

    if unknown := set(ignore or ()) - rules.RULES.keys():
        raise typer.BadParameter(
            f"there is no rule {', '.join(sorted(unknown))}: docs/rules.md has all", param_hint="--ignore"
        )
    given = read(files, namespace)
    beside = [body for body in read(catalogue(catalog or [Path("config")]), namespace) if body["kind"] not in SERVICES]
    try:
        looked_at = list(subjects(given, beside, _versions(engine_data)))
        found = [finding for subject in looked_at for finding in rules.check(subject, ignore or ())]
    except DataError as error:
        raise Unanswered(f"--engine-data: {error}.") from error
    if not looked_at:
        raise Unanswered(f"no InferenceService and no runtime in {', '.join(map(str, files))}: nothing to look at.")
    texts = _texts(files)
    if fix:
        typer.echo(source.patch(texts, found), nl=False)
    elif output == Form.TEXT:
        typer.echo(told.text(found), nl=False)
    else:
        typer.echo(told.as_json(found, texts) if output == Form.JSON else told.sarif(found, texts, __version__), nl=False)
    severities = {finding.rule.severity for finding in found}
    raise typer.Exit(
        ERRORS if Severity.ERROR in severities else WARNINGS if strict and Severity.WARNING in severities else 0
    )


def _versions(folder: Path | None) -> "Versions":
    from ome_operator.engines.flags import Versions, packaged

    if folder is not None and not folder.is_dir():
        raise Unanswered(f"--engine-data: {folder} is no folder.")
    return packaged() if folder is None else Versions(folder)


def _texts(files: list[Path]) -> dict[str, str]:
    """Path -> text of the files that were named."""
    return {str(path): path.read_text(encoding="utf-8") for path in files_in(files) if path != STDIN}


def subjects(given: "list[Manifest]", beside: "list[Manifest]", versions: "Versions") -> Iterator["Subject"]:
    """What is looked at: the services in the files, then the runtimes that none of them uses."""
    from ome_operator.api import InferenceService, Runtime
    from ome_operator.cli.live.cluster_from_manifests import gather, made, ref

    cluster = gather([*beside, *given], model_agent=False)
    services = [kept.ref for kept in cluster.services()]
    named = {ref(body) for body in given}
    written = {found.of for kind in _short() for found in made(cluster, kind)}
    used = set()
    for kept in cluster.services():
        if isinstance(kept.parsed, InferenceService) and (kept.ref in named or written):
            service_as_run = _subject(kept.parsed, cluster, versions)
            used.add(service_as_run.runtime)
            yield service_as_run
        elif kept.ref in named:
            yield _unread(kept.ref, getattr(kept.parsed, "why", ""), versions)
    alone = [found for which, found in cluster.deps().runtimes.items() if which in named and isinstance(found, Runtime)]
    for runtime in (found for found in alone if f"{found.kind} {found.name}" not in used):
        body = _made_up(runtime)
        made_up = gather([*beside, *given, _model(), body], model_agent=False)
        service = next(kept.parsed for kept in made_up.services() if kept.ref not in services)
        if isinstance(service, InferenceService):
            yield _subject(service, made_up, versions, alone=True)
        else:  # a runtime that no service could name
            yield _unread(runtime, getattr(service, "why", ""), versions)


def _short() -> tuple[str, ...]:
    from ome_operator.cache.resources import SHORT

    return tuple(SHORT)


def _unread(which: Any, why: str, versions: "Versions") -> "Subject":
    """A service that cannot be read at all."""
    from ome_operator.lint.subject import Subject

    return Subject(f"{which.namespace}/{which.name}", "", (), None, (why,), versions, {})


def _subject(service: "InferenceService", cluster: "EventHandler", versions: "Versions", alone: bool = False) -> "Subject":
    from ome_operator.api import Model, Runtime
    from ome_operator.core.resolve.inputs import resolve
    from ome_operator.describe.outcome import outcome
    from ome_operator.lint.model import model_facts, node_labels
    from ome_operator.lint.subject import subject

    deps = cluster.deps()
    found, resolved = outcome(service, deps), resolve(service, deps)
    runtime = resolved.runtime if isinstance(resolved.runtime, Runtime) else None
    model = model_facts(resolved.model, deps.well_known) if isinstance(resolved.model, Model) and not alone else None
    labels = node_labels(deps.accelerators)
    return subject(service, runtime, found, model, versions, _memory(found, runtime, deps), labels, alone)


def _memory(found: "Outcome", runtime: "Runtime | None", deps: "Deps") -> Mapping[str, int]:
    """Accelerator class -> bytes of a GPU, of those on which it may run."""
    from ome_operator.lint.model import memories

    chosen = {part["class"] for part in (found.inputs.get("accelerator") or {}).values() if "class" in part}
    required = runtime.spec.accelerator_requirements if runtime is not None else None
    named = frozenset(chosen or (required and required.accelerator_classes) or ())
    pods = (body["spec"]["template"]["spec"] for body in found.manifests if body["kind"] == "StatefulSet")
    boxes = [box for pod in pods for box in pod["containers"]]
    asked = frozenset(name for box in boxes for name in ((box.get("resources") or {}).get("limits") or {}))
    return memories(deps.accelerators, named, asked)


def _model() -> "Manifest":
    """A model of which nothing is known."""
    return {
        "apiVersion": keys.API_VERSION,
        "kind": "ClusterBaseModel",
        "metadata": {"name": MADE_UP},
        "spec": {"storage": {"storageUri": "hf://ome/lint", "path": "/mnt/models/ome-lint"}},
    }


def _made_up(runtime: "Runtime") -> "Manifest":
    """A service that uses all of a runtime."""
    parts = {keys.ENGINE: True, keys.DECODER: runtime.spec.decoder_config, keys.ROUTER: runtime.spec.router_config}
    return {
        "apiVersion": keys.API_VERSION,
        "kind": "InferenceService",
        "metadata": {"name": MADE_UP, "namespace": runtime.namespace or "default"},
        "spec": {
            "model": {"name": MADE_UP, "kind": "ClusterBaseModel"},
            "runtime": {"name": runtime.name, "kind": runtime.kind},
            **{name: {"minReplicas": 1} for name, there in parts.items() if there},
        },
    }
