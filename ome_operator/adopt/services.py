"""Which services are handed over, one after the other."""

from collections.abc import Sequence

from ome_operator.adopt.handover import Handover, olds
from ome_operator.adopt.steps import Steps
from ome_operator.kube.client import Client


async def hand_over(client: Client, steps: Steps, wanted: Sequence[str], *, replace: bool, patience: float) -> None:
    """The services of these `namespace/name`, or all; what cannot be handed over is left, and the others go on."""
    services = {f"{one['namespace']}/{one['name']}": one for one in await client.list_metadata("InferenceService")}
    old = await olds(client)
    for where in wanted or sorted(services):
        metadata = services.get(where)
        if metadata is None:
            steps.leave(f"there is no InferenceService {where}")
        elif metadata.get("deletionTimestamp"):
            steps.leave(f"{where} is being deleted")
        else:
            await Handover(client, steps, metadata, old.get(metadata["uid"], [])).run(replace=replace, patience=patience)
    for one in await client.list_metadata("Ingress"):
        owner = next((ref for ref in one.get("ownerReferences") or () if ref.get("kind") == "InferenceService"), None)
        if owner is not None:
            what = f"Ingress {one['namespace']}/{one['name']}"
            steps.note(f"{what} is OME's and stays: its backend must name a Service and port that {owner['name']} has now")
