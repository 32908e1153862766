"""Generate the content of the Secrets that the operator creates and never reads: router keys and SSH keys."""

import secrets
from collections.abc import Callable, Mapping

from ome_operator import keys

BYTES = 32
"""Number of random bytes in a router's key."""


def router_key() -> dict[str, str]:
    """Return a new key of hexadecimal digits. The key must not contain colons, because colons separate the parts of the
    router's argument that contains the key.
    """
    return {keys.ROUTER_KEY_FIELD: secrets.token_hex(BYTES)}


def ssh_keys() -> dict[str, str]:
    """Return a new host key and a new user key, as a mapping from the names of OpenSSH's files to their contents."""
    host, user = _pair(), _pair()
    return {
        "ssh_host_ed25519_key": host[0],
        "known_hosts": f"* {host[1]}\n",
        "id_ed25519": user[0],
        "authorized_keys": f"{user[1]}\n",
    }


def _pair() -> tuple[str, str]:
    """Return a private key and its public key, in OpenSSH's formats."""
    # Imported here: few services use SSH keys, and the import takes a twentieth of the operator's start.
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
    public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    return private.decode(), public.decode()


GENERATORS: Mapping[str, Callable[[], dict[str, str]]] = {
    keys.SSH_SECRET: ssh_keys,
    keys.ROUTER_KEY_SECRET: router_key,
}
"""Type of a Secret -> the function that generates its content."""
