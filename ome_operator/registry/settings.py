"""The settings of a registry, from its command line. Each option of `ome registry` is declared once, as a field that is
annotated with an `Option`.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from ome_operator import keys
from ome_operator.registry.clients import SERVICE_ACCOUNT
from ome_operator.registry.records import RegistrySettings
from ome_operator.settings.option import HIGHEST_PORT, HTTP_URL, LOG_FORMATS, LOG_LEVELS, Option


@dataclass(frozen=True, kw_only=True)
class SidecarSettings:
    """All options of `ome registry`, in the order of its flags. A field without a default is a flag that must be set."""

    router: Annotated[str, Option(flag="--router", help="Address of the router.")]
    """It is not validated, because the operator derives it from the arguments of the router, which may name variables of a
    shell. A registry that cannot reach its router must not keep the pod from becoming ready."""
    namespace: Annotated[str, Option(flag="--namespace", help="Namespace of the pods.")]
    selector: Annotated[
        str,
        Option(
            flag="--selector", help="Label selector of the pods that the router may use, in the syntax of the API server."
        ),
    ]
    """It selects the pods of the router's slice (one revision of the service)."""
    registry: RegistrySettings
    interval: Annotated[
        float, Option(flag="--interval", help="Seconds between two requests for the list of pods.", ge=0.1, le=5.0)
    ] = 3.0
    """A dead worker must be removed within 10 s, including probe and removal."""
    key: Annotated[
        str,
        Option(
            flag="--key",
            help="API key for /workers of the router, and for /workers of this registry.",
            env=keys.ROUTER_KEY_VARIABLE,
        ),
    ] = ""
    """It is "" if they require none."""
    worker_key: Annotated[str, Option(flag="--worker-key", help="API key that the router sends to its workers.")] = ""
    """It is "" if the router sends none."""
    router_metrics: Annotated[
        str, Option(flag="--router-metrics", help="Address of the router's metrics; empty: they are not read.")
    ] = f"http://127.0.0.1:{keys.ROUTER_METRICS_PORT}/metrics"
    server: Annotated[
        str,
        Option(
            flag="--server",
            help="Address of the API server; by default that of the cluster this pod runs in.",
            pattern=f"({HTTP_URL})?",
            fix="write a URL such as https://10.96.0.1:443.",
        ),
    ] = ""
    account: Annotated[Path, Option(flag="--account", help="Folder with the files token and ca.crt.")] = SERVICE_ACCOUNT
    """It contains the token of the pod's ServiceAccount."""
    address: Annotated[str, Option(flag="--address", help="Address that the probes listen on; empty: every address.")] = ""
    port: Annotated[
        int,
        Option(
            flag="--port",
            help="Port of /healthz, /metrics, /summary and /workers; 0: a free port.",
            ge=0,
            le=HIGHEST_PORT,
        ),
    ] = keys.REGISTRY_PORT
    answer_port: Annotated[
        int,
        Option(
            flag="--answer-port",
            help="Port on which requests are answered with 503 while no engine runs; 0: a free port.",
            ge=0,
            le=HIGHEST_PORT,
        ),
    ] = keys.ANSWER_PORT
    log_format: Annotated[
        str, Option(flag="--log-format", help="Format of the log: console or json.", choices=LOG_FORMATS)
    ] = "json"
    log_level: Annotated[
        str,
        Option(flag="--log-level", help="Lowest level that is logged: DEBUG, INFO, WARNING or ERROR.", choices=LOG_LEVELS),
    ] = "INFO"
