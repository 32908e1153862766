"""Room for C code that calls itself: a stack that is too small ends the process without a word."""

import contextlib
import threading

NEED = 8 * 2**20
"""Bytes, as Linux gives by default. Python's decoder of JSON takes 1.5 MiB for the 10,000 levels that it goes in 3.13."""


def widen() -> None:
    """Let the main thread, which grows as it needs, and every thread that begins from now on have so much."""
    threading.stack_size(NEED)
    with contextlib.suppress(ImportError):  # Windows, where Python's own limit is as low as its stacks
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_STACK)
        if soft != resource.RLIM_INFINITY and soft < NEED:
            more = NEED if hard == resource.RLIM_INFINITY else min(NEED, hard)
            resource.setrlimit(resource.RLIMIT_STACK, (more, hard))
