"""Hand services over to the operator, one after another."""

from collections.abc import Sequence

from ome_operator.adopt.handover import Handover, old_objects
from ome_operator.adopt.steps import Steps
from ome_operator.kube.client import Client


async def hand_over(client: Client, steps: Steps, wanted: Sequence[str], *, replace: bool, patience: float) -> None:
    """Hand over the services with these names (`namespace/name`), or all services if `wanted` is empty. A service that
    cannot be handed over is skipped, and the next service follows.
    """
    services = {f"{item['namespace']}/{item['name']}": item for item in await client.list_metadata("InferenceService")}
    old = await old_objects(client)
    for name in wanted or sorted(services):
        metadata = services.get(name)
        if metadata is None:
            steps.leave(f"InferenceService {name} does not exist")
        elif metadata.get("deletionTimestamp"):
            steps.leave(f"{name} is being deleted")
        else:
            await Handover(client, steps, metadata, old.get(metadata["uid"], [])).run(replace=replace, patience=patience)
    for item in await client.list_metadata("Ingress"):
        owner = next((ref for ref in item.get("ownerReferences") or () if ref.get("kind") == "InferenceService"), None)
        if owner is not None:
            description = f"Ingress {item['namespace']}/{item['name']}"
            steps.note(
                f"{description} was created by OME and is kept: change its backend to a Service and port of {owner['name']}"
            )
