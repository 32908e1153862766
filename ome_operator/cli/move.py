"""`ome move`: asks the operator to move the groups of a node, or one group of a service (docs/moves.md)."""

from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ome_operator import keys, quantity
from ome_operator.cli.completing import services
from ome_operator.cli.connect import Context, Kubeconfig, Namespace, get_service, on_cluster, patch_read, retry_on_conflict
from ome_operator.errors import InvalidOption, UserError

if TYPE_CHECKING:
    from ome_operator.kube.client import Client, Manifest

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)

ROLES = {"engine": keys.ENGINE, "prefill": keys.ENGINE, "decode": keys.DECODER, "decoder": keys.DECODER}
"""Maps the name of a role, as people write it, to the component."""
SHOWN = 40
"""Number of characters of a misspelled group that a message repeats."""


@app.command(epilog="Examples: ome move h200-07; ome move --now h200-07; ome move kimi-k2-instruct decode/2")
def move(
    what: Annotated[
        str,
        typer.Argument(metavar="NODE|SERVICE", show_default=False, help="A node, or a service.", autocompletion=services),
    ],
    group: Annotated[
        str, typer.Argument(metavar="[GROUP]", show_default=False, help="A group of the service, such as decode/2.")
    ] = "",
    now: Annotated[
        bool, typer.Option("--now", help="With NODE: move the groups without waiting until replacements serve.")
    ] = False,
    namespace: Namespace = "",
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Move the groups and routers of a node, or a group of a service, to other nodes. The old pods end when replacements
    serve.

    Only groups of services with spec.moves are moved. The operator does the work; the condition Moved of a service shows
    the progress.
    """
    if group and now:
        raise InvalidOption("--now moves a node: name the NODE and leave out GROUP, or leave out --now.")
    if namespace and not group:
        raise UserError(
            "-n belongs to SERVICE GROUP; nodes have no namespace: leave out -n, or name a GROUP such as decode/2."
        )

    async def work(client: "Client") -> None:
        await (_group(client, what, group, namespace) if group else _node(client, what, now=now))

    on_cluster(kubeconfig, context, work)


async def _node(client: "Client", name: str, *, now: bool) -> None:
    from ome_operator.core.observed import from_api
    from ome_operator.core.observed.slices import made_by_workload

    await _read_node(client, name)
    pods = await client.list_objects("Pod", label_selector=keys.SERVICE, field_selector=f"spec.nodeName={name}")
    found = sorted({(pod.namespace, pod.service) for pod in map(from_api.pod, pods) if made_by_workload(pod)})
    if not found:
        raise UserError(f"no pod of a service runs on node {name}: nothing was changed.")
    services = {place: await client.get("InferenceService", *place) for place in found}
    movable = [place for place, body in services.items() if "moves" in body["spec"]]
    for (where, service), body in services.items():
        typer.echo(f"{where}/{service} {_outlook(body, where, service, now=now)}")
    if not movable:
        raise UserError(
            f"no service on node {name} has spec.moves: nothing was changed. `kubectl drain {name}` evicts its pods."
        )

    def entries(_: "Manifest", time: str) -> list[str]:
        return [f"{time} now" if now else time]

    await _request(client, "Node", lambda: _read_node(client, name), entries)


async def _read_node(client: "Client", name: str) -> "Manifest":
    from ome_operator.kube.errors import NotFound

    try:
        return await client.get("Node", "", name)
    except NotFound as error:
        raise UserError(
            f"there is no node {name}. `ome nodes` lists them; a group of a service is `ome move SERVICE GROUP`."
        ) from error


def _outlook(body: Mapping[str, Any], namespace: str, service: str, *, now: bool) -> str:
    """Return the end of a sentence that states what will happen to the groups of a service that run on a node named by `ome
    move`. `body` is the service, and `now` is the option --now.
    """
    if "moves" not in body["spec"]:
        return "stays, because it has no spec.moves: `kubectl drain` evicts its pods."
    if _condition(body, "Frozen"):
        return f"is frozen: it moves after `ome thaw {service} -n {namespace}`."
    return "leaves when its requests have ended." if now else "leaves when replacements serve elsewhere."


async def _group(client: "Client", service: str, group: str, namespace: str) -> None:
    component, number = _parsed(group)

    async def movable() -> "Manifest":
        body = await get_service(client, service, namespace)
        if refusal := _refusal(body, component, number, group):
            raise UserError(f"{body['metadata']['namespace']}/{body['metadata']['name']}: {refusal}")
        return body

    def entries(body: "Manifest", time: str) -> list[str]:
        return [*_kept(body, component, number), f"{component}/{number} {time}"]

    body = await _request(client, "InferenceService", movable, entries)
    where, name = body["metadata"]["namespace"], body["metadata"]["name"]
    ahead = next((one for one in _moves(body, component) if one.get("phase") in ("Replacing", "Leaving")), None)
    after = f", after {group.partition('/')[0]}/{ahead.get('group') or 0} has left" if ahead is not None else ""
    typer.echo(f"{where}/{name}: {group} leaves its nodes when a replacement serves elsewhere{after}.")


def _kept(body: Mapping[str, Any], component: str, number: int) -> list[str]:
    """Return those requests in the annotation of a service that stay when a request for this group is added: the requests
    for its other groups. Requests for groups that no longer exist are left out, so that the annotation does not grow
    forever.
    """
    found = {f"{one.get('component')}/{one.get('index') or 0}" for one in (body.get("status") or {}).get("groups") or ()}
    return [entry for entry in _entries(body) if entry.partition(" ")[0] in found - {f"{component}/{number}"}]


def _entries(body: Mapping[str, Any]) -> list[str]:
    """Return the requests for moves in the annotation of `body`, which is a node or a service."""
    return [entry.strip() for entry in ((body["metadata"].get("annotations") or {}).get(keys.MOVE) or "").split(",")]


async def _request(
    client: "Client", kind: str, read: Callable[[], Awaitable["Manifest"]], entries: Callable[["Manifest", str], list[str]]
) -> "Manifest":
    """Write the annotation that requests a move, and return the object as it was read before. `read` reads the object, and
    raises UserError if the move is refused. `entries` returns the requests for the annotation, the new request last; its
    arguments are the object as it was read and the time of the new request.

    The operator compares the time of a request with the creation times of pods, which the API server writes. The clock of
    this machine may differ from the clock of the API server. In this case, the annotation is written again with the time of
    the API server, unless somebody else has replaced the request.
    """

    async def write(body: "Manifest", time: str) -> "Manifest":
        patch = {"metadata": {"annotations": {keys.MOVE: ", ".join(entries(body, time))}}}
        return await patch_read(client, kind, body, patch)

    async def attempt() -> tuple["Manifest", str]:
        body = await read()
        return body, _time_of(await write(body, asked))

    async def correct() -> None:
        body = await client.get(kind, metadata.get("namespace") or "", metadata["name"])
        if entries(body, asked)[-1] in _entries(body):
            await write(body, written)

    asked = quantity.rfc3339(datetime.now(UTC))
    found, written = await retry_on_conflict(attempt)
    metadata = found["metadata"]
    if written not in ("", asked):
        await retry_on_conflict(correct)
    return found


def _time_of(body: "Manifest") -> str:
    """Return the time at which the API server changed the annotation, in RFC 3339; "" if it is unknown."""
    from ome_operator.core.observed.field_managers import writer_of

    return str(writer_of(body["metadata"], "annotations", keys.MOVE).get("time") or "")


def _parsed(group: str) -> tuple[str, int]:
    role, _, text = group.partition("/")
    number = quantity.whole_number(text)
    if role not in ROLES or number is None:
        shown = group if len(group) <= SHOWN else f"{group[:SHOWN]}…"
        raise UserError(
            f"GROUP {shown!r} names no group: write prefill/0, decode/0 or engine/0, with the number of the group."
        )
    return ROLES[role], number


def _refusal(body: Mapping[str, Any], component: str, number: int, group: str) -> str:
    """Return why a group cannot be moved now; "" if the group can be moved."""
    status = body.get("status") or {}
    mine = [one for one in status.get("groups") or () if one.get("component") == component]
    found = next((one for one in mine if (one.get("index") or 0) == number), None)
    moves = next(iter(_moves(body, component)), None)
    if "moves" not in body["spec"]:
        return "the service has no spec.moves, so nothing moves: add `moves: {}` to its spec."
    if _condition(body, "Frozen"):
        return "the service is frozen, so nothing moves: end the freeze with `ome thaw` first."
    if found is None:
        numbers = ", ".join(str(one.get("index") or 0) for one in mine) or "none"
        return f"there is no group {group}; the numbers of its groups are: {numbers}."
    if found.get("phase") == "Recycling":
        return f"{group} is being recycled and gets new pods: run the command again when the group is ready."
    if moves is not None and moves.get("group") == number and moves.get("phase") in ("Replacing", "Leaving"):
        return f"{group} moves already ({moves['phase']})."
    return ""


def _moves(body: Mapping[str, Any], component: str) -> list[Mapping[str, Any]]:
    """Return the moves of a role in the status of a service. The list has at most one element."""
    return [one for one in (body.get("status") or {}).get("moves") or () if one.get("component") == component]


def _condition(body: Mapping[str, Any], type_: str) -> bool:
    conditions = (body.get("status") or {}).get("conditions") or ()
    return any(one.get("type") == type_ and one.get("status") == "True" for one in conditions)
