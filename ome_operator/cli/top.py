"""`ome top`: shows requests, tokens, latencies and GPUs of services, groups or nodes, the busiest first."""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from ome_operator.cli.completing import OptionalService
from ome_operator.cli.connect import Context, Kubeconfig, Namespace, no_such_service, on_cluster, resolve_service
from ome_operator.cli.output import Format, Output, console, emit, print_error
from ome_operator.cli.watching import watch as watch_until_interrupted
from ome_operator.errors import QuestionUnanswered

if TYPE_CHECKING:
    from rich.text import Text

    from ome_operator.cli.live.summaries import ReadPage
    from ome_operator.describe.top import TopRow
    from ome_operator.kube.client import Client

app = typer.Typer(add_completion=False, rich_markup_mode=None)
INTERVAL = 5.0
"""Seconds between two polls by `ome top --watch`. Registries read engines every 5 s."""


class TopSubject(StrEnum):
    """The kind of object that a row describes."""

    SERVICES = "services"
    GROUPS = "groups"
    NODES = "nodes"


class SortColumn(StrEnum):
    """The column by which rows are sorted."""

    NAME = "name"
    REQUESTS = "requests"
    IN = "in"
    OUT = "out"
    RUNNING = "running"
    WAITING = "waiting"
    TTFT = "ttft"
    TBT = "tbt"
    CACHE = "cache"
    GPUS = "gpus"
    AGE = "age"


class TopView(NamedTuple):
    """The sorted rows of the table, and remarks about them for the user."""

    rows: list["TopRow"]
    remark: str


@app.command(
    epilog="Examples: ome top -A; ome top groups kimi-k2-instruct -n kimi-k2-instruct; ome top nodes -A --sort gpus"
)
def top(
    what: Annotated[TopSubject, typer.Argument(show_default=False, help="Kind of the rows; services by default.")] = (
        TopSubject.SERVICES
    ),
    service: OptionalService = "",
    namespace: Namespace = "",
    everywhere: Annotated[bool, typer.Option("--all-namespaces", "-A", help="Show the services of all namespaces.")] = False,
    sort: Annotated[
        SortColumn, typer.Option(help="Sort by this column, with the largest numbers first and unknown numbers last.")
    ] = SortColumn.RUNNING,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Keep showing the current numbers until Ctrl+C.")] = False,
    output: Output = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Show requests and tokens per second, running and waiting requests, latencies, use of the KV cache, and GPUs.

    The numbers are read from the routers through the API server if you may `get pods/proxy`. Otherwise those of services
    are read from status.traffic; the column AGE shows how old they are (docs/cli.md).
    """
    if service and everywhere:
        raise QuestionUnanswered("SERVICE selects a single service and -A all services: leave out one of them.")

    async def work(client: "Client") -> TopView:
        from ome_operator.kube.podproxy import PodPages

        where, name = resolve_service(client, service, namespace)
        pages = PodPages(client.connection)

        async def look() -> TopView:
            return await _look(client, pages.text, what, name, "" if everywhere else where, sort)

        try:
            return await _watch(look, what, output) if watch else await look()
        finally:
            await pages.close()

    _print(on_cluster(kubeconfig, context, work, error=QuestionUnanswered, read_only=True), what, output)


async def _look(
    client: "Client", page: "ReadPage", what: TopSubject, service: str, namespace: str, sort: SortColumn
) -> TopView:
    """Read the cluster and its routers once. Raises QuestionUnanswered if there is no service."""
    from ome_operator.cli.live.numbers import nodes, read_service_numbers
    from ome_operator.describe import top as describe
    from ome_operator.describe import top_table
    from ome_operator.kube.errors import NotFound

    known = await nodes(client)
    try:
        found = await read_service_numbers(client, page, namespace, service, known.simulated)
    except NotFound as error:
        raise await no_such_service(client, service, namespace) from error
    if not found.services:
        where = f"namespace {namespace}: use -A for all namespaces" if namespace else "this cluster"
        raise QuestionUnanswered(f"there is no InferenceService in {where}.")
    now = datetime.now(UTC)
    rows = {
        TopSubject.SERVICES: lambda: describe.service_rows(found.services, now),
        TopSubject.GROUPS: lambda: describe.group_rows(found.services, now),
        TopSubject.NODES: lambda: describe.node_rows(found.services, known.nodes if namespace == "" else (), now),
    }[what]()
    remark = describe.remark(found.services, found.missing_reports, now, stored=what is TopSubject.SERVICES)
    return TopView(top_table.sort_top_rows(rows, sort), remark)


def _print(view: TopView, what: TopSubject, output: Format | None) -> None:
    if output is not None:
        emit(output, view.rows)
    else:
        screen = console()
        screen.print(_table(view, what, screen.height if screen.is_terminal else None), soft_wrap=True)
    if view.remark:
        print_error(view.remark)


def _table(view: TopView, what: TopSubject, height: int | None) -> "Text":
    """Return the table. With a `height`, the table has at most as many lines as a terminal of this height shows."""
    from rich.text import Text

    from ome_operator.describe import top_table
    from ome_operator.util.visible import make_all_visible

    rows = make_all_visible(view.rows)
    shown = rows if height is None else rows[: max(1, height - 4)]
    head, *body = top_table.lines(shown, what)
    more = [f"and {len(rows) - len(shown)} more: --sort selects which rows come first; output to a pipe has all rows"]
    return Text("\n").join((Text(head, "bold"), *map(Text, body), *map(Text, more if len(shown) < len(rows) else ())))


async def _watch(look: Callable[[], Awaitable[TopView]], what: TopSubject, output: Format | None) -> TopView:
    from rich.text import Text

    from ome_operator.util.visible import make_visible

    def drawn(view: TopView) -> Text:
        return Text("\n").join((_table(view, what, console().height), Text(make_visible(view.remark), "dim")))

    return await watch_until_interrupted(look, drawn, lambda view: _print(view, what, output), INTERVAL, live=output is None)
