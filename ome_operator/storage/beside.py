"""Files of two sources in a directory: weights of one repository, and everything but weights of another.

A GGUF checkpoint has no config.json and no tokenizer: those are in the repository of the original model.
"""

from collections.abc import AsyncIterator

from ome_operator.storage.listing import Listing, RemoteFile, Source, listing

WEIGHTS = (".safetensors", ".gguf", ".bin", ".pt", ".pth")
"""How names of weights end."""
_AND = "+"
"""Between the revisions of both; no commit and no digest has it."""


class Beside:
    """A source, with the files of another source beside its own; where both have a name, the first has it."""

    def __init__(self, first: Source, other: Source) -> None:
        self._first, self._other = first, other
        self._names: frozenset[str] = frozenset()
        """Of the other's files."""

    async def listing(self, revision: str) -> Listing:
        """The files of both, at both revisions."""
        mine, _, others = revision.partition(_AND)
        own, more = await self._first.listing(mine), await self._other.listing(others)
        taken = {file.name for file in own.files}
        added = [file for file in more.files if not file.name.endswith(WEIGHTS) and file.name not in taken]
        self._names = frozenset(file.name for file in added)
        return listing((*own.files, *added), f"{own.revision}{_AND}{more.revision}")

    async def read(self, listing: Listing, file: RemoteFile, start: int, end: int) -> AsyncIterator[bytes]:
        """The file's bytes, from the source that has it."""
        mine, _, others = listing.revision.partition(_AND)
        source, revision = (self._other, others) if file.name in self._names else (self._first, mine)
        async for data in source.read(listing._replace(revision=revision), file, start, end):
            yield data

    def suspect(self, file: RemoteFile) -> None:
        """A file came with a wrong hash."""
        (self._other if file.name in self._names else self._first).suspect(file)

    async def close(self) -> None:
        """Close connections."""
        await self._first.close()
        await self._other.close()
