"""Tests of the end of a log, as a status contains it."""

from ome_operator.core.termination import last_lines, most_informative_line

LOG = "starting\nTraceback (most recent call last):\n  File x\ntorch.OutOfMemoryError: no room\nshutting down\n"


def test_most_informative_line_is_the_one_that_names_an_error() -> None:
    assert most_informative_line(LOG) == "torch.OutOfMemoryError: no room"
    assert most_informative_line("one\ntwo\n\n") == "two"
    assert most_informative_line("") == ""


KILLED = """\
[2026-11-27 10:00:00] Decode batch, #running-req: 3, gen throughput (token/s): 5.90
[2026-11-27 10:00:01] Subprocess scheduler_0 (pid=57) crashed with exit code -9. Triggering SIGQUIT for cleanup...
[2026-11-27 10:00:01] Received sigquit from a child process. It usually means the child failed.
[2026-11-27 10:00:01] kill_process_tree called: parent_pid=12, include_parent=True, pid=12
"""
"""The end of the log of SGLang 0.5.23 whose scheduler was killed."""


def test_process_crash_line_is_preferred_to_later_lines() -> None:
    assert "Subprocess scheduler_0 (pid=57) crashed with exit code -9" in most_informative_line(KILLED)
    unnamed = "\n".join(line for line in KILLED.splitlines() if "crashed" not in line)
    assert "Decode batch" in most_informative_line(unnamed)
    assert "kill_process_tree" in most_informative_line(KILLED.splitlines()[-1])
    assert most_informative_line(KILLED + "RuntimeError: CUDA error\n") == "RuntimeError: CUDA error"


def test_log_tail_contains_the_most_informative_line() -> None:
    assert last_lines(LOG) == LOG.strip()
    long = last_lines(LOG + "noise\n" * 300)
    assert long.startswith("torch.OutOfMemoryError: no room\n…\nnoise") and len(long) < 700


def test_log_tail_contains_no_terminal_control_characters() -> None:
    """The end of a log in a status cannot control a terminal. Engines log tokens, which may contain control characters, and
    progress bars with carriage returns.
    """
    assert last_lines("10%\r100%\r\n\x1b[31mred\x00 😀 ok") == "10%\n100%\n\ufffd[31mred\ufffd 😀 ok"
