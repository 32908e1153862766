"""Check by a dry run whether the API server accepts the workloads and the pods of a revision, before any serving pod is
deleted.

A refusal of a new pod is ignored if the corresponding pod of the serving revision is refused for the same cause. In this
case, the edit is not the cause. For example, the policy was added after the serving pods were created. Or the policy
refuses only the operator's requests, and accepts the requests of the controllers that create the pods.

ResourceQuota is the last admission plugin. "exceeded quota" therefore means that everything else accepted the object. This
refusal is ignored here, because the quota counts the pod of a dry run in addition to the pods that the rollout removes; the
quotas are compared instead (`core/placement/quotas.py`).
"""

import logging
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ome_operator.controllers.inferenceservice.execution import Execution
from ome_operator.controllers.inferenceservice.memory import STEP, DryRun, UnansweredDryRun, retry_delay
from ome_operator.controllers.pod_dry_runs import RBAC, PodDryRuns
from ome_operator.core.observed import managed_fields
from ome_operator.core.observed.objects import Manifest
from ome_operator.core.placement import quotas
from ome_operator.core.reconcile.plan import Check, PodQuestion
from ome_operator.core.render import sample_pods
from ome_operator.kube.client import Client
from ome_operator.kube.errors import AlreadyExists, Forbidden, Invalid, KubeError, TooMany, Transient

logger = logging.getLogger(__name__)

UNANSWERED = 300.0
"""Seconds for which a dry run of pods is repeated if it gives no result, for example because a webhook does not answer.
After this time the rollout continues without a result."""
_QUOTA = "exceeded quota"
_NO_DRY_RUN = "does not support dry run"
"""Part of the API server's message if a webhook does not support dry runs, because it may have side effects."""
_CAUSE = re.compile(r"violates PodSecurity .*|ValidatingAdmissionPolicy '[^']*'|admission webhook \"[^\"]*\"", re.DOTALL)


class Result(NamedTuple):
    """The result of a dry run."""

    why: str = ""
    """Why the API server would refuse the revision; "" if it would accept the revision."""
    remark: str = ""
    """Why the result does not cover every pod; "" if it covers every pod."""


async def ask(client: Client, pods: PodDryRuns, execution: Execution, check: Check) -> None:
    """Do a dry run of the workloads and the pods of a revision and store its result, unless a stored result is still valid.

    Raises KubeError if the dry run gives no result and no refusal is stored. A stored refusal is valid until there is
    another result. If only the pods give no result for `UNANSWERED` seconds, the result without them is stored, and no error
    is raised.
    """
    memory, key = execution.memory, check.revision
    hash_ = "".join(managed_fields.digest(manifest) for manifest in check.manifests)
    known = memory.dry_runs.get(key)
    known = known if known is not None and known.hash == hash_ else None
    if known is not None and memory.is_valid(known, execution.clock(), waits=True):
        return
    try:
        result = await _result(client, pods, execution, check)
    except (TooMany, Transient) as error:
        if known is None or not known.why:
            memory.dry_runs.pop(key, None)  # an expired success
            raise
        soon = execution.clock() + max(STEP, error.retry_after)
        memory.dry_runs[key] = known._replace(next=soon, unanswered=str(error))
    else:
        tries, now = known.tries + 1 if known is not None and known.why else 1, execution.clock()
        memory.store_check(key, DryRun(hash_, result.why, tries, now + retry_delay(tries), remark=result.remark, at=now))
        if result.remark and result.remark != (known.remark if known is not None else ""):
            logger.warning("%s/%s: dry run of revision %s: %s", *execution.service.ref[1:], key, result.remark)
    execution.result.status_changed = True  # also after an unchanged result, because the status of this plan lacks it


async def _result(client: Client, pods: PodDryRuns, execution: Execution, check: Check) -> Result:
    """Return the result of a dry run. Raises KubeError if the dry run gives no result."""
    found, remark = await _quotas(client, execution.namespace) if check.quotas is not None else ((), "")
    why = await _refusal(client, check.manifests, count_quotas=bool(remark))
    if not why and check.quotas is not None:
        why = quotas.shortage(found, check.quotas)
    if why or not check.pods:
        return Result(why, remark)
    try:
        if why_not := await pods.why_not():
            return Result("", why_not)
        result = await _of_pods(client, execution.namespace, check.pods)
    except KubeError as error:
        return _unanswered(execution, check.revision, error)
    return result if result.why else Result("", _joined([remark, result.remark]))


def _unanswered(execution: Execution, key: str, error: KubeError) -> Result:
    """Return a result that states that the pods could not be checked, if all attempts have failed for `UNANSWERED` seconds.
    Otherwise store the error for the status, and raise it.
    """
    memory, now = execution.memory, execution.clock()
    known = memory.unanswered.get(key)
    known = known if known is not None and now < known.last + UNANSWERED else None  # otherwise the rollout waited meanwhile
    since = known.since if known is not None else now
    if now - since >= UNANSWERED:
        return Result("", f"there was no answer for {UNANSWERED:.0f} s: {error}")
    memory.unanswered = {key: UnansweredDryRun(since, now, str(error))}
    execution.result.status_changed |= known is None or known.error != str(error)
    execution.result.requeue_within(UNANSWERED - (now - since))
    raise error


async def _quotas(client: Client, namespace: str) -> tuple[Sequence[Manifest], str]:
    """Return the ResourceQuotas of a namespace, and a remark if the operator may not read them ("" if it may)."""
    try:
        return await client.list_objects("ResourceQuota", namespace), ""
    except Forbidden as error:
        return (), f"the quotas of the namespace were not compared: {error}"


async def _refusal(client: Client, manifests: Iterable[Manifest], *, count_quotas: bool) -> str:
    """Return the API server's message about the first manifest that it refuses; "" if it accepts all. `count_quotas` is
    true if the quotas cannot be compared, so that an exceeded quota has to be treated as a refusal.
    """
    for manifest in manifests:
        try:
            await client.apply(manifest, dry_run=True)
        except (Invalid, Forbidden) as error:
            quota = _QUOTA in str(error) and not count_quotas
            if not quota and _NO_DRY_RUN not in str(error):
                return str(error)
    return ""


async def _of_pods(client: Client, namespace: str, questions: Iterable[PodQuestion]) -> Result:
    """Return the result of a dry run of these pods. A refusal is only a remark if the pod of the serving revision is
    refused for the same cause, or if the operator cannot do the dry run. The remark names one pod for each cause.
    """
    remarks: dict[str, str] = {}
    for question in questions:
        refused = await _refused(client, question.pod)
        if refused is None:
            continue
        if RBAC in str(refused) or _NO_DRY_RUN in str(refused):
            remarks.setdefault(str(refused), str(refused))
            continue
        serving = question.serving or await _live(client, namespace, question.live)
        known = await _refused(client, serving) if serving is not None else None
        if known is None or _cause(refused) != _cause(known):
            return Result(f"{question.title} pod: {refused}")
        message = f"{question.title} pod: the API server refuses this pod of the serving revision, too: {refused}"
        remarks.setdefault(_cause(refused), message)
    return Result("", _joined(remarks.values()))


async def _refused(client: Client, pod: Manifest) -> KubeError | None:
    """Return the API server's refusal of a pod; None if the API server accepts the pod. An error about an existing pod of
    the same name, or about an exceeded quota, is no refusal.
    """
    try:
        await client.create(pod, dry_run=True)
    except AlreadyExists:
        return None
    except (Invalid, Forbidden) as error:
        return None if _QUOTA in str(error) else error
    return None


def _cause(refused: KubeError) -> str:
    """Return the cause of the refusal of a pod, as far as the error message shows it: the name of a policy or of a webhook,
    or all violations of Pod Security; "" for anything else.

    Pod Security lists every violation. A violation that the serving pod does not have is therefore a consequence of the
    edit, even if Pod Security refuses the serving pod, too.
    """
    found = _CAUSE.search(str(refused))
    return found[0] if found else ""


async def _live(client: Client, namespace: str, name: str) -> Manifest | None:
    """Return an existing pod as it was requested from the API server; None if it does not exist or cannot be read."""
    if not name:
        return None
    try:
        return sample_pods.of_pod(await client.get("Pod", namespace, name))
    except KubeError as error:
        logger.info("cannot read pod %s/%s: %s", namespace, name, error)
        return None


def _joined(texts: Iterable[str]) -> str:
    return "; ".join(text for text in texts if text)
