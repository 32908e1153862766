"""Download official release binaries. Only hosts that answer quickly are used, and only files whose SHA-256 is in this
repository.

An unreachable host must not delay a user by more than a few seconds, because the same program can be built from source.
"""

import hashlib
import http.client
import shutil
import tarfile
import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import IO, TypeVar

from ome_local import cancel
from ome_local.binaries import digests
from ome_local.binaries.versions import Target, Tool
from ome_operator.errors import UserError

ANSWER_WITHIN_S = 4.0
"""Maximum number of seconds until a release host begins to answer. The time includes the name lookup, which has no
timeout of its own."""
_STALL_S = 30.0
_TROUBLE = (OSError, ValueError, http.client.HTTPException)
_REGISTRY = "Docker-Distribution-Api-Version"
_SILENT: dict[str, str] = {}
"""Maps the base address of a release host that has not answered this process to the reason. This process does not try the
address again."""
_Answer = TypeVar("_Answer")


class Unavailable(UserError):
    """Error: the release is unreachable, cannot be verified, or is wrong. The program must be built from source."""


def fetch(tool: Tool, target: Target, into: Path) -> None:
    """Download the program to `into` and verify it. Raises Unavailable if this is not possible.

    The digest from the host itself is not used, because it would match any file that the host serves.
    """
    archive = tool.fill(tool.archive, target)
    wanted = digests.read_digests().get(archive)
    if wanted is None:
        raise Unavailable(f"{digests.FILE.name} has no SHA-256 for {target.os} {target.arch}")
    download = into.with_name(into.name + ".download")
    try:
        found = _download(tool.address(), archive, download)
        if found != wanted:
            raise Unavailable(
                f"{tool.address()}/{archive} has the SHA-256 {found}, but {digests.FILE.name} has {wanted}, so the "
                "file is not used"
            )
        _unpack(download, tool.fill(tool.member, target) if tool.member else None, into)
    finally:
        download.unlink(missing_ok=True)


def published_digest(tool: Tool, target: Target) -> str:
    """Return the digest that the release host publishes. A digest from the same host does not prove that a file is right
    (see `checksums.py`).
    """
    archive = tool.fill(tool.archive, target)
    with _opened(tool.address(), tool.fill(tool.checksums, target)) as reply:
        text = reply.read(1 << 20).decode(errors="replace")
    given = digest_of(text, Path(archive).name)
    if given is None:
        raise Unavailable(f"{tool.address()} states no SHA-256 for {archive}")
    return given


def digest_of(text: str, file: str) -> str | None:
    """Return the digest of `file` from the text of a checksum file; None if the text does not contain one. The text is a
    digest alone, or lines of `digest name`.
    """
    for words in (line.split() for line in text.splitlines()):
        named = words[1].lstrip("*") if len(words) > 1 else file
        if words and Path(named).name == file and _is_sha256(words[0]):
            return words[0].lower()
    return None


def _is_sha256(word: str) -> bool:
    return len(word) == 64 and all(c in "0123456789abcdefABCDEF" for c in word)


def is_registry(address: str) -> bool:
    """Return whether an image registry answers at the path `/v2/` of the address. A registry is recognized by a header that
    it sends even if it requires a token.
    """

    def ask() -> str:
        try:
            with urllib.request.urlopen(address, timeout=ANSWER_WITHIN_S) as reply:
                return str(reply.headers.get(_REGISTRY) or "")
        except urllib.error.HTTPError as refused:
            return str(refused.headers.get(_REGISTRY) or "")

    try:
        return bool(_within(address, ask))
    except Unavailable:
        return False


def _opened(base: str, path: str) -> IO[bytes]:
    """Return the response as soon as it begins. An HTTP error raises Unavailable. The host is not recorded as silent
    after an HTTP error, because its other files may exist.
    """
    if base in _SILENT:
        raise Unavailable(_SILENT[base])
    try:
        reply = _within(base, lambda: _asked(f"{base}/{path}"))
    except Unavailable as reason:
        _SILENT[base] = str(reason)
        raise
    if isinstance(reply, urllib.error.HTTPError):
        reply.close()
        raise Unavailable(f"{base}/{path}: {reply}")
    return reply


def _asked(address: str) -> IO[bytes]:
    try:
        reply: IO[bytes] = urllib.request.urlopen(address, timeout=_STALL_S)
    except urllib.error.HTTPError as refused:
        return refused
    return reply


def _within(address: str, ask: Callable[[], _Answer]) -> _Answer:
    """Return the result of `ask`. Raises an error if `ask` takes longer than ANSWER_WITHIN_S. `ask` runs in a thread,
    because a name lookup cannot be interrupted.
    """
    answer: list[_Answer] = []
    trouble: list[str] = []

    def asked() -> None:
        try:
            answer.append(ask())
        except _TROUBLE as error:
            trouble.append(str(getattr(error, "reason", None) or error))

    thread = threading.Thread(target=asked, daemon=True)
    thread.start()
    thread.join(ANSWER_WITHIN_S)
    if not answer:
        raise Unavailable(f"{address}: {trouble[0] if trouble else f'no response within {ANSWER_WITHIN_S:.0f} s'}")
    return answer[0]


def _download(base: str, path: str, into: Path) -> str:
    """Write the body of the response to `into`, and return the SHA-256 of the body."""
    digest = hashlib.sha256()
    try:
        with _opened(base, path) as reply, into.open("wb") as file:
            while block := reply.read(1 << 20):
                cancel.pause(0.0)
                digest.update(block)
                file.write(block)
    except _TROUBLE as error:
        raise Unavailable(f"{base}/{path}: {error}") from error
    return digest.hexdigest()


def _unpack(download: Path, member: str | None, into: Path) -> None:
    if member is None:
        shutil.move(download, into)
    else:
        with tarfile.open(download) as archive:
            try:
                source = archive.extractfile(member)
            except KeyError:
                source = None
            if source is None:
                raise Unavailable(f"{download.name} has no file {member}")
            with source, into.open("wb") as file:
                shutil.copyfileobj(source, file)
    into.chmod(0o755)
