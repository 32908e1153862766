"""A source that combines two repositories: the weights from one repository, and all files except weights from the other.

A GGUF checkpoint has no config.json and no tokenizer; these files are in the repository of the original model.
"""

from collections.abc import AsyncIterator

from ome_operator.storage.listing import Listing, RemoteFile, Source, make_listing

WEIGHTS = (".safetensors", ".gguf", ".bin", ".pt", ".pth")
"""File name extensions of weights."""
_AND = "+"
"""Separator between the revisions of the two sources. The separator occurs in no commit and in no digest."""


class CombinedSource:
    """The files of two sources. If both sources have a file of the same name, the file of the first source is used."""

    def __init__(self, first: Source, other: Source) -> None:
        self._first, self._other = first, other
        self._names: frozenset[str] = frozenset()
        """Names of the files that are read from the second source."""

    async def listing(self, revision: str) -> Listing:
        """Return the files of both sources. `revision` consists of the revisions of both sources, or is "" for their newest
        revisions.
        """
        first_revision, _, other_revision = revision.partition(_AND)
        first_files, other_files = await self._first.listing(first_revision), await self._other.listing(other_revision)
        taken = {file.name for file in first_files.files}
        added = [file for file in other_files.files if not file.name.endswith(WEIGHTS) and file.name not in taken]
        self._names = frozenset(file.name for file in added)
        return make_listing((*first_files.files, *added), f"{first_files.revision}{_AND}{other_files.revision}")

    async def read(self, listing: Listing, file: RemoteFile, start: int, end: int) -> AsyncIterator[bytes]:
        """Read the file's bytes from the source that has it."""
        first_revision, _, other_revision = listing.revision.partition(_AND)
        source, revision = (self._other, other_revision) if file.name in self._names else (self._first, first_revision)
        async for data in source.read(listing._replace(revision=revision), file, start, end):
            yield data

    def report_wrong_hash(self, file: RemoteFile) -> None:
        """Report to the source of a file that the file arrived with a wrong hash."""
        (self._other if file.name in self._names else self._first).report_wrong_hash(file)

    async def close(self) -> None:
        """Close the connections of both sources."""
        await self._first.close()
        await self._other.close()
