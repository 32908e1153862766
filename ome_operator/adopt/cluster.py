"""The cluster-wide part: OME's controller is stopped, its webhooks go, its CRDs become ours, its finalizers go."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial

from ome_operator import keys
from ome_operator.adopt import crds, webhooks
from ome_operator.adopt.crds import Release
from ome_operator.adopt.steps import Steps
from ome_operator.api.kinds import KINDS, Kind
from ome_operator.core.observed import from_api
from ome_operator.kube.client import Client, Manifest
from ome_operator.kube.errors import NotServed
from ome_operator.settings import Settings

CONTROLLER = "control-plane=ome-controller-manager"
"""Label of OME's Deployment, from both its chart and its kustomization."""

FINALIZERS = frozenset(
    {
        "inferenceservice.finalizers",
        "benchmarkjob.finalizers",
        "basemodels.ome.io/finalizer",
        "clusterbasemodels.ome.io/finalizer",
        "acceleratorclasses.ome.io/finalizer",
    }
)
"""Those that OME puts on its kinds. Nobody else's is touched."""

SHOWN = 5
"""Objects named in one line."""


@dataclass(frozen=True)
class Wishes:
    """What the person allowed."""

    release: Release
    yes: bool = False
    """Also what cannot be undone: dropping fields, letting objects go that hang in deletion."""
    force: bool = False
    """Even though OME seems to run."""


async def adopt(client: Client, steps: Steps, wishes: Wishes) -> None:
    """Every step in its order; stops where going on would do harm."""
    found = {one["metadata"]["name"]: one for one in await client.list_objects("CustomResourceDefinition")}
    mine = [(kind, found[kind.crd]) for kind in KINDS if kind.crd in found]
    if not any(kind.group == keys.GROUP for kind, _ in mine):
        steps.fine(f"no CRDs of {keys.GROUP} here: nothing to adopt")
        return
    bodies = {kind.kind: await _objects(client, kind) for kind, _ in mine if kind.group == keys.GROUP}
    if not await _stopped(client, steps, bodies.get("InferenceService", ()), wishes.force):
        return
    await webhooks.remove(client, steps)
    if not _nothing_lost(steps, mine, bodies, wishes.yes):
        return
    for kind, live in mine:
        await _crd(client, steps, kind, live, wishes.release)
    _former(steps, (live for _, live in mine), wishes.release)
    await _others(client, steps, [live for name, live in found.items() if crds.of_ome(name) and not crds.ours(name)], wishes)
    await _finalizers(client, steps, bodies, wishes.yes)


async def _objects(client: Client, kind: Kind) -> list[Manifest]:
    try:
        return await client.list_objects(kind.kind)
    except NotServed:  # a CRD that is not established, or serves another version only
        return []


async def _stopped(client: Client, steps: Steps, services: Iterable[Manifest], force: bool) -> bool:
    """Whether OME's controller is stopped, as far as can be seen: two operators would fight over every service."""
    deployments = await client.list_objects("Deployment", label_selector=CONTROLLER)
    why = ""
    for one in deployments:
        name, namespace = one["metadata"]["name"], one["metadata"]["namespace"]
        if one["spec"].get("replicas", 1) or (one.get("status") or {}).get("replicas"):
            why = f"OME's controller runs: kubectl -n {namespace} scale deployment {name} --replicas=0"
        else:
            steps.fine(f"OME's controller is stopped: Deployment {namespace}/{name} has no pods")
    recent = _recent(services)
    if not deployments and recent:
        why = f"{recent}, and there is no Deployment of OME's here: stop what writes it"
    elif recent:
        steps.note(f"{recent}: our operator begins with a service five minutes after the last such write")
    if not deployments and not recent:
        steps.fine("OME's controller is not here")
    if why and force:
        steps.note(f"{why} (--force: going on)")
    elif why:
        steps.leave(f"{why}; then run this command again (--force: go on all the same)")
    return force or not why


def _recent(services: Iterable[Manifest]) -> str:
    """Who else wrote a service's status lately, as a sentence."""
    now = datetime.now(UTC)
    for one in services:
        for manager, when in from_api.status_writers(one):
            if (since := now - when) < timedelta(seconds=Settings().foreign_writer_pause):
                return f"{manager} wrote the status of {_name(one)} {max(since, timedelta()).seconds} s ago"
    return ""


def _nothing_lost(steps: Steps, mine: Iterable[tuple[Kind, Manifest]], bodies: dict[str, list[Manifest]], yes: bool) -> bool:
    """Whether the CRDs may be replaced; says which fields of which objects our schemas do not have."""
    open_ = False
    for kind, _ in mine:
        for body in bodies.get(kind.kind, ()) if kind.group == keys.GROUP else ():
            if fields := crds.lost(kind, body):
                said = f"{kind.kind} {_name(body)} has fields that we do not know and that would be dropped: {_few(fields)}"
                (steps.note if yes else steps.leave)(said)
                open_ = True
    if open_ and not yes:
        steps.note("keep a copy of these objects and run this command with --yes; the CRDs are not touched before")
    return yes or not open_ or steps.dry_run


async def _crd(client: Client, steps: Steps, kind: Kind, live: Manifest, release: Release) -> None:
    if why := crds.obstacle(live, kind):
        steps.leave(f"CRD {kind.crd}: {why}")
        return
    wanted = crds.replaced(live, kind, release)
    if wanted is None:
        steps.fine(f"CRD {kind.crd} is ours")
        return
    webhook = " and its conversion webhook" if (live["spec"].get("conversion") or {}).get("strategy") == "Webhook" else ""
    await steps.change(f"replace the schema of CRD {kind.crd}{webhook}", lambda: client.update(wanted))


def _former(steps: Steps, mine: Iterable[Manifest], release: Release) -> None:
    """A release of another name still lists the CRDs, and would delete them with every object."""
    for name, namespace in sorted({one for live in mine if (one := crds.release_of(live)) and one != release}):
        forget = f"kubectl -n {namespace} delete secret -l owner=helm,name={name}"
        steps.note(f"never `helm uninstall {name}`, which would delete the CRDs and all objects: `{forget}` forgets it")


async def _others(client: Client, steps: Steps, others: Iterable[Manifest], wishes: Wishes) -> None:
    """Kinds of OME's that we do not have stay; helm must not remove them when our chart takes the release over."""
    for live in others:
        metadata = live["metadata"]
        name, uid = metadata["name"], metadata["uid"]
        if crds.release_of(live) != wishes.release or (metadata.get("annotations") or {}).get(crds.KEEP) == "keep":
            steps.note(f"CRD {name} is OME's alone: it stays as it is, and nobody acts on its objects")
            continue
        patch = {"metadata": {"annotations": {crds.KEEP: "keep"}}}
        what = f"tell helm to keep CRD {name}, which our chart does not have"
        await steps.change(what, partial(client.patch_merge, "CustomResourceDefinition", "", name, uid, patch))


async def _finalizers(client: Client, steps: Steps, bodies: dict[str, list[Manifest]], yes: bool) -> None:
    """OME's finalizers go, and no other. An object that hangs in deletion is gone with the last of them."""
    found = False
    for kind, objects in bodies.items():
        for body in objects:
            metadata = body["metadata"]
            theirs = [one for one in metadata.get("finalizers") or () if one in FINALIZERS]
            if not theirs:
                continue
            found = True
            what = f"remove finalizer {', '.join(theirs)} from {kind} {_name(body)}"
            if metadata.get("deletionTimestamp"):
                what += ", which was deleted and vanishes with everything that belongs to it"
                if not yes and not steps.dry_run:
                    steps.leave(f"{what}: --yes does that")
                    continue
            await steps.change(what, partial(_release, client, kind, body))
    if not found:
        steps.fine("no finalizers of OME's")


async def _release(client: Client, kind: str, body: Manifest) -> None:
    """Write the other finalizers of the object as it is now; Conflict when somebody writes it at the same moment."""
    namespace, name, uid = body["metadata"].get("namespace", ""), body["metadata"]["name"], body["metadata"]["uid"]
    live = await client.get(kind, namespace, name)
    kept = [one for one in live["metadata"].get("finalizers") or () if one not in FINALIZERS]
    patch = {"metadata": {"finalizers": kept, "resourceVersion": live["metadata"]["resourceVersion"]}}
    await client.patch_merge(kind, namespace, name, uid, patch)


def _name(body: Manifest) -> str:
    metadata = body["metadata"]
    return "/".join(part for part in (metadata.get("namespace"), metadata["name"]) if part)


def _few(names: list[str]) -> str:
    more = len(names) - SHOWN
    return ", ".join(names[:SHOWN]) + (f" and {more} more" if more > 0 else "")
