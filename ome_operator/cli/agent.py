"""`ome agent`: the model agent of one node. In a cluster, the DaemonSet of the chart runs this command."""

import asyncio
import contextlib
import ipaddress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from ome_operator.cli.declared import read_values, with_flags
from ome_operator.errors import InvalidOption, UserError
from ome_operator.settings.agent import AgentOptions, PeerOptions
from ome_operator.settings.option import build_settings_object, options
from ome_operator.storage.addresses import Network
from ome_operator.storage.grants import Trust, parse_grant

if TYPE_CHECKING:
    from ome_operator.agent.peers import PeerServer
    from ome_operator.agent.work import AgentSettings
    from ome_operator.storage.listing import Source

app = typer.Typer(add_completion=False, rich_markup_mode=None)
_OPTIONS = tuple(options(AgentOptions))


@app.command(epilog="Example: ome agent --node h200-00 --root /raid/models --kubeconfig agent.kubeconfig")
@with_flags(_OPTIONS)
def agent(**given: Any) -> None:
    """Download and verify the weights of the models that belong on this node, until stopped."""
    from ome_operator.util.log_format import configure

    chosen: AgentOptions = build_settings_object(AgentOptions, read_values(_OPTIONS, given, {"roots": _roots}))
    configure(chosen.log_format, chosen.log_level)
    settings, server = _settings(chosen), None
    if chosen.peers.name:
        settings, server = _among_peers(settings, chosen.peers)
    raise typer.Exit(asyncio.run(_run(settings, chosen, server)))


def _settings(chosen: AgentOptions) -> "AgentSettings":
    """Return the settings of an agent that downloads from hubs only, not from other agents. Raises InvalidOption for an
    invalid grant (permission of a namespace to use a Secret) or network.
    """
    from ome_operator.agent.download import Limits
    from ome_operator.agent.throttle import Throttle
    from ome_operator.agent.work import AgentSettings

    policy, permissions = chosen.policy, chosen.permissions
    return AgentSettings(
        node=chosen.node,
        roots=chosen.roots,
        secrets=chosen.secrets,
        trust=Trust(
            secrets={grant.name: grant for grant in map(parse_grant, permissions.grants)},
            identity_hosts=permissions.identity_hosts,
            identity_namespaces=permissions.identity_namespaces,
            private_hosts=permissions.private_hosts,
            refused_addresses=tuple(map(_network, permissions.refused_addresses)),
            endpoints=permissions.endpoints,
        ),
        endpoint=chosen.endpoint,
        limits=Limits(
            files=policy.files,
            throttle=Throttle(policy.bandwidth * 1e6),
            namespace_bytes=int(policy.namespace_gb * 1e9),
        ),
        policy=policy,
    )


def _among_peers(settings: "AgentSettings", chosen: PeerOptions) -> "tuple[AgentSettings, PeerServer]":
    """Return a copy of `settings` with which the agent requests files from its peers before it downloads them from the
    hub, and the server that serves files to the peers.
    """
    from ome_operator.agent.peers import PeerServer, PeerSource, resolver

    token, own_address = _token(chosen.token), chosen.own_address
    find, avoided = resolver(chosen.name, chosen.port, own_address), dict[str, float]()

    def among(source: "Source", namespace: str) -> "Source":
        return PeerSource(source, find, token, namespace=namespace, avoided=avoided)

    return replace(settings, peers=among), PeerServer(settings.roots, token, own_address=own_address)


def _network(given: str) -> Network:
    """Return the network that the text names, such as 203.0.113.0/24. Raises InvalidOption if the text is not a network."""
    try:
        return ipaddress.ip_network(given)
    except ValueError as error:
        raise InvalidOption(f"--refused-address {given}: {error}. Write a network such as 203.0.113.0/24.") from error


def _roots(given: list[str]) -> tuple[str, ...]:
    """Create the directories below which agents may write, and return their paths. Raises InvalidOption if a path is not
    permitted or cannot be created.
    """
    return tuple(dict.fromkeys(map(_root, given)))


def _root(given: str) -> str:
    """Create a directory below which agents may write, and return its path. Raises InvalidOption if the path is not
    permitted or cannot be created.
    """
    from ome_operator.agent.store import HIDDEN
    from ome_operator.core.weights.mount import NAMESPACES

    path = Path(given)
    if not path.is_absolute() or {"..", HIDDEN, NAMESPACES} & set(path.parts):
        raise InvalidOption(f"--root {given}: write an absolute path without the components .., {HIDDEN} and {NAMESPACES}.")
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidOption(f"--root {given}: the directory cannot be created: {error.strerror}.") from error
    return str(path)


def _token(path: Path) -> str:
    try:
        token = path.read_text().strip()
    except OSError as error:
        raise InvalidOption(
            f"--peer-token {path}: {error.strerror}. Write the token that all agents share to this file."
        ) from error
    if not token:
        raise InvalidOption(f"--peer-token {path} is empty. Write the token that all agents share to this file.")
    return token


async def _run(settings: "AgentSettings", chosen: AgentOptions, server: "PeerServer | None") -> int:
    from ome_operator.agent import peers
    from ome_operator.agent.loop import Agent, run
    from ome_operator.kube.connection import Connection, NoConnection
    from ome_operator.machinery import health

    async with contextlib.AsyncExitStack() as stack:

        async def serve(item: Agent) -> None:
            probes, _ = await health.serve(chosen.address, chosen.port, {"/healthz": item.alive})
            stack.push_async_callback(probes.cleanup)
            if server is not None:
                files, _ = await peers.serve(server, chosen.address, chosen.peers.port)
                stack.push_async_callback(files.cleanup)

        try:
            connection = await Connection.open(chosen.kubeconfig)
            return await run(settings, connection, asyncio.Event(), serve)
        except NoConnection as error:
            raise UserError(f"no connection to a cluster: {error}. Name another file with --kubeconfig.") from error
        except health.PortTaken as error:
            raise UserError(f"{error}. Choose another port with --port, or another address with --address.") from error
