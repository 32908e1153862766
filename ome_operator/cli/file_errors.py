"""Describes why a file cannot be read, for messages that name the file themselves."""


def why_unreadable(error: Exception) -> str:
    """Return the reason why a file cannot be read, such as "No such file or directory". The number of the error is left out,
    and so is the name of the file: its path, or `<unicode string>`, the name that the YAML parser gives to a text.
    """
    if isinstance(error, OSError):
        return error.strerror or str(error)
    if isinstance(error, UnicodeDecodeError):
        return "it is not text in UTF-8"
    return str(error).replace('in "<unicode string>", ', "in ")
