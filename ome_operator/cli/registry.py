"""`ome registry`: keeps the worker list of a router equal to the pods that can serve. The operator runs this command in a
sidecar of the router.
"""

import asyncio
from dataclasses import replace
from typing import Any

import typer

from ome_operator import quantity
from ome_operator.cli.declared import read_values, with_flags
from ome_operator.errors import UserError
from ome_operator.machinery.health import PortTaken
from ome_operator.registry.clients import api_server
from ome_operator.registry.loop import run
from ome_operator.registry.records import RoleSpec
from ome_operator.registry.settings import SidecarSettings
from ome_operator.settings.option import build_settings_object, options

app = typer.Typer(add_completion=False, rich_markup_mode=None)
_OPTIONS = tuple(options(SidecarSettings))


@app.command(
    epilog="Example: ome registry --router http://127.0.0.1:8080 --namespace team "
    "--selector ome.io/inferenceservice=kimi-k2 --role engine:regular:30000:1:kimi-k2-engine-5f4d"
)
@with_flags(_OPTIONS)
def registry(**given: Any) -> None:
    """Keep the worker list of a router equal to the groups of pods that can serve, until the router ends."""
    from ome_operator.util.log_format import configure

    chosen: SidecarSettings = build_settings_object(SidecarSettings, read_values(_OPTIONS, given, {"roles": _roles}))
    configure(chosen.log_format, chosen.log_level)
    settings = replace(chosen, server=chosen.server or api_server())
    if not settings.server:
        raise UserError("the address of the API server is not known: outside a cluster, pass it with --server.")
    try:
        asyncio.run(run(settings))
    except PortTaken as error:
        raise UserError(f"{error}. Choose another port with --port, or another address with --address.") from error


def _roles(given: list[str]) -> tuple[RoleSpec, ...]:
    return tuple(map(_role, given))


def _role(text: str) -> RoleSpec:
    component, worker_type, port, pods, stem = (text.split(":") + [""] * 5)[:5]
    types = ("prefill", "decode", "regular")
    listens, ranks = quantity.whole_number(port), quantity.whole_number(pods)
    if worker_type not in types or listens is None or ranks is None or not stem or text.count(":") != 4:
        raise typer.BadParameter(
            f"--role {text} has the wrong form: write component:type:port:pods:stem, where type is prefill, decode or "
            "regular",
            param_hint="--role",
        )
    return RoleSpec(component, worker_type, listens, ranks, stem)
