"""Parse and edit command lines that are lists of words. A flag with a value may be two words, one word with a space in it,
or `--flag=value`.
"""

from collections.abc import Collection, Iterable


def flag(word: str) -> str:
    """Return the name of the flag in a word, without its value: `--port` for `--port=80`."""
    return word.replace("=", " ").partition(" ")[0]


def flags(words: Iterable[str]) -> frozenset[str]:
    """Return the names of all flags among the words."""
    return frozenset(flag(word) for word in words if word.startswith("--"))


def remove_flags(words: Iterable[str], names: Collection[str]) -> list[str]:
    """Return the words without the named flags and their values."""
    kept: list[str] = []
    skip = False  # the current word is a value of a removed flag
    for word in words:
        if not word.startswith("--"):
            if not skip:
                kept.append(word)
            continue
        removed = flag(word) in names
        skip = removed and flag(word) == word  # a flag whose word contains the value has no more values after it
        if not removed:
            kept.append(word)
    return kept


def group_flags(words: Iterable[str]) -> list[list[str]]:
    """Split the words into groups; each group is a flag followed by its values."""
    out: list[list[str]] = []
    for word in words:
        if word.startswith("--") or not out:
            out.append([word])
        else:
            out[-1].append(word)
    return out


def override_flags(words: Iterable[str], extra: list[str]) -> list[str]:
    """Return the words without the flags that `extra` contains, followed by `extra`."""
    return [*remove_flags(words, flags(extra)), *extra]
