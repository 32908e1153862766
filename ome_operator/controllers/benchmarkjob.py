"""Reconcile BenchmarkJobs: create exactly one Job for each BenchmarkJob, and copy the Job's result to the status."""

import time
from collections.abc import Mapping
from typing import Any

from ome_operator.api import InferenceService, Invalid
from ome_operator.cache.event_handler import EventHandler
from ome_operator.cache.resources import JOB, SERVICE, Resource
from ome_operator.controllers import events
from ome_operator.controllers.base import Status, StatusReconciler
from ome_operator.core.benchmarkjob import job
from ome_operator.core.benchmarkjob import status as benchmark_status
from ome_operator.core.observed import from_api
from ome_operator.core.observed.from_api import controller
from ome_operator.core.observed.objects import Child, Manifest, Ref
from ome_operator.core.reasons import NOTHING, Reason, ReasonedMessage
from ome_operator.kube import errors
from ome_operator.kube.client import Client
from ome_operator.machinery.workqueue import WorkQueue
from ome_operator.util.wall_clock import WallClock

LOOK_S = 15.0
"""Seconds between two checks of the pod of a running Job. The checks are necessary because the Job does not change when
the pull of an image fails."""
SOON_S = 2.0
"""Seconds within which a new Job should have a pod, or report a reason why the pod is missing."""
PODS = 8
"""Maximum number of pods of a Job that are read. A Job of the operator has one pod, but a tenant can add the Job's label
to other pods."""
WAIT_S = 60.0
"""Seconds until a waiting BenchmarkJob is reconciled again if nothing happens."""


class BenchmarkJobReconciler(StatusReconciler):
    """Creates the Jobs of BenchmarkJobs, and writes the statuses of BenchmarkJobs."""

    def __init__(
        self,
        handler: EventHandler,
        client: Client,
        queue: WorkQueue[Ref],
        resync: float,
        wall: WallClock,
        images: job.Images,
    ) -> None:
        super().__init__(handler, client, queue, resync, wall)
        self._images = images
        self._failures = events.create_failures(client, time.monotonic, wall)
        self._start_failures = events.start_failures(client, time.monotonic, wall)

    async def reconcile_resource(self, resource: Resource) -> float:
        """Create the Job if it does not exist, and write the status. Return the seconds until the next reconciliation."""
        now = self._wall()
        if isinstance(resource.parsed, Invalid):
            unread = ReasonedMessage(Reason.INVALID_SPEC, resource.parsed.why)
            await self.write(resource, benchmark_status.unreadable_status(resource.status, resource.generation, unread, now))
            return self._resync
        made, why = self._cluster.job_of(resource), NOTHING
        if made is None and not benchmark_status.has_job(resource.status):
            made, why = await self._started(resource)
        pods: list[Manifest] = []
        if made is not None and not benchmark_status.is_final(resource.status):
            selector = f"batch.kubernetes.io/controller-uid={made.uid}"  # a former Job of this name may have left pods
            pods = await self._client.list_objects("Pod", resource.ref.namespace, label_selector=selector, limit=PODS)
            if not pods and (message := (await self._failures.values_by_uid(resource.ref.namespace)).get(made.uid)):
                why = ReasonedMessage(Reason.PODS_REFUSED, message)
            if benchmark_status.pod_progress(pods).reason == Reason.CONTAINER_CREATING:
                failures = await self._start_failures.values_by_uid(resource.ref.namespace)
                why = next((failures[uid] for uid in map(from_api.uid, pods) if uid in failures), why)
        status = benchmark_status.benchmark_status(resource.parsed, made, pods, why, now)
        await self.write(resource, status)
        if benchmark_status.is_final(status):
            return self._resync
        if made is None:
            return WAIT_S
        return LOOK_S if pods or why.reason else SOON_S

    def failed_status(self, resource: Resource, why: str) -> Status:
        """Return the status of a BenchmarkJob whose reconciliation failed. Results in its stored status are preserved."""
        reason = ReasonedMessage(Reason.INTERNAL_ERROR, why)
        return benchmark_status.unreadable_status(resource.status, resource.generation, reason, self._wall())

    async def _started(self, resource: Resource) -> tuple[Child | None, ReasonedMessage]:
        """Create the Job if it may run now. Return the Job and `NOTHING`, or None and the reason why the Job may not run."""
        if (held := self._cluster.active_hold(resource)) is not None:
            return None, ReasonedMessage(held.reason, f"{held.sentence}; would start its Job; {held.ends}")
        service, names = self._service(resource), list[str]()
        if service is None:
            names = [each.name for each in self._cluster.refs(resource.ref.namespace) if each.kind == SERVICE]
        manifest, why = job.desired_job(self._images, resource.parsed, service, self._cluster.deps(), names)
        if manifest is None:
            return None, why
        name = manifest["metadata"]["name"]
        try:
            body = (await self._client.apply(manifest)).body
        except errors.Conflict:
            found = await self._client.list_objects(
                JOB, resource.ref.namespace, field_selector=f"metadata.name={name}", limit=1
            )
            if not found:
                raise
            owner = controller(found[0]["metadata"]) or {}
            if owner.get("uid") != resource.uid:
                return None, _taken(name, owner, resource.ref)
            body = found[0]  # the Job exists, but the watch has not reported it yet
        except (errors.Invalid, errors.Forbidden) as error:
            return None, ReasonedMessage(type(error).__name__, str(error))
        made = self._handler.handle_written(JOB, body)
        return (made if isinstance(made, Child) else None), NOTHING

    def _service(self, resource: Resource) -> InferenceService | Invalid | None:
        named = resource.parsed.spec.endpoint.inference_service
        found = self._cluster.find_resource(Ref(SERVICE, named.namespace, named.name)) if named else None
        return found.parsed if found is not None and not found.deleting else None


def _taken(name: str, owner: Mapping[str, Any], ref: Ref) -> ReasonedMessage:
    """Return the reason why an existing Job with the name `name`, whose controller is `owner`, prevents the BenchmarkJob
    `ref` from creating its own Job.
    """
    if (owner.get("kind"), owner.get("name")) == (ref.kind, ref.name):
        return ReasonedMessage(Reason.WAITING, f"Job {name} of the deleted BenchmarkJob {ref.name} is still being deleted")
    return ReasonedMessage(
        Reason.NAME_TAKEN,
        (
            f"Job {name} exists but was not created for this BenchmarkJob: delete the Job, or give this BenchmarkJob "
            "another name"
        ),
    )
