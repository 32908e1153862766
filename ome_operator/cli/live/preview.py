"""Predicts what an edit would do to a live cluster: reads the cluster, calls the pure functions that compute the effect, and
sends new workloads to the API server as a dry run.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from ome_operator.api import InferenceService, Invalid
from ome_operator.cache.cluster_cache import RECORD, ClusterCache
from ome_operator.cache.resources import CATALOG, SERVICE, SHORT
from ome_operator.cli.live import dry_run, second_copy
from ome_operator.cli.live.cluster_from_manifests import build_cluster, full_name, merge_edit, ref_of_body
from ome_operator.cli.live.cluster_from_manifests import derived_objects as derived
from ome_operator.cli.live.first_pods import (
    adds_pods,
    changes_pods,
    explain_lack_of_nodes,
    held_by_others,
    lack_messages,
    pod_refusals,
)
from ome_operator.cli.live.linted import lines, with_validator
from ome_operator.cli.live.pod_references import find_missing_references, object_exists
from ome_operator.cli.live.references import dangling_references, named_references
from ome_operator.cli.live.trees import OURS, selector
from ome_operator.core.observed.objects import Child, Manifest, Node, Observed, Pod, Ref
from ome_operator.core.observed.slices import has_started, slices
from ome_operator.core.reasons import ROLLED_OUT, Reason, RolloutStage, record_of
from ome_operator.core.reconcile.plan import CapacityCheck, Check
from ome_operator.core.reconcile.sync import sync
from ome_operator.describe.forecast import Forecast
from ome_operator.describe.outcome import SURVIVES, TargetOutcome, compute_outcome
from ome_operator.describe.preview import Preview, Side, compare_versions, forecasts, waves
from ome_operator.kube.client import Client
from ome_operator.kube.errors import Forbidden
from ome_operator.kube.errors import Invalid as Refused
from ome_operator.kube.listing import list_all
from ome_operator.kube.resources import CHILDREN


async def preview(
    client: Client, given: Sequence[Manifest], made: Collection[str] = (), others: Collection[Ref] = ()
) -> Preview:
    """Return the effect of applying these objects. `made` names the namespaces that the same files create, and `others` the
    objects of other kinds. Each object that would be refused results in a problem. The rest of the result is computed as
    if the files did not contain the object. Raises KubeError if a request fails.
    """
    referred = await list_all(client, (SERVICE, *CATALOG, *SHORT, "Node", RECORD), optional=("Node", RECORD))
    lasting = await list_all(client, SURVIVES, selector=OURS)
    live = {ref_of_body(body): body for body in (*referred, *lasting)}
    # If NodeModels exist, an agent runs, and weights are in the directories of their revisions. The operator's own
    # setting has the same effect.
    agent = any(which.kind == RECORD for which in live)
    edited_objects = {
        ref_of_body(body): merge_edit(body, live[ref_of_body(body)]) if ref_of_body(body) in live else body for body in given
    }
    refusals = await _refusals(client, edited_objects, given, made)
    written = {which: body for which, body in edited_objects.items() if which not in refusals}
    before, after = (build_cluster(bodies.values(), model_agent=agent) for bodies in (live, {**live, **written}))
    parsed = {which: _parsed(after, which) for which in written}
    children = {item.ref: tuple(before.children_of(*item.ref[1:]).values()) for item in after.services()}
    sides = _side(before), _side(after)
    first = forecasts(*sides, children)
    if running := await _running(client, after, first):
        first = forecasts(*sides, children, running=running)
    remarks = {
        item.service: await _remark(client, after, item, children, made, others) for item in first if changes_pods(item)
    }
    reached = {*written, *(each.service for each in first)}
    notes = {which: body["metadata"].get("annotations") or {} for which, body in {**live, **written}.items()}
    return Preview(
        objects=tuple(
            item for which, new in parsed.items() if (item := compare_versions(which, _parsed(before, which), new))
        ),
        lint=(
            *await _unknown_references(client, after, written, others),
            *lines(after, reached, "`ome lint -f` with the same files"),
        ),
        services=forecasts(*sides, children, remarks, running) if any(remarks.values()) else first,
        problems=tuple(f"{full_name(which)}: {reason}" for which, reason in refusals.items()),
        waves=tuple(waves(first, notes)),
    )


async def _unknown_references(
    client: Client, after: ClusterCache, written: Collection[Ref], others: Collection[Ref]
) -> list[str]:
    """Return a sentence for each reference of the objects `written` to an object that neither exists nor is one of
    `others`. References of the pods of services are left out, because `_remark` reports them.
    """
    found = [
        f"{full_name(which)}: {each.sentence}" for which, missed in dangling_references(after, written) for each in missed
    ]
    underived = (item for kind in SHORT for item in derived(after, kind) if item.why and item.of in written)
    found += [f"{full_name(item.of)}: {item.why}" for item in underived]
    for which, reference in named_references(after, written):
        ref = reference.ref
        if ref not in others and not await object_exists(client, ref):
            remedy = f"create it, or fix {reference.field}"
            found.append(f"{full_name(which)}: {ref.kind} {ref.name} does not exist in namespace {ref.namespace}: {remedy}")
    return found


async def _refusals(
    client: Client, written: Mapping[Ref, Manifest], given: Sequence[Manifest], made: Collection[str]
) -> Mapping[Ref, str]:
    """Return the objects that cannot be parsed or that the API server would refuse, each with the reason."""
    parsed = build_cluster(written.values(), model_agent=False)
    unread = {which: item.why for which in written if isinstance(item := _parsed(parsed, which), Invalid)}
    return {
        **unread,
        **await dry_run.find_refused_objects(client, (body for body in given if ref_of_body(body) not in unread), made),
    }


def _side(cluster: ClusterCache) -> Side:
    services = {item.ref: item.parsed for item in cluster.services() if not item.deleting}
    return Side(services, cluster.deps(), with_validator(cluster.deps()))


async def _running(client: Client, after: ClusterCache, found: Collection[Forecast]) -> Mapping[Ref, str]:
    """Return, for each service whose target revision has no groups yet, the revision that has groups. Services with groups
    of several revisions, and services whose target revision the edit does not change, are left out.
    """
    running = {}
    for item in (each for each in found if each.before and each.before != each.after):
        which = item.service
        there = build_cluster(await list_all(client, ("StatefulSet",), which.namespace, selector(which.name)))
        parts = slices(Observed(there.children_of(*which[1:])), _parsed(after, which).uid)
        names = [name for name, part in parts.items() if has_started(part)]
        if len(names) == 1 and names[0] != item.before:
            running[which] = names[0]
    return running


def _parsed(cluster: ClusterCache, which: Ref) -> Any:
    found = cluster.find_resource(which)
    return found.parsed if found is not None else None


async def _remark(
    client: Client,
    after: ClusterCache,
    item: Forecast,
    children: Mapping[Ref, Collection[Child]],
    made: Collection[str],
    others: Collection[Ref],
) -> str:
    """Return a sentence about the pods that an edit changes or adds: what keeps them from starting, or which strategy would
    avoid an interruption; "" if there is neither.
    """
    service: InferenceService = _parsed(after, item.service)
    then = compute_outcome(service, after.deps(), children[item.service])
    messages = []
    if item.restarts:
        messages += [await _waits(client, after, item.service)]
    elif adds_pods(item):
        messages += await _unstarted(client, after, item, then, made)
    messages += await find_missing_references(client, then, item.service.namespace, others)
    messages = [text for text in messages if text not in item.sentence]
    if any(messages):
        return f"But {'; '.join(filter(None, messages))}"
    return await second_copy.advice(client, then, service, after.deps().nodes) if item.interrupts else ""


async def _unstarted(
    client: Client, after: ClusterCache, item: Forecast, then: TargetOutcome, made: Collection[str]
) -> Sequence[str]:
    """Return the reasons why pods that an edit adds would not start; () if none is known."""
    waits, conditions, mine = await _planned(client, after, item.service)
    nodes, namespace = after.deps().nodes, item.service.namespace
    messages = [waits] if waits else []
    messages += lack_messages(conditions) if nodes else []
    if not messages and (held := await held_by_others(client, then, namespace, nodes, mine)):
        messages.append(held)
    if not item.before and namespace not in made:
        messages += await pod_refusals(client, then, namespace)
    return messages


async def _waits(client: Client, after: ClusterCache, which: Ref) -> str:
    """Return what the new revision of a service would wait for; "" if it may start."""
    return (await _planned(client, after, which))[0]


async def _planned(
    client: Client, after: ClusterCache, which: Ref
) -> tuple[str, Sequence[Mapping[str, Any]], Sequence[Pod]]:
    """Plan the edit of a service. Return three values: what the new revision would wait for, or "" if it may start; the
    conditions of the service after the edit; and its pods.
    """
    found = await list_all(client, (*CHILDREN, "Pod"), which.namespace, selector(which.name))
    there = build_cluster(found)
    service: InferenceService = _parsed(after, which)
    observed = Observed(there.children_of(*which[1:]), there.pods_of(*which[1:]))
    deps = with_validator(after.deps())
    plan = sync(service, deps, observed, datetime.now(UTC))
    while asked := {check.revision: await _tried(client, check) for check in plan.check} | {
        look.key: await _without_nodes(client, look, deps.nodes, there.pods_of(*which[1:])) for look in plan.look
    }:
        observed = replace(observed, checks={**observed.checks, **asked})
        plan = sync(service, deps, observed, datetime.now(UTC))
    conditions = plan.status["conditions"]
    said = next((one for one in conditions if one["type"] == ROLLED_OUT), None)
    waits = str(said["message"]) if said and not _soon(said["reason"]) else ""
    return waits, conditions, there.pods_of(*which[1:])


def _soon(reason: str) -> bool:
    """Return whether a rollout whose condition has this reason is complete, or will continue without waiting for weights or
    for nodes.
    """
    record = record_of(reason)
    later = record.stage is not None and record.stage.number > RolloutStage.CAPACITY.number
    return reason == Reason.COMPLETE or (later and record.passes)


async def _without_nodes(client: Client, look: CapacityCheck, nodes: Mapping[str, Node], mine: Sequence[Pod]) -> str:
    """Return why pods do not fit on the nodes; "" if they fit, or if the user may not read the pods on these nodes. If
    `look` asks about a second copy of the service, return "not read", because the module `second_copy` answers this question
    in more detail.
    """
    if look.second_copy:
        return "not read"
    return await explain_lack_of_nodes(client, look.needs, nodes, mine)


async def _tried(client: Client, check: Check) -> str:
    """Return the API server's refusal of a dry run; "" if it accepts the workloads, or if the user may not apply them."""
    for manifest in check.manifests:
        try:
            await client.apply(manifest, dry_run=True)
        except Refused as error:
            return str(error)
        except Forbidden as error:
            if dry_run.RIGHTS not in str(error):
                return str(error)
    return ""
