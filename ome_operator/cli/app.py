"""The root of the command line. Subcommands load when they are called, so that the small ones start fast.

To add one: a module with a `typer.Typer` called `app`, and a line in COMMANDS. Several may share a module. A package beside
the operator adds its own by entry points of the groups PLUGINS and LINES; `ome_local` does, and no image has it.
"""

from importlib import import_module
from importlib.metadata import entry_points
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from ome_operator import __version__

COMMANDS = {
    "operator": ("ome_operator.cli.operator", "Run the operator."),
    "registry": ("ome_operator.cli.registry", "Keep a router's workers equal to the pods that can serve (its sidecar)."),
    "generate": ("ome_operator.cli.generate", "The command and the YAML that serve Kimi K2 on your hardware."),
    "plan": ("ome_operator.cli.plan", "From lengths of requests to nodes, tokens a second, seconds and a price."),
    "status": ("ome_operator.cli.status", "Services as trees, and the reason for whatever is not ready."),
    "explain": ("ome_operator.cli.explain", "Why a service is not ready and what to do; why this runtime."),
    "logs": ("ome_operator.cli.logs", "All logs of a group, with the rank in front."),
    "ui": ("ome_operator.cli.ui.command", "All of that as a page in a browser of this machine, live."),
    "record": ("ome_operator.cli.record", "What the operator sees of a service now, as a file."),
    "replay": (
        "ome_operator.cli.replay",
        "Passes of such a file once more, on any machine: what was seen, decided, and why.",
    ),
    "diff": ("ome_operator.cli.diff", "What an edit would change and restart, before it is applied."),
    "render": ("ome_operator.cli.render", "What the operator would create, from files and without a cluster."),
    "lint": ("ome_operator.cli.lint", "What of a service cannot start or answers wrongly, before it is applied."),
    "preflight": (
        "ome_operator.cli.preflight",
        "What of nodes and network keeps a service from its start, without a start.",
    ),
    "history": ("ome_operator.cli.rollout", "The kept revisions of a service, and what changed from one to the next."),
    "undo": ("ome_operator.cli.rollout", "Go back to a kept revision of a service, and stay there."),
    "retry": ("ome_operator.cli.rollout", "Try a rejected revision of a service again."),
    "restart": ("ome_operator.cli.rollout", "Replace all pods of engine and decoder of a service."),
    "pause": ("ome_operator.cli.rollout", "Record new revisions of a service and roll none of them out."),
    "resume": ("ome_operator.cli.rollout", "Roll out what a pause held back."),
    "freeze": ("ome_operator.cli.freeze", "The red button: nothing is rolled, scaled or recycled until `ome thaw`."),
    "thaw": ("ome_operator.cli.freeze", "Go on with what a freeze held back."),
    "agent": ("ome_operator.cli.agent", "Fetch and verify weights on one node (the model agent)."),
    "benchmark": ("ome_operator.cli.benchmark", "Steps of a BenchmarkJob's pod."),
    "kubeconfig": (
        "ome_operator.cli.kubeconfig",
        "A kubeconfig of a ServiceAccount, to run the operator outside a cluster.",
    ),
    "adopt": ("ome_operator.cli.adopt", "Take over a cluster where OME has run."),
}
"""Name → module and the line that `ome --help` shows without loading it."""

PLUGINS = "ome.commands"
"""The group of entry points: name → a `typer.Typer` of another package."""
LINES = "ome.lines"
"""The group of entry points: name → the line that `ome --help` shows of it; without one the command is loaded for it."""


def commands() -> list[str]:
    """Names of all commands: those of the table in its order, then those of other packages."""
    return [*COMMANDS, *sorted(entry_points(group=PLUGINS).names - COMMANDS.keys())]


def _named(name: str, line: str) -> TyperCommand:
    """A command for a list: its name and its line."""
    return TyperCommand(name, help=line, short_help=line)


class LazyGroup(TyperGroup):
    """A group whose commands are modules that load on use."""

    _listing = False

    def list_commands(self, ctx: Any) -> list[str]:
        """In the order of the table, other packages' behind it."""
        return commands()

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command, loaded; only its name and line while help is shown."""
        if cmd_name in COMMANDS:
            module, line = COMMANDS[cmd_name]
            if self._listing:
                return _named(cmd_name, line)
            command = typer.main.get_command(import_module(module).app)
        elif self._listing and (told := next(iter(entry_points(group=LINES, name=cmd_name)), None)):
            return _named(cmd_name, told.load())
        elif plugin := next(iter(entry_points(group=PLUGINS, name=cmd_name)), None):
            command = typer.main.get_command(plugin.load())
        else:
            return None
        if isinstance(command, TyperGroup) and cmd_name in command.commands:
            command = command.commands[cmd_name]
        command.name = cmd_name
        return command

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Help for the group itself."""
        self._listing = True
        try:
            super().format_help(ctx, formatter)
        finally:
            self._listing = False


app = typer.Typer(
    cls=LazyGroup,
    no_args_is_help=True,
    rich_markup_mode=None,  # plain help: in columns of typer's tables names of options were cut
    pretty_exceptions_enable=False,
    help="Model-driven serving of large mixture-of-experts models on Kubernetes.",
    epilog="Examples: ome status -A; ome explain kimi-k2-instruct -n kimi-k2-instruct; ome COMMAND --help shows more",
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"ome {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """Options of every command."""
