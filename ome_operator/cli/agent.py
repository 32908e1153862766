"""`ome agent`: the model agent of one node. In a cluster, the DaemonSet of the chart runs this command."""

import asyncio
import contextlib
import ipaddress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ome_operator.cli.options import Kubeconfig, LogFormat, LogLevel
from ome_operator.errors import UserError
from ome_operator.storage.addresses import Network
from ome_operator.storage.grants import EXAMPLE, Trust, parse_grant

if TYPE_CHECKING:
    from ome_operator.agent.peers import PeerServer
    from ome_operator.agent.work import AgentSettings
    from ome_operator.storage.listing import Source

app = typer.Typer(add_completion=False, rich_markup_mode=None)
PEER_TOKEN = Path("/etc/ome/peers/token")


@app.command(epilog="Example: ome agent --node h200-00 --root /raid/models --kubeconfig agent.kubeconfig")
def agent(
    node: Annotated[str, typer.Option(help="Name of this node.", envvar="NODE_NAME")],
    root: Annotated[list[str], typer.Option(help="Directory below which the agent may write. May be given several times.")],
    secrets: Annotated[
        Path,
        typer.Option(
            help=(
                "Folder with a subfolder for each Secret that models refer to. The subfolder contains a file for each "
                "key of the Secret."
            )
        ),
    ] = Path("/etc/ome/secrets"),
    secret: Annotated[
        list[str] | None,
        typer.Option(
            help=f'Permission to use a Secret, such as {EXAMPLE}; "uris" restricts it further. May be given several times.'
        ),
    ] = None,
    identity_host: Annotated[
        list[str] | None, typer.Option(help="Host of an object store to which this node's cloud identity may be sent.")
    ] = None,
    identity_namespace: Annotated[
        list[str] | None, typer.Option(help="Namespace whose BaseModels may use this node's cloud identity.")
    ] = None,
    private_host: Annotated[
        list[str] | None, typer.Option(help="Host that may be contacted although its address is private.")
    ] = None,
    refused_address: Annotated[
        list[str] | None,
        typer.Option(
            help="Network of this cluster with public addresses that are treated as private, for example 203.0.113.0/24."
        ),
    ] = None,
    endpoint_host: Annotated[
        list[str] | None, typer.Option(help="Host that BaseModels may name as the endpoint of an object store.")
    ] = None,
    endpoint: Annotated[str, typer.Option(help="Address of a mirror of the Hugging Face hub.", envvar="HF_ENDPOINT")] = "",
    files: Annotated[int, typer.Option(help="Number of files that are downloaded at the same time.", min=1)] = 8,
    models: Annotated[int, typer.Option(help="Number of models that are downloaded at the same time.", min=1)] = 2,
    turn: Annotated[
        float,
        typer.Option(help=("Seconds after which a download is interrupted if a model of another namespace waits."), min=1),
    ] = 300.0,
    namespace_gb: Annotated[
        float, typer.Option(help="GB that the BaseModels of one namespace may use on this node; 0: no limit.", min=0)
    ] = 0.0,
    bandwidth: Annotated[float, typer.Option(help="MB per second that this node may download; 0: no limit.", min=0)] = 0.0,
    verify_every: Annotated[float, typer.Option(help="Seconds between two checks of Ready files.", min=1)] = 21600.0,
    sample: Annotated[
        float,
        typer.Option(help=("Fraction of the bytes of Ready files that each check of --verify-every reads."), min=0, max=1),
    ] = 0.02,
    remove_after: Annotated[
        float,
        typer.Option(
            help="Seconds after which weights that no object refers to are removed from this node; 0: never.", min=0
        ),
    ] = 0.0,
    prefetch_gb: Annotated[
        float,
        typer.Option(
            help=(
                "GB of weights that are read into the page cache while engines that load them start on this node; "
                "0: none. At most as much as free memory and the container's memory limit permit."
            ),
            min=0,
        ),
    ] = 0.0,
    prefetch_mbps: Annotated[
        float, typer.Option(help="MB per second that are read into the page cache; 0: no limit.", min=0)
    ] = 0.0,
    models_per_namespace: Annotated[
        int,
        typer.Option(
            help="Same as the operator's option: maximum number of BaseModels of a namespace that are used; 0: no limit.",
            min=0,
        ),
    ] = 100,
    peers: Annotated[
        str, typer.Option(help="DNS name that resolves to all agents (a headless Service); empty: no peers.")
    ] = "",
    peer_token: Annotated[
        Path, typer.Option(help="File with the token by which agents authenticate to each other.")
    ] = PEER_TOKEN,
    peer_port: Annotated[int, typer.Option(help="Port on which agents serve files to each other.")] = 8082,
    own_address: Annotated[
        str, typer.Option(help="IP address at which the other agents reach this agent.", envvar="POD_IP")
    ] = "",
    kubeconfig: Kubeconfig = None,
    address: Annotated[str, typer.Option(help="Address that the probes listen on; empty: every address.")] = "",
    port: Annotated[int, typer.Option(help="Port of /healthz; 0: a free port.")] = 8081,
    log_format: LogFormat = "json",
    log_level: LogLevel = "INFO",
) -> None:
    """Download and verify the weights of the models that belong on this node, until stopped."""
    from ome_operator.agent.download import Limits
    from ome_operator.agent.throttle import Throttle
    from ome_operator.agent.work import AgentSettings
    from ome_operator.util.log_format import configure

    configure(log_format, log_level)
    below = tuple(map(_root, root))
    limits = Limits(files=files, throttle=Throttle(bandwidth * 1e6), namespace_bytes=int(namespace_gb * 1e9))
    trust = Trust(
        secrets={entry.name: entry for entry in map(parse_grant, secret or ())},
        identity_hosts=frozenset(identity_host or ()),
        identity_namespaces=frozenset(identity_namespace or ()),
        private_hosts=frozenset(private_host or ()),
        refused_addresses=tuple(map(_network, refused_address or ())),
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
        prefetch_bytes=int(prefetch_gb * 1e9),
        prefetch_rate=prefetch_mbps * 1e6,
        models_per_namespace=models_per_namespace,
        node=node,
    )
    giver = None
    if peers:
        settings, giver = _among_peers(settings, peers, peer_port, own_address, _token(peer_token))
    raise typer.Exit(asyncio.run(_run(settings, kubeconfig, address, port, giver, peer_port)))


def _among_peers(
    settings: "AgentSettings", peers: str, port: int, own_address: str, token: str
) -> "tuple[AgentSettings, PeerServer]":
    """Return a copy of `settings` with which the agent requests files from its peers before it downloads them from the
    hub, and the server that serves files to the peers.
    """
    from ome_operator.agent.peers import PeerServer, PeerSource, resolver

    find, avoided = resolver(peers, port, own_address), dict[str, float]()

    def among(source: "Source", namespace: str) -> "Source":
        return PeerSource(source, find, token, namespace=namespace, avoided=avoided)

    return replace(settings, peers=among), PeerServer(settings.roots, token, own_address=own_address)


def _network(given: str) -> Network:
    """Return the network. Raises UserError if it is invalid."""
    try:
        return ipaddress.ip_network(given)
    except ValueError as error:
        raise UserError(f"--refused-address {given}: {error}. Write a network such as 203.0.113.0/24.") from error


def _root(given: str) -> str:
    """Create a directory below which agents may write, and return its path. Raises UserError if the path is not permitted
    or cannot be created.
    """
    from ome_operator.agent.store import HIDDEN
    from ome_operator.core.weights.mount import NAMESPACES

    path = Path(given)
    if not path.is_absolute() or {"..", HIDDEN, NAMESPACES} & set(path.parts):
        raise UserError(f"--root {given}: write an absolute path without the components .., {HIDDEN} and {NAMESPACES}.")
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"--root {given}: the directory cannot be created: {error.strerror}.") from error
    return str(path)


def _token(path: Path) -> str:
    try:
        token = path.read_text().strip()
    except OSError as error:
        raise UserError(
            f"--peer-token {path}: {error.strerror}. Write the token that all agents share to this file."
        ) from error
    if not token:
        raise UserError(f"--peer-token {path} is empty. Write the token that all agents share to this file.")
    return token


async def _run(
    settings: "AgentSettings", kubeconfig: Path | None, address: str, port: int, giver: "PeerServer | None", peer_port: int
) -> int:
    from ome_operator.agent import peers
    from ome_operator.agent.loop import Agent, run
    from ome_operator.kube.connection import Connection, NoConnection
    from ome_operator.machinery import health

    async with contextlib.AsyncExitStack() as stack:

        async def serve(item: Agent) -> None:
            probes, _ = await health.serve(address, port, {"/healthz": item.alive})
            stack.push_async_callback(probes.cleanup)
            if giver is not None:
                files, _ = await peers.serve(giver, address, peer_port)
                stack.push_async_callback(files.cleanup)

        try:
            connection = await Connection.open(kubeconfig)
            return await run(settings, connection, asyncio.Event(), serve)
        except NoConnection as error:
            raise UserError(f"no connection to a cluster: {error}. Name another file with --kubeconfig.") from error
        except health.PortTaken as error:
            raise UserError(f"{error}. Choose another port with --port.") from error
