"""What the operator puts into Secrets that it makes and never reads, by their type."""

import secrets
from collections.abc import Callable, Mapping

from ome_operator import keys
from ome_operator.controllers.inferenceservice import sshkeys

BYTES = 32
"""Of chance in a router's key."""


def router_key() -> dict[str, str]:
    """A new key, in hexadecimal digits: the router's argument separates its parts with colons."""
    return {keys.ROUTER_KEY_FIELD: secrets.token_hex(BYTES)}


GENERATORS: Mapping[str, Callable[[], dict[str, str]]] = {
    keys.SSH_SECRET: sshkeys.generate,
    keys.ROUTER_KEY_SECRET: router_key,
}
"""Type of a Secret -> what makes its content."""
