"""The weights of one model revision on a node's disk.

    <home>/<digest>/: the files of one model revision, which never change after the directory was published
    <home>/<digest>.json: the manifest of the revision; the revision is Ready when the directory and the manifest exist
    <home>/<digest>.reading: exists while the agent reads the facts of the revision; it remains if the agent ends before
    <home>/<digest>.partial/: a running download, with the directories `files` (verified) and `parts`, and `journal`
    <path>: a symlink to the newest revision, for cluster-scoped models only

<home> is `<parent of path>/.ome` for cluster-scoped models, and `<root>/.namespaces/<namespace>/.ome` for BaseModels.
<digest> is the digest of the model's storage identity. The manifest contains this identity too, so that the agent recognizes
a directory of another model.

Every change is a rename after an fsync, so that a kill at any moment leaves either the old or the new state.
"""

import contextlib
import hashlib
import json
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from types import MappingProxyType

from ome_operator import keys
from ome_operator.agent.disk_files import check_file, file_size, has_size, replace_file, sync
from ome_operator.agent.manifest import MEMORY, dump_file, read_journal, read_manifest
from ome_operator.agent.manifest import Manifest as Manifest
from ome_operator.agent.manifest import VerifiedFile as VerifiedFile
from ome_operator.storage.hashes import Hash
from ome_operator.storage.listing import Listing, RemoteFile, RequestRefused
from ome_operator.util.json_limits import estimate_memory

HIDDEN = keys.WEIGHTS
READING = ".reading"


class Store:
    """The directory, manifest and running download of one model revision on this node's disk."""

    def __init__(
        self,
        path: Path,
        digest: str,
        home: Path | None = None,
        *,
        identity: Mapping[str, str] = MappingProxyType({}),
        lenders: Callable[[], Iterable[tuple[Path, Manifest]]] | None = None,
    ) -> None:
        self.path = path
        """`spec.storage.path`. The path becomes a symlink to the revision, unless `home` is given."""
        self.has_link = home is None
        self.home = home or path.parent / HIDDEN
        self._identity, self._lenders = dict(identity), lenders or self._neighbours
        self._lent: dict[tuple[Hash, int], list[Path]] | None = None
        self._seen: dict[str, VerifiedFile] = {}
        """Maps a file name to its journal entry. It contains the entries that this process wrote, and the entries whose
        files this process has compared with their hashes."""
        self.root = self.home / digest
        """The directory of this revision."""
        self._manifest = self.home / f"{digest}.json"
        self._reading = self.home / f"{digest}{READING}"
        self._partial = self.home / f"{digest}.partial"
        self.files, self.parts = self._partial / "files", self._partial / "parts"
        self._journal = self._partial / "journal"

    # --- state ----------------------------------------------------------------------------------------------------------

    def manifest(self) -> Manifest | None:
        """Return the manifest, or None before all files were verified."""
        known = read_manifest(self._manifest) if self.root.is_dir() else None
        return known if known is not None and not self._foreign(known) else None

    def _foreign(self, known: Manifest) -> bool:
        return dict(known.identity) != self._identity

    def foreign_message(self) -> str:
        """Return a message if the directory has another model's manifest and must not be overwritten; otherwise ""."""
        known = read_manifest(self._manifest)
        if known is None or not self._foreign(known):
            return ""
        of = known.identity or {"uri": known.uri}
        owner = of.get("name", "another model")
        return f"the manifest of {self.root} names {of.get('uri')} of {owner}: move this directory to another location"

    @property
    def has_manifest(self) -> bool:
        """Whether the directory and its manifest exist. The content of the manifest is not checked."""
        return self.root.is_dir() and self._manifest.is_file()

    def partial_path(self, file: RemoteFile) -> Path:
        """Return the path for the bytes of a file until they are verified. A file whose hash changed gets another path."""
        return self.parts / hashlib.sha256(f"{file.name}\0{file.size}\0{file.hash}".encode()).hexdigest()[:32]

    def piece(self, file: RemoteFile, start: int) -> Path:
        """Return the path of the piece that begins at offset `start`. A piece is downloaded while bytes before it are still
        missing.
        """
        part = self.partial_path(file)
        return part.with_name(f"{part.name}.{start}")

    def partial_bytes(self, file: RemoteFile) -> int:
        """Return the number of bytes of a file that are on the disk but not yet verified."""
        part = self.partial_path(file)
        head, beyond_head = file_size(part), 0
        for piece in part.parent.glob(f"{part.name}.*[0-9]"):
            start = int(piece.suffix[1:])
            beyond_head += max(0, start + file_size(piece) - max(start, head))
        return head + beyond_head

    def delete_partial(self, file: RemoteFile) -> None:
        """Delete the bytes of a file because they are wrong."""
        part = self.partial_path(file)
        for path in [*part.parent.glob(f"{part.name}.*[0-9]"), part]:
            path.unlink(missing_ok=True)

    def verified_files(self) -> dict[str, VerifiedFile]:
        """Return a map from file name to entry, for the verified files that are not published yet.

        A file without a line in the journal is not included. After a restart, a file with a line is included only if its
        bytes were compared with its hash (see `prepare`).
        """
        return {name: file for name, file in self.files_in_journal().items() if self._seen.get(name) == file}

    def files_in_journal(self) -> dict[str, VerifiedFile]:
        """Return a map from file name to entry, for the files that the journal lists and that exist."""
        found = {}
        for entry in read_journal(self._journal):
            file = self.files / entry.name
            if all(name in found for name in entry.members) if entry.members else has_size(file, entry.size):
                found[entry.name] = entry
        return found

    def free_bytes(self) -> int:
        """Return the free bytes of the disk."""
        self.home.mkdir(parents=True, exist_ok=True)
        disk = os.statvfs(self.home)
        return disk.f_bavail * disk.f_frsize

    def disk(self) -> int:
        """Return the device number of the disk. All directories of a file system have the same number."""
        self.home.mkdir(parents=True, exist_ok=True)
        return self.home.stat().st_dev

    # --- changes --------------------------------------------------------------------------------------------------------

    def prepare(self, listing: Listing) -> None:
        """Prepare a download: create its directories, delete parts and files that are not in `listing`, and verify the
        files that an earlier process recorded in the journal.
        """
        self._lent = None
        self.files.mkdir(parents=True, exist_ok=True)
        self.parts.mkdir(exist_ok=True)
        wanted = {self.partial_path(entry).name for entry in listing.files}
        for part in self.parts.iterdir():
            name, _, start = part.name.partition(".")
            if name not in wanted or (start and not start.isdigit()):
                part.unlink()
        for entry in self.files_in_journal().values():
            if self._seen.get(entry.name) != entry and self._holds(entry):
                self._seen[entry.name] = entry
        names, proven = {entry.name for entry in listing.files}, self.verified_files()
        names |= {member for name in names & proven.keys() for member in proven[name].members}
        for file in [entry for entry in self.files.rglob("*") if entry.is_file()]:
            if str(file.relative_to(self.files)) not in names:
                file.unlink()

    def _holds(self, entry: VerifiedFile) -> bool:
        """Return whether a file has the hash and the block checksums of its journal entry."""
        if entry.members:  # the archive is deleted; its unpacked files have their own lines
            return all(name in self._seen for name in entry.members)
        checker = check_file(self.files / entry.name, RemoteFile(entry.name, entry.size, entry.hash))
        return checker.is_complete and checker.blocks == entry.blocks

    def store_verified(self, file: RemoteFile, blocks: tuple[int, ...], part: Path | None = None) -> VerifiedFile:
        """Write a verified file to the disk, move it to its final name, and record it in the journal."""
        part = part or self.partial_path(file)
        target = self.files / file.name
        target.parent.mkdir(parents=True, exist_ok=True)
        sync(part)
        part.chmod(0o644)
        part.replace(target)
        sync(target.parent)
        entry = VerifiedFile(file.name, file.size, file.hash, blocks)
        self._note([entry])
        return entry

    def unpacked(self, file: RemoteFile, members: Sequence[VerifiedFile]) -> None:
        """Record in the journal that the files `members` were unpacked from an archive, then delete the archive. The files
        are on the disk already.
        """
        self._note([*members, VerifiedFile(file.name, file.size, file.hash, (), tuple(one.name for one in members))])
        self.partial_path(file).unlink()

    def _note(self, proven: Sequence[VerifiedFile]) -> None:
        with self._journal.open("ab") as journal:
            journal.write(b"".join(json.dumps(dump_file(entry)).encode() + b"\n" for entry in proven))
            journal.flush()
            os.fsync(journal.fileno())
        self._seen |= {entry.name: entry for entry in proven}

    def link(self, file: RemoteFile, source: Path) -> Path:
        """Link `source` among the parts, or copy it if the file system has no hard links. Return the new path."""
        target = self.partial_path(file).with_suffix(".link")
        target.unlink(missing_ok=True)
        try:
            os.link(source.resolve(), target)
        except OSError:
            shutil.copyfile(source, target)
        return target

    def publish(self, uri: str, listing: Listing, now: str) -> Manifest:
        """Publish the directory and its manifest by a final rename, after all files were verified.

        `now` is the time for the manifest. Raises RequestRefused if the directory belongs to another model or if two layers
        contain the same file, and ValueError if a file is missing.
        """
        if problem := self.foreign_message():
            raise RequestRefused(problem)
        names = self._names(listing)
        if duplicates := [name for name, count in names.items() if count > 1]:
            raise RequestRefused(f"two layers contain a file {duplicates[0]!r}: push this file in one layer only")
        known = self.verified_files()
        missing = [file.name for file in listing.files if file.name not in known or known[file.name].hash != file.hash]
        if missing:
            raise ValueError(f"files are not verified: {missing[:3]}")
        shared = _shared_directory(names) if listing.shared_directory else ""
        files = tuple(known[name]._replace(name=str(PurePosixPath(name).relative_to(shared))) for name in sorted(names))
        complete = self.files / shared
        manifest = Manifest(uri, listing.revision, files, now, identity=self._identity)
        if estimate_memory(_text(manifest)) > MEMORY:
            raise RequestRefused("the names of its files are too long for the manifest: use shorter names or fewer files")
        for folder in [self.files, *(folder for folder in self.files.rglob("*") if folder.is_dir())]:
            sync(folder)
        if self.root.exists():  # a repair: pods may have this directory open
            self._mend(manifest, complete)
            self.write_manifest(manifest)
        else:  # the journal refers to files by path, so only the last step may move them
            self.write_manifest(manifest)
            complete.replace(self.root)
            sync(self.home)
        shutil.rmtree(self._partial, ignore_errors=True)
        return manifest

    def _names(self, listing: Listing) -> Counter[str]:
        """Return how often each file name occurs among separate files and files in archives. If a name occurs twice, the
        later file has overwritten the earlier one.
        """
        counts = Counter(file.name for file in listing.files if not file.unpack)
        for file in listing.files:
            if file.unpack and file.name in self._seen:
                counts.update(self._seen[file.name].members)
        return counts

    def _mend(self, manifest: Manifest, complete: Path) -> None:
        """Repair the existing directory of this revision: move every verified file from the directory `complete` into it.
        Files in `complete` that are already hard links to the existing files are not moved.
        """
        for entry in manifest.files:
            target = self.root / entry.name
            target.parent.mkdir(parents=True, exist_ok=True)
            (complete / entry.name).replace(target)
            sync(target.parent)

    def write_manifest(self, manifest: Manifest) -> None:
        """Replace the manifest on the disk."""
        replace_file(self._manifest, _text(manifest))

    def mark_damaged(self) -> None:
        """Delete the manifest, so that the revision is incomplete from then on. The files stay, because pods may have opened
        them.
        """
        self._manifest.unlink(missing_ok=True)
        sync(self.home)

    def interrupted_readings(self) -> int:
        """Return how often an agent began to read the facts of this revision and ended before it had finished."""
        try:
            text = self._reading.read_bytes()[:10]
        except FileNotFoundError:
            return 0
        return int(text) if text.isdigit() else 1

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        """Mark on the disk, until the `with` block ends, that the facts of this revision are being read. The mark remains
        if the process ends during the block.
        """
        replace_file(self._reading, str(self.interrupted_readings() + 1).encode())
        try:
            yield
        finally:
            self._reading.unlink(missing_ok=True)

    def forget_readings(self) -> None:
        """Delete the mark of `reading`, so that the facts may be read again."""
        self._reading.unlink(missing_ok=True)

    def point(self) -> str:
        """Make the path a symlink to this revision. Return a message if it is a file or a directory, "" on success."""
        if not self.has_link:
            return ""
        target = os.path.relpath(self.root, self.path.parent)
        if self.path.is_symlink() and self.path.readlink() == Path(target):
            return ""
        if self.path.exists() and not self.path.is_symlink():
            return f"{self.path} is a directory that no agent created, so the agent keeps it; pods mount {self.root} instead"
        fresh = self.home / f"{self.root.name}.link"
        fresh.unlink(missing_ok=True)
        fresh.symlink_to(target)
        fresh.replace(self.path)
        return ""

    # --- reuse of local files -------------------------------------------------------------------------------------------

    def local_candidates(self, file: RemoteFile) -> Iterator[Path]:
        """Yield files on this disk that may have the same contents as `file`: files of other revisions, of a directory
        whose manifest is missing, and of a directory at the path.
        """
        if self._lent is None:
            self._lent = {}
            for folder, manifest in self._lenders():
                for entry in manifest.files:
                    self._lent.setdefault((entry.hash, entry.size), []).append(folder / entry.name)
        folders = (self.files, self.root, *([self.path] if self.has_link else []))
        parts = Path(file.name).parts  # publishing may have removed a directory that all files share from their paths
        names = [Path(*parts[at:]) for at in range(len(parts))]
        paths = [folder / name for folder in folders for name in names]
        paths += self._lent.get((file.hash, file.size), ())
        for path in dict.fromkeys(paths):
            if has_size(path, file.size):
                yield path

    def _neighbours(self) -> Iterator[tuple[Path, Manifest]]:
        """Yield every other complete directory in the same home, with its manifest."""
        for manifest in sorted(self.home.glob("*.json")):
            if (known := read_manifest(manifest)) is not None:
                yield manifest.with_suffix(""), known


def _shared_directory(names: Iterable[str]) -> str:
    """Return the directory that contains all files, relative to the download; "" if the files have no such directory in
    common.
    """
    return os.path.commonpath([PurePosixPath("/", name).parent for name in names]).strip("/")


def _text(manifest: Manifest) -> bytes:
    return json.dumps(manifest.dump(), indent=1).encode()
