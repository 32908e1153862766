"""Decide whether two sets of revision inputs are equivalent.

The contents are compared instead of hashes, because hashes differ between operator versions. The running code parses both
sets and leaves out unset fields. So neither a new default nor a new renderer triggers a rollout (decisions 2).
"""

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from ome_operator import keys
from ome_operator.api import Component
from ome_operator.core.observed.objects import Manifest
from ome_operator.core.weights.mount import DEFAULT_ROOT, SOURCE, local_path

CHOSEN = "chosen"
"""Key in stored inputs: kind, namespace and name of the selected runtime, so that the selection is made only once. It is
not part of a revision's identity: if the user later names the selected runtime explicitly, nothing restarts."""


def identity(inputs: Mapping[str, Any]) -> Manifest:
    """Return the inputs without the record of the selected runtime."""
    return {key: value for key, value in inputs.items() if key != CHOSEN}


def equivalent(left: Mapping[str, Any], right: Mapping[str, Any]) -> bool:
    """Return whether the running code regards two sets of inputs as equivalent."""
    if left == right:
        return True
    first, second = _parsed(left), _parsed(right)
    _align(first, second)
    return first == second


def _align(manifest: Manifest, right: Manifest) -> None:
    """Remove differences without effect between the weights of two sets of inputs, in place: the source of weights if only
    one side contains it, and paths that differ only in their defaults (`_placed`).

    Earlier operators did not store the source of weights, and only model agents use the source.
    """
    for part, several in (("model", False), ("base", False), ("adapters", True)):
        if not (part in manifest and part in right):
            continue
        lists = [side[part] if several else [side[part]] for side in (manifest, right)]
        lists[0] = [_placed(stored, new) for stored, new in zip(*lists, strict=False)] + lists[0][len(lists[1]) :]
        comparable = [(SOURCE in first) == (SOURCE in second) for first, second in zip(*lists, strict=False)]
        for side, identities in zip((manifest, right), lists, strict=True):
            kept = [
                weights if alike else _sourceless(weights) for weights, alike in zip(identities, comparable, strict=False)
            ]
            kept += identities[len(comparable) :]
            side[part] = kept if several else kept[0]


def _placed(stored: Mapping[str, Any], new: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the stored identity of weights, with the path of the new identity if the paths differ only in their defaults:
    the stored path is the default of earlier operators, and the new path is the present default for the same URI.

    If the user set no path for local weights, earlier operators mounted the default directory instead of the path in the
    URI.
    """
    before, now = stored.get("path"), local_path(str(stored.get("uri") or ""))
    same = stored.get("uri") == new.get("uri") and before == f"{DEFAULT_ROOT}/{stored.get('name')}"
    return {**stored, "path": new["path"]} if same and now and new.get("path") == (now.rstrip("/") or "/") else stored


def _sourceless(identity: Mapping[str, Any]) -> Manifest:
    return {key: value for key, value in identity.items() if key != SOURCE}


def _parsed(inputs: Mapping[str, Any]) -> Manifest:
    out = identity(inputs)
    for part in (keys.ENGINE, keys.DECODER):
        if part in out:
            out[part] = _component(out[part])
    runtime = dict(out.get("runtime") or {})
    for part in ("engineConfig", "decoderConfig"):
        if part in runtime:
            runtime[part] = _component(runtime[part])
    return {**out, "runtime": runtime}


def _component(stored: Any) -> Any:
    """Return a stored component in the form that the running code would store. If the running code rejects the component,
    because another version of the operator stored it, return the component unchanged.
    """
    try:
        return Component.model_validate(stored).dump()
    except ValidationError:
        return stored
