"""Tests of the display of a run's parts: rows on a terminal, lines elsewhere."""

import io
import sys
import time

import pytest
from rich.console import Console

from ome_local import screen
from ome_local.board import ProgressBoard
from ome_local.progress import print_progress, step

NEEDS = {"programs": (), "packages": (), "cluster": ("programs", "packages"), "operator": ("cluster",)}


class Clock:
    """A clock that the test sets."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def drawn(board: ProgressBoard, width: int = 80) -> list[str]:
    """Return the lines of the screen on a terminal of this width."""
    console = Console(file=io.StringIO(), width=width, force_terminal=False)
    console.print(screen.board_table(board))
    assert isinstance(console.file, io.StringIO)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


@pytest.fixture
def clock() -> Clock:
    """Return a clock at the beginning of a run."""
    return Clock()


def test_each_part_has_a_row(clock: Clock) -> None:
    """Each part of a run has a row with its state, the seconds, and its current step or what it waits for. The last line is
    about the whole run.
    """
    board = ProgressBoard(NEEDS, clock)
    with board.run_part("packages"):
        clock.now += 4.2
    with board.run_part("programs") as row:
        clock.now += 61
        row.steps += ["building etcd from source"]
        assert [" ".join(line.split()) for line in drawn(board)] == [
            "… programs 1 min 1 s building etcd from source",
            "✓ packages 4.2 s",
            "· cluster after programs",
            "· operator after cluster",
            "1 of 4 done 1 min 5 s",
        ]


def test_failed_part_is_marked_on_screen(clock: Clock) -> None:
    board = ProgressBoard(NEEDS, clock)
    with pytest.raises(ZeroDivisionError), board.run_part("packages"):
        clock.now += 3
        raise ZeroDivisionError
    clock.now += 1000
    assert drawn(board)[1].split() == ["✗", "packages", "3.0", "s"]


def test_the_screen_keeps_its_height(clock: Clock) -> None:
    """The number of lines on the screen does not change. A long text is cut, and only its first line is shown, because a
    row that wraps would move all other rows.
    """
    board = ProgressBoard(NEEDS, clock)
    with board.run_part("programs") as row:
        row.words = "kube-apiserver, " * 20 + "\nand more"
        lines = drawn(board, width=60)
    assert len(lines) == len(NEEDS) + 1
    assert all(len(line) <= 60 for line in lines)


def test_text_set_by_a_part_replaces_its_steps(clock: Clock) -> None:
    """A text that a part has set is shown instead of its steps. For example, the counts of a service are shown while kubectl
    runs.
    """
    board = ProgressBoard(NEEDS, clock)
    with board.run_part("operator") as row:
        row.steps.append("kubectl apply")
        row.words = "prefill 2/4"
        assert board.lines()[3].detail == "prefill 2/4"


def test_summary_line_lists_remaining_parts(clock: Clock) -> None:
    board = ProgressBoard(NEEDS, clock)
    with board.run_part("programs") as row:
        clock.now += 90
        row.steps.append("building etcd")
        assert board.summary() == "1 min 30 s: programs (1 min 30 s, building etcd); left: packages, cluster, operator"


class TestWithoutTerminal:
    """Tests of plain lines on stderr."""

    def test_one_line_is_printed_for_each_finished_part(self, clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
        board = ProgressBoard(NEEDS, clock)
        with screen.show_board(board), board.run_part("programs") as row:
            clock.now += 75
            row.words = "11 of them"
        assert capsys.readouterr().err.splitlines() == ["1 min 15 s: ✓ programs in 1 min 15 s, 11 of them"]

    def test_remaining_parts_are_printed_periodically(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setattr(screen, "EVERY_S", 0.05)
        board = ProgressBoard(NEEDS, Clock())
        with screen.show_board(board), board.run_part("programs"):
            until = time.monotonic() + 10
            told = ""
            while "left: packages, cluster, operator" not in told and time.monotonic() < until:
                time.sleep(0.02)
                told += capsys.readouterr().err
        assert "0.0 s: programs (0.0 s); left: packages, cluster, operator\n" in told

    def test_steps_are_printed_when_they_end(self, capsys: pytest.CaptureFixture[str]) -> None:
        """Without a terminal, a step is printed when it ends, with its time. The line of the part does not
        repeat the time.
        """
        board = ProgressBoard(NEEDS, Clock())
        with screen.show_board(board), board.run_part("programs") as row:
            with step("building etcd", quiet_below=0.0) as more:
                assert row.steps == ["building etcd"]
                more.append("26 MB")
            assert row.steps == []
        told = capsys.readouterr().err.splitlines()
        assert told[0].startswith("building etcd: 0.0 s") and told[0].endswith(", 26 MB")
        assert len(told) == 2


class Terminal(io.StringIO):
    """A file that claims to be a terminal."""

    def isatty(self) -> bool:
        return True


def test_terminal_shows_steps_in_rows_and_text_above(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps appear only in their row. Printed text is shown in full above the screen."""
    out, err = Terminal(), Terminal()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", err)
    board = ProgressBoard(NEEDS, Clock())
    with screen.show_board(board):
        assert screen.is_live()
        with board.run_part("programs"), step("building etcd", quiet_below=0.0):
            print_progress("There is no verified release of etcd.")
            print("  kubectl apply -f model.yaml")
    assert not screen.is_shown()
    shown = out.getvalue() + err.getvalue()
    assert "building etcd: " not in shown
    assert shown.count("There is no verified release of etcd.") == 1
    assert shown.count("kubectl apply -f model.yaml") == 1
    assert "after programs, packages" in shown or "after packages" in shown
