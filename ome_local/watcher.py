"""Runs a thread that reports progress while other work goes on."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def watched(tell: Callable[[threading.Event], None]) -> Iterator[None]:
    """Run `tell` in a thread inside the `with` block. The event that is passed to it is set at the end of the block, which
    waits for the thread.
    """
    over = threading.Event()
    watcher = threading.Thread(target=tell, args=(over,), daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()
