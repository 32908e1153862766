"""Whether a namespace can be watched."""

from ome_operator.kube.client import Client
from ome_operator.kube.errors import Forbidden, NotFound


async def can_watch(client: Client, namespace: str) -> str:
    """Why a namespace cannot be watched; "" where it is there and gives us rights. Raises KubeError where nobody knows.

    Who has rights in some namespaces alone is told no more of an absent namespace than of another that gives no rights.
    """
    try:
        await client.get("Namespace", "", namespace)
    except NotFound:
        return "it does not exist: it is watched as soon as it is there"
    except Forbidden:
        return "it does not exist, or has no RoleBinding for this operator: make it, and install the chart again"
    return ""
