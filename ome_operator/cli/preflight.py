"""`ome preflight`: finds problems of nodes and network that would keep a service from starting, before it is started."""

from collections.abc import Awaitable, Callable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ome_operator import keys
from ome_operator.cli.completing import OptionalService
from ome_operator.cli.connect import (
    Context,
    Kubeconfig,
    Namespace,
    namespace_or_default,
    no_such_service,
    on_cluster,
    refuse_file,
    resolve_service,
)
from ome_operator.cli.manifests import left_out, read_files, report_skipped
from ome_operator.cli.options import OptionalFiles
from ome_operator.cli.output import Format, emit, print_error
from ome_operator.errors import QuestionUnanswered

if TYPE_CHECKING:
    from ome_operator.core.preflight.on_demand import Trial
    from ome_operator.describe.preflight import PreflightReport
    from ome_operator.kube.client import Client

app = typer.Typer(add_completion=False, rich_markup_mode=None)


class Form(StrEnum):
    """Output format of the findings."""

    TEXT = "text"
    JSON = "json"


class Role(StrEnum):
    """A role whose nodes can be checked."""

    PREFILL = "prefill"
    DECODE = "decode"
    ENGINE = "engine"


RoleOption = Annotated[Role | None, typer.Option(help="Check only the nodes of this role.")]
Timeout = Annotated[
    int,
    typer.Option(
        min=10, max=3600, help="Seconds within which all ranks must run, including the time for scheduling and image pulls."
    ),
]
ShowLogs = Annotated[bool, typer.Option("--logs", help="Print the log of each check to stderr, prefixed with its rank.")]
Output = Annotated[Form, typer.Option("--output", "-o", help="text for people, json for programs.")]
_COMPONENTS = {Role.PREFILL: keys.ENGINE, Role.ENGINE: keys.ENGINE, Role.DECODE: keys.DECODER}


@app.command(
    epilog="Examples: ome preflight -f service.yaml; ome preflight kimi-k2-instruct -n kimi-k2-instruct --role decode"
)
def preflight(
    service: OptionalService = "",
    files: OptionalFiles = None,
    namespace: Namespace = "",
    role: RoleOption = None,
    timeout: Timeout = 180,
    logs: ShowLogs = False,
    output: Output = Form.TEXT,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Find problems of nodes and network that would keep a service from starting. The command starts check pods that are
    scheduled like the service's pods, and removes them afterwards.

    With -f it checks the nodes that the services in these files would get, for all of their groups. With SERVICE it checks
    the free nodes on which one more group of each role would run. You need the right to create, list and delete pods and
    Services in the namespace.

    With -f, objects that a cluster would refuse are named with the reason, and the other services are checked.

    Exit code 0: nothing was found. 1: there are findings. 2: the check could not run, or not on all ranks, or an object
    would be refused.
    """
    refuse_file(service, "preflight")
    if bool(files) == bool(service):
        raise QuestionUnanswered("name either a SERVICE of the cluster, or files with -f.")
    from ome_operator.cli.live.preflight import CheckStopped

    roles = {_COMPONENTS[role]} if role is not None else set[str]()

    async def work(client: "Client") -> "tuple[PreflightReport, list[str]]":
        return await _check(client, service, files or [], namespace, roles, timeout, logs)

    try:
        report, problems = on_cluster(kubeconfig, context, work, error=QuestionUnanswered)
    except CheckStopped as signal:
        raise typer.Exit(128 + signal.number) from None
    _print_report(report, output, service)
    if problems:
        raise QuestionUnanswered(left_out(problems, "The other services were checked"))
    raise typer.Exit(1 if report.findings else 2 if report.missed else 0)


async def _check(
    client: "Client", service: str, files: list[Path], namespace: str, roles: set[str], within: int, logs: bool
) -> "tuple[PreflightReport, list[str]]":
    """Run the check pods of `_trials`. Return their results, and a sentence for everything that was not checked. If `logs`
    is true, the logs of the check pods are printed to stderr. `within` is the time limit of the check in seconds.
    """
    from ome_operator.cli.live.preflight import PreflightRun
    from ome_operator.describe.preflight import report

    trials, unchecked = await _trials(client, service, files, namespace, roles, within)
    run = PreflightRun(client, trials, within, print_error)
    return report(*await run.run(_logs(client, trials) if logs else None)), unchecked


async def _trials(
    client: "Client", service: str, files: list[Path], namespace: str, roles: set[str], within: int
) -> "tuple[list[Trial], list[str]]":
    """Return the sets of check pods to create, for the services in `files` or for `service`, and a sentence for everything
    in the files that is not checked. `within` is the time limit of the check in seconds. Raises QuestionUnanswered if there
    is nothing to check.
    """
    from ome_operator.cli.live.trials import of_files, of_service
    from ome_operator.kube.errors import NotFound

    if files:
        found = read_files(files, namespace_or_default(client, namespace))
        report_skipped(found)
        trials, problems = await of_files(client, found.accepted_objects(), roles, within)
        problems = [*map(str, found.refused), *problems]
        if not trials:
            raise QuestionUnanswered(
                left_out(problems, "") or "these files contain no InferenceService: name a file that contains a service."
            )
        return trials, problems
    where, name = resolve_service(client, service, namespace)
    try:
        return [await of_service(client, where, name, roles, within)], []
    except NotFound as error:
        raise await no_such_service(client, name, where) from error


def _logs(client: "Client", trials: "list[Trial]") -> Callable[[], Awaitable[None]]:
    """Return a function that prints the logs of the check pods to stderr."""

    async def show() -> None:
        from ome_operator.cli.live.logs import Source, show_merged
        from ome_operator.kube.podlogs import Logs, LogWindow
        from ome_operator.names import role_title

        sources = [
            Source(
                f"{role_title(place.component, each.is_disaggregated)}/{place.group}/{place.rank}",
                each.namespace,
                pod["metadata"]["name"],
                pod["spec"]["containers"][0]["name"],
            )
            for each in trials
            for place, pod in each.pods.items()
        ]
        logs = Logs(client.connection)
        try:
            await show_merged(
                logs, sources, LogWindow(), lambda label, line: print_error(f"{label}  │ {line.text}"), print_error
            )
        finally:
            await logs.close()

    return show


def _print_report(report: "PreflightReport", output: Form, service: str) -> None:
    from ome_operator.describe.preflight import in_place, occupied, report_lines

    if output is Form.JSON:
        emit(Format.JSON, report)
        return
    for text in report_lines(report):
        typer.echo(text)
    if held := [each for each in report.missed if not each.node and occupied(each.why)]:
        namespace, _, name = held[0].service.partition("/")
        typer.echo(in_place(name, namespace, stored=bool(service)))
