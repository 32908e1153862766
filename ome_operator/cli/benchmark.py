"""`ome benchmark`: the steps before and after a benchmark, inside the pod of a BenchmarkJob. The operator starts them;
users apply a BenchmarkJob and do not run this command themselves.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from ome_operator.errors import InvalidOption, UserError

app = typer.Typer(
    epilog="Example: ome benchmark report --help", no_args_is_help=True, add_completion=False, rich_markup_mode=None
)
WORK, SECRETS, MESSAGE = Path("/ome/work"), Path("/ome/secrets"), Path("/dev/termination-log")
_Plan = Annotated[str, typer.Option(help="Plan of the benchmark, as JSON.", envvar="OME_BENCHMARK")]
_Work = Annotated[Path, typer.Option(help="Folder that the steps of the pod share.")]
_Secrets = Annotated[
    Path, typer.Option(help="Folder with the subfolders `dataset` and `output`, which hold the values of their Secrets.")
]


@app.command(epilog="Example: OME_BENCHMARK=$(cat plan.json) ome benchmark prepare --work /tmp/work")
def prepare(plan: _Plan, work: _Work = WORK, secrets: _Secrets = SECRETS) -> None:
    """Fetch the data set before the benchmark runs."""
    from ome_operator.benchmark_pod import steps

    with _naming("spec.dataset.storageUri"):
        steps.prepare(_parse_plan(plan), work, secrets)


@app.command(epilog="Example: OME_BENCHMARK=$(cat plan.json) ome benchmark report --work /tmp/work --message /tmp/summary")
def report(
    plan: _Plan,
    work: _Work = WORK,
    secrets: _Secrets = SECRETS,
    message: Annotated[Path, typer.Option(help="File that the summary is written to.")] = MESSAGE,
) -> None:
    """Write the results and a summary after the benchmark. Exit code 1: a request failed."""
    from ome_operator.benchmark_pod import steps

    with _naming("spec.outputLocation"):
        good = steps.report(_parse_plan(plan), work, secrets, message)
    if not good:
        typer.echo("Some requests failed. The summary states their number and the first error.", err=True)
        raise typer.Exit(1)


def _parse_plan(text: str) -> dict[str, Any]:
    """Return the plan of the benchmark, which the operator passes as the JSON text `text`. Raises InvalidOption if the text
    is not a JSON object.
    """
    try:
        plan = json.loads(text)
    except ValueError as error:
        raise InvalidOption(
            f"--plan is not JSON ({error}): copy the variable OME_BENCHMARK of the benchmark's pod."
        ) from error
    if not isinstance(plan, dict):
        raise InvalidOption("--plan is not a JSON object: copy the variable OME_BENCHMARK of the benchmark's pod.")
    return plan


@contextmanager
def _naming(field: str) -> Iterator[None]:
    """Convert a storage or file error inside the `with` block into a UserError whose message starts with `field`."""
    from ome_operator.storage.listing import SourceError

    try:
        yield
    except SourceError as error:
        raise UserError(f"{field}: {error}") from error
    except OSError as error:
        raise UserError(
            f"{field}: {error.filename}: {error.strerror}. The pod runs as user and group 65532: give this user write access"
        ) from error
