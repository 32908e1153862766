"""Tests that docs/img/status.svg shows the output of `ome status`: it is drawn by the command's own code, for simulated
services.
"""

import io
import re
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.terminal_theme import SVG_EXPORT_THEME

from ome_operator import keys
from ome_operator.cli import status
from ome_operator.core.observed.objects import Observed, Pod
from ome_operator.core.reconcile.sync import sync
from ome_operator.describe.tree import Tree, tree
from tests.support import parts
from tests.support.simulator import World

PICTURE = Path(__file__).parents[3] / "docs/img/status.svg"
COMMAND = "ome status -A"
COLUMNS = 88
OOM = "container ome-container exited with code 1: torch.OutOfMemoryError: CUDA out of memory"


def grown(world: World) -> World:
    """Run passes until the service is complete, and return it."""
    while world.condition("Scaled").get("status") != "True":
        world.carry_out(world.sync())
        world.step()
    return world


def placed(world: World, first: int = 0) -> Observed:
    """Place the engines on nodes with realistic names, prefill before decode. The router is on none of these nodes."""
    observed = world.observed()
    order = (keys.ENGINE, keys.DECODER)
    engines = [pod for pod in observed.pods if pod.component in order]
    engines.sort(key=lambda pod: (order.index(pod.component), pod.group, pod.rank))
    nodes = {pod.name: f"h200-{number:02}" for number, pod in enumerate(engines, start=first)}
    return replace(observed, pods=tuple(pod._replace(node=nodes.get(pod.name, "cpu-00")) for pod in observed.pods))


def seen(world: World, observed: Observed) -> Tree:
    """Return the tree of `ome status`, made from the pods and the status of the service."""
    service = world.service
    said = sync(service, world.deps, observed, world.now).status
    metadata = {"name": service.name, "namespace": service.namespace, "uid": service.uid, "generation": 1}
    body: dict[str, Any] = {"metadata": metadata, "spec": service.spec.dump(), "status": dict(said)}
    return tree(body, observed)


def crashed(pod: Pod) -> Pod:
    """Return the pod. Rank 7 of decode is changed: it has crashed because its KV cache did not fit into memory."""
    if (pod.component, pod.rank) != (keys.DECODER, 7):
        return pod
    return pod._replace(ready=False, restarts=3, reason="CrashLoopBackOff", message=OOM)


def services() -> list[Tree]:
    """Return the trees of Kimi K2 on 16 nodes, of which one rank crashes, and of a small healthy service."""
    kimi = grown(World(*parts.kimi(), seed=1))
    observed = placed(kimi)
    small = grown(World(*parts.shipped_service("Qwen/qwen3-30b.yaml"), seed=1))
    broken = replace(observed, pods=tuple(crashed(pod) for pod in observed.pods))
    return [seen(kimi, broken), seen(small, placed(small, first=16))]


def drawn() -> str:
    screen = Console(
        file=io.StringIO(), record=True, width=COLUMNS, force_terminal=True, color_system="truecolor", highlight=False,
        legacy_windows=False, _environ={},
    )  # fmt: skip
    screen.print(status._drawn(services(), False))
    svg = screen.export_svg(title=COMMAND, theme=SVG_EXPORT_THEME, unique_id="status")
    # rich loads its font from a server, which a page with this picture must not do.
    svg = re.sub(r" *@font-face \{.*?\}\n", "", svg, flags=re.S)
    return "".join(f"{line.rstrip()}\n" for line in svg.splitlines() if line.strip())


def test_picture_equals_the_output_of_the_status_command(update: bool) -> None:
    found = drawn()
    if update:
        PICTURE.write_text(found)
    hint = "see `pytest tests/unit/describe/test_picture.py --update-golden`, and look at the picture"
    assert found == PICTURE.read_text(), hint


def test_picture_shows_an_unready_rank_and_loads_nothing() -> None:
    """The picture shows a rank that is not ready, with the reason, among 128 GPUs. It loads nothing from the internet."""
    text = PICTURE.read_text()
    ElementTree.fromstring(text)
    words = " ".join(re.sub(r"<[^>]*>", " ", text).replace("&#160;", " ").split())
    for word in ("32 GPUs", "96 GPUs", "rank 7", "CrashLoopBackOff", "CUDA out of memory", COMMAND):
        assert word in words, word
    assert not re.search(r"url\((?!#)|href=\"http|@font-face|@import", text)
