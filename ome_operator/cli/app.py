"""The root of the command line. The module of a subcommand is loaded when the subcommand runs, so that small commands
start fast.

To add a command, write a module with a `typer.Typer` called `app`, and add a line to COMMANDS. Several commands may share a
module. Another package adds commands by entry points of the groups PLUGINS and LINES. The package `ome_local` does this; it
is not part of any image.
"""

import re
from importlib import import_module
from importlib.metadata import entry_points
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from ome_operator import __version__
from ome_operator.util.similar import most_similar

COMMANDS = {
    "operator": ("ome_operator.cli.operator", "Run the operator."),
    "registry": (
        "ome_operator.cli.registry",
        "Keep the list of workers of a router equal to the pods that can serve (the router's sidecar).",
    ),
    "generate": ("ome_operator.cli.generate", "Print the launch command and the YAML that serve a model on your hardware."),
    "plan": (
        "ome_operator.cli.plan",
        "Calculate how many nodes a load needs, and its throughput, latency and price, from request lengths.",
    ),
    "status": ("ome_operator.cli.status", "Show services as trees, with the reason for everything that is not ready."),
    "top": ("ome_operator.cli.top", "Show requests, tokens, latencies and GPUs of services, groups or nodes."),
    "explain": (
        "ome_operator.cli.explain",
        ("Show why a service is not ready and what to do, or why a runtime is selected for it."),
    ),
    "nodes": (
        "ome_operator.cli.nodes",
        "Show the nodes with their GPUs, the services that use them, and the nodes that are avoided.",
    ),
    "logs": ("ome_operator.cli.logs", "Show all logs of a group, each line prefixed with its rank."),
    "ui": ("ome_operator.cli.ui.command", "Serve a live page with services, logs and metrics to a browser on this machine."),
    "record": ("ome_operator.cli.record", "Record in a file what the operator observes of a service and decides now."),
    "replay": (
        "ome_operator.cli.replay",
        "Replay a recording on any machine: show what the operator observed, what it decided, and why.",
    ),
    "diff": ("ome_operator.cli.diff", "Show what an edit would change and restart, before it is applied."),
    "render": ("ome_operator.cli.render", "Print what the operator would create, from files and without a cluster."),
    "fit": (
        "ome_operator.cli.fit",
        "Show whether a service would fit on the nodes now, where it would run, and which pods are in the way.",
    ),
    "lint": ("ome_operator.cli.lint", "Find settings that keep a service from starting or make it answer wrongly."),
    "preflight": (
        "ome_operator.cli.preflight",
        "Find problems of nodes and network that would keep a service from starting.",
    ),
    "history": ("ome_operator.cli.rollout", "List the stored revisions of a service, and what changed between them."),
    "undo": ("ome_operator.cli.rollout", "Go back to a stored revision of a service, and pin it."),
    "retry": ("ome_operator.cli.rollout", "Try a rejected revision of a service again."),
    "restart": ("ome_operator.cli.rollout", "Replace all engine and decoder pods of a service."),
    "pause": ("ome_operator.cli.rollout", "Record new revisions of a service without rolling them out."),
    "resume": ("ome_operator.cli.rollout", "Continue the rollouts that a pause stopped."),
    "scale": ("ome_operator.cli.scale", "Show why a service has its size, or simulate how its size follows a load."),
    "wake": ("ome_operator.cli.wake", "Wake a service that is scaled to zero."),
    "freeze": ("ome_operator.cli.freeze", "Emergency stop: nothing is rolled, scaled or recycled until `ome thaw`."),
    "move": ("ome_operator.cli.move", "Move the groups of a node, or a group of a service, to other nodes."),
    "thaw": ("ome_operator.cli.freeze", "End a freeze."),
    "agent": ("ome_operator.cli.agent", "Download and verify weights on one node (the model agent)."),
    "benchmark": ("ome_operator.cli.benchmark", "Run the steps of a BenchmarkJob's pod."),
    "kubeconfig": (
        "ome_operator.cli.kubeconfig",
        "Write a kubeconfig of a ServiceAccount, to run the operator outside a cluster.",
    ),
    "adopt": ("ome_operator.cli.adopt", "Take over a cluster in which OME has run."),
}
"""Maps the name of a command to its module, and to the line that `ome --help` shows without loading the module."""

PLUGINS = "ome.commands"
"""Entry point group of commands. Each entry point maps the name of a command to a `typer.Typer` of another package."""
LINES = "ome.lines"
"""Entry point group of help lines. Each entry point maps the name of a command to the line that `ome --help` shows. For a
command without such a line, `ome --help` loads the module of the command."""


_MEANT = {
    "apply": "diff -f FILE, then kubectl apply -f FILE",
    "check": "lint",
    "describe": "explain",
    "drain": "move",
    "get": "status",
    "help": "--help",
    "list": "status -A",
    "ls": "status -A",
    "rollback": "undo",
    "template": "render",
    "unfreeze": "thaw",
    "validate": "lint",
    "version": "--version",
}
"""Word that other programs have as a command → what to write for it with `ome`: a command, or a
command and its arguments.
"""


def commands() -> list[str]:
    """Return the names of all commands: the commands in COMMANDS, in this order, then the commands of other packages."""
    return [*COMMANDS, *sorted(entry_points(group=PLUGINS).names - COMMANDS.keys())]


def _named(name: str, line: str) -> TyperCommand:
    """Return a placeholder for a command in the list of commands. It has only a name and a help line."""
    return TyperCommand(name, help=line, short_help=line)


class LazyGroup(TyperGroup):
    """A command group that loads the module of a command when the command is used."""

    _listing = False

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of the commands in the order of COMMANDS, followed by the commands of other packages."""
        return commands()

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return the loaded command. While the help of the group is written, return a placeholder with the command's name
        and help line instead. Return None for an unknown name.
        """
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

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command that the first argument names. For an unknown name, the error proposes the command that other
        programs call by this name, or a command with a similar name. There is no error while a shell completes a command
        line.
        """
        name = args[0]
        known = name in COMMANDS or name in commands()  # the second reads a file of each installed package
        meant = "" if known else _MEANT.get(name) or most_similar(name, commands())
        if meant and not ctx.resilient_parsing:
            ctx.fail(f"No such command '{name}'. Did you mean `ome {meant}`?")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Run a command. Two kinds of error messages are changed. The prefix "Value error, " of Pydantic, with which typer
        checks values, is removed. To a message about too many arguments, the remedy for the most frequent mistakes is
        added.
        """
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            error.message = error.message.removeprefix("Value error, ")
            raise
        except Exception as error:
            said, command = str(getattr(error, "message", "")), getattr(getattr(error, "ctx", None), "command", None)
            if said.startswith("Got unexpected extra argument") and (remedy := _remedy(said, command)):
                error.message = f"{said}. {remedy}"  # type: ignore[attr-defined]
            raise

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help of the group without loading its commands."""
        self._listing = True
        try:
            super().format_help(ctx, formatter)
        finally:
            self._listing = False


def _remedy(said: str, command: Any) -> str:
    """Return an instruction to add to `said`, a message about too many arguments of the command `command`; "" if the mistake
    that causes them is not known. The usual mistakes are `-f *.yaml`, which a shell replaces by several files, and a
    revision of `ome undo` without `--to`.
    """
    repeatable = any("-f" in each.opts and getattr(each, "multiple", False) for each in getattr(command, "params", ()))
    if repeatable and re.search(r"\.(ya?ml|json)\b", said):
        return "Repeat -f for each file, or name their directory."
    return "Write a revision behind --to." if getattr(command, "name", "") == "undo" else ""


app = typer.Typer(
    cls=LazyGroup,
    no_args_is_help=True,
    rich_markup_mode=None,  # plain help, because typer's tables cut the names of options
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
    """Define the options of `ome` itself."""
