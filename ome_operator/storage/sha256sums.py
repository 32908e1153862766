"""`SHA256SUMS` of an object store: what `sha256sum` writes, and the files that are proven by it. Pure.

No store says a SHA-256 of its own accord, and some say nothing of the bytes; whoever uploads a model can. What is named
there is proven by it and by nothing else, whatever the ETags are.
"""

import hashlib
import re
from collections.abc import Iterable

from ome_operator.storage.hashes import MIB, Hash
from ome_operator.storage.listing import Refused, RemoteFile, inside

NAME = "SHA256SUMS"
LIMIT = 4 * MIB
"""Bytes of the largest that is read: some 30,000 files."""
_LINE = re.compile(r"(\\?)([0-9a-fA-F]{64}) [ *]([^\0]+)", re.DOTALL)
_ESCAPE = re.compile(r"\\(.?)", re.DOTALL)
_ESCAPED = {"\\": "\\", "n": "\n", "r": "\r"}


def parse(data: bytes) -> dict[str, str]:
    """The SHA-256 of every name; Refused with the line that is none of sha256sum's.

    Empty lines and comments say nothing, as `sha256sum --check` takes them.
    """
    found: dict[str, str] = {}
    for number, raw in enumerate(data.split(b"\n"), 1):
        line = raw.removesuffix(b"\r")  # written on Windows; a name that ends so is escaped
        if not line or line.startswith(b"#"):
            continue
        name, value = _entry(number, line)
        if found.setdefault(name, value) != value:
            raise Refused(f"line {number} of {NAME} gives {name!r} another SHA-256 than a line above")
    return found


def proven(files: Iterable[RemoteFile], data: bytes) -> list[RemoteFile]:
    """Files by the SHA-256 that `SHA256SUMS`, whose bytes these are, gives them; it itself by its own.

    A file that it does not name keeps the proof that the store gives. Refused where it names one that is not there: a model
    with a file too few is not the model, and nothing is fetched of an upload that goes on.
    """
    named = parse(data)
    named.pop(NAME, None)  # `sha256sum *` names the file that it is about to write
    if not named:
        raise Refused(f"{NAME} names no file: write it again, or remove it")
    files = list(files)
    if missing := sorted(named.keys() - {one.name for one in files}):
        more = f" (and {len(missing) - 1} more files)" if missing[1:] else ""
        raise Refused(f"{NAME} names {missing[0]!r}{more}, which is not in the object store: is the upload complete?")
    named[NAME] = hashlib.sha256(data).hexdigest()
    return [one._replace(hash=Hash("sha256", named[one.name])) if one.name in named else one for one in files]


def _entry(number: int, line: bytes) -> tuple[str, str]:
    """Name and SHA-256 of one line."""
    try:
        found = _LINE.fullmatch(line.decode())
        name = _unescaped(found[3]) if found and found[1] else found[3] if found else ""
    except (UnicodeDecodeError, KeyError):
        found, name = None, ""
    while name.startswith("./"):  # as `find .` says them
        name = name[2:].lstrip("/")
    if found is None or not inside(name):
        said = line[:100].decode(errors="replace")
        raise Refused(f"line {number} of {NAME} is not <64 hexadecimal digits>  <name in the model's directory>: {said!r}")
    return name, found[2].lower()


def _unescaped(text: str) -> str:
    """A name whose line begins with a backslash; KeyError for what sha256sum does not write."""
    return _ESCAPE.sub(lambda one: _ESCAPED[one[1]], text)
