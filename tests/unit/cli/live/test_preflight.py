"""Tests of the pods of `ome preflight` from their creation to their removal. Whatever happens, no pod is left."""

import asyncio
import os
import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ome_operator.cli.live import preflight
from ome_operator.cli.live.preflight import CheckStopped, PreflightRun
from ome_operator.core.preflight.on_demand import Trial
from ome_operator.describe.preflight import report, report_lines
from ome_operator.kube import errors
from tests.support.fake_api import Call
from tests.support.looked import FULL, RUNS, Looked, Manifest, ended, healthy, status, unplaced
from tests.unit.describe.test_preflight import DOWN, made

MIB_16 = {"check": "shm", "rank": -1, "said": "/dev/shm has 16 MiB", "fix": "mount more"}


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight, "PAUSE", 0)
    monkeypatch.setattr(preflight, "REMOVAL", 0.2)


async def looked(api: Looked, *trials: Trial, within: int = 60, said: list[str] | None = None) -> list[str]:
    """Return the output of `ome preflight` with the answers of this API server. `trials` are the checks to run, `within` is
    the time limit in seconds, and the progress messages are added to `said`.
    """
    look = PreflightRun(api, trials or (made(),), within, (said if said is not None else []).append)
    return report_lines(report(*await look.run()))


async def until(holds: Callable[[], bool]) -> None:
    for _ in range(1000):
        if holds():
            return
        await asyncio.sleep(0)
    raise AssertionError("it never came to that")


def rank(pod: Manifest) -> int:
    return int(pod["metadata"]["name"].rpartition("-")[2])


async def test_healthy_run_creates_reads_and_removes_its_pods() -> None:
    api, said = Looked(), list[str]()
    (told,) = await looked(api, said=said)
    assert told.startswith("4 ranks on 2 nodes: nothing found in ") and said == [] and api.made == {}
    headless, *pods = api.ever
    assert headless["kind"] == "Service" and {each["kind"] for each in pods} == {"Pod"} and len(pods) == 4
    owners = [each["metadata"]["ownerReferences"][0]["uid"] for each in pods]
    assert owners == [headless["metadata"]["uid"]] * 4


async def test_finding_of_a_rank_is_reported() -> None:
    def play(pod: Manifest, looks: int) -> Manifest:
        return ended("gpu-7", DOWN) if looks > 2 and rank(pod) == 1 else healthy(pod, looks)

    told = await looked(Looked(play), made(decoder=False))
    assert told[0].startswith("engine, rank 1 on node gpu-7: links: port 1 of mlx5_2 is DOWN")


@pytest.mark.parametrize(
    ("fares", "words"),
    [
        (ended("n", message='{"preflight":1,"failed":"the image has no python3"}'), "the image has no python3"),
        (
            ended("n", message='{"preflight": 1, "findings": [{"check": "a'),
            "the message of the check was truncated",
        ),
        (ended("n", message="\x00\x1b[2J" * 3000), "the check ended with code 0 and the message"),
        (ended("n", message="", code=137), "the check ended with code 137"),
        (
            status("n", phase="Failed", reason="UnexpectedAdmissionError", message="no hca"),
            "UnexpectedAdmissionError: no hca",
        ),
    ],
)
async def test_any_pod_message_gives_a_printable_sentence(fares: Manifest, words: str) -> None:
    api = Looked(lambda pod, looks: fares)
    told = await looked(api, made(size=1, decoder=False))
    assert words in told[0] and told[0].isprintable() and api.made == {}


async def test_unplaced_rank_is_awaited_until_the_timeout_and_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rank that gets no node is waited for until the time limit, and then reported. The other ranks wait for it, so the
    command also has to wait for them.
    """

    def play(pod: Manifest, looks: int) -> Manifest:
        if rank(pod) == 1:
            return unplaced()
        return ended("gpu-0", MIB_16) if looks > 30 else status("gpu-0", RUNS)

    monkeypatch.setattr(preflight, "PAUSE", 0.01)
    monkeypatch.setattr(preflight, "SILENCE", 0)
    api, said = Looked(play), list[str]()
    told = await looked(api, made(decoder=False), within=0, said=said)
    assert told[0].startswith("engine, rank 0 on node gpu-0: shm")
    assert told[1].startswith(f"engine, rank 1 has no node: Unschedulable: {FULL}") and told[2].startswith(
        "1 of 2 ranks on 1 node: 1 finding"
    )
    assert said == [f"1 of 2 ranks run, 1 placed: Unschedulable: {FULL}"], "reported once, however often the pods are read"
    assert api.made == {} and api.looks >= 30


async def test_run_without_placed_pods_ends_without_waiting() -> None:
    api = Looked(lambda pod, looks: unplaced())
    told = await looked(api, within=0)
    assert told[-1].startswith("none of 4 ranks was checked") and api.made == {}


async def test_unfinished_check_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight, "SLACK", -60)
    api = Looked(lambda pod, looks: status("n", RUNS))
    told = await looked(api, made(size=1, decoder=False), within=0)
    assert "the check did not end in time" in told[0] and api.made == {}


async def test_simulated_node_is_reported_immediately_and_others_are_awaited() -> None:
    """The pod of a check on a node that kwok simulates stays Running forever. The command names the node at once instead of
    waiting for that pod, and waits for the other ranks.
    """

    def play(pod: Manifest, looks: int) -> Manifest:
        return status("sim-0", RUNS) if rank(pod) else healthy(pod, looks)

    kwok = {"metadata": {"name": "sim-0", "labels": {"type": "kwok"}}}
    told = await looked(Looked(play, {"Node": [kwok]}), made(decoder=False))
    assert told[0] == "engine, rank 1 on node sim-0 was not checked: the node is simulated by kwok, so no check runs there"
    assert told[-1].startswith("1 of 2 ranks on 1 node: nothing found")


async def test_removed_pod_is_reported() -> None:
    api = Looked()
    task = asyncio.create_task(looked(api, made(decoder=False)))
    await until(lambda: len(api.made) == 3)
    api.made.pop(("Pod", next(name for kind, name in api.made if kind == "Pod" and name.endswith("-w-1"))))
    assert any("its pod was removed" in line for line in await task) and api.made == {}


# --- nothing is left ----------------------------------------------------------------------------------------------------


@pytest.fixture
def heard() -> Iterator[None]:
    """Set the default action of SIGHUP during a test. If the tests run under nohup, SIGHUP is ignored, and the command
    would leave this as it is.
    """
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.usefixtures("heard")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
async def test_signal_removes_all_check_pods(number: int) -> None:
    before = signal.getsignal(number)

    def play(pod: Manifest, looks: int) -> Manifest:
        if looks == 3:
            os.kill(os.getpid(), number)
            os.kill(os.getpid(), number)  # users press it twice
        return status("n", RUNS)

    api = Looked(play)
    with pytest.raises(CheckStopped) as stopped:
        await looked(api)
    assert stopped.value.number == number and len(api.ever) == 5 and api.made == {}
    assert signal.getsignal(number) in (before, signal.SIG_DFL, signal.default_int_handler)


async def test_signal_during_creation_removes_all_pods() -> None:
    """If a signal arrives while pods are being created, the command waits for requests under way, because the server may
    have created a pod whose response is lost. Then it removes all pods.
    """
    gate = asyncio.Event()

    async def slow(call: Call) -> None:
        await gate.wait()

    api = Looked(create_to_Pod=slow)
    task = asyncio.create_task(looked(api))
    await until(lambda: api.kinds("create").count("Pod") == 4)
    os.kill(os.getpid(), signal.SIGINT)
    await asyncio.sleep(0.02)
    assert not task.done()
    gate.set()
    with pytest.raises(CheckStopped):
        await task
    assert len(api.ever) == 5 and api.made == {}


@pytest.mark.parametrize(
    "error",
    [
        errors.Forbidden('pods "x" is forbidden: exceeded quota: gpus'),
        errors.Forbidden('pods is forbidden: User "u" cannot create resource "pods" in API group ""'),
        errors.Transient("no answer"),
        errors.Invalid("Pod is invalid"),
    ],
)
async def test_partly_created_pods_are_removed(error: errors.KubeError) -> None:
    number = iter(range(100))

    def third(call: Call) -> Any:
        return error if next(number) == 2 else None

    api = Looked(create_to_Pod=third)
    with pytest.raises(type(error)):
        await looked(api)
    assert len(api.ever) == 4 and api.made == {}


async def test_missing_list_permission_creates_no_pods() -> None:
    words = 'pods is forbidden: User "u" cannot list resource "pods" in API group "" in the namespace "team"'
    api = Looked(list_objects_to_Pod=errors.Forbidden(words))
    with pytest.raises(errors.Forbidden, match="cannot list resource"):
        await looked(api)
    assert api.ever == []


async def test_internal_error_removes_all_pods() -> None:
    api = Looked(lambda pod, looks: {"node": "n", "status": {"containerStatuses": 7}})
    with pytest.raises(TypeError):
        await looked(api)
    assert len(api.ever) == 5 and api.made == {}


async def test_unavailable_server_is_tolerated_for_a_while() -> None:
    number = iter(range(1000))

    def sometimes(call: Call) -> Any:
        return errors.Transient("connection refused") if next(number) % 2 else None

    api, said = Looked(), list[str]()
    api.answers["list_objects Pod"] = sometimes
    told = await looked(api, made(decoder=False), said=said)
    assert told[0].startswith("2 ranks on 2 nodes: nothing found") and api.made == {}
    assert said == ["the API server does not respond: connection refused"]


async def test_a_server_that_never_answers_again_ends_the_check(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the API server never answers again, the check is given up after a while, even if its time limit is longer. The
    message names the command that removes the remaining objects.
    """
    monkeypatch.setattr(preflight, "UNREACHED", 0.05)
    monkeypatch.setattr(preflight, "PAUSE", 0.01)

    def gone(call: Call) -> Any:
        return errors.Transient("connection refused") if api.looks >= 2 else None

    api, said = Looked(lambda pod, looks: status("n", RUNS)), list[str]()
    api.answers["list_objects Pod"] = gone
    with pytest.raises(errors.Transient, match="connection refused"):
        await looked(api, made(decoder=False), within=3600, said=said)
    assert said[0] == "the API server does not respond: connection refused"
    assert said[1].startswith("some objects of the check may not have been deleted (connection refused)")


async def test_a_server_with_too_many_requests_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight, "BUSY_WAIT", 0.0)
    number = iter(range(1000))

    def busy(call: Call) -> Any:
        return errors.TooMany("too many requests", 429, retry_after=3600) if next(number) % 2 else None

    api = Looked(create=busy)
    api.answers["list_objects Pod"] = busy
    (told,) = await looked(api)
    assert told.startswith("4 ranks on 2 nodes: nothing found") and len(api.ever) == 5 and api.made == {}
    api = Looked(create_to_Pod=errors.TooMany("too many requests", 429))
    with pytest.raises(errors.TooMany):
        await looked(api)
    assert api.made == {}


async def test_failed_removal_is_reported_with_a_command() -> None:
    api, said = Looked(delete=errors.Forbidden('cannot delete resource "pods"')), list[str]()
    (told,) = await looked(api, made(decoder=False), said=said)
    assert told.startswith("2 ranks"), "the findings are reported nevertheless"
    assert said == [
        'some objects of the check may not have been deleted (cannot delete resource "pods"). Their pods end without '
        "action. To delete the objects:  kubectl delete service,pod -n team -l ome.io/preflight-run=abcd1234"
    ]
