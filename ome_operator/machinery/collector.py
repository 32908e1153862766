"""Python's garbage collector beside much that lives long: to walk all of it takes as long as a stall that people notice."""

import gc


def patient() -> None:
    """Look seldom: bodies of events die young and without cycles; by default the collector looks every 700 objects.

    A look at the youngest costs some 3 ms, each tenth 30 ms.
    """
    gc.set_threshold(20_000, 10, 100)


def listed() -> None:
    """What is there now lives long, and is not walked again; it still goes when nobody refers to it. Only what is young is
    collected before: a look at all of 5,000 nodes and 1,820 services holds the loop for 0.3 s, and a look at less has found
    3 to 7 objects.
    """
    gc.collect(1)
    gc.freeze()


def passed() -> None:
    """Everything had a pass, and what passes remember lives long, too. Nothing is collected before, which would take as long
    as what this is to spare; the little garbage that goes in circles now stays. So it is for once.
    """
    gc.freeze()
