"""Tests that docs/performance.md agrees with the benchmark: OME's figures, the aims, the commands, and the format of a
pasted run.
"""

import re
from dataclasses import replace
from pathlib import Path

from bench.__main__ import command_line
from bench.counting import Count
from bench.processes import Usage
from bench.report import ABOVE, LAG_S, RATIO, sections
from bench.results import Quiet, Ramp, Restart, Results
from bench.scenarios import SINGLE
from bench.table import markdown
from ome_local.binaries.versions import KUBERNETES

PAGE = (Path(__file__).parents[3] / "docs/performance.md").read_text()
COUNT = Count(requests=5, writes=1, created=1, written={"patch services": 1})
RAMP = Ramp(
    scenario=SINGLE[100].key, title=SINGLE[100].title, side="floor", repetition=0, pods_s=20.0, sent_s=15.0, services=100,
    pods=1100, objects=21, servers_cpu_s={"apiserver": 30.0}, pace_ms=2.0,
)  # fmt: skip


def known() -> Results:
    """Return the results of a run that has every measurement for which a figure of OME exists."""
    ours = replace(RAMP, side="operator", lags_s=(0.2,), usage=Usage(9.0, 100.0), count=COUNT)
    return Results(
        about={"began": "2026-11-24", "commit": "0123456", "cpus": 2, "python": "3.11"},
        ramps=[RAMP, ours],
        scaled=Quiet(services=50, seconds=60.0, count=COUNT, cpu_s=0.3),
        restart=Restart(services=100, stop_s=1.0, lead_s=2.0, count=COUNT, usage=Usage(1.0, 90.0)),
    )


def test_ome_figures_on_the_page_equal_those_of_the_benchmark() -> None:
    told = PAGE.partition("## Compared with OME")[2]
    figures = [row.ome for section in sections(known()) for row in section.rows if row.ome]
    assert len(figures) >= 8
    assert [figure for figure in figures if figure not in told] == []


def test_aims_on_the_page_equal_those_of_the_benchmark() -> None:
    text = " ".join(PAGE.split())
    assert f"at most {RATIO} times the floor" in text
    assert f"within {LAG_S:.0f} s after its own last pod" in text
    assert f"number of writes for a service is at most {ABOVE:.0f} more than its number of objects" in text
    assert KUBERNETES in PAGE


def test_bench_accepts_commands_of_its_page() -> None:
    commands = re.findall(r"python -m bench ([^`]+)`", PAGE)
    assert commands
    for words in commands:
        given = command_line().parse_args(words.split())
        prints = given.markdown and given.read == Path("bench/results/FILE.json")
        assert prints or re.fullmatch("COMMIT|[0-9a-f]{8}", given.against)


def test_section_of_the_last_run_is_empty_or_has_its_date() -> None:
    """The section of docs/performance.md for the last run is either empty, or contains the output of `--markdown` of a
    complete run with its date.
    """
    found = re.findall(r"^<!-- last run: .*? -->\n(.*?)^<!-- end of the last run -->$", PAGE, re.M | re.S)
    assert len(found) == 1
    (pasted,) = found
    assert _form(markdown(sections(known()), known().about)), "the printed output has the required form"
    assert _form(pasted) or "**Not pasted yet.**" in pasted


def _form(text: str) -> bool:
    """Return whether the text has the date, the commit, and the columns of both sides."""
    where = re.search(r"^Measured \d{4}-\d\d-\d\d at commit [0-9a-f]{7}", text, re.M)
    return bool(where) and "|  | floor | operator | ratio |" in text and "| last pod Ready |" in text
