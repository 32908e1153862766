"""Run a thread that reports progress while other work is running."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def run_watcher(tell: Callable[[threading.Event], None]) -> Iterator[None]:
    """Run `tell` in a thread while the `with` block runs. The argument of `tell` is an event, which is set at the end of the
    block. The block ends when the thread has ended.
    """
    over = threading.Event()
    watcher = threading.Thread(target=tell, args=(over,), daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()
