"""Which options of `ome local up` go together, and with what a cluster was made. What is refused says what to leave out."""

from collections.abc import Collection
from typing import Annotated

import typer

from ome_local.binaries.versions import KUBERNETES, minor
from ome_local.spec import Kept, Spec
from ome_operator.errors import UserError

EXTRAS = ("prometheus",)
"""Programs that a cluster can have besides, by their fields in Spec."""


With = Annotated[
    list[str] | None, typer.Option("--with", metavar="PROGRAM", help=f"Also run this beside it: {', '.join(EXTRAS)}.")
]


def extras(named: Collection[str]) -> dict[str, bool]:
    """The fields of Spec that `--with` names."""
    if unknown := [word for word in named if word not in EXTRAS]:
        raise UserError(f"--with {unknown[0]}: there is no such program; there is {', '.join(EXTRAS)}.")
    return {name: name in named for name in EXTRAS}


def check(name: str, kept: Kept | None, wanted: Spec) -> None:
    """Refuse what cannot be had; `kept`: with what the cluster of this name was made, if it is there."""
    if reason := refusal(name, kept.spec if kept else None, wanted):
        raise UserError(reason)
    if wanted.prometheus and kept and "prometheus" not in kept.ports:
        raise UserError(
            f"--with prometheus: cluster {name} was made by an earlier build, which kept no port and no identity for it: "
            "take it down first, or choose another."
        )


def refusal(name: str, kept: Spec | None, wanted: Spec) -> str:
    """A sentence for the person, "" when nothing is wrong."""
    if wanted.kind and wanted.real_node:
        return "kind's nodes are real already: leave --real-node out, or --kind."
    with_kind = kept.kind if kept else wanted.kind
    if wanted.version != KUBERNETES and (with_kind or (kept or wanted).real_node):
        whose = "kind's node image says which Kubernetes it is" if with_kind else f"the real node's kubelet is {KUBERNETES}"
        return f"--kubernetes {wanted.version}: {whose}. Leave it out, or --{'kind' if with_kind else 'real-node'}."
    if with_kind and (named := [f"--{option}" for option in ("audit", "fast") if getattr(wanted, option)]):
        options, them = " and ".join(named), "it" if len(named) == 1 else "them"
        return f"{options}: kind starts its own API server and controllers, without {them}. Leave {them} out, or --kind."
    if wanted.workers and not with_kind:
        return f"--workers {wanted.workers}: worker nodes are kind's. Leave it out, or add --kind to a new cluster."
    return _of_another_make(name, kept, wanted) if kept else ""


def _of_another_make(name: str, kept: Spec, wanted: Spec) -> str:
    otherwise = "take it down first, or choose another"
    if wanted.kind and not kept.kind:
        return f"Cluster {name} was made without kind: {otherwise}."
    if wanted.real_node and kept.kind:
        return f"Cluster {name} is kind's, whose nodes are real already: leave --real-node out."
    if wanted.real_node and not kept.real_node:
        return f"Cluster {name} was made without a real node: {otherwise}."
    if wanted.kubernetes and minor(wanted.version) - minor(kept.version) not in (0, 1):
        step = (
            f"1.{minor(kept.version) + 1} is next" if minor(wanted.version) > minor(kept.version) else "there is no way back"
        )
        return f"Cluster {name} runs Kubernetes {kept.version} and goes up a minor at a time: {step}."
    if wanted.workers not in (0, kept.workers):
        return f"--workers {wanted.workers}: cluster {name} was made with {kept.workers}, and kind adds none: {otherwise}."
    return ""
