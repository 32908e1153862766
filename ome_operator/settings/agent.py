"""The options of `ome agent`, each with the reason for its default."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from ome_operator.settings.option import HIGHEST_PORT, HTTP_URL, LOG_FORMATS, LOG_LEVELS, Option

GRANT_EXAMPLE = '{"name": "hf-token", "hosts": ["huggingface.co"], "namespaces": ["team-a"]}'
"""An example of a value of --secret, for messages."""


@dataclass(frozen=True, kw_only=True)
class AgentPermissions:
    """The Secrets, hosts and networks that models may make an agent use (docs/tenancy.md)."""

    grants: Annotated[
        tuple[str, ...],
        Option(
            flag="--secret",
            help=f'Permission to use a Secret, such as {GRANT_EXAMPLE}; "uris" restricts it further.',
            part_of="agent.secrets",
        ),
    ] = ()
    """The chart creates these permissions from its value `agent.secrets`, and mounts each Secret of this value into the
    pods of the agents."""
    identity_hosts: Annotated[
        frozenset[str],
        Option(
            flag="--identity-host",
            help="Hosts of object stores to which this node's cloud identity may be sent.",
            part_of="agent.identity",
        ),
    ] = frozenset()
    identity_namespaces: Annotated[
        frozenset[str],
        Option(
            flag="--identity-namespace",
            help="Namespaces whose BaseModels may use this node's cloud identity.",
            part_of="agent.identity",
        ),
    ] = frozenset()
    private_hosts: Annotated[
        frozenset[str],
        Option(
            flag="--private-host",
            help="Hosts that may be contacted although their addresses are private.",
            value="agent.privateHosts",
        ),
    ] = frozenset()
    """Without this option, agents contact no private address for models of a namespace. List your own model hub, for
    example."""
    refused_addresses: Annotated[
        tuple[str, ...],
        Option(
            flag="--refused-address",
            help="Networks of this cluster with public addresses that are treated as private, such as 203.0.113.0/24.",
            value="agent.refusedAddresses",
        ),
    ] = ()
    """List, for example, the network of the cluster's pods if its addresses are public."""
    endpoints: Annotated[
        frozenset[str],
        Option(
            flag="--endpoint-host",
            help="Hosts that BaseModels may name as the endpoint of an object store.",
            value="agent.endpoints",
        ),
    ] = frozenset()


@dataclass(frozen=True, kw_only=True)
class AgentPolicy:
    """The settings that bound and schedule the work of an agent. The agent receives this object unchanged; `files`,
    `namespace_gb` and `bandwidth` take effect through its download limits.
    """

    files: Annotated[
        int, Option(flag="--files", help="Number of files that are downloaded at the same time.", value="agent.files", ge=1)
    ] = 8
    models: Annotated[
        int,
        Option(flag="--models", help="Number of models that are downloaded at the same time.", value="agent.models", ge=1),
    ] = 2
    turn: Annotated[
        float,
        Option(
            flag="--turn",
            help="Seconds after which a download is interrupted if a model of another namespace waits.",
            value="agent.turnSeconds",
            ge=1,
        ),
    ] = 300.0
    namespace_gb: Annotated[
        float,
        Option(
            flag="--namespace-gb",
            help="GB that the BaseModels of one namespace may use on this node; 0: no limit.",
            value="agent.namespaceGB",
            ge=0,
        ),
    ] = 0.0
    bandwidth: Annotated[
        float,
        Option(
            flag="--bandwidth",
            help="MB per second that this node may download; 0: no limit.",
            value="agent.bandwidthMBps",
            ge=0,
        ),
    ] = 0.0
    verify_every: Annotated[
        float,
        Option(
            flag="--verify-every",
            help="Seconds between two checks of Ready files.",
            value="agent.verifyEverySeconds",
            ge=1,
            chart_least=60,
        ),
    ] = 21600.0
    """A check compares the sizes of all files and reads a part of their bytes."""
    sample: Annotated[
        float,
        Option(
            flag="--sample", help="Fraction of the bytes of Ready files that each check of --verify-every reads.", ge=0, le=1
        ),
    ] = 0.02
    remove_after: Annotated[
        float,
        Option(
            flag="--remove-after",
            help="Seconds after which weights that no object refers to are removed from this node; 0: never.",
            value="agent.removeAfterSeconds",
            ge=0,
        ),
    ] = 0.0
    """The time begins when the last model that names the weights stops naming them. The agent keeps weights as long as a
    kept revision of a service, or a pod of the node, refers to them (docs/models-agent.md)."""
    prefetch_gb: Annotated[
        float,
        Option(
            flag="--prefetch-gb",
            help=(
                "GB of weights that are read into the page cache while engines that load them start on this node; 0: "
                "none. The free memory and the container's memory limit also limit this amount."
            ),
            value="agent.prefetchGB",
            ge=0,
        ),
    ] = 0.0
    """The agent begins to read the weights of an engine when its pod is on the node, for example while its image is
    pulled. The memory limit in `agent.resources` has to be 2 GiB above this size, because the cached pages count against
    it (docs/models-agent.md)."""
    prefetch_mbps: Annotated[
        float,
        Option(
            flag="--prefetch-mbps",
            help="MB per second that are read into the page cache; 0: no limit.",
            value="agent.prefetchMBps",
            ge=0,
        ),
    ] = 0.0
    compile_cache_gb: Annotated[
        float,
        Option(
            flag="--compile-cache-gb",
            help="GB of this node's disk for the compile caches of engines; 0: none are kept.",
            value="agent.compileCacheGB",
            ge=0,
        ),
    ] = 0.0
    """The first directory of `agent.roots` contains the caches. Services request a cache with the annotation
    `ome.io/compile-cache` (docs/compile-caches.md). The agents have to run as root, because the kubelet creates the
    directories."""
    models_per_namespace: Annotated[
        int,
        Option(
            flag="--models-per-namespace",
            help="Maximum number of BaseModels of a namespace that are used, as the operator's option; 0: no limit.",
            part_of="modelsPerNamespace",
            ge=0,
        ),
    ] = 100


@dataclass(frozen=True, kw_only=True)
class PeerOptions:
    """The options for downloads from the agents of other nodes."""

    name: Annotated[
        str,
        Option(
            flag="--peers",
            help="DNS name that resolves to all agents (a headless Service); empty: no peers.",
            part_of="agent.peers",
        ),
    ] = ""
    """The chart creates this Service."""
    token: Annotated[
        Path, Option(flag="--peer-token", help="File with the token by which agents authenticate to each other.")
    ] = Path("/etc/ome/peers/token")
    """The chart mounts the Secret `agent.peerTokenSecret` there."""
    port: Annotated[
        int, Option(flag="--peer-port", help="Port on which agents serve files to each other.", ge=1, le=HIGHEST_PORT)
    ] = 8082
    own_address: Annotated[
        str,
        Option(flag="--own-address", help="IP address at which the other agents reach this agent.", env="POD_IP"),
    ] = ""


_POLICY, _PERMISSIONS, _PEERS = AgentPolicy(), AgentPermissions(), PeerOptions()


@dataclass(frozen=True, kw_only=True)
class AgentOptions:
    """All options of `ome agent`, in the order of its flags. A field without a default is a flag that must be set."""

    node: Annotated[str, Option(flag="--node", help="Name of this node.", env="NODE_NAME")]
    roots: Annotated[
        tuple[str, ...],
        Option(flag="--root", help="Directory below which the agent may write.", part_of="agent.roots"),
    ]
    secrets: Annotated[
        Path,
        Option(
            flag="--secrets",
            help=(
                "Folder with a subfolder for each Secret that models refer to. The subfolder contains a file for each "
                "key of the Secret."
            ),
        ),
    ] = Path("/etc/ome/secrets")
    """The chart mounts the Secrets of `agent.secrets` there."""
    permissions: AgentPermissions = _PERMISSIONS
    endpoint: Annotated[
        str,
        Option(
            flag="--endpoint",
            help="Address of a mirror of the Hugging Face hub.",
            value="agent.endpoint",
            env="HF_ENDPOINT",
            pattern=f"({HTTP_URL})?",
            fix="write a URL such as https://hub.example.org.",
        ),
    ] = ""
    policy: AgentPolicy = _POLICY
    peers: PeerOptions = _PEERS
    kubeconfig: Annotated[
        Path | None,
        Option(
            flag="--kubeconfig",
            help="Kubeconfig file; by default the ServiceAccount of this pod is used.",
            env="KUBECONFIG",
        ),
    ] = None
    address: Annotated[str, Option(flag="--address", help="Address that the probes listen on; empty: every address.")] = ""
    port: Annotated[int, Option(flag="--port", help="Port of /healthz; 0: a free port.", ge=0, le=HIGHEST_PORT)] = 8081
    log_format: Annotated[
        str,
        Option(
            flag="--log-format",
            help="Format of the log: console or json.",
            part_of="operator.logFormat",
            choices=LOG_FORMATS,
        ),
    ] = "json"
    """The default is json, because agents run in pods."""
    log_level: Annotated[
        str,
        Option(
            flag="--log-level",
            help="Lowest level that is logged: DEBUG, INFO, WARNING or ERROR.",
            part_of="operator.logLevel",
            choices=LOG_LEVELS,
        ),
    ] = "INFO"
