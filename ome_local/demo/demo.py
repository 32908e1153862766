"""`ome demo`: deploy Kimi K2 on 128 simulated GPUs, and generate real tokens with a tiny model, in the same steps as a
user.

Every step can be repeated; a second run reuses existing objects and files.
"""

from pathlib import Path
from typing import Any

import ome_operator
from ome_local import layout, parts, screen, spec
from ome_local.board import ProgressBoard
from ome_local.cluster import Cluster
from ome_local.demo.command import command
from ome_local.demo.plan import START_DELAY_S, Demo
from ome_local.demo.services import KIMI, TINY, Service
from ome_local.lifecycle import down as take_down
from ome_local.realnode import requirements
from ome_local.spec import Spec
from ome_operator.errors import UserError
from ome_operator.util.checkout import FOLDERS, checkout, shipped_folder

CLUSTER = "ome-demo"


def run(within_s: float, *, name: str = CLUSTER, kind: bool = False, **extras: Any) -> None:
    """Run the demo, with optional programs of the cluster (`options.EXTRAS`). Raises UserError with the names of the objects
    that did not become ready within `within_s` seconds. If `kind` is true, the cluster is one of kind, a tool that runs
    Kubernetes nodes in containers; an existing cluster of kind remains one.
    """
    check_ours(name)
    for folder in FOLDERS:
        shipped_folder(folder)  # report missing folders before anything is created
    made = spec.load(layout.layout(name))
    kind = kind or (made is not None and made.spec.kind)
    nowhere = "" if kind else requirements.why_not() or _without_images()
    wanted = Spec(
        nodes=16, accelerator="h200", start_delay_s=START_DELAY_S, demo=installation(), kind=kind,
        real_node=not nowhere and not kind, **extras,
    )  # fmt: skip
    besides = "" if nowhere else ", and a tiny model in real containers"
    print(f"Kimi K2 on 16 simulated nodes of 8 H200 GPUs{besides}", flush=True)
    demo = Demo(name, wanted, within_s)
    planned = demo.parts()
    board = ProgressBoard({part.name: part.needs for part in planned})
    with screen.show_board(board):
        parts.run(planned, board)
    print(demo.answer or f"No engine ran: the GPU nodes are simulated. {nowhere}")
    print(_farewell(demo.cluster, TINY if demo.tokens else KIMI))


def remove(name: str = CLUSTER) -> None:
    """Stop the demo and remove its files."""
    check_ours(name)
    gone = take_down(layout.layout(name))
    print("The demo was removed." if gone else "There is no demo, so there is nothing to do.")


def check_ours(name: str) -> None:
    """Raise UserError unless the cluster was created by the demo of this installation. Any other cluster may contain a
    user's work.
    """
    kept = spec.load(layout.layout(name))
    if kept is None or kept.spec.demo == installation():
        return
    by = f"created by the demo of {kept.spec.demo}" if kept.spec.demo else "not created by this demo"
    option = "" if name == layout.DEFAULT_NAME else f" --name {name}"
    raise UserError(
        f"Cluster {name} was {by}: `ome demo --name OTHER` creates another cluster next to it, and `ome local "
        f"down{option}` removes it."
    )


def installation() -> str:
    """Return the folder of the installed packages."""
    return str(Path(ome_operator.__file__).resolve().parents[1])


def _without_images() -> str:
    """Return why no images for a real node can be built, as a sentence; "" in a checkout, where they can be built."""
    try:
        checkout()
    except UserError as error:
        return f"A real node needs images, which are built from images/. {error}"
    return ""


def _farewell(cluster: Cluster, service: Service) -> str:
    ome = command()
    kubectl, where = f"{ome} local kubectl --name {cluster.name}", f"-n {service.name}"
    option = "" if cluster.name == CLUSTER else f" --name {cluster.name}"
    told = f"  Prometheus: {cluster.prometheus}\n" if cluster.prometheus else ""
    return (
        f"\nThe cluster stays up. To look around:\n"
        f"  {kubectl} get isvc -A\n"
        f"  {kubectl} get pods -A -o wide\n"
        f"  {kubectl} get all {where}\n"
        f"  {kubectl} describe isvc {service.name} {where}\n"
        f"  {ome} local logs operator --name {cluster.name}\n"
        f"  export KUBECONFIG={cluster.kubeconfig}\n"
        f"{told}To remove it all: {ome} demo --down{option}"
    )
