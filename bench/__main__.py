"""The command line of the benchmark."""

import argparse
import asyncio
import contextlib
import json
import os
import platform
import signal
import subprocess
import sys
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from pydantic import TypeAdapter, ValidationError
from rich.console import Console

from bench import against
from bench.report import sections
from bench.results import Results
from bench.rows import Section
from bench.run import PARTS, SIDES, Bench, Options
from bench.table import markdown, ratios, show

FOLDER = Path(__file__).parent / "results"


def main() -> int:
    """Measure, print and write the results. Exits with code 1 if something could not be measured or, with --strict, if an
    aim was missed.
    """
    parser = command_line()
    given = parser.parse_args()
    # Containers and agents set it. Each start of the operator would compile all modules again: 0.8 s of CPU time.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    if given.read is not None:
        return _again(parser, given.read, given.markdown)
    if given.against:
        return _against(given)
    options = _options(given)
    began = datetime.now(UTC)
    results = Results(about=_about(options, began))
    code = asyncio.run(_run(Bench(options, results, sys.stderr)))
    results.about["took_s"] = round((datetime.now(UTC) - began).total_seconds())
    results.about["load_after"] = os.getloadavg()
    table = sections(results)
    _print(table, results, given.markdown)
    _write(results, given.json or FOLDER / f"{began:%Y-%m-%dT%H%M%SZ}.json")
    for failure in results.failures:
        print(f"not measured: {failure}", file=sys.stderr)
    missed = [row for section in table for row in section.rows if row.met is False]
    return code or int(bool(results.failures) or (given.strict and bool(missed)))


def _again(parser: argparse.ArgumentParser, file: Path, as_markdown: bool) -> int:
    """Print the results of an earlier run from its JSON file. Exits with an error message if the file cannot be used."""
    try:
        results = TypeAdapter(Results).validate_json(file.read_bytes())
    except OSError as error:
        parser.error(f"--read {file}: {error.strerror}. Runs write their figures below {FOLDER}.")
    except ValidationError as error:
        parser.error(
            f"--read {file}: this file does not hold the figures of a run, which `--json` writes: {error.errors()[0]['msg']}"
        )
    _print(sections(results), results, as_markdown)
    return 0


def _against(arguments: argparse.Namespace) -> int:
    """Measure this checkout and another commit, and print the ratio of each figure. Return the exit code: 1 if something
    could not be measured or, with --strict, if an aim was missed; 130 after Ctrl-C.
    """
    words = [word for part in arguments.only or () for word in ("--only", part)]
    words += ["--services", ",".join(map(str, arguments.services)), "--concurrency", str(arguments.concurrency)]
    words += [*(["--side", arguments.side] if arguments.side else ()), *(["--quick"] if arguments.quick else ())]
    try:
        table, failures = against.compare(arguments.against, words, arguments.repeat or against.REPEAT)
    except KeyboardInterrupt:
        return 130
    ratios(table, Console(width=None if sys.stdout.isatty() else 150))
    for failure in failures:
        print(f"not measured: {failure}", file=sys.stderr)
    return int(bool(failures) or (arguments.strict and any(row.met is False for row in table.rows)))


def _print(table: list[Section], results: Results, as_markdown: bool) -> None:
    if as_markdown:
        print(markdown(table, results.about))
    else:
        show(table, Console(width=None if sys.stdout.isatty() else 150))


async def _run(bench: Bench) -> int:
    """Run the benchmark until it is done or interrupted. Its clusters are removed in both cases. Return the exit code: 0, or
    130 after an interruption.
    """
    task = asyncio.ensure_future(bench.run())
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, task.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await task
        return 0
    print("interrupted; the clusters have been removed", file=sys.stderr)
    return 130


def command_line() -> argparse.ArgumentParser:
    defaults = Options()
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--only", action="append", choices=PARTS, help="only this part; may be repeated")
    parser.add_argument("--services", type=_numbers, default=defaults.services, help="numbers of services, such as 1,10,100")
    parser.add_argument("--repeat", type=int, help=f"repetitions of each side; medians are shown ({defaults.repeat})")
    parser.add_argument(
        "--concurrency", type=int, default=defaults.lanes, help="number of concurrent requests of the benchmark"
    )
    parser.add_argument("--side", choices=SIDES, help="only this side")
    parser.add_argument(
        "--quick", action="store_true", help="run 10 services once with short waits, to check that everything works"
    )
    parser.add_argument("--json", type=Path, metavar="PATH", help="file for the figures (default: below bench/results/)")
    parser.add_argument("--markdown", action="store_true", help="print the table as Markdown, for docs/performance.md")
    parser.add_argument("--read", type=Path, metavar="PATH", help="print the figures of an earlier run without measuring")
    parser.add_argument(
        "--against",
        metavar="COMMIT",
        help=f"measure this checkout and another commit in turn, {against.REPEAT} times each, and print their ratios",
    )
    parser.add_argument("--strict", action="store_true", help="exit code 1 when an aim was missed")
    return parser


def _options(arguments: argparse.Namespace) -> Options:
    options = Options(
        only=tuple(arguments.only or PARTS),
        services=arguments.services,
        repeat=arguments.repeat or Options.repeat,
        lanes=arguments.concurrency,
        sides=(arguments.side,) if arguments.side else SIDES,
    )
    if not arguments.quick:
        return options
    return Options(
        only=options.only, services=(10,), repeat=1, lanes=options.lanes, sides=options.sides, idle_s=20.0, pairs=10,
        scaled=5, crowd=(200, 200), labelled=(30, 20, 5), started=(500, 20, 20), churned=400, scraped=(100,),
        routers=(100, 6.0), steps=2, prefetched=(2**28, 3.0),
    )  # fmt: skip


def _numbers(text: str) -> tuple[int, ...]:
    found = tuple(sorted({int(word) for word in text.split(",")}))
    if not found or found[0] < 1:
        raise argparse.ArgumentTypeError("numbers above 0, such as 1,10,100")
    return found


def _about(options: Options, began: datetime) -> dict[str, object]:
    return {
        "began": began.isoformat(timespec="seconds"),
        "commit": _git("rev-parse", "HEAD"),
        "changed_files": len(_git("status", "--porcelain").splitlines()),
        "cpus": os.cpu_count(),
        "python": platform.python_version(),
        "load_before": os.getloadavg(),
        "options": asdict(options),
    }


def _git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=FOLDER.parent, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def _write(results: Results, file: Path) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    if file.parent == FOLDER:
        (FOLDER / ".gitignore").write_text("*\n")  # figures of one machine are not source code
    file.write_text(json.dumps(asdict(results), indent=1) + "\n")
    print(f"written to {file}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
