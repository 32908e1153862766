"""`ome registry`: keeps the worker list of a router equal to the pods that can serve. The operator runs this command in a
sidecar of the router.
"""

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from ome_operator import keys, quantity
from ome_operator.cli.options import LogFormat, LogLevel
from ome_operator.errors import UserError
from ome_operator.machinery.health import PortTaken
from ome_operator.registry.clients import SERVICE_ACCOUNT, api_server
from ome_operator.registry.loop import SidecarSettings, run
from ome_operator.registry.records import RegistrySettings, RoleSpec

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command(
    epilog="Example: ome registry --router http://127.0.0.1:8080 --namespace team "
    "--selector ome.io/inferenceservice=kimi-k2 --role engine:regular:30000:1:kimi-k2-engine-5f4d"
)
def registry(
    router: Annotated[str, typer.Option(help="Address of the router.")],
    namespace: Annotated[str, typer.Option(help="Namespace of the pods.")],
    selector: Annotated[
        str, typer.Option(help="Label selector of the pods that the router may use, in the syntax of the API server.")
    ],
    role: Annotated[
        list[str],
        typer.Option(
            help="component:type:port:pods:stem, for example engine:prefill:30000:4:kimi-k2-engine-5f4d, where stem is the "
            "prefix of the names of its StatefulSets. May be given several times."
        ),
    ],
    bootstrap_port: Annotated[int, typer.Option(help="Bootstrap port of prefill pods without an annotation.")] = 8998,
    interval: Annotated[
        float, typer.Option(help="Seconds between two requests for the list of pods.", min=0.1, max=5.0)
    ] = 3.0,
    key: Annotated[
        str,
        typer.Option(
            help=("API key for /workers of the router, and for /workers of this registry."), envvar=keys.ROUTER_KEY_VARIABLE
        ),
    ] = "",
    worker_key: Annotated[str, typer.Option(help="API key that the router sends to its workers.")] = "",
    router_metrics: Annotated[
        str, typer.Option(help="Address of the router's metrics; empty: they are not read.")
    ] = f"http://127.0.0.1:{keys.ROUTER_METRICS_PORT}/metrics",
    server: Annotated[
        str, typer.Option(help="Address of the API server; by default that of the cluster this pod runs in.")
    ] = "",
    account: Annotated[Path, typer.Option(help="Folder with the files token and ca.crt.")] = SERVICE_ACCOUNT,
    address: Annotated[str, typer.Option(help="Address that the probes listen on; empty: every address.")] = "",
    port: Annotated[
        int, typer.Option(help="Port of /healthz, /metrics, /summary and /workers; 0: a free port.")
    ] = keys.REGISTRY_PORT,
    answer_port: Annotated[
        int, typer.Option(help="Port on which requests are answered with 503 while no engine runs; 0: a free port.")
    ] = keys.ANSWER_PORT,
    log_format: LogFormat = "json",
    log_level: LogLevel = "INFO",
) -> None:
    """Keep the worker list of a router equal to the groups of pods that can serve, until the router ends."""
    from ome_operator.util.log_format import configure

    configure(log_format, log_level)
    settings = SidecarSettings(
        router=router,
        server=server or api_server(),
        namespace=namespace,
        selector=selector,
        registry=RegistrySettings(tuple(_role(item) for item in role), bootstrap_port),
        key=key,
        worker_key=worker_key,
        router_metrics=router_metrics,
        interval=interval,
        account=account,
        address=address,
        port=port,
        answer_port=answer_port,
    )
    if not settings.server:
        raise UserError("the address of the API server is not known: outside a cluster, pass it with --server.")
    try:
        asyncio.run(run(settings))
    except PortTaken as error:
        raise UserError(f"{error}. Choose another port with --port.") from error


def _role(text: str) -> RoleSpec:
    component, worker_type, port, pods, stem = (text.split(":") + [""] * 5)[:5]
    types = ("prefill", "decode", "regular")
    listens, ranks = quantity.whole_number(port), quantity.whole_number(pods)
    if worker_type not in types or listens is None or ranks is None or not stem or text.count(":") != 4:
        raise typer.BadParameter(
            f"--role {text}: write component:type:port:pods:stem, where type is prefill, decode or regular",
            param_hint="--role",
        )
    return RoleSpec(component, worker_type, listens, ranks, stem)
