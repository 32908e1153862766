"""Tests of how soon a service is reconciled after a change of its pods and workloads."""

from ome_operator import keys
from ome_operator.cache.event_handler import Urgency
from tests.unit.cache.test_event_handler import SERVICE, QueuedEvents, child_labels

REPORTED, SOON = Urgency.REPORTED, Urgency.SOON
WAITS = {"containerStatuses": [{"name": "main", "state": {"waiting": {"reason": "ContainerCreating"}}}]}
RUNS = {"containerStatuses": [{"name": "main", "state": {"running": {"startedAt": "2026-01-01T00:00:01Z"}}}]}
CRASHES = {"containerStatuses": [{"name": "main", "restartCount": 1, "state": {"running": {}}}]}
REFUSED = {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no node"}]}
ON_NODE = {"nodeName": "n"}


def test_steps_of_a_normal_start_are_only_reported() -> None:
    """No reconciliation follows at once when a pod is created, or when its containers run, because nothing has to be
    decided. When the pod is bound to a node, is refused by the scheduler or has a problem, its service is reconciled soon.
    """
    told = QueuedEvents()
    assert told.see("Pod", "a", metadata=child_labels()) == [(SERVICE, REPORTED)]
    assert told.see("Pod", "a", metadata=child_labels(), status=REFUSED) == [(SERVICE, SOON)]
    assert told.see("Pod", "a", metadata=child_labels(), spec=ON_NODE, status=WAITS) == [(SERVICE, SOON)]
    assert told.see("Pod", "a", metadata=child_labels(), spec=ON_NODE, status=RUNS) == [(SERVICE, REPORTED)]
    assert told.see("Pod", "a", metadata=child_labels(), spec=ON_NODE, status=WAITS) == [(SERVICE, SOON)], "it stopped"
    assert told.see("Pod", "a", metadata=child_labels(), spec=ON_NODE, status=CRASHES) == [(SERVICE, SOON)]
    assert told.see("Pod", "b", metadata=child_labels(), spec=ON_NODE) == [(SERVICE, SOON)], "it was created elsewhere"


def test_a_rank_that_starts_beside_a_ready_leader_is_not_only_reported() -> None:
    told = QueuedEvents()
    ready = {"conditions": [{"type": "Ready", "status": "True"}]}
    told.see("Pod", "a", metadata=child_labels(), spec=ON_NODE, status=ready)
    assert told.see("Pod", "b", metadata=child_labels()) == [(SERVICE, SOON)]


def test_the_first_report_about_a_template_is_only_reported() -> None:
    """The first report of a StatefulSet about its template is only reported. A later report of another template causes a
    reconciliation, because somebody may have edited the StatefulSet. So does the first report if a pod of the StatefulSet
    is ready already.
    """
    told = QueuedEvents()
    status = {"observedGeneration": 1, "updateRevision": "w-1"}
    owner = {"ownerReferences": [{"controller": True, "kind": "StatefulSet", "name": "w", "uid": "uid-w"}]}
    told.see("StatefulSet", "w", metadata=child_labels())
    assert told.see("StatefulSet", "w", metadata=child_labels(), status=status) == [(SERVICE, REPORTED)]
    other = status | {"updateRevision": "w-2"}
    assert told.see("StatefulSet", "w", metadata=child_labels(), status=other) == [(SERVICE, SOON)]
    ready = {"conditions": [{"type": "Ready", "status": "True"}]}
    told.see("Pod", "w-0", metadata=child_labels() | owner, status=ready)
    told.see("StatefulSet", "w", metadata=child_labels(), status={"observedGeneration": 0})
    assert told.see("StatefulSet", "w", metadata=child_labels(), status=other) == [(SERVICE, SOON)]


def test_the_first_report_about_a_template_is_urgent_while_pods_of_another_template_start() -> None:
    """The first report about a template causes a reconciliation if pods of another template are starting, because somebody
    has then edited the StatefulSet. First its generation changes, and then the StatefulSet controller reports the new
    template.
    """
    told = QueuedEvents()
    labels = child_labels()["labels"] | {keys.TEMPLATE: "w-1"}
    owner = {"ownerReferences": [{"controller": True, "kind": "StatefulSet", "name": "w", "uid": "uid-w"}]}
    told.see("StatefulSet", "w", metadata=child_labels(), status={"observedGeneration": 1, "updateRevision": "w-1"})
    told.see("Pod", "w-0", metadata=owner | {"labels": labels}, spec=ON_NODE)
    told.see("StatefulSet", "w", metadata=child_labels() | {"generation": 2}, status={"observedGeneration": 1})
    status = {"observedGeneration": 2, "updateRevision": "w-2"}
    assert told.see("StatefulSet", "w", metadata=child_labels() | {"generation": 2}, status=status) == [(SERVICE, SOON)]


def test_a_pod_that_is_created_beside_ready_pods_is_not_only_reported() -> None:
    """A pod that is created while pods of another group are ready causes a reconciliation, because a group is being moved,
    added or removed. The plan then depends on which pods exist.
    """
    told = QueuedEvents()
    ready = {"conditions": [{"type": "Ready", "status": "True"}]}
    labels = child_labels()["labels"] | {keys.COMPONENT: "engine"}
    told.see("Pod", "a", metadata={"labels": labels | {keys.GROUP_INDEX: "0"}}, spec=ON_NODE, status=ready)
    new = {"labels": labels | {keys.GROUP_INDEX: "1"}}
    assert told.see("Pod", "b", metadata=new) == [(SERVICE, SOON)]
    told.see("Pod", "b", metadata=new, spec=ON_NODE, status=WAITS)
    assert told.see("Pod", "b", metadata=new, spec=ON_NODE, status=RUNS) == [(SERVICE, REPORTED)]
