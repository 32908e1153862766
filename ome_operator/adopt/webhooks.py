"""OME's admission webhooks: without OME's controller they refuse every write of services, and every pod of a service."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from ome_operator import keys
from ome_operator.adopt.steps import Steps
from ome_operator.kube.client import Client

CONFIGURATIONS = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")


async def remove(client: Client, steps: Steps) -> None:
    """Remove the configurations for kinds of `ome.io` that nobody answers.

    A configuration goes whole: OME's webhook for pods is in the one for services, and would refuse our pods.
    """
    found = False
    for kind in CONFIGURATIONS:
        for live in await client.list_objects(kind):
            if not _for_ome(live):
                continue
            found, name, uid = True, live["metadata"]["name"], live["metadata"]["uid"]
            answered = [one for one in _targets(live) if await _answers(client, one)]
            if answered:
                steps.leave(f"{kind} {name} is answered by {', '.join(answered)}: stop that, and run this command again")
                continue
            what = f"remove {kind} {name}: nobody answers it, so it refuses writes"
            await steps.change(what, partial(client.delete, kind, "", name, uid))
    if not found:
        steps.fine(f"no admission webhooks for {keys.GROUP}")


def _for_ome(live: Mapping[str, Any]) -> bool:
    return any(
        keys.GROUP in (rule.get("apiGroups") or ()) for one in live.get("webhooks") or () for rule in one.get("rules") or ()
    )


def _targets(live: Mapping[str, Any]) -> list[str]:
    """`namespace/name` of the Services behind a configuration, or the URL."""
    out = []
    for one in live.get("webhooks") or ():
        config = one["clientConfig"]
        service = config.get("service")
        out.append(f"{service['namespace']}/{service['name']}" if service else config.get("url", ""))
    return list(dict.fromkeys(out))


async def _answers(client: Client, target: str) -> bool:
    """Whether a Service has a ready endpoint; a URL counts as answered, for we cannot know."""
    if "://" in target:
        return True
    namespace, name = target.split("/")
    slices = await client.list_objects("EndpointSlice", namespace, label_selector=f"kubernetes.io/service-name={name}")
    ready = [(one.get("conditions") or {}).get("ready") for part in slices for one in part.get("endpoints") or ()]
    return any(one is not False for one in ready)
