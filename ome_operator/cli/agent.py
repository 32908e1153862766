"""`ome agent`: the model agent of one node. In a cluster this is what the chart's DaemonSet runs."""

import asyncio
import contextlib
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ome_operator.cli.options import Kubeconfig, LogFormat, LogLevel
from ome_operator.errors import UserError
from ome_operator.storage.grants import FORM, Trust, grant

if TYPE_CHECKING:
    from ome_operator.agent.peers import Giver
    from ome_operator.agent.work import AgentSettings
    from ome_operator.storage.listing import Source

app = typer.Typer(add_completion=False, rich_markup_mode=None)
PEER_TOKEN = Path("/etc/ome/peers/token")


@app.command(epilog="Example: ome agent --node h200-00 --root /raid/models --kubeconfig agent.kubeconfig")
def agent(
    node: Annotated[str, typer.Option(help="Name of this node.", envvar="NODE_NAME")],
    root: Annotated[list[str], typer.Option(help="Directory that it may write below. May be given several times.")],
    secrets: Annotated[
        Path, typer.Option(help="A folder for each Secret that models name as their key, a file for each of its values.")
    ] = Path("/etc/ome/secrets"),
    secret: Annotated[
        list[str] | None,
        typer.Option(help=f'What a Secret is for, as {FORM}; "uris" bounds it further. May be given several times.'),
    ] = None,
    identity_host: Annotated[
        list[str] | None, typer.Option(help="Host of an object store that sees the identity of this node.")
    ] = None,
    identity_namespace: Annotated[
        list[str] | None, typer.Option(help="Namespace whose BaseModels use the identity of this node.")
    ] = None,
    private_host: Annotated[
        list[str] | None, typer.Option(help="Host that is asked though its address is inside of a network.")
    ] = None,
    endpoint_host: Annotated[
        list[str] | None, typer.Option(help="Host that BaseModels may name as the endpoint of an object store.")
    ] = None,
    endpoint: Annotated[str, typer.Option(help="A mirror of the hub.", envvar="HF_ENDPOINT")] = "",
    files: Annotated[int, typer.Option(help="Files that are fetched at a time.", min=1)] = 8,
    models: Annotated[int, typer.Option(help="Models that are fetched at a time.", min=1)] = 2,
    turn: Annotated[
        float, typer.Option(help="Seconds after which a model gives way to another namespace's.", min=1)
    ] = 300.0,
    namespace_gb: Annotated[
        float, typer.Option(help="GB that BaseModels of a namespace may have on this node; 0: no bound.", min=0)
    ] = 0.0,
    bandwidth: Annotated[float, typer.Option(help="MB per second that this node may fetch; 0: no limit.", min=0)] = 0.0,
    verify_every: Annotated[float, typer.Option(help="Seconds between two looks at files that are Ready.", min=1)] = 21600.0,
    sample: Annotated[float, typer.Option(help="Share of the bytes that such a look reads.", min=0, max=1)] = 0.02,
    remove_after: Annotated[
        float,
        typer.Option(help="Seconds after which weights that nothing refers to are removed from this node; 0: never.", min=0),
    ] = 0.0,
    models_per_namespace: Annotated[
        int,
        typer.Option(help="BaseModels that count, of each namespace, the oldest first, as for the operator; 0: all.", min=0),
    ] = 100,
    peers: Annotated[
        str, typer.Option(help="Name whose addresses are those of all agents (a headless Service); empty: no peers.")
    ] = "",
    peer_token: Annotated[Path, typer.Option(help="File with the token that agents show each other.")] = PEER_TOKEN,
    peer_port: Annotated[int, typer.Option(help="Where agents give files to each other.")] = 8082,
    own_address: Annotated[str, typer.Option(help="Our own address among the peers.", envvar="POD_IP")] = "",
    kubeconfig: Kubeconfig = None,
    address: Annotated[str, typer.Option(help="Address of the probes; empty: every address.")] = "",
    port: Annotated[int, typer.Option(help="/healthz; 0: a free port.")] = 8081,
    log_format: LogFormat = "json",
    log_level: LogLevel = "INFO",
) -> None:
    """Fetch and verify the weights of the models that this node is to hold, until it is stopped."""
    from ome_operator.agent.download import Limits
    from ome_operator.agent.throttle import Throttle
    from ome_operator.agent.work import AgentSettings
    from ome_operator.util.log_format import configure

    configure(log_format, log_level)
    below = tuple(map(_root, root))
    limits = Limits(files=files, throttle=Throttle(bandwidth * 1e6), namespace_bytes=int(namespace_gb * 1e9))
    trust = Trust(
        secrets={entry.name: entry for entry in map(grant, secret or ())},
        identity_hosts=frozenset(identity_host or ()),
        identity_namespaces=frozenset(identity_namespace or ()),
        private_hosts=frozenset(private_host or ()),
        endpoints=frozenset(endpoint_host or ()),
    )
    settings = AgentSettings(
        roots=below,
        secrets=secrets,
        trust=trust,
        endpoint=endpoint,
        limits=limits,
        models=models,
        turn=turn,
        verify_every=verify_every,
        sample=sample,
        remove_after=remove_after,
        models_per_namespace=models_per_namespace,
        node=node,
    )
    giver = None
    if peers:
        settings, giver = _among_peers(settings, peers, peer_port, own_address, _token(peer_token))
    raise typer.Exit(asyncio.run(_run(settings, kubeconfig, address, port, giver, peer_port)))


def _among_peers(
    settings: "AgentSettings", peers: str, port: int, own_address: str, token: str
) -> "tuple[AgentSettings, Giver]":
    """The settings of an agent that asks its peers before the hub, and what gives files to them."""
    from ome_operator.agent.peers import Giver, Swarm, resolver

    find = resolver(peers, port, own_address)

    def among(source: "Source", namespace: str) -> "Source":
        return Swarm(source, find, token, namespace=namespace)

    return replace(settings, peers=among), Giver(settings.roots, token)


def _root(given: str) -> str:
    """A directory that agents may write below, which is there then."""
    from ome_operator.agent.store import HIDDEN
    from ome_operator.core.weights.mount import NAMESPACES

    path = Path(given)
    if not path.is_absolute() or {"..", HIDDEN, NAMESPACES} & set(path.parts):
        raise UserError(f"--root {given}: name an absolute path without the components .., {HIDDEN} and {NAMESPACES}.")
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"--root {given}: it cannot be made: {error.strerror}.") from error
    return str(path)


def _token(path: Path) -> str:
    try:
        token = path.read_text().strip()
    except OSError as error:
        raise UserError(f"--peer-token {path}: {error.strerror}. Peers need a token that they share.") from error
    if not token:
        raise UserError(f"--peer-token {path} is empty. Peers need a token that they share.")
    return token


async def _run(
    settings: "AgentSettings", kubeconfig: Path | None, address: str, port: int, giver: "Giver | None", peer_port: int
) -> int:
    from ome_operator.agent import peers
    from ome_operator.agent.loop import Agent, run
    from ome_operator.kube.connection import Connection, NoConnection
    from ome_operator.machinery import health

    async with contextlib.AsyncExitStack() as stack:

        async def serve(one: Agent) -> None:
            probes, _ = await health.serve(address, port, {"/healthz": one.alive})
            stack.push_async_callback(probes.cleanup)
            if giver is not None:
                files, _ = await peers.serve(giver, address, peer_port)
                stack.push_async_callback(files.cleanup)

        try:
            connection = await Connection.open(kubeconfig)
            return await run(settings, connection, asyncio.Event(), serve)
        except NoConnection as error:
            raise UserError(f"no connection to a cluster: {error}. --kubeconfig names another file.") from error
        except health.PortTaken as error:
            raise UserError(f"{error}. --port chooses another.") from error
