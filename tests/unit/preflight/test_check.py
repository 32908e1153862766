"""Tests of the texts of the check that runs before engines."""

import pytest

from ome_operator.preflight.check import shortened

NCCL = (
    "DistBackendError: NCCL error in: /pytorch/torch/csrc/distributed/c10d/NCCLUtils.cpp:93, invalid usage (run with "
    "NCCL_DEBUG=WARN for details), NCCL version 2.28.9\nncclInvalidUsage: This usually reflects invalid usage of NCCL "
    "library.\n"
    "Last error:\nDuplicate GPU detected : rank 0 and rank 1 both on CUDA device 60"
)
"""The refusal of NCCL 2.28.9 on an H100 that two ranks shared (2026-11-27). torch 2.11.0 wrote it."""


def test_end_of_a_long_library_error_is_kept() -> None:
    """If an error of a library is too long, its end is kept. NCCL names the cause in its last line, which is not within the
    first 200 characters.
    """
    text = shortened(NCCL)
    assert text.startswith("DistBackendError: NCCL error in") and len(text) <= 200
    assert text.endswith("Last error: Duplicate GPU detected : rank 0 and rank 1 both on CUDA device 60")


@pytest.mark.parametrize("error", ["RuntimeError: the store is gone", "x" * 200, ""])
def test_short_error_is_unchanged(error: str) -> None:
    """Errors of up to 200 characters are not changed."""
    assert shortened(error) == error


def test_an_error_is_one_line_of_bounded_length() -> None:
    """An error of several lines becomes one line of at most 200 characters."""
    text = shortened("first\n" + "middle " * 1000 + "\nlast")
    assert text.startswith("first middle") and text.endswith("middle last") and "\n" not in text and len(text) <= 200
