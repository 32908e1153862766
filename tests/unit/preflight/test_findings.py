"""Tests of the conclusions from the answers of ranks: which rank a finding is about."""

import socket

import pytest

from ome_operator.preflight import ports
from ome_operator.preflight.findings import UNKNOWN, clocks, failed_copies, links, slow_ranks, unreachable
from ome_operator.preflight.node import CommandLine

Rates = dict[tuple[int, int], float]


def ring(size: int, sender: float = 1.0, taker: float = 1.0, rank: int = 2, shifts: tuple[int, ...] = (1, 2)) -> Rates:
    """Return the transfer rates of a group. Normal ranks reach 200 MB/s; the rates of one rank are multiplied by `sender`
    when it sends, and by `taker` when it receives.
    """
    pairs = [(at, (at + shift) % size) for at in range(size) for shift in shifts]
    return {(a, b): 2e8 * (sender if a == rank else 1.0) * (taker if b == rank else 1.0) for a, b in pairs}


def about(found: list[dict[str, object]]) -> list[tuple[object, object]]:
    return [(each["rank"], each["check"]) for each in found]


@pytest.mark.parametrize("size", [3, 4, 12])
def test_slow_rank_is_found_but_its_neighbours_are_not(size: int) -> None:
    assert about(list(slow_ranks(ring(size, sender=0.1)))) == [(2, "copy")]
    assert about(list(slow_ranks(ring(size, taker=0.1)))) == [(2, "copy")]
    (said,) = slow_ranks(ring(size, sender=0.1))
    assert said["said"] == "it sends 20.0 MB/s by TCP, but the median of the group is 200.0 MB/s"


def test_of_two_ranks_the_slower_sender_is_found() -> None:
    assert about(list(slow_ranks({(0, 1): 2e8, (1, 0): 2e7}))) == [(1, "copy")]


@pytest.mark.parametrize("rates", [{}, {(0, 1): 1.0}, ring(4, sender=0.4, taker=0.4), {(0, 1): 9e9, (1, 0): 1.1e9}])
def test_similar_rates_give_no_finding(rates: Rates) -> None:
    assert list(slow_ranks(rates)) == []


def test_failed_copy_is_a_finding() -> None:
    stuck = {(0, 1): "no answer", (1, 2): "refused"}
    assert about(list(failed_copies(stuck, {0: {"failed": []}, 1: {"failed": [(2, 1, "refused")]}}))) == [(0, "copy")]


def test_clock_skew_is_a_finding() -> None:
    def seen(*skews: float) -> list[tuple[object, object]]:
        return about(list(clocks({rank: {"skew": skew} for rank, skew in enumerate(skews)})))

    assert seen(0.0, 0.1, -1.0) == []
    assert seen(0.0, 30.0, 0.1) == [(1, "clock")]
    assert seen(0.0, -30.0, -30.1) == [(0, "clock")], "rank 0 measures the others, so its own clock may be wrong"
    assert seen(0.0, 30.0) == [(1, "clock")]


def test_slow_link_is_a_finding() -> None:
    rates = {0: {"link": 400.0}, 1: {"link": 200.0}, 2: {"link": 400.0}, 3: {"link": 0.0}}
    assert about(list(links(rates))) == [(1, "links")]
    assert list(links({0: {"link": 0.0}})) == []


def test_closed_port_is_attributed_to_the_right_rank() -> None:
    def seen(failed: dict[int, list[tuple[int, int, str]]], size: int = 3) -> list[tuple[object, object]]:
        return about(list(unreachable({rank: {"failed": failed.get(rank, [])} for rank in range(size)}, str)))

    assert seen({}) == []
    assert seen({1: [(0, 5757, "refused")], 2: [(0, 5757, "refused")]}) == [(0, "reach")]
    assert seen({1: [(0, 5757, "refused"), (2, 1, "refused")]}) == [(1, "reach")], "it reaches no other rank"
    assert seen({1: [(0, 5757, "no answer")]}, size=2) == [(0, "reach")]
    assert seen({1: [(2, 1, UNKNOWN)]}) == [(2, "names")]


def test_engine_ports_are_read_from_arguments() -> None:
    said = CommandLine(["--port=30000", "--dist-init-addr=h:5757", "--disaggregation-bootstrap-port", "8998", "--port", "x"])
    assert ports.engine_ports(said, 0, 30000) == [5757, 8998, 30000]
    assert ports.engine_ports(said, 1, 30000) == []
    decode = CommandLine(["--disaggregation-mode=decode", "--disaggregation-bootstrap-port=8998", "--port=99999"])
    assert ports.engine_ports(decode, 0, 0) == [] and ports.other_ports(decode) == [8998]


def test_unreachable_prefill_leader_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    """A prefill leader that refuses connections has an engine that does not run yet. A leader that does not answer is
    unreachable, which is a finding.
    """

    def resolved(host: str, port: None) -> None:
        if int(host.rpartition(".")[2]) > 3:
            raise socket.gaierror

    def connected(address: tuple[str, int], timeout: float) -> socket.socket:
        if address[0].endswith(".1"):
            raise ConnectionRefusedError
        if address[0].endswith(".2"):
            raise TimeoutError
        return socket.socket()

    monkeypatch.setattr(socket, "getaddrinfo", resolved)
    monkeypatch.setattr(socket, "create_connection", connected)
    (found,) = ports.prefill({"prefill": "10.0.0.%d"}, [8998])
    assert found["said"] == "prefill group 2 is not reachable at port 8998 of 10.0.0.2: no answer"
    assert list(ports.prefill({}, [8998])) == []
