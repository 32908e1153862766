"""The work on one model on this node: download the model, verify it again periodically, and report its state."""

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

from ome_operator import quantity
from ome_operator.agent import model_facts, record
from ome_operator.agent.download import Download, DownloadFailed, Limits
from ome_operator.agent.fair_queue import TurnCheck, TurnExpired
from ome_operator.agent.locations import AgentRoots
from ome_operator.agent.progress import Progress
from ome_operator.agent.record import shorten_text
from ome_operator.agent.store import Manifest, Store
from ome_operator.agent.verify import find_damaged_files
from ome_operator.api import Model
from ome_operator.core.weights.mount import LOCAL, AnyModel, weights
from ome_operator.settings.agent import AgentPolicy
from ome_operator.storage.grants import ModelGrant, Trust
from ome_operator.storage.listing import RequestRefused, Source
from ome_operator.storage.sources import Access, open_source
from ome_operator.util.wall_clock import WallClock, now

logger = logging.getLogger(__name__)

READINGS = 3
"""Maximum number of times that the agent may end while it reads the facts of a revision. Afterwards the facts of this
revision are no longer read."""
PRESENT = "local"
"""Revision that is reported for files that an administrator put on the node."""

_POLICY = AgentPolicy()


@dataclass(frozen=True, kw_only=True)
class AgentSettings:
    """The settings of an agent, from its command line."""

    roots: tuple[str, ...] = ("/mnt/models",)
    """Directories below which the agent may write."""
    secrets: Path = Path("/etc/ome/secrets")
    """The directory with one folder per Secret; each folder contains one file per key."""
    trust: Trust = field(default_factory=Trust)
    """Hosts and Secrets that an administrator permits."""
    endpoint: str = ""
    """URL of the hub; "" means huggingface.co."""
    limits: Limits = field(default_factory=Limits)
    node: str = ""
    peers: Callable[[Source, str], Source] | None = None
    """A function that returns, for a source and a namespace, a source that first asks other nodes. None if the agent does
    not ask other nodes."""
    policy: AgentPolicy = _POLICY
    again: float = 10.0
    """Seconds before the work on a failed model is retried; the pause doubles with each failure, up to `again_last`."""
    again_last: float = 600.0

    @cached_property
    def locations(self) -> AgentRoots:
        """The root directories, with the inode numbers that they had at the first use of this property."""
        return AgentRoots(self.roots)


class Work:
    """The work on one model: its current spec, its state, and the time of the next pass."""

    def __init__(self, model: AnyModel, settings: AgentSettings, wall: WallClock = now) -> None:
        self.model, self._settings, self._wall = model, settings, wall
        self.identity = weights(model)
        self._uri, self._misplaced = self.identity.uri, settings.locations.misplaced_message(model)
        self.store: Store = settings.locations.store(model)
        self._directory = record.directory(model, settings.roots)
        self._progress = Progress()
        self._report = self._initial_report()
        self._tries = 0
        self._may_read_at = 0.0
        """Monotonic time before which the facts are not read; 0 if no agent has ended while it read these facts."""
        self.due = 0.0
        """Monotonic time at which the next pass over this model (a download or a verification) is due."""
        self.owns_link = True
        """Whether this model owns the symlink at its path. If two models have the same files and the same path, only the
        first of them owns it."""

    def shares_download(self, other: "Work") -> bool:
        """Return whether this work downloads the files that `other` needs, so that `other` needs no separate download."""
        mine, theirs = self.identity, other.identity
        same = (mine.uri, mine.source, mine.namespace) == (theirs.uri, theirs.source, theirs.namespace)
        return same and self._report.state == record.UPDATING and self.store.home == other.store.home

    def report(self) -> record.Report:
        """Return the state of the model on this node."""
        if self._report.state == record.UPDATING:
            progress = self._progress
            self._report.bytes, self._report.total, self._report.speed = progress.bytes, progress.total, progress.speed
            self._report.revision = progress.revision
        return self._report

    def mounted_directory(self) -> str:
        """Return the directory that pods mount, or "" while its files are not complete."""
        place = self.store.path if self._uri.startswith(LOCAL) else self.store.root
        return str(place) if self._report.state == record.READY else ""

    def refresh(self, model: AnyModel) -> None:
        """Replace the model by its current version. If a failed model was edited, or if the pinned revision differs from
        the revision on the disk, the next pass is due at once.
        """
        before, pin, self.model = self.model, self._pin(), model
        edited = model is not before and (model.spec, self._pin()) != (before.spec, pin)
        if edited and self._may_read_at:  # a person may have replaced the files that ended the agent
            self._may_read_at = self.due = 0.0
            self.store.forget_readings()
        repinned = self._report.state == record.READY and self._pin() not in ("", self._report.revision)
        if (edited and self._tries) or repinned:
            self._tries, self.due = 0, 0.0

    def _initial_report(self) -> record.Report:
        """Return a report from the state of the disk, before the first pass. The report prevents a restarted agent from
        removing node labels.
        """
        manifest = None if self._misplaced else self.store.manifest()
        if manifest is None or self._pin() not in ("", manifest.revision):
            return record.Report()
        size, at = manifest.size, manifest.verified_at
        return record.Report(record.READY, manifest.revision, (self._directory,), size, size, verified_at=at)

    async def run(self, over: TurnCheck = lambda: False) -> None:
        """Run one pass over the model: download or verify its files. The pass ends early when `over` returns true. Errors
        are not raised, but reported as the state of the model.
        """
        try:
            await self._run(over)
        except TurnExpired:
            self.due = 0.0
        except (DownloadFailed, RequestRefused) as error:
            self._fail(str(error))
        except OSError as error:
            self._fail(f"cannot read or write the model's files: {error.strerror or error}")
        except Exception as error:
            logger.exception("%s", shorten_text(self._uri))
            self._fail(f"internal error of the agent ({type(error).__name__}): please report it with the agent's log")

    async def look_up_revision(self) -> None:
        """Look up the newest revision of a model at its source if no revision has been selected yet, and report the
        revision before the download begins.

        A download may wait for hours. Without this report, other nodes could not check during this time whether a revision
        that only one node reports is correct (`core/catalog/agreement.py`). Errors are only logged, because the download
        reports them.
        """
        if self._pin() or self.report().revision or self._misplaced or self._uri.startswith(LOCAL):
            return
        try:
            source = self._source()
            try:
                async with asyncio.timeout(self._settings.limits.listing):
                    self._progress.revision = (await source.listing("")).revision
            finally:
                await source.close()
        except Exception as error:
            logger.info("%s: its revision is not known yet: %s", shorten_text(self._uri), shorten_text(str(error)))

    def refuse(self, reason: str) -> None:
        """Report the message `reason`, because the model cannot be handled now. A pass is due as soon as the reason no
        longer exists.
        """
        if self._report.message != shorten_text(reason):
            self._set_failed(reason)
            logger.warning("%s: %s", shorten_text(self._uri), self._report.message)
        self._tries, self.due = 0, 0.0

    async def _run(self, over: TurnCheck) -> None:
        if problem := self._misplaced or await asyncio.to_thread(self._settings.locations.disk_message, self.model):
            raise DownloadFailed(problem)
        if self._uri.startswith(LOCAL):
            return await asyncio.to_thread(self._check_local)
        manifest = await asyncio.to_thread(self._check)
        manifest = manifest or await self._fetch(over)
        await asyncio.to_thread(self._done, manifest)
        return None

    def _check(self) -> Manifest | None:
        """Return the manifest if the files have the right revision and are not damaged, otherwise None."""
        if problem := self.store.foreign_message():
            raise DownloadFailed(problem)
        manifest = self.store.manifest()
        if manifest is None:
            return None
        if self._pin() not in ("", manifest.revision):
            self.store.mark_damaged()
            return None
        if _age(manifest.verified_at, self._wall()) < self._settings.policy.verify_every:
            return manifest
        damage = find_damaged_files(self.store.root, manifest, sample=self._settings.policy.sample, chance=random.Random())
        if not damage:
            fresh = manifest._replace(verified_at=self._wall().isoformat(timespec="seconds"))
            self.store.write_manifest(fresh)
            return fresh
        logger.error(
            "%s is damaged on this disk: %s: %s", shorten_text(self._uri), shorten_text(damage[0].name), damage[0].why
        )
        self.store.mark_damaged()
        return None

    def _source(self) -> Source:
        """Return the source of the files. Raises RequestRefused if the URI, the Secret or the settings do not allow a
        download.
        """
        storage = self.model.spec.storage
        settings, namespace, key = self._settings, self.model.namespace, storage.key or ""
        secret = _secret(settings.secrets, key) if key in settings.trust.secrets else {}
        guard = ModelGrant(settings.trust, namespace, key, self._uri)
        return open_source(self._uri, Access(storage.parameters or {}, secret, settings.endpoint, guard))

    async def _fetch(self, over: TurnCheck) -> Manifest:
        self._progress, known = Progress(), self._progress.revision
        self._progress.revision, self._report = known, record.Report()
        model_source, settings, namespace = self._source(), self._settings, self.model.namespace
        if settings.peers is not None:
            model_source = settings.peers(model_source, namespace)
        download = Download(
            self._uri,
            model_source,
            self.store,
            settings.limits,
            self._progress,
            node=settings.node,
            namespace=namespace,
            over=over,
            wall=self._wall,
        )
        began = time.monotonic()
        logger.info("downloading %s for %s %s", shorten_text(self._uri), self.model.kind, self.model.name)
        try:
            manifest = await download.run(self._pin())
        finally:
            await model_source.close()
        logged = len(manifest.files), manifest.size / 1e9, time.monotonic() - began
        logger.info("%s is complete: %d files, %.3g GB, the last attempt took %.0f s", shorten_text(self._uri), *logged)
        return manifest

    def _done(self, manifest: Manifest) -> None:
        models, paths = (record.label(self.model),), (str(self.store.path),) if self.store.has_link else ()
        if (models, paths) != (manifest.models, manifest.paths):
            manifest = manifest._replace(models=models, paths=paths)
            self.store.write_manifest(manifest)
        message = self.store.point() if self.owns_link else ""
        directories, size, known = (self._directory,), manifest.size, self._report
        self._report = record.Report(
            record.READY,
            manifest.revision,
            directories,
            size,
            size,
            message=message,
            verified_at=manifest.verified_at,
            facts=known.facts if known.revision == manifest.revision else {},
        )
        self._tries = 0
        self.due = time.monotonic() + self._settings.policy.verify_every * random.uniform(0.9, 1.1)
        if isinstance(self.model, Model):
            self._read_facts(message)

    def _read_facts(self, message: str) -> None:
        """Read the facts of a Ready model and add them to its report. `message` is the message that the report has without
        them.

        Malformed or malicious files can end the process that reads the facts. After such an end, the next reading is
        postponed, so that the facts of other models are read first. After READINGS ends, the facts are no longer read. The
        model stays Ready if the facts cannot be read, because its files are complete.
        """
        try:
            why = self._postponed()
            if not why:
                with self.store.reading():
                    self._report.facts = model_facts.read_facts(self.store.root)
        except OSError as error:
            why = f"cannot read the facts in the model's files: {error.strerror or error}"
        except Exception as error:
            logger.exception("%s", shorten_text(self._uri))
            why = f"internal error of the agent in the model's facts ({type(error).__name__}): please report it with its log"
        if why:
            logger.warning("%s: %s", shorten_text(self._uri), why)
            self._report.message = shorten_text("; ".join(filter(None, (message, why))))

    def _postponed(self) -> str:
        """Return the reason why the facts must not be read now; "" if they may be read."""
        ended, clock = self.store.interrupted_readings(), time.monotonic()
        if ended and not self._may_read_at:
            self._may_read_at = clock + self._settings.again_last * ended
        if ended < READINGS and clock >= self._may_read_at:
            return ""
        following = "the agent does not read the facts again until the model is edited"
        if ended < READINGS:
            self.due = min(self.due, self._may_read_at)
            following = f"the agent reads the facts again in {self._may_read_at - clock:.0f} s"
        times = "once" if ended == 1 else f"{ended} times"
        return f"the agent ended {times} while it read the facts in the model's files, so {following}"

    def _check_local(self) -> None:
        """Check whether an administrator has put files at the model's path."""
        path = self.store.path
        present = path.is_dir() and any(path.iterdir())
        message = "" if present else f"{path} does not exist or is empty: put the files of the model there"
        facts = model_facts.read_facts(path) if present else {}
        self._report = record.Report(record.READY if present else record.FAILED, PRESENT, message=message, facts=facts)
        self.due = time.monotonic() + 60

    def _set_failed(self, reason: str) -> None:
        reason = shorten_text(reason)
        directories, done = self._report.directories, self._progress
        self._report = record.Report(record.FAILED, done.revision, directories, done.bytes, done.total, message=reason)

    def _fail(self, reason: str) -> None:
        self._set_failed(reason)
        pause = min(self._settings.again_last, self._settings.again * 2**self._tries)
        self._tries += 1
        self.due = time.monotonic() + pause
        logger.warning("%s: %s (next attempt in %.0f s)", shorten_text(self._uri), self._report.message, pause)

    def _pin(self) -> str:
        """Return the revision that all nodes must use, or "" while the operator has not selected a revision."""
        pinned = self.model.status.get("weights") or {}
        return str(pinned.get("revision") or "") if pinned.get("uri") == self._uri else ""


def _secret(folder: Path, name: str) -> dict[str, str]:
    """Return the keys and values of the Secret `name`, which is mounted below `folder`; {} if the Secret is not mounted.
    Only the last component of `name` is used, so that a name cannot refer to another folder.
    """
    path = folder / Path(name).name
    if not path.is_dir():
        return {}
    return {file.name: file.read_text() for file in path.iterdir() if file.is_file()}


def _age(timestamp: str, time: datetime) -> float:
    """Return the seconds from a timestamp to `time`; infinity for an invalid timestamp."""
    when = quantity.parse_instant(timestamp)
    return math.inf if when is None else (time - when).total_seconds()
