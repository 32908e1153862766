"""`ome benchmark`: the steps of a BenchmarkJob's pod that are ours. People apply a BenchmarkJob instead."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from ome_operator.errors import UserError

app = typer.Typer(
    epilog="Example: ome benchmark report --help", no_args_is_help=True, add_completion=False, rich_markup_mode=None
)
WORK, SECRETS, MESSAGE = Path("/ome/work"), Path("/ome/secrets"), Path("/dev/termination-log")
_Plan = Annotated[str, typer.Option(help="What to do, as JSON.", envvar="OME_BENCHMARK")]
_Work = Annotated[Path, typer.Option(help="Folder that the steps share.")]
_Secrets = Annotated[Path, typer.Option(help="Folders `dataset` and `output` with the values of their Secrets.")]


@app.command(epilog="Example: OME_BENCHMARK=$(cat plan.json) ome benchmark prepare --work /tmp/work")
def prepare(plan: _Plan, work: _Work = WORK, secrets: _Secrets = SECRETS) -> None:
    """Before the benchmark: fetch the data set."""
    from ome_operator.benchmark_pod import steps

    with _naming("spec.dataset.storageUri"):
        steps.prepare(json.loads(plan), work, secrets)


@app.command(epilog="Example: OME_BENCHMARK=$(cat plan.json) ome benchmark report --work /tmp/work --message /tmp/summary")
def report(
    plan: _Plan,
    work: _Work = WORK,
    secrets: _Secrets = SECRETS,
    message: Annotated[Path, typer.Option(help="Where the summary goes.")] = MESSAGE,
) -> None:
    """After the benchmark: results, page and summary. Fails when a request has failed."""
    from ome_operator.benchmark_pod import steps

    with _naming("spec.outputLocation"):
        good = steps.report(json.loads(plan), work, secrets, message)
    if not good:
        typer.echo("requests failed: the summary says how many, and what the first error was", err=True)
        raise typer.Exit(1)


@contextmanager
def _naming(field: str) -> Iterator[None]:
    """What went wrong with a place, as a sentence."""
    from ome_operator.storage.listing import SourceError

    try:
        yield
    except SourceError as error:
        raise UserError(f"{field}: {error}") from error
    except OSError as error:
        raise UserError(f"{field}: {error.filename}: {error.strerror}; pods write as user and group 65532") from error
