"""Checks before the operator watches anything: as which user the operator works, and which kinds the cluster serves."""

import asyncio
import logging

from ome_operator import keys
from ome_operator.cache.cluster_cache import KINDS
from ome_operator.cache.resources import SHORT
from ome_operator.errors import UserError
from ome_operator.kube.client import Client
from ome_operator.kube.errors import Forbidden, KubeError, Transient
from ome_operator.kube.resources import RESOURCES, SHORT_API
from ome_operator.settings import Settings

logger = logging.getLogger(__name__)


async def log_identity(client: Client, settings: Settings) -> None:
    """Log the user that the operator works as. The chart grants rights to a single ServiceAccount, and its admission
    policies apply only to that account.
    """
    while True:
        try:
            user = await client.authenticated_user()
        except Transient as error:
            logger.warning("cannot read the identity of this operator: %s", error)
            await asyncio.sleep(5.0)
            continue
        except KubeError as error:
            logger.warning("the identity of this operator is unknown: %s", error)
            return
        own = f"{settings.lease_namespace}/{settings.own_name}"
        if user == f"system:serviceaccount:{own.replace('/', ':')}":
            logger.info("working as %s", user)
        else:
            logger.warning(
                "working as %s, with all rights of this user: the chart's policies apply only to the ServiceAccount %s. "
                "`ome kubeconfig --serviceaccount %s` makes a kubeconfig for it", user, own, own,
            )  # fmt: skip
        return


async def short_kinds(client: Client) -> tuple[str, ...]:
    """Return the kinds of sglang.ai that this cluster serves. If their CRDs are installed later, the operator uses them only
    after a restart.
    """
    served = await client.served_plurals(SHORT_API)
    return tuple(kind for kind in SHORT if RESOURCES[kind].plural in served)


async def exposed_kinds(client: Client, kind: str) -> tuple[str, ...]:
    """Return `kind`, the kind of objects that expose services outside of the cluster, as a tuple; () if it is "". Raises
    UserError if the cluster does not serve the kind.
    """
    if kind and RESOURCES[kind].plural not in await client.served_plurals(RESOURCES[kind].api_version):
        version = RESOURCES[kind].api_version
        raise UserError(
            f"the cluster has no {kind} of {version}: install its CRDs, or set exposure.kind of the chart to none"
        )
    return (kind,) if kind else ()


async def scaled_objects(client: Client, settings: Settings) -> bool:
    """Return whether the operator creates ScaledObjects of KEDA: its settings say so, the cluster serves the kind, and the
    operator may list its objects. If KEDA is installed later, the operator uses it only after a restart.
    """
    if not settings.policy.keda:
        return False
    resource = RESOURCES["ScaledObject"]
    if resource.plural not in await client.served_plurals(resource.api_version):
        logger.warning(
            "the cluster has no ScaledObject of %s, so the operator creates none: install KEDA", resource.api_version
        )
        return False
    try:
        for place in settings.watch_namespaces or ("",):
            await client.list_metadata("ScaledObject", place, label_selector=f"{keys.MANAGED_BY}={keys.MANAGER}")
    except Forbidden as error:
        logger.warning(
            "the operator creates no ScaledObject, because it may not list them (keda.enabled of the chart "
            "grants the right): %s",
            error,
        )
        return False
    return True


async def kinds_served(client: Client) -> None:
    """Wait until the operator's CRDs are served, because a kind that is not served cannot be watched."""
    wanted = {RESOURCES[kind].plural for kind in KINDS if RESOURCES[kind].api_version == keys.API_VERSION}
    logged: frozenset[str] = frozenset()
    while True:
        try:
            missing = frozenset(wanted - await client.served_plurals(keys.API_VERSION))
        except KubeError as error:
            logger.warning("cannot read which kinds the API server serves: %s", error)
        else:
            if not missing:
                return
            if missing != logged:
                logger.warning("waiting for CRDs of %s: %s (install the chart ome-crd)", keys.GROUP, sorted(missing))
            logged = missing
        await asyncio.sleep(2.0)
