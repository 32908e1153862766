"""Python's garbage collector beside much that lives long: to walk all of it takes as long as a stall that people notice."""

import gc


def patient() -> None:
    """Look seldom: bodies of events die young and without cycles; by default the collector looks every 700 objects."""
    gc.set_threshold(50_000, 20, 20)


def settled() -> None:
    """What is there now lives long, and is not walked again."""
    gc.collect()
    gc.freeze()
