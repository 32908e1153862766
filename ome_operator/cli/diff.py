"""`ome diff`: shows, before an edit is applied, which objects it would change and which pods it would restart."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ome_operator.cli.connect import Context, Kubeconfig, Namespace, namespace_or_default, on_cluster
from ome_operator.cli.gate import NOT_ACCEPTED
from ome_operator.cli.manifests import left_out, read_files, report_skipped
from ome_operator.cli.options import Files
from ome_operator.cli.output import Output, console, emit, print_error
from ome_operator.errors import QuestionUnanswered

if TYPE_CHECKING:
    from ome_operator.describe.preview import Preview
    from ome_operator.kube.client import Client

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command(epilog="Example: ome diff -f runtime.yaml -f service.yaml --brief")
def diff(
    files: Files,
    namespace: Namespace = "",
    brief: Annotated[bool, typer.Option("--brief", help="Print only the sentences, not the objects.")] = False,
    output: Output = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Show what applying these files would change, and which GPU pods would restart and why.

    Objects that would be refused are named with the reason, and the others are compared. Exit code 0: nothing would
    change. 1: something would change. 2: an object would be refused, or the answer is unknown.
    """
    found = on_cluster(kubeconfig, context, lambda client: _preview(client, files, namespace), error=QuestionUnanswered)
    if output is not None:
        emit(output, found)
    else:
        _show(found, brief)
    for sentence in found.lint:
        print_error(sentence)
    if found.problems:
        raise QuestionUnanswered(left_out(found.problems, "The other objects are compared" if found.objects else ""))
    raise typer.Exit(1 if found.objects or found.services else 0)


async def _preview(client: "Client", files: list[Path], namespace: str) -> "Preview":
    from ome_operator.cli.live.preview import preview

    found = read_files(files, namespace_or_default(client, namespace))
    report_skipped(found)
    # The API server itself checks the objects, by the CRDs that it has.
    refused = [each for each in found.refused if each.rule != NOT_ACCEPTED]
    seen = await preview(client, found.accepted_objects({NOT_ACCEPTED}), found.namespaces, found.others)
    return replace(seen, problems=(*map(str, refused), *seen.problems))


def _show(found: "Preview", brief: bool) -> None:
    from ome_operator.describe.draw import preview
    from ome_operator.util.visible import make_all_visible

    screen = console()
    for line in preview(make_all_visible(found), brief):
        screen.print(line, soft_wrap=not screen.is_terminal)
