"""Describes why a file cannot be read, for messages that name the file themselves."""


def why_unreadable(error: Exception) -> str:
    """Return the reason without the number of the error and without a name of the file: the path, or `<unicode string>`, by
    which the YAML parser names a text. An example is "No such file or directory".
    """
    if isinstance(error, OSError):
        return error.strerror or str(error)
    if isinstance(error, UnicodeDecodeError):
        return "it is not text in UTF-8"
    return str(error).replace('in "<unicode string>", ', "in ")
