"""`ome plan`: from the lengths of requests to nodes, tokens a second, seconds and a price."""

import json
import math
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
import yaml

from ome_operator.cli.default import otherwise
from ome_operator.cli.output import Format, emit
from ome_operator.errors import UserError

if TYPE_CHECKING:
    from ome_operator.plan.constants import Constants
    from ome_operator.plan.gpus import Price
    from ome_operator.plan.layouts import Ask, Layout
    from ome_operator.plan.loop import Load


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
LARGEST, LARGEST_YAML = 64 << 20, 2 << 20
"""Bytes of a file that is read; the parser of YAML reads some 200 KB a second, and no object of an API server is larger."""


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
    output: Output = Form.TEXT,
) -> None:
    """Every layout that can work for a model on this hardware, best first, with how far each number may be off."""
    from ome_operator.plan.ask import seconds
    from ome_operator.plan.gpus import Price, gpu
    from ome_operator.plan.layouts import Ask
    from ome_operator.plan.layouts import layouts as found_layouts
    from ome_operator.plan.refused import RefusedError
    from ome_operator.plan.rows import engine as known_engine
    from ome_operator.plan.search import smallest
    from ome_operator.plan.steps import Place

    try:
        for name, value in (
            ("--requests-per-second", requests_per_second),
            ("--concurrency", concurrency),
            ("--price", price),
        ):
            if value is not None and not (math.isfinite(value) and 0 < value < 1e9):
                raise RefusedError(f"{name} {value:g} is not above 0 and below a billion.")
        if requests_per_second is not None and concurrency is not None:
            raise RefusedError(
                "--requests-per-second and --concurrency are two ways to say how much comes: give only a single way."
            )
        c = _constants(calibration)
        machine = gpu(hardware)
        place = Place(_model(model, precision), machine, known_engine(engine))
        ask = Ask(
            place,
            _loads(workload, prefix_hit),
            nodes or 1,
            requests_per_second,
            concurrency,
            seconds(ttft, "s", "--ttft") if ttft is not None else math.inf,
            seconds(tpot, "ms", "--tpot") if tpot is not None else math.inf,
        )
        ask = ask if nodes is not None else smallest(ask, c)
        found = found_layouts(ask, c)
    except RefusedError as error:
        raise UserError(str(error)) from error
    _tell(ask, found, machine.price if price is None else Price(price, "as given", "--price"), output)


def _tell(ask: "Ask", found: "Sequence[Layout]", paid: "Price | None", output: Form) -> None:
    """The question and its answers: all of them for programs, the first few for people, the first as YAML."""
    from ome_operator.plan import answer, told
    from ome_operator.plan.ask import means
    from ome_operator.plan.layouts import counted

    place, machine = ask.place, ask.place.gpu
    shown = found if output is Form.JSON else found[: told.SHOWN] if output is Form.TEXT else found[:1]
    documents = [answer.document(ask, layout, paid) for layout in shown]
    load = means(ask.loads)
    question = {
        "model": place.shape.name,
        "precision": place.shape.precision,
        "hardware": machine.name,
        "nodes": ask.nodes,
        "gpusPerNode": machine.node,
        "workload": [{"in": each.prompt, "out": each.answer, "hit": each.hit, "share": each.share} for each in ask.loads],
    }
    if output is Form.TEXT:
        title = (
            f"{place.shape.name} ({place.shape.precision}) on {counted(ask.nodes)} of {machine.node} "
            f"{machine.name.upper()} with {place.engine}: "
            f"{load.prompt:,.0f} tokens in, {load.answer:,.0f} out"
        )
        typer.echo(told.plans(title, documents, len(found)), nl=False)
    else:
        emit(Format(output.value), {"asked": question, "layouts": documents})


def _constants(calibration: Path | None) -> "Constants":
    from ome_operator.plan.constants import fitted

    if calibration is None:
        return fitted()
    from ome_operator.plan.fit import learn
    from ome_operator.plan.refused import RefusedError
    from ome_operator.plan.rows import Row, read

    rows = []
    for found in read(_text(calibration), str(calibration)):
        if not isinstance(found, Row):
            raise RefusedError(f"{calibration}, {found[0]}: {found[1]}")
        rows.append(found)
    return learn(rows, fitted())


def _model(text: str, precision: str) -> Any:
    """A known model, or the config.json of another."""
    from ome_operator.plan.refused import RefusedError
    from ome_operator.plan.shapes import from_config, shape

    path = Path(text)
    if path.suffix != ".json":
        return shape(text, precision)
    try:
        config = json.loads(_text(path))
    except ValueError as error:
        raise RefusedError(f"{path} is no JSON: {error}.") from error
    if not isinstance(config, dict):
        raise RefusedError(f"{path} is no config.json: it has no fields.")
    return from_config(str(config.get("_name_or_path") or path.parent.name or path.stem), config, precision)


def _loads(text: str, hit: float) -> "tuple[Load, ...]":
    from ome_operator.plan.ask import mix, workload
    from ome_operator.plan.refused import RefusedError

    if Path(text).suffix not in (".yaml", ".yml", ".json"):
        return (workload(text, hit),)
    if hit:
        raise RefusedError("--prefix-hit belongs to --workload IN/OUT: in a file each workload has its own hit.")
    return mix(_yaml(Path(text)), text)


def _yaml(path: Path) -> Any:
    """The document of a file, which may come from anybody: with bounds. A sentence where it is none."""
    from ome_operator.plan.refused import RefusedError
    from ome_operator.util.kubeyaml import document

    try:
        return document(_text(path, LARGEST_YAML))
    except yaml.YAMLError as error:
        raise RefusedError(f"{path} is no YAML: {' '.join(str(error).split())}.") from error


def _text(path: Path, most: int = LARGEST) -> str:
    """A file; a sentence where it cannot be read."""
    from ome_operator.plan.refused import RefusedError

    try:
        if path.stat().st_size > most:
            raise RefusedError(f"{path} has more than {most >> 20} MiB.")
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text in UTF-8"
        raise RefusedError(f"{path} cannot be read: {why}.") from error


@app.command(short_help="Predictions beside published runs.", epilog="Example: ome plan validate runs.csv -o json")
def validate(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Rows as docs/sizing.md has them.")],
    output: Output = Form.TEXT,
) -> None:
    """Predict every row of a calibration file, and say how far each is off: medians and worst by class."""
    from ome_operator.plan import told
    from ome_operator.plan.constants import fitted
    from ome_operator.plan.refused import RefusedError
    from ome_operator.plan.validate import validate as compared

    try:
        found = compared(_text(file), str(file), fitted())
    except RefusedError as error:
        raise UserError(str(error)) from error
    if output is Form.TEXT:
        typer.echo(told.report(found), nl=False)
    else:
        emit(Format(output.value), told.report_data(found))


@app.command(
    short_help="A BenchmarkJob beside what was predicted.",
    epilog="Example: kubectl get benchmarkjob kimi -o yaml > job.yaml; "
    "ome plan compare job.yaml --model Kimi-K2-Instruct --hardware h200 --prefill 1xDEP32 --decode 1xDEP96 --rows own.csv",
)
def compare(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The finished job, as kubectl shows it.")],
    model: Annotated[str, typer.Option(help="A model such as Kimi-K2-Instruct.")],
    hardware: Annotated[str, typer.Option(help="A GPU such as h200.")],
    decode: Annotated[str, typer.Option(help="Workers of decode, or of engines that do both: 1xDEP96, 2xTP8.")],
    prefill: Annotated[str, typer.Option(help="Workers of prefill, where they are apart.")] = "",
    engine: Annotated[str, typer.Option(help="sglang, trtllm, vllm.")] = "sglang",
    precision: Annotated[str, typer.Option(help="bf16, fp8, fp4; that of the published weights without it.")] = "",
    rows: Annotated[Path | None, typer.Option(help="Write the runs there, for --calibration.")] = None,
) -> None:
    """What a BenchmarkJob measured beside what was predicted. Its latencies are medians, and predictions are means."""
    from ome_operator.plan import measured, told
    from ome_operator.plan.constants import fitted
    from ome_operator.plan.refused import RefusedError
    from ome_operator.plan.shapes import shape
    from ome_operator.plan.validate import validate as compared

    try:
        known = shape(model, precision)
        layout = {"model": model, "engine": engine, "gpu": hardware, "prefill": prefill, "decode": decode}
        found = measured.rows(_yaml(file), layout | {"precision": known.precision})
        text = measured.table(found)
        report = compared(text, str(file), fitted())
        if rows is not None:
            rows.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(f"{rows} cannot be written: {error.strerror}.") from error
    except RefusedError as error:
        raise UserError(str(error)) from error
    typer.echo(told.compared(report), nl=False)


@app.command(short_help="The published figures of Kimi K2.", epilog="Example: ome plan explain")
def explain() -> None:
    """How the published figures of Kimi K2 on 128 H200 fit together, and what the model says of them."""
    from ome_operator.plan.constants import fitted
    from ome_operator.plan.explained import text

    typer.echo(text(fitted()), nl=False)
