"""Whether two sets of a revision's inputs mean the same.

Contents are compared, never hashes of two operator versions: both sides are parsed by the running code with unset fields
left out, so neither a new default nor a new renderer rolls anything (decisions 2).
"""

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from ome_operator import keys
from ome_operator.api import Component
from ome_operator.core.observed.objects import Manifest
from ome_operator.core.weights.mount import SOURCE

CHOSEN = "chosen"
"""In stored inputs: the runtime by kind, namespace and name, so that a choice is made once. It is not part of a revision's
identity: to name the runtime that was chosen restarts nothing."""


def identity(inputs: Mapping[str, Any]) -> Manifest:
    """Inputs without the record of how they came to be."""
    return {key: value for key, value in inputs.items() if key != CHOSEN}


def same(left: Mapping[str, Any], right: Mapping[str, Any]) -> bool:
    """Whether two sets of inputs mean the same to the running code."""
    if left == right:
        return True
    mine, other = _parsed(left), _parsed(right)
    _align(mine, other)
    return mine == other


def _align(left: Manifest, right: Manifest) -> None:
    """Of weights whose identity was stored without their source, any source is theirs: earlier operators did not store
    it, and without agents nobody asks it.
    """
    for part, several in (("model", False), ("base", False), ("adapters", True)):
        if not (part in left and part in right):
            continue
        lists = [side[part] if several else [side[part]] for side in (left, right)]
        both = [(SOURCE in mine) == (SOURCE in other) for mine, other in zip(*lists, strict=False)]
        for side, found in zip((left, right), lists, strict=True):
            kept = [weights if fits else _sourceless(weights) for weights, fits in zip(found, both, strict=False)] + found[
                len(both) :
            ]
            side[part] = kept if several else kept[0]


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
    """As the running code understands it; what it refuses (another version stored it) stays as it is."""
    try:
        return Component.model_validate(stored).dump()
    except ValidationError:
        return stored
