"""Who holds a brake on a service: all of it is watched and decided, and less of it is carried out.

docs/observe-freeze.md says what each brake lets through.
"""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from ome_operator import keys
from ome_operator.core.observed.objects import Deps
from ome_operator.core.reasons import Reason, ReasonRecord

ANNOTATIONS = frozenset({keys.FREEZE, keys.OBSERVE})
_OFF = ("", "false")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT")
_LONGEST = 200
"""Characters of what a person wrote that are told."""


class Brake(NamedTuple):
    """What holds, and how that ends."""

    observed: bool
    """Nothing but a status is written. Otherwise it is frozen."""
    sentence: str
    """Such as "frozen since 2026-11-24T15:40:00Z by alice: new driver"."""
    ends: str
    """What to do to end it."""

    @property
    def reason(self) -> ReasonRecord:
        """In a word; where both hold, the stricter."""
        return Reason.OBSERVED if self.observed else Reason.FROZEN


def brake(deps: Deps, namespace: str, name: str = "", annotations: Mapping[str, str] = MappingProxyType({})) -> Brake | None:
    """What holds an object of this namespace, None where nothing does. `annotations`: those of a service."""
    found: list[Brake] = []
    if deps.policy.observe:
        found.append(Brake(True, "observed (operator.observe of the chart)", "set it to false to go on"))
    if namespace in deps.policy.observe_namespaces:
        where = f"observed (operator.observeNamespaces of the chart has {namespace})"
        found.append(Brake(True, where, "take the namespace out of that list to go on"))
    if _on(annotations.get(keys.OBSERVE, "")):
        found.append(Brake(True, f"observed (annotation {keys.OBSERVE})", "remove the annotation to go on"))
    if deps.frozen:
        found.append(Brake(False, f"frozen with all services{said(deps.frozen)}", "`ome thaw --all` ends it"))
    if _on(value := annotations.get(keys.FREEZE, "")):
        found.append(Brake(False, f"frozen{said(value)}", f"`ome thaw {name} -n {namespace}` ends it"))
    if not found:
        return None
    sentences, ends = (dict.fromkeys(part) for part in ([item.sentence for item in found], [item.ends for item in found]))
    return Brake(any(item.observed for item in found), ", and ".join(sentences), ", and ".join(ends))


def frozen(annotations: Mapping[str, str]) -> str:
    """Since when, by whom and why, from the annotation of a service or of the Lease; "" where it is not frozen."""
    value = annotations.get(keys.FREEZE, "")
    return value.strip() if _on(value) else ""


def _on(value: str) -> bool:
    """Whether the value of an annotation says yes. Any sentence does: nobody is to look for the right word in a hurry."""
    return value.strip().lower() not in _OFF


def said(value: str) -> str:
    """The words of a person about a freeze, behind `frozen`."""
    words = " ".join(value.split())[:_LONGEST]
    if words.lower() == "true":
        return ""
    return f" since {words}" if _TIME.match(words) else f" ({words})"
