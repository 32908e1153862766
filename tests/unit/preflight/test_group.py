"""Tests of ranks that connect to each other before their engines do: real processes and ports on loopback, with an address
for each rank.
"""

import json
import socket
import threading
import time
from pathlib import Path

import pytest

from ome_operator.preflight.group import Meeting
from ome_operator.preflight.node import CommandLine
from ome_operator.preflight.ports import Ports
from tests.support.preflights import ENGINE, PATIENT, QUICK, Group, fake_torch, group, run_checks, start, wait_for_check


def words(of: Group) -> tuple[str, ...]:
    """Return the command line of an engine with two ports on rank 0."""
    return (*ENGINE, f"--port={of.http}", f"--dist-init-addr={of.host(0)}:{of.http + 1}")


def test_healthy_group_has_no_findings(tmp_path: Path) -> None:
    of = group(31)
    found = run_checks(tmp_path, 3, of, words=words(of), mode="Require")
    assert [(each.code, each.finding_names) for each in found] == [(0, [])] * 3, [each.log for each in found]
    assert max(each.message["seconds"] for each in found) < 15


def test_ranks_wait_for_later_ranks(tmp_path: Path) -> None:
    """Ranks wait for ranks that start later: a worker may start before rank 0, and rank 0 before a worker."""
    of = group(32)
    early = start(tmp_path, 1, 3, of, mode="Require", seconds=PATIENT)
    time.sleep(1)
    leader = start(tmp_path, 0, 3, of, mode="Require", seconds=PATIENT)
    time.sleep(1)
    late = start(tmp_path, 2, 3, of, mode="Require", seconds=PATIENT)
    found = [wait_for_check(tmp_path, rank, process) for rank, process in ((0, leader), (1, early), (2, late))]
    assert [(each.code, each.finding_names) for each in found] == [(0, [])] * 3, [each.log for each in found]


def test_missing_rank_ends_the_check_of_all_others(tmp_path: Path) -> None:
    of = group(33)
    begun = time.monotonic()
    found = run_checks(tmp_path, 4, of, {3: None}, mode="Require", seconds=33)  # type: ignore[dict-item]
    assert [(each.code, each.finding_names) for each in found] == [(1, [(3, "absent")])] * 3
    assert all("rank 3 did not connect within 6 s" in each.finding_messages for each in found)
    assert time.monotonic() - begun < 31


def test_missing_leader_ends_the_check(tmp_path: Path) -> None:
    of = group(34)
    found = run_checks(tmp_path, 2, of, {0: None}, mode="Require")  # type: ignore[dict-item]
    assert [(each.code, each.finding_names) for each in found] == [(1, [(0, "absent")])]
    assert f"port {of.port} of {of.host(0)}: refused" in found[0].finding_messages


def test_finding_of_one_rank_holds_all_ranks(tmp_path: Path) -> None:
    of = group(35)
    found = run_checks(tmp_path, 3, of, {1: {"shm": 16 << 20}}, mode="Require")
    assert [(each.code, each.finding_names) for each in found] == [(1, [(1, "shm")])] * 3
    warned = run_checks(tmp_path, 3, group(35), {1: {"shm": 16 << 20}})
    assert [(each.code, each.finding_names) for each in warned] == [(0, [(1, "shm")])] * 3


def test_occupied_engine_port_is_a_finding(tmp_path: Path) -> None:
    of = group(36)
    with socket.create_server((of.host(0), of.http)):
        found = run_checks(tmp_path, 2, of, words=words(of))
    assert [each.finding_names for each in found] == [[(0, "ports")]] * 2
    assert f"port {of.http}, which the engine will use, is already in use" in found[1].finding_messages


def test_unreachable_rank_is_a_finding(tmp_path: Path) -> None:
    """If no other rank can reach a rank, this is a finding. In this test, the rank listens on another address, which has
    the same effect as a firewall.
    """
    of = group(37)
    found = run_checks(tmp_path, 3, of, {2: {"bind": "127.37.9.9"}})
    assert [each.finding_names for each in found] == [[(2, "reach")]] * 3, found[0].finding_messages
    assert "no other rank can connect to it at port" in found[0].finding_messages and "refused" in found[0].finding_messages


def test_rank_that_reaches_only_rank_0_is_a_finding(tmp_path: Path) -> None:
    of = group(38)
    found = run_checks(tmp_path, 3, of, {2: {"worker": "127.38.8.%d"}})
    assert [each.finding_names for each in found] == [[(1, "reach")]] * 3
    assert "rank 2 cannot connect to it" in found[0].finding_messages


def test_unresolvable_host_name_is_a_finding(tmp_path: Path) -> None:
    of = group(39)
    found = run_checks(tmp_path, 2, of, {0: {"worker": "rank-%d.invalid"}})
    assert [each.finding_names for each in found] == [[(1, "names")]] * 2
    assert "rank-1.invalid does not resolve" in found[1].finding_messages


def test_restarted_rank_does_not_wait_for_running_group(tmp_path: Path) -> None:
    """If the engine of rank 0 already runs, the preflight check of a restarted rank does not wait for a check of rank 0. In
    this test, the port of rank 0's engine is open, and no check of rank 0 runs.
    """
    of = group(40)
    with socket.create_server((of.host(0), of.http)):
        found = wait_for_check(tmp_path, 1, start(tmp_path, 1, 2, of, words=words(of), mode="Require", seconds=PATIENT))
    assert (found.code, found.finding_names) == (0, [])


def test_late_rank_does_not_mistake_the_check_for_an_engine(tmp_path: Path) -> None:
    """A rank that comes late does not take the check of rank 0 for a running engine. That check does not wait any more, but
    still holds the ports of its engine open.
    """
    of = group(46)
    held = Ports(of.host(0), [of.http])
    found = wait_for_check(tmp_path, 1, start(tmp_path, 1, 2, of, words=words(of), mode="Require"))
    assert held.open and (found.code, found.finding_names) == (1, [(0, "absent")])


def test_foreign_connections_to_rank_0_are_ignored(tmp_path: Path) -> None:
    of, over = group(41), threading.Event()
    odd = [{"rank": 99, "ports": [], "clock": 0, "left": 1}, {"rank": 1, "ports": "a", "clock": None}]
    rubbish = [b"GET / HTTP/1.1\r\n\r\n", b"x" * 200_000, b"[" * 5000 + b"\n", *(json.dumps(each).encode() for each in odd)]

    def disturb() -> None:
        while not over.wait(0.02):
            for text in rubbish:
                try:
                    with socket.create_connection((of.host(0), of.port), 1) as line:
                        line.sendall(text + b"\n")
                except OSError:
                    pass

    thread = threading.Thread(target=disturb)
    thread.start()
    try:
        found = run_checks(tmp_path, 2, of, mode="Require")
    finally:
        over.set()
        thread.join()
    assert [(each.code, each.finding_names) for each in found] == [(0, [])] * 2, [each.log for each in found]


def test_rank_that_dies_during_the_check_is_named(tmp_path: Path) -> None:
    of = group(42)
    leader = start(tmp_path, 0, 3, of, seconds=PATIENT)
    other = start(tmp_path, 1, 3, of, seconds=PATIENT)
    with socket.socket() as line:
        until = time.monotonic() + 60
        while line.connect_ex((of.host(0), of.port)) and time.monotonic() < until:
            time.sleep(0.05)
        line.sendall(json.dumps({"rank": 2, "ports": [1], "clock": time.time(), "left": PATIENT}).encode() + b"\n")
    found = [wait_for_check(tmp_path, rank, process) for rank, process in ((0, leader), (1, other))]
    assert [each.finding_names for each in found] == [[(2, "meeting"), (2, "reach")]] * 2
    assert "it ended before the check was complete" in found[0].finding_messages


def test_network_that_drops_large_packets_is_a_finding() -> None:
    """A network that drops large packets is found. With different MTUs, for example, ports can be reached although large
    packets are lost.
    """
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        config = {"rank": 0, "size": 2, "leader": "127.0.0.1", "worker": "127.0.0.1"}
        meeting = Meeting(config, CommandLine(()), Ports("127.0.0.1", []), {}, time.monotonic() + 30)
        ports = {"1": [deaf.getsockname()[1]]}
        assert meeting.reach({"ports": ports}) == {"failed": []}
        assert meeting.copy({"shift": 1, "ports": ports}) == {"to": 1, "rate": None, "why": "no answer"}


def test_collective_check_succeeds_between_all_ranks(tmp_path: Path) -> None:
    env = fake_torch(tmp_path)
    found = run_checks(tmp_path, 2, group(43), env=env, isolated=False, mode="Require")
    assert [(each.code, each.finding_names) for each in found] == [(0, [])] * 2, [each.log for each in found]
    assert "noise of gloo" in found[0].log, "what NCCL says is in the log"


def test_torch_result_is_parsed_despite_library_output(tmp_path: Path) -> None:
    """The result of the torch process is read correctly although a library prints an incomplete line, and a line that only
    looks like an answer.
    """
    noise = r"print(end='', flush=True); os.write(2, b'OME {half\nNCCL INFO no end of line')"
    found = run_checks(tmp_path, 2, group(46), env=fake_torch(tmp_path, noise), isolated=False)
    assert [each.finding_names for each in found] == [[]] * 2, [each.log for each in found]
    assert "NCCL INFO no end of line\nOME {" in found[0].log


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("raise RuntimeError('no route between GPUs')", "RuntimeError: no route between GPUs"),
        ("os._exit(7)", "its process ended with code 7"),
        ("time.sleep(3600)", "it did not end within"),
    ],
    ids=["raises", "dies", "hangs"],
)
def test_failed_collective_is_a_finding_of_all_ranks(tmp_path: Path, how: str, words: str) -> None:
    env = fake_torch(tmp_path, how)
    begun = time.monotonic()
    found = run_checks(tmp_path, 2, group(44), env=env, isolated=False, seconds=QUICK)
    assert [each.finding_names for each in found] == [[(0, "collective"), (1, "collective")]] * 2, [
        each.log for each in found
    ]
    assert words in found[0].finding_messages and time.monotonic() - begun < 35


def test_ranks_do_not_wait_if_torch_cannot_be_loaded_everywhere(tmp_path: Path) -> None:
    env = fake_torch(tmp_path)
    found = run_checks(tmp_path, 2, group(45), {0: {"env": env}}, isolated=False)
    assert [each.finding_names for each in found] == [[]] * 2, [each.log for each in found]


def test_single_gpu_runs_its_own_torch_check(tmp_path: Path) -> None:
    env = fake_torch(tmp_path, "raise RuntimeError('CUDA error: out of memory')")
    found = wait_for_check(tmp_path, 0, start(tmp_path, env=env, isolated=False, gpus=1))
    assert (0, "collective") in found.finding_names and "CUDA error" in found.finding_messages
