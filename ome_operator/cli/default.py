"""Command groups with a default subcommand."""

from typing import Any

from typer.core import TyperGroup


def otherwise(command: str, always: bool = False) -> type[TyperGroup]:
    """Return the class of a command group that runs the subcommand `command` if the first argument is neither a
    subcommand nor a help option; if `always` is true, also without arguments.
    """

    class Otherwise(TyperGroup):
        """A command group in which `ome GROUP …` is equivalent to `ome GROUP COMMAND …`."""

        def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
            if (always and not args) or (args and args[0] not in (*self.commands, *ctx.help_option_names)):
                args = [command, *args]
            return super().parse_args(ctx, args)

    return Otherwise
