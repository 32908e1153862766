"""A group of commands that means a certain command where none is named."""

from typing import Any

from typer.core import TyperGroup


def otherwise(command: str) -> type[TyperGroup]:
    """The class of a group: what does not begin with any of its commands, or with a call for help, is for this command."""

    class Otherwise(TyperGroup):
        """`ome GROUP …` is `ome GROUP COMMAND …`."""

        def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
            if args and args[0] not in (*self.commands, *ctx.help_option_names):
                args = [command, *args]
            return super().parse_args(ctx, args)

    return Otherwise
