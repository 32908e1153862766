"""Options of the commands that run in a pod until they are stopped."""

from pathlib import Path
from typing import Annotated

import typer

Kubeconfig = Annotated[
    Path | None, typer.Option(help="Kubeconfig file. Without it: the ServiceAccount of this pod.", envvar="KUBECONFIG")
]
LogFormat = Annotated[str, typer.Option(help="console or json.")]
LogLevel = Annotated[str, typer.Option(help="DEBUG, INFO, WARNING or ERROR.")]
