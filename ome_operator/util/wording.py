"""Write numbers with nouns in messages."""


def count(number: int, noun: str) -> str:
    """Return a number with its noun, such as "1 group" or "2 groups"."""
    return f"{number} {noun}{'' if number == 1 else 's'}"
