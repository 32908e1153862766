"""`ome generate`: prints the launch command and the YAML to serve a model on the user's hardware."""

import shlex
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from ome_operator.api import AcceleratorClass, Model
from ome_operator.cli.declared import Readers, read_values, with_flags
from ome_operator.cli.file_errors import why_unreadable
from ome_operator.cli.output import print_error
from ome_operator.cookbook.library import Library, engines, library
from ome_operator.cookbook.library import engine as known_engine
from ome_operator.cookbook.request import STRATEGIES, RecipeRefused, RecipeRequest
from ome_operator.errors import UserError
from ome_operator.settings.option import Declared, build_settings_object, options
from ome_operator.util.checkout import shipped_folder
from ome_operator.util.kubeyaml import documents

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
YAML = "yaml"
OWN = "own"
"""Value of an option that the user gives without a value."""
PARSERS = ("--reasoning-parser", "--tool-call-parser")


def _with_engines(declared: Declared) -> Declared:
    """Return the option with the names of the known engines in its help."""
    text = declared.option.help.replace("{engines}", ", ".join(engines()))
    return replace(declared, option=replace(declared.option, help=text))


def _parser(text: str) -> bool | str:
    """Return the value of an option of PARSERS in the form in which RecipeRequest contains it."""
    return text == OWN or text


_OPTIONS = tuple(map(_with_engines, options(RecipeRequest)))
_READERS: Readers = {"reasoning_parser": _parser, "tool_call_parser": _parser}


class _BareParsers(TyperCommand):
    """A command that accepts the options of PARSERS with or without a value. In typer, an option either always has a
    value or never has one.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments. An option of PARSERS without a value gets the value OWN, for the parser of the model."""
        return super().parse_args(ctx, list(_valued(args)))


def _valued(args: list[str]) -> Iterator[str]:
    for word, after in zip(args, [*args[1:], "-"], strict=False):
        yield f"{word}={OWN}" if word in PARSERS and after.startswith("-") else word


Hardware = Annotated[str | None, typer.Option(help="Hardware platform: h200, b200, …")]
ModelName = Annotated[
    str | None,
    typer.Option(
        help="Model, such as Kimi-K2-Instruct or DeepSeek-R1; the end of a name, such as base, is enough if it is unique."
    ),
]
Source = Annotated[
    str | None,
    typer.Option(
        "--from",
        help="Your own model: a config.json, a directory with the files of the model, or a repository of a hub such as "
        "org/model.",
    ),
]
Explain = Annotated[bool, typer.Option("--explain", help="Explain the purpose of each flag.")]
Output = Annotated[
    str | None,
    typer.Option("--output", "-o", help="Folder for the files of model, runtime and service; `-o yaml` prints them."),
]
Force = Annotated[bool, typer.Option("--force", help="With -o: overwrite existing files even if their content differs.")]


@app.command(
    cls=_BareParsers,
    epilog="Examples: ome generate --hardware h200 --model Kimi-K2-Instruct; "
    "ome generate --hardware h200 --model Kimi-K2-Instruct --nodes 16 --strategy pd -o kimi/",
)
@with_flags(_OPTIONS)
def generate(
    hardware: Hardware = None,
    model: ModelName = None,
    source: Source = None,
    *,
    explain: Explain = False,
    output: Output = None,
    force: Force = False,
    **given: Any,
) -> None:
    """Print the launch command and the YAML for a model on your hardware. On a terminal, the command asks for the
    hardware and the model if neither is given.
    """
    _check_values({"hardware": hardware, "model": model, **given, "output": output, "from": source})
    values = {("hardware",): hardware or "", ("model",): model or "", **read_values(_OPTIONS, given, _READERS)}
    request: RecipeRequest = build_settings_object(RecipeRequest, values)
    try:
        if hardware is None and model is None and source is None and sys.stdin.isatty() and sys.stderr.isatty():
            request = _asked(request)
        known = bookshelf()
        if source is not None:
            known, request = _own(source, request, known)
        for option, value in (("--hardware", request.hardware), ("--model", request.model)):
            if not value:
                raise typer.BadParameter("pass --hardware, and --model or --from", param_hint=option)
        _answer(request, known, explain, output, force)
    except RecipeRefused as error:
        raise UserError(str(error)) from error


def _own(source: str, request: RecipeRequest, known: Library) -> tuple[Library, RecipeRequest]:
    """Return the library and the request for the model that `--from` names. If the library has a recipe for this
    repository, the request names the recipe. Otherwise the returned library contains the model.
    """
    from ome_operator.cli.generate_from import own_model
    from ome_operator.cookbook.own_model import largest_tp, with_own_model

    if request.model:
        raise typer.BadParameter("--from names the model, so --model is not needed", param_hint="--model")
    if (recipe := known.models.get(source.lower().rpartition("/")[2])) and recipe.repository == source.removeprefix("hf://"):
        return known, replace(request, model=recipe.name)
    own = own_model(source)
    library = with_own_model(known, own)
    (served,) = library.models.values()
    tp = request.tp or (largest_tp(served, request.gpus_per_node) if request.strategy == "tp" else None)
    return library, replace(request, model=own.title, tp=tp if tp != request.gpus_per_node else request.tp)


def _check_values(given: dict[str, Any]) -> None:
    """Raise BadParameter for an option with an empty value, which an unset shell variable produces. Also raise BadParameter
    for the formats json and text of `--output`, because this command would treat them as names of folders.
    """
    if (wanted := given["output"]) in ("json", "text"):
        message = f"there is no format {wanted}: write yaml, or the name of a folder, such as ./{wanted}"
        raise typer.BadParameter(message, param_hint="--output")
    for name, value in given.items():
        if isinstance(value, str) and not value.strip():
            message = "the value is empty: give a value, or leave out the option"
            raise typer.BadParameter(message, param_hint=f"--{name.replace('_', '-')}")


def bookshelf() -> Library:
    """Return the known models and hardware, read from the files of config/."""
    models: list[tuple[Model, str]] = []
    classes: list[AcceleratorClass] = []
    config = shipped_folder("config")
    for path in sorted(config.glob("[am]*/**/*.yaml")):
        text = path.read_text(encoding="utf-8")
        for body in documents(text):
            parsed: Any = (AcceleratorClass if body["kind"] in AcceleratorClass.KINDS else Model).parse(body)
            if isinstance(parsed, Model):
                models.append((parsed, text))
            elif isinstance(parsed, AcceleratorClass):
                classes.append(parsed)
    return library(models, classes, _samples(config))


def _samples(config: Path) -> dict[str, str]:
    """Map the name of each model object to the path of the first sample that serves the model. The path is relative to
    the working directory if possible.
    """
    out: dict[str, str] = {}
    for path in sorted((config / "samples" / "isvc").rglob("*.yaml")):
        shown = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
        for body in documents(path.read_text(encoding="utf-8")):
            if body["kind"] == "InferenceService":
                out.setdefault(body["spec"]["model"]["name"], str(shown))
    return out


def _answer(request: RecipeRequest, known: Library, explain: bool, output: str | None, force: bool) -> None:
    from ome_operator.cookbook.command import commands, reasons, variables
    from ome_operator.cookbook.layout import plan
    from ome_operator.cookbook.manifests import manifests

    planned = plan(request, known)
    files = manifests(planned, explain)
    for note in (*planned.notes, *(each.sentence for each in planned.published)):
        typer.secho(note, err=True, dim=True)
    for finding in _lint(files.all):
        print_error(finding)
    if output == YAML:
        typer.echo(files.all, nl=False)
        return
    if output is not None and not force:
        _check_none_lost(Path(output), files._asdict())
    text = commands(planned)
    typer.echo(text, nl=False)
    for meaning in variables(text):
        typer.secho(meaning, err=True, dim=True)
    if explain:
        typer.echo("\n" + reasons(planned), nl=False)
    if output is None:
        typer.secho(
            "\nFor YAML: -o DIR writes model, runtime and service to files; or use -o yaml | kubectl apply -f -", err=True
        )
    else:
        _write(Path(output), files._asdict())


def _lint(text: str) -> tuple[str, ...]:
    """Return the findings of `ome lint` in the generated YAML. The tests expect no findings, but cannot cover all
    combinations of options.
    """
    from ome_operator.cli.live.cluster_from_manifests import KNOWN, build_cluster
    from ome_operator.cli.live.linted import lines
    from ome_operator.cli.manifests import catalog_paths, read_manifests

    bodies = [body for body in documents(text) if body["kind"] in KNOWN]
    beside = read_manifests(catalog_paths([Path("config/accelerators")]), "default")
    cluster = build_cluster([*beside, *bodies], model_agent=False)
    return lines(cluster, [kept.ref for kept in cluster.services()], "`ome lint -f` with the same files")


def _check_none_lost(folder: Path, files: dict[str, str]) -> None:
    """Raise UserError if a file in `folder` exists with different content, because a user may have edited that file."""
    paths = {folder / f"{name}.yaml": text for name, text in files.items()}
    there = [path for path, text in paths.items() if path.is_file() and path.read_text(encoding="utf-8") != text]
    if there:
        raise UserError(
            f"{there[0]} exists with different content: name another folder with -o, or overwrite it with --force."
        )


def _write(folder: Path, files: dict[str, str]) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (folder / f"{name}.yaml").write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(f"{folder} cannot be written: {why_unreadable(error)}") from error
    typer.secho(
        f"\n{folder}: {', '.join(f'{name}.yaml' for name in files)}. kubectl apply -f {shlex.quote(str(folder))}", err=True
    )


def _asked(request: RecipeRequest) -> RecipeRequest:
    """Let the user choose the hardware, the model and other options with the arrow keys. Print the equivalent command,
    and return the request with the chosen options.
    """
    from ome_operator.cli.menu import Item, choose
    from ome_operator.cookbook.layout import plan

    known = bookshelf()
    hardware = choose("Hardware platform", [Item(key, item.title) for key, item in known.hardware.items()])
    chosen = known_engine(request.engine, request.version)
    readable = [item.name for item in known.models.values() if item.format == chosen.format]
    model = choose("Model name", [Item(item, item) for item in readable])
    served = known.model(model)
    out: dict[str, Any] = {"hardware": hardware, "model": model}

    def why_not(strategy: str) -> str:
        try:
            plan(replace(request, **out | {"strategy": strategy}), known)
        except RecipeRefused as error:
            return str(error)
        return ""

    items = [Item(key, f"{key:<9} {STRATEGIES[key]}", why_not(key)) for key in chosen.strategies]
    if all(item.why_not for item in items):
        raise RecipeRefused(items[0].why_not)
    out["strategy"] = choose("Deployment strategy", items)
    for option, parser in (("reasoning_parser", served.reasoning_parser), ("tool_call_parser", served.tool_call_parser)):
        if parser:
            title = option.replace("_", " ").capitalize()
            out[option] = choose(title, [Item("yes", f"Enabled ({parser})"), Item("", "Disabled")]) == "yes"
    words = [f"--{key.replace('_', '-')}" + ("" if value is True else f" {value}") for key, value in out.items() if value]
    typer.secho(f"\nome generate {' '.join(words)}\n", err=True, bold=True)
    return replace(request, **out)
