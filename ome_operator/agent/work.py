"""One model on this node: get it, look at it again from time to time, and say how it stands."""

import asyncio
import logging
import math
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from pathlib import Path

from ome_operator.agent import learn, record
from ome_operator.agent.download import Download, Failed, Limits
from ome_operator.agent.places import LOCAL, Roots
from ome_operator.agent.progress import Progress
from ome_operator.agent.record import shortened
from ome_operator.agent.store import Manifest, Store
from ome_operator.agent.turns import Over, TurnOver
from ome_operator.agent.verify import verify
from ome_operator.api import Model
from ome_operator.core.weights.mount import weights
from ome_operator.storage.grants import ModelGrant, Trust
from ome_operator.storage.listing import Refused, Source
from ome_operator.storage.sources import Access, source
from ome_operator.util.wall_clock import WallClock, now

logger = logging.getLogger(__name__)

PRESENT = "local"
"""Revision of files that somebody else puts on the nodes."""


@dataclass(frozen=True, kw_only=True)
class AgentSettings:
    """What an agent may and shall do; made once from the command line."""

    roots: tuple[str, ...] = ("/mnt/models",)
    """Directories that it may write below."""
    secrets: Path = Path("/etc/ome/secrets")
    """A folder for each Secret, with a file for each of its keys."""
    trust: Trust = field(default_factory=Trust)
    """What an administrator allows."""
    endpoint: str = ""
    """The hub; "" for huggingface.co."""
    limits: Limits = field(default_factory=Limits)
    node: str = ""
    peers: Callable[[Source, str], Source] | None = None
    """Puts other nodes before a source, for a namespace; None: every node asks the source."""
    models: int = 2
    """Models at a time."""
    turn: float = 300.0
    """Seconds after which a model gives its place to one of another namespace that waits."""
    models_per_namespace: int = 0
    """BaseModels that count, of each namespace, the oldest first; 0: all."""
    verify_every: float = 6 * 3600.0
    sample: float = 0.02
    """Share of all blocks that is read when files are looked at again."""
    again: float = 10.0
    """Seconds until a failed model is tried again; twice as many each time, at most `again_last`."""
    again_last: float = 600.0
    remove_after: float = 0.0
    """Seconds for which no model names a directory before it is offered to be removed; 0: it is kept."""

    @cached_property
    def places(self) -> Roots:
        """The roots, as they are when this is asked for the first time."""
        return Roots(self.roots)


class Work:
    """One model, as its spec is now."""

    def __init__(self, model: record.Held, settings: AgentSettings, wall: WallClock = now) -> None:
        self.model, self._settings, self._wall = model, settings, wall
        self.identity = weights(model)
        self._uri, self._misplaced = self.identity.uri, settings.places.misplaced(model)
        self.store: Store = settings.places.store(model)
        self._directory = record.directory(model, settings.roots)
        self._progress = Progress()
        self._report = self._first()
        self._tries = 0
        self.due = 0.0
        """Monotonic time of the next pass."""
        self.points = True
        """Whether the link at its path is its own: of two models with the same files at a path only the first has it."""

    def lends(self, other: "Work") -> bool:
        """Whether what it fetches now is what another wants, which then needs no second copy."""
        mine, theirs = self.identity, other.identity
        same = (mine.uri, mine.source, mine.namespace) == (theirs.uri, theirs.source, theirs.namespace)
        return same and self._report.state == record.UPDATING and self.store.home == other.store.home

    def report(self) -> record.Report:
        """How it stands."""
        if self._report.state == record.UPDATING:
            so_far = self._progress
            self._report.bytes, self._report.total, self._report.speed = so_far.bytes, so_far.total, so_far.speed
            self._report.revision = so_far.revision
        return self._report

    def refresh(self, model: record.Held) -> None:
        """The model as it is now; an edit of what failed, or another pin than what is here, is a reason to look at once."""
        before, pin = self.model, self._pin()
        self.model = model
        edited = model is not before and (model.spec, self._pin()) != (before.spec, pin)
        other = self._report.state == record.READY and self._pin() not in ("", self._report.revision)
        if (edited and self._tries) or other:
            self._tries, self.due = 0, 0.0

    def _first(self) -> record.Report:
        """What the disk says before the first pass: an agent that starts again takes no label away."""
        manifest = None if self._misplaced else self.store.manifest()
        if manifest is None or self._pin() not in ("", manifest.revision):
            return record.Report()
        held, size = (self._directory,), manifest.size
        return record.Report(record.READY, manifest.revision, held, size, size, verified_at=manifest.verified_at)

    async def run(self, over: Over = lambda: False) -> None:
        """One pass, that ends early when its turn is over; never raises but when it is cancelled."""
        try:
            await self._run(over)
        except TurnOver:
            self.due = 0.0
        except (Failed, Refused) as error:
            self._fail(str(error))
        except OSError as error:
            self._fail(f"the disk refuses: {error.strerror or error}")
        except Exception as error:
            logger.exception("%s", shortened(self._uri))
            self._fail(f"the agent failed ({type(error).__name__}): please report this with its log")

    def refuse(self, why: str) -> None:
        """It cannot be done now, and is tried as soon as it can."""
        if self._report.message != shortened(why):
            self._failed(why)
            logger.warning("%s: %s", shortened(self._uri), self._report.message)
        self._tries, self.due = 0, 0.0

    async def _run(self, over: Over) -> None:
        if said := self._misplaced or await asyncio.to_thread(self._settings.places.detour, self.model):
            raise Failed(said)
        if self._uri.startswith(LOCAL):
            return await asyncio.to_thread(self._look)
        found = await asyncio.to_thread(self._check)
        manifest = found or await self._fetch(over)
        await asyncio.to_thread(self._done, manifest)
        return None

    def _check(self) -> Manifest | None:
        """What is here, if it is of the right revision and was not damaged since."""
        if said := self.store.strange():
            raise Failed(said)
        manifest = self.store.manifest()
        if manifest is None:
            return None
        if self._pin() not in ("", manifest.revision):
            self.store.damage()
            return None
        if _age(manifest.verified_at, self._wall()) < self._settings.verify_every:
            return manifest
        damage = verify(self.store.root, manifest, sample=self._settings.sample, chance=random.Random())
        if not damage:
            fresh = manifest._replace(verified_at=self._wall().isoformat(timespec="seconds"))
            self.store.write(fresh)
            return fresh
        logger.error("%s is damaged on this disk: %s: %s", shortened(self._uri), shortened(damage[0].name), damage[0].why)
        self.store.damage()
        return None

    async def _fetch(self, over: Over) -> Manifest:
        self._progress = Progress()
        self._report = record.Report()
        storage = self.model.spec.storage
        settings, namespace, key = self._settings, self.model.namespace, storage.key or ""
        secret = _secret(settings.secrets, key) if key in settings.trust.secrets else {}
        guard = ModelGrant(settings.trust, namespace, key, self._uri)
        access = Access(storage.parameters or {}, secret, settings.endpoint, guard)
        found = source(self._uri, access)
        if self._settings.peers is not None:
            found = self._settings.peers(found, namespace)
        progress, node = self._progress, settings.node
        download = Download(
            self._uri,
            found,
            self.store,
            settings.limits,
            progress,
            node=node,
            namespace=namespace,
            over=over,
            wall=self._wall,
        )
        began = time.monotonic()
        logger.info("fetching %s for %s %s", shortened(self._uri), self.model.kind, self.model.name)
        try:
            made = await download.run(self._pin())
        finally:
            await found.close()
        told = len(made.files), made.size / 1e9, time.monotonic() - began
        logger.info("%s is whole: %d files, %.3g GB, this try took %.0f s", shortened(self._uri), *told)
        return made

    def _done(self, manifest: Manifest) -> None:
        models, paths = (record.label(self.model),), (str(self.store.path),) if self.store.linked else ()
        if (models, paths) != (manifest.models, manifest.paths):
            manifest = manifest._replace(models=models, paths=paths)
            self.store.write(manifest)
        said = self.store.point() if self.points else ""
        facts = learn.learn(self.store.root) if isinstance(self.model, Model) else {}
        held, size = (self._directory,), manifest.size
        self._report = record.Report(
            record.READY, manifest.revision, held, size, size, message=said, verified_at=manifest.verified_at, facts=facts
        )
        self._tries = 0
        self.due = time.monotonic() + self._settings.verify_every * random.uniform(0.9, 1.1)

    def _look(self) -> None:
        """Files that somebody else puts there: whether there are any."""
        path = self.store.path
        there = path.is_dir() and any(path.iterdir())
        said = "" if there else f"{path} is not there, or empty: put the files of the model there"
        facts = learn.learn(path) if there else {}
        self._report = record.Report(record.READY if there else record.FAILED, PRESENT, message=said, facts=facts)
        self.due = time.monotonic() + 60

    def _failed(self, why: str) -> None:
        why = shortened(why)
        held = self._report.directories
        bytes_, total, revision = self._progress.bytes, self._progress.total, self._progress.revision
        self._report = record.Report(record.FAILED, revision, held, bytes_, total, message=why)

    def _fail(self, why: str) -> None:
        self._failed(why)
        pause = min(self._settings.again_last, self._settings.again * 2**self._tries)
        self._tries += 1
        self.due = time.monotonic() + pause
        logger.warning("%s: %s (again in %.0f s)", shortened(self._uri), self._report.message, pause)

    def _pin(self) -> str:
        """The revision that all nodes are to hold, "" while the operator has not said one."""
        pinned = self.model.status.get("weights") or {}
        return str(pinned.get("revision") or "") if pinned.get("uri") == self._uri else ""


def _secret(folder: Path, name: str) -> dict[str, str]:
    """The keys of a Secret that is mounted; {} for none. A name is one folder, whatever it says."""
    place = folder / Path(name).name
    if not place.is_dir():
        return {}
    return {one.name: one.read_text() for one in place.iterdir() if one.is_file()}


def _age(moment: str, at: datetime) -> float:
    """Seconds from a moment to `at`; what is none is long ago."""
    try:
        return (at - datetime.fromisoformat(moment)).total_seconds()
    except (ValueError, TypeError):  # no time, or a time without its zone
        return math.inf
