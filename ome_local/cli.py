"""`ome local`: commands for a local cluster."""

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
from ome_local.nodes import machine
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
Name = Annotated[str, typer.Option("--name", help="Name of the cluster. Several clusters can run at the same time.")]
Which = Annotated[
    str | None,
    typer.Option(
        "--name",
        help=f"Name of the cluster. Default: the only existing cluster, otherwise {layout.DEFAULT_NAME}.",
        show_default=False,
    ),
]
_PASS_ON = {"allow_extra_args": True, "ignore_unknown_options": True, "allow_interspersed_args": False}
_KEPT = ("accelerator", "gpus_per_node", "start_delay_s", "audit", "fast", "kind")
"""Options that an existing cluster may be unable to follow, by the names of their fields in Spec. `up` reports where they
differ from the cluster."""


@app.command(epilog="Example: ome local up --name mine --nodes 16 --accelerator h200")
def up(
    ctx: typer.Context,
    name: Name = layout.DEFAULT_NAME,
    nodes: options.Nodes = 0,
    accelerator: options.Accelerator = "h200",
    gpus_per_node: options.GpusPerNode = None,
    start_delay: options.StartDelay = 0.0,
    audit: options.Audit = False,
    fast: options.Fast = False,
    kind: options.Kind = False,
    workers: options.Workers = 0,
    kubernetes: options.Kubernetes = "",
    real_node: options.RealNode = False,
    extras: options.With = None,
) -> None:
    """Create the cluster, or start the parts of it that do not run.

    --nodes, --kubernetes and --with can change an existing cluster, and --accelerator and --gpus-per-node take effect when
    it gets its first simulated nodes. All other options take effect only when the cluster is created.
    """
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
        **options.extras(extras or ()),
    )
    _print_usage(cluster, kept_otherwise(_given(ctx), cluster.kept.spec))


def _print_usage(cluster: Cluster, differences: str) -> None:
    """Print how to use a cluster. `differences` lists its settings that differ from the options of the command."""
    option = _option(cluster.name)
    if differences:
        typer.echo(
            f"Cluster {cluster.name} was created with {differences}, which cannot be changed. To create it again, run `ome "
            f"local down{option}` first.",
            err=True,
        )
    typer.echo(f"Cluster {cluster.name} is up{_nodes_in_words(cluster)}. To use it:")
    typer.echo(f"  export KUBECONFIG={cluster.kubeconfig}")
    typer.echo(f"  ome local kubectl{option} get nodes")
    if cluster.prometheus:
        typer.echo(f"Prometheus: {cluster.prometheus}")


@app.command(epilog="Example: ome local down --name mine")
def down(
    name: Name = layout.DEFAULT_NAME,
    every: Annotated[bool, typer.Option("--all", help="Remove all clusters.")] = False,
) -> None:
    """Stop the cluster's processes and remove its files."""
    for each in layout.known_clusters() if every else [name]:
        removed = take_down(layout.layout(each))
        typer.echo(f"Cluster {each} was removed." if removed else f"There is no cluster {each}, so there is nothing to do.")


@app.command(epilog="Example: ome local status")
def status(name: Which = None) -> None:
    """Show the processes of the cluster. Exit code 1: one of them does not run."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    cluster = Cluster.open(layout.choose_cluster(name))
    name = cluster.name
    table = Table(box=box.SIMPLE)
    for column in ("process", "state", "pid", "memory"):
        table.add_column(column, no_wrap=True)
    rows = cluster.status()
    for row in rows:
        state = "[green]running[/]" if row.pid else "[red]stopped[/]"
        table.add_row(row.name, state, str(row.pid or ""), _memory(row))
    ready = cluster.is_ready()
    console = Console()
    where = f"cluster {name} · API server {'ready' if ready else '[red]not ready[/]'} · {cluster.kubeconfig}"
    console.print(where, soft_wrap=True)
    if ready:
        console.print(_node_line(cluster))
    console.print(table)
    if cluster.prometheus:
        console.print(f"Prometheus: {cluster.prometheus}")
    console.print(f"`ome local logs{_option(name)} NAME` shows the log of a process.")
    others = [other for other in layout.known_clusters() if other != name]
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
    """Run kubectl on the cluster. All following words are passed to kubectl."""
    _become("kubectl", name, ctx.args)


@app.command(context_settings=_PASS_ON, epilog="Example: ome local helm list -A")
def helm(ctx: typer.Context, name: Which = None) -> None:
    """Run helm on the cluster. All following words are passed to helm."""
    _become("helm", name, ctx.args)


@app.command(epilog="Example: ome local logs kwok -f")
def logs(
    process: Annotated[
        str, typer.Argument(help="Name of a process in `ome local status`; without a name, all names are listed.")
    ] = "",
    name: Which = None,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Follow the log.")] = False,
    count: Annotated[int, typer.Option("-n", "--lines", min=0, help="Number of last lines to show.")] = 100,
) -> None:
    """Show the log of a process."""
    cluster = _opened(name)
    names = [row.name for row in cluster.status()]
    if not process:
        typer.echo("\n".join(names))
        return
    if not cluster.log(process).exists():
        raise UserError(f"Cluster {cluster.name} has no process {process!r}. Its processes: {', '.join(names)}.")
    raise typer.Exit(
        subprocess.run(["tail", "-n", str(count), *(["-f"] if follow else []), str(cluster.log(process))], check=False)
        .returncode
    )  # fmt: skip


@app.command(short_help="Load images from files into the real nodes.", epilog="Example: ome local load image.tar")
def load(
    files: Annotated[list[Path], typer.Argument(help="Archives of images, as `docker save` writes them.", metavar="FILE…")],
    name: Which = None,
) -> None:
    """Load images from files into the real nodes. Pods use them without a pull."""
    cluster = _opened(name)
    for file in files:
        with step(f"loading {file.name}"):
            cluster.load_image(file)


@app.command(
    short_help=("Download or build the programs that a cluster needs, and print their paths."),
    epilog="Example: ome local tools",
)
def tools(
    node: Annotated[bool, typer.Option("--node", help="Also download the programs of a real node.")] = False,
) -> None:
    """Download or build the programs that a cluster needs, and print their paths."""
    for name, path in ensure.ensure([*CONTROL_PLANE, *(NODE if node else ())]).items():
        typer.echo(f"{name:24}{path}")


@app.command(short_help="Build the images of images/ without Docker.", epilog="Example: ome local images operator agent")
def images(
    names: Annotated[
        list[str] | None, typer.Argument(help=f"Images to build: {', '.join(container_images.REFERENCES)}; by default all.")
    ] = None,
) -> None:
    """Build the container images of images/ without Docker, and print the paths of their archives."""
    for name, path in container_images.build(names or container_images.REFERENCES).items():
        typer.echo(f"{container_images.REFERENCES[name]:32}{path}")


@app.command(short_help="Write a tiny model to this machine.", epilog="Example: ome local model")
def model(
    name: Which = None,
    remove: Annotated[bool, typer.Option("--remove", help="Remove the model.")] = False,
) -> None:
    """Write a tiny model with Kimi K2's architecture to this machine, where pods mount it as a hostPath."""
    place = _models(name) / tinymodel.NAME
    if remove:
        gone = tinymodel.remove(place)
        typer.echo(f"{place} was removed." if gone else f"{place} does not contain this model, so there is nothing to do.")
    else:
        typer.echo(tinymodel.put(place))


def _models(name: str | None) -> Path:
    """Return the folder of models of the chosen cluster, or, without a cluster, the folder that a real node will use. `name`
    is the value of --name; None if the user did not choose a cluster.
    """
    if name is None and spec.load(layout.layout(layout.choose_cluster(None))) is None:
        return tinymodel.PLACE.parent
    return Cluster.open(layout.choose_cluster(name)).models


def _opened(name: str | None) -> Cluster:
    """Return the cluster. Processes that should run and do not are reported on stderr, including processes that another
    command is just starting. `name` is the value of --name; if it is None, `choose_cluster` chooses.
    """
    cluster = Cluster.open(layout.choose_cluster(name))
    if ended := cluster.ended_processes():
        does, option = "does" if len(ended) == 1 else "do", _option(cluster.name)
        typer.echo(
            f"{', '.join(ended)} of cluster {cluster.name} {does} not run: `ome local up{option}` starts them.", err=True
        )
    return cluster


def _become(program: str, name: str | None, words: list[str]) -> None:
    """Replace this process by the program, so that signals, terminal and exit code are those of the program. `words` are the
    arguments of the program, and `name` is that of the cluster, as for `_opened`.
    """
    cluster = _opened(name)
    path = str(cluster.program(program))
    os.execve(path, [path, *words], cluster.environment())  # noqa: S606 a program of the cluster, without a shell


def _given(ctx: typer.Context) -> dict[str, Any]:
    """Return the options that the user wrote on the command line, by the names of their fields in Spec."""
    sources = {field: ctx.get_parameter_source(field.removesuffix("_s")) for field in _KEPT}
    return {
        field: ctx.params[field.removesuffix("_s")]
        for field, source in sources.items()
        if source is not None and source.name == "COMMANDLINE"
    }


def kept_otherwise(given: Mapping[str, Any], spec: Spec) -> str:
    """Return the cluster's settings that differ from the given options, written as options; "" if no setting differs."""
    has = {field: getattr(spec, field) for field in given}
    if "gpus_per_node" in has and spec.gpus_per_node is None:
        has["gpus_per_node"] = machine(spec.accelerator).gpus
    differences = []
    for field, kept in has.items():
        name = f"--{field.removesuffix('_s').replace('_', '-')}"
        if kept != given[field]:
            differences.append(name if kept is True else f"no {name}" if kept is False else f"{name} {kept}")
    return ", ".join(differences)


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
    """Return the resident memory of a process as text; "" if /proc is not available."""
    try:
        with open(f"/proc/{row.pid}/status") as file:  # noqa: PTH123 - read once, of a process that may be gone
            kib = next((int(line.split()[1]) for line in file if line.startswith("VmRSS:")), 0)
    except OSError:
        return ""
    return f"{kib // 1024} MiB"


def _option(name: str) -> str:
    return "" if name == layout.DEFAULT_NAME else f" --name {name}"
