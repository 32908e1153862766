"""Run a thread that reports progress while other work is running."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def watched(tell: Callable[[threading.Event], None]) -> Iterator[None]:
    """Run `tell` in a thread inside the `with` block. The argument of `tell` is an event that is set at the end of the
    block. The end of the block waits for the thread.
    """
    over = threading.Event()
    watcher = threading.Thread(target=tell, args=(over,), daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()
