"""Describes why a file cannot be read, for messages that name the file themselves."""


def why_unreadable(error: Exception) -> str:
    """Return the reason without the number of the error and the path, such as "No such file or directory". The parser of
    YAML names the text that it read `<unicode string>`; this name is left out.
    """
    if isinstance(error, OSError):
        return error.strerror or str(error)
    if isinstance(error, UnicodeDecodeError):
        return "it is not text in UTF-8"
    return str(error).replace('in "<unicode string>", ', "in ")
