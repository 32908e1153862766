"""`ome replay`: runs the reconciliation passes of a recording again, on any machine."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ome_operator.cli.file_errors import why_unreadable
from ome_operator.cli.output import Output, emit, print_result
from ome_operator.errors import QuestionUnanswered
from ome_operator.util.visible import make_visible

if TYPE_CHECKING:
    from ome_operator.recorder.recording import Recording
    from ome_operator.recorder.replay import ReplayedPass

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command(epilog="Example: ome replay kimi-k2-instruct.json")
def replay(
    file: Annotated[Path, typer.Argument(help="Recording that `ome record` or an operator wrote.")],
    service: Annotated[str, typer.Option(help="Replay only this service, written as NAMESPACE/NAME.")] = "",
    last: Annotated[
        int, typer.Option(help=("Replay only this number of the newest passes of each service; 0: all passes."), min=0)
    ] = 0,
    output: Output = None,
) -> None:
    """Run the reconciliation passes of a recording again, with this version of the operator and without a cluster. For
    each pass, print what the pass observed, what it decides and why, and how that decision differs from the recorded
    one.

    Exit code 0: all decisions are the same. 1: a decision differs. 2: the file cannot be read.
    """
    from ome_operator import __version__
    from ome_operator.recorder.replay import replay

    found = _read(file)
    if service and service not in found.services:
        raise QuestionUnanswered(
            f"{file} has no service {make_visible(service)}. Its services: "
            f"{', '.join(map(make_visible, found.services)) or 'none'}."
        )
    names = [service] if service else list(found.services)
    made = {name: list(replay(found.services[name], found.redacted > 0))[-last:] for name in names}
    if output is not None:
        emit(output, made)
    else:
        print_result(
            f"written by ome {found.version}, replayed by ome {__version__}" + (f"; for {found.why}" if found.why else "")
        )
        for name, steps in made.items():
            print_result("\n".join([f"\n{name}: {len(steps)} passes", *(line for step in steps for line in _drawn(step))]))
    raise typer.Exit(1 if any(step.other for steps in made.values() for step in steps) else 0)


def _read(file: Path) -> "Recording":
    from ome_operator.recorder.facts import UnreadableRecording
    from ome_operator.recorder.recording import LARGEST, decode

    try:
        with file.open("rb") as opened:
            content = opened.read(LARGEST + 1)
        return decode(content)
    except OSError as error:
        raise QuestionUnanswered(f"{file} cannot be read: {why_unreadable(error)}.") from error
    except UnreadableRecording as error:
        raise QuestionUnanswered(f"{file} cannot be replayed: {error}.") from error


def _drawn(step: "ReplayedPass") -> Iterator[str]:
    yield f"\npass {step.number} at {step.when}"
    for title, lines in (("saw", step.saw), ("says", step.why), ("does", step.steps)):
        yield from _listed(title, lines)
    if step.error:
        yield f"  fails    {make_visible(step.error)}"
    if step.again is not None:
        yield f"  again    in {step.again:g} s"
    yield from _listed("other", step.other) if step.other else ["  then     the same"]


def _listed(title: str, lines: tuple[str, ...]) -> Iterator[str]:
    for number, line in enumerate(lines):
        yield f"  {'' if number else title:<9}{make_visible(line)}"
