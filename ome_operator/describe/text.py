"""Formats lists of numbers and names in a short form."""

from collections.abc import Iterable


def numbers(found: Iterable[int]) -> str:
    """Format numbers as ranges, such as `0, 2–5, 9`."""
    return ", ".join("–".join(map(str, run)) for run in _runs(found))


def _runs(found: Iterable[int]) -> list[tuple[int, ...]]:
    """Return the runs of consecutive numbers. A run is (first, last), or (number,) if it has a single number."""
    runs: list[list[int]] = []
    for number in sorted(found):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return [(run[0],) if len(run) == 1 else (run[0], run[-1]) for run in runs]


def combine_names(found: Iterable[str], shown: int = 3) -> str:
    """Return a list of names as text. Names that differ only in the number at their end are combined, such as
    `h200-[0-3,7]`. The text contains at most `shown` items, and the number of further items.
    """
    stems: dict[tuple[str, int], list[int]] = {}
    for name in dict.fromkeys(found):
        stem = name.rstrip("0123456789")
        digits = name[len(stem) :]
        stems.setdefault((stem, len(digits)), []).append(int(digits or 0))
    names = [f"{stem}{_hosts(ends, width)}" for (stem, width), ends in _unpadded(stems).items()]
    return ", ".join(names[:shown]) + (f" and {len(names) - shown} more" if len(names) > shown else "")


def _unpadded(stems: dict[tuple[str, int], list[int]]) -> dict[tuple[str, int], list[int]]:
    """Regroup the numbers at the ends of names. `stems` maps (stem, width) to numbers: the stem is a name without its
    number, and the width is the count of the digits. Return the groups by (stem, width) as well.

    If no number of a stem has leading zeros, all numbers of the stem form a single group with the width 1: 9 and 10 for
    `n9` and `n10`. Otherwise, numbers of different widths stay in different groups: 9 and 10 with the width 2 for `n09` and
    `n10`, and 100 with the width 3 for `n100`.
    """
    padded = {stem for (stem, width), ends in stems.items() if width > 1 and min(ends) < 10 ** (width - 1)}
    found: dict[tuple[str, int], list[int]] = {}
    for (stem, width), ends in stems.items():
        found.setdefault((stem, width if stem in padded else min(width, 1)), []).extend(ends)
    return found


def _hosts(ends: list[int], width: int) -> str:
    if not width:
        return ""
    if len(ends) == 1:
        return f"{ends[0]:0{width}}"
    return f"[{','.join('-'.join(f'{end:0{width}}' for end in run) for run in _runs(ends))}]"
