"""Settings of a KEDA ScaledObject, from `autoscaler.keda` of a component or from OME's older form `kedaConfig`."""

import json
from typing import Any, NamedTuple

from ome_operator.api import KedaConfig
from ome_operator.api.scaling import Keda


class KedaSettings(NamedTuple):
    """The settings that users write for the ScaledObject of a component."""

    triggers: tuple[dict[str, Any], ...] = ()
    more: tuple[tuple[str, Any], ...] = ()
    """Other fields of the ScaledObject's spec."""
    incomplete: bool = False
    """Whether `kedaConfig` lacks a field that a trigger needs, so that it results in no trigger."""


NO_KEDA = KedaSettings()


def keda_settings(keda: Keda | None, config: KedaConfig | None) -> KedaSettings:
    """Return the settings of a component. `kedaConfig` is used if `autoscaler.keda` has no triggers."""
    more = {
        "pollingInterval": keda.polling_interval,
        "cooldownPeriod": keda.cooldown_period,
        "fallback": keda.fallback,
        "advanced": keda.advanced,
    } if keda else {}  # fmt: skip
    given = tuple((name, value) for name, value in more.items() if value is not None)
    if keda and keda.triggers:
        return KedaSettings(tuple(_complete(dict(one)) for one in keda.triggers), given)
    if config is None or config.enable_keda is False:
        return KedaSettings((), given)
    if not (config.prom_server_address and config.custom_prom_query and config.scaling_threshold):
        return KedaSettings((), given, incomplete=True)
    return KedaSettings((_complete(_trigger(config)),), given)


def _trigger(config: KedaConfig) -> dict[str, Any]:
    metadata = {
        "serverAddress": config.prom_server_address,
        "query": config.custom_prom_query,
        "threshold": config.scaling_threshold,
    }
    trigger: dict[str, Any] = {"type": "prometheus", "metadata": metadata}
    if config.auth_modes:
        metadata["authModes"] = config.auth_modes
    reference = config.authentication_ref
    if reference and reference.name:
        trigger["authenticationRef"] = {"name": reference.name, "kind": reference.kind or "TriggerAuthentication"}
    return trigger


def _complete(trigger: dict[str, Any]) -> dict[str, Any]:
    """Return a KEDA trigger with all values of its metadata as strings, because the API server refuses other values. With a
    trigger of type prometheus, KEDA reports an error if the query has an empty or infinite result, unless the user sets
    `ignoreNullValues`. By default KEDA would read such a result as no load.
    """
    metadata = trigger.get("metadata")
    if not isinstance(metadata, dict):
        return trigger
    texts = {name: value if isinstance(value, str) else json.dumps(value) for name, value in metadata.items()}
    if trigger.get("type") == "prometheus":
        texts.setdefault("ignoreNullValues", "false")
    return {**trigger, "metadata": texts}
