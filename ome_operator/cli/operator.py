"""`ome operator`: run the operator. In a cluster this is what the chart's Deployment runs."""

import logging
import re
import secrets
import socket
from collections.abc import Sequence
from typing import Annotated, NamedTuple, TypeVar

import typer
import uvloop

from ome_operator import keys
from ome_operator.api import Invalid, well_known
from ome_operator.cli.connect import Context
from ome_operator.cli.options import Kubeconfig, LogFormat, LogLevel, preflight_mode, roots
from ome_operator.core.waves.terms import read, read_bake
from ome_operator.errors import UserError
from ome_operator.kube.connection import NoConnection, pod_namespace
from ome_operator.machinery.health import PortTaken
from ome_operator.settings import Exposure, Policy, Settings

_DEFAULTS = Settings()
T = TypeVar("T")
NAME = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
logger = logging.getLogger(__name__)


class Listens(NamedTuple):
    """Where probes and metrics listen."""

    address: str
    health_port: int
    metrics_port: int


_POD = Listens(_DEFAULTS.address, _DEFAULTS.health_port, _DEFAULTS.metrics_port)
_MINE = Listens("127.0.0.1", 18081, 18080)
"""On a person's machine: nobody else needs them, and 8080 is where a port-forward to a service listens."""
_OUTSIDE = "with a kubeconfig"

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command(epilog="Example: ome operator --kubeconfig ome-operator.kubeconfig --sidecar-image REGISTRY/ome-operator:TAG")
def operator(
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    lease_namespace: Annotated[
        str, typer.Option("--namespace-of-lease", help="Where the Lease for leader election lives.")
    ] = "",
    leader_election: Annotated[bool, typer.Option(help="Work only while holding the Lease.")] = True,
    identity: Annotated[str, typer.Option(help="Our name in the Lease; by default the pod's UID.", envvar="POD_UID")] = "",
    address: Annotated[
        str | None,
        typer.Option(help=f"Of probes and metrics; empty: every address. Without it every, {_OUTSIDE} {_MINE.address}."),
    ] = None,
    health_port: Annotated[
        int | None,
        typer.Option(
            help=f"/healthz and /readyz; 0: a free port. Without it {_DEFAULTS.health_port}, {_OUTSIDE} {_MINE.health_port}."
        ),
    ] = None,
    metrics_port: Annotated[
        int | None,
        typer.Option(
            help=f"/metrics; 0: a free port. Without it {_DEFAULTS.metrics_port}, {_OUTSIDE} {_MINE.metrics_port}."
        ),
    ] = None,
    metrics_per_service: Annotated[
        int, typer.Option(help="Services with metrics of their own; the others are summed.", min=0)
    ] = _DEFAULTS.metrics_per_service,
    scrapes_engines: Annotated[
        bool, typer.Option(help="Prometheus asks engines for metrics: tell services whose engine serves none.")
    ] = _DEFAULTS.policy.scrapes_engines,
    watch_namespace: Annotated[
        list[str] | None, typer.Option(help="Namespace that it works in; may be repeated. Without it: all.")
    ] = None,
    cluster_wide_kinds: Annotated[
        bool, typer.Option(help="Read cluster-wide models and runtimes, and nodes; off only with --watch-namespace.")
    ] = True,
    operator_class: Annotated[
        str, typer.Option(help=f"Act on objects with this label {keys.OPERATOR_CLASS}; empty: on those without it.")
    ] = "",
    workers: Annotated[int, typer.Option(help="Services that are worked on at the same time.")] = _DEFAULTS.workers,
    connections: Annotated[int, typer.Option(help="Connections to the API server.")] = _DEFAULTS.connections,
    waves: Annotated[
        str,
        typer.Option(help="Where each wave ends in which an edit that services share reaches them: a number or a share."),
    ] = ",".join(_DEFAULTS.waves),
    bake: Annotated[
        str, typer.Option(help="How long the services of a wave are whole before the next wave begins.")
    ] = f"{_DEFAULTS.bake / 60:.0f}m",
    max_concurrent_services: Annotated[
        int, typer.Option(help="Most services that such an edit replaces at the same time; 0: as the wave has.", min=0)
    ] = _DEFAULTS.max_concurrent_services,
    gang_timeout: Annotated[
        float,
        typer.Option(
            help="Seconds in which groups have to be on nodes as a whole, or are given back; 0: never.", min=0, max=3600
        ),
    ] = _DEFAULTS.policy.gang_timeout,
    lint_refuse: Annotated[
        bool, typer.Option(help="Do not roll out new revisions whose flags SGLang's own parser refuses (docs/lint.md).")
    ] = _DEFAULTS.lint_refuse,
    preflight: Annotated[
        str, typer.Option(help="Look at pods of new revisions before their engine starts: Off, Warn or Require.")
    ] = _DEFAULTS.policy.preflight,
    observe: Annotated[bool, typer.Option(help="Write nothing but statuses, and say there what would be done.")] = False,
    observe_namespace: Annotated[
        list[str] | None, typer.Option(help="The same in this namespace alone; may be repeated.")
    ] = None,
    sidecar_image: Annotated[
        str, typer.Option(help="Image of the registry beside routers (images/operator); without it there is no registry.")
    ] = _DEFAULTS.policy.registry_image,
    router_keys: Annotated[
        bool, typer.Option(help="Makes a Secret with a key for the control plane of each service's routers.")
    ] = _DEFAULTS.policy.router_keys,
    model_agent: Annotated[
        bool, typer.Option(help="Agents on the nodes fetch weights (`ome agent`): pods mount their directories.")
    ] = _DEFAULTS.policy.model_agent,
    agent_root: Annotated[
        list[str] | None,
        typer.Option(help="Directory that agents write below, as their --root; may be repeated. Without it /mnt/models."),
    ] = None,
    router_watch: Annotated[
        float,
        typer.Option(
            help="Seconds between two looks for strangers in routers' lists (from inside the cluster); 0: none.", min=0
        ),
    ] = _DEFAULTS.router_watch,
    network_policies: Annotated[
        bool, typer.Option(help="Makes NetworkPolicies: engines hear only pods of their service.")
    ] = False,
    models_per_namespace: Annotated[
        int, typer.Option(help="BaseModels that count, of each namespace, the oldest first; 0: all.", min=0)
    ] = _DEFAULTS.policy.models_per_namespace,
    expose: Annotated[str, typer.Option(help="Makes an Ingress, or an HTTPRoute, for each service; empty: neither.")] = "",
    expose_domain: Annotated[str, typer.Option(help="Hosts are <service>.<namespace>.<domain>.")] = "",
    ingress_class: Annotated[str, typer.Option(help="Class of the Ingresses; empty: the cluster's default.")] = "",
    gateway: Annotated[str, typer.Option(help="Gateway of the HTTPRoutes, as namespace/name.")] = "",
    well_known_models: Annotated[
        str, typer.Option(help="Facts of well-known models: a file or folder; `package`: our own; empty: none.")
    ] = _DEFAULTS.well_known_models,
    benchmark_image: Annotated[
        str, typer.Option(help="Image with SGLang's serving benchmark, which BenchmarkJobs run.")
    ] = _DEFAULTS.benchmark_image,
    tools_image: Annotated[
        str, typer.Option(help="Image (images/agent) for reports of BenchmarkJobs, which are refused without it.")
    ] = _DEFAULTS.tools_image,
    pull_secret: Annotated[
        list[str] | None,
        typer.Option(help="Secret of users' namespaces with which pods there pull our own images; may be repeated."),
    ] = None,
    recorder_memory: Annotated[
        int, typer.Option(help="MiB for the last passes over services, which SIGUSR1 writes to a file; 0: none.", min=0)
    ] = 16,
    log_format: LogFormat = _DEFAULTS.log_format,
    log_level: LogLevel = _DEFAULTS.log_level,
) -> None:
    """Run the operator until it is stopped (SIGTERM, Ctrl+C)."""
    from ome_operator.app import run  # loads kopf and kubernetes, which no other command needs
    from ome_operator.util.log_format import configure

    if isinstance(found := well_known.named(well_known_models), Invalid):
        raise UserError(f"--well-known-models: {found.why}")
    configure(log_format, log_level)
    for sentence in without(sidecar_image, tools_image):
        logger.info("%s", sentence)
    usual = _POD if kubeconfig is None else _MINE
    own = lease_namespace or pod_namespace(_DEFAULTS.lease_namespace)
    policy = Policy(
        registry_image=sidecar_image,
        router_keys=router_keys,
        model_agent=model_agent,
        agent_roots=roots(agent_root),
        exposure=Exposure(exposed(expose, gateway), expose_domain, ingress_class, gateway),
        policies_from=own if network_policies else "",
        pull_secrets=tuple(pull_secret or ()),
        observe=observe,
        observe_namespaces=frozenset(observe_namespace or ()),
        sees_cluster=cluster_wide_kinds,
        gang_timeout=gang_timeout,
        preflight=preflight_mode(preflight),
        models_per_namespace=models_per_namespace,
        scrapes_engines=scrapes_engines,
    )
    settings = Settings(
        policy=policy,
        lease_namespace=own,
        kubeconfig=kubeconfig,
        context=context,
        identity=identity or f"{socket.gethostname()}-{secrets.token_hex(4)}",
        leader_election=leader_election,
        watch_namespaces=namespaces(watch_namespace or (), cluster_wide_kinds),
        operator_class=a_class(operator_class),
        address=usual.address if address is None else address,
        health_port=usual.health_port if health_port is None else health_port,
        metrics_port=usual.metrics_port if metrics_port is None else metrics_port,
        metrics_per_service=metrics_per_service,
        workers=workers,
        connections=connections,
        waves=readable("--waves", read(waves)),
        bake=readable("--bake", read_bake(bake)),
        max_concurrent_services=max_concurrent_services,
        lint_refuse=lint_refuse,
        router_watch=router_watch,
        well_known_models=well_known_models,
        benchmark_image=benchmark_image,
        tools_image=tools_image,
        recorder_bytes=recorder_memory * 2**20,
        log_format=log_format,
        log_level=log_level,
    )
    try:
        raise typer.Exit(uvloop.run(run(settings)))
    except NoConnection as error:
        raise UserError(f"no connection to a cluster: {error}. --kubeconfig names another file.") from error
    except PortTaken as error:
        raise UserError(f"{error}. --health-port and --metrics-port choose others.") from error


def without(sidecar_image: str, tools_image: str) -> list[str]:
    """What is off because no image of ours was named: there is none that everybody can pull."""
    said = []
    if not sidecar_image:
        said.append("no --sidecar-image: routers have no registry beside them")
    if not tools_image:
        said.append("no --tools-image: BenchmarkJobs are refused")
    return said


def namespaces(named: Sequence[str], cluster_wide_kinds: bool) -> tuple[str, ...]:
    """The namespaces to work in, if they can be namespaces."""
    for each in named:
        if not re.fullmatch(NAME, each) or len(each) > 63:
            raise UserError(f"--watch-namespace={each}: write the name of a namespace, and the option once for each.")
    if not cluster_wide_kinds and not named:
        raise UserError("--no-cluster-wide-kinds needs --watch-namespace: it works in its namespaces alone.")
    return tuple(dict.fromkeys(named))


def a_class(written: str) -> str:
    """The class, if it can be a part of names."""
    if written and (not re.fullmatch(NAME, written) or len(written) > 30):
        raise UserError(f"--operator-class={written}: write at most 30 of a-z, 0-9 and -, such as team-b.")
    return written


def readable(option: str, found: T | Invalid) -> T:
    """What was written there."""
    if isinstance(found, Invalid):
        raise UserError(f"{option}: {found.why}")
    return found


def exposed(kind: str, gateway: str) -> str:
    """The kind, if there is such a kind and it has what it needs."""
    if kind not in ("", "Ingress", "HTTPRoute"):
        raise UserError(f"--expose={kind}: write Ingress or HTTPRoute, or leave it out.")
    if kind == "HTTPRoute" and not all(gateway.partition("/")):
        raise UserError("--expose=HTTPRoute needs --gateway=NAMESPACE/NAME.")
    return kind
