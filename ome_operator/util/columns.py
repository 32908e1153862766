"""Format rows of text as aligned columns, as kubectl does."""

from collections.abc import Iterator, Sequence


def lines(rows: Sequence[Sequence[str]], left: int | None = None) -> Iterator[str]:
    """Yield the rows as lines whose columns are as wide as their widest cell, without blanks at the end.

    The first `left` columns are aligned to the left, and the other columns to the right. If `left` is None, all columns are
    aligned to the left.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        aligned = (
            cell.ljust(width) if left is None or number < left else cell.rjust(width)
            for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        yield "  ".join(aligned).rstrip()


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a text table with aligned columns. Each line ends in a newline."""
    return "".join(f"{line}\n" for line in lines([head, *rows]))
