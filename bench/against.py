"""Compares this checkout with another commit: `python -m bench --against COMMIT`.

The other commit gets a temporary checkout with an environment from its own lock file. Each side then measures with its own
`python -m bench`, one repetition at a time. The sides alternate, and the side that begins also alternates, so that a drift
of the machine affects both.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

from bench.figures import median
from bench.rows import Row, Section

ROOT = Path(__file__).parent.parent
REPEAT = 5
"""Number of repetitions of each side."""
AIMS = {
    "the operator's CPU (its start included), 100 services": 0.7,
    "the operator's peak memory, 100 services": 0.75,
    "last pod Ready, in multiples of the floor, 100 services": 1.2,
    "the operator's CPU, labels in turn": 0.5,
    "CPU of the start, 20,020 pods": 0.6,
    "memory at rest in MiB, 20,020 pods": 0.7,
}
"""Name of a figure -> the largest permitted ratio of its value in this checkout to its value in the other commit. The
figure in multiples of the floor is an exception: the number here limits its value in this checkout, whatever the other
commit has.
"""
ITSELF = "multiples of the floor"
Figures = dict[str, float]


def compare(commit: str, arguments: Sequence[str], repeat: int) -> tuple[Section, list[str]]:
    """Measure both sides `repeat` times. Return a table of medians and ratios, and the measurements that failed."""
    found: dict[str, list[Figures]] = {"that": [], "this": []}
    failures: list[str] = []
    with _checkout(commit) as (folder, name), tempfile.TemporaryDirectory(prefix="ome-bench-") as results:
        sides = {"that": (folder / ".venv/bin/python", folder), "this": (Path(sys.executable), ROOT)}
        for python, where in sides.values():
            _compile(python, where)
        for number in range(repeat):
            for side in sorted(sides, reverse=number % 2 == 1):
                print(f"--- {name if side == 'that' else 'this checkout'}, {number + 1} of {repeat}", file=sys.stderr)
                (python, where), file = sides[side], Path(results) / f"{side}-{number}.json"
                _wait([str(python), "-m", "bench", *arguments, "--repeat", "1", "--json", str(file)], where)
                measured = json.loads(file.read_text()) if file.exists() else {"failures": ["no results"]}
                failures += [f"{side}, {number + 1}: {failure}" for failure in measured.get("failures") or ()]
                found[side].append(figures_of_run(measured))
    return section(f"{name} and this checkout, {repeat} times each", found["that"], found["this"]), failures


def figures_of_run(results: Mapping[str, Any]) -> Figures:
    """Return the figures of one run, as a map from name to value. The results of another commit may lack some figures."""
    return {
        **_ramps(results.get("ramps") or ()),
        **_labelled(results.get("labelled") or {}),
        **_fleets(results.get("fleets") or ()),
        **_others(results),
    }


def section(title: str, that: Sequence[Figures], this: Sequence[Figures]) -> Section:
    """Return a row for each figure that both sides have: the median of each side, and their ratio."""
    rows = []
    for name in dict.fromkeys(name for run in that for name in run):
        before, after = ([run[name] for run in runs if name in run] for runs in (that, this))
        if not after or not median(before):
            continue
        ratio, aim = median(after) / median(before), AIMS.get(name)
        met = None if aim is None else (median(after) if ITSELF in name else ratio) <= aim
        shown = "" if aim is None else f"<= {aim:g}"
        rows.append(Row(name, _spread(before), _spread(after), f"{ratio:.2f} x", shown, met))
    return Section(title, tuple(rows))


def _spread(values: Sequence[float]) -> str:
    middle, *ends = (
        f"{value:.0f}" if value >= 1000 else f"{value:.3g}" for value in (median(values), min(values), max(values))
    )
    return f"{middle} ({'–'.join(ends)})"


def _ramps(ramps: Sequence[Mapping[str, Any]]) -> Figures:
    found: Figures = {}
    floors = {ramp["scenario"]: ramp["pods_s"] for ramp in ramps if ramp["side"] == "floor"}
    for ramp in (ramp for ramp in ramps if ramp["side"] == "operator"):
        of = f"{ramp['services']} services" if "single" in ramp["scenario"] else ramp["title"]
        found[f"the operator's CPU (its start included), {of}"] = ramp["usage"]["cpu_s"]
        found[f"CPU of its start alone, {of}"] = ramp["started_cpu_s"]
        found[f"the operator's peak memory, {of}"] = ramp["usage"]["peak_mib"]
        found[f"last pod Ready, {of}"] = ramp["pods_s"]
        found[f"slowest service Ready after its last pod, {of}"] = max(ramp["lags_s"], default=0.0)
        found[f"writes per service, {of}"] = ramp["count"]["writes"] / ramp["services"]
        if ramp["scenario"] in floors:
            found[f"last pod Ready, in {ITSELF}, {of}"] = ramp["pods_s"] / floors[ramp["scenario"]]
    return found


def _labelled(labelled: Mapping[str, Any]) -> Figures:
    waves = {f"the operator's CPU, labels {wave['what']}": wave["cpu_s"] for wave in labelled.get("waves") or ()}
    return waves | ({"the operator's peak memory, labels": labelled["peak_mib"]} if waves else {})


def _fleets(fleets: Sequence[Mapping[str, Any]]) -> Figures:
    found: Figures = {}
    for fleet in (fleet for fleet in fleets if not fleet["grows"]):
        of = f"{fleet['size']['services'] * 11:,} pods"
        found[f"CPU of the start, {of}"] = fleet["waves"][0]["cpu_s"]
        found[f"CPU of all other events, {of}"] = sum(wave["cpu_s"] for wave in fleet["waves"][1:])
        found[f"the longest stall, {of}"] = max(wave["stall_s"] for wave in fleet["waves"])
        found[f"memory at rest in MiB, {of}"] = fleet["rest_mib"]
        found[f"peak memory in MiB, {of}"] = fleet["peak_mib"]
    return found


def _others(results: Mapping[str, Any]) -> Figures:
    found: Figures = {}
    for part, name, what in (
        ("alone", "first_us", "µs of `sync` for a new service"), ("alone", "steady_us", "µs of `sync` with nothing to do"),
        ("churned", "cpu_s", "CPU of churn"), ("churned", "peak_mib", "peak memory of churn"),
        ("started", "peak_mib", "peak memory of a start"), ("idle", "cpu_s", "CPU while nothing changes"),
        ("linted", "seconds", "`ome lint` of the catalog"), ("planned", "seconds", "`ome plan`"),
    ):  # fmt: skip
        if results.get(part):
            found[what] = results[part][name]
    if started := results.get("started"):
        found["seconds of a start"] = median(started["starts_s"])
    return found


@contextmanager
def _checkout(commit: str) -> Iterator[tuple[Path, str]]:
    """Check out a commit with its own environment, and yield the folder and the short name of the commit. The checkout and
    its environment are removed at the end of the `with` block.
    """
    name = subprocess.run(
        ["git", "rev-parse", "--short", f"{commit}^{{commit}}"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.strip()
    with tempfile.TemporaryDirectory(prefix=f"ome-{name}-") as parent:
        folder = Path(parent) / "checkout"
        subprocess.run(["git", "worktree", "add", "--quiet", "--detach", str(folder), name], cwd=ROOT, check=True)
        try:
            subprocess.run(["make", "setup", f"PYTHON={os.path.realpath(sys.executable)}"], cwd=folder, check=True)
            yield folder, name
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", str(folder)], cwd=ROOT, check=True)


def _compile(python: Path, folder: Path) -> None:
    """Load all modules of the operator of a checkout once, so that its first measured start does not compile them."""
    load = "import ome_operator.app, ome_operator.cli.operator, ome_operator.watch.handlers"
    subprocess.run([str(python), "-c", load], cwd=folder, check=False)  # an older commit may name them differently


def _wait(words: Sequence[str], folder: Path) -> None:
    """Run a benchmark in another process, and wait for its end. If this process is interrupted, the benchmark removes its
    clusters first.
    """

    def interrupt(*_: object) -> NoReturn:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)
    process = subprocess.Popen(words, cwd=folder, stdout=subprocess.DEVNULL, start_new_session=True)
    try:
        process.wait()
    except BaseException:
        process.send_signal(signal.SIGINT)
        process.wait()
        raise
