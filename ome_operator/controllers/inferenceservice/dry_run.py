"""Whether the API server takes the workloads of a revision: asked before anything that serves goes."""

from ome_operator.controllers.inferenceservice.execution import Execution
from ome_operator.controllers.inferenceservice.memory import DryRun, pause
from ome_operator.core.observed import managed_fields
from ome_operator.core.plan import Check
from ome_operator.kube.client import Client
from ome_operator.kube.errors import Forbidden, Invalid, TooMany, Transient


async def ask(client: Client, execution: Execution, check: Check) -> None:
    """Remember the answer, unless it is known and counts. Raises KubeError where there is none, and was none."""
    memory = execution.memory
    hash_ = "".join(managed_fields.digest(manifest) for manifest in check.manifests)
    known = memory.checked.get(check.revision)
    known = known if known is not None and known.hash == hash_ else None
    if known is not None and (not known.why or execution.clock() < known.next):
        return
    why = ""
    for manifest in check.manifests:
        try:
            await client.apply(manifest, dry_run=True)
        except (Invalid, Forbidden) as error:
            why = str(error)
            break
        except (TooMany, Transient):
            if known is None:
                raise
            why = known.why  # a server that cannot answer has taken nothing back
            break
    tries = known.tries + 1 if known is not None else 1
    memory.checked[check.revision] = DryRun(hash_, why, tries, execution.clock() + pause(tries))
    execution.result.status_changed = True  # also by the same answer: this plan's status says that there is none
