"""Set the stack size for recursive C code. A stack overflow would end the process without a message."""

import contextlib
import threading

NEED = 8 * 2**20
"""Required stack size in bytes, which is the default of Linux. Python 3.13 permits 10,000 levels, for which its JSON
decoder needs 1.5 MiB, and msgspec between 3 and 4 MiB."""


def widen() -> None:
    """Set the stack size of the main thread and of every thread that is started later."""
    threading.stack_size(NEED)
    with contextlib.suppress(ImportError):  # Windows, where Python's recursion limit fits its small stacks
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_STACK)
        if soft != resource.RLIM_INFINITY and soft < NEED:
            limit = NEED if hard == resource.RLIM_INFINITY else min(NEED, hard)
            resource.setrlimit(resource.RLIMIT_STACK, (limit, hard))
