"""`ome operator`: run the operator. In a cluster, the Deployment of the chart runs this command.

The flags of the command and the keys of its configuration file are derived from the declarations in `ome_operator/settings`.
"""

import logging
import secrets
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
import uvloop

from ome_operator.api import Invalid, well_known
from ome_operator.cli import config_file
from ome_operator.cli.declared import Readers, Where, read_values, with_flags
from ome_operator.cli.options import parse_roots
from ome_operator.core.waves.terms import parse_waves, read_bake
from ome_operator.errors import InvalidOption, UserError
from ome_operator.kube.connection import NoConnection, pod_namespace
from ome_operator.machinery.health import PortTaken
from ome_operator.settings import Settings
from ome_operator.settings.option import Declared, build_settings_object, options

_OPTIONS = tuple(options(Settings))
_BY_KEY = {declared.key: declared for declared in _OPTIONS}
_FLAGS = {declared.path[-1]: declared.option.flag for declared in _OPTIONS}
_MINE = {"address": "127.0.0.1", "health_port": 18081, "metrics_port": 18080}
"""Defaults of an operator that runs with --kubeconfig, usually on a developer's machine. The operator then listens on
localhost only. It does not use port 8080, because a port-forward to a service usually listens there."""
logger = logging.getLogger(__name__)

app = typer.Typer(add_completion=False, rich_markup_mode=None)


def _from_file(context: typer.Context, path: Path | None) -> Path | None:
    """Make the values in the configuration file at `path` the defaults of the flags, and return `path`. `path` is None if no
    file was named.
    """
    if path is not None and not context.resilient_parsing:
        found = config_file.read_config_file(path, _BY_KEY)
        context.default_map = {_BY_KEY[key].parameter: value for key, value in found.items()}
    return path


_CONFIG = typer.Option(
    help="YAML file with options. Its keys are the names of the options without the dashes.",
    is_eager=True,
    callback=_from_file,
)


@app.command(epilog="Example: ome operator --kubeconfig ome-operator.kubeconfig --sidecar-image REGISTRY/ome-operator:TAG")
@with_flags(_OPTIONS)
def operator(ctx: typer.Context, config: Annotated[Path | None, _CONFIG] = None, **given: Any) -> None:
    """Run the operator until it is stopped (SIGTERM, Ctrl+C).

    Flags take precedence over environment variables, environment variables over the file of --config, and that file over
    the defaults.
    """
    from ome_operator.app import run  # loads kopf and kubernetes, which no other command needs
    from ome_operator.util.log_format import configure

    def where(declared: Declared) -> str:
        source = ctx.get_parameter_source(declared.parameter)
        in_file = source is not None and source.name == "DEFAULT_MAP"
        return f"{config}: {declared.key}" if in_file else declared.option.flag

    settings = build_settings(given, where)
    configure(settings.log_format, settings.log_level)
    for sentence in missing_image_features(settings.policy.registry_image, settings.tools_image):
        logger.info("%s", sentence)
    try:
        raise typer.Exit(uvloop.run(run(settings)))
    except NoConnection as error:
        raise UserError(f"no connection to a cluster: {error}. Pass another file with --kubeconfig.") from error
    except PortTaken as error:
        raise UserError(
            f"{error}. Choose other ports with --health-port and --metrics-port, or another --address."
        ) from error


def _valid(parse: Callable[[str], Any]) -> Callable[[str], Any]:
    """Return a function that raises ValueError where `parse` returns Invalid."""

    def read(text: str) -> Any:
        if isinstance(found := parse(text), Invalid):
            raise ValueError(found.why)
        return found

    return read


_READERS: Readers = {"waves": _valid(parse_waves), "bake": _valid(read_bake), "agent_roots": parse_roots}


def build_settings(given: Mapping[str, Any], where: Where) -> Settings:
    """Return the settings for the values of the flags. `given` maps the parameter name of each option to its value, or to
    None if the option is not set. Raises InvalidOption for an invalid value or combination.
    """
    values = read_values(_OPTIONS, given, _READERS, where)
    usual = _MINE if given["kubeconfig"] is not None else {}
    values = {(name,): value for name, value in usual.items()} | values
    values["identity",] = values.get(("identity",)) or f"{socket.gethostname()}-{secrets.token_hex(4)}"
    own = values.get(("lease_namespace",)) or pod_namespace(Settings.lease_namespace)
    values["lease_namespace",] = own
    values["policy", "policies_from"] = own if values["policy", "policies_from"] else ""
    settings: Settings = build_settings_object(Settings, values)
    _check_together(settings, {declared.path[-1]: where(declared) for declared in _OPTIONS})
    return settings


def _check_together(settings: Settings, where: Mapping[str, str]) -> None:
    """Raise InvalidOption if an option requires another option that is not set, or if the list of well-known models is
    invalid.
    """
    policy, exposure = settings.policy, settings.policy.exposure
    if not policy.sees_cluster and not settings.watch_namespaces:
        negated = "--no-cluster-wide-kinds" if where["sees_cluster"] == _FLAGS["sees_cluster"] else where["sees_cluster"]
        raise InvalidOption(f"{negated} requires --watch-namespace: name the namespaces in which the operator works.")
    if exposure.kind == "HTTPRoute" and not all(exposure.gateway.partition("/")):
        raise InvalidOption(f"{where['kind']}=HTTPRoute needs --gateway=NAMESPACE/NAME.")
    if isinstance(found := well_known.load_selected(settings.well_known_models), Invalid):
        raise InvalidOption(f"{where['well_known_models']}: {found.why}")


def missing_image_features(sidecar_image: str, tools_image: str) -> list[str]:
    """Return a sentence for each feature that is off because its image is not set. Images have no default, because none of
    them is published.
    """
    found = []
    if not sidecar_image:
        found.append("--sidecar-image is not set, so routers run without the registry sidecar")
    if not tools_image:
        found.append("--tools-image is not set, so the operator refuses BenchmarkJobs")
    return found
