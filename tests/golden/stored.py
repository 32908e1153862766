"""Services as an earlier version left them on a cluster: what they were made of, every object, the pods, the status.

`python -m tests.golden.stored NAME [CASE…]` records them as this version leaves them, for all that come. Do it at a release,
and when the part of a revision that is stored changes on purpose. A record is never written again.
"""

import sys
from dataclasses import asdict, replace
from pathlib import Path

from tests.golden.cases import CASES, HERE, dumped, read, short, whole
from tests.support import parts
from tests.support.live import Live, LivePod
from tests.support.simulator import World

STORED = HERE / "stored"
RECORDS = sorted(path.parent for path in STORED.glob("*/*/in.yaml"))
"""A folder for each version and case."""
ROUTERS_REPLACED: dict[str, str] = {}
"""Name of a version's folder -> why an upgrade from it replaces routers, in the words of CHANGELOG.md.

Empty as long as no change of routers was intended. Pods of engines have no such exception.
"""


def record(case: str, into: Path) -> None:
    """A case whose objects are there and whose pods are ready."""
    made = read(case, "in.yaml")
    world = World(*parts.applied(made), seed=1)
    world.settle()
    manifests = [live.manifest for live in world.children.values()]
    around = [{key: value for key, value in asdict(live).items() if key != "manifest"} for live in world.children.values()]
    rest = {
        "objects": around,
        "pods": [asdict(pod) for pod in world.pods.values()],
        "status": dict(world.service.status),
        "now": world.now,
    }
    into.mkdir(parents=True)
    (into / "in.yaml").write_text(dumped(made))
    (into / "objects.yaml").write_text(dumped(short(manifests)))
    (into / "rest.yaml").write_text(dumped([rest]))


def restored(folder: Path) -> World:
    """The cluster as the record has it, under the operator of today."""
    world = World(*parts.applied(parts.read(folder / "in.yaml")), seed=2)
    (rest,) = parts.read(folder / "rest.yaml")
    for manifest, around in zip(whole(parts.read(folder / "objects.yaml")), rest["objects"], strict=True):
        live = Live(manifest=manifest, **around)
        world.children[live.key] = live
    world.pods = {pod["name"]: LivePod(**pod) for pod in rest["pods"]}
    world.service = replace(world.service, status=rest["status"])
    world.now = rest["now"]
    return world


if __name__ == "__main__":
    for each in sys.argv[2:] or CASES:
        record(each, STORED / sys.argv[1] / each)
