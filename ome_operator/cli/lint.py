"""`ome lint`: what of a service cannot start, answers wrongly or wastes GPUs, from files or on a cluster."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ome_operator import __version__
from ome_operator.cli.completing import services
from ome_operator.cli.connect import Context, Kubeconfig, Namespace, meant, missing, on_cluster
from ome_operator.cli.manifests import STDIN, catalogue, files_in, read, read_beside
from ome_operator.errors import Unanswered, UserError

if TYPE_CHECKING:
    from ome_operator.engines.flags import Versions
    from ome_operator.kube.client import Client
    from ome_operator.lint.subject import Subject

app = typer.Typer(add_completion=False, rich_markup_mode=None)
ERRORS, WARNINGS = 2, 1


class Form(StrEnum):
    """How findings are told."""

    TEXT = "text"
    JSON = "json"
    SARIF = "sarif"


Files = Annotated[
    list[Path] | None,
    typer.Option("--filename", "-f", help="YAML file, folder, or - for standard input; may be repeated."),
]
Catalog = Annotated[
    list[Path] | None,
    typer.Option(
        "--catalog",
        help="With -f: where models, runtimes and accelerator classes are, too; without it the config/ of ome.",
    ),
]
EngineData = Annotated[
    Path | None, typer.Option(help="Folder with versions of your own, such as sglang-0.5.24.json (docs/engines.md).")
]


@app.command(
    epilog="Examples: ome lint -f service.yaml --strict; ome lint kimi-k2-instruct -n kimi-k2-instruct; ome lint -A"
)
def lint(
    service: Annotated[str, typer.Argument(metavar="[SERVICE]", show_default=False, autocompletion=services)] = "",
    files: Files = None,
    catalog: Catalog = None,
    namespace: Namespace = "",
    everywhere: Annotated[bool, typer.Option("--all-namespaces", "-A", help="Services of all namespaces.")] = False,
    output: Annotated[
        Form, typer.Option("--output", "-o", help="For people, for programs, or for code scanning.")
    ] = Form.TEXT,
    fix: Annotated[
        bool, typer.Option("--fix", help="With -f: print the diff that mends what a word mends; nothing is written.")
    ] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Warnings count, too.")] = False,
    ignore: Annotated[list[str] | None, typer.Option(help="Id of a rule to leave out; may be repeated.")] = None,
    engine_data: EngineData = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """What of services cannot start, answers wrongly or wastes GPUs: of a cluster, or of files, whose runtimes count, too.

    Exit code 2: errors, or it cannot be told; 1: warnings, with --strict; else 0.
    """
    from ome_operator.engines.flags import DataError
    from ome_operator.lint import rules, source, told
    from ome_operator.lint.finding import Severity

    if unknown := set(ignore or ()) - rules.RULES.keys():
        raise typer.BadParameter(
            f"there is no rule {', '.join(sorted(unknown))}: docs/rules.md has all", param_hint="--ignore"
        )
    _check(service, files, everywhere, {"--fix": fix, "--catalog": bool(catalog)})
    try:
        versions = _versions(engine_data)
        if files:
            looked_at = _offline(files, catalog, namespace or "default", versions)
        else:
            looked_at = on_cluster(
                kubeconfig,
                context,
                lambda client: _live(client, service, namespace, everywhere, versions),
                elsewhere="-f reads files instead.",
                stopped="-f reads files instead.",
                error=Unanswered,
            )
        found = [finding for subject in looked_at for finding in rules.check(subject, ignore or ())]
    except DataError as error:
        raise Unanswered(f"--engine-data: {error}.") from error
    texts = _texts(files or [])
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


def _check(service: str, files: list[Path] | None, everywhere: bool, offline: dict[str, bool]) -> None:
    """Refuse options that say two things."""
    if files and (service or everywhere):
        raise Unanswered("-f is about files, SERVICE and -A about a cluster: leave either out.")
    if service and everywhere:
        raise Unanswered("SERVICE is of a single namespace: leave out -A, or the name.")
    if not files and (alone := [option for option, given in offline.items() if given]):
        raise Unanswered(f"{' and '.join(alone)} work on files: name them with -f.")


def _versions(folder: Path | None) -> "Versions":
    from ome_operator.engines.flags import Versions, packaged

    if folder is not None and not folder.is_dir():
        raise Unanswered(f"--engine-data: {folder} is no folder.")
    return packaged() if folder is None else Versions(folder)


def _texts(files: list[Path]) -> dict[str, str]:
    """Path -> text of the files that were named."""
    return {str(path): path.read_text(encoding="utf-8") for path in files_in(files) if path != STDIN}


def _offline(files: list[Path], catalog: list[Path] | None, namespace: str, versions: "Versions") -> "list[Subject]":
    """What stands in files."""
    from ome_operator.cli.live.linted import subjects

    given = read(files, namespace)
    looked_at = list(subjects(given, read_beside(_catalog(catalog), files, namespace), versions))
    if not looked_at:
        raise Unanswered(f"no InferenceService and no runtime in {', '.join(map(str, files))}: nothing to look at.")
    return looked_at


def _catalog(named: list[Path] | None) -> list[Path]:
    """Folders with what services refer to; the operator's image has none of its own, and then the files have to have all."""
    if named:
        return catalogue(named)
    try:
        return catalogue([Path("config")])
    except UserError:
        return []


async def _live(client: "Client", service: str, namespace: str, everywhere: bool, versions: "Versions") -> "list[Subject]":
    """Services of a cluster, with the rights of whoever asks."""
    from ome_operator.cli.live.linted import on_a_cluster
    from ome_operator.kube.errors import NotFound

    where, name = meant(client, service, namespace)
    try:
        return await on_a_cluster(client, "" if everywhere else where, name, versions)
    except NotFound as error:
        raise missing(name, where) from error
