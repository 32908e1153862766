"""What has to be known before the operator watches anything: as whom it works, and which kinds the cluster serves."""

import asyncio
import logging

from ome_operator import keys
from ome_operator.cache.cluster_cache import KINDS
from ome_operator.cache.resources import SHORT
from ome_operator.errors import UserError
from ome_operator.kube.client import Client
from ome_operator.kube.errors import KubeError, Transient
from ome_operator.kube.resources import RESOURCES, SHORT_API
from ome_operator.settings import Settings

logger = logging.getLogger(__name__)


async def introduce(client: Client, settings: Settings) -> None:
    """Say as whom the operator works: the chart gives its rights, and binds by its policies, a single account."""
    while True:
        try:
            user = await client.who()
        except Transient as error:
            logger.warning("cannot ask as whom we work: %s", error)
            await asyncio.sleep(5.0)
            continue
        except KubeError as error:
            logger.warning("nobody can say as whom we work: %s", error)
            return
        own = f"{settings.lease_namespace}/{settings.own_name}"
        if user == f"system:serviceaccount:{own.replace('/', ':')}":
            logger.info("working as %s", user)
        else:
            logger.warning(
                "working as %s, with all the rights of that user: the chart's policies bind the ServiceAccount %s alone, "
                "of which `ome kubeconfig --serviceaccount %s` makes a kubeconfig", user, own, own,
            )  # fmt: skip
        return


async def short_kinds(client: Client) -> tuple[str, ...]:
    """The kinds of sglang.ai that this cluster has; CRDs that come later are found by the next process."""
    served = await client.served(SHORT_API)
    return tuple(kind for kind in SHORT if RESOURCES[kind].plural in served)


async def exposed(client: Client, kind: str) -> tuple[str, ...]:
    """The kind that leads to services from outside. Raises UserError where the cluster does not know it."""
    if kind and RESOURCES[kind].plural not in await client.served(RESOURCES[kind].api_version):
        version = RESOURCES[kind].api_version
        raise UserError(
            f"the cluster has no {kind} of {version}: install its CRDs, or set exposure.kind of the chart to none"
        )
    return (kind,) if kind else ()


async def kinds_served(client: Client) -> None:
    """Wait for our CRDs: a kind that is not served cannot be watched."""
    wanted = {RESOURCES[kind].plural for kind in KINDS if RESOURCES[kind].api_version == keys.API_VERSION}
    said: frozenset[str] = frozenset()
    while True:
        try:
            missing = frozenset(wanted - await client.served(keys.API_VERSION))
        except KubeError as error:
            logger.warning("cannot ask which kinds are served: %s", error)
        else:
            if not missing:
                return
            if missing != said:
                logger.warning("waiting for CRDs of %s: %s (install the chart ome-crd)", keys.GROUP, sorted(missing))
            said = missing
        await asyncio.sleep(2.0)
