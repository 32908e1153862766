"""Official release binaries: fetched only where they answer at once, used only when their SHA-256 is the published one.

An unreachable host must not cost a person more than a few seconds, because the same program can be built from source.
"""

import hashlib
import shutil
import tarfile
import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

from ome_local import cancel
from ome_local.binaries.versions import Target, Tool
from ome_operator.errors import UserError

ANSWER_WITHIN_S = 4.0
"""How long a release host may take to give a checksum file, name lookup included (which has no timeout of its own)."""
_STALL_S = 30.0
_REGISTRY = "Docker-Distribution-Api-Version"
_SILENT: set[str] = set()
"""Base addresses that did not answer this process: asked once, not once per program."""


class Unavailable(UserError):
    """The release could not be used: unreachable, unverifiable or wrong. Building from source is the other way."""


def fetch(tool: Tool, target: Target, into: Path) -> None:
    """Put the verified program at `into`, or raise Unavailable with the reason."""
    base = tool.address()
    if base in _SILENT:
        raise Unavailable(f"{base} does not answer")
    archive = tool.fill(tool.archive, target)
    try:
        text = _checksum_file(f"{base}/{tool.fill(tool.checksums, target)}")
    except Unavailable:
        _SILENT.add(base)
        raise
    wanted = digest_of(text, Path(archive).name)
    if wanted is None:
        raise Unavailable(f"{base} has no SHA-256 for {archive}")
    download = into.with_name(into.name + ".download")
    try:
        found = _download(f"{base}/{archive}", download)
        if found != wanted:
            raise Unavailable(f"{base}/{archive} has the SHA-256 {found}, and {wanted} was published: not used")
        _unpack(download, tool.fill(tool.member, target) if tool.member else None, into)
    finally:
        download.unlink(missing_ok=True)


def digest_of(text: str, file: str) -> str | None:
    """The digest of `file` in a checksum file, which is a bare digest or lines of `digest  name`."""
    for words in (line.split() for line in text.splitlines()):
        named = words[1].lstrip("*") if len(words) > 1 else file
        if words and Path(named).name == file and _is_sha256(words[0]):
            return words[0].lower()
    return None


def _is_sha256(word: str) -> bool:
    return len(word) == 64 and all(c in "0123456789abcdefABCDEF" for c in word)


def is_registry(address: str) -> bool:
    """Whether a registry of images answers at its `/v2/`: it has a header of its own, also when it asks for a token."""

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


def _checksum_file(address: str) -> str:
    """Its text."""

    def ask() -> str:
        with urllib.request.urlopen(address, timeout=ANSWER_WITHIN_S) as reply:
            return str(reply.read(1 << 20).decode(errors="replace"))

    return _within(address, ask)


def _within(address: str, ask: Callable[[], str]) -> str:
    """What is answered within ANSWER_WITHIN_S. A thread, because a name lookup cannot be interrupted."""
    answer: list[str] = []
    trouble: list[str] = []

    def asked() -> None:
        try:
            answer.append(ask())
        except (OSError, ValueError) as error:
            trouble.append(str(getattr(error, "reason", None) or error))

    thread = threading.Thread(target=asked, daemon=True)
    thread.start()
    thread.join(ANSWER_WITHIN_S)
    if not answer:
        raise Unavailable(f"{address}: {trouble[0] if trouble else f'no answer within {ANSWER_WITHIN_S:.0f} s'}")
    return answer[0]


def _download(address: str, into: Path) -> str:
    """Write the body to `into` and give its SHA-256."""
    digest = hashlib.sha256()
    try:
        with urllib.request.urlopen(address, timeout=_STALL_S) as reply, into.open("wb") as file:
            while block := reply.read(1 << 20):
                cancel.pause(0.0)
                digest.update(block)
                file.write(block)
    except (OSError, ValueError) as error:
        raise Unavailable(f"{address}: {error}") from error
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
