"""`ome generate`: the command and the YAML that serve a model on the hardware that you have."""

import shlex
import sys
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from ome_operator.api import AcceleratorClass, Model
from ome_operator.cookbook.ask import STRATEGIES, Ask, RefusedError
from ome_operator.cookbook.library import Library, engines, library
from ome_operator.cookbook.library import engine as known_engine
from ome_operator.errors import UserError
from ome_operator.util.checkout import checkout

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
YAML = "yaml"
MOST_NODES, MOST_GPUS, MOST_TOKENS = 10_000, 128, 1_000_000_000
"""More than anybody has, and few enough for everything that is made for each one."""
_Nodes = typer.Option(min=1, max=MOST_NODES, help="For --strategy pd.")


@app.command()
def generate(
    hardware: Annotated[str | None, typer.Option(help="Hardware platform: h200, b200, …")] = None,
    model: Annotated[
        str | None, typer.Option(help="Model name, such as Kimi-K2-Instruct, or what is after its family: base.")
    ] = None,
    strategy: Annotated[str, typer.Option(help=f"Deployment strategy: {', '.join(STRATEGIES)}.")] = "tp",
    reasoning_parser: Annotated[bool, typer.Option(help="Thoughts apart from the answer.")] = False,
    tool_call_parser: Annotated[bool, typer.Option(help="Structured tool calls.")] = False,
    nodes: Annotated[
        int | None, typer.Option(min=1, max=MOST_NODES, help="Nodes that you have; as few as it takes without it.")
    ] = None,
    prefill_nodes: Annotated[int | None, _Nodes] = None,
    decode_nodes: Annotated[int | None, _Nodes] = None,
    gpus_per_node: Annotated[int, typer.Option(min=1, max=MOST_GPUS, help="GPUs of a node.")] = 8,
    context_length: Annotated[
        int | None, typer.Option(min=1, max=MOST_TOKENS, help="Longest request, in tokens: less conserves memory.")
    ] = None,
    kv_cache_dtype: Annotated[str | None, typer.Option(help="fp8_e4m3 halves the memory of the cache.")] = None,
    tp: Annotated[
        int | None,
        typer.Option(min=1, max=MOST_NODES, help="GPUs of a copy, or of a stage; with pd, GPUs that share attention."),
    ] = None,
    pp: Annotated[int | None, typer.Option(min=1, max=MOST_NODES, help="Stages of a pipeline of layers.")] = None,
    dp: Annotated[
        int | None, typer.Option(min=1, max=MOST_NODES, help="Ranks of DP attention, or whole copies where there is none.")
    ] = None,
    ep: Annotated[int | None, typer.Option(min=1, max=MOST_NODES, help="Groups of GPUs with whole experts.")] = None,
    engine: Annotated[str, typer.Option(help=f"Engine: {', '.join(engines())}.")] = "sglang",
    version: Annotated[
        str | None, typer.Option("--engine-version", help="Its version; the newest that is known without it.")
    ] = None,
    model_type: Annotated[
        str | None, typer.Option(help="For engines that do not know the model's own type: deepseek_v3.")
    ] = None,
    host_network: Annotated[
        bool, typer.Option("--host-network", help="Pods in the network of their node, for fabrics that want it.")
    ] = False,
    model_path: Annotated[str | None, typer.Option(help="In the command; its repository without it.")] = None,
    host: Annotated[str | None, typer.Option(help="In the command.")] = None,
    port: Annotated[int | None, typer.Option(min=1, max=65535, help="In the command.")] = None,
    name: Annotated[str | None, typer.Option(help="Of service and namespace.")] = None,
    explain: Annotated[bool, typer.Option("--explain", help="Why each flag is there.")] = False,
    output: Annotated[
        str | None, typer.Option("--output", "-o", help="A folder for model, runtime and service; or yaml: all on stdout.")
    ] = None,
) -> None:
    """The launch command and the YAML for a model on your hardware. Without options on a terminal it asks."""
    given = {key: value for key, value in locals().items() if key in {one.name for one in fields(Ask)}}
    _check_none_empty({**given, "engine_version": version, "output": output})
    try:
        if hardware is None and model is None and sys.stdin.isatty() and sys.stderr.isatty():
            given |= _asked(given)
        for option in ("hardware", "model"):
            if not given[option]:
                raise typer.BadParameter("say what you have and what shall run on it", param_hint=f"--{option}")
        _answer(Ask(**given), explain, output)
    except RefusedError as error:
        raise UserError(str(error)) from error


def _check_none_empty(given: dict[str, Any]) -> None:
    """Refuse an option without a value, as an empty variable of a shell leaves it."""
    for name, value in given.items():
        if isinstance(value, str) and not value.strip() and name != "version":
            said = "it is empty: give it a value, or leave it out"
            raise typer.BadParameter(said, param_hint=f"--{name.replace('_', '-')}")


def bookshelf() -> Library:
    """What is known of models and hardware: the files of config/."""
    models: list[tuple[Model, str]] = []
    classes: list[AcceleratorClass] = []
    for path in sorted((checkout() / "config").glob("[am]*/**/*.yaml")):
        text = path.read_text(encoding="utf-8")
        for body in yaml.safe_load_all(text):
            parsed: Any = (AcceleratorClass if body["kind"] in AcceleratorClass.KINDS else Model).parse(body)
            if isinstance(parsed, Model):
                models.append((parsed, text))
            elif isinstance(parsed, AcceleratorClass):
                classes.append(parsed)
    return library(models, classes)


def _answer(ask: Ask, explain: bool, output: str | None) -> None:
    from ome_operator.cookbook.command import commands, reasons
    from ome_operator.cookbook.layout import plan
    from ome_operator.cookbook.manifests import manifests

    planned = plan(ask, bookshelf())
    files = manifests(planned, explain)
    for note in (*planned.notes, *(each.sentence for each in planned.published)):
        typer.secho(note, err=True, dim=True)
    if output == YAML:
        typer.echo(files.all, nl=False)
        return
    typer.echo(commands(planned), nl=False)
    if explain:
        typer.echo("\n" + reasons(planned), nl=False)
    if output is None:
        typer.secho("\nThe same as YAML: -o DIR writes model, runtime and service; -o yaml | kubectl apply -f -", err=True)
    else:
        _write(Path(output), files._asdict())


def _write(folder: Path, files: dict[str, str]) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (folder / f"{name}.yaml").write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(f"{folder} cannot be written: {error}") from error
    typer.secho(
        f"\n{folder}: {', '.join(f'{name}.yaml' for name in files)}. kubectl apply -f {shlex.quote(str(folder))}", err=True
    )


def _asked(given: dict[str, Any]) -> dict[str, Any]:
    """What a person chooses with the arrow keys, and the options that say the same."""
    from ome_operator.cli.menu import Item, choose
    from ome_operator.cookbook.layout import plan

    known = bookshelf()
    hardware = choose("Hardware platform", [Item(key, one.title) for key, one in known.hardware.items()])
    chosen = known_engine(given["engine"], given["version"])
    readable = [one.name for one in known.models.values() if one.format == chosen.format]
    model = choose("Model name", [Item(one, one) for one in readable])
    served = known.model(model)
    out: dict[str, Any] = {"hardware": hardware, "model": model}

    def why_not(strategy: str) -> str:
        try:
            plan(Ask(**given | out | {"strategy": strategy}), known)
        except RefusedError as error:
            return str(error)
        return ""

    items = [Item(key, f"{key:<9} {STRATEGIES[key]}", why_not(key)) for key in chosen.strategies]
    if all(one.why_not for one in items):
        raise RefusedError(items[0].why_not)
    out["strategy"] = choose("Deployment strategy", items)
    for option, parser in (("reasoning_parser", served.reasoning_parser), ("tool_call_parser", served.tool_call_parser)):
        if parser:
            title = option.replace("_", " ").capitalize()
            out[option] = choose(title, [Item("yes", f"Enabled ({parser})"), Item("", "Disabled")]) == "yes"
    words = [f"--{key.replace('_', '-')}" + ("" if value is True else f" {value}") for key, value in out.items() if value]
    typer.secho(f"\nome generate {' '.join(words)}\n", err=True, bold=True)
    return out
