"""`ome record`: writes what the operator observes of a service to a file for `ome replay`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ome_operator.cli.completing import Service
from ome_operator.cli.connect import Context, Kubeconfig, Namespace, no_such_service, on_cluster, resolve_service
from ome_operator.cli.output import print_result
from ome_operator.errors import UserError

if TYPE_CHECKING:
    from ome_operator.kube.client import Client
    from ome_operator.recorder.passes import Pass

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command(epilog="Example: ome record kimi-k2-instruct -n kimi-k2-instruct; then ome replay kimi-k2-instruct.json")
def record(
    service: Service,
    namespace: Namespace = "",
    file: Annotated[
        Path | None,
        typer.Option("--file", help="File to write, which is compressed if its name ends in .gz; by default SERVICE.json."),
    ] = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Write what the operator observes of a service now, and what it decides, to a file for `ome replay`.

    The cluster is read with your own rights. A running operator writes its own reconciliation passes to such a file when it
    receives SIGUSR1. Values of variables and everything that looks like a secret are redacted, but check the file before you
    pass it on.
    """

    async def work(client: "Client") -> tuple[str, str, "Pass"]:
        from ome_operator.cli.live.recording import live
        from ome_operator.kube.errors import NotFound

        where, name = resolve_service(client, service, namespace)
        try:
            return where, name, await live(client, where, name)
        except NotFound as error:
            raise await no_such_service(client, name, where) from error

    where, name, made = on_cluster(kubeconfig, context, work)
    path = file or Path(f"{name}.json")
    redacted = _write(path, f"{where}/{name}", made)
    print_result(
        f"{path}: one reconciliation pass of {name}, with {redacted} redacted values. `ome replay {path}` replays it"
    )


def _write(path: Path, name: str, made: "Pass") -> int:
    from ome_operator import __version__
    from ome_operator.recorder import recording

    data = recording.to_json({name: [made]}, __version__, "ome record", made.now)
    try:
        with path.open("xb") as file:
            file.write(recording.encode(data, path.suffix == ".gz"))
    except FileExistsError as error:
        raise UserError(f"{path} already exists: remove it, or name another file with --file.") from error
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror}. Name another file with --file.") from error
    return int(data["services"][name]["redacted"])
