"""Computes the effect of editing several objects: the differences in these objects, and the effect on every service."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from ome_operator import keys
from ome_operator.api import InferenceService, Invalid
from ome_operator.core.catalog.node_models import duration
from ome_operator.core.observed.objects import Child, Deps, Ref
from ome_operator.core.waves.terms import WaveTerms, sizes, terms
from ome_operator.describe.edits import edits
from ome_operator.describe.forecast import Forecast, forecast
from ome_operator.describe.outcome import TargetOutcome, compute_outcome, pin_revision
from ome_operator.util.wording import count


@dataclass(frozen=True)
class EditedObject:
    """An object in the user's files that differs from the object on the cluster."""

    object: Ref
    new: bool
    edits: tuple[str, ...]


@dataclass(frozen=True)
class Preview:
    """The complete effect of an edit."""

    objects: tuple[EditedObject, ...]
    services: tuple[Forecast, ...]
    problems: tuple[str, ...] = ()
    """A sentence for each object in the files that cannot be parsed or would be refused. The other fields leave these
    objects out."""
    lint: tuple[str, ...] = ()
    """Findings of `ome lint` in the affected services, as one sentence each."""
    waves: tuple[str, ...] = ()
    """The waves in which each edit of a shared object would reach its services, with one sentence for each object."""


@dataclass(frozen=True)
class Side:
    """The services and the objects to which they may refer, either before or after the edit."""

    services: Mapping[Ref, InferenceService | Invalid]
    deps: Deps
    judged: Deps | None = None
    """The objects in `deps` together with a validator (`Deps.judge`) that refuses revisions as the operator does. None if
    the operator would refuse nothing."""


def compare_versions(ref: Ref, before: Any, after: Any) -> EditedObject | None:
    """Compare two versions of an object. Return None if they are equal. `before` is None for a new object."""
    if before is None:
        return EditedObject(ref, True, ())
    if isinstance(before, Invalid):
        return EditedObject(ref, False, ("the current object is invalid",))
    found = tuple(str(edit) for edit in edits(before.dump(), after.dump()))
    return EditedObject(ref, False, found) if found else None


def forecasts(
    before: Side,
    after: Side,
    children: Mapping[Ref, Iterable[Child]],
    remarks: Mapping[Ref, str] | None = None,
    running: Mapping[Ref, str] | None = None,
) -> tuple[Forecast, ...]:
    """Return the forecast of every service that the edit affects.

    remarks     Sentences about the rollout of a service, or about the pods that the edit adds.
    running     The revision that has groups, for services whose target revision before the edit has none, because its
                rollout has not begun.
    """
    found = []
    for ref, new in sorted(after.services.items()):
        old, there = before.services.get(ref), tuple(children.get(ref, ()))
        then = _outcome(new, after.deps, there)
        now = _outcome(old, before.deps, there) if old is not None else None
        held = ""
        if then is not None and (now is None or now.revision != then.revision):
            # Only these services may be refused, and judging all others would take long in a large cluster.
            then = _outcome(new, after.judged or after.deps, there)
            now = _outcome(old, before.judged or before.deps, there) if old is not None else None
            if now is not None and then is not None and now.revision != then.revision:
                runs = _as_it_runs(old, before.deps, there, (running or {}).get(ref, ""))
                held, now = (now.revision, runs) if runs is not None else ("", now)
        if then is not None and (item := forecast(ref, now, then, (remarks or {}).get(ref, ""), held)):
            found.append(item)
    return tuple(found)


def waves(services: Iterable[Forecast], notes: Mapping[Ref, Mapping[str, str]]) -> Iterator[str]:
    """Yield a sentence for each shared object whose edit restarts several services. It states how many services each wave
    adds. `notes` contains the annotations of the shared objects.
    """
    members = Counter(ref for item in services for ref in item.shared)
    for ref, number in sorted(members.items()):
        if number == 1:
            continue
        own = notes.get(ref, {})
        rules, _ = terms(own, WaveTerms())
        ends = sizes(rules.waves, number)
        more = [str(end - start) for start, end in pairwise(ends)]
        head = f"The edit of {ref.kind} {ref.name} restarts groups of {number} services"
        if not more:
            yield f"{head}, which form a single wave"
            continue
        baked = f" for {duration(rules.bake)}" if rules.bake else ""
        whose = f"annotation {keys.WAVES}" if keys.WAVES in own else "default; rollout.waves of the chart may set others"
        yield (
            f"{head} in {len(ends)} waves: {count(ends[0], 'service')} first, then {', '.join(more)} more ({whose}). A wave "
            f"begins when all services of the wave before have been complete{baked}"
        )


def _as_it_runs(
    service: InferenceService | Invalid | None, deps: Deps, children: Iterable[Child], revision: str
) -> TargetOutcome | None:
    """Return the outcome of a service for the stored revision `revision`, which has groups. Return None if `revision` is ""
    or not stored.
    """
    if not revision or not isinstance(service, InferenceService):
        return None
    found = compute_outcome(pin_revision(service, revision), deps, children)
    return found if found.revision == revision else None


def _outcome(service: InferenceService | Invalid, deps: Deps, children: Iterable[Child]) -> TargetOutcome | None:
    return None if isinstance(service, Invalid) else compute_outcome(service, deps, children)
