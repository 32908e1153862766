"""Weights on a node's disk.

    <home>/<digest>/            files of one model revision, never changed once they are there
    <home>/<digest>.json        its manifest: Ready is what has both
    <home>/<digest>.partial/    files/ proven, parts/ on their way, journal what was proven
    <path>                      a symlink to the newest, for a model of the whole cluster

A home is `<parent of path>/.ome`, or `<root>/.namespaces/<namespace>/.ome` for a BaseModel. The digest is that of the
model's storage identity, which the manifest repeats: a directory is of one model alone (docs/tenancy.md).

Every step is a rename after an fsync, so a kill at any moment leaves one state or the other.
"""

import contextlib
import hashlib
import json
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from ome_operator import keys
from ome_operator.agent.manifest import Manifest as Manifest
from ome_operator.agent.manifest import Proven as Proven
from ome_operator.agent.manifest import dump, lines, read
from ome_operator.storage.hashes import Checker, Hash
from ome_operator.storage.listing import Listing, Refused, RemoteFile

HIDDEN = keys.WEIGHTS
CHUNK = 4 * 1024 * 1024


class Store:
    """One model revision on this node's disk."""

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
        """`spec.storage.path`: what becomes the symlink, unless `home` is another place than beside it."""
        self.linked = home is None
        self.home = home or path.parent / HIDDEN
        self._identity, self._lenders = dict(identity), lenders or self._beside
        self._lent: dict[tuple[Hash, int], list[Path]] | None = None
        self._seen: dict[str, Proven] = {}
        """Lines of the journal that this process wrote, or compared with the bytes."""
        self.root = self.home / digest
        """The directory of this revision."""
        self._manifest = self.home / f"{digest}.json"
        self._partial = self.home / f"{digest}.partial"
        self.files, self.parts = self._partial / "files", self._partial / "parts"
        self._journal = self._partial / "journal"

    # --- what is there --------------------------------------------------------------------------------------------------

    def manifest(self) -> Manifest | None:
        """The manifest, None before everything was proven."""
        known = read(self._manifest) if self.root.is_dir() else None
        return known if known is not None and not self._foreign(known) else None

    def _foreign(self, known: Manifest) -> bool:
        return dict(known.identity) != self._identity

    def strange(self) -> str:
        """A sentence where the directory holds what another model's manifest says: nobody may mend that into ours."""
        known = read(self._manifest)
        if known is None or not self._foreign(known):
            return ""
        of = known.identity or {"uri": known.uri}
        return f"{self.root} says that it holds {of.get('uri')} of {of.get('name', 'another model')}: move it away"

    @property
    def whole(self) -> bool:
        """Whether the manifest is there, without reading it."""
        return self.root.is_dir() and self._manifest.is_file()

    def part(self, file: RemoteFile) -> Path:
        """Where a file's bytes gather until they are proven. Another hash is another file."""
        return self.parts / hashlib.sha256(f"{file.name}\0{file.size}\0{file.hash}".encode()).hexdigest()[:32]

    def piece(self, file: RemoteFile, start: int) -> Path:
        """Where bytes from `start` on gather, which come before those that lead up to them."""
        part = self.part(file)
        return part.with_name(f"{part.name}.{start}")

    def have(self, file: RemoteFile) -> int:
        """Bytes of a file that are on the disk and not proven yet."""
        part = self.part(file)
        head, found = length(part), 0
        for piece in part.parent.glob(f"{part.name}.*[0-9]"):
            start = int(piece.suffix[1:])
            found += max(0, start + length(piece) - max(start, head))
        return head + found

    def forget(self, file: RemoteFile) -> None:
        """Its bytes are wrong."""
        part = self.part(file)
        for one in [*part.parent.glob(f"{part.name}.*[0-9]"), part]:
            one.unlink(missing_ok=True)

    def proven(self) -> dict[str, Proven]:
        """Files that were proven and await the rest, by name. Without a line in the journal a file counts for nothing,
        and after a restart with it only when its bytes were compared (`prepare`).
        """
        return {name: one for name, one in self.noted().items() if self._seen.get(name) == one}

    def noted(self) -> dict[str, Proven]:
        """Files that were proven, as the journal says, and that are there."""
        found = {}
        for one in lines(self._journal):
            file = self.files / one.name
            if all(name in found for name in one.members) if one.members else _sized(file, one.size):
                found[one.name] = one
        return found

    def free(self) -> int:
        """Bytes that the disk has left for us."""
        self.home.mkdir(parents=True, exist_ok=True)
        disk = os.statvfs(self.home)
        return disk.f_bavail * disk.f_frsize

    def disk(self) -> int:
        """Which disk it is: the same number for all directories of a file system."""
        self.home.mkdir(parents=True, exist_ok=True)
        return self.home.stat().st_dev

    # --- steps ----------------------------------------------------------------------------------------------------------

    def prepare(self, listing: Listing) -> None:
        """Make room for parts, and forget parts and files of another listing. Read once what an earlier process has
        proven.
        """
        self._lent = None
        self.files.mkdir(parents=True, exist_ok=True)
        self.parts.mkdir(exist_ok=True)
        wanted = {self.part(one).name for one in listing.files}
        for part in self.parts.iterdir():
            name, _, start = part.name.partition(".")
            if name not in wanted or (start and not start.isdigit()):
                part.unlink()
        for one in self.noted().values():
            if self._seen.get(one.name) != one and self._holds(one):
                self._seen[one.name] = one
        names, proven = {one.name for one in listing.files}, self.proven()
        names |= {member for name in names & proven.keys() for member in proven[name].members}
        for file in [one for one in self.files.rglob("*") if one.is_file()]:
            if str(file.relative_to(self.files)) not in names:
                file.unlink()

    def _holds(self, one: Proven) -> bool:
        """Whether a file has the bytes that its line in the journal says."""
        if one.members:  # it is gone; what came out of it has lines of its own
            return all(name in self._seen for name in one.members)
        checker = check(self.files / one.name, RemoteFile(one.name, one.size, one.hash))
        return checker.whole and checker.blocks == one.blocks

    def accept(self, file: RemoteFile, blocks: tuple[int, ...], part: Path | None = None) -> Proven:
        """The bytes are right: to the disk, into place, and into the journal."""
        part = part or self.part(file)
        place = self.files / file.name
        place.parent.mkdir(parents=True, exist_ok=True)
        _sync(part)
        part.chmod(0o644)
        part.replace(place)
        _sync(place.parent)
        one = Proven(file.name, file.size, file.hash, blocks)
        self._note([one])
        return one

    def unpacked(self, file: RemoteFile, members: Sequence[Proven]) -> None:
        """What came out of an archive lies in `files`, on the disk: into the journal; then the archive goes."""
        self._note([*members, Proven(file.name, file.size, file.hash, (), tuple(one.name for one in members))])
        self.part(file).unlink()

    def _note(self, proven: Sequence[Proven]) -> None:
        with self._journal.open("ab") as journal:
            journal.write(b"".join(json.dumps(dump(one)).encode() + b"\n" for one in proven))
            journal.flush()
            os.fsync(journal.fileno())
        self._seen |= {one.name: one for one in proven}

    def link(self, file: RemoteFile, source: Path) -> Path:
        """Another name for a file of this disk, beside the parts; copied where the file system has no links."""
        beside = self.part(file).with_suffix(".link")
        beside.unlink(missing_ok=True)
        try:
            os.link(source.resolve(), beside)
        except OSError:
            shutil.copyfile(source, beside)
        return beside

    def publish(self, uri: str, listing: Listing, now: str) -> Manifest:
        """All files are proven: the directory and its manifest appear, the last of them by one rename. May raise Refused."""
        if said := self.strange():
            raise Refused(said)
        names = self._names(listing)
        if twice := [name for name, count in names.items() if count > 1]:
            raise Refused(f"two layers have a file {twice[0]!r}: push it once")
        known = self.proven()
        missing = [file.name for file in listing.files if file.name not in known or known[file.name].hash != file.hash]
        if missing:
            raise ValueError(f"not proven: {missing[:3]}")
        files = tuple(known[name] for name in sorted(names))
        made = Manifest(uri, listing.revision, files, now, identity=self._identity)
        for folder in [self.files, *(one for one in self.files.rglob("*") if one.is_dir())]:
            _sync(folder)
        if self.root.exists():  # a repair: pods may have this very directory open
            self._mend(made)
            self.write(made)
        else:  # the journal knows files by their places, so nothing but the last step may move them
            self.write(made)
            self.files.replace(self.root)
            _sync(self.home)
        shutil.rmtree(self._partial, ignore_errors=True)
        return made

    def _names(self, listing: Listing) -> Counter[str]:
        """How often each file comes: by itself, and out of archives. What came last of two has taken the other's place."""
        found = Counter(file.name for file in listing.files if file.unpack is None)
        for file in listing.files:
            if file.unpack is not None and file.name in self._seen:
                found.update(self._seen[file.name].members)
        return found

    def _mend(self, manifest: Manifest) -> None:
        """Every file takes its place in a directory that exists. Links to one file are left by a rename as they are."""
        for one in manifest.files:
            place = self.root / one.name
            place.parent.mkdir(parents=True, exist_ok=True)
            (self.files / one.name).replace(place)
            _sync(place.parent)

    def write(self, manifest: Manifest) -> None:
        """Replace the manifest."""
        _replace(self._manifest, json.dumps(manifest.dump(), indent=1).encode())

    def damage(self) -> None:
        """The directory is whole no more: the manifest goes, the files stay where pods have them open."""
        self._manifest.unlink(missing_ok=True)
        _sync(self.home)

    def point(self) -> str:
        """Make the path a symlink to this revision; a sentence where something else is in its place."""
        if not self.linked:
            return ""
        target = os.path.relpath(self.root, self.path.parent)
        if self.path.is_symlink() and self.path.readlink() == Path(target):
            return ""
        if self.path.exists() and not self.path.is_symlink():
            return f"{self.path} is a directory of somebody else's and stays; pods get {self.root}"
        fresh = self.home / f"{self.root.name}.link"
        fresh.unlink(missing_ok=True)
        fresh.symlink_to(target)
        fresh.replace(self.path)
        return ""

    # --- files that are here already ------------------------------------------------------------------------------------

    def elsewhere(self, file: RemoteFile) -> Iterator[Path]:
        """Files of this disk that may be the same: of other revisions, of a lost manifest, of a directory at the path."""
        if self._lent is None:
            self._lent = {}
            for folder, manifest in self._lenders():
                for one in manifest.files:
                    self._lent.setdefault((one.hash, one.size), []).append(folder / one.name)
        places = [folder / file.name for folder in (self.files, self.root, *([self.path] if self.linked else []))]
        places += self._lent.get((file.hash, file.size), ())
        for place in dict.fromkeys(places):
            if _sized(place, file.size):
                yield place

    def _beside(self) -> Iterator[tuple[Path, Manifest]]:
        """Every whole directory beside this one."""
        for manifest in sorted(self.home.glob("*.json")):
            if (known := read(manifest)) is not None:
                yield manifest.with_suffix(""), known


def size_below(folder: Path) -> int:
    """Bytes of all files below; what vanishes meanwhile counts for nothing."""
    found = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                found += (Path(place) / name).stat().st_size
    return found


def length(path: Path) -> int:
    """Bytes of a file; 0 where there is none."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _sized(path: Path, size: int) -> bool:
    return path.is_file() and path.stat().st_size == size


def check(path: Path, file: RemoteFile, *, limit: int | None = None) -> Checker:
    """Read a file, or its first bytes, through a checker."""
    checker = Checker(file.hash, file.size)
    left = file.size if limit is None else limit
    with path.open("rb") as stream:
        while left > 0 and (data := stream.read(min(CHUNK, left))):
            checker.update(data)
            left -= len(data)
    return checker


def _replace(path: Path, data: bytes) -> None:
    fresh = path.with_name(path.name + ".new")
    with fresh.open("wb") as stream:
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())
    fresh.replace(path)
    _sync(path.parent)


def _sync(path: Path) -> None:
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
