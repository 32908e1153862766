"""`ome plan`: from the lengths of requests to nodes, tokens a second, seconds and a price."""

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ome_operator.cli import planfiles
from ome_operator.cli.connect import Context, Kubeconfig, Namespace, namespace_or_default, on_cluster
from ome_operator.cli.default import otherwise
from ome_operator.cli.output import Format, emit
from ome_operator.errors import UserError

if TYPE_CHECKING:
    from ome_operator.kube.client import Client
    from ome_operator.sizing.gpus import Price
    from ome_operator.sizing.layouts import Layout
    from ome_operator.sizing.request import PlanRequest


class Form(StrEnum):
    """How answers are told."""

    TEXT = "text"
    JSON = "json"
    YAML = "yaml"


app = typer.Typer(
    cls=otherwise("layouts"),
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    epilog="Examples: ome plan --model Kimi-K2-Instruct --hardware h200 --nodes 16 --workload 2000/100; ome plan explain",
)
MOST_NODES = 10_000


@app.callback()
def plan() -> None:
    """From lengths of requests to nodes, tokens a second, seconds and a price. The word `layouts` may be left out."""


Output = Annotated[Form, typer.Option("--output", "-o", help="For people, or for programs.")]


@app.command(
    short_help="Every layout that can work, best first.",
    epilog="Example: ome plan --model Kimi-K2-Instruct --hardware h200 --nodes 16 --workload 2000/100 --tpot 50",
)
def layouts(
    model: Annotated[str, typer.Option(help="A model such as Kimi-K2-Instruct, or a config.json.")],
    hardware: Annotated[str, typer.Option(help="A GPU such as h200, or its AcceleratorClass.")],
    workload: Annotated[
        str, typer.Option(help="IN/OUT in tokens such as 2000/100, or a YAML file with several and shares.")
    ],
    nodes: Annotated[int | None, typer.Option(min=1, max=MOST_NODES, help="As few as it takes without it.")] = None,
    requests_per_second: Annotated[float | None, typer.Option(help="That come, by chance.")] = None,
    concurrency: Annotated[float | None, typer.Option(help="Requests that are always there.")] = None,
    ttft: Annotated[str | None, typer.Option(help="Longest mean time to the first token: 2, 500ms.")] = None,
    tpot: Annotated[str | None, typer.Option(help="Longest mean time of another token, in ms: 50, 50ms.")] = None,
    prefix_hit: Annotated[float, typer.Option(help="Share of prompts that a cache of prefixes has.")] = 0.0,
    price: Annotated[float | None, typer.Option(help="USD for a GPU and an hour; a published price without it.")] = None,
    engine: Annotated[str, typer.Option(help="sglang, trtllm; others are extrapolated.")] = "sglang",
    precision: Annotated[str, typer.Option(help="bf16, fp8, fp4; that of the published weights without it.")] = "",
    calibration: Annotated[Path | None, typer.Option(help="Rows of your own, as docs/sizing.md has them.")] = None,
    chosen: Annotated[int, typer.Option("--layout", min=1, help="Which of them -o yaml writes; the first without it.")] = 1,
    output: Annotated[
        Form, typer.Option("--output", "-o", help="json: all of them; yaml: a layout as manifests.")
    ] = Form.TEXT,
) -> None:
    """Every layout that can work for a model on this hardware, best first, with how far each number may be off."""
    from ome_operator.sizing.calibration import engine as known_engine
    from ome_operator.sizing.errors import PlanRefused
    from ome_operator.sizing.gpus import gpu
    from ome_operator.sizing.node_search import found_layouts
    from ome_operator.sizing.request import gpu_price, plan_request
    from ome_operator.sizing.steps import ServingStack

    try:
        constants = planfiles.constants(calibration)
        place = ServingStack(planfiles.model(model, precision), gpu(hardware), known_engine(engine))
        loads, paid = planfiles.loads(workload, prefix_hit), gpu_price(place, price)
        asked = plan_request(place, loads, nodes or 1, requests_per_second, concurrency, ttft, tpot)
        request, found = found_layouts(asked, nodes, constants)
        if output is Form.YAML:
            _write(request, found, chosen)
        else:
            _print(request, found, paid, output)
    except PlanRefused as error:
        raise UserError(str(error)) from error


def _write(request: "PlanRequest", found: "Sequence[Layout]", chosen: int) -> None:
    """Print the manifests of a layout, as `ome generate` writes them, and notes about it on stderr."""
    from ome_operator.cli.generate import bookshelf
    from ome_operator.cookbook.manifests import manifests
    from ome_operator.sizing.recipe import chosen_recipe

    written = chosen_recipe(request, found, chosen, bookshelf())
    for note in (written.command, *written.plan.notes, *(each.sentence for each in written.plan.published)):
        typer.secho(note, err=True, dim=True)
    typer.echo(manifests(written.plan).all, nl=False)


def _print(request: "PlanRequest", found: "Sequence[Layout]", price: "Price | None", output: Form) -> None:
    """Print the question and its answers: all layouts for programs, the first few for people."""
    from ome_operator.cli.generate import bookshelf
    from ome_operator.sizing import answer, report_text

    if output is Form.TEXT:
        typer.echo(report_text.plan_text(request, found, price, bookshelf()), nl=False)
    else:
        emit(Format.JSON, answer.plan_document(request, found, price, bookshelf()))


@app.command(short_help="Predictions beside published runs.", epilog="Example: ome plan validate runs.csv -o json")
def validate(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Rows as docs/sizing.md has them.")],
    output: Output = Form.TEXT,
) -> None:
    """Predict every row of a calibration file, and say how far each is off: medians and worst by class."""
    from ome_operator.sizing import report_text
    from ome_operator.sizing.constants import fitted
    from ome_operator.sizing.errors import PlanRefused
    from ome_operator.sizing.validate import validate as compared

    try:
        found = compared(planfiles.text(file), str(file), fitted())
    except PlanRefused as error:
        raise UserError(str(error)) from error
    if output is Form.TEXT:
        typer.echo(report_text.report(found), nl=False)
    else:
        emit(Format(output.value), report_text.report_data(found))


@app.command(
    short_help="A BenchmarkJob beside what was predicted.",
    epilog="Example: ome plan compare kimi-k2-2000-100 -n kimi-k2-instruct --model Kimi-K2-Instruct "
    "--prefill 1xDEP32 --decode 1xDEP96 --calibration own.csv",
)
def compare(
    job: Annotated[
        str, typer.Argument(metavar="JOB", help="A finished BenchmarkJob of the cluster, or a .yaml file of it.")
    ],
    model: Annotated[str, typer.Option(help="A model such as Kimi-K2-Instruct.")],
    decode: Annotated[str, typer.Option(help="Workers of decode, or of engines that do both: 1xDEP96, 2xTP8.")],
    prefill: Annotated[str, typer.Option(help="Workers of prefill, where they are apart.")] = "",
    hardware: Annotated[str, typer.Option(help="A GPU such as h200; that of the job's serviceMetadata without it.")] = "",
    engine: Annotated[str, typer.Option(help="sglang, trtllm, vllm; that of the job without it, else sglang.")] = "",
    precision: Annotated[str, typer.Option(help="bf16, fp8, fp4; that of the published weights without it.")] = "",
    prefix_hit: Annotated[float, typer.Option(help="Share of prompts that a cache of prefixes had.")] = 0.0,
    calibration: Annotated[
        Path | None, typer.Option(help="Rows of your own: predict with those of other runs, and add this job's.")
    ] = None,
    namespace: Namespace = "",
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """What a BenchmarkJob measured beside what was predicted. Its latencies are medians, and predictions are means."""
    from ome_operator.sizing import benchmark_rows, report_text
    from ome_operator.sizing.constants import fitted
    from ome_operator.sizing.errors import PlanRefused
    from ome_operator.sizing.shapes import shape
    from ome_operator.sizing.validate import validate as compared
    from ome_operator.sizing.workloads import hit

    try:
        layout = {"model": model, "engine": engine, "gpu": hardware, "prefill": prefill, "decode": decode}
        layout |= {"precision": shape(model, precision).precision, "hit": f"{hit(prefix_hit):g}"}
        body = planfiles.document(Path(job)) if planfiles.is_file(job) else _of_cluster(job, namespace, kubeconfig, context)
        found = benchmark_rows.rows(body, layout)
        own = benchmark_rows.merged(planfiles.text(calibration), found) if calibration and calibration.exists() else None
        others = own.others if own else []
        report = compared(
            benchmark_rows.table(found), job, planfiles.learned(others, str(calibration)) if others else fitted()
        )
        if calibration is not None:
            planfiles.write(calibration, own.text if own else benchmark_rows.table(found))
    except PlanRefused as error:
        raise UserError(str(error)) from error
    typer.echo(report_text.compared(report), nl=False)
    if calibration is None:
        typer.echo(
            "--calibration FILE adds these runs to rows of your own, which `ome plan --calibration FILE` learns from."
        )
    else:
        typer.echo(f"{calibration} has these runs: `ome plan --calibration {calibration}` learns from them.")


def _of_cluster(job: str, namespace: str, kubeconfig: Path | None, context: str | None) -> dict[str, Any]:
    """A BenchmarkJob, NAME or NAMESPACE/NAME, read with the rights of whoever asks."""
    from ome_operator.kube.errors import NotFound

    async def work(client: "Client") -> dict[str, Any]:
        before, _, name = job.rpartition("/")
        where = before or namespace_or_default(client, namespace)
        try:
            return dict(await client.get("BenchmarkJob", where, name))
        except NotFound as error:
            raise UserError(
                f"there is no BenchmarkJob {name} in namespace {where}: -n names another, and a file ends in .yaml."
            ) from error

    return on_cluster(kubeconfig, context, work)


@app.command(short_help="The published figures of Kimi K2.", epilog="Example: ome plan explain")
def explain() -> None:
    """How the published figures of Kimi K2 on 128 H200 fit together, and what the model says of them."""
    from ome_operator.sizing.constants import fitted
    from ome_operator.sizing.published_figures import text

    typer.echo(text(fitted()), nl=False)
