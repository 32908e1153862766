"""Tests that the incrementally updated set of directories that stored revisions mount equals a computation over all
revisions.
"""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from ome_operator.cache.mounts import MountIndex
from ome_operator.core.observed.objects import Child
from ome_operator.core.weights.mount import any_inside, host_directories

PLACES = [
    "/mnt/models",
    "/mnt/models/",
    "/mnt//models/.ome/a",
    "/mnt/models/.ome/a/x",
    "/mnt/models/.ome/a-copy",
    "/",
    "//mnt",
    "x",
]
CHANGES = st.lists(st.tuples(st.sampled_from("abc"), st.lists(st.sampled_from(PLACES), max_size=3) | st.none()), max_size=20)
ASKED = [["/mnt/models/.ome/a"], ["/mnt/models/.ome/a/"], ["/mnt/models"], ["/mnt"], ["/other", "/mnt/models/.ome/a/x"], []]


def pod(places: list[str]) -> dict[str, Any]:
    return {
        "containers": [],
        "volumes": [{"name": f"v{at}", "hostPath": {"path": place}} for at, place in enumerate(places)],
    }


def revision(places: list[str]) -> Child:
    leader = {"spec": {"template": {"spec": pod(places)}}}
    content = {"revision": 1, "data": {"workloads": {"engine": {"leader": leader}}}}
    return Child("ControllerRevision", "ns", "r", "u", 1, "", {}, "", "", False, 0, "", content)


@given(CHANGES)
def test_incremental_mount_index_equals_a_full_computation(changes: list[Any]) -> None:
    index, known = MountIndex(), dict[str, list[str]]()
    for name, places in changes:
        before, after = known.pop(name, None), places
        if after is not None:
            known[name] = after
        index.update_revision(None if before is None else revision(before), None if after is None else revision(after))
    mounted = {place for places in known.values() for place in host_directories(pod(places))}
    for asked in ASKED:
        assert index.is_mounted(asked) == any_inside(mounted, asked)


def test_malformed_revision_adds_no_mounts() -> None:
    index = MountIndex()
    for data in ({"workloads": []}, {"workloads": {"engine": {"leader": {"spec": 1}}}}, {"workloads": {"engine": None}}, []):
        odd = revision([])._replace(content={"data": data})
        index.update_revision(None, odd)
        index.update_revision(odd, None)
    assert not index.is_mounted(["/"])
