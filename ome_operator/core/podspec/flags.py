"""Command lines as lists of words: `--flag value`, `--flag=value` and `--flag value` in one word."""

from collections.abc import Collection, Iterable


def flag(word: str) -> str:
    """The name of a flag without its value."""
    return word.replace("=", " ").partition(" ")[0]


def flags(words: Iterable[str]) -> frozenset[str]:
    """The names of the flags among these words."""
    return frozenset(flag(word) for word in words if word.startswith("--"))


def without(words: Iterable[str], names: Collection[str]) -> list[str]:
    """The words without these flags and their values."""
    kept: list[str] = []
    skip = False  # inside the values of a flag that goes
    for word in words:
        if not word.startswith("--"):
            if not skip:
                kept.append(word)
            continue
        goes = flag(word) in names
        skip = goes and flag(word) == word  # a flag with its value in one word has no other values behind it
        if not goes:
            kept.append(word)
    return kept


def grouped(words: Iterable[str]) -> list[list[str]]:
    """The words in pieces, each a flag with the values behind it."""
    out: list[list[str]] = []
    for word in words:
        if word.startswith("--") or not out:
            out.append([word])
        else:
            out[-1].append(word)
    return out


def override(words: Iterable[str], extra: list[str]) -> list[str]:
    """The words with those of `extra` in place of flags of the same name, new ones behind."""
    return [*without(words, flags(extra)), *extra]
