"""Tests of the loads of the simulator, and of loads that users write."""

from pathlib import Path

import pytest

from ome_operator.errors import UserError
from ome_operator.simulation import traces

FILE = "seconds,rate,prompt,answer\n60,2,1000,100\n120,6,4000,50\n"


@pytest.mark.parametrize("name", traces.TRACES)
def test_every_trace_has_its_name_and_its_rate(name: str) -> None:
    trace = traces.trace_by_name(name)
    assert trace.name == name
    times = [trace.seconds * part / 100 for part in range(100)]
    assert all(0 <= trace.rate(at) <= trace.peak for at in times)
    assert all(sum(kind.share for kind in trace.kinds(at)) == pytest.approx(1.0) for at in times)


def test_requests_arrive_at_the_rate_of_the_trace() -> None:
    found = list(traces.requests(traces.steps(300.0)))
    counts = [sum(300 * n <= one.at < 300 * (n + 1) for one in found) / 300 for n in range(6)]
    assert counts == pytest.approx(list(traces.STEPS), rel=0.15)


def test_csv_file_is_parsed_as_a_trace() -> None:
    trace = traces.parse_trace(FILE, "load.csv")
    assert (trace.seconds, trace.peak, trace.rate(59), trace.rate(61)) == (180.0, 6.0, 2.0, 6.0)
    assert trace.kinds(100.0) == (traces.RequestKind(1.0, 4000.0, 50.0),)


HEAD = "seconds,rate,prompt,answer\n"
REFUSED = [
    ("", "line 1: there is no column seconds or rate or prompt or answer: write seconds,rate,prompt,answer"),
    ("60,2,1000,100\n", "line 1: there is no column seconds or rate"),
    ("a,b\n1,2\n", "line 1: there is no column seconds or rate"),
    ("Seconds,Rate,Prompt,Answer\n60,2,1000,100\n", "line 1: there is no column seconds"),
    ("seconds;rate;prompt;answer\n60;2;1000;100\n", "line 1: there is no column seconds"),
    ("seconds,rate,prompt\n60,2,1000\n", "line 1: there is no column answer: write seconds,rate,prompt,answer"),
    ("\0\x01\ufffd\n", "line 1: there is no column seconds"),
    (FILE + "x,1,1,2\n", "line 4: seconds, rate, prompt, answer must be numbers: write a row such as 600,2,8000,1000"),
    (FILE + "\n\n50%,1,1,2\n", "line 6: seconds, rate, prompt, answer must be numbers"),
    (FILE + "60,\0,1,2\n", "line 4: seconds, rate, prompt, answer must be numbers"),
    (FILE + "60,1\n", "line 4: seconds, rate, prompt, answer must be numbers"),
    (FILE + '60,"1,5",1,2\n', "line 4: seconds, rate, prompt, answer must be numbers"),
    (FILE + "60,1,5,1000,100\n", "line 4: there are more values than columns: write decimals with a point"),
    (HEAD + "6" * 200_000 + ",1,1,2\n", "line 2: field larger than field limit"),
    (HEAD + '"60,1,1,2\n' * 20_000, "seconds, rate, prompt, answer"),
    (FILE + "0,1,1,2\n", "line 4: seconds must be above 0, rate at least 0, prompt at least 1 and answer at least 2"),
    (FILE + "nan,1,1,2\n", "line 4: seconds must be above 0"),
    (FILE + "60,inf,1,2\n", "line 4: seconds must be above 0"),
    (FILE + "60,-1,1,2\n", "line 4: seconds must be above 0"),
    (FILE + "60,1,0,2\n", "line 4: seconds must be above 0"),
    (FILE + "60,1,1,1\n", "line 4: seconds must be above 0"),
    (FILE + "60,1e300,1,2\n", "line 4: .*at most 1,000,000,000"),
    (FILE + "60,1,1e300,2\n", "line 4: .*at most 1,000,000,000"),
    (FILE + "60,1,1,1e300\n", "line 4: .*at most 1,000,000,000"),
    (HEAD, "has no row with a rate above 0: write a row such as"),
    (HEAD + "60,0,1000,100\n", "has no row with a rate above 0"),
    (HEAD + "1,1,1,2\n" * (traces.MOST_ROWS + 1), "has more than 10,000 rows: remove some rows"),
    (HEAD + "86400,1000,1,2\n", "more than the 2,000,000 that can be simulated: shorten the trace"),
    (HEAD + "0.5,10,100,10\n", "lasts 0.5 s, but a trace has to last 10 s to 7 days: edit seconds"),
    (HEAD + "1e8,1e-7,100,10\n", "lasts 1e[+]08 s, but a trace has to last 10 s to 7 days"),
    (HEAD + "10,1e-7,100,10\n", "so short that no request arrives: raise rate or seconds"),
    (HEAD + "10,1e-320,100,10\n", "so short that no request arrives"),
]


@pytest.mark.parametrize(("text", "said"), REFUSED)
def test_invalid_trace_file_is_refused_with_one_sentence(text: str, said: str) -> None:
    with pytest.raises(UserError, match=said) as refused:
        traces.parse_trace(text, "load.csv")
    assert len(str(refused.value)) < 200


@pytest.mark.parametrize(
    "text",
    [
        "\ufeff" + FILE,
        FILE.replace(",", ", "),
        FILE.replace("\n", "\r\n"),
        FILE.replace("\n", "\n\n"),
        "answer,note,prompt,seconds,rate\n100,a,1000,60,2\n50,b,4000,120,6\n",
    ],
)
def test_spreadsheet_csv_formats_are_parsed(text: str) -> None:
    trace = traces.parse_trace(text, "load.csv")
    assert [(trace.rate(at), trace.kinds(at)[0].prompt) for at in (0, 59.9, 60, 179, 500)] == [
        (2.0, 1000.0), (2.0, 1000.0), (6.0, 4000.0), (6.0, 4000.0), (6.0, 4000.0)
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["", "steeps", "/tmp", "a" * 300, "a\0b"])
def test_nonexistent_trace_file_is_refused(name: str) -> None:
    with pytest.raises(UserError, match=r"there is no trace|cannot be read .* write the name of another CSV file"):
        traces.trace_by_name(name)


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "load.csv"
    path.write_text(FILE)

    def refuse(*_args: object, **_options: object) -> str:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_text", refuse)
    with pytest.raises(UserError, match=r"cannot be read [(]Permission denied[)]: write the name of another CSV file"):
        traces.trace_by_name(str(path))


def test_an_unknown_trace_is_refused() -> None:
    with pytest.raises(UserError, match="there is no trace steeps: write sinusoid"):
        traces.trace_by_name("steeps")
