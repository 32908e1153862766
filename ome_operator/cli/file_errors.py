"""Describes why a file cannot be read, for messages that name the file themselves."""


def why_unreadable(error: Exception) -> str:
    """Return the reason without the number of the error and the path, such as "No such file or directory"."""
    if isinstance(error, OSError):
        return error.strerror or str(error)
    return "it is not text in UTF-8" if isinstance(error, UnicodeDecodeError) else str(error)
