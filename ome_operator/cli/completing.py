"""The argument SERVICE and the completion of its value by shells, and the program that kubectl runs to complete arguments of
`kubectl ome`.
"""

import contextlib
import io
import os
import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

PATIENCE = 5.0
"""Seconds that completion waits for the cluster."""


def services(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the names of InferenceServices that start with `incomplete`. Return an empty list if the cluster cannot be read
    within PATIENCE.
    """
    import asyncio

    import ome_operator.kube.client  # noqa: F401  (loaded before the clock starts)

    asked = ctx.params
    kubeconfig = asked.get("kubeconfig") or os.environ.get("KUBECONFIG")
    try:
        names = _services(kubeconfig, asked.get("context"), asked.get("namespace") or "", incomplete)
        return asyncio.run(asyncio.wait_for(names, PATIENCE))
    except Exception:  # completion has no way to report an error
        return []


Service = Annotated[str, typer.Argument(metavar="SERVICE", show_default=False, autocompletion=services)]
OptionalService = Annotated[str, typer.Argument(metavar="[SERVICE]", show_default=False, autocompletion=services)]


async def _services(kubeconfig: str | Path | None, context: str | None, namespace: str, begin: str) -> list[str]:
    from ome_operator.cli.connect import namespace_or_default, open_client

    async with open_client(Path(kubeconfig) if kubeconfig else None, context) as client:
        found = await client.list_metadata("InferenceService", namespace_or_default(client, namespace))
    return sorted(item["name"] for item in found if item["name"].startswith(begin))


def kubectl() -> None:
    """Run `kubectl_complete-ome WORDS…`: print the candidates for the last word, one per line, and then a cobra
    directive.

    kubectl runs this program for `kubectl ome <Tab>`. Cobra and the fish shell use the same format for candidates.
    """
    from ome_operator.cli.app import app

    fish = {"_OME_COMPLETE": "complete_fish", "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    os.environ |= {**fish, "_TYPER_COMPLETE_ARGS": shlex.join(["ome", *sys.argv[1:]])}
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.suppress(SystemExit):
        app(prog_name="ome")
    for line in said.getvalue().splitlines():
        if line:
            print(line)
    print(":4")  # directive 4: do not complete file names
