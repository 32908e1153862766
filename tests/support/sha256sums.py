"""`SHA256SUMS` files as sha256sum writes them."""

import hashlib
from collections.abc import Mapping

ESCAPES = {"\\": "\\\\", "\n": "\\n", "\r": "\\r"}


def line(name: str, value: str, mark: str = " ") -> str:
    """Return one line; the mark `*` denotes a file that was read as binary."""
    escaped = name
    for plain, said in ESCAPES.items():
        escaped = escaped.replace(plain, said)
    return f"{'' if escaped == name else chr(92)}{value} {mark}{escaped}\n"


def sums_file(files: Mapping[str, bytes]) -> bytes:
    """Return the content of a SHA256SUMS file for these files."""
    return "".join(line(name, hashlib.sha256(data).hexdigest()) for name, data in files.items()).encode()
