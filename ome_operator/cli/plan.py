"""`ome plan`: computes nodes, tokens per second, latency and price of a service from the lengths of its requests."""

from collections.abc import Callable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ome_operator.cli import planfiles
from ome_operator.cli.connect import Context, Kubeconfig, Namespace, namespace_or_default, on_cluster
from ome_operator.cli.declared import read_values, with_flags
from ome_operator.cli.default import default_command_group
from ome_operator.cli.output import Format, emit, print_result
from ome_operator.errors import UserError
from ome_operator.settings.option import build_settings_object
from ome_operator.settings.option import options as declared_options
from ome_operator.sizing.options import PlanOptions
from ome_operator.util.visible import make_visible

if TYPE_CHECKING:
    from ome_operator.kube.client import Client
    from ome_operator.sizing.gpus import Gpu, Price
    from ome_operator.sizing.layouts import Layout
    from ome_operator.sizing.request import PlanRequest


class Form(StrEnum):
    """Output format of `ome plan`."""

    TEXT = "text"
    JSON = "json"
    YAML = "yaml"


class Order(StrEnum):
    """Order of the GPUs of a comparison."""

    PRICE = "price"
    THROUGHPUT = "throughput"
    TTFT = "ttft"
    TPOT = "tpot"


app = typer.Typer(
    cls=default_command_group("layouts", options_only=True),
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    epilog="Examples: ome plan --model Kimi-K2-Instruct --hardware h200 --nodes 16 --workload 2000/100; ome plan explain",
)
_OPTIONS = tuple(declared_options(PlanOptions))


@app.callback()
def plan() -> None:
    """Calculate how many nodes a load needs, and its throughput, latency and price, from request lengths.

    The word `layouts` may be left out.
    """


Output = Annotated[Form, typer.Option("--output", "-o", help="text is for people; json and yaml are for programs.")]
By = Annotated[
    Order, typer.Option(help="With several GPUs, sort them by the price of output tokens, throughput per GPU, TTFT or TPOT.")
]
Plot = Annotated[Path | None, typer.Option(help="Draw throughput against TPOT into this SVG file.")]
Chosen = Annotated[int, typer.Option("--layout", min=1, help="Number of the layout that -o yaml writes.")]
LayoutOutput = Annotated[
    Form, typer.Option("--output", "-o", help="text: table; json: all layouts; yaml: manifests of one layout.")
]


@app.command(
    short_help="List every layout that can work, best first.",
    epilog="Example: ome plan --model Kimi-K2-Instruct --hardware h200 --nodes 16 --workload 2000/100 --tpot 50",
)
@with_flags(_OPTIONS)
def layouts(
    *,
    by: By = Order.PRICE,
    plot: Plot = None,
    chosen: Chosen = 1,
    output: LayoutOutput = Form.TEXT,
    **given: Any,
) -> None:
    """List every layout that can work for a model on this hardware, best first, with the expected error of each figure."""
    from ome_operator.sizing.errors import PlanRefused
    from ome_operator.sizing.request import gpu_price

    options: PlanOptions = build_settings_object(PlanOptions, read_values(_OPTIONS, given, {}))
    try:
        find = _search(options)
        machines = planfiles.hardware(options.hardware)
        if len(machines) > 1:
            _compare(machines, find, options.price, output, plot, by)
            return
        if by is not Order.PRICE:
            raise PlanRefused("--by sorts several GPUs: pass several GPUs to --hardware, or leave out --by.")
        request, found = find(machines[0])
        if plot is not None:
            _draw(request, found, plot)
        if output is Form.YAML:
            _write(request, found, chosen)
        else:
            _print(request, found, gpu_price(request.place, options.price), output)
    except PlanRefused as error:
        raise UserError(str(error)) from error


def _search(options: PlanOptions) -> "Callable[[Gpu], tuple[PlanRequest, Sequence[Layout]]]":
    """Return a function that finds the layouts for the options on a GPU. Raises PlanRefused for invalid options."""
    from ome_operator.sizing.calibration import engine
    from ome_operator.sizing.constants import Constants
    from ome_operator.sizing.errors import PlanRefused
    from ome_operator.sizing.given import given_layout
    from ome_operator.sizing.node_search import found_layouts
    from ome_operator.sizing.request import drafts, part_of_node, plan_request
    from ome_operator.sizing.steps import ServingStack

    constants, nodes, gpus = planfiles.constants(options.calibration), options.nodes, options.gpus
    shape = planfiles.model(options.model, options.precision)
    loads = planfiles.parse_workloads(options.workload, options.prefix_hit)
    if shape.estimated:
        constants = Constants.of_data_sheets({machine.family for machine in planfiles.hardware(options.hardware)})
    speculation = drafts(options.mtp, options.accepted)
    if gpus is not None and nodes is not None:
        raise PlanRefused("--gpus and --nodes both state the size: pass only one of them.")
    if (options.prefill or options.decode) and (gpus or nodes):
        raise PlanRefused("--prefill and --decode already state the number of GPUs: leave out --nodes and --gpus.")
    limits = (options.requests_per_second, options.concurrency, options.ttft, options.tpot)

    def find(machine: "Gpu") -> "tuple[PlanRequest, Sequence[Layout]]":
        machine, count = part_of_node(machine, gpus) if gpus is not None else (machine, nodes)
        place = ServingStack(shape, machine, engine(options.engine), options.engine_version)
        request = plan_request(place, loads, count or 1, *limits, speculation)
        if options.prefill or options.decode:
            return given_layout(request, options.prefill, options.decode, constants)
        return found_layouts(request, count, constants)

    return find


def _compare(
    machines: "Sequence[Gpu]",
    find: "Callable[[Gpu], tuple[PlanRequest, Sequence[Layout]]]",
    price: float | None,
    output: Form,
    plot: Path | None,
    by: Order,
) -> None:
    """Print the best layout on each of several GPUs, in the order `by`. Raises PlanRefused if `price` or `plot` is set,
    because these options work only for a single GPU.
    """
    from ome_operator.sizing.comparison import GpuChoice, compare_gpus, text
    from ome_operator.sizing.errors import PlanRefused
    from ome_operator.sizing.request import gpu_price

    if output is Form.YAML or plot is not None:
        raise PlanRefused("-o yaml and --plot work only for a single GPU: pass one GPU to --hardware.")
    if price is not None:
        raise PlanRefused(
            "--price works only for a single GPU, because a comparison uses published prices or those of hardware files."
        )
    choices = []
    for machine in machines:
        try:
            request, found = find(machine)
            choices.append(GpuChoice(machine, request, found[0], gpu_price(request.place, None)))
        except PlanRefused as error:
            choices.append(GpuChoice(machine, None, None, None, str(error)))
    answered = [each.request for each in choices if each.request]
    if not answered:
        raise PlanRefused(" ".join(f"{each.gpu.name}: {each.reason}" for each in choices))
    documents = compare_gpus(choices, by.value)
    if output is Form.JSON:
        emit(Format.JSON, {"gpus": documents})
    else:
        place = answered[0].place
        title = f"{place.shape.name} ({place.shape.precision}) with {place.engine}, the best layout on each GPU"
        print_result(text(title, documents, {each.gpu.name: each.gpu for each in choices}).rstrip("\n"))


def _draw(request: "PlanRequest", found: "Sequence[Layout]", path: Path) -> None:
    from ome_operator.sizing.errors import PlanRefused
    from ome_operator.sizing.plot import svg_text

    if path.suffix.lower() not in ("", ".svg"):
        raise PlanRefused(f"--plot writes SVG, but {path} ends in {path.suffix}: pass a name that ends in .svg.")
    planfiles.write(path, svg_text(request, found))
    typer.secho(f"{path} shows {len(found)} layouts.", err=True, dim=True)


def _write(request: "PlanRequest", found: "Sequence[Layout]", chosen: int) -> None:
    """Print the manifests that `ome generate` writes for layout number `chosen`, and notes about that layout on stderr."""
    from ome_operator.cli.generate import bookshelf
    from ome_operator.cookbook.manifests import manifests
    from ome_operator.sizing.recipe import chosen_recipe

    written = chosen_recipe(request, found, chosen, bookshelf())
    for note in (written.command, *written.plan.notes, *(each.sentence for each in written.plan.published)):
        typer.secho(make_visible(note), err=True, dim=True)
    typer.echo(manifests(written.plan).all, nl=False)


def _print(request: "PlanRequest", found: "Sequence[Layout]", price: "Price | None", output: Form) -> None:
    """Print the request and its layouts: all layouts as JSON, or the first few as text. `price` is the price of a GPU for an
    hour; None if it is unknown.
    """
    from ome_operator.cli.generate import bookshelf
    from ome_operator.sizing import answer, report_text

    if output is Form.TEXT:
        print_result(report_text.plan_text(request, found, price, bookshelf()).rstrip("\n"))
    else:
        emit(Format.JSON, answer.plan_document(request, found, price, bookshelf()))


@app.command(short_help="Compare predictions with measured runs.", epilog="Example: ome plan validate runs.csv -o json")
def validate(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Calibration file, as docs/sizing.md describes.")],
    output: Output = Form.TEXT,
) -> None:
    """Predict every row of a calibration file, and show the median error, the error that nine of ten rows do not exceed, and
    the worst error of each class of rows.

    A model is a known name, or the path of a config.json relative to the file.
    """
    from ome_operator.sizing import report_text
    from ome_operator.sizing.constants import shipped_constants
    from ome_operator.sizing.errors import PlanRefused
    from ome_operator.sizing.validate import validate as compared

    try:
        found = compared(planfiles.text(file), str(file), shipped_constants(), planfiles.models_beside(file))
    except PlanRefused as error:
        raise UserError(str(error)) from error
    if output is Form.TEXT:
        print_result(report_text.report(found).rstrip("\n"))
    else:
        emit(Format(output.value), report_text.report_data(found))


Job = Annotated[
    str, typer.Argument(metavar="JOB", help="Name of a finished BenchmarkJob, or a .yaml file that contains it.")
]
Model = Annotated[str, typer.Option(help="A model such as Kimi-K2-Instruct.")]
Decode = Annotated[str, typer.Option(help="Decode workers, or workers that do both prefill and decode: 1xDEP96, 2xTP8.")]
Prefill = Annotated[str, typer.Option(help="Prefill workers, if the service has them.")]
Hardware = Annotated[str, typer.Option(help="A GPU such as h200. If unset: the GPU in the job's serviceMetadata.")]
Engine = Annotated[str, typer.Option(help="sglang, trtllm or vllm. If unset: the engine of the job, or sglang.")]
Precision = Annotated[
    str, typer.Option(help="bf16, fp8, fp4, mxfp4 or int4. If unset: the precision of the published weights.")
]
PrefixHit = Annotated[float, typer.Option(help="Fraction of the prompt tokens that the prefix cache held.")]
Calibration = Annotated[
    Path | None,
    typer.Option(
        help="File with your own measurements, which make the prediction more accurate. "
        "The runs of this job are added to the file."
    ),
]


@app.command(
    short_help="Compare a BenchmarkJob with its prediction.",
    epilog="Example: ome plan compare kimi-k2-2000-100 -n kimi-k2-instruct --model Kimi-K2-Instruct "
    "--prefill 1xDEP32 --decode 1xDEP96 --calibration own.csv",
)
def compare(
    job: Job,
    model: Model,
    decode: Decode,
    prefill: Prefill = "",
    hardware: Hardware = "",
    engine: Engine = "",
    precision: Precision = "",
    prefix_hit: PrefixHit = 0.0,
    calibration: Calibration = None,
    namespace: Namespace = "",
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Compare the results of a BenchmarkJob with their prediction. Measured latencies are medians, predicted ones means."""
    from ome_operator.sizing.errors import PlanRefused
    from ome_operator.sizing.shapes import shape
    from ome_operator.sizing.workloads import parse_hit_rate

    try:
        layout = {"model": model, "engine": engine, "gpu": hardware, "prefill": prefill, "decode": decode}
        layout |= {"precision": shape(model, precision).precision, "hit": f"{parse_hit_rate(prefix_hit, '--prefix-hit'):g}"}
        body = planfiles.document(Path(job)) if planfiles.is_file(job) else _of_cluster(job, namespace, kubeconfig, context)
        table = _comparison(job, body, layout, calibration)
    except PlanRefused as error:
        raise UserError(str(error)) from error
    print_result(table)
    if calibration is None:
        typer.echo(
            "--calibration FILE adds these runs to a file; `ome plan --calibration FILE` adapts its predictions to them."
        )
    else:
        typer.echo(
            f"{calibration} now contains these runs: `ome plan --calibration {calibration}` adapts its predictions to them."
        )


def _comparison(job: str, body: dict[str, Any], layout: dict[str, str], calibration: Path | None) -> str:
    """Return the table that compares the results of a job with their prediction, and add the results to the calibration
    file. `body` is the BenchmarkJob, and `layout` maps columns of a calibration file to the values of all its runs.
    """
    from ome_operator.sizing import benchmark_rows, report_text
    from ome_operator.sizing.constants import shipped_constants
    from ome_operator.sizing.validate import validate as compared

    found = benchmark_rows.rows(body, layout)
    own = benchmark_rows.merge_rows(planfiles.text(calibration), found) if calibration and calibration.exists() else None
    others = own.others if own else []
    constants = planfiles.fit_constants(others, str(calibration)) if others else shipped_constants()
    report = compared(benchmark_rows.table(found), job, constants)
    if calibration is not None:
        planfiles.write(calibration, own.text if own else benchmark_rows.table(found))
    return report_text.comparison_table(report).rstrip("\n")


def _of_cluster(job: str, namespace: str, kubeconfig: Path | None, context: str | None) -> dict[str, Any]:
    """Return the BenchmarkJob that the user gives as NAME or NAMESPACE/NAME, read with the rights of the user."""
    from ome_operator.kube.errors import NotFound

    async def work(client: "Client") -> dict[str, Any]:
        before, _, name = job.rpartition("/")
        where = before or namespace_or_default(client, namespace)
        try:
            return dict(await client.get("BenchmarkJob", where, name))
        except NotFound as error:
            raise UserError(
                f"there is no BenchmarkJob {name} in namespace {where}: set -n, or name a file that ends in .yaml."
            ) from error

    return on_cluster(kubeconfig, context, work)


@app.command(short_help="Explain the published figures of Kimi K2.", epilog="Example: ome plan explain")
def explain() -> None:
    """Explain how the published figures of Kimi K2 on 128 H200 are computed, and what `ome plan` predicts for each."""
    from ome_operator.sizing.constants import shipped_constants
    from ome_operator.sizing.published_figures import text

    typer.echo(text(shipped_constants()), nl=False)
