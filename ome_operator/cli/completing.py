"""Completion: names of services for shells, and the protocol in which kubectl asks its plugins."""

import contextlib
import io
import os
import shlex
import sys
from pathlib import Path

import typer

PATIENCE = 5.0
"""Seconds that a person waits for names from a cluster that is far away."""


def services(ctx: typer.Context, incomplete: str) -> list[str]:
    """InferenceServices that begin so; none when the cluster does not answer soon."""
    import asyncio

    import ome_operator.kube.client  # noqa: F401  (loaded before the clock starts)

    asked = ctx.params
    kubeconfig = asked.get("kubeconfig") or os.environ.get("KUBECONFIG")
    try:
        names = _services(kubeconfig, asked.get("context"), asked.get("namespace") or "", incomplete)
        return asyncio.run(asyncio.wait_for(names, PATIENCE))
    except Exception:  # completion has nobody to complain to
        return []


async def _services(kubeconfig: str | Path | None, context: str | None, namespace: str, begin: str) -> list[str]:
    from ome_operator.cli.connect import inside, opened

    async with opened(Path(kubeconfig) if kubeconfig else None, context) as client:
        found = await client.list_metadata("InferenceService", inside(client, namespace))
    return sorted(one["name"] for one in found if one["name"].startswith(begin))


def kubectl() -> None:
    """`kubectl_complete-ome WORDS…`: candidates for the last word, one a line, then cobra's directive.

    kubectl runs this program for `kubectl ome <Tab>`. Candidates are those of fish, which look as cobra's do.
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
    print(":4")  # no file names
