"""`ome scale`: show why a service has its size, go back to its last size, follow the demand again, simulate a load."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ome_operator import keys
from ome_operator.cli.completing import OptionalService
from ome_operator.cli.connect import Context, Kubeconfig, Namespace, edited_on_cluster, get_service, on_cluster, patch_read
from ome_operator.cli.output import Format, Output, emit, print_result
from ome_operator.errors import InvalidOption, UserError

if TYPE_CHECKING:
    from ome_operator.describe.scaling import ScalingView
    from ome_operator.kube.client import Client, Manifest
    from ome_operator.simulation.compare import Task
    from ome_operator.simulation.run import SimulationResult

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)


Undo = Annotated[
    bool,
    typer.Option(
        "--undo",
        help="Go back to the size before the last decision. The service keeps this size until you run the command with "
        "--resume.",
    ),
]
Resume = Annotated[
    bool,
    typer.Option(
        "--resume",
        help="Follow the demand again after --undo, or after somebody has set a number of groups in a RoleScale by hand "
        "(the RoleScale is deleted).",
    ),
]
Simulate = Annotated[
    str,
    typer.Option(
        metavar="TRACE",
        help="Simulate a load: sinusoid, steps, constant, sizes, vanishing, or a CSV file (docs/demand.md).",
        show_default=False,
    ),
]
Oracle = Annotated[
    bool,
    typer.Option(
        "--oracle",
        help="Also simulate an oracle for comparison: a controller that knows the true load, with its best settings.",
    ),
]
Plot = Annotated[Path | None, typer.Option(help="Draw the groups over time into this SVG file; needs --oracle.")]


@app.command(
    epilog="Examples: ome scale kimi-k2-instruct; ome scale kimi-k2-instruct --undo; ome scale kimi-k2-instruct --resume; "
    "ome scale --simulate steps; "
    "ome scale --simulate load.csv --oracle --plot load.svg"
)
def scale(
    service: OptionalService = "",
    undo: Undo = False,
    resume: Resume = False,
    simulate: Simulate = "",
    oracle: Oracle = False,
    plot: Plot = None,
    output: Output = None,
    namespace: Namespace = "",
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Show what the autoscaler of the class Demand saw, what size it wants and why, what holds it, and its last decisions.
    With --simulate, simulate how the size of a service follows a load, with measured service times and the same decision.
    """
    if simulate:
        if service or resume or undo:
            raise InvalidOption("--simulate needs no cluster: leave out SERVICE, --undo and --resume.")
        if output is not None:
            raise InvalidOption("--simulate prints text only: leave out --output.")
        _simulate(simulate, oracle, plot)
        return
    for given, option in ((oracle, "--oracle"), (plot is not None, "--plot")):
        if given:
            raise InvalidOption(f"{option} is for simulations only: add --simulate, or leave out {option}.")
    if not service:
        raise UserError("name a SERVICE, or simulate a load with --simulate, such as `ome scale --simulate steps`.")

    if undo and resume:
        raise InvalidOption("--undo keeps a previous size, and --resume ends this: use only one of them.")
    if undo:
        _print_lines(edited_on_cluster(kubeconfig, context, lambda client: _undo(client, service, namespace)))
    elif resume:
        _print_lines(on_cluster(kubeconfig, context, lambda client: _resume(client, service, namespace)))
    else:
        found = on_cluster(kubeconfig, context, lambda client: _view(client, service, namespace), read_only=True)
        _print_view(found, output)


async def _view(client: "Client", service: str, namespace: str) -> "ScalingView":
    from ome_operator.describe.scaling import view

    return view(*await _found(client, service, namespace))


def _print_view(found: "ScalingView", output: Format | None) -> None:
    from ome_operator.describe.scaling import lines

    if output is None:
        _print_lines(lines(found))
    else:
        emit(output, found)


def _print_lines(lines: Iterable[str]) -> None:
    for line in lines:
        print_result(line)


async def _found(client: "Client", service: str, namespace: str) -> tuple["Manifest", dict[str, "Manifest"]]:
    """Return a service, and its RoleScales by name. RoleScales of a deleted service of the same name are left out."""
    from ome_operator.core.observed.from_api import controller

    body = await get_service(client, service, namespace)
    where, name = body["metadata"]["namespace"], body["metadata"]["name"]
    found = await client.list_objects("RoleScale", where, label_selector=f"{keys.SERVICE}={name}")
    uid = body["metadata"]["uid"]
    own = (each for each in found if (controller(each["metadata"]) or {"uid": uid}).get("uid") == uid)
    return body, {each["metadata"]["name"]: each for each in own}


def _is_set_back(body: "Manifest") -> bool:
    """Return whether `ome scale --undo` has set the service to a former size, which the service keeps until `ome scale
    --resume`.
    """
    return keys.SCALED_BACK in (body["metadata"].get("annotations") or {})


async def _resume(client: "Client", service: str, namespace: str) -> list[str]:
    """End `--undo`, and delete the RoleScales that somebody has written. The operator creates them again with the groups
    that exist.
    """
    from ome_operator.core.observed.field_managers import HPA
    from ome_operator.describe.scaling import view

    body, scales = await _found(client, service, namespace)
    found = view(body, scales)
    where, is_back = f"{found.namespace}/{found.service}", _is_set_back(body)
    if found.mode != "Apply" and not is_back:
        raise UserError(f"the autoscaler of the class Demand sets no size of {where}, so there is nothing to resume.")
    for name in found.by_hand:
        await client.delete("RoleScale", found.namespace, name, scales[name]["metadata"]["uid"])
    messages = [f"RoleScale {name} is created again, and follows the demand from then on." for name in found.by_hand]
    messages += [
        f"RoleScale {name} was written by a HorizontalPodAutoscaler. If the HorizontalPodAutoscaler still exists, the next "
        "number that it writes applies instead of the demand again."
        for name, writer in found.writers.items()
        if writer == HPA
    ]
    if is_back:
        # The removal does not depend on what the annotation contains by now.
        patch = {"metadata": {"annotations": {keys.SCALED_BACK: None}}}
        await client.patch_merge("InferenceService", found.namespace, found.service, body["metadata"]["uid"], patch)
        messages.append(f"{where} no longer keeps its previous size, and follows the demand from this size on.")
    return messages or [f"Neither a person nor --undo has set a size of {where}, so the service follows the demand already."]


async def _undo(client: "Client", service: str, namespace: str) -> list[str]:
    """Write the size before the last decision into the annotation of the service."""
    from ome_operator.core.demand.undo import size_before, size_in, text, written_limits
    from ome_operator.describe.scaling import size, view

    body, scales = await _found(client, service, namespace)
    found = view(body, scales)
    where, resume = f"{found.namespace}/{found.service}", f"`ome scale {found.service} -n {found.namespace} --resume`"
    if found.mode != "Apply":
        raise UserError(f"the autoscaler of the class Demand sets no size of {where}, so there is nothing to undo.")
    if found.by_hand:
        raise UserError(
            f"RoleScale {found.by_hand[0]} was set by hand, and its number applies instead of the demand: {resume} first."
        )
    if _is_set_back(body):
        raise UserError(f"{where} keeps a previous size already: {resume} lets it follow the demand again.")
    if (former := size_before(found.decisions, found.wanted)) is None:
        raise UserError(
            f"the recorded decisions about {where} contain no other size: set a number with `kubectl scale rolescale`."
        )
    former_size, at = former
    kept = written_limits(former_size, body.get("spec") or {})
    if kept == size_in(found.wanted):
        raise UserError(
            f"{where} had {size(*former_size)} before the last decision, but minReplicas and maxReplicas only permit the "
            "present size: edit them first."
        )
    limits = "" if kept == former_size else " within minReplicas and maxReplicas"
    await patch_read(client, "InferenceService", body, {"metadata": {"annotations": {keys.SCALED_BACK: text(former_size)}}})
    return [f"{where} goes back to {size(*kept)}, the size of {at}{limits}, and keeps it until {resume}."]


def _simulate(simulate: str, oracle: bool, plot: Path | None) -> None:
    from ome_operator.simulation.compare import aims, compare_controllers, perform, table, tasks
    from ome_operator.simulation.plot import svg_text
    from ome_operator.simulation.traces import trace_by_name

    if plot is not None and not oracle:
        raise InvalidOption("--plot also draws the oracle: add --oracle.")
    if plot is not None and (plot.is_dir() or not plot.parent.is_dir()):
        raise InvalidOption(f"--plot={plot}: write the name of a file in a folder that exists.")
    trace = trace_by_name(simulate)
    print_result(trace.title)
    if not oracle:
        for task in tasks(simulate):
            if not task[2]:
                _say(task[1], perform(task))
        return

    def run(work: "Sequence[Task]") -> "Sequence[SimulationResult]":
        return [perform(task) for task in work]

    found = compare_controllers(simulate, run)
    _print_lines(table(found))
    for aim, value, met in aims(found):
        print_result(f"{aim}: {value}, {'met' if met else 'not met'}")
    if plot is not None:
        try:
            plot.write_text(svg_text(found), encoding="utf-8")
        except OSError as error:
            raise InvalidOption(f"--plot={plot}: {error.strerror}.") from error


def _say(name: str, result: "SimulationResult") -> None:
    print_result(
        f"{name}: {result.share_on_time:.1%} of {result.requests:,} requests within the targets, {result.gpu_hours:,.0f} "
        "GPU-hours, "
        f"{len(result.changes) - 1} changes"
    )
    if name == "ours":
        for at, prefill, decode in result.changes:
            print_result(f"  {at / 60:6.1f} min: {prefill} prefill, {decode} decode")
