"""Declare the options of `ome local up`, and validate them: their combinations, and whether the existing cluster can follow
them. Each error states which option to leave out.
"""

from collections.abc import Collection
from typing import Annotated

import typer

from ome_local.binaries.versions import KUBERNETES, minor
from ome_local.nodes import MACHINES
from ome_local.spec import ClusterFile, Spec
from ome_operator.errors import InvalidOption, UserError

EXTRAS = ("prometheus", "kueue", "keda")
"""Optional programs of a cluster, by the names of their fields in Spec."""

CALLED = ("kueue", "keda")
"""Those optional programs to which the API server itself connects."""

With = Annotated[
    list[str] | None,
    typer.Option("--with", metavar="PROGRAM", help=f"Also run this program with the cluster: {', '.join(EXTRAS)}."),
]
Nodes = Annotated[int, typer.Option(min=0, max=5000, help="Number of simulated nodes.")]
Accelerator = Annotated[str, typer.Option(help=f"Accelerator of the simulated nodes: {', '.join(MACHINES)}.")]
GpusPerNode = Annotated[
    int | None,
    typer.Option(min=0, max=72, help="Number of GPUs per simulated node; by default the number that such a machine has."),
]
StartDelay = Annotated[float, typer.Option(min=0, help="Seconds until a simulated pod is Ready.")]
Audit = Annotated[bool, typer.Option("--audit", help="Write every API request to audit.log.")]
Fast = Annotated[
    bool,
    typer.Option(
        "--fast",
        help="Settings for large clusters: controllers may send more requests, and no Endpoints objects are created.",
    ),
]
Kind = Annotated[bool, typer.Option("--kind", help="Use the control plane of kind, which needs Docker.")]
Workers = Annotated[
    int,
    typer.Option(
        min=0, max=16, help="Number of worker nodes of kind. If it is 0, the control plane node of kind runs pods."
    ),
]
Kubernetes = Annotated[
    str,
    typer.Option(
        help="Kubernetes version of the control plane, such as 1.37. Run `up` again with the next minor version to upgrade."
    ),
]
RealNode = Annotated[
    bool,
    typer.Option("--real-node", help="Also run a kubelet on this machine as the node real-0, which needs Linux and root."),
]


def extras(named: Collection[str]) -> dict[str, bool]:
    """Return the fields of Spec that the option `--with` sets. Raises InvalidOption for an unknown program."""
    if unknown := [word for word in named if word not in EXTRAS]:
        raise InvalidOption(f"--with {unknown[0]}: there is no such program: use {', '.join(EXTRAS)}.")
    return {name: name in named for name in EXTRAS}


def check(name: str, kept: ClusterFile | None, wanted: Spec) -> None:
    """Raise UserError if the options cannot be satisfied. `kept` contains the settings of the existing cluster with the name
    `name`; None if there is no such cluster.
    """
    if reason := option_error(name, kept.spec if kept else None, wanted):
        raise UserError(reason)
    for extra in EXTRAS:
        if getattr(wanted, extra) and kept and extra not in kept.ports:
            raise UserError(
                f"--with {extra}: cluster {name} was created by an earlier version, which reserved no port and no identity "
                f"for {extra}: remove the cluster first, or choose another name."
            )


def option_error(name: str, kept: Spec | None, wanted: Spec) -> str:
    """Return a sentence about the first error in the options; "" if they are valid. `kept` are the options of the existing
    cluster; None for a new cluster. `wanted` are the options of this command.
    """
    if wanted.kind and wanted.real_node:
        return "the nodes of kind are real nodes already: leave out --real-node or --kind."
    with_kind = kept.kind if kept else wanted.kind
    if wanted.version != KUBERNETES and (with_kind or (kept or wanted).real_node):
        whose = (
            ("the node image of kind determines the version of Kubernetes")
            if with_kind
            else f"the real node's kubelet is {KUBERNETES}"
        )
        return f"--kubernetes {wanted.version}: {whose}. Leave out --kubernetes or --{'kind' if with_kind else 'real-node'}."
    if with_kind and (named := [f"--{option}" for option in ("audit", "fast") if getattr(wanted, option)]):
        options, them = " and ".join(named), "it" if len(named) == 1 else "them"
        return f"{options}: kind starts its own API server and controllers, without {them}. Leave out {them} or --kind."
    if with_kind and (called := [extra for extra in CALLED if getattr(wanted, extra)]):
        options = " and ".join(f"--with {extra}" for extra in called)
        return (
            f"{options}: the API server of kind cannot connect to a process of this machine. Leave out {options} or --kind."
        )
    if wanted.workers and not with_kind:
        return (
            f"--workers {wanted.workers}: only kind has worker nodes. Leave out --workers, or add --kind to a new cluster."
        )
    return _of_another_make(name, kept, wanted) if kept else ""


def _of_another_make(name: str, kept: Spec, wanted: Spec) -> str:
    otherwise = "remove the cluster first, or choose another name"
    if wanted.kind and not kept.kind:
        return f"Cluster {name} was created without kind: {otherwise}."
    if wanted.real_node and kept.kind:
        return f"Cluster {name} was created with --kind, and its nodes are real already: leave out --real-node."
    if wanted.real_node and not kept.real_node:
        return f"Cluster {name} was created without a real node: {otherwise}."
    if wanted.kubernetes and minor(wanted.version) - minor(kept.version) not in (0, 1):
        step = (
            f"1.{minor(kept.version) + 1} is the next version"
            if minor(wanted.version) > minor(kept.version)
            else ("a downgrade is not possible")
        )
        return (
            f"Cluster {name} runs Kubernetes {kept.version} and can only be upgraded by one minor version at a time: {step}."
        )
    if wanted.workers not in (0, kept.workers):
        return (
            f"--workers {wanted.workers}: cluster {name} was created with {kept.workers}, and kind cannot add workers: "
            f"{otherwise}."
        )
    return ""
