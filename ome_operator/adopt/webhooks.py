"""Remove OME's admission webhooks. When OME's controller is stopped, these webhooks reject all writes of services and of
their pods.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

from ome_operator import keys
from ome_operator.adopt.steps import StepReporter
from ome_operator.kube.client import Client

CONFIGURATIONS = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")


async def remove(client: Client, steps: StepReporter, yes: bool) -> None:
    """Remove OME's webhook configurations whose server is not running.

    Each configuration is removed completely, because OME's webhook for pods is in the configuration for services, and would
    reject this operator's pods. A configuration with another name than OME's may be a policy of the cluster whose server is
    down at the moment, so its removal requires `yes`.
    """
    found = False
    for kind in CONFIGURATIONS:
        for live in await client.list_objects(kind):
            if not _for_ome(live):
                continue
            found, name, uid = True, live["metadata"]["name"], live["metadata"]["uid"]
            running = [target for target in _targets(live) if await _answers(client, target)]
            if running:
                steps.report_open_problem(
                    f"{kind} {name} is served by {', '.join(running)}: stop it, and run this command again"
                )
                continue
            description = f"remove {kind} {name}: its server does not run, so it rejects writes"
            if not (yes or name.endswith(f".{keys.GROUP}") or steps.dry_run):
                steps.report_open_problem(
                    f"{description}. Its name is not one of OME's: if it is not a policy of your own, pass --yes"
                )
                continue
            await steps.change(description, partial(client.delete, kind, "", name, uid))
    if not found:
        steps.report_unchanged(f"no admission webhooks for {keys.GROUP}")


def _for_ome(live: Mapping[str, Any]) -> bool:
    return any(
        keys.GROUP in (rule.get("apiGroups") or ()) for one in live.get("webhooks") or () for rule in one.get("rules") or ()
    )


def _targets(live: Mapping[str, Any]) -> list[str]:
    """Return the Services (`namespace/name`) or URLs to which a webhook configuration sends its requests."""
    targets = []
    for webhook in live.get("webhooks") or ():
        config = webhook["clientConfig"]
        service = config.get("service")
        targets.append(f"{service['namespace']}/{service['name']}" if service else config.get("url", ""))
    return list(dict.fromkeys(targets))


async def _answers(client: Client, target: str) -> bool:
    """Return whether a Service has a ready endpoint. For a URL, return true, because its state cannot be determined."""
    if "://" in target:
        return True
    namespace, name = target.split("/")
    slices = await client.list_objects("EndpointSlice", namespace, label_selector=f"kubernetes.io/service-name={name}")
    ready = [
        (endpoint.get("conditions") or {}).get("ready")
        for endpoint_slice in slices
        for endpoint in endpoint_slice.get("endpoints") or ()
    ]
    return any(endpoint is not False for endpoint in ready)
