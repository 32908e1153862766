"""Tests of the dependencies between the parts of the demo: Kimi K2 does not wait for anything that only engines in
containers need.
"""

import threading
from collections.abc import Sequence
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from ome_local import parts
from ome_local.binaries import ensure
from ome_local.board import ProgressBoard
from ome_local.cluster import Cluster
from ome_local.demo import operator, plan, services
from ome_local.demo.plan import IMAGES, Demo
from ome_local.images import build
from ome_local.parts import Part
from ome_local.realnode import requirements
from ome_local.spec import Spec

REAL, KIND, SIMULATED = Spec(nodes=16, real_node=True), Spec(nodes=16, kind=True), Spec(nodes=16)


def planned(made: Spec) -> dict[str, Part]:
    """Return the parts by name, in order."""
    found = Demo("mine", made, 1.0).parts()
    assert len({part.name for part in found}) == len(found)
    return {part.name: part for part in found}


def before(name: str, known: dict[str, Part]) -> set[str]:
    """Return the names of all parts that have to end before this part starts."""
    return {name}.union(*(before(each, known) for each in known[name].needs))


@pytest.mark.parametrize("made", [REAL, KIND, SIMULATED])
def test_every_dependency_is_a_part_of_the_plan(made: Spec) -> None:
    """Every dependency is a part of the plan, and no part waits for itself."""
    known = planned(made)
    assert {name for part in known.values() for name in part.needs} <= known.keys()
    assert len(list(TopologicalSorter({name: part.needs for name, part in known.items()}).static_order())) == len(known)


def test_kimi_k2_waits_only_for_the_control_plane() -> None:
    """Kimi K2 waits only for the control plane. It waits for no image, and for no program of the real node."""
    assert before(plan.KIMI_READY, planned(REAL)) == {
        plan.PROGRAMS, plan.PACKAGES, plan.CLUSTER, plan.OPERATOR, plan.KIMI_READY
    }  # fmt: skip


@pytest.mark.parametrize("made", [REAL, KIND])
def test_first_request_waits_for_every_part_except_kimi_k2(made: Spec) -> None:
    known = planned(made)
    assert before(plan.REQUEST, known) == known.keys() - {plan.KIMI_READY}


def test_images_wait_for_no_program() -> None:
    """The first image is built from the beginning of the run. Each image is loaded onto the node without waiting for the
    next one.
    """
    known = planned(REAL)
    assert [name for name, part in known.items() if not part.needs] == [plan.PROGRAMS, plan.PACKAGES, f"image {IMAGES[0]}"]
    assert before(f"{IMAGES[0]} on the node", known) == {
        plan.PROGRAMS, plan.PACKAGES, plan.CLUSTER, f"image {IMAGES[0]}", f"{IMAGES[0]} on the node"
    }  # fmt: skip


def test_demo_with_simulated_nodes_plans_minimal_parts() -> None:
    assert list(planned(SIMULATED)) == [plan.PROGRAMS, plan.CLUSTER, plan.OPERATOR, plan.KIMI_READY]


def test_demo_on_kind_plans_no_real_node() -> None:
    assert not {plan.PACKAGES, plan.NODE_PROGRAMS, plan.NODE} & planned(KIND).keys()


def test_parts_needed_by_kimi_k2_have_the_highest_cpu_priority() -> None:
    """Parts that Kimi K2 needs have the highest CPU priority. Images come before the programs that are compiled for the real
    node, because images take longer.
    """
    known = planned(REAL)
    assert {known[name].nice for name in before(plan.KIMI_READY, known)} == {0}
    assert 0 < known[f"image {IMAGES[0]}"].nice < known[plan.NODE_PROGRAMS].nice


def test_kimi_k2_serves_before_images_and_node_programs_are_finished(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kimi K2 serves before images and the programs of the real node are finished, which wait for it in this run."""
    said: list[str] = []
    kimi_serves = threading.Event()

    def programs(names: Sequence[str], *, more_to_come: bool = False) -> None:
        if "kubelet" in names:
            assert kimi_serves.wait(20)
        said.append("kubelet" if "kubelet" in names else f"control plane, more to come: {more_to_come}")

    def image(names: Sequence[str]) -> dict[str, Path]:
        assert kimi_serves.wait(20)
        return {name: Path(name) for name in names}

    class Up(Cluster):
        real_nodes = ("real-0",)
        models = Path("/nowhere")

        @classmethod
        def up(cls, name: str, *, join: bool = True, **options: object) -> "Up":
            said.append("node joins" if join else "cluster")
            return cls(None, None)  # type: ignore[arg-type]

        def load_image(self, file: Path) -> None:
            said.append(f"{file} on the node")

    def serve(cluster: Cluster, service: services.Service, within_s: float) -> None:
        said.append(service.name)
        if service is services.KIMI:
            kimi_serves.set()

    monkeypatch.setattr(plan, "Cluster", Up)
    monkeypatch.setattr(requirements, "require", lambda: None)
    monkeypatch.setattr(ensure, "ensure", programs)
    monkeypatch.setattr(build, "build", image)
    monkeypatch.setattr(operator, "install", lambda cluster: None)
    monkeypatch.setattr(operator, "start", lambda cluster, *words: None)
    monkeypatch.setattr(plan.tinymodel, "put", lambda place: None)
    monkeypatch.setattr(services, "label_nodes", lambda cluster, service, *nodes: None)
    monkeypatch.setattr(services, "serve", serve)
    monkeypatch.setattr(services, "created", lambda cluster, service: "16 Pods")
    monkeypatch.setattr(plan, "answer", lambda cluster, service: "tokens")
    demo = Demo("mine", REAL, 1.0)
    found = demo.parts()
    board = ProgressBoard({part.name: part.needs for part in found})
    parts.run(found, board)
    assert demo.answer == "tokens"
    assert said[:3] == ["control plane, more to come: True", "cluster", services.KIMI.name]
    assert sorted(said[3:-1]) == sorted(["kubelet", "node joins", *(f"{name} on the node" for name in IMAGES)])
    assert said[-1] == services.TINY.name
    assert board.rows[plan.KIMI_READY].words == "Ready: 16 Pods"
