"""`ome local`: the cluster as a tool."""

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from ome_local import layout, lines, options, spec, tinymodel
from ome_local.binaries import ensure
from ome_local.binaries.versions import CONTROL_PLANE, NODE
from ome_local.cluster import Cluster, Row
from ome_local.images import build as container_images
from ome_local.lifecycle import down as take_down
from ome_local.nodes import MACHINES, machine
from ome_local.progress import step
from ome_local.realnode.spec import NAME
from ome_local.spec import Spec
from ome_operator.errors import UserError

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    short_help=lines.LOCAL,
    epilog="Examples: ome local up --name mine --nodes 16; ome local status --name mine; ome local down --name mine",
    help="A real control plane on this machine: etcd, API server, controllers and scheduler, with simulated nodes.",
)
Name = Annotated[str, typer.Option("--name", help="Which cluster; several run side by side.")]
Which = Annotated[
    str | None, typer.Option("--name", help=f"Which cluster: {layout.DEFAULT_NAME}, or the only one.", show_default=False)
]
_PASS_ON = {"allow_extra_args": True, "ignore_unknown_options": True, "allow_interspersed_args": False}


_KEPT = ("accelerator", "gpus_per_node", "start_delay_s", "audit", "fast", "kind")
"""Options that count when a cluster is made, by their names in Spec."""


@app.command(epilog="Example: ome local up --name mine --nodes 16 --accelerator h200")
def up(
    ctx: typer.Context,
    name: Name = layout.DEFAULT_NAME,
    nodes: Annotated[int, typer.Option(min=0, max=5000, help="Simulated nodes.")] = 0,
    accelerator: Annotated[str, typer.Option(help=f"What they carry: {', '.join(MACHINES)}.")] = "h200",
    gpus_per_node: Annotated[int | None, typer.Option(min=0, max=72, help="As many as the machine has.")] = None,
    start_delay: Annotated[float, typer.Option(min=0, help="Seconds until a simulated pod is Ready.")] = 0.0,
    audit: Annotated[bool, typer.Option("--audit", help="Write every API request to audit.log.")] = False,
    fast: Annotated[
        bool, typer.Option("--fast", help="For scale: controllers may send more requests, and none makes Endpoints.")
    ] = False,
    kind: Annotated[bool, typer.Option("--kind", help="Use kind's control plane; needs Docker.")] = False,
    workers: Annotated[
        int, typer.Option(min=0, max=16, help="Kind's worker nodes; none: the node of its control plane takes pods.")
    ] = 0,
    kubernetes: Annotated[
        str, typer.Option(help="Version of the control plane, such as 1.37; again with the next minor: an upgrade.")
    ] = "",
    real_node: Annotated[
        bool, typer.Option("--real-node", help="Also a kubelet on this machine, node real-0; needs Linux and root.")
    ] = False,
    extras: options.With = None,
) -> None:
    """Create the cluster, or start what is missing of it.

    Options but --nodes, --kubernetes and --with count when it is created.
    """
    besides = options.extras(extras or ())
    cluster = Cluster.up(
        name,
        nodes=nodes,
        accelerator=accelerator,
        gpus_per_node=gpus_per_node,
        start_delay_s=start_delay,
        audit=audit,
        fast=fast,
        kind=kind,
        workers=workers,
        kubernetes=kubernetes,
        real_node=real_node,
        **besides,
    )
    if kept := kept_otherwise(_given(ctx), cluster.kept.spec):
        typer.echo(f"Cluster {name} was made with {kept}, and keeps it: `ome local down{_option(name)}` first.", err=True)
    typer.echo(f"Cluster {name} is up{_nodes_in_words(cluster)}. To use it:")
    typer.echo(f"  export KUBECONFIG={cluster.kubeconfig}")
    typer.echo(f"  ome local kubectl{_option(name)} get nodes")
    if cluster.prometheus:
        typer.echo(f"Prometheus: {cluster.prometheus}")


@app.command(epilog="Example: ome local down --name mine")
def down(
    name: Name = layout.DEFAULT_NAME,
    every: Annotated[bool, typer.Option("--all", help="Every cluster, whatever its name.")] = False,
) -> None:
    """End the cluster's processes and remove its files."""
    for each in layout.known() if every else [name]:
        removed = take_down(layout.layout(each))
        typer.echo(f"Cluster {each} is gone." if removed else f"There is no cluster {each}; nothing to do.")


@app.command(epilog="Example: ome local status")
def status(name: Which = None) -> None:
    """What runs. Exit code 1 when something does not."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    cluster = Cluster.open(layout.chosen(name))
    name = cluster.name
    table = Table(box=box.SIMPLE)
    for column in ("process", "state", "pid", "memory"):
        table.add_column(column, no_wrap=True)
    rows = cluster.status()
    for row in rows:
        state = "[green]running[/]" if row.pid else "[red]stopped[/]"
        table.add_row(row.name, state, str(row.pid or ""), _memory(row))
    ready = cluster.ready()
    console = Console()
    where = f"cluster {name} · API server {'ready' if ready else '[red]not ready[/]'} · {cluster.kubeconfig}"
    console.print(where, soft_wrap=True)
    if ready:
        console.print(_node_line(cluster))
    console.print(table)
    if cluster.prometheus:
        console.print(f"Prometheus: {cluster.prometheus}")
    console.print(f"`ome local logs{_option(name)} NAME` shows what a process said.")
    others = [other for other in layout.known() if other != name]
    if others:
        console.print(f"Other clusters here: {', '.join(others)}")
    if not ready or not all(row.pid for row in rows):
        raise typer.Exit(1)


@app.command(epilog="Example: export KUBECONFIG=$(ome local kubeconfig)")
def kubeconfig(name: Which = None) -> None:
    """Print the path of the cluster's kubeconfig."""
    typer.echo(_opened(name).kubeconfig)


@app.command(context_settings=_PASS_ON, epilog="Example: ome local kubectl --name mine get pods -A")
def kubectl(ctx: typer.Context, name: Which = None) -> None:
    """Run kubectl on the cluster; every word after it is kubectl's."""
    _become("kubectl", name, ctx.args)


@app.command(context_settings=_PASS_ON, epilog="Example: ome local helm list -A")
def helm(ctx: typer.Context, name: Which = None) -> None:
    """Run helm on the cluster; every word after it is helm's."""
    _become("helm", name, ctx.args)


@app.command(epilog="Example: ome local logs kwok -f")
def logs(
    process: Annotated[str, typer.Argument(help="A process of `ome local status`; none: the names.")] = "",
    name: Which = None,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Go on as it grows.")] = False,
    count: Annotated[int, typer.Option("-n", "--lines", min=0, help="How many from the end.")] = 100,
) -> None:
    """Show what a process said."""
    cluster = _opened(name)
    names = [row.name for row in cluster.status()]
    if not process:
        typer.echo("\n".join(names))
        return
    if not cluster.log(process).exists():
        raise UserError(f"Cluster {cluster.name} has no log of {process!r}; there are {', '.join(names)}.")
    raise typer.Exit(
        subprocess.run(["tail", "-n", str(count), *(["-f"] if follow else []), str(cluster.log(process))], check=False)
        .returncode
    )  # fmt: skip


@app.command(short_help="Give the real node images from files.", epilog="Example: ome local load image.tar")
def load(
    files: Annotated[list[Path], typer.Argument(help="Image archives, as `docker save` writes them.", metavar="FILE…")],
    name: Which = None,
) -> None:
    """Give the real node images from files; pods use them without a pull."""
    cluster = _opened(name)
    for file in files:
        with step(f"loading {file.name}"):
            cluster.load_image(file)


@app.command(short_help="The programs that a cluster needs, and where they are.", epilog="Example: ome local tools")
def tools(
    node: Annotated[bool, typer.Option("--node", help="Also those of a real node.")] = False,
) -> None:
    """Fetch or build the programs that a cluster needs, and print where they are."""
    for name, path in ensure.ensure([*CONTROL_PLANE, *(NODE if node else ())]).items():
        typer.echo(f"{name:24}{path}")


@app.command(short_help="Build the images of images/ without Docker.", epilog="Example: ome local images operator agent")
def images(
    names: Annotated[
        list[str] | None, typer.Argument(help=f"Which: {', '.join(container_images.REFERENCES)}; none: all.")
    ] = None,
) -> None:
    """Build the container images of images/ without Docker, and print where their archives are."""
    for name, path in container_images.build(names or container_images.REFERENCES).items():
        typer.echo(f"{container_images.REFERENCES[name]:32}{path}")


@app.command(short_help="Put a tiny model on this machine.", epilog="Example: ome local model")
def model(
    name: Which = None,
    remove: Annotated[bool, typer.Option("--remove", help="Remove it again.")] = False,
) -> None:
    """Put a tiny model of Kimi K2's architecture on this machine, where pods find it as a hostPath."""
    place = _models(name) / tinymodel.NAME
    if remove:
        gone = tinymodel.remove(place)
        typer.echo(f"{place} is gone." if gone else f"There is no model of ours in {place}; nothing to do.")
    else:
        typer.echo(tinymodel.put(place))


def _models(name: str | None) -> Path:
    """Of the cluster that is meant. Without a cluster: where a real node will look."""
    if name is None and spec.load(layout.layout(layout.chosen(None))) is None:
        return tinymodel.PLACE.parent
    return Cluster.open(layout.chosen(name)).models


def _opened(name: str | None) -> Cluster:
    """The cluster; what of it has ended is said beside."""
    cluster = Cluster.open(layout.chosen(name))
    if ended := cluster.ended():
        has, option = "has" if len(ended) == 1 else "have", _option(cluster.name)
        typer.echo(
            f"{', '.join(ended)} of cluster {cluster.name} {has} ended: `ome local up{option}` starts again.", err=True
        )
    return cluster


def _become(program: str, name: str | None, words: list[str]) -> None:
    """Replace this process, so that signals, the terminal and the exit code are the program's own."""
    cluster = _opened(name)
    path = str(cluster.program(program))
    os.execve(path, [path, *words], cluster.environment())  # noqa: S606 a program of the cluster, without a shell


def _given(ctx: typer.Context) -> dict[str, Any]:
    """Options that a person wrote, by their names in Spec."""
    sources = {field: ctx.get_parameter_source(field.removesuffix("_s")) for field in _KEPT}
    return {
        field: ctx.params[field.removesuffix("_s")]
        for field, source in sources.items()
        if source is not None and source.name == "COMMANDLINE"
    }


def kept_otherwise(given: Mapping[str, Any], spec: Spec) -> str:
    """What a cluster has instead of the options that were given, as options; "" where it is what was asked for."""
    has = {field: getattr(spec, field) for field in given}
    if "gpus_per_node" in has and spec.gpus_per_node is None:
        has["gpus_per_node"] = machine(spec.accelerator).gpus
    told = []
    for field, kept in has.items():
        name = f"--{field.removesuffix('_s').replace('_', '-')}"
        if kept != given[field]:
            told.append(name if kept is True else f"no {name}" if kept is False else f"{name} {kept}")
    return ", ".join(told)


def _nodes_in_words(cluster: Cluster) -> str:
    kept, parts = cluster.kept.spec, []
    if kept.nodes:
        gpus = machine(kept.accelerator).gpus if kept.gpus_per_node is None else kept.gpus_per_node
        carry = f" of {gpus} {kept.accelerator.upper()} GPUs" if gpus else ""
        parts.append(f"{kept.nodes} simulated node{'s' if kept.nodes > 1 else ''}{carry}")
    if kept.real_node:
        parts.append(f"the real node {NAME}")
    if kept.kind:
        count = len(cluster.real_nodes)
        parts.append(f"{count} real node{'s' if count > 1 else ''} of kind's")
    return f", with {' and '.join(parts)}" if parts else ""


def _node_line(cluster: Cluster) -> str:
    nodes = cluster.api().get("/api/v1/nodes")["items"]
    up_ = sum(
        any(c["type"] == "Ready" and c["status"] == "True" for c in node["status"].get("conditions", [])) for node in nodes
    )
    gpus = sum(int(node["status"]["allocatable"].get("nvidia.com/gpu", "0")) for node in nodes)
    return f"nodes {up_}/{len(nodes)} ready · {gpus} GPUs"


def _memory(row: Row) -> str:
    """Resident memory, where /proc tells it."""
    try:
        with open(f"/proc/{row.pid}/status") as file:  # noqa: PTH123 - read once, of a process that may be gone
            kib = next((int(line.split()[1]) for line in file if line.startswith("VmRSS:")), 0)
    except OSError:
        return ""
    return f"{kib // 1024} MiB"


def _option(name: str) -> str:
    return "" if name == layout.DEFAULT_NAME else f" --name {name}"
