"""Command groups with a default subcommand."""

from typing import Any

from typer.core import TyperGroup


def default_command_group(command: str, *, always: bool = False, options_only: bool = False) -> type[TyperGroup]:
    """Return the class of a command group with the default subcommand `command`. The default subcommand runs if the first
    argument is neither a subcommand nor a help option.

    If `always` is true, the default subcommand also runs without arguments. If `options_only` is true, it has no arguments
    but options, so a first argument that is no option is an unknown subcommand.
    """

    class Otherwise(TyperGroup):
        """A command group in which `ome GROUP …` is equivalent to `ome GROUP COMMAND …`."""

        def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
            known = not args or args[0] in (*self.commands, *ctx.help_option_names)
            if always if not args else not known and (args[0].startswith("-") or not options_only):
                args = [command, *args]
            return super().parse_args(ctx, args)

    return Otherwise
