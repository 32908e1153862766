"""The parts of the demo and their dependencies. All parts that can run in parallel do so.

The control plane and Kimi K2 need no real node, so they come first. The compilation of the control plane's programs has a
higher CPU priority than the images, which mostly wait for downloads of packages, and than the compilation of the real
node's programs.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path

from ome_local import spec, tinymodel
from ome_local.binaries import ensure
from ome_local.cluster import Cluster
from ome_local.demo import operator, services
from ome_local.demo.request import answer
from ome_local.demo.services import KIMI, TINY
from ome_local.images import build
from ome_local.lifecycle import programs
from ome_local.parts import Part
from ome_local.progress import step
from ome_local.realnode import requirements

IMAGES = ("engine-cpu", "router", "operator")
"""Images of the tiny service. The largest image comes first, so that the node unpacks it while the other images are
built."""
START_DELAY_S = 2.5
"""Seconds from the binding of a simulated pod until it is Ready."""
_IMAGES_NICE, _LATER_NICE = 10, 15
"""Niceness of the parts that build images, and of the later parts. After Kimi K2, the images take the longest time, so the
programs of the real node yield to them."""


PROGRAMS, NODE_PROGRAMS = "programs of the control plane", "programs of the real node"
PACKAGES = "packages of Debian"
CLUSTER, NODE = "control plane, simulated nodes", "real node"
OPERATOR = "operator"
KIMI_READY, TINY_READY = "Kimi K2 on simulated GPUs", "tiny model in real containers"
REQUEST = "a request for tokens"
"""Name of the part that sends a request. The constants above are the names of the other parts; the progress display shows
these names."""


class Demo:
    """A run of the demo. Its cluster and archives are set when the parts that create them are done."""

    def __init__(self, name: str, made: spec.Spec, within_s: float) -> None:
        self.name, self.made, self.within_s = name, made, within_s
        self.answer = ""
        self._up: Cluster | None = None
        self._archives: dict[str, Path] = {}

    @property
    def cluster(self) -> Cluster:
        """The cluster. It can be used only after the part that creates it is done."""
        assert self._up is not None
        return self._up

    @property
    def tokens(self) -> bool:
        """Whether there is a node that can run engines, so that real tokens are generated."""
        return self.made.real_node or self.made.kind

    def parts(self) -> list[Part]:
        """Return the parts that this machine can run."""
        every = [
            Part(PROGRAMS, self._programs),
            Part(PACKAGES, requirements.require),
            Part(CLUSTER, self._begin, needs=(PROGRAMS, PACKAGES)),
            Part(OPERATOR, self._operate, needs=(CLUSTER,)),
            Part(KIMI_READY, self._kimi, needs=(OPERATOR,)),
            *_chain([Part(f"image {name}", partial(self._image, name), nice=_IMAGES_NICE) for name in IMAGES]),
            *(Part(f"{name} on the node", partial(self._load, name), needs=(CLUSTER, f"image {name}")) for name in IMAGES),
            Part(NODE_PROGRAMS, self._programs_of_node, needs=(PROGRAMS,), nice=_LATER_NICE),
            Part(NODE, self._join, needs=(CLUSTER, NODE_PROGRAMS)),
            Part(TINY_READY, self._tiny, needs=(OPERATOR, NODE, *(f"{name} on the node" for name in IMAGES))),
            Part(REQUEST, self._ask, needs=(TINY_READY,)),
        ]
        if not self.tokens:
            return without_parts(every, {part.name for part in every} - {PROGRAMS, CLUSTER, OPERATOR, KIMI_READY})
        return every if self.made.real_node else without_parts(every, {PACKAGES, NODE_PROGRAMS, NODE})

    def _programs(self) -> None:
        ensure.ensure(programs(self.made, join=False), more_to_come=self.made.real_node)

    def _programs_of_node(self) -> None:
        ensure.ensure(programs(self.made))

    def _begin(self) -> None:
        self._up = Cluster.up(self.name, join=False, **vars(self.made))

    def _join(self) -> None:
        self._up = Cluster.up(self.name, **vars(self.made))

    def _operate(self) -> None:
        operator.install(self.cluster)
        with step("starting the operator", quiet_below=0.0):
            operator.start(self.cluster, f"--sidecar-image={build.REFERENCES['operator']}")

    def _kimi(self) -> str:
        services.label_nodes(self.cluster, KIMI, "-l", "type=kwok")
        services.serve(self.cluster, KIMI, self.within_s)
        return f"Ready: {services.created(self.cluster, KIMI)}"

    def _image(self, name: str) -> None:
        self._archives |= build.build([name])

    def _load(self, name: str) -> None:
        self.cluster.load_image(self._archives[name])

    def _tiny(self) -> str:
        tinymodel.put(self.cluster.models / tinymodel.NAME)
        services.label_nodes(self.cluster, TINY, *self.cluster.real_nodes)
        services.serve(self.cluster, TINY, self.within_s)
        return "Ready"

    def _ask(self) -> None:
        self.answer = answer(self.cluster, TINY)


def _chain(parts: Sequence[Part]) -> list[Part]:
    """Make each part depend on the previous part. Images are built one at a time, because they share layers that the
    first build creates.
    """
    return [*parts[:1], *(replace(part, needs=(*part.needs, before.name)) for before, part in pairwise(parts))]


def without_parts(parts: Sequence[Part], names: Collection[str]) -> list[Part]:
    """Return the parts whose names are not in `names`, without their dependencies on the removed parts."""
    kept = [part for part in parts if part.name not in names]
    return [replace(part, needs=tuple(name for name in part.needs if name not in names)) for part in kept]
