"""Tests of one model on one node, from the Model object to the entry in the node's record."""

import asyncio
import os
import signal
import ssl
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ome_operator.agent import model_facts
from ome_operator.agent.download import Limits
from ome_operator.agent.unused_directories import directories, remove
from ome_operator.agent.work import AgentSettings, Work
from ome_operator.api import Model
from ome_operator.core.weights.mount import weights
from ome_operator.storage.addresses import host
from ome_operator.storage.grants import SecretGrant, Trust
from tests.support import parts
from tests.support.hub import COMMIT, Answer, Hub, certificate, served
from tests.support.hub import model as files

URI = "hf://org/model"
BIG = "model-00001-of-00003.safetensors"


class Here:
    """A node's disk and an agent's settings."""

    def __init__(self, folder: Path, hub: Hub) -> None:
        self.root, self.hub = folder / "models", hub
        self.root.mkdir()
        self.settings = AgentSettings(
            roots=(str(self.root),), secrets=folder / "secrets", endpoint=hub.url, again=30.0,
            limits=Limits(first=0.001, last=0.01, tries=2, wrong=2), trust=Trust(private_hosts=frozenset({"localhost"})),
        )  # fmt: skip

    def model(self, uri: str = URI, path: str = "m", pinned: str = "", **storage: Any) -> Model:
        """Return a model whose files are on this disk."""
        made = parts.model(storage={"storageUri": uri, "path": str(self.root / path), **storage})
        status = {"weights": {"uri": uri, "revision": pinned}} if pinned else {}
        return Model(**{**made.__dict__, "status": status})

    def local(self, path: str) -> Model:
        """Return a model whose files somebody else has stored on this disk."""
        return self.model(f"local://{self.root / path}", path)

    def work(self, model: Model) -> Work:
        """Return the work on the model after one reconciliation."""
        made = Work(model, self.settings)
        asyncio.run(made.run())
        return made


@pytest.fixture
def here(tmp_path: Path, hub: Hub) -> Here:
    return Here(tmp_path, hub)


def test_log_contains_start_and_end_of_a_download(here: Here, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="ome_operator.agent")
    here.work(here.model())
    begun, done = (record.getMessage() for record in caplog.records)
    assert begun == f"downloading {URI} for ClusterBaseModel tiny"
    assert done.startswith(f"{URI} is complete: {len(here.hub.files)} files, ")


def test_a_model_becomes_ready_with_facts(here: Here) -> None:
    report = here.work(here.model()).report()
    assert (report.state, report.revision, report.bytes, report.total) == ("Ready", COMMIT, here.hub.size, here.hub.size)
    assert report.directories == (weights(here.model()).digest,)
    assert report.facts["architecture"] == "DeepseekV3ForCausalLM"
    assert (here.root / "m" / "config.json").is_file()


def test_restart_downloads_nothing_and_contacts_no_host(here: Here) -> None:
    here.work(here.model())
    here.hub.tokens.clear()
    first = Work(here.model(), here.settings).report()
    assert (first.state, first.directories) == ("Ready", (weights(here.model()).digest,)), "before the first reconciliation"
    assert here.work(here.model()).report().state == "Ready"
    assert here.hub.tokens == []


def test_changed_uri_keeps_the_old_directory(here: Here) -> None:
    here.work(here.model())
    here.hub.sent.clear()
    report = here.work(here.model(f"{URI}@v1")).report()
    former, now = (weights(here.model(uri)).digest for uri in (URI, f"{URI}@v1"))
    assert report.directories == (now,)
    old, new = directories(here.root / ".ome")
    assert {Path(old.path).name, Path(new.path).name} == {former, now}
    assert old.models == new.models == ("models.ome.io/clusterbasemodel.tiny",) and old.bytes == here.hub.size
    assert here.hub.total == 0, "the files are the same"
    assert (here.root / "m").readlink().name == now


def test_commit_other_than_the_pinned_one_is_not_ready(here: Here) -> None:
    here.work(here.model())
    report = here.work(here.model(pinned="f" * 40)).report()
    assert report.state == "Failed" and "no revision ffff" in report.message
    assert report.directories == (), "the existing revision is not that of the other nodes"


def test_revision_is_reported_before_the_download_has_its_turn(here: Here) -> None:
    """The agent looks up and reports the revision of a model before it begins the model's download. The report has to be
    early, because the revision of the first node is used for all nodes only if no second node reports another revision in
    time.
    """
    work = Work(here.model(), here.settings)
    asyncio.run(work.look_up_revision())
    report = work.report()
    assert (report.state, report.revision, here.hub.sent) == ("Updating", COMMIT, [])
    asyncio.run(work.run())
    here.hub.listings.clear()
    for quiet in (work, Work(here.model(pinned=COMMIT), here.settings), Work(here.local("m"), here.settings)):
        asyncio.run(quiet.look_up_revision())
    assert here.hub.listings == [], "the revision is already known"
    here.hub.token = "another"
    failing = Work(here.model(f"{URI}@v1"), here.settings)
    asyncio.run(failing.look_up_revision())
    assert failing.report().state == "Updating", "the download reports the reason"


def test_failed_download_is_reported_and_retried(here: Here) -> None:
    here.hub.fault = lambda number, name: Answer(wrong=name == BIG)
    work = here.work(here.model())
    assert work.report().state == "Failed" and "its SHA-256 differed" in work.report().message
    here.hub.fault = lambda number, name: Answer()
    asyncio.run(work.run())
    assert work.report().state == "Ready"


@pytest.fixture
def closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Here]:
    """Yield a hub with TLS that requires a token, which a Secret has."""
    hub = Hub(files(1, [3_000_000, 200_000, 5_000]), token="hf_secret")
    with served(hub, tls=certificate(tmp_path / "tls")):
        trusted = ssl.create_default_context(cafile=str(tmp_path / "tls" / "ca.crt"))
        monkeypatch.setattr("aiohttp.connector._SSL_CONTEXT_VERIFIED", trusted)  # created once, when the module is imported
        here = Here(tmp_path, hub)
        folder = here.settings.secrets / "hf-token"
        folder.mkdir(parents=True)
        (folder / "token").write_text("hf_secret\n")
        yield here


def granted(here: Here, *hosts: str) -> None:
    """Write the administrator's list of permitted hosts."""
    grant = SecretGrant(name="hf-token", hosts=hosts)
    here.settings = replace(here.settings, trust=replace(here.settings.trust, secrets={"hf-token": grant}))


def test_token_is_read_from_the_mounted_secret(closed: Here, caplog: pytest.LogCaptureFixture) -> None:
    model = closed.model(key="hf-token")
    assert "provides no token" in closed.work(model).report().message
    granted(closed, host(closed.hub.url))
    report = closed.work(model).report()
    assert report.state == "Ready" and "hf_secret" not in caplog.text + str(report)


@pytest.mark.parametrize("hosts", [("huggingface.co",), ("127.0.0.1:1",)])
def test_token_is_sent_only_to_permitted_hosts(closed: Here, hosts: tuple[str, ...]) -> None:
    """S2 of the review: a model names its own endpoint and a token of the cluster. The endpoint gets no request if the
    administrator has not permitted its host for the token.
    """
    granted(closed, *hosts)
    closed.settings = replace(closed.settings, endpoint="")
    report = closed.work(closed.model(key="hf-token", parameters={"endpoint": closed.hub.url})).report()
    assert "is not allowed for host 127.0.0.1" in report.message
    assert closed.hub.tokens == [], "the host gets no request at all"


def test_token_is_never_sent_without_tls(here: Here) -> None:
    here.hub.token = "hf_secret"
    folder = here.settings.secrets / "hf-token"
    folder.mkdir(parents=True)
    (folder / "token").write_text("hf_secret")
    granted(here, "127.0.0.1")
    assert "never sent over plain HTTP" in here.work(here.model(key="hf-token")).report().message
    assert here.hub.tokens == []


def test_redirect_to_an_internal_address_is_not_followed(here: Here) -> None:
    """S15 of the review: the hub redirects to a metadata address; the redirect is not followed, even for an endpoint that
    the administrator permitted.
    """
    here.settings = replace(here.settings, trust=Trust())
    here.hub.cdn = "169.254.169.254"
    assert "169.254.169.254 is a private address" in here.work(here.model()).report().message
    here.hub.cdn = "localhost"
    assert "localhost has the private address" in here.work(here.model()).report().message


def test_namespaced_model_contacts_no_private_address(here: Here) -> None:
    here.settings = replace(here.settings, endpoint="")
    made = parts.model(storage={"storageUri": URI, "path": str(here.root / "m"), "parameters": {"endpoint": here.hub.url}})
    report = here.work(Model(**{**made.__dict__, "kind": "BaseModel", "namespace": "team-a"})).report()
    assert "127.0.0.1 is a private address, which agents do not contact" in report.message
    assert here.hub.tokens == [], "without a connection, nothing reveals whether a port is open"


def test_manually_placed_local_files_are_reported_as_ready(here: Here) -> None:
    model = here.local("m")
    assert "does not exist or is empty" in here.work(model).report().message
    (here.root / "m").mkdir(parents=True)
    (here.root / "m" / "config.json").write_text("{}")
    report = here.work(model).report()
    assert (report.state, report.directories) == ("Ready", ())


def test_model_path_outside_the_roots_fails(here: Here, tmp_path: Path) -> None:
    report = here.work(here.model(path=str(tmp_path / "elsewhere" / "m"))).report()
    assert report.state == "Failed" and "is not below" in report.message
    assert not (tmp_path / "elsewhere").exists()


def test_damage_is_detected_and_repaired_at_verification(here: Here) -> None:
    clock = SimpleNamespace(now=datetime(2026, 1, 1, tzinfo=UTC))
    work = Work(here.model(), here.settings, lambda: clock.now)
    asyncio.run(work.run())
    assert work.report().verified_at == "2026-01-01T00:00:00+00:00"
    broken = here.root / "m" / BIG
    broken.write_bytes(broken.read_bytes()[:-1])
    clock.now += timedelta(seconds=here.settings.policy.verify_every - 1)
    asyncio.run(work.run())
    assert broken.read_bytes() != here.hub.files[BIG], "too early"
    clock.now += timedelta(seconds=1)
    asyncio.run(work.run())
    assert broken.read_bytes() == here.hub.files[BIG]
    assert (work.report().state, work.report().verified_at) == ("Ready", "2026-01-01T06:00:00+00:00")


def marks(here: Here) -> list[str]:
    """Return the marks of reads that were started and have not ended."""
    return [mark.read_text() for mark in here.root.rglob("*.reading")]


def test_a_model_is_reported_before_its_facts_are_read(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model is reported as Ready before the facts in its files are read. Reported: an agent that ended while it read them
    never reported the model.
    """
    seen: list[tuple[str, list[str]]] = []
    work = Work(here.model(), here.settings)
    real = model_facts.read_facts
    monkeypatch.setattr(
        model_facts, "read_facts", lambda root: (seen.append((work.report().state, marks(here))), real(root))[1]
    )
    asyncio.run(work.run())
    assert seen == [("Ready", ["1"])] and work.report().facts and marks(here) == []


def test_model_that_ended_the_agent_is_read_later(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mark on the disk shows that the agent ended while it read a model's files. After the restart, the agent waits before
    it reads them again. Reported: it read them first, and ended again.
    """
    read: list[Path] = []
    monkeypatch.setattr(model_facts, "read_facts", lambda root: (read.append(root), {"architecture": "X"})[1])
    here.work(here.model())
    read.clear()
    for ended, seconds in ((1, 600), (2, 1200)):
        (here.root / ".ome" / f"{weights(here.model()).digest}.reading").write_text(str(ended))  # as a kill leaves it
        work = here.work(here.model())
        report = work.report()
        times = "once" if ended == 1 else "2 times"
        why = f"the agent ended {times} while it read the facts in the model's files, so "
        why += f"the agent reads the facts again in {seconds} s"
        assert (report.state, report.message, report.facts, read) == ("Ready", why, {}, [])
        assert seconds - 60 < work.due - time.monotonic() <= seconds
        monkeypatch.setattr(work, "_may_read_at", time.monotonic())
        asyncio.run(work.run())
        assert (work.report().message, work.report().facts, len(read)) == ("", {"architecture": "X"}, 1)
        assert marks(here) == []
        read.clear()
    (here.root / ".ome" / f"{weights(here.model()).digest}.reading").write_text("3")
    work = here.work(here.model())
    assert work.report().message.endswith("so the agent does not read the facts again until the model is edited")
    assert work.due - time.monotonic() > 3600 and read == [] and work.report().state == "Ready"
    work.refresh(here.model(nodeSelector={"edited": "yes"}))
    assert work.due == 0.0
    asyncio.run(work.run())
    assert (work.report().message, len(read)) == ("", 1)


def test_mark_remains_if_the_agent_is_killed_while_reading_facts(here: Here) -> None:
    here.work(here.model())
    store = Work(here.model(), here.settings).store
    for ended in (1, 2):
        child = os.fork()
        if child == 0:  # SIGKILL, with which the kernel ends a process when memory runs out
            with store.reading():
                os.kill(os.getpid(), signal.SIGKILL)
        assert os.waitpid(child, 0)[1] == signal.SIGKILL
        assert store.interrupted_readings() == ended and marks(here) == [str(ended)]
    with pytest.raises(ZeroDivisionError), store.reading():
        raise ZeroDivisionError
    assert marks(here) == [], "an exception must not end the process"
    with store.reading():
        pass
    remove(store.root)
    assert list(store.home.iterdir()) == []


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (OSError(28, "No space left on device"), "cannot read the facts in the model's files: No space left on device"),
        (OverflowError(), "internal error of the agent in the model's facts (OverflowError): please report it with its log"),
    ],
)
def test_unreadable_facts_leave_the_model_ready(
    here: Here, monkeypatch: pytest.MonkeyPatch, error: Exception, message: str
) -> None:
    """The facts of a complete model cannot be read because of an unexpected error. The model stays Ready. Reported: an
    OverflowError made such a model Failed forever.
    """

    def fail(root: Path) -> None:
        raise error

    monkeypatch.setattr(model_facts, "read_facts", fail)
    report = here.work(here.model()).report()
    assert (report.state, report.message) == ("Ready", message) and marks(here) == []
