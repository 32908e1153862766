"""Formats the progress of rolling out the last edit of a shared object to its services."""

from collections.abc import Iterator, Mapping
from typing import Any

from ome_operator.core.waves.status import BAKING, COMPLETE, STOPPED
from ome_operator.core.waves.terms import WaveTerms, terms
from ome_operator.util.wording import count


def wave_lines(body: Mapping[str, Any]) -> Iterator[str]:
    """Yield lines about the rollout waves of a shared object. `body` is the object as the API server returns it."""
    metadata, rollout = body["metadata"], (body.get("status") or {}).get("rollout")
    where = f" in {metadata['namespace']}" if metadata.get("namespace") else ""
    head = f"{body['kind']} {metadata['name']}{where}"
    yield from terms(metadata.get("annotations") or {}, WaveTerms())[1]
    if rollout is None:
        yield f"{head}: no service was changed by its last edit"
        return
    yield f"{head}: {_state(rollout)}"
    have = "has" if rollout["done"] == 1 else "have"
    yield (
        f"  {rollout['done']} of {count(rollout['services'], 'service')} {have} generation {rollout['generation']}, "
        f"{rollout['rolling']} in progress, {rollout['waiting']} waiting, {rollout['failed']} failed"
    )
    if rollout["state"] != COMPLETE:
        yield f"  this wave covers the first {count(rollout['size'], 'service')}"
    for each in rollout.get("failedServices") or ():
        yield f"  failed: {each['namespace']}/{each['name']}: ome explain {each['name']} -n {each['namespace']}"
    for each in rollout.get("holdingServices") or ():
        yield f"  in progress: {each['namespace']}/{each['name']}: ome explain {each['name']} -n {each['namespace']}"
    if rollout["generation"] != metadata.get("generation"):
        yield (
            f"  the object now has generation {metadata.get('generation')}, and not all of its services have been "
            "processed yet"
        )


def rollout_complete(body: Mapping[str, Any]) -> bool:
    """Return whether the last edit of an object has reached every service that it affects."""
    rollout = (body.get("status") or {}).get("rollout")
    if rollout is None:
        return True
    return bool(rollout["state"] == COMPLETE and rollout["generation"] == body["metadata"].get("generation"))


def _state(rollout: Mapping[str, Any]) -> str:
    wave = f"wave {rollout['wave']} of {rollout['waves']}"
    if rollout["state"] == STOPPED:
        return f"stopped in {wave}, so no further service starts the rollout"
    if rollout["state"] == BAKING:
        return f"{wave} is complete, and its bake time ends at {rollout.get('bakesUntil')}"
    return "all services have the last edit of this object" if rollout["state"] == COMPLETE else wave
