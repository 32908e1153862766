"""A thread that tells how far something is while it goes on."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def watched(tell: Callable[[threading.Event], None]) -> Iterator[None]:
    """Meanwhile `tell` runs in a thread, until the event that it is given is set; it has ended when the block has."""
    over = threading.Event()
    watcher = threading.Thread(target=tell, args=(over,), daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()
