"""Whether the API server takes the workloads of a revision: asked before anything that serves goes."""

from collections.abc import Iterable

from ome_operator.controllers.inferenceservice.execution import Execution
from ome_operator.controllers.inferenceservice.memory import STEP, DryRun, pause
from ome_operator.core.observed import managed_fields
from ome_operator.core.observed.objects import Manifest
from ome_operator.core.reconcile.plan import Check
from ome_operator.kube.client import Client
from ome_operator.kube.errors import Forbidden, Invalid, TooMany, Transient


async def ask(client: Client, execution: Execution, check: Check) -> None:
    """Remember the answer, unless it is known and counts. Raises KubeError where there is none, and was none: a refusal
    stands until there is another answer.
    """
    checked = execution.memory.checked
    hash_ = "".join(managed_fields.digest(manifest) for manifest in check.manifests)
    known = checked.get(check.revision)
    known = known if known is not None and known.hash == hash_ else None
    if known is not None and (not known.why or execution.clock() < known.next):
        return
    try:
        why, tries = await _refusal(client, check.manifests), known.tries + 1 if known is not None else 1
        checked[check.revision] = DryRun(hash_, why, tries, execution.clock() + pause(tries))
    except (TooMany, Transient) as error:
        if known is None:
            raise
        soon = execution.clock() + max(STEP, error.retry_after)
        checked[check.revision] = known._replace(next=soon, unanswered=str(error))
    execution.result.status_changed = True  # also by the same answer: this plan's status says that there is none


async def _refusal(client: Client, manifests: Iterable[Manifest]) -> str:
    """The sentence of the API server about the first that it refuses, "" where it takes all."""
    for manifest in manifests:
        try:
            await client.apply(manifest, dry_run=True)
        except (Invalid, Forbidden) as error:
            return str(error)
    return ""
