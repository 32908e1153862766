"""Tests of the loads of the simulator, and of loads that users write."""

import pytest

from ome_operator.errors import UserError
from ome_operator.simulation import traces

FILE = "seconds,rate,prompt,answer\n60,2,1000,100\n120,6,4000,50\n"


@pytest.mark.parametrize("name", traces.TRACES)
def test_every_trace_has_its_name_and_its_rate(name: str) -> None:
    trace = traces.named(name)
    assert trace.name == name
    times = [trace.seconds * part / 100 for part in range(100)]
    assert all(0 <= trace.rate(at) <= trace.peak for at in times)
    assert all(sum(kind.share for kind in trace.kinds(at)) == pytest.approx(1.0) for at in times)


def test_requests_arrive_at_the_rate_of_the_trace() -> None:
    found = list(traces.requests(traces.steps(300.0)))
    counts = [sum(300 * n <= one.at < 300 * (n + 1) for one in found) / 300 for n in range(6)]
    assert counts == pytest.approx(list(traces.STEPS), rel=0.15)


def test_a_file_is_a_trace() -> None:
    trace = traces.read(FILE, "load.csv")
    assert (trace.seconds, trace.peak, trace.rate(59), trace.rate(61)) == (180.0, 6.0, 2.0, 6.0)
    assert trace.kinds(100.0) == (traces.RequestKind(1.0, 4000.0, 50.0),)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a,b\n1,2\n", "line 2: seconds, rate, prompt and answer must be numbers"),
        (FILE + "x,1,1,2\n", "line 4: seconds, rate, prompt and answer must be numbers"),
        (FILE + "0,1,1,2\n", "line 4: seconds must be above 0, rate at least 0, prompt 1 and answer 2"),
        (FILE + "nan,1,1,2\n", "line 4: seconds must be above 0"),
        ("seconds,rate,prompt,answer\n", "has no row with a rate above 0"),
        ("seconds,rate,prompt,answer\n86400,1000,1,2\n", "more than 2,000,000: shorten it"),
        ("seconds,rate,prompt,answer\n0.5,10,100,10\n", "lasts 0.5 s, but a trace has to last 10 s to 7 days"),
        ("seconds,rate,prompt,answer\n1e12,1e-7,100,10\n", "lasts 1e[+]12 s, but a trace has to last 10 s to 7 days"),
        ("seconds,rate,prompt,answer\n10,1e-7,100,10\n", "so short that no request arrives"),
        ("seconds,rate,prompt,answer\n10,1e-320,100,10\n", "so short that no request arrives"),
    ],
)
def test_a_file_that_is_no_trace_is_refused_with_one_sentence(text: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        traces.read(text, "load.csv")


def test_an_unknown_trace_is_refused() -> None:
    with pytest.raises(UserError, match="there is no trace steeps: write sinusoid"):
        traces.named("steeps")
