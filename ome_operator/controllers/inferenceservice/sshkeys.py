"""SSH keys for pods that log in to each other: one host key and one user key for all of them."""


def generate() -> dict[str, str]:
    """New keys, as files: names as OpenSSH has them -> contents."""
    host, user = _pair(), _pair()
    return {
        "ssh_host_ed25519_key": host[0],
        "known_hosts": f"* {host[1]}\n",
        "id_ed25519": user[0],
        "authorized_keys": f"{user[1]}\n",
    }


def _pair() -> tuple[str, str]:
    """A private key and its public key, in OpenSSH's formats."""
    # Here: few services log in to each other, and the library is a twentieth of the operator's start.
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
    public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    return private.decode(), public.decode()
