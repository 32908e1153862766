"""Check by a dry run whether the API server accepts the workloads of a revision, before any serving pod is deleted."""

from collections.abc import Iterable

from ome_operator.controllers.inferenceservice.execution import Execution
from ome_operator.controllers.inferenceservice.memory import STEP, DryRun, pause
from ome_operator.core.observed import managed_fields
from ome_operator.core.observed.objects import Manifest
from ome_operator.core.reconcile.plan import Check
from ome_operator.kube.client import Client
from ome_operator.kube.errors import Forbidden, Invalid, TooMany, Transient


async def ask(client: Client, execution: Execution, check: Check) -> None:
    """Do a dry run of the workloads of a revision and store its result, unless a stored result is still valid.

    Raises KubeError if the dry run gives no result and none is stored. A stored refusal is valid until there is another
    result.
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
    execution.result.status_changed = True  # also after an unchanged result: this plan's status lacks it


async def _refusal(client: Client, manifests: Iterable[Manifest]) -> str:
    """Return the API server's message about the first refused manifest, "" if it accepts all."""
    for manifest in manifests:
        try:
            await client.apply(manifest, dry_run=True)
        except (Invalid, Forbidden) as error:
            return str(error)
    return ""
