"""`ome ui`: shows the output of `ome status`, `explain`, `history` and `logs` in a browser on this machine."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ome_operator.cli.connect import Context, Kubeconfig, namespace_or_default, on_cluster
from ome_operator.cli.output import print_error, print_result
from ome_operator.errors import QuestionUnanswered

if TYPE_CHECKING:
    from ome_operator.describe.actions import CommandBuilder
    from ome_operator.kube.client import Client

app = typer.Typer(add_completion=False, rich_markup_mode=None)
PORT = 8765


OnlyNamespace = Annotated[
    str, typer.Option("--namespace", "-n", help="Show only this namespace; by default all namespaces.", show_default=False)
]
Port = Annotated[int, typer.Option(min=0, max=65535, help="Port on 127.0.0.1; 0: any free port.")]
Open = Annotated[bool, typer.Option("--open/--no-open", help="Open the page in the browser of this machine.")]


@app.command(epilog="Examples: ome ui; ome ui -n kimi-k2-instruct --port 9000 --no-open; ome ui --context prod")
def ui(
    namespace: OnlyNamespace = "",
    port: Port = PORT,
    open_: Open = True,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Serve a live page on this machine that shows all services, why they are not ready, and the nodes with their weights.

    The page reads with your kubeconfig and writes nothing: each action is shown as the command that performs it. It is
    served on 127.0.0.1 only, to browsers that have the token of the printed address, until Ctrl+C.
    """
    from ome_operator.describe.actions import CommandBuilder

    shell = CommandBuilder(tuple(_flags(kubeconfig, context)))

    async def work(client: "Client") -> None:
        await _serve(client, shell, context, namespace, port, open_)

    on_cluster(kubeconfig, context, work, error=QuestionUnanswered, read_only=True)


async def _serve(
    client: "Client", shell: "CommandBuilder", context: str | None, namespace: str, port: int, open_: bool
) -> None:
    """Serve the page until the task is cancelled. `open_` opens it in a browser. Raises QuestionUnanswered if the port is
    not free.
    """
    from ome_operator.cli.live.board import ClusterPoller
    from ome_operator.cli.ui.feed import Feed
    from ome_operator.cli.ui.server import ClusterSite, PodReaders, serve_site
    from ome_operator.kube.podlogs import Logs
    from ome_operator.kube.podproxy import PodPages
    from ome_operator.machinery.health import PortTaken

    logs, pages = Logs(client.connection), PodPages(client.connection)
    poller = ClusterPoller(client, namespace, fallback=namespace_or_default(client, ""))
    where = f"{context} · {client.connection.server}" if context else client.connection.server
    site = ClusterSite(client, PodReaders(logs.lines, pages.text), Feed(poller.poll), shell, where)
    try:
        async with serve_site(site, port) as address:
            print_result(f"ome ui: {address.open}")
            print_result("Anyone with this address can see what your kubeconfig can read. Press Ctrl+C to stop.")
            with _file_for_browser(address.ticket) if open_ else nullcontext() as file:
                if file is not None:
                    _start_browser(file)
                await asyncio.Event().wait()
    except PortTaken as error:
        raise QuestionUnanswered(f"{error}. Choose another port with --port; 0 selects a free port.") from error
    finally:
        await logs.close()
        await pages.close()


def _flags(kubeconfig: Path | None, context: str | None) -> list[str]:
    """Return the flags with which another command reaches the same cluster. A value that comes from $KUBECONFIG needs no
    flag, because the user's shell has the variable, too.
    """
    import os

    named = kubeconfig is not None and str(kubeconfig) != os.environ.get("KUBECONFIG")
    return [*(["--kubeconfig", str(kubeconfig)] if named else []), *(["--context", context] if context else [])]


@contextmanager
def _file_for_browser(address: str) -> Iterator[Path]:
    """Write a page that leads to the address, which only this user can read, and remove it at the end of the `with` block.
    Other users of the machine can list the arguments of a browser, and would see an address there.
    """
    import os
    import tempfile

    folder = os.environ.get("XDG_RUNTIME_DIR", "")
    handle, name = tempfile.mkstemp(".html", "ome-ui-", folder if os.access(folder, os.W_OK) else None)
    with os.fdopen(handle, "w") as file:
        file.write(f'<!doctype html><meta http-equiv="refresh" content="0;url={address}"><title>ome</title>\n')
    try:
        yield Path(name)
    finally:
        Path(name).unlink(missing_ok=True)


def _start_browser(file: Path) -> None:
    """Open the file in a browser. A machine without a browser gets a hint, not an error."""
    import webbrowser

    try:
        opened = webbrowser.open(file.as_uri())
    except webbrowser.Error:
        opened = False
    if not opened:
        print_error("No browser could be started: open the address above yourself.")
