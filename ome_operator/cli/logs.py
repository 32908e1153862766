"""`ome logs`: prints all logs of a group, each line prefixed with its rank."""

import re
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from ome_operator.cli.completing import Service
from ome_operator.cli.connect import Context, Kubeconfig, Namespace, no_such_service, on_cluster, resolve_service
from ome_operator.cli.output import console, print_error
from ome_operator.errors import QuestionUnanswered
from ome_operator.util.visible import make_visible

if TYPE_CHECKING:
    from ome_operator.cli.live.logs import Source
    from ome_operator.describe.log_selection import PodChoice
    from ome_operator.kube.client import Client
    from ome_operator.kube.podlogs import LogLine, LogWindow

app = typer.Typer(add_completion=False, rich_markup_mode=None)
TAIL = 100
_COLOURS = (36, 33, 32, 35, 34, 31, 96, 93, 92, 95, 94, 91)
"""ANSI color codes. Each rank gets the next code; after the last code, the first code follows."""


Role = Annotated[str | None, typer.Option(help="Show only this role: prefill, decode, engine or router.")]
Group = Annotated[int | None, typer.Option(min=0, help="Only this group.")]
Rank = Annotated[int | None, typer.Option(min=0, help="Show only this rank of each group.")]
Following = Annotated[
    bool, typer.Option("--follow", "-f", help=("Follow the logs until Ctrl+C, even if containers restart."))
]
Since = Annotated[str | None, typer.Option(help="Show only lines that are newer than this duration, such as 30s, 5m or 1h.")]
Tail = Annotated[
    int | None,
    typer.Option(
        min=-1,
        help=f"Number of last lines of each log to show; -1: all lines. By default {TAIL}, or all lines with --since.",
    ),
]
Container = Annotated[
    str | None,
    typer.Option(
        "--container", "-c", help=("Name of the container; by default the container that runs the engine or router.")
    ),
]
Previous = Annotated[
    bool, typer.Option("--previous", "-p", help="Show the logs of the containers before their last restart.")
]
Timestamps = Annotated[bool, typer.Option("--timestamps", help="Prefix each line with its time.")]


@app.command(
    epilog="Examples: ome logs kimi-k2-instruct --role decode --group 0 -f; ome logs kimi-k2-instruct --rank 0 --since 5m"
)
def logs(
    service: Service,
    namespace: Namespace = "",
    role: Role = None,
    group: Group = None,
    rank: Rank = None,
    following: Following = False,
    since: Since = None,
    tail: Tail = None,
    container: Container = None,
    previous: Previous = False,
    timestamps: Timestamps = False,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Print all logs of a service, a role or a group, sorted by time. Each line is prefixed with role/group/rank.

    Exit code 0: all logs are shown. 1: some could not be read; stderr names them. 2: there is nothing to read.
    """
    from ome_operator.describe.log_selection import PodChoice

    window, choice = _window(following, previous, tail, since), PodChoice(role, group, rank)

    async def work(client: "Client") -> int:
        where, name = resolve_service(client, service, namespace)
        return await _print_logs(client, where, name, choice, container, window, timestamps)

    failed = on_cluster(kubeconfig, context, work, error=QuestionUnanswered)
    raise typer.Exit(1 if failed else 0)


async def _print_logs(
    client: "Client",
    namespace: str,
    service: str,
    choice: "PodChoice",
    container: str | None,
    window: "LogWindow",
    timestamps: bool,
) -> int:
    """Print the logs of the selected containers, and return the number of logs that could not be read. Raises
    QuestionUnanswered if there is no log. `container` is the name of the container; None for the container that runs the
    role. If `timestamps` is true, each line begins with its time.
    """
    from ome_operator.cli.live.logs import follow_logs, show_merged
    from ome_operator.cli.live.simulated import read_simulated_nodes
    from ome_operator.kube.podlogs import Logs

    simulated = await read_simulated_nodes(client)

    async def look() -> list["Source"]:
        found = await _sources(client, namespace, service, choice, container)
        return [item for item in found if item.node not in simulated]

    sources = await look()
    if not sources:
        raise QuestionUnanswered(await _nothing(client, namespace, service, choice, container, simulated))
    show, reader = _Shown(max(len(item.label) for item in sources), timestamps), Logs(client.connection)
    try:
        if window.follow:
            await follow_logs(reader, look, window, show, print_error)
        return await show_merged(reader, sources, window, show, print_error)
    finally:
        await reader.close()


def _window(following: bool, previous: bool, tail: int | None, since: str | None) -> "LogWindow":
    """Return which lines of each log to read. Raises QuestionUnanswered if options exclude each other or are invalid. The
    parameters are the values of the options of `ome logs`; None for an option that is not set.
    """
    from ome_operator.describe.log_selection import parse_seconds
    from ome_operator.kube.podlogs import LogWindow

    newest = parse_seconds(since) if since is not None else None
    if since is not None and newest is None:
        raise QuestionUnanswered(f"--since {since} is not a duration: write a duration such as 30s, 5m or 1h30m.")
    if following and previous:
        raise QuestionUnanswered(
            "--previous shows containers that have ended, which cannot be followed: leave out --follow."
        )
    last = tail if tail is not None else (-1 if since is not None else TAIL)
    return LogWindow(follow=following, previous=previous, tail=None if last < 0 else last, since=newest)


async def _sources(
    client: "Client", namespace: str, service: str, choice: "PodChoice", container: str | None
) -> list["Source"]:
    """Return the selected containers. Containers of leaders come first. `container` is the name of the container; None for
    the container that runs the role.
    """
    from ome_operator.cli.live.logs import Source
    from ome_operator.cli.live.trees import selector
    from ome_operator.core.observed import from_api
    from ome_operator.core.observed.slices import made_by_workload
    from ome_operator.describe.log_selection import pod_labels

    bodies = await client.list_objects("Pod", namespace, label_selector=selector(service))
    labels = pod_labels(filter(made_by_workload, map(from_api.pod, bodies)), choice)
    boxes = {item["metadata"]["name"]: _container(item["spec"], container) for item in bodies}
    nodes = {item["metadata"]["name"]: item["spec"].get("nodeName") or "" for item in bodies}
    return [Source(label, namespace, pod, boxes[pod], nodes[pod]) for pod, label in labels.items() if boxes[pod]]


def _container(spec: dict[str, list[dict[str, str]]], wanted: str | None) -> str:
    """Return the name of the container whose log is shown. The result is `wanted`, or "" if the pod has no container of
    this name. If `wanted` is None, the result is the first container, which runs the role.
    """
    names = [item["name"] for item in (*spec["containers"], *(spec.get("initContainers") or ()))]
    return names[0] if wanted is None else wanted if wanted in names else ""


async def _nothing(
    client: "Client", namespace: str, service: str, choice: "PodChoice", container: str | None, simulated: frozenset[str]
) -> str:
    """Return a sentence that explains why there is no log to show. `container` is the container that the user named; None if
    the user named none.
    """
    from ome_operator.cache.resources import SERVICE
    from ome_operator.cli.live.trees import selector
    from ome_operator.core.observed import from_api
    from ome_operator.core.observed.slices import made_by_workload
    from ome_operator.describe.log_selection import explain_no_pods, pod_labels
    from ome_operator.describe.text import combine_names
    from ome_operator.kube.errors import NotFound

    try:
        await client.get(SERVICE, namespace, service)
    except NotFound as error:
        raise await no_such_service(client, service, namespace) from error
    bodies = await client.list_objects("Pod", namespace, label_selector=selector(service))
    pods = [*filter(made_by_workload, map(from_api.pod, bodies))]
    on = {item["spec"].get("nodeName") for item in bodies} & simulated
    if on and pod_labels(pods, choice):
        are = "is simulated" if len(on) == 1 else "are simulated"
        return f"{combine_names(sorted(on))} {are}, so no engine runs there and there are no logs."
    if container is not None and (chosen := pod_labels(pods, choice)):
        names = {
            box["name"]
            for item in bodies
            if item["metadata"]["name"] in chosen
            for box in (*item["spec"]["containers"], *(item["spec"].get("initContainers") or ()))
        }
        return f"there is no container {container}. Choose one of {', '.join(sorted(names))}."
    return f"{service}: {explain_no_pods(pods, choice)}."


_COLOUR = re.compile("\x1b\\[[0-9;]*m")
"""A pattern of ANSI color sequences in a program's output. On a terminal, these sequences are removed, because a color
would continue on the following lines."""


class _Shown:
    """A function object that writes log lines to stdout. On a terminal, every rank has its own color."""

    def __init__(self, width: int, timestamps: bool) -> None:
        self._width, self._timestamps, self._colours = width, timestamps, dict[str, int]()
        screen = console()
        self._terminal = screen.is_terminal
        self._coloured = screen.is_terminal and not screen.no_color

    def __call__(self, label: str, line: "LogLine") -> None:
        front, text = f"{label:{self._width}} │", line.text
        if self._terminal:
            text = make_visible(_COLOUR.sub("", text), keep="\t")
        if self._coloured:
            colour = self._colours.setdefault(label, _COLOURS[len(self._colours) % len(_COLOURS)])
            front = f"\x1b[{colour}m{front}\x1b[0m"
        sys.stdout.write(f"{front} {line.when + ' ' if self._timestamps else ''}{text}\n")
        sys.stdout.flush()
