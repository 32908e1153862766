"""Determine whether a service is frozen or in observe mode. In both modes the operator still watches the service and
makes its decisions, but carries out fewer of them.

docs/observe-freeze.md lists what each mode carries out.
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
"""Largest number of characters of a text written by a person that messages show."""


class Hold(NamedTuple):
    """A freeze or an observe mode that applies to an object, and how to end it."""

    is_observe_mode: bool
    """True for observe mode: only statuses are written. False for a freeze."""
    sentence: str
    """A text that states which freezes and observe modes apply to the object, for example "frozen since
    2026-11-24T15:40:00Z by alice: new driver"."""
    ends: str
    """A text that states what a person has to do to end the freeze or the observe mode."""

    @property
    def reason(self) -> ReasonRecord:
        """The reason of the condition Frozen. If both modes apply, it is the reason of observe mode, which is stricter."""
        return Reason.OBSERVED if self.is_observe_mode else Reason.FROZEN


def active_hold(
    deps: Deps, namespace: str, name: str = "", annotations: Mapping[str, str] = MappingProxyType({})
) -> Hold | None:
    """Return the freezes and observe modes that apply to an object of this namespace, as one Hold; None if none applies.

    `name` and `annotations` are the name and annotations of a service.
    """
    holds: list[Hold] = []
    if deps.policy.observe:
        holds.append(
            Hold(True, "only observed (operator.observe of the chart)", "set this value to false to let the operator act")
        )
    if namespace in deps.policy.observe_namespaces:
        where = f"only observed (operator.observeNamespaces of the chart contains {namespace})"
        holds.append(Hold(True, where, "remove the namespace from this list to let the operator act"))
    if _on(annotations.get(keys.OBSERVE, "")):
        where = f"only observed (annotation {keys.OBSERVE})"
        holds.append(Hold(True, where, "remove the annotation to let the operator act"))
    if deps.frozen:
        holds.append(
            Hold(
                False,
                f"frozen with all services{explanation(deps.frozen)}",
                ("`ome thaw --all` ends the freeze of all services"),
            )
        )
    if _on(value := annotations.get(keys.FREEZE, "")):
        holds.append(
            Hold(False, f"frozen{explanation(value)}", (f"`ome thaw {name} -n {namespace}` ends the freeze of this service"))
        )
    if not holds:
        return None
    sentences, ends = (dict.fromkeys(part) for part in ([item.sentence for item in holds], [item.ends for item in holds]))
    return Hold(any(item.is_observe_mode for item in holds), ", and ".join(sentences), ", and ".join(ends))


def freeze_text(annotations: Mapping[str, str]) -> str:
    """Return the text of the freeze annotation of a service or of the Lease: since when, by whom and why it is frozen.
    Return "" if it is not frozen.
    """
    value = annotations.get(keys.FREEZE, "")
    return value.strip() if _on(value) else ""


def _on(value: str) -> bool:
    """Return whether the value of an annotation switches a mode on. Every text except "" and "false" switches it on, so
    that nobody has to remember the exact value in an emergency.
    """
    return value.strip().lower() not in _OFF


def explanation(value: str) -> str:
    """Return the text that a person wrote about a freeze, in a form that can follow the word "frozen"."""
    words = " ".join(value.split())[:_LONGEST]
    if words.lower() == "true":
        return ""
    return f" since {words}" if _TIME.match(words) else f" ({words})"
