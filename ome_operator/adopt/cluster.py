"""The steps of an adoption that affect the complete cluster: check that OME's controller is stopped, remove its webhooks,
replace its CRDs, and remove its finalizers.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial

from ome_operator import keys
from ome_operator.adopt import crds, webhooks
from ome_operator.adopt.crds import Release
from ome_operator.adopt.steps import StepReporter
from ome_operator.api.kinds import KINDS, Kind
from ome_operator.core.observed import from_api
from ome_operator.kube.client import Client, Manifest
from ome_operator.kube.errors import Conflict, KubeError, NotServed
from ome_operator.kube.resources import RESOURCES
from ome_operator.settings import Settings

CONTROLLER = "control-plane=ome-controller-manager"
"""Label of OME's controller Deployment, both in OME's chart and in its kustomization."""

FINALIZERS = frozenset(
    {
        "inferenceservice.finalizers",
        "benchmarkjob.finalizers",
        "basemodels.ome.io/finalizer",
        "clusterbasemodels.ome.io/finalizer",
        "acceleratorclasses.ome.io/finalizer",
    }
)
"""The finalizers that OME adds to its objects. Other finalizers are not removed."""

CLOCKS = timedelta(minutes=1)
"""Maximum difference between the clocks of this machine and of the API server. An entry of managedFields with a time
further in the future is not trusted."""
SHOWN, LONGEST = 5, 200
"""Maximum number of names that one line lists, and maximum number of characters of a name."""


@dataclass(frozen=True)
class Permissions:
    """The permissions that the user gives on the command line."""

    release: Release
    yes: bool = False
    """Whether irreversible steps are permitted: dropping fields, and completing the deletion of objects that wait for
    OME's finalizers."""
    force: bool = False
    """Whether to continue even if OME's controller seems to be running."""


async def adopt(client: Client, steps: StepReporter, wishes: Permissions) -> None:
    """Perform all steps in order, and stop if a further step would do harm."""
    existing = {crd["metadata"]["name"]: crd for crd in await client.list_objects("CustomResourceDefinition")}
    own = [(kind, existing[kind.crd]) for kind in KINDS if kind.crd in existing]
    if not any(kind.group == keys.GROUP for kind, _ in own):
        steps.report_unchanged(f"the cluster has no CRDs of {keys.GROUP}: there is nothing to adopt")
        return
    bodies = {kind.kind: await _objects(client, kind) for kind, _ in own if kind.group == keys.GROUP}
    if not await _stopped(client, steps, bodies.get("InferenceService", ()), wishes.force):
        return
    await webhooks.remove(client, steps, wishes.yes)
    if not _nothing_lost(steps, own, bodies, wishes.yes):
        return
    for kind, live in own:
        await _crd(client, steps, kind, live, wishes.release)
    _former_releases(steps, (live for _, live in own), wishes.release)
    await _others(
        client, steps, [live for name, live in existing.items() if crds.is_omes(name) and not crds.own_kind(name)], wishes
    )
    await _finalizers(client, steps, bodies, wishes.yes)


async def _objects(client: Client, kind: Kind) -> list[Manifest]:
    try:
        return await client.list_objects(kind.kind)
    except NotServed:  # the CRD is not established, or does not serve the version that is read
        return []


async def _stopped(client: Client, steps: StepReporter, services: Iterable[Manifest], force: bool) -> bool:
    """Return whether OME's controller seems to be stopped, so that two operators never write the same service. With `force`,
    a running controller is only reported, and the result is true.
    """
    labelled = await client.list_objects("Deployment", label_selector=CONTROLLER)
    deployments = [deployment for deployment in labelled if await _may_write_services(client, steps, deployment)]
    problem = ""
    for deployment in deployments:
        name, namespace = deployment["metadata"]["name"], deployment["metadata"]["namespace"]
        if deployment["spec"].get("replicas", 1) or (deployment.get("status") or {}).get("replicas"):
            command = f"kubectl -n {namespace} scale deployment {name} --replicas=0"
            problem += f" && {command}" if problem else f"OME's controller is still running; stop it: {command}"
        else:
            steps.report_unchanged(f"OME's controller is stopped: Deployment {namespace}/{name} has no pods")
    recent = _recent(services)
    if not deployments and recent:
        problem = f"{recent}, but the cluster has no Deployment of OME: stop the process that writes this status"
    elif recent:
        steps.report_note(
            f"{recent}: the operator waits until no other client has written the status of a service for five minutes"
        )
    if not deployments and not recent:
        steps.report_unchanged("the cluster has no controller of OME")
    if problem and force:
        steps.report_note(f"{problem} (continuing because of --force)")
    elif problem:
        steps.report_open_problem(f"{problem}; then run this command again, or use --force to continue anyway")
    return force or not problem


async def _may_write_services(client: Client, steps: StepReporter, deployment: Manifest) -> bool:
    """Return whether the pods of a Deployment may write the status of the services in all namespaces. OME's controller has
    this right. Any user may create a Deployment with the label of that controller. Such a Deployment would block the
    adoption if it has pods, and would hide a controller that still runs if it has none. Return True if the rights cannot
    be determined.
    """
    name, namespace = deployment["metadata"]["name"], deployment["metadata"]["namespace"]
    account = deployment["spec"]["template"]["spec"].get("serviceAccountName") or "default"
    what = {"group": keys.GROUP, "resource": "inferenceservices", "subresource": "status", "verb": "update"}
    groups = ["system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated"]
    question = {
        "apiVersion": RESOURCES["SubjectAccessReview"].api_version,
        "kind": "SubjectAccessReview",
        "metadata": {},
        "spec": {"user": f"system:serviceaccount:{namespace}:{account}", "groups": groups, "resourceAttributes": what},
    }
    try:
        answer = await client.create(question)
    except KubeError as error:
        steps.report_note(f"whether Deployment {namespace}/{name} is OME's controller is not known: {error}")
        return True
    if not (allowed := bool((answer.get("status") or {}).get("allowed"))):
        steps.report_note(
            f"Deployment {namespace}/{name} has the label of OME's controller, but may not write services: ignored"
        )
    return allowed


def _recent(services: Iterable[Manifest]) -> str:
    """Return a message about another client that recently wrote the status of a service; "" if no other client did."""
    now = datetime.now(UTC)
    for service in services:
        for manager, when in from_api.status_writers(service):
            # Whoever may write the service can also write the time of such an entry.
            if -CLOCKS < (since := now - when) < timedelta(seconds=Settings().foreign_writer_pause):
                return f"{manager} wrote the status of {_name(service)} {max(since, timedelta()).seconds} s ago"
    return ""


def _nothing_lost(
    steps: StepReporter, own: Iterable[tuple[Kind, Manifest]], bodies: dict[str, list[Manifest]], yes: bool
) -> bool:
    """Return whether the CRDs may be replaced. Report which fields of which objects the new schemas do not contain. With
    `yes`, dropping these fields is permitted.
    """
    has_losses = False
    for kind, _ in own:
        for body in bodies.get(kind.kind, ()) if kind.group == keys.GROUP else ():
            if fields := crds.dropped_fields(kind, body):
                paths = _listed(fields)
                message = f"{kind.kind} {_name(body)} has fields that the new schema would remove: {paths}"
                (steps.report_note if yes else steps.report_open_problem)(message)
                has_losses = True
    if has_losses and not yes:
        steps.report_note(
            "keep a copy of these objects, and run this command with --yes; until then, this command does not change the "
            "CRDs"
        )
    return yes or not has_losses or steps.dry_run


async def _crd(client: Client, steps: StepReporter, kind: Kind, live: Manifest, release: Release) -> None:
    if why := crds.rejection_reason(live, kind):
        steps.report_open_problem(f"CRD {kind.crd}: {why}")
        return
    wanted = crds.replacement(live, kind, release)
    if wanted is None:
        steps.report_unchanged(f"CRD {kind.crd} is up to date")
        return
    webhook = " and its conversion webhook" if (live["spec"].get("conversion") or {}).get("strategy") == "Webhook" else ""
    await steps.change(f"replace the schema of CRD {kind.crd}{webhook}", lambda: client.update(wanted))


def _former_releases(steps: StepReporter, mine: Iterable[Manifest], release: Release) -> None:
    """Report other helm releases that still contain the CRDs. Uninstalling such a release would delete the CRDs and all
    their objects.
    """
    for name, namespace in sorted(
        {release_ for live in mine if (release_ := crds.release_of(live)) and release_ != release}
    ):
        forget = f"kubectl -n {namespace} delete secret -l owner=helm,name={name}"
        steps.report_note(
            f"never run `helm uninstall {name}`, which deletes the CRDs and all their objects: `{forget}` makes "
            "helm forget the release instead"
        )


async def _others(client: Client, steps: StepReporter, others: Iterable[Manifest], wishes: Permissions) -> None:
    """Annotate the CRDs `others`, whose kinds only OME has, so that helm keeps them when this chart takes over their
    release. CRDs that need no annotation are only reported. `wishes` names the release.
    """
    for live in others:
        metadata = live["metadata"]
        name, uid = metadata["name"], metadata["uid"]
        if crds.release_of(live) != wishes.release or (metadata.get("annotations") or {}).get(crds.KEEP) == "keep":
            steps.report_note(f"CRD {name} is used only by OME: it is kept unchanged, and no controller acts on its objects")
            continue
        patch = {"metadata": {"annotations": {crds.KEEP: "keep"}}}
        what = f"make helm keep CRD {name}, which this chart does not contain"
        await steps.change(what, partial(client.patch_merge, "CustomResourceDefinition", "", name, uid, patch))


async def _finalizers(client: Client, steps: StepReporter, bodies: dict[str, list[Manifest]], yes: bool) -> None:
    """Remove OME's finalizers, but no other finalizers. An object whose deletion waits for finalizers disappears when its
    last finalizer is removed; this requires `yes`.
    """
    any_found = False
    for kind, objects in bodies.items():
        for body in objects:
            metadata = body["metadata"]
            omes = [finalizer for finalizer in metadata.get("finalizers") or () if finalizer in FINALIZERS]
            if not omes:
                continue
            any_found = True
            description = f"remove finalizer {', '.join(omes)} from {kind} {_name(body)}"
            if metadata.get("deletionTimestamp"):
                description += ", whose deletion is pending: it is then deleted with all objects that it owns"
                if not yes and not steps.dry_run:
                    steps.report_open_problem(f"{description}: pass --yes to do so")
                    continue
            await steps.change(description, partial(_release, client, kind, body, yes))
    if not any_found:
        steps.report_unchanged("no finalizers of OME")


async def _release(client: Client, kind: str, body: Manifest, yes: bool) -> None:
    """Remove OME's finalizers from an object. Raises Conflict if another client writes the object at the same time, or has
    deleted it since it was listed and its deletion requires `yes`.
    """
    namespace, name, uid = body["metadata"].get("namespace", ""), body["metadata"]["name"], body["metadata"]["uid"]
    live = await client.get(kind, namespace, name)
    if live["metadata"].get("deletionTimestamp") and not yes:
        raise Conflict(f"{kind} {_name(body)} was deleted meanwhile")
    kept = [finalizer for finalizer in live["metadata"].get("finalizers") or () if finalizer not in FINALIZERS]
    patch = {"metadata": {"finalizers": kept, "resourceVersion": live["metadata"]["resourceVersion"]}}
    await client.patch_merge(kind, namespace, name, uid, patch)


def _name(body: Manifest) -> str:
    metadata = body["metadata"]
    return "/".join(part for part in (metadata.get("namespace"), metadata["name"]) if part)


def _listed(names: list[str]) -> str:
    more = len(names) - SHOWN
    return ", ".join(name[:LONGEST] for name in names[:SHOWN]) + (f" and {more} more" if more > 0 else "")
