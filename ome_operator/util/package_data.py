"""Read data files of a package."""

from importlib import resources


def text(package: str, name: str) -> str:
    """Return the content of a file in the folder `data` of a package. Raises FileNotFoundError if there is no such file."""
    return (resources.files(package) / "data" / name).read_text(encoding="utf-8")
