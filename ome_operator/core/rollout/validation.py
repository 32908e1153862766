"""Validate revisions by the rules of `ome lint`: a new revision may be refused, a stored revision only gets advice.

A stored revision is never refused. Scaling, recovery and rollbacks therefore do not depend on a rule, and a rule that is new
in an operator version stops no existing service.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ome_operator import keys
from ome_operator.core.observed.objects import Manifest
from ome_operator.core.observed.validation import Objection, RenderedComponent, RevisionUnderTest
from ome_operator.core.problem import Problem
from ome_operator.core.reasons import ROLLED_OUT, Reason
from ome_operator.core.reconcile.snapshot import Snapshot
from ome_operator.core.render import meta
from ome_operator.core.render.statefulsets import roles_by_component, stamp
from ome_operator.core.resolve.finetuned import BASE
from ome_operator.core.resolve.inputs import ResolvedService
from ome_operator.core.rollout.revisions import is_former_format
from ome_operator.names import role_title

MOST_REASONS = 3
"""Largest number of refusals that a condition lists. Further refusals are listed after these refusals are fixed."""


def advice(
    snapshot: Snapshot,
    owner: meta.Owner,
    resolved: ResolvedService,
    revision: str,
    data: Mapping[str, Any] | None,
    manifests: Iterable[Manifest],
) -> tuple[tuple[str, ...], str]:
    """Return advice about the target revision, and its worst severity as a reason. The router of the target is taken from
    `manifests`, the objects that should exist.
    """
    if data is None:
        return (), Reason.NO_EFFECT
    ours = ("Deployment", revision)
    router = next((one for one in manifests if (one["kind"], one["metadata"]["labels"].get(keys.REVISION)) == ours), None)
    found = snapshot.deps.judge(_asked(snapshot, owner, resolved, revision, data, router))
    return found.advice, found.reason


def refusal(
    snapshot: Snapshot, owner: meta.Owner, resolved: ResolvedService, revision: str, data: Mapping[str, Any]
) -> Problem | None:
    """Return why a new revision is refused, so that it is not stored; None if it is accepted. A problem is no reason for a
    refusal if a stored revision has the same problem, because it was accepted before.
    """
    judge = snapshot.deps.judge
    refused = judge(_asked(snapshot, owner, resolved, revision, data, refusals_only=True)).refused
    if not refused:
        return None
    known = {
        (each.rule, each.says)
        for one in snapshot.revisions
        if not is_former_format(one)
        for each in judge(_asked(snapshot, owner, resolved, one.name, one.data, refusals_only=True)).refused
    }
    new = [each for each in refused if (each.rule, each.says) not in known]
    if not new:
        return None
    return Problem(ROLLED_OUT, Reason.CONFIGURATION_REFUSED, _sentence(new))


def _sentence(refused: list[Objection]) -> str:
    message = "; ".join(each.sentence for each in refused[:MOST_REASONS])
    more = f"; and {len(refused) - MOST_REASONS} more" if len(refused) > MOST_REASONS else ""
    rules = ",".join(dict.fromkeys(each.rule for each in refused))
    return (
        f"the engine would exit at once with these arguments, so the revision is not rolled out: {message}{more}. If this "
        f"is wrong, annotate the InferenceService with {keys.LINT_IGNORE}: {rules}"
    )


def _asked(
    snapshot: Snapshot,
    owner: meta.Owner,
    resolved: ResolvedService,
    revision: str,
    data: Mapping[str, Any],
    router: Manifest | None = None,
    *,
    refusals_only: bool = False,
) -> RevisionUnderTest:
    inputs = data.get("inputs") or {}
    of, model = inputs.get(BASE) or inputs.get("model") or {}, resolved.model
    same = model is not None and all(of.get(name) == getattr(model, name) for name in ("kind", "namespace", "name"))
    return RevisionUnderTest(
        service=snapshot.service,
        revision=revision,
        inputs=inputs,
        parts=tuple(_parts(owner, data, router)),
        runtime=resolved.runtime,
        model=model if same else None,
        accelerators=snapshot.deps.accelerators,
        well_known=snapshot.deps.well_known,
        refusals_only=refusals_only,
    )


def _parts(owner: meta.Owner, data: Mapping[str, Any], router: Manifest | None) -> Iterator[RenderedComponent]:
    roles = roles_by_component(data)
    for name, role in roles.items():
        pods = tuple(one["spec"]["template"] for one in stamp(owner, role, (0,)))
        yield RenderedComponent(name, role_title(name, keys.DECODER in roles), role.size, pods)
    if router is not None:
        yield RenderedComponent(keys.ROUTER, keys.ROUTER, 1, (router["spec"]["template"],))
