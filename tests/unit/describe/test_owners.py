"""Tests that every reader of stored revisions uses the owner, because labels prove nothing: StatefulSets create
ControllerRevisions with the labels of their pods, and anybody can copy labels.
"""

from collections.abc import Iterable
from typing import Any

import pytest

from ome_operator import keys
from ome_operator.cache.resources import SERVICE
from ome_operator.cli.live.board import ClusterPoller, board
from ome_operator.core.observed import from_api
from ome_operator.core.observed.objects import Child, Manifest, Observed
from ome_operator.core.observed.slices import stored_revisions
from ome_operator.core.reconcile.sync import sync
from ome_operator.describe.outcome import compute_outcome
from ome_operator.describe.tree import tree
from tests.support import parts
from tests.support.fake_api import FakeApi
from tests.support.simulator import START

DIGITS = "0123456789abcdef"


def revision(name: str, uid: str, owner: tuple[str, str], labels: dict[str, str], data: Any) -> Manifest:
    """Return a ControllerRevision. `owner` is the kind and the UID of its controller."""
    reference = {"apiVersion": "v1", "kind": owner[0], "name": "x", "uid": owner[1], "controller": True}
    known = {"namespace": parts.NAMESPACE, "name": name, "uid": uid, "resourceVersion": "3", "labels": labels}
    body = {"metadata": {**known, "ownerReferences": [reference]}, "revision": 1, "data": data}
    return {"apiVersion": "apps/v1", "kind": "ControllerRevision", **body}


def there(digit: str) -> tuple[Manifest, str, list[Manifest]]:
    """Return three values: a service, the name of its revision, and the ControllerRevisions with its labels. The latter are
    those of the service itself, of its StatefulSets and of another owner. `digit` decides which of their names comes first
    in a list.
    """
    service, deps = parts.service(engine={}, decoder={}, router={}), parts.deps(parts.model(), parts.simple(2, decoder=True))
    plan = sync(service, deps, Observed(), START)
    made = next(item.manifest for item in plan.first if item.manifest["kind"] == "ControllerRevision")
    labels, name = made["metadata"]["labels"], f"{digit}{made['metadata']['labels'][keys.REVISION][1:]}"
    labels = {**labels, keys.REVISION: name}
    pods = {"spec": {"template": {"$patch": "replace"}}}
    found = [
        revision(f"svc-{name}", "own", (SERVICE, parts.UID), labels, made["data"]),
        *(
            revision(f"svc-{part}-{name}-0-6c7f", part, ("StatefulSet", f"s-{part}"), labels | {keys.COMPONENT: part}, pods)
            for part in ("engine", "decoder")
        ),
        revision("a-copy", "copy", (SERVICE, "another"), labels, {"inputs": {"model": "copied"}}),
    ]
    body = service.dump() | {"status": {"revision": name}}
    body["metadata"] |= {"uid": parts.UID, "generation": 1}
    return body, name, sorted(found, key=lambda item: str(item["metadata"]["name"]))


def children(bodies: Iterable[Manifest]) -> tuple[Child, ...]:
    return tuple(from_api.child(body["kind"], body) for body in bodies)


@pytest.mark.parametrize("digit", DIGITS)
def test_only_the_revision_owned_by_the_service_is_read(digit: str) -> None:
    body, name, found = there(digit)
    (own,) = stored_revisions(children(found), parts.UID)
    assert own.name == name and own.data["workloads"].keys() == {"engine", "decoder"}

    service, deps = parts.service(engine={}, decoder={}, router={}), parts.deps(parts.model(), parts.simple(2, decoder=True))
    now = compute_outcome(service, deps, children(found))
    assert now.inputs == own.data["inputs"] and now.workloads.keys() == {"engine", "decoder"}
    assert [role.component for role in now.roles] == ["engine", "decoder"]

    kept = {(child.kind, child.name): child for child in children(found)}
    assert tree(body, Observed(children=kept)).revision == name


def test_page_reads_revisions_referenced_only_by_statefulsets() -> None:
    _, _, found = there("f")
    sets = [{"metadata": item["metadata"]} for item in found if "-engine-" in item["metadata"]["name"]]
    looker = ClusterPoller(FakeApi({}), "")  # type: ignore[arg-type]
    for known, asks in ((found, False), ([item for item in found if item["metadata"]["uid"] not in ("own", "copy")], True)):
        looker._kept = {"ControllerRevision": (known, ""), "StatefulSet": (sets, "")}
        assert looker._unknown() is asks


def test_the_board_shows_the_revision_of_the_service() -> None:
    body, name, found = there("0")
    made = board(START, "", [body], {"ControllerRevision": (found, "")})
    assert made.trees[(parts.NAMESPACE, parts.NAME)].revision == name
