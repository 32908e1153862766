"""Repeat a command's query until Ctrl+C, and show each new result."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from ome_operator.cli.output import console, print_error

if TYPE_CHECKING:
    from rich.console import RenderableType

T = TypeVar("T")


async def watch(
    look: Callable[[], Awaitable[T]],
    drawn: "Callable[[T], RenderableType]",
    show: Callable[[T], None],
    interval: float,
    *,
    live: bool,
) -> T:
    """Call `look` every `interval` seconds, and show its result, until the task is cancelled by Ctrl+C. If `live` is true
    and the output is a terminal, the result of `drawn` is shown as a live view. Otherwise `show` prints each result that
    differs from the previous result.
    """
    from rich.live import Live

    from ome_operator.kube.errors import KubeError

    found, screen = await look(), console()
    view = Live(drawn(found), console=screen, auto_refresh=False) if screen.is_terminal and live else None
    if view is None:
        show(found)
    else:
        view.start(refresh=True)
    try:
        while True:
            await asyncio.sleep(interval)
            try:
                seen = await look()
            except KubeError as error:  # keep the last view
                print_error(f"the API server does not respond: {error}")
                continue
            if view is not None:
                view.update(drawn(seen), refresh=True)
            elif seen != found:
                show(seen)
            found = seen
    finally:
        if view is not None:
            view.stop()
