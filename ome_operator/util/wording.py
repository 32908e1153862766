"""Word parts of messages: numbers with nouns, and exceptions."""


def error_text(error: BaseException) -> str:
    """Return the message of an exception; the name of its class if the message is empty, as for most TimeoutErrors."""
    return str(error) or type(error).__name__


def count(number: int, noun: str) -> str:
    """Return a number with its noun, such as "1 group" or "2 groups"."""
    return f"{number} {noun}{'' if number == 1 else 's'}"
