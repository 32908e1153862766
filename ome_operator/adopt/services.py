"""Hand services over to the operator: in each namespace one after another."""

import asyncio
from collections.abc import Sequence

from ome_operator.adopt.handover import POLL_SECONDS, Handover, is_service, old_objects
from ome_operator.adopt.steps import StepReporter
from ome_operator.kube.client import Client
from ome_operator.kube.errors import KubeError

AT_ONCE = 10
"""Number of namespaces that are polled every POLL_SECONDS. With more namespaces the pause is longer."""


async def hand_over(client: Client, steps: StepReporter, wanted: Sequence[str], *, replace: bool, patience: float) -> None:
    """Hand over the services with these names (`namespace/name`), or all services if `wanted` is empty. If `replace` is
    true, the old workloads of a service are removed before its new workloads are ready.

    The services of a namespace are handed over one after another; a service that cannot be handed over is skipped after
    `patience` seconds. Namespaces do not wait for each other. Otherwise each service that does not start would delay the
    services of all other namespaces by this time.
    """
    services = {f"{item['namespace']}/{item['name']}": item for item in await client.list_metadata("InferenceService")}
    old = await old_objects(client)
    waiting: dict[str, list[Handover]] = {}
    for name in wanted or sorted(services):
        namespace = name.partition("/")[0]
        metadata = services.get(name)
        if metadata is None:
            steps.report_open_problem(f"InferenceService {name} does not exist")
        elif metadata.get("deletionTimestamp"):
            steps.report_open_problem(f"{name} is being deleted")
        else:
            handover = Handover(client, steps, metadata, old.get((namespace, metadata["uid"]), []))
            waiting.setdefault(namespace, []).append(handover)

    async def one_after_another(handovers: list[Handover]) -> None:
        for handover in handovers:
            try:
                await handover.run(replace=replace, patience=patience, poll=POLL_SECONDS * max(1.0, len(waiting) / AT_ONCE))
            except KubeError as error:  # concerns this service only, such as one that was deleted meanwhile
                steps.report_open_problem(f"{handover.where}: {error}")

    async with asyncio.TaskGroup() as group:
        for handovers in waiting.values():
            group.create_task(one_after_another(handovers))
    await _ingresses(client, steps)


async def _ingresses(client: Client, steps: StepReporter) -> None:
    """Report the Ingresses that OME created. They are not deleted."""
    for item in await client.list_metadata("Ingress"):
        owner = next((ref for ref in item.get("ownerReferences") or () if is_service(ref)), None)
        if owner is not None:
            description = f"Ingress {item['namespace']}/{item['name']}"
            steps.report_note(
                f"{description} was created by OME and is kept: change its backend to a Service and port of {owner['name']}"
            )
