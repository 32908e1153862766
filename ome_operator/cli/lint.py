"""`ome lint`: finds settings with which a service does not start, answers wrongly or wastes GPUs. It checks files, or the
services of a cluster.
"""

from collections.abc import Sequence
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ome_operator import __version__
from ome_operator.cli.completing import OptionalService
from ome_operator.cli.connect import (
    Context,
    Kubeconfig,
    Namespace,
    no_such_service,
    on_cluster,
    refuse_file,
    resolve_service,
)
from ome_operator.cli.manifests import (
    STDIN,
    catalog_name,
    catalog_or_default,
    files_in,
    read_files,
    read_referenced,
    report_borrowed,
    report_skipped,
)
from ome_operator.cli.options import OptionalFiles
from ome_operator.errors import QuestionUnanswered

if TYPE_CHECKING:
    from ome_operator.engines.flags import Versions
    from ome_operator.kube.client import Client
    from ome_operator.lint.finding import Finding
    from ome_operator.lint.subject import Subject

app = typer.Typer(add_completion=False, rich_markup_mode=None)
ERRORS, WARNINGS = 2, 1


class Form(StrEnum):
    """Output format of the findings."""

    TEXT = "text"
    JSON = "json"
    SARIF = "sarif"


Catalog = Annotated[
    list[Path] | None,
    typer.Option(
        "--catalog",
        help="With -f: another file or folder with models, runtimes and accelerator classes; by default the folder "
        "config/ that is shipped with ome.",
    ),
]
EngineData = Annotated[
    Path | None, typer.Option(help="Folder with your own engine versions, such as sglang-0.5.24.json (docs/engines.md).")
]
Everywhere = Annotated[bool, typer.Option("--all-namespaces", "-A", help="Check the services of all namespaces.")]
Output = Annotated[Form, typer.Option("--output", "-o", help="text for people, json for programs, sarif for code scanning.")]
Fix = Annotated[
    bool,
    typer.Option("--fix", help="With -f: print a diff that corrects the findings that can be corrected automatically."),
]
Strict = Annotated[bool, typer.Option("--strict", help="Exit with code 1 if there are warnings.")]
Ignore = Annotated[list[str] | None, typer.Option(help="ID of a rule to skip; may be repeated.")]
Accelerator = Annotated[
    str,
    typer.Option(
        help="Accelerator class whose GPU memory the check assumes; by default the largest on which the pods may run."
    ),
]


@app.command(
    epilog="Examples: ome lint -f service.yaml --strict; ome lint kimi-k2-instruct -n kimi-k2-instruct; ome lint -A"
)
def lint(
    service: OptionalService = "",
    files: OptionalFiles = None,
    catalog: Catalog = None,
    namespace: Namespace = "",
    everywhere: Everywhere = False,
    output: Output = Form.TEXT,
    fix: Fix = False,
    strict: Strict = False,
    ignore: Ignore = None,
    accelerator: Accelerator = "",
    engine_data: EngineData = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Find settings with which services do not start, answer wrongly or waste GPUs. Checks the services of a cluster, or
    the services and runtimes in files.

    Exit code 2: there are errors, or the check could not run; 1: there are warnings, with --strict; else 0.
    """
    from ome_operator.cli.live.linted import on_machine
    from ome_operator.engines.flags import DataError
    from ome_operator.lint import rules
    from ome_operator.lint.files import without_consequences

    _check_rules(ignore or [])
    refuse_file(service)
    _check(service, files, everywhere, {"--fix": fix, "--catalog": bool(catalog)})
    try:
        versions = _versions(engine_data)
        if files:
            subjects = _offline(files, catalog, namespace or "default", versions)
        else:
            work = partial(_live, service=service, namespace=namespace, everywhere=everywhere, versions=versions)
            instead = "Use -f to check files instead."
            subjects = on_cluster(kubeconfig, context, work, elsewhere=instead, stopped=instead, error=QuestionUnanswered)
        subjects = on_machine(subjects, accelerator) if accelerator else subjects
        found = without_consequences(finding for subject in subjects for finding in rules.check(subject, ignore or ()))
    except DataError as error:
        raise QuestionUnanswered(f"--engine-data: {error}.") from error
    typer.echo(_answer(found, _texts(files or []), output, fix), nl=False)
    raise typer.Exit(_exit_code(found, strict))


def _answer(found: "Sequence[Finding]", texts: dict[str, str], output: Form, fix: bool) -> str:
    """Return the findings in the output format or, with `fix`, the diff that corrects them. `texts` maps the path of each
    checked file to its text.
    """
    from ome_operator.lint import report, source

    if fix:
        return source.patch(texts, found)
    if output is Form.TEXT:
        return report.text_report(found)
    return report.json_report(found, texts) if output is Form.JSON else report.sarif_report(found, texts, __version__)


def _exit_code(found: "Sequence[Finding]", strict: bool) -> int:
    from ome_operator.lint.finding import Severity

    severities = {finding.rule.severity for finding in found}
    return ERRORS if Severity.ERROR in severities else WARNINGS if strict and Severity.WARNING in severities else 0


def _check_rules(names: list[str]) -> None:
    """Raise an error if a name is not the ID of a rule."""
    from ome_operator.lint import rules

    if unknown := set(names) - rules.RULES.keys():
        raise typer.BadParameter(
            f"there is no rule {', '.join(sorted(unknown))}: docs/rules.md lists all rules", param_hint="--ignore"
        )


def _check(service: str, files: list[Path] | None, everywhere: bool, offline: dict[str, bool]) -> None:
    """Raise QuestionUnanswered for options that exclude each other or that require -f. `offline` maps each option that
    requires -f to whether it is given.
    """
    if files and (service or everywhere):
        raise QuestionUnanswered(
            "-f checks files, but SERVICE and -A check a cluster: leave out -f, or leave out SERVICE and -A."
        )
    if service and everywhere:
        raise QuestionUnanswered("SERVICE selects a single service and -A all services: leave out one of them.")
    if not files and (alone := [option for option, given in offline.items() if given]):
        raise QuestionUnanswered(f"{' and '.join(alone)} can be used only with -f: add -f and a file.")


def _versions(folder: Path | None) -> "Versions":
    from ome_operator.engines.flags import Versions, packaged_versions

    if folder is not None and not folder.is_dir():
        raise QuestionUnanswered(f"--engine-data: {folder} is not a folder.")
    return packaged_versions() if folder is None else Versions(folder)


def _texts(files: list[Path]) -> dict[str, str]:
    """Map the path of each named file to its text."""
    return {str(path): path.read_text(encoding="utf-8") for path in files_in(files) if path != STDIN}


def _offline(files: list[Path], catalog: list[Path] | None, namespace: str, versions: "Versions") -> "list[Subject]":
    """Return the services and runtimes in these files, with the parts of all objects that a cluster would refuse. Raises
    QuestionUnanswered if the files contain no object of the operator's kinds. `catalog` are the folders of the models and
    runtimes to which the files refer; None for the default folders.
    """
    from ome_operator.cli.live.linted import subjects

    found = read_files(files, namespace)
    report_skipped(found)
    beside = read_referenced(catalog_or_default(catalog), files, namespace, found.objects)
    name = catalog_name(catalog)
    looked_at = list(subjects(found.objects, beside, versions, found.refused, name, found.others))
    used = [text for each in looked_at if each.roles for text in (each.runtime, each.model_name)]
    report_borrowed(used, found, name)
    return looked_at


async def _live(client: "Client", service: str, namespace: str, everywhere: bool, versions: "Versions") -> "list[Subject]":
    """Return the services on the cluster that the command checks. They are read with the rights of the user. If `everywhere`
    is true, they are the services of all namespaces; otherwise the service `service`, or all services of the namespace if
    `service` is "".
    """
    from ome_operator.cli.live.linted import on_a_cluster
    from ome_operator.kube.errors import NotFound

    where, name = resolve_service(client, service, namespace)
    try:
        return await on_a_cluster(client, "" if everywhere else where, name, versions)
    except NotFound as error:
        raise await no_such_service(client, name, where) from error
