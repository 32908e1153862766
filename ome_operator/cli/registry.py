"""`ome registry`: the worker registry beside a router. The operator adds it to the router's pods."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from ome_operator import keys
from ome_operator.cli.options import LogFormat, LogLevel
from ome_operator.errors import UserError
from ome_operator.machinery.health import PortTaken
from ome_operator.registry.clients import SERVICE_ACCOUNT, api_server
from ome_operator.registry.loop import SidecarSettings, run
from ome_operator.registry.reconcile import RegistrySettings, RoleSpec

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command(
    epilog="Example: ome registry --router http://127.0.0.1:8080 --namespace team "
    "--selector ome.io/inferenceservice=kimi-k2 --role engine:regular:30000:1:kimi-k2-engine-5f4d"
)
def registry(
    router: Annotated[str, typer.Option(help="Address of the router.")],
    namespace: Annotated[str, typer.Option(help="Namespace of the pods.")],
    selector: Annotated[str, typer.Option(help="Labels of the slice's pods, as the API server reads them.")],
    role: Annotated[
        list[str],
        typer.Option(
            help="component:type:port:pods:stem, for example engine:prefill:30000:4:kimi-k2-engine-5f4d, where the stem is "
            "what names of its StatefulSets begin with. May be given several times."
        ),
    ],
    bootstrap_port: Annotated[int, typer.Option(help="Of prefill pods without an annotation.")] = 8998,
    interval: Annotated[float, typer.Option(help="Seconds between two lists of pods.", min=0.1, max=5.0)] = 3.0,
    key: Annotated[
        str, typer.Option(help="What the router's /workers wants to see, and ours.", envvar=keys.ROUTER_KEY_VARIABLE)
    ] = "",
    worker_key: Annotated[str, typer.Option(help="What the router shows its workers.")] = "",
    server: Annotated[str, typer.Option(help="API server; by default that of the cluster we run in.")] = "",
    account: Annotated[Path, typer.Option(help="Folder with the files token and ca.crt.")] = SERVICE_ACCOUNT,
    address: Annotated[str, typer.Option(help="Address of the probes; empty: every address.")] = "",
    port: Annotated[int, typer.Option(help="/healthz, /metrics and /workers; 0: a free port.")] = keys.REGISTRY_PORT,
    log_format: LogFormat = "json",
    log_level: LogLevel = "INFO",
) -> None:
    """Keep a router's workers equal to the groups that can serve, until the router is gone."""
    from ome_operator.util.log_format import configure

    configure(log_format, log_level)
    settings = SidecarSettings(
        router=router,
        server=server or api_server(),
        namespace=namespace,
        selector=selector,
        registry=RegistrySettings(tuple(_role(one) for one in role), bootstrap_port),
        key=key,
        worker_key=worker_key,
        interval=interval,
        account=account,
        address=address,
        port=port,
    )
    if not settings.server:
        raise UserError("no API server: outside a cluster --server names one.")
    try:
        asyncio.run(run(settings))
    except PortTaken as error:
        raise UserError(f"{error}. --port chooses another.") from error


def _role(text: str) -> RoleSpec:
    component, worker_type, port, pods, stem = (text.split(":") + [""] * 5)[:5]
    types = ("prefill", "decode", "regular")
    if worker_type not in types or not (port.isdigit() and pods.isdigit() and stem) or text.count(":") != 4:
        raise typer.BadParameter(
            f"--role {text}: component:type:port:pods:stem, where type is prefill, decode or regular", param_hint="--role"
        )
    return RoleSpec(component, worker_type, int(port), int(pods), stem)
