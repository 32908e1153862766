"""The end of a log, as a status shows it."""

from ome_operator.core.termination import tail, telling

LOG = "starting\nTraceback (most recent call last):\n  File x\ntorch.OutOfMemoryError: no room\nshutting down\n"


def test_the_line_that_names_an_error_tells_most() -> None:
    assert telling(LOG) == "torch.OutOfMemoryError: no room"
    assert telling("one\ntwo\n\n") == "two"
    assert telling("") == ""


def test_the_tail_keeps_the_telling_line() -> None:
    assert tail(LOG) == LOG.strip()
    long = tail(LOG + "noise\n" * 300)
    assert long.startswith("torch.OutOfMemoryError: no room\n…\nnoise") and len(long) < 700


def test_a_log_cannot_write_on_a_persons_screen() -> None:
    """Engines print tokens, and progress bars return to the start of their line."""
    assert tail("10%\r100%\r\n\x1b[31mred\x00 😀 ok") == "10%\n100%\n\ufffd[31mred\ufffd 😀 ok"
