"""The file `SHA256SUMS` in an object store: parse the output of `sha256sum`, and apply the hashes to the files. Pure
functions.

No object store publishes SHA-256 hashes by itself, and some publish no hash at all; the person who uploads the files can add
SHA256SUMS. A file that SHA256SUMS lists is verified by that hash only, and its ETag is ignored.
"""

import hashlib
import re
from collections.abc import Iterable

from ome_operator.storage.hashes import MIB, Hash
from ome_operator.storage.listing import RemoteFile, RequestRefused, is_inside

NAME = "SHA256SUMS"
LIMIT = 4 * MIB
"""Maximum bytes of SHA256SUMS, enough for about 30,000 entries."""
_LINE = re.compile(r"(\\?)([0-9a-fA-F]{64}) [ *]([^\0]+)", re.DOTALL)
_ESCAPE = re.compile(r"\\(.?)", re.DOTALL)
_ESCAPED = {"\\": "\\", "n": "\n", "r": "\r"}


def parse_sums(data: bytes) -> dict[str, str]:
    """Return the SHA-256 of every name. Raises RequestRefused, with the line number, for a line that `sha256sum` does not
    write.

    Empty lines and comments are ignored, as `sha256sum --check` does.
    """
    sums: dict[str, str] = {}
    for number, raw in enumerate(data.split(b"\n"), 1):
        line = raw.removesuffix(b"\r")  # written on Windows; a name with this ending would be escaped
        if not line or line.startswith(b"#"):
            continue
        name, value = _entry(number, line)
        if sums.setdefault(name, value) != value:
            raise RequestRefused(f"line {number} of {NAME} has a different SHA-256 for {name!r} than an earlier line")
    return sums


def with_hashes(files: Iterable[RemoteFile], data: bytes) -> list[RemoteFile]:
    """Return the files with the hashes in `data`, the contents of SHA256SUMS. SHA256SUMS itself gets its own hash.

    A file that is not listed keeps the hash of the store. Raises RequestRefused if a listed file does not exist, because the
    model is then incomplete, for example while an upload is still running.
    """
    named = parse_sums(data)
    named.pop(NAME, None)  # `sha256sum *` lists the file that it is about to write
    if not named:
        raise RequestRefused(f"{NAME} lists no file: create the list again, or delete {NAME}")
    files = list(files)
    if missing := sorted(named.keys() - {file.name for file in files}):
        more = f" (and {len(missing) - 1} more files)" if missing[1:] else ""
        raise RequestRefused(
            f"{NAME} lists {missing[0]!r}{more}, which is not in the object store: check that the upload is complete"
        )
    named[NAME] = hashlib.sha256(data).hexdigest()
    return [file._replace(hash=Hash("sha256", named[file.name])) if file.name in named else file for file in files]


def _entry(number: int, line: bytes) -> tuple[str, str]:
    """Return the name and the SHA-256 of one line."""
    try:
        match = _LINE.fullmatch(line.decode())
        name = _unescaped(match[3]) if match and match[1] else match[3] if match else ""
    except (UnicodeDecodeError, KeyError):
        match, name = None, ""
    while name.startswith("./"):  # the format in which `find .` prints names
        name = name[2:].lstrip("/")
    if match is None or not is_inside(name):
        quoted = line[:100].decode(errors="replace")
        raise RequestRefused(
            f"line {number} of {NAME} is not <64 hexadecimal digits>  <name in the model's directory>: {quoted!r}"
        )
    return name, match[2].lower()


def _unescaped(text: str) -> str:
    """Return a name without escapes; `sha256sum` escapes names in lines that begin with a backslash. Raises KeyError for
    escapes that `sha256sum` does not write.
    """
    return _ESCAPE.sub(lambda match: _ESCAPED[match[1]], text)
