"""Tests of the flight recorder in the operator's process: what it writes, when, and that it never ends a pass."""

import asyncio
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ome_operator.app import OperatorProcess
from ome_operator.controllers.base import Core
from ome_operator.controllers.inferenceservice import flight as flights
from ome_operator.controllers.inferenceservice.flight import FILES, Flight
from ome_operator.controllers.inferenceservice.reconciler import InferenceServiceReconciler
from ome_operator.core.observed.objects import Ref
from ome_operator.core.reconcile.plan import Plan
from ome_operator.machinery.life import LEADING
from ome_operator.recorder import recording, writer
from ome_operator.recorder.passes import PassRecorder
from ome_operator.settings import Settings
from tests.support.fake_api import FakeApi
from tests.unit.controllers import makers

SERVICE = Ref("InferenceService", "ns", "svc")


def reconciler(sync: Callable[..., Plan], folder: Path, most: int = 2**20) -> InferenceServiceReconciler:
    """Return the reconciler of a single service."""
    api: Any = FakeApi({})
    cluster, queue = makers.cluster({"kind": "InferenceService", **makers.BODY}), makers.queue()
    core = Core(sync=sync)
    made = makers.services(cluster, api, queue, core)
    made.flight = Flight(most, makers.wall, folder)
    return made


def broken(*_: Any) -> Plan:
    raise ValueError("no such thing")


async def files(made: InferenceServiceReconciler, folder: Path) -> list[recording.Recording]:
    """Return all recordings, after the last one was written."""
    for task in list(made.flight._writes):
        await task
    return read(folder)


def read(folder: Path) -> list[recording.Recording]:
    return [recording.decode(path.read_bytes()) for path in sorted(folder.iterdir())]


async def test_internal_error_is_recorded_once_with_its_inputs(tmp_path: Path) -> None:
    made = reconciler(broken, tmp_path)
    await made.reconcile(SERVICE)
    await made.reconcile(SERVICE)
    (found,) = await files(made, tmp_path)
    assert "InternalError" in found.why
    (only,) = found.services["ns/svc"]
    assert only.recorded_decision == {"error": "ValueError: no such thing"}


async def test_sigusr1_records_all_services(tmp_path: Path) -> None:
    made = reconciler(lambda *_: Plan(status={"conditions": []}), tmp_path)
    await made.reconcile(SERVICE)
    path = await made.flight.write("SIGUSR1")
    assert path is not None and stat.S_IMODE(path.stat().st_mode) == 0o600
    (found,) = await files(made, tmp_path)
    assert (found.why, list(found.services)) == ("SIGUSR1", ["ns/svc"])


async def test_a_recording_is_written_by_another_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A separate process writes recordings, and the operator kills it after a time limit, for example while it processes the
    text of a tenant.
    """
    made = reconciler(lambda *_: Plan(status={"conditions": []}), tmp_path)
    await made.reconcile(SERVICE)
    started = list["subprocess.Popen[bytes]"]()
    popen = subprocess.Popen

    def asleep(command: Any, **pipes: Any) -> "subprocess.Popen[bytes]":
        assert command[:3] == (sys.executable, "-m", "ome_operator.recorder.writer")
        started.append(popen([sys.executable, "-c", "import time; time.sleep(60)"], **pipes))
        return started[0]

    monkeypatch.setattr(subprocess, "Popen", asleep)
    monkeypatch.setattr(flights, "SECONDS", 0.2)
    assert await made.flight.write("SIGUSR1") is None
    assert started[0].wait(10) == -signal.SIGKILL


async def test_cancelled_recording_task_ends(tmp_path: Path) -> None:
    """A task that writes a recording ends even if it is cancelled right after its start. An operator that stops just after
    an internal error must not wait until the recording is written.
    """
    made = reconciler(lambda *_: Plan(status={"conditions": []}), tmp_path)
    await made.reconcile(SERVICE)
    for turns in range(20):
        task = made.flight.write("SIGUSR1")
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        done, _ = await asyncio.wait([task], timeout=10)
        assert done


async def test_recordings_are_written_by_one_process_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If many reconciliations fail at the same time, recordings are written by one process after another. A bug may affect a
    thousand services, and a thousand processes would take the memory of the container.
    """
    running, most, moments = list[int](), list[int](), iter(range(2000))

    async def file(*_: Any) -> int:
        running.append(1)
        most.append(len(running))
        await asyncio.sleep(0)
        return running.pop()

    monkeypatch.setattr(flights, "_file", file)
    flight = Flight(2**20, lambda: makers.NOW.replace(microsecond=next(moments)), tmp_path)
    written = await asyncio.gather(*(flight.write("InternalError", SERVICE) for _ in range(1000)))
    assert set(most) == {1} and len([path for path in written if path]) == flights.WAITING
    assert await flight.write("SIGUSR1"), "later, another process can start"


async def test_failed_recording_process_is_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    made = reconciler(lambda *_: Plan(status={"conditions": []}), tmp_path)
    await made.reconcile(SERVICE)
    monkeypatch.setattr(writer, "LARGEST", "many")
    assert await made.flight.write("SIGUSR1") is None
    assert "cannot write the recording" in caplog.text and "invalid literal" in caplog.text


async def test_number_of_recording_files_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    moments = iter(range(100))
    monkeypatch.setattr(writer, "LARGEST", 0)
    flight = Flight(2**20, lambda: makers.NOW.replace(microsecond=next(moments)), tmp_path)
    for _ in range(FILES + 3):
        assert await flight.write("SIGUSR1")
    assert len(read(tmp_path)) == FILES


async def test_unwritable_recording_directory_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert await Flight(2**20, makers.wall, tmp_path / "missing").write("SIGUSR1") is None
    assert "cannot write the recording" in caplog.text


async def test_exception_in_the_recorder_does_not_end_a_reconciliation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def heard(*_: Any) -> Any:
        raise RuntimeError("recorder")

    monkeypatch.setattr(PassRecorder, "finish_pass", heard)
    made = reconciler(lambda *_: Plan(status={"conditions": [{"type": "Ready", "status": "True"}]}), tmp_path)
    await made.reconcile(SERVICE)
    assert made.flight.bytes == 0


async def test_recorder_keeps_nothing_if_disabled(tmp_path: Path) -> None:
    made = reconciler(broken, tmp_path, most=0)
    await made.reconcile(SERVICE)
    assert await files(made, tmp_path) == []


async def test_signal_reaches_only_the_leader_and_ends_no_process(caplog: pytest.LogCaptureFixture) -> None:
    process, asked = OperatorProcess(Settings()), list[str]()
    process.catch_signals()
    process.leader.set_result(SimpleNamespace(record=asked.append))  # type: ignore[arg-type]
    os.kill(os.getpid(), signal.SIGUSR1)
    await asyncio.sleep(0.05)
    assert not asked and "has reconciled nothing" in caplog.text
    process.life.state = LEADING
    os.kill(os.getpid(), signal.SIGUSR1)
    await asyncio.sleep(0.05)
    assert asked == ["SIGUSR1"]
    for number in (signal.SIGUSR1, signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().remove_signal_handler(number)
