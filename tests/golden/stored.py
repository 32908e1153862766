"""Records services as a version of the operator leaves them in a cluster: their inputs, all objects, the pods and the
status.

`python -m tests.golden.stored NAME [CASE…]` makes a record with the current version, for the tests of later versions. Run it
at a release, and when the stored part of a revision changes on purpose. An existing record is never changed.
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
"""A directory for each version and case."""
ROUTERS_REPLACED: dict[str, str] = {}
"""Directory name of a version -> the reason why an upgrade from it replaces routers, in the words of CHANGELOG.md.

Empty as long as no change of routers was intended. There is no such exception for engine pods.
"""


def record(case: str, into: Path) -> None:
    """Record a case after all of its objects exist and its pods are ready."""
    made = read(case, "in.yaml")
    world = World(*parts.apply_bodies(made), seed=1)
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
    """Return the recorded cluster, managed by the current operator."""
    world = World(*parts.apply_bodies(parts.read_documents(folder / "in.yaml")), seed=2)
    (rest,) = parts.read_documents(folder / "rest.yaml")
    for manifest, around in zip(whole(parts.read_documents(folder / "objects.yaml")), rest["objects"], strict=True):
        live = Live(manifest=manifest, **around)
        world.children[live.key] = live
    world.pods = {pod["name"]: LivePod(**pod) for pod in rest["pods"]}
    world.service = replace(world.service, status=rest["status"])
    world.now = rest["now"]
    return world


if __name__ == "__main__":
    for each in sys.argv[2:] or CASES:
        record(each, STORED / sys.argv[1] / each)
